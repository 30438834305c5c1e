"""Reading the registry: the facts from which everything can be rebuilt, and what deployments have agreed on.

subscription/b1/quote/s1      a fact (`state/control/facts.py`)
configuration                 the configuration that all deployments are to have in common, and its version
generation/NAME               the generation that a deployment has claimed, and what it was made from
refusal/NAME                  why a deployment does not take a version of the configuration
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from infra.kafka import Transport
from infra.kafka.reading import Follower
from state.config import Config
from state.control.facts import Fact, decode_fact

FactKey = tuple[str, str, str, str]
"""Kind (`subscription` or `advertisement`), broker, type, id."""
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


class Refusal(msgspec.Struct, frozen=True):
    """Why a deployment stays with what it has."""

    version: int
    faults: list[str]


class RegistryReader:
    """Follows the registry from its beginning; the last record of a key is its fact."""

    def __init__(self, config: Config, transport: Transport) -> None:
        self.facts: dict[FactKey, Fact] = {}
        self.claims: dict[str, Claim] = {}
        self.agreed: Agreed | None = None
        self.refusals: dict[str, Refusal] = {}
        self._follower = Follower(transport, config.topics.registry)
        self._changed: dict[FactKey, None] = {}

    def catch_up(self) -> list[FactKey]:
        """Read to the present end; return the keys that changed.

        Guarantee: after an error they are returned by the next call that succeeds.
        """
        for record in self._follower.catch_up():
            touched = self._take(record.key or b"", record.value)
            if touched is not None:
                self._changed[touched] = None
        changed, self._changed = self._changed, {}
        return list(changed)

    def catch_up_quietly(self) -> None:
        """Read to the present end; what changed is returned by the next `catch_up`."""
        self._changed |= dict.fromkeys(self.catch_up())

    def _take(self, key: bytes, value: bytes | None) -> FactKey | None:
        kind, *rest = key.decode().split("/")
        if kind in ("subscription", "advertisement") and len(rest) == 3:
            return self._take_fact((kind, rest[0], rest[1], rest[2]), value)
        if value is None:
            return None
        if key == CONFIGURATION:
            self.agreed = msgspec.json.decode(value, type=Agreed)
        elif kind == "generation":
            self.claims[rest[0]] = msgspec.json.decode(value, type=Claim)
        elif kind == "refusal":
            self.refusals[rest[0]] = msgspec.json.decode(value, type=Refusal)
        return None

    def _take_fact(self, key: FactKey, value: bytes | None) -> FactKey:
        if value is None:
            self.facts.pop(key, None)
        else:
            self.facts[key] = decode_fact(value)
        return key

    def close(self) -> None:
        self._follower.close()


def sinks(facts: Iterable[Fact]) -> set[str]:
    """The topics that live subscriptions are delivered to instead of their client's own."""
    return {fact.sink for fact in facts if fact.live and fact.sink is not None}


def claim_record(deployment: str, claim: Claim) -> tuple[bytes, bytes]:
    """Key and value of the record by which a deployment claims a generation."""
    return f"generation/{deployment}".encode(), msgspec.json.encode(claim)


def refusal_record(deployment: str, refusal: Refusal) -> tuple[bytes, bytes]:
    """Key and value of the record by which a deployment says that it stays with what it has."""
    return f"refusal/{deployment}".encode(), msgspec.json.encode(refusal)


def configuration_record(version: int, shared: bytes) -> tuple[bytes, bytes]:
    """Key and value of the record that has all deployments take a configuration."""
    return CONFIGURATION, msgspec.json.encode(Agreed(version, msgspec.Raw(shared)))
