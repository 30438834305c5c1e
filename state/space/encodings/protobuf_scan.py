"""Where the attributes of Protobuf values are: one compiled pass over the fields of the messages on the way to them.

What concerns no attribute is skipped by its length, so nothing is made of it, however it is nested or repeated. Groups,
which have no length, are walked through. As Protobuf asks: of a field that stands twice the last counts, a message that
stands twice is merged, a member of a oneof takes the others back, and a field of another wire type is an unknown one.

Guarantee: reads no byte beyond a value's end; every step consumes a byte; at most `GROUPS_MAX` open groups.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.space.encodings.avro_scan import fixed_bits, varint, zigzag
from state.space.encodings.leaves import DEPTH_MAX
from state.space.encodings.protobuf_schema import (
    BOOL,
    ENUM,
    FIXED32,
    GROUP,
    GROUP_END,
    HALF_WORD,
    INT32,
    MESSAGE,
    OTHER,
    SFIXED32,
    SINT32,
    SINT64,
    SIZED,
    UINT32,
    VARINT,
    WORD,
)
from state.space.memory import byte_at

GROUPS_MAX = 100
"""As protobuf's own readers."""
_TAG_END = 2**32
_LOW32 = 0xFFFF_FFFF


@njit
def _value(code: int, wire: int, i: int, end: int) -> tuple[int, int, int]:
    """A field behind its tag: its bits or where its bytes begin, their number, the address after it or -1."""
    if wire == VARINT:
        bits, i = varint(i, end)
        if code in (INT32, ENUM):
            bits = np.int64(np.int32(bits & _LOW32))  # type: ignore[assignment]
        elif code == UINT32:
            bits &= _LOW32
        elif code == SINT32:
            bits = np.int64(np.int32(zigzag(bits & _LOW32)))  # type: ignore[assignment]
        elif code == SINT64:
            bits = zigzag(bits)
        elif code == BOOL:
            bits = np.int64(bits != 0)  # type: ignore[assignment]
        return bits, 0, i
    if wire == SIZED:
        size, i = varint(i, end)
        if i < 0 or size < 0 or size > end - i:
            return 0, 0, -1
        return i, size, i + size
    size = 8 if wire == WORD else 4
    if size > end - i:
        return 0, 0, -1
    bits = fixed_bits(i, size)
    if code == SFIXED32:
        bits = np.int64(np.int32(bits))  # type: ignore[assignment]
    elif code == FIXED32:
        bits &= _LOW32
    return bits, size, i + size


@njit
def _skip(number: int, wire: int, i: int, end: int, open_groups: Ints) -> int:
    """The address after a field whose tag was read, or -1."""
    depth = 0
    while i >= 0:
        if wire == GROUP:
            if depth == GROUPS_MAX:
                return -1
            open_groups[depth] = number
            depth += 1
        elif wire == GROUP_END:
            depth -= 1
            if depth < 0 or open_groups[depth] != number:
                return -1
        elif wire <= HALF_WORD:
            _, _, i = _value(OTHER, wire, i, end)
        else:
            return -1
        if depth == 0 or i < 0:
            return i
        number, wire, i = _tag(i, end)
    return -1


@njit
def _tag(i: int, end: int) -> tuple[int, int, int]:
    """The number and the wire type of a field, and the address after them or -1."""
    if i < end and 8 <= byte_at(i) < 128:  # most tags are one byte
        tag = np.int64(byte_at(i))
        return tag >> 3, tag & 7, i + 1  # type: ignore[return-value]
    bits, i = varint(i, end)
    if not 8 <= bits < _TAG_END:
        i = -1
    return bits >> 3, bits & 7, i


@njit
def _known(numbers: Ints, first: int, end: int, number: int) -> bool:
    """Whether a closed enum has this number; an open one has all."""
    found = first == end
    for k in range(first, end):
        found = found or numbers[k] == number
    return found


@njit
def scan_protobuf(
    starts: Ints,
    ends: Ints,
    first: Ints,
    count: Ints,
    entries: Ints,
    numbers: Ints,
    defaults: Ints,
    found: Ints,
    bits: Ints,
    sizes: Ints,
    valid: Bools,
) -> None:
    """Scan values from address `starts[i]` to `ends[i]` by the program of `protobuf_schema.py`.

    `found[p, i]` becomes the kind of leaf at position p, -1 for none; `bits` and `sizes` what it holds.
    """
    open_groups = np.empty(GROUPS_MAX, np.int64)
    nodes, stops = np.empty(DEPTH_MAX, np.int64), np.empty(DEPTH_MAX, np.int64)
    seen = np.empty(len(first), np.bool_)
    found[:] = -1
    for row in range(len(starts)):
        seen[:] = False
        seen[0] = True
        i, depth = starts[row], 1
        nodes[0], stops[0] = 0, ends[row]
        while depth > 0 and i >= 0:
            node, stop = nodes[depth - 1], stops[depth - 1]
            if i == stop:
                depth -= 1
                continue
            number, wire, i = _tag(i, stop)
            if i < 0:
                break
            entry = -1
            for k in range(first[node], first[node] + count[node]):
                if entries[k, 0] == number and entries[k, 1] == wire:
                    entry = k
                    break
            code = OTHER if entry < 0 else entries[entry, 2]
            if code == OTHER:
                i = _skip(number, wire, i, stop, open_groups)
            else:
                value, size, i = _value(code, wire, i, stop)
            if entry < 0 or i < 0:
                continue
            if code == ENUM and not _known(numbers, entries[entry, 10], entries[entry, 11], value):
                continue
            if entries[entry, 9] > 0:
                _clear(entry, node, first, count, entries, found[:, row], seen)
            if code == MESSAGE:
                nodes[depth], stops[depth] = entries[entry, 5], i
                seen[entries[entry, 5]] = True
                i = value
                depth += 1
            elif code != OTHER:
                position = entries[entry, 4]
                found[position, row], bits[position, row], sizes[position, row] = entries[entry, 3], value, size
        valid[row] = i == ends[row]
        if not valid[row]:
            found[:, row] = -1
            continue
        for k in range(len(defaults)):
            position = defaults[k, 0]
            if found[position, row] < 0 and seen[defaults[k, 1]]:
                found[position, row], bits[position, row], sizes[position, row] = defaults[k, 2], 0, 0


@njit
def _clear(entry: int, node: int, first: Ints, count: Ints, entries: Ints, found: Ints, seen: Bools) -> None:
    """Take back the other members of a oneof, and all below them."""
    for k in range(first[node], first[node] + count[node]):
        if k != entry and entries[k, 9] == entries[entry, 9]:
            found[entries[k, 7] : entries[k, 8]] = -1
            seen[entries[k, 5] : entries[k, 6]] = False
