"""What keys say to each other on the control topic, and how geometry is packed.

Every `Change` carries (generation, sequence, dialect) of its stream, a stream being one pair (source key, receiving
key). The receiver applies sequence last+1 of the generation it knows, ignores what is older, takes any newer
snapshot, and asks for one (`Resync`) at a gap. That makes repeats harmless and losses visible.

    home ──Change──> cube            local entries, clipped to the cube
    cube ──Change──> same cube at a neighbour    what the reduction says the neighbour must hold
    cube ──Resync──> whoever it missed something from

Messages are msgpack arrays headed by a tag and a format number; nothing here is ever pickled.
"""

from __future__ import annotations

from typing import Union

import msgspec

from state.compiled_part import LocalEntry
from state.space.packing import Packed

FORMAT = 1
MESSAGE_BYTES_MAX = 512 * 1024
"""A change beyond this is split: additions first, the removals in the last part."""


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """Something a neighbour asked for."""

    id: str
    geometry: Packed


class Advertised(msgspec.Struct, array_like=True, frozen=True):
    """An advertisement, under the id BROKER/ID that is the same at every broker."""

    id: str
    publisher: str
    filter: str
    """As it was sent, for the check of conformance at the broker where it entered; empty everywhere else."""
    geometry: Packed
    """Of the filter as it travels, perhaps pruned (`pruning.py`)."""

    @property
    def abroad(self) -> Advertised:
        """The advertisement as neighbours are told it."""
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
    part: int = 0
    parts: int = 1
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
    """A part of the state with which a key begins a generation."""

    generation: int
    part: int
    parts: int
    blob: bytes
    format: int = FORMAT


Message = Union[Change, Resync, Expire, Forget, Republish, Seed]  # noqa: UP007 msgspec reads the union at run time

_decoder = msgspec.msgpack.Decoder(Message)
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(value: bytes) -> Message:
    """Read a control message; `msgspec.DecodeError` if it is not one."""
    message: Message = _decoder.decode(value)
    if message.format != FORMAT:
        raise msgspec.DecodeError(f"control message of format {message.format}, this is {FORMAT}")
    return message


def seeds(generation: int, blob: bytes) -> list[Seed]:
    """Cut a state into messages that fit Kafka's limit."""
    cuts = [blob[i : i + MESSAGE_BYTES_MAX] for i in range(0, len(blob), MESSAGE_BYTES_MAX)] or [b""]
    return [Seed(generation, i, len(cuts), cut) for i, cut in enumerate(cuts)]


class Outbox:
    """Numbers the changes of one key's streams and cuts what is too long for one message."""

    def __init__(self, source: str, generation: int, grid: str, sequences: dict[str, int]) -> None:
        self.source = source
        self.generation = generation
        self.grid = grid
        self.sequences = sequences

    def change(
        self,
        target: str,
        *,
        snapshot: bool = False,
        local: list[LocalEntry] | None = None,
        entries: list[Entry] | None = None,
        removed: list[str] | None = None,
        advertised: list[Advertised] | None = None,
        unadvertised: list[str] | None = None,
    ) -> list[tuple[str, Change]]:
        """Messages that bring `target` up to date: additions first, removals in the last part."""
        items: list[LocalEntry | Entry | Advertised] = [*(local or []), *(entries or []), *(advertised or [])]
        chunks = _chunks(items)
        messages = []
        for i, chunk in enumerate(chunks):
            last = i == len(chunks) - 1
            self.sequences[target] = self.sequences.get(target, 0) + 1
            message = Change(
                source=self.source,
                generation=self.generation,
                sequence=self.sequences[target],
                grid=self.grid,
                snapshot=snapshot,
                part=i,
                parts=len(chunks),
                local=[x for x in chunk if isinstance(x, LocalEntry)],
                entries=[x for x in chunk if isinstance(x, Entry)],
                advertised=[x for x in chunk if isinstance(x, Advertised)],
                removed=list(removed or []) if last else [],
                unadvertised=list(unadvertised or []) if last else [],
            )
            messages.append((target, message))
        return messages


def _weight(item: LocalEntry | Entry | Advertised) -> int:
    text = item.residual if isinstance(item, LocalEntry) else item.filter if isinstance(item, Advertised) else None
    told = item.travels.size if isinstance(item, LocalEntry) and item.travels is not None else 0
    return item.geometry.size + told + 4 * len(text or "") + 300


def _chunks(
    items: list[LocalEntry | Entry | Advertised],
) -> list[list[LocalEntry | Entry | Advertised]]:
    chunks: list[list[LocalEntry | Entry | Advertised]] = [[]]
    size = 0
    for item in items:
        weight = _weight(item)
        if size and size + weight > MESSAGE_BYTES_MAX:
            chunks.append([])
            size = 0
        chunks[-1].append(item)
        size += weight
    return chunks
