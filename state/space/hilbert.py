"""The Hilbert curve: cells of a d-dimensional grid to indices and back ([MICS09] §3.2).

The curve is that of the `hilbertcurve` package (J. Skilling, "Programming the Hilbert curve", 2004), by
value, so that any client can compute an index with a package it knows. Skilling's loops take one point and
one bit at a time; here the same curve is a finite machine that reads d bits of a cell and writes d bits of
its index per level:

    cell   (5, 3):   level 2 (1, 0)      level 1 (0, 1)      level 0 (1, 1)
                     orientation 0 ────> orientation' ─────> orientation''
    index            digit 3             digit 1             digit 0          ->  3·16 + 1·4 + 0 = 52

The state is the orientation of the curve inside a sub-cube. Per level Skilling's transform looks at the
(already turned) bits u_0 .. u_{d-1} and changes all lower bits: for i = 0 .. d-1, component 0 is inverted
if u_i is set, else components 0 and i are exchanged. So an orientation is a signed permutation. The digit
is the inverse Gray code of u, inverted as a whole once for every odd digit before it; that parity is the
parity of the signs, and inverting a digit is inverting u_0. Two orientations that differ in the sign of
component 0 alone go on alike, so those of even sign suffice: d!·2^(d-1) states, 4, 24, 192, 1,920, 23,040
for d = 2 .. 6.

The table has a row per permutation only (d!: 2, 6, 24, 120, 720). Signs are a mask that is xor-ed to the
bits read, since inverting components of the whole grid commutes with everything above: for d = 6 that is
184 KB instead of 6 MB.

Left out: more than 63 bits of index (they would not fit an int64) and more than 6 dimensions; [MICS09] §5
projects content spaces of more dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from state.arrays import Ints
from state.kernels import njit
from state.limits import DIMENSIONS_MAX, INDEX_BITS_MAX

_TABLE_ENTRIES_MAX = 2**13  # 32 KB: reading several levels at once pays while the table stays in L1

Table = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The machine of the d-dimensional curve, reading `levels` levels per step.

    Invariant: an entry is `next row << 2·bits | signs << bits | output` with `bits = levels·d`; row r
    begins at `r << bits`. Cells enter as Morton codes (bits interleaved, component 0 first), so input,
    output and signs are digits of one width. The signs of an entry are xor-ed to those in force; those in
    force are xor-ed to every digit of a cell, on its way in (`forward`) or out (`backward`, `child`).
    """

    d: int
    levels: int
    forward: Table
    """Digit of the cell to digit of the index."""
    backward: Table
    """Digit of the index to digit of the cell."""
    child: Table
    """`backward` for one level at a time: child j in curve order to its corner and its orientation."""
    first: Ints
    """first[p]: the row from which p levels of zeros lead to row 0, the orientation of the whole curve."""
    spread: Ints
    """The bits of a byte, d apart."""


class _Machine(NamedTuple):
    """What a step does, before packing: each is (rows, digits)."""

    rows: Ints
    signs: Ints
    outputs: Ints


@cache
def curve(d: int) -> Curve:
    """Build the tables of the d-dimensional curve, once per process. Cost: 25 ms for d = 6, 1-2 ms below."""
    assert 1 <= d <= DIMENSIONS_MAX, d
    single = _single_level(d)
    levels = 1
    while len(single.rows) << (d * (levels + 1)) <= _TABLE_ENTRIES_MAX:
        levels += 1
    several = single
    for _ in range(levels - 1):
        several = _followed(several, single)
    spread = np.zeros(256, np.int64)
    for bit in range(8):
        spread |= ((np.arange(256) >> bit) & 1) << (bit * d)
    return Curve(
        d,
        levels,
        forward=_packed(several, d, levels),
        backward=_packed(_inverted(several), d, levels),
        child=_packed(_inverted(single), d, 1),
        first=_first_rows(single, levels),
        spread=spread,
    )


def _single_level(d: int) -> _Machine:
    """Carry out a level of Skilling's transform for every permutation, unsigned, and digit of a cell."""
    orders = np.array(list(permutations(range(d))), np.int64)
    weights = 1 << np.arange(d - 1, -1, -1)
    cells = (np.arange(2**d)[:, None] >> np.arange(d - 1, -1, -1)) & 1
    # component i of the turned cell is component order[i] of the cell, inverted where sign[i]
    order = orders[:, None, :].repeat(2**d, axis=1)
    sign = np.zeros_like(order)
    turned = np.take_along_axis(np.broadcast_to(cells, order.shape), order, axis=2)
    outputs = (np.cumsum(turned, axis=2) & 1) @ weights
    for i in range(d):
        inverted = turned[:, :, i] == 1
        sign[:, :, 0] ^= inverted
        for components in (order, sign):
            zeroth, ith = components[:, :, 0].copy(), components[:, :, i].copy()
            components[:, :, 0] = np.where(inverted, zeroth, ith)
            components[:, :, i] = np.where(inverted, ith, zeroth) if i else zeroth
    sign[:, :, 0] ^= sign.sum(axis=2) & 1  # of the two orientations that go on alike, the even one
    radix = d ** np.arange(d)
    number = np.zeros(d**d, np.int64)
    number[orders @ radix] = np.arange(len(orders))
    signs_of_cell = (sign << (d - 1 - order)).sum(axis=2)
    return _Machine(number[order @ radix], signs_of_cell, outputs)


def _followed(several: _Machine, single: _Machine) -> _Machine:
    """Append one level to what a step reads."""
    n, width = single.rows.shape
    row = several.rows[:, :, None]
    digit = np.arange(width) ^ several.signs[:, :, None]
    return _Machine(
        single.rows[row, digit].reshape(n, -1),
        (several.signs[:, :, None] ^ single.signs[row, digit]).reshape(n, -1),
        (several.outputs[:, :, None] * width + single.outputs[row, digit]).reshape(n, -1),
    )


def _inverted(machine: _Machine) -> _Machine:
    """Turn the machine round: it reads an index and writes a cell."""
    cells = np.argsort(machine.outputs, axis=1)
    rows, signs = (np.take_along_axis(part, cells, axis=1) for part in machine[:2])
    return _Machine(rows, signs, cells)


def _packed(machine: _Machine, d: int, levels: int) -> Table:
    bits = d * levels
    every_level = sum(1 << (level * d) for level in range(levels))
    entries = (machine.rows << (2 * bits)) | ((machine.signs * every_level) << bits) | machine.outputs
    assert int(entries.max()) < 2**31
    return entries.ravel().astype(np.int32)


def _first_rows(single: _Machine, levels: int) -> Ints:
    """Walk backwards from row 0 over levels of zeros: they turn the curve, write zeros and change no sign."""
    before = {int(row): r for r, row in enumerate(single.rows[:, 0])}
    first = [0]
    for _ in range(levels - 1):
        first.append(before[first[-1]])
    return np.array(first, np.int64)


def encode(points: NDArray[np.integer], k: int) -> Ints:
    """Return the Hilbert index of each cell: row i of `points` holds its d coordinates, 0 <= x < 2^k.

    Implements [MICS09] §3.2, `Hilbert(I_1, .., I_d)`.
    Guarantee: equal by value to `hilbertcurve.HilbertCurve(k, d)`.
    Cost: O(d + k) per cell, compiled; k / levels look-ups (levels 13, 6, 3, 2, 1, 1 for d = 1 .. 6).

    >>> encode(np.array([[3, 5], [5, 3], [6, 2]]), k=3)  # p1, p2 and p3 of [MICS09] figure 3
    array([28, 52, 50])
    """
    cells = np.ascontiguousarray(points, dtype=np.int64)
    c, row, steps = machine_of(cells.shape[1], k)
    out = np.empty(len(cells), np.int64)
    outside = _encode(cells, k, c.forward, c.spread, row, steps, c.levels * c.d, out)
    assert not outside, f"coordinates must lie in [0, 2^{k})"
    return out


def decode(indices: NDArray[np.integer], d: int, k: int) -> Ints:
    """Return the cell of each index, one row of d coordinates each: the inverse of `encode`.

    Cost: O(d * k) per index, compiled.

    >>> decode(np.array([28, 52, 50]), d=2, k=3)
    array([[3, 5],
           [5, 3],
           [6, 2]])
    """
    along = np.ascontiguousarray(indices, dtype=np.int64)
    c, row, steps = machine_of(d, k)
    out = np.empty((len(along), d), np.int64)
    outside = _decode(along, k, c.backward, row, steps, c.levels, out)
    assert not outside, f"indices must lie in [0, 2^{d * k})"
    return out


def machine_of(d: int, k: int) -> tuple[Curve, int, int]:
    """Return the curve's tables, the row to begin with and the number of steps for k levels.

    Where k is no multiple of `levels`, the machine begins some levels higher, where all bits are zero.
    """
    assert k >= 1, k
    assert d * k <= INDEX_BITS_MAX, (d, k)
    c = curve(d)
    steps = -(-k // c.levels)
    return c, int(c.first[steps * c.levels - k]), steps


@njit
def index_of_morton(morton: int, table: Table, row: int, steps: int, bits: int) -> int:
    """Return the index of the cell with this Morton code; for kernels, which pass what `machine_of` gives."""
    mask = (1 << bits) - 1
    signs = 0
    index = 0
    shift = (steps - 1) * bits
    for _ in range(steps):
        entry = int(table[(row << bits) | (((morton >> shift) & mask) ^ signs)])
        index = (index << bits) | (entry & mask)
        signs ^= (entry >> bits) & mask
        row = entry >> (2 * bits)
        shift -= bits
    return index


@njit
def _encode(cells: Ints, k: int, table: Table, spread: Ints, row: int, steps: int, bits: int, out: Ints) -> bool:
    d = cells.shape[1]
    outside = 0
    for n in range(len(cells)):
        morton = 0
        for i in range(d):
            x = cells[n, i]
            outside |= x >> k
            morton |= spread[x & 255] << (d - 1 - i)
        for byte in range(8, k, 8):
            for i in range(d):
                morton |= spread[(cells[n, i] >> byte) & 255] << (byte * d + d - 1 - i)
        out[n] = index_of_morton(morton, table, row, steps, bits)
    return outside != 0


@njit
def _decode(indices: Ints, k: int, table: Table, row: int, steps: int, levels: int, out: Ints) -> bool:
    d = out.shape[1]
    bits = levels * d
    mask = (1 << bits) - 1
    outside = False
    for n in range(len(indices)):
        index = indices[n]
        outside |= index < 0 or (d * k < 63 and index >> (d * k) != 0)
        here = row
        signs = 0
        shift = (steps - 1) * bits
        for i in range(d):
            out[n, i] = 0
        for _ in range(steps):
            entry = int(table[(here << bits) | ((index >> shift) & mask)])
            cell = (entry & mask) ^ signs
            for level in range(levels - 1, -1, -1):
                for i in range(d):
                    out[n, i] = (out[n, i] << 1) | ((cell >> (level * d + d - 1 - i)) & 1)
            signs ^= (entry >> bits) & mask
            here = entry >> (2 * bits)
            shift -= bits
    return outside
