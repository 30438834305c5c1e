"""How geometry is packed, in messages, in states and in Redis: numbers, tables of ranges, boxes, entries.

numbers   7 bits a byte, low bits first, the top bit set while more follow
ranges    format, how many, then gap and length of each in turn: about 2 bytes a range
boxes     in messages and in Redis: raw little-endian int64 columns
          in states: by columns, each as positions in a table of its distinct values where that is shorter
entries   ids, the number of boxes of each, and all boxes in their order
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

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
BOXES, RANGES = 0, 1


class Packed(msgspec.Struct, array_like=True, frozen=True):
    """Boxes as raw little-endian int64 columns, or a table of ranges as `pack_ranges` packs it, in `lows` alone."""

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


def unpack(packed: Packed) -> Geometry:
    if packed.kind == RANGES:
        return unpack_ranges(packed.lows) if packed.lows else Ranges.empty()
    lows, highs = np.frombuffer(packed.lows, "<i8"), np.frombuffer(packed.highs, "<i8")
    return Boxes(lows.reshape(-1, packed.d), highs.reshape(-1, packed.d))


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


def pack_boxes(boxes: Boxes) -> bytes:
    """Pack boxes by columns. The boxes of one state share most of their faces, so distinct values are few."""
    columns = [*boxes.lows.T, *boxes.highs.T]
    return struct.pack("<II", len(boxes), boxes.d) + b"".join(_pack_column(column) for column in columns)


def _pack_column(column: Ints) -> bytes:
    values = np.sort(column)
    values = values[np.append(True, values[1:] != values[:-1])] if len(values) else values
    width = 1 if len(values) <= 1 << 8 else 2 if len(values) <= 1 << 16 else 4
    if 4 + 8 * len(values) + width * len(column) >= 8 * len(column):
        return b"\x08" + column.astype("<i8").tobytes()
    head = struct.pack("<BI", width, len(values))
    return head + values.astype("<i8").tobytes() + np.searchsorted(values, column).astype(f"<u{width}").tobytes()


def unpack_boxes(blob: bytes) -> Boxes:
    """The boxes that `pack_boxes` packed.

    >>> boxes = Boxes.of([([0, -5], [0, 4]), ([1, 2**63 - 1], [3, 2**63 - 1])])
    >>> unpack_boxes(pack_boxes(boxes)) == boxes
    True
    """
    try:
        table, end = _unpack_columns(blob)
    except (struct.error, ValueError, IndexError, TypeError) as error:
        raise unreadable("packed boxes", str(error)) from error
    d = len(table) // 2
    lows, highs = np.ascontiguousarray(table[:d].T), np.ascontiguousarray(table[d:].T)
    if end != len(blob) or not (lows <= highs).all():
        raise unreadable("packed boxes", f"{len(blob)} bytes that are no boxes")
    return Boxes(lows, highs)


def _unpack_columns(blob: bytes) -> tuple[Ints, int]:
    """The columns, and where they end; what is damaged raises one of several errors."""
    n, d = struct.unpack_from("<II", blob)
    offset = 8
    # Every number takes a byte: a damaged count must not ask for all the memory there is.
    if 2 * d * n > len(blob):
        raise ValueError(f"{n} boxes of {d} dimensions in {len(blob)} bytes")
    table = np.empty((2 * d, n), np.int64)
    for column in table:
        width = blob[offset]
        offset += 1
        if width == 8:
            column[:] = np.frombuffer(blob, "<i8", n, offset)
        else:
            (count,) = struct.unpack_from("<I", blob, offset)
            values = np.frombuffer(blob, "<i8", count, offset + 4)
            offset += 4 + 8 * count
            column[:] = values[np.frombuffer(blob, f"<u{width}", n, offset)]
        offset += width * n
    return table, offset


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
    spans = zip(packed.ids, (ends - sizes).tolist(), ends.tolist(), strict=True)
    return {id: Boxes(boxes.lows[a:b], boxes.highs[a:b]) for id, a, b in spans}, boxes
