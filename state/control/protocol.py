"""What keys say to each other on the control topic.

    home ──Change──> part                        local entries, clipped to the part
    part ──Change──> same part at a neighbour    what the reduction says the neighbour must hold
    part ──Resync──> whoever it missed something from
    driver ──> any key                           Seed, Amend, Expire, Forget, Republish, Renew

A `Change` is one step, or a piece of one, of the stream from its source to its receiver (`streams.py`).

Messages are msgpack arrays headed by a tag and a format number; nothing here is ever pickled.
"""

from __future__ import annotations

from typing import Union

import msgspec

from state import formats
from state.compiled_part import LocalEntry
from state.space.packing import Packed

FORMAT = 2


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Something a neighbour asked for."""

    id: str
    geometry: Packed
    wording: str | None = None
    """The filter in words, where boxes alone do not decide what it overlaps (`placement.py`), as long as nothing else
    is withheld on its account; None: the geometry decides."""


class Advertised(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An advertisement, under the id BROKER/ID that is the same at every broker."""

    id: str
    publisher: str
    filter: str
    """As it was sent, for the check of conformance at the broker where it entered; empty everywhere else."""
    geometry: Packed
    """Of its travelling form (`travelling.py`)."""
    wording: str | None = None
    """Of its travelling form, where boxes alone do not decide what it overlaps."""

    @property
    def travelling(self) -> Advertised:
        """The advertisement as neighbours are told it: without its text."""
        return msgspec.structs.replace(self, filter="") if self.filter else self


class Change(msgspec.Struct, tag="change", array_like=True, frozen=True, kw_only=True):
    """One step of a stream: add all of it, then remove; a snapshot replaces what the stream said before."""

    format: int = FORMAT
    source: str
    generation: int
    sequence: int
    grid: str
    """The grid and all else that both ends must have in common (`Context.dialect`)."""
    snapshot: bool = False
    piece: int = 0
    pieces: int = 1
    local: list[LocalEntry] = []
    entries: list[Entry] = []
    removed: list[str] = []
    advertised: list[Advertised] = []
    unadvertised: list[str] = []


class Resync(msgspec.Struct, tag="resync", array_like=True, frozen=True):
    """`source` missed something of the receiver's stream and wants it whole."""

    source: str
    grid: str
    format: int = FORMAT


class Expire(msgspec.Struct, tag="expire", array_like=True, frozen=True):
    """The time to live of this version has passed."""

    advertisement: bool
    id: str
    version: int
    format: int = FORMAT


class Forget(msgspec.Struct, tag="forget", array_like=True, frozen=True):
    """The stated time of this tombstone has passed: drop it everywhere."""

    advertisement: bool
    id: str
    version: int
    format: int = FORMAT


class Republish(msgspec.Struct, tag="republish", array_like=True, frozen=True):
    """Redis lost its index: write this key's again."""

    format: int = FORMAT


class Seed(msgspec.Struct, tag="seed", array_like=True, frozen=True):
    """A piece of the state with which a key begins a generation."""

    generation: int
    piece: int
    pieces: int
    blob: bytes
    format: int = FORMAT


class Amend(msgspec.Struct, tag="amend", array_like=True, frozen=True):
    """What the registry says of an id since this generation was built from it; it stands right behind the seeds."""

    generation: int
    advertisement: bool
    id: str
    fact: bytes | None
    """As the registry has it; None: nothing any more."""
    format: int = FORMAT


class Renew(msgspec.Struct, tag="renew", array_like=True, frozen=True):
    """The signing key is another one: write every fact of this home key again."""

    format: int = FORMAT


Message = Union[Change, Resync, Expire, Forget, Republish, Seed, Amend, Renew]  # noqa: UP007 msgspec reads the union at run time

_decoder = msgspec.msgpack.Decoder(Message)
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(value: bytes) -> Message:
    """Read a control message; `state-format` if it is none that this version can read."""
    try:
        message: Message = _decoder.decode(value)
    except formats.UNREADABLE as error:
        raise formats.unreadable("a control message", str(error)) from error
    if message.format != FORMAT:
        raise formats.unreadable("a control message", f"of format {message.format}, this reads {FORMAT}")
    return message
