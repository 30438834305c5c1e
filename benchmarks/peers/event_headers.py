"""Events that their publishers map ([MICS09] §6.1): a header with index and ranks, written and read.

    he1.5b0c3a9d7e21f604.AAAAAAAAAAA...      index and ranks, as little-endian int64
    └┬┘ └── grid.hash ─┘ └─ base64 ─┘

The router decodes the event instead, which takes less time: `python -m benchmarks.decode` has both.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from state.arrays import Bools, Ints
from state.space.boxes import Ranks
from state.space.grid import Grid
from state.space.mapping import base64_bytes
from state.space.ranks import ABSENT

EVENT = b"he1."
UNMAPPED = -1


@dataclass(frozen=True, slots=True, eq=False)
class EventMapping:
    """A rank vector of the whole type and its Hilbert index."""

    ranks: Ranks
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class EventMappings:
    """Mappings of a batch of events; where `mapped` is false the ranks are absent and the index is -1."""

    ranks: Ranks
    indices: Ints
    mapped: Bools


def map_event(grid: Grid, ranks: Ranks) -> bytes:
    """Return the header of an event with these ranks, (attributes,)."""
    return map_events(grid, ranks[None, :])[0]


def map_events(grid: Grid, ranks: Ranks) -> list[bytes]:
    """Return the header of each event of a batch, (n, attributes)."""
    payload = np.zeros((len(ranks), payload_bytes(grid)), np.uint8)
    words = np.concatenate([grid.index(ranks)[:, None], ranks], axis=1).astype("<i8")
    payload[:, : 8 * words.shape[1]] = np.ascontiguousarray(words).view(np.uint8)
    head = EVENT + grid.hash.encode() + b"."
    return [head + binascii.b2a_base64(row.tobytes(), newline=False) for row in payload]


def payload_bytes(grid: Grid) -> int:
    """Index and ranks, filled up to a multiple of 3 so that base64 needs no padding and texts can be
    joined."""
    return -(-8 * (1 + len(grid.attributes)) // 3) * 3


def read_event_mapping(header: bytes | None, grid: Grid) -> EventMapping | None:
    """Return what a header says, or None: there is none, it is of another grid, or it is malformed.

    Guarantee: the index is that of the ranks in this grid. The ranks themselves are the client's word.
    """
    read = read_event_mappings([header], grid)
    return EventMapping(read.ranks[0], int(read.indices[0])) if read.mapped[0] else None


def read_event_mappings(headers: Sequence[bytes | None], grid: Grid) -> EventMappings:
    """Read the headers of a batch: `read_event_mapping` for each. Cost: one decoding and one index for
    all."""
    attributes = len(grid.attributes)
    ranks = np.full((len(headers), attributes), ABSENT, np.int64)
    indices = np.full(len(headers), UNMAPPED, np.int64)
    mapped = np.zeros(len(headers), bool)
    head = EVENT + grid.hash.encode() + b"."
    length = len(head) + payload_bytes(grid) // 3 * 4
    own = [i for i, h in enumerate(headers) if h is not None and len(h) == length and h.startswith(head)]
    payloads = _decoded([headers[i][len(head) :] for i in own])  # type: ignore[index]
    own = [i for i, payload in zip(own, payloads, strict=True) if payload is not None]
    data = np.frombuffer(b"".join(p for p in payloads if p is not None), np.uint8)
    data = data.reshape(len(own), payload_bytes(grid))
    words = np.ascontiguousarray(data[:, : 8 * (attributes + 1)]).view("<i8").astype(np.int64)
    claimed, vectors = words[:, 0], np.ascontiguousarray(words[:, 1:])
    right = (grid.index(vectors) == claimed) & (data[:, 8 * (attributes + 1) :] == 0).all(axis=1)
    rows = np.array(own, np.int64)[right]
    ranks[rows], indices[rows], mapped[rows] = vectors[right], claimed[right], True
    return EventMappings(ranks, indices, mapped)


def _decoded(texts: list[bytes]) -> list[bytes | None]:
    """Decode texts of one length; all at once where all are base64, else one by one."""
    whole = base64_bytes(b"".join(texts))
    if whole is None:
        return [base64_bytes(text) for text in texts]
    width = len(whole) // max(len(texts), 1)
    return [whole[i * width : (i + 1) * width] for i in range(len(texts))]
