"""The keys that records and index entries are signed with: read from files or the environment, again when they change.

Read where they are used, by every process for itself: a key is in no configuration, no Spark setting and no checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path

from infra.logs import hide
from state.config import Config
from state.errors import HilcastError
from state.security_settings import Signing
from state.signing import Keyring, read_key, read_keys

VARIABLE = "HILCAST_SIGNING_KEY"
"""Holds the key where `[signing]` names no file of it."""

Stamp = tuple[tuple[int, int, int] | None, ...]


class SigningKeys:
    """The keyring of a deployment as its files have it now; None where nothing is signed.

    Guarantee: a changed file is taken up by the next `current`; a key that cannot be read then leaves what there was.
    There may be no file of previous keys: then none is believed but the one that signs.
    Cost: two looks at the file system.
    """

    def __init__(self, config: Config) -> None:
        """`signing-key` if there is no key to be read."""
        self._signing = config.signing
        self._stamp: Stamp = ()
        self._ring: Keyring | None = None
        if self._signing is not None:
            self._stamp = _stamp(self._signing)
            self._ring = _read(self._signing)

    def current(self) -> Keyring | None:
        if self._signing is None:
            return None
        stamp = _stamp(self._signing)
        if stamp != self._stamp:
            try:
                self._ring, self._stamp = _read(self._signing), stamp
            except HilcastError:
                return self._ring  # half written: the next look has it
        return self._ring


def keyring(config: Config) -> Keyring | None:
    """The keyring of a configuration, for a command."""
    return SigningKeys(config).current()


def _stamp(signing: Signing) -> Stamp:
    return tuple(_of_file(path) for path in (signing.key_file, signing.previous_file) if path is not None)


def _of_file(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(signing: Signing) -> Keyring:
    if signing.key_file is None and not os.environ.get(VARIABLE):
        raise HilcastError("signing-key", f"[signing] names no key_file, and {VARIABLE} is not set")
    first = os.environb[VARIABLE.encode()] if signing.key_file is None else _content(signing.key_file)
    previous = b"" if signing.previous_file is None else _content(signing.previous_file, needed=False)
    for secret in (first.strip(), *previous.splitlines()):
        hide(secret.decode("utf-8", "replace"))
    return Keyring((read_key(first), *read_keys(previous)), signing.unsigned)


def _content(path: str, *, needed: bool = True) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        if not needed and isinstance(error, FileNotFoundError):
            return b""
        raise HilcastError("signing-key", f"the signing key {path} cannot be read: {error.strerror}") from error
