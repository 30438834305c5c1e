"""The state of a part as bytes: what it was when it was last sealed, and what it has heard since.

    format | lengths | sealed: everything, packed and compressed | lengths | step | all since | lengths | step | ...
                                                                             └ the messages of one batch, as applied

The core is deterministic, so that what was sealed and what came since *is* the state. A step is appended, and nothing
before it is written anew: packing costs what the change is. Once what was heard is longer than a share of what was
packed, everything is sealed again: what is packed is so at most some `share + 1` times what was heard. What is small
is sealed at every step: who has not seen a step would have to repeat it, and that costs more than unpacking a little.

A long step is compressed as well; that everything is sealed anew depends on how long steps are before that, so `all
since` counts them so.

Why zstd: entries of a part look much alike. What LZ4 makes half as long zstd makes a third, at half the speed, which
is still a small part of what packing costs. It is the same bytes for the same state and library; with another library
they are others, and those of before are read.

Each step that changes the index gives it another *stamp*, made of the last one and the step: the name of what the
index is, by which a change of it is written on what it was made from, and on nothing else (`state/index_delta.py`).

A process keeps parts unpacked from batch to batch (`Kept`), each with the very bytes that it is. Whoever brings bytes
that begin with those gets it, and repeats the steps that follow: a worker that has not seen the last batches pays for
these alone. Any other bytes are unpacked anew. So the bytes that Spark keeps are the truth, whoever crashed when.

    kept      |sealed|step|step|
    brought   |sealed|step|step|step|      taken, and one step repeated
    brought   |sealed|step|                a batch that failed is repeated: not taken
    brought   |sealed again|               not taken
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec
import pyarrow

from state import formats
from state.control.protocol import Change, Resync, decode, encode

SEALED_SHARE = 4
"""Everything is sealed once what was heard since is longer than this part of it."""
SEALED_MIN = 16 * 1024
"""Bytes, packed, below which everything is sealed at every step."""
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of state, packed and not compressed, whose parts a process keeps; unpacked they take many times as much."""
STAMP_BYTES = 16
COMPRESSED_MIN = 512
"""Bytes of a step that are worth compressing."""
WHAT = "the state of a part"
COMPRESSED_MAX = 2**15
"""Bytes that zstd makes one of, at most: a damaged length must not ask for all the memory there is."""
_codec = pyarrow.Codec("zstd", compression_level=1)
_HEAD = struct.Struct("<BII")
_LENGTHS = struct.Struct("<II")
"""Of a step: as it is kept, and before it was compressed; 0: it is not compressed."""
_SINCE = struct.Struct("<I")
"""Behind each step: bytes of all steps so far, before they were compressed."""
_steps = msgspec.msgpack.Decoder(list[bytes])
Heard = Change | Resync
"""What a part goes by; everything else that it is told changes nothing in it."""
T = TypeVar("T")


def sealed(format: int, packed: bytes) -> bytes:
    """A state of which everything is packed; also that of a home key, which is so at every step."""
    compressed: bytes = _codec.compress(packed, asbytes=True)
    return _HEAD.pack(format, len(packed), len(compressed)) + compressed


def opened(format: int, blob: bytes, what: str = WHAT) -> tuple[bytes, int]:
    """What was packed when the state was last sealed, and where the steps begin.

    >>> opened(3, sealed(3, b"everything") + b"steps")[0]
    b'everything'
    """
    formats.opened(what, format, blob)
    if len(blob) < _HEAD.size:
        raise formats.unreadable(what, f"{len(blob)} bytes")
    _, size, length = _HEAD.unpack_from(blob)
    end = _HEAD.size + length
    if end > len(blob) or size > COMPRESSED_MAX * length:
        raise formats.unreadable(what, f"{size} bytes compressed to {length}, of {len(blob)}")
    try:
        return _codec.decompress(blob[_HEAD.size : end], size, asbytes=True), end
    except (OSError, pyarrow.ArrowException) as error:
        raise formats.unreadable(what, str(error)) from error


def weight(blob: bytes) -> int:
    """How many bytes a state is before it is compressed.

    >>> weight(grown(sealed(3, bytes(1000)), b"step", least=0))
    1004
    """
    _, size, length = _HEAD.unpack_from(blob)
    return int(size) + _since(blob, _HEAD.size + int(length))


def _since(blob: bytes, at: int) -> int:
    """Bytes of the steps from a place on, before they were compressed."""
    if len(blob) < at + _LENGTHS.size + _SINCE.size:
        return 0
    return int(_SINCE.unpack_from(blob, len(blob) - _SINCE.size)[0])


def packed(heard: Sequence[Heard]) -> bytes:
    """One step."""
    return msgspec.msgpack.encode([encode(message) for message in heard])


def stamped(stamp: bytes, step: bytes) -> bytes:
    """The stamp of the index after a step that changes it: it names all such steps so far, in their order."""
    return blake2b(stamp + step, digest_size=STAMP_BYTES).digest()


def grown(blob: bytes, step: bytes, share: int = SEALED_SHARE, least: int = SEALED_MIN) -> bytes | None:
    """The state with one more step; None: it is time to seal it."""
    _, size, length = _HEAD.unpack_from(blob)
    since = _since(blob, _HEAD.size + length) + len(step)
    if size < least or share * since > size:
        return None
    is_long = len(step) >= COMPRESSED_MIN
    kept = _codec.compress(step, asbytes=True) if is_long else step
    return b"".join([blob, _LENGTHS.pack(len(kept), len(step) if is_long else 0), kept, _SINCE.pack(since)])


def steps(blob: bytes, at: int) -> list[tuple[bytes, list[Heard]]]:
    """The steps from a place on, packed and unpacked."""
    found = []
    while at < len(blob):
        whole = at + _LENGTHS.size <= len(blob)
        length, size = _LENGTHS.unpack_from(blob, at) if whole else (len(blob), 0)
        begin, end = at + _LENGTHS.size, at + _LENGTHS.size + length
        if end + _SINCE.size > len(blob):
            raise formats.unreadable(WHAT, f"a step is cut short: {len(blob)} bytes, {end + _SINCE.size} expected")
        step = _expanded(blob[begin:end], size)
        found.append((step, _read(step)))
        at = end + _SINCE.size
    return found


def _expanded(kept: bytes, size: int) -> bytes:
    """A step as it was heard; `size`: its bytes, 0 where it is not compressed."""
    if not size:
        return kept
    if size > COMPRESSED_MAX * len(kept):
        raise formats.unreadable(WHAT, f"a step of {size} bytes compressed to {len(kept)}")
    try:
        step: bytes = _codec.decompress(kept, size, asbytes=True)
    except (OSError, pyarrow.ArrowException) as error:
        raise formats.unreadable(WHAT, str(error)) from error
    return step


def _read(step: bytes) -> list[Heard]:
    try:
        messages = [decode(one) for one in _steps.decode(step)]
    except formats.UNREADABLE as error:
        raise formats.unreadable(WHAT, str(error)) from error
    heard = [message for message in messages if isinstance(message, Heard)]
    if len(heard) != len(messages):
        raise formats.unreadable(WHAT, "a step of something that no part goes by")
    return heard


class Kept(Generic[T]):
    """What a process keeps unpacked between batches, least recently used first."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept: OrderedDict[str, tuple[bytes, T]] = OrderedDict()
        self._bytes_max = bytes_max
        self.size = 0
        """What the states of all of them weigh."""

    def take(self, name: str, blob: bytes) -> tuple[T, int] | None:
        """Hand out what these bytes begin with, and how many of them it is; it is kept no longer."""
        found = self._kept.get(name)
        self.forget(name)
        return None if found is None or not blob.startswith(found[0]) else (found[1], len(found[0]))

    def keep(self, name: str, blob: bytes, value: T) -> None:
        """Keep what these bytes are; others go if there are too many."""
        self.forget(name)
        self._kept[name] = blob, value
        self.size += weight(blob)
        while self.size > self._bytes_max:
            self.forget(next(iter(self._kept)))

    def forget(self, name: str) -> None:
        """Keep it no longer."""
        found = self._kept.pop(name, None)
        self.size -= 0 if found is None else weight(found[0])

    def __len__(self) -> int:
        return len(self._kept)
