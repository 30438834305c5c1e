"""Signatures on what only the job may write: control records, registry records, entries and pointers of the index.

    record      header hilcast_signature = MAC(topic, key, value, other headers)
    Redis       MAC(name of the key, run of Redis, epoch, index)       MAC(name of the hash, field, value)

Whoever may write to a topic or to Redis without being allowed to (a right too many, a stolen password) can then delay,
but not say anything that is believed. The MAC is keyed BLAKE2b of 16 bytes. The first key signs; any of them is
believed, so that a key can be changed without a stop. A record can still be said again as it was: streams are
numbered, facts carry their generation, configurations their version, and the null value that ends a fact names the fact
that it ends (`state/control/facts.py`); so what is said again is known to be old.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from state.errors import HilcastError
from state.messages import Headers, Output, Record
from state.topics import Topics

SIGNATURE = "hilcast_signature"
SIGNATURE_BYTES = 16
KEY_BYTES_MIN = 16
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2})+")


@dataclass(frozen=True)
class Keyring:
    """The keys of a deployment: the first signs, all are believed. Never printed.

    >>> ring = Keyring((b"k" * 16,))
    >>> ring
    Keyring(1 key)
    >>> ring.believes(ring.sign(b"index", b"a", b"bc"), b"index", b"a", b"bc")
    True
    >>> ring.believes(ring.sign(b"index", b"a", b"bc"), b"index", b"ab", b"c")
    False
    """

    keys: tuple[bytes, ...] = field(repr=False)
    unsigned: bool = False
    """Whether what has no signature is believed, too: while signing is being introduced."""

    def __post_init__(self) -> None:
        assert self.keys, "a keyring has a key to sign with"

    def __repr__(self) -> str:
        return f"Keyring({len(self.keys)} key{'s' if len(self.keys) > 1 else ''})"

    def sign(self, kind: bytes, *parts: bytes | None) -> bytes:
        return _mac(self.keys[0], kind, parts)

    def believes(self, signature: bytes | None, kind: bytes, *parts: bytes | None) -> bool:
        """Whether this was signed with one of the keys, or need not be signed."""
        if signature is None:
            return self.unsigned
        return any(hmac.compare_digest(signature, _mac(key, kind, parts)) for key in self.keys)

    def is_current(self, signature: bytes | None, kind: bytes, *parts: bytes | None) -> bool:
        """Whether this was signed with the key that signs now."""
        return signature is not None and hmac.compare_digest(signature, _mac(self.keys[0], kind, parts))


def _mac(key: bytes, kind: bytes, parts: Iterable[bytes | None]) -> bytes:
    """Each part with its length before it, so that no two lists of parts are one text; None is no empty part."""
    mac = hashlib.blake2b(key=key, digest_size=SIGNATURE_BYTES, person=kind)
    for part in parts:
        mac.update((-1 if part is None else len(part)).to_bytes(8, "big", signed=True))
        mac.update(part or b"")
    return mac.digest()


def read_key(content: bytes) -> bytes:
    """The key in a file or variable: hexadecimal digits, or else the bytes as they are; `signing-key` if too short.

    >>> read_key(b"00112233445566778899aabbccddeeff\\n").hex()
    '00112233445566778899aabbccddeeff'
    """
    bare = content.strip()
    key = bytes.fromhex(bare.decode()) if _HEX.fullmatch(bare) else bare
    if len(key) < KEY_BYTES_MIN:
        raise HilcastError("signing-key", f"a signing key of {len(key)} bytes: at least {KEY_BYTES_MIN} are needed")
    return key if len(key) <= 64 else hashlib.blake2b(key).digest()


def read_keys(content: bytes) -> tuple[bytes, ...]:
    """The keys of a file that has one on each line."""
    return tuple(read_key(line) for line in content.splitlines() if line.strip())


# ── records ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_signed(topic: str, topics: Topics) -> bool:
    """Whether records of this topic bear signatures, where there is a key."""
    return topic in (topics.control, topics.registry)


def signed(output: Output, ring: Keyring | None) -> Output:
    """A record for a topic whose records bear signatures, with its own; as it is where there is no key.

    >>> ring = Keyring((b"k" * 16,))
    >>> genuine(signed(Output("t", b"k", b"v"), ring), ring), genuine(Output("t", b"k", b"v"), ring)
    (True, False)
    """
    if ring is None:
        return output
    plain = _others(output.headers)
    return replace(output, headers=(*plain, (SIGNATURE, ring.sign(b"record", *_parts(output, plain)))))


def all_signed(outputs: Iterable[Output], topics: Topics, ring: Keyring | None) -> list[Output]:
    """What a step of the core says, signed where it must be."""
    if ring is None:
        return list(outputs)
    return [signed(output, ring) if is_signed(output.topic, topics) else output for output in outputs]


def genuine(record: Record | Output, ring: Keyring | None) -> bool:
    """Whether this record was written by who has a key; everything is where there is no key."""
    return ring is None or ring.believes(_signature(record), b"record", *_parts(record, _others(record.headers)))


def is_aged(record: Record, ring: Keyring) -> bool:
    """Whether a genuine record is to be signed anew: with the key that signs now."""
    return not ring.is_current(_signature(record), b"record", *_parts(record, _others(record.headers)))


def genuine_ones(records: Iterable[Record], ring: Keyring | None) -> Iterator[Record]:
    """Those that are genuine."""
    return (record for record in records if genuine(record, ring))


def _signature(record: Record | Output) -> bytes | None:
    return next((value for name, value in reversed(record.headers) if name == SIGNATURE), None)


def _others(headers: Headers) -> Headers:
    return tuple(header for header in headers if header[0] != SIGNATURE)


def _parts(record: Record | Output, headers: Headers) -> Iterator[bytes | None]:
    yield record.topic.encode()
    yield record.key
    yield record.value
    for name, value in headers:
        yield name.encode()
        yield value
