"""What deployments have agreed on, and what each has claimed: records of the registry beside the facts.

configuration       the configuration that all deployments are to have in common, and its version
generation/NAME     the generation that a deployment has claimed, and what it was made from
refusal/NAME        why a deployment does not take a version of the configuration
"""

from __future__ import annotations

import msgspec

from state.errors import HilcastError
from state.formats import UNREADABLE
from state.limits import INPUT_BYTES_MAX, RECORD_OVERHEAD_BYTES

CONFIGURATION = b"configuration"


class Agreed(msgspec.Struct, frozen=True):
    """A configuration that all deployments are to have in common."""

    version: int
    shared: msgspec.Raw
    """As `Config.shared` writes it."""


class Claim(msgspec.Struct, frozen=True):
    """What a deployment says of its generation."""

    generation: int
    fingerprint: str = ""
    configuration: int = 0
    """The version of the configuration that it was made from."""
    file: str = ""
    """A hash of the file with which the deployment was started last."""
    signing: str = ""
    """Where it has its signing keys (`Signing.place`), if it has some."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a deployment stays with what it has."""

    version: int
    faults: list[str]


class Agreements:
    """All of these, as far as the registry has been read."""

    def __init__(self) -> None:
        self.agreed: Agreed | None = None
        self.contested = False
        """Whether two configurations were sent under the version that is agreed on: some may have taken the first."""
        self.claims: dict[str, Claim] = {}
        self.refusals: dict[str, Refusal] = {}

    @property
    def version(self) -> int:
        """Of the configuration that was agreed on last."""
        return 0 if self.agreed is None else self.agreed.version

    def take(self, key: bytes, value: bytes | None) -> bool | None:
        """Take notice of a record; None: it is none of these. One that cannot be read is passed over.

        False: it is older than what is known, said again or too late, and changes nothing. Versions and generations
        only grow; but compaction would keep it.
        """
        kind, _, name = key.decode("utf-8", "replace").partition("/")
        if key != CONFIGURATION and kind not in ("generation", "refusal"):
            return None
        try:
            if value is None:
                return True
            if key == CONFIGURATION:
                agreed = msgspec.json.decode(value, type=Agreed)
                if agreed.version < self.version:
                    return False
                known = self.agreed
                same = known is None or agreed.version > known.version or bytes(agreed.shared) == bytes(known.shared)
                # the last one counts, as for whoever reads what compaction left
                self.contested = not same or (self.contested and known is not None and agreed.version == known.version)
                self.agreed = agreed
            elif kind == "generation":
                claim = msgspec.json.decode(value, type=Claim)
                if name in self.claims and claim.generation < self.claims[name].generation:
                    return False
                self.claims[name] = claim
            else:
                self.refusals[name] = msgspec.json.decode(value, type=Refusal)
        except UNREADABLE:
            return True
        return True

    def record(self, key: bytes) -> tuple[bytes, bytes]:
        """What is known under this key, as a record: to be written again where something older stands behind it."""
        if key == CONFIGURATION:
            return key, msgspec.json.encode(self.agreed)
        return key, msgspec.json.encode(self.claims[key.decode().partition("/")[2]])


def claim_record(deployment: str, claim: Claim) -> tuple[bytes, bytes]:
    """Key and value of the record by which a deployment claims a generation."""
    return f"generation/{deployment}".encode(), msgspec.json.encode(claim)


def refusal_record(deployment: str, refusal: Refusal) -> tuple[bytes, bytes]:
    """Key and value of the record by which a deployment says that it stays with what it has."""
    return f"refusal/{deployment}".encode(), msgspec.json.encode(refusal)


def configuration_record(version: int, shared: bytes) -> tuple[bytes, bytes]:
    """Key and value of the record that has all deployments take a configuration."""
    value = msgspec.json.encode(Agreed(version, msgspec.Raw(shared)))
    if len(value) > INPUT_BYTES_MAX - RECORD_OVERHEAD_BYTES - len(CONFIGURATION):
        raise HilcastError("bad-config", f"{len(value)} bytes of overlay and types are more than a record may have")
    return CONFIGURATION, value
