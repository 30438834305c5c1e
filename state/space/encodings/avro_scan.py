"""Where the attributes of Avro values are: one compiled pass over the bytes, which also checks them.

Avro writes neither names nor lengths of records, so whatever stands before an attribute has to be walked through. The
walk has a stack of its own: bytes cannot make it recurse, and what is open at a time is a frame of it.

    Order ── id ── customer ── country          frames:  Order, next field 2
                            └─ tags[] ── item            customer, next field 1
                                                         tags, 3 items left of this block

Guarantee: reads no byte beyond a value's end; at most `DEPTH_MAX` frames; at most `STEPS_FREE` steps and
`STEPS_PER_BYTE` for each byte, so that a block of 2^60 items which take no bytes ends soon. What would need more, is
cut short or goes on after its end is not valid.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.space.encodings.avro_schema import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DOUBLE,
    ENUM,
    FIXED,
    FLOAT,
    LONG,
    MAP,
    RECORD,
    STRING,
    UNION,
)
from state.space.encodings.leaves import DEPTH_MAX, STEPS_FREE, STEPS_PER_BYTE
from state.space.memory import byte_at

_ONE, _SEVEN, _LOW7 = np.uint64(1), np.uint64(7), np.uint64(0x7F)
_LOWEST = -(2**63)


@njit
def varint(i: int, end: int) -> tuple[int, int]:
    """The 64 bits of a number written 7 at a time, low ones first, as int64; and the address after it, or -1."""
    value, shift = np.uint64(0), np.uint64(0)
    while i < end and shift <= np.uint64(63):
        byte = np.uint64(byte_at(i))
        i += 1
        if shift == np.uint64(63) and byte > _ONE:
            return 0, -1
        value |= (byte & _LOW7) << shift
        if byte <= _LOW7:
            return np.int64(value), i  # type: ignore[return-value]
        shift += _SEVEN
    return 0, -1


@njit
def zigzag(bits: int) -> int:
    """The signed number that stands for these bits: 0, -1, 1, -2, ..."""
    unsigned = np.uint64(bits)
    return np.int64(unsigned >> _ONE) ^ -np.int64(unsigned & _ONE)  # type: ignore[return-value]


@njit
def fixed_bits(i: int, size: int) -> int:
    """`size` bytes at an address, the low one first, as int64."""
    bits = np.uint64(0)
    for k in range(size):
        bits |= np.uint64(byte_at(i + k)) << np.uint64(8 * k)
    return np.int64(bits)  # type: ignore[return-value]


@njit
def _scalar(code: int, argument: int, i: int, end: int) -> tuple[int, int, int]:
    """A value that contains no others: its bits or where its bytes begin, their number, the address after it or -1."""
    if code in (LONG, ENUM):
        bits, i = varint(i, end)
        value = zigzag(bits)
        if code == ENUM and not 0 <= value < argument:
            return 0, 0, -1
        return value, 0, i
    if code in (STRING, BYTES):
        bits, i = varint(i, end)
        size = zigzag(bits)
        if i < 0 or size < 0 or size > end - i:
            return 0, 0, -1
        return i, size, i + size
    size = 0
    if code == FIXED:
        size = argument
    elif code == BOOLEAN:
        size = 1
    elif code == FLOAT:
        size = 4
    elif code == DOUBLE:
        size = 8
    if size > end - i:
        return 0, 0, -1
    return (i if code == FIXED else fixed_bits(i, size)), size, i + size


@njit
def _block(i: int, end: int) -> tuple[int, int]:
    """The number of items in the next block of an array or map, and the address after it or -1."""
    bits, i = varint(i, end)
    count = zigzag(bits)
    if i >= 0 and count < 0:
        # their size in bytes follows: of use to who trusts it
        _, i = varint(i, end)
        count = -count
    return count, (-1 if count == _LOWEST else i)


@njit
def scan_avro(
    starts: Ints,
    ends: Ints,
    root: int,
    table: Ints,
    children: Ints,
    found: Ints,
    bits: Ints,
    sizes: Ints,
    valid: Bools,
) -> None:
    """Scan values from address `starts[i]` to `ends[i]` by the program of `avro_schema.py`, whose columns are `table`.

    `found[p, i]` becomes the kind of leaf at position p, -1 for none; `bits` and `sizes` what it holds.
    """
    codes, arguments, firsts, counts, positions, kinds = table[0], table[1], table[2], table[3], table[4], table[5]
    nodes, left = np.empty(DEPTH_MAX, np.int64), np.empty(DEPTH_MAX, np.int64)
    found[:] = -1
    for row in range(len(starts)):
        i, end = starts[row], ends[row]
        steps = STEPS_FREE + STEPS_PER_BYTE * (end - i)
        node, depth = root, 0
        while node >= 0 and i >= 0:
            steps -= 1
            code = codes[node]
            if steps < 0:
                i = -1
            elif code == UNION:
                value, i = varint(i, end)
                branch = zigzag(value)
                if not 0 <= branch < counts[node]:
                    i = -1
                else:
                    node = children[firsts[node] + branch]
                continue
            elif code in (RECORD, ARRAY, MAP):
                if depth == DEPTH_MAX:
                    i = -1
                else:
                    nodes[depth], left[depth] = node, 0
                    depth += 1
            else:
                value, size, i = _scalar(code, arguments[node], i, end)
                if positions[node] >= 0:
                    found[positions[node], row] = kinds[node]
                    bits[positions[node], row] = value
                    sizes[positions[node], row] = size
            node = -1
            while depth > 0 and node < 0 and i >= 0:
                top = nodes[depth - 1]
                if codes[top] == RECORD:
                    if left[depth - 1] == counts[top]:
                        depth -= 1
                    else:
                        node = children[firsts[top] + left[depth - 1]]
                        left[depth - 1] += 1
                    continue
                if left[depth - 1] == 0:
                    left[depth - 1], i = _block(i, end)
                    if left[depth - 1] == 0:
                        depth -= 1
                        continue
                left[depth - 1] -= 1
                if codes[top] == MAP and i >= 0:
                    _, _, i = _scalar(STRING, 0, i, end)
                node = children[firsts[top]]
        valid[row] = i == end
        if i != end:
            found[:, row] = -1
