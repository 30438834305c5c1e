"""Mapping by clients: the ranges that a subscription carries along, and how they are checked ([MICS09] §6.1).

The paper has clients compute indices and ranges, so that brokers need not. Here a subscription may carry its ranges in
a field, which names the grid that they were made for:

    hs1.5b0c3a9d7e21f604.IAMJAQME            gap, length - 1, gap, length - 1 ..., as varints
    └┬┘ └── grid.hash ─┘ └─ base64 ─┘
     └ what it is, and the version of its encoding

All of it is ASCII, so that kcat can carry it. A client gets the grid by `Grid.from_description`.

Differs: the paper trusts clients. Here the ranges must cover the filter, and a subscription mapped for another grid is
refused with `stale-grid`: its client fetches the grid again. A broker that changes its own grid carries ranges over
(`benchmarks/peers/regrid.py`). The paper has events mapped too. A router saves nothing by that: it needs the event
anyway, and reading it takes less time than reading and checking a header (`python -m benchmarks.decode` has both,
the header by `benchmarks/peers/event_headers.py`).
"""

from __future__ import annotations

import binascii

import numpy as np

from state.arrays import Bytes, Ints
from state.errors import HilcastError
from state.kernels import njit
from state.space.boxes import Boxes
from state.space.grid import Grid
from state.space.ranges import RANGES_MAX, Ranges, union

_SUBSCRIPTION = b"hs1."
_HASH_CHARACTERS = 16


def map_subscription(grid: Grid, boxes: Boxes, cap: int | None = None) -> str:
    """Return the field of a subscription with these boxes.

    >>> from state.space.event_type import Attribute, EventType
    >>> grid = Grid.of(EventType("reading", (Attribute("level", "int", min=0, max=1023),)))
    >>> text = map_subscription(grid, Boxes.of([([100], [199])]))
    >>> text.removeprefix("hs1." + grid.hash), read_subscription_mapping(text, grid)
    ('.ZGM=', Ranges.of([(100, 199)]))
    """
    ranges = grid.ranges(boxes, cap)
    gaps = ranges.starts.copy()
    gaps[1:] -= ranges.ends[:-1] + 1
    numbers = np.stack([gaps, ranges.ends - ranges.starts], axis=1).ravel()
    payload = binascii.b2a_base64(_varints(numbers).tobytes(), newline=False)
    return (_SUBSCRIPTION + grid.hash.encode() + b"." + payload).decode()


def base64_bytes(text: bytes) -> bytes | None:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return None


def read_subscription_mapping(text: str | bytes, grid: Grid, boxes: Boxes | None = None) -> Ranges:
    """Return the ranges that a client computed for its subscription.

    With the `boxes` of the filter it is also checked that the ranges cover them, wherever this grid can
    tell exactly (`grid.is_exact`). Raises HilcastError: `stale-grid` for another grid, `bad-value` for
    anything else. Without `boxes` a client that claims too little can make its own subscription miss
    events.
    """
    data = text.encode("ascii", "replace") if isinstance(text, str) else text
    kind, _, rest = data.partition(b".")
    grid_hash, _, encoded = rest.partition(b".")
    if kind + b"." != _SUBSCRIPTION or len(grid_hash) != _HASH_CHARACTERS:
        raise HilcastError("bad-value", f"ranges must begin with '{_SUBSCRIPTION.decode()}' and the grid's hash")
    if grid_hash != grid.hash.encode():
        named = grid_hash.decode("ascii", "replace")
        raise HilcastError("stale-grid", f"ranges of grid {named}; it is {grid.hash} now: fetch it, map again")
    payload = base64_bytes(encoded)
    ranges = None if payload is None else _read_ranges(np.frombuffer(payload, np.uint8), grid)
    if ranges is None:
        raise HilcastError("bad-value", f"ranges must be base64 of at most {RANGES_MAX} ranges inside the grid")
    if boxes is not None and grid.is_exact(boxes) and not ranges.covers(grid.ranges(boxes)):
        raise HilcastError("bad-value", "the ranges do not cover the filter")
    return ranges


def _read_ranges(data: Bytes, grid: Grid) -> Ranges | None:
    numbers = np.empty(len(data), np.int64)
    count = _read_varints(data, numbers)
    if count < 0 or count % 2 or count > 2 * RANGES_MAX:
        return None
    starts, ends = np.empty(count // 2, np.int64), np.empty(count // 2, np.int64)
    if not _unfold(numbers[:count], grid.index_bits, starts, ends):
        return None
    return union([Ranges(starts, ends)])  # what a client let touch becomes one


@njit
def _varints(numbers: Ints) -> Bytes:
    """Seven bits a byte, lowest first, the highest bit set where more follow."""
    out = np.empty(9 * len(numbers), np.uint8)
    size = 0
    for number in numbers:
        while number >= 128:
            out[size] = (number & 127) | 128
            number >>= 7
            size += 1
        out[size] = number
        size += 1
    return out[:size].copy()


@njit
def _read_varints(data: Bytes, numbers: Ints) -> int:
    """Return how many numbers were read; -1 if the last is cut off, or one has more than 63 bits or a zero
    end."""
    count = shift = number = 0
    for byte in data:
        if shift > 56 or (byte == 0 and shift > 0):
            return -1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers[count] = number
            count += 1
            shift = number = 0
    return count if shift == 0 else -1


@njit
def _unfold(numbers: Ints, index_bits: int, starts: Ints, ends: Ints) -> bool:
    """Sum gaps and lengths up to ranges; False if they leave the grid."""
    top = (1 << (index_bits - 1)) - 1 + (1 << (index_bits - 1))
    free = 0  # the lowest index that no range so far reaches; top + 1 (which may not fit) is written as -1
    for i in range(len(starts)):
        if free < 0 or numbers[2 * i] > top - free:
            return False
        starts[i] = free + numbers[2 * i]
        if numbers[2 * i + 1] > top - starts[i]:
            return False
        ends[i] = starts[i] + numbers[2 * i + 1]
        free = ends[i] + 1 if ends[i] < top else -1
    return True
