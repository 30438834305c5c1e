"""How geometry is packed, in messages, in states and in Redis: numbers, tables of ranges, boxes, entries.

numbers   7 bits a byte, low bits first, the top bit set while more follow
ranges    format, how many, then gap and length of each in turn: about 2 bytes a range
boxes     in messages and in changes of an index: raw little-endian int64 columns
          in states and in the index: by columns, those of the high corners as what they are above the low ones where
          that is shorter; each as what it is above its least value, in as few bytes as the greatest takes, or as
          positions in a table of its distinct values
entries   ids, the number of boxes of each, and all boxes in their order
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from state.arrays import Bytes, Ints
from state.formats import opened, unreadable
from state.kernels import njit
from state.space.boxes import Boxes
from state.space.ranges import Ranges

Geometry = Boxes | Ranges
"""What an entry asks for: boxes of ranks, or ranges of Hilbert indices."""
TABLE_FORMAT = 1
"""First byte of a packed table."""
ONE_RANGE = bytes([TABLE_FORMAT, 1])
"""How a table of one range begins."""
INT64_MAX = 2**63 - 1
_SEVENS = np.array([1 << bits for bits in range(7, 63, 7)], np.int64)
"""From each of these numbers on another byte is needed."""
BOXES, RANGES = 0, 1
TOGETHER = 64
"""Entries whose boxes share a run of memory: one that is left of them keeps it all."""


class Packed(msgspec.Struct, array_like=True, frozen=True, dict=True):
    """Boxes as raw little-endian int64 columns, or a table of ranges as `pack_ranges` packs it, in `lows` alone.

    What it unpacks to may be remembered with it (`geometries`): it is no part of what is written or compared.
    """

    kind: int
    d: int
    lows: bytes
    highs: bytes

    @property
    def size(self) -> int:
        return len(self.lows) + len(self.highs)


def pack(geometry: Geometry) -> Packed:
    """Pack boxes or ranges.

    >>> unpack(pack(Boxes.of([([1, 2], [3, 4])]))) == Boxes.of([([1, 2], [3, 4])])
    True
    """
    if isinstance(geometry, Boxes):
        return Packed(BOXES, geometry.d, _raw(geometry.lows), _raw(geometry.highs))
    return Packed(RANGES, 1, pack_ranges(geometry) if len(geometry) else b"", b"")


def pack_each(some: Sequence[Geometry]) -> list[Packed]:
    """Pack many, each by itself; single ranges, which brokers tell each other by the thousand, side by side.

    >>> some = [Ranges.of([(5, 300)]), Ranges.of([(1, 2), (4, 5)]), Ranges.of([(7, 7)])]
    >>> pack_each(some) == [pack(one) for one in some]
    True
    """
    single = [one for one in some if isinstance(one, Ranges) and len(one.starts) == 1]
    if len(single) != len(some) or not some:
        return [pack(one) for one in some]
    starts, ends = np.concatenate([one.starts for one in single]), np.concatenate([one.ends for one in single])
    numbers = np.column_stack([starts, ends - starts]).ravel()
    flat, cuts = pack_numbers(numbers), np.cumsum(_lengths(numbers))[1::2].tolist()
    found, begin = [], 0
    for one, end in zip(single, cuts, strict=True):
        packed = Packed(RANGES, 1, ONE_RANGE + flat[begin:end], b"")
        packed.__dict__["geometry"] = one
        found.append(packed)
        begin = end
    return found


def _lengths(numbers: Ints) -> Ints:
    """How many bytes each number takes as `pack_numbers` packs it."""
    return 1 + np.searchsorted(_SEVENS, numbers, side="right")


def unpack(packed: Packed) -> Geometry:
    if packed.kind == RANGES:
        return unpack_ranges(packed.lows) if packed.lows else Ranges.empty()
    lows, highs = np.frombuffer(packed.lows, "<i8"), np.frombuffer(packed.highs, "<i8")
    return Boxes(lows.reshape(-1, packed.d), highs.reshape(-1, packed.d))


def geometries(some: Sequence[Packed]) -> list[Geometry]:
    """Unpack many side by side, in memory that kernels can take; each is unpacked once as long as it lives.

    A generation is built of entries that go from broker to broker as they are: all of these ask for the same ones.
    """
    fresh = [packed for packed in some if "geometry" not in packed.__dict__]
    for kind, together in ((BOXES, _unpack_boxes), (RANGES, _unpack_ranges)):
        these = [packed for packed in fresh if packed.kind == kind]
        for i in range(0, len(these), TOGETHER):
            together(these[i : i + TOGETHER])
    return [packed.__dict__["geometry"] for packed in some]


def _unpack_ranges(some: Sequence[Packed]) -> None:
    """Let each remember its ranges; single ones are read side by side, as far as they are written as `pack` does."""
    single = [packed for packed in some if packed.lows[:2] == ONE_RANGE]
    flat, numbers = b"".join([packed.lows[2:] for packed in single]), np.empty((len(single), 2), np.int64)
    if flat and _unpack(np.frombuffer(flat, np.uint8), 0, numbers.ravel()) == len(flat):
        starts, ends = numbers[:, :1].copy(), numbers.sum(axis=1, keepdims=True)
        sizes = np.array([len(packed.lows) - 2 for packed in single], np.int64)
        if (ends >= starts).all() and np.array_equal(_lengths(numbers).sum(axis=1), sizes):
            for packed, start, end in zip(single, starts, ends, strict=True):
                packed.__dict__["geometry"] = Ranges(start, end)
    for packed in some:
        # the others; and what is damaged, for the error that says how
        if "geometry" not in packed.__dict__:
            packed.__dict__["geometry"] = unpack(packed)


def _unpack_boxes(some: Sequence[Packed]) -> None:
    """Let each remember its boxes; all are views of one run of memory."""
    d, start = some[0].d, 0
    lows = np.frombuffer(bytearray().join([packed.lows for packed in some]), "<i8").reshape(-1, d)
    highs = np.frombuffer(bytearray().join([packed.highs for packed in some]), "<i8").reshape(-1, d)
    if len(lows) == len(some) and all(len(packed.lows) == 8 * d for packed in some):  # one each, as most have
        for packed, boxes in zip(some, map(Boxes, lows[:, np.newaxis], highs[:, np.newaxis]), strict=True):
            packed.__dict__["geometry"] = boxes
        return
    for packed in some:
        end = start + len(packed.lows) // (8 * d)
        packed.__dict__["geometry"] = Boxes(lows[start:end], highs[start:end])
        start = end


def _raw(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array, dtype="<i8").tobytes()


@njit
def _pack(numbers: Ints, out: Bytes) -> int:
    """Write non-negative numbers, 7 bits a byte, low bits first, the top bit set while more follow."""
    at = 0
    for i in range(numbers.shape[0]):
        rest = numbers[i]
        while rest >= 128:
            out[at] = (rest & 127) | 128
            rest >>= 7
            at += 1
        out[at] = rest
        at += 1
    return at


@njit
def _unpack(blob: Bytes, at: int, numbers: Ints) -> int:
    """Read that many numbers; return where the next begins, or -1 if the bytes end too early."""
    n = blob.shape[0]
    for i in range(numbers.shape[0]):
        value, shift = np.int64(0), 0
        while True:
            if at >= n or shift > 56:
                return -1
            byte = np.int64(blob[at])
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        numbers[i] = value
    return at


def pack_numbers(numbers: Ints | Iterable[int]) -> bytes:
    """Pack non-negative int64 numbers, small ones into few bytes.

    >>> pack_numbers([0, 127, 128]).hex()
    '007f8001'
    """
    values = np.ascontiguousarray(numbers if isinstance(numbers, np.ndarray) else list(numbers), np.int64)
    assert (values >= 0).all(), "only non-negative numbers are packed"
    out = np.empty(9 * len(values), np.uint8)
    return out[: _pack(values, out)].tobytes()


def unpack_numbers(blob: bytes, count: int, at: int = 0) -> tuple[Ints, int]:
    """Read `count` numbers from `blob` at `at`; return them and where the next begins."""
    # Every number takes a byte: a damaged count must not ask for all the memory there is.
    fits = count <= len(blob) - at
    numbers = np.empty(count if fits else 0, np.int64)
    following = int(_unpack(np.frombuffer(blob, np.uint8), at, numbers))
    if not fits or following < 0:
        raise unreadable("packed numbers", f"cut short: {count} expected in {len(blob)} bytes")
    return numbers, following


def pack_ranges(ranges: Ranges) -> bytes:
    """Pack a table, about 2 bytes a range: the format number, how many, then gap and length of each in turn.

    What neighbours are told, what cubes hold of it and the index in Redis are packed so (`state/control/protocol.py`).

    >>> pack_ranges(Ranges(np.array([32, 45]), np.array([35, 46]))).hex()
    '010220030901'
    """
    if len(ranges) == 1:
        start, end = int(ranges.starts[0]), int(ranges.ends[0])
        return ONE_RANGE + _packed(start) + _packed(end - start)
    numbers = np.empty(2 * len(ranges), np.int64)
    if len(ranges):
        numbers[0] = ranges.starts[0]
        # Neighbours may touch but not overlap, so a gap is at least 0.
        numbers[2::2] = ranges.starts[1:] - ranges.ends[:-1] - 1
        numbers[1::2] = ranges.ends - ranges.starts
    return bytes([TABLE_FORMAT]) + pack_numbers([len(ranges)]) + pack_numbers(numbers)


def unpack_ranges(blob: bytes) -> Ranges:
    """The table that `pack_ranges` packed."""
    one = _one_range(blob) if blob[:2] == ONE_RANGE else None
    if one is not None:
        return one
    opened("a table of ranges", TABLE_FORMAT, blob)
    count, at = unpack_numbers(blob, 1, 1)
    numbers, at = unpack_numbers(blob, 2 * int(count[0]), at)
    if at != len(blob):
        raise unreadable("a table of ranges", f"{at} bytes of {len(blob)}")
    # Start, end, start, end ... is a running sum of gap, length, gap + 1, length ...
    numbers[2::2] += 1
    ends = np.cumsum(numbers)
    return Ranges(np.ascontiguousarray(ends[0::2]), np.ascontiguousarray(ends[1::2]))


def _packed(number: int) -> bytes:
    """One number as `pack_numbers` packs it, without arrays: brokers tell each other ranges one by one."""
    assert number >= 0, "only non-negative numbers are packed"
    out = bytearray()
    while number >= 128:
        out.append((number & 127) | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _one_range(blob: bytes) -> Ranges | None:
    """The table of one range, without a kernel; None: it is damaged, and what reads all tables says how."""
    numbers, value, shift = [], 0, 0
    for byte in blob[2:]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
        elif shift > 56:
            break
    if len(numbers) != 2 or shift:
        return None
    if sum(numbers) > INT64_MAX:
        raise unreadable("a table of ranges", "a range beyond all indices")
    return Ranges(np.array(numbers[:1], np.int64), np.array([sum(numbers)], np.int64))


_HEAD = struct.Struct("<II")
_FRAME, _TABLE, _ABOVE = 0x10, 0x20, 0x40
"""How a column is packed, beside the bytes of a value in the low four bits; the last: above the low corners."""


def pack_boxes(boxes: Boxes) -> bytes:
    """Pack boxes by columns: how many boxes, how many dimensions, then low and high corners of each dimension in turn.

    Many boxes share their faces or are about as wide as others: a column takes as many bytes as its values differ in.
    Cost: at most three sorts of each dimension.
    """
    packed = [_HEAD.pack(len(boxes), boxes.d)]
    for j in range(boxes.d):
        low, high = _column(boxes.lows[:, j]), _column(boxes.highs[:, j])
        # as wide as all ranks is -1: all that is done with the numbers is done modulo 2^64
        above = _column(boxes.highs[:, j] - boxes.lows[:, j])
        # the first column takes a byte a box: a damaged count of boxes must not ask for all the memory there is
        packed.append(low.written(0, least=1 if j == 0 else 0))
        packed.append(above.written(_ABOVE) if above.size < high.size else high.written(0))
    return b"".join(packed)


class _Column(NamedTuple):
    """How a column takes the least room."""

    values: Ints
    first: int
    """Its least value."""
    width: int
    """Bytes of what a value is above that; of a place in `table`, if there is one."""
    table: Ints | None
    """Its distinct values, sorted."""

    @property
    def size(self) -> int:
        return self.width * len(self.values) + (8 if self.table is None else 4 + 8 * len(self.table))

    def written(self, above: int, least: int = 0) -> bytes:
        """The column behind a byte that says how; `least`: bytes of a value."""
        if self.table is not None:
            head = struct.pack("<BI", _TABLE | above | self.width, len(self.table)) + self.table.astype("<i8").tobytes()
            return head + np.searchsorted(self.table, self.values).astype(f"<u{self.width}").tobytes()
        width = max(self.width, least)
        offsets = (self.values - self.first).astype("<i8")
        raw = offsets.view(np.uint8).reshape(-1, 8)[:, :width]
        return struct.pack("<Bq", _FRAME | above | width, self.first) + raw.tobytes()


def _column(column: Ints) -> _Column:
    values = np.ascontiguousarray(column)
    if not len(values):
        return _Column(values, 0, 0, None)
    first, last = int(values.min()), int(values.max())
    frame = _Column(values, first, ((last - first).bit_length() + 7) // 8, None)
    if frame.width < 2:
        return frame
    ordered = np.sort(values)
    distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    width = 1 if len(distinct) <= 1 << 8 else 2 if len(distinct) <= 1 << 16 else 4
    table = _Column(values, first, width, distinct)
    return table if table.size < frame.size else frame


def unpack_boxes(blob: bytes) -> Boxes:
    """The boxes that `pack_boxes` packed.

    >>> boxes = Boxes.of([([0, -5], [0, 4]), ([1, 2**63 - 1], [3, 2**63 - 1])])
    >>> unpack_boxes(pack_boxes(boxes)) == boxes
    True
    """
    try:
        columns, n, end = _unpack_columns(blob)
    except (struct.error, ValueError, IndexError, TypeError) as error:
        raise unreadable("packed boxes", str(error)) from error
    lows, highs = (np.empty((n, len(side)), np.int64) for side in (columns[0::2], columns[1::2]))
    for j, (low, high) in enumerate(zip(columns[0::2], columns[1::2], strict=True)):
        lows[:, j], highs[:, j] = low, high
    if end != len(blob) or not (lows <= highs).all():
        raise unreadable("packed boxes", f"{len(blob)} bytes that are no boxes")
    return Boxes(lows, highs)


def _unpack_columns(blob: bytes) -> tuple[list[Ints], int, int]:
    """The columns, their length, and where they end; what is damaged raises one of several errors."""
    n, d = _HEAD.unpack_from(blob)
    at, columns = _HEAD.size, list[Ints]()
    for number in range(2 * d):
        how = blob[at]
        width = how & 0x0F
        if n > len(blob) or (number == 0 and n and not width):
            raise ValueError(f"{n} boxes in {len(blob)} bytes")
        if how & _TABLE:
            (count,) = struct.unpack_from("<I", blob, at + 1)
            values = np.frombuffer(blob, "<i8", count, at + 5)
            at += 5 + 8 * count
            column = values[np.frombuffer(blob, f"<u{width}", n, at)]
        else:
            (first,) = struct.unpack_from("<q", blob, at + 1)
            at += 9
            column = _widened(blob, at, n, width) + np.int64(first)
        at += width * n
        columns.append(columns[-1] + column if how & _ABOVE else column)
    return columns, n, at


def _widened(blob: bytes, at: int, n: int, width: int) -> Ints:
    """Numbers of so many bytes as int64."""
    wide = np.zeros((n, 8), np.uint8)
    wide[:, :width] = np.frombuffer(blob, np.uint8, n * width, at).reshape(n, width)
    return wide.view("<i8")[:, 0]


class PackedEntries(msgspec.Struct, array_like=True, frozen=True):
    """Boxes by id, in their order."""

    ids: list[str]
    sizes: bytes
    """The number of boxes of each, as `pack_numbers` packs them."""
    boxes: bytes


def pack_entries(entries: Mapping[str, Boxes], d: int) -> PackedEntries:
    """Pack entries of `d` dimensions in their order."""
    together = Boxes.concatenated(list(entries.values()), d)
    return PackedEntries(list(entries), pack_numbers(map(len, entries.values())), pack_boxes(together))


def unpack_entries(packed: PackedEntries, d: int) -> tuple[dict[str, Boxes], Boxes]:
    """The entries that `pack_entries` packed, and all their boxes; an entry's are a view of these."""
    sizes, end = unpack_numbers(packed.sizes, len(packed.ids))
    boxes = unpack_boxes(packed.boxes)
    ends = np.cumsum(sizes)
    whole = end == len(packed.sizes) and len(boxes) == sizes.sum()
    if not whole or boxes.d != d or len(set(packed.ids)) != len(packed.ids):
        raise unreadable("packed entries", f"{len(packed.ids)} ids and {len(boxes)} boxes of {boxes.d} dimensions")
    if len(boxes) == len(packed.ids) and sizes.all():  # one box each, as most entries have: numpy cuts them by itself
        each = map(Boxes, boxes.lows[:, np.newaxis], boxes.highs[:, np.newaxis])
        return dict(zip(packed.ids, each, strict=True)), boxes
    spans = zip(packed.ids, (ends - sizes).tolist(), ends.tolist(), strict=True)
    return {id: Boxes(boxes.lows[a:b], boxes.highs[a:b]) for id, a, b in spans}, boxes
