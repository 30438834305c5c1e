"""Packed entries: ids and their boxes as raw columns, headed by a format number."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from state.errors import HilcastError
from state.space.boxes import Boxes


class _Entries(msgspec.Struct, array_like=True):
    ids: list[str]
    counts: bytes
    d: int
    lows: bytes
    highs: bytes
    extra: bytes


def pack_entries(format: int, entries: Mapping[str, Boxes], extra: bytes = b"") -> bytes:
    """Pack entries in their order, with a few bytes of the caller's own beside them."""
    boxes = list(entries.values())
    counts = np.array([len(b) for b in boxes], "<i4")
    d = boxes[0].d if boxes else 0
    lows = b"".join(b.lows.astype("<i8", copy=False).tobytes() for b in boxes)
    highs = b"".join(b.highs.astype("<i8", copy=False).tobytes() for b in boxes)
    packed = _Entries(list(entries), counts.tobytes(), d, lows, highs, extra)
    return bytes([format]) + msgspec.msgpack.encode(packed)


def unpack_entries(format: int, blob: bytes) -> dict[str, Boxes]:
    """The entries that `pack_entries` packed."""
    return unpack_entries_and(format, blob)[0]


def unpack_entries_and(format: int, blob: bytes) -> tuple[dict[str, Boxes], bytes]:
    """The entries and the caller's own bytes; bytes of another format, or none, raise `state-format`."""
    if not blob or blob[0] != format:
        raise HilcastError("state-format", f"format {blob[0] if blob else 'nothing'}, this reads {format}")
    packed = msgspec.msgpack.decode(blob[1:], type=_Entries)
    if not packed.ids:
        return {}, packed.extra
    ends = np.cumsum(np.frombuffer(packed.counts, "<i4")).tolist()
    lows = np.frombuffer(packed.lows, "<i8").reshape(-1, packed.d)
    highs = np.frombuffer(packed.highs, "<i8").reshape(-1, packed.d)
    starts = [0, *ends[:-1]]
    return {id: Boxes(lows[a:b], highs[a:b]) for id, a, b in zip(packed.ids, starts, ends, strict=True)}, packed.extra
