"""From one Hilbert grid to another ([MICS09] §6.1, §6.3): variable cells, and tables made anew without a loss.

Cells fitted to a sample of publications (`grid_fitting.py`) mean a new grid, and on a new grid every range means other
cells. Entries whose boxes are known are mapped anew (`rebuilt`); ranges that came ready made, without boxes,
are carried over cell by cell (`remapped`), rounded up to cells once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from state.errors import HilcastError
from state.reductions.mics import Mics
from state.reductions.reduction import Delta
from state.space.boxes import Boxes
from state.space.grid import Grid
from state.space.hilbert import decode
from state.space.packing import Geometry
from state.space.ranges import Ranges
from state.space.ranks import PRESENT_MAX


def rebuilt(old: Mics, domain: tuple[int, int] | Geometry, entries: Mapping[str, Ranges]) -> tuple[Mics, Delta]:
    """Build the table anew on another grid; return it, and the step that swaps it in at the neighbour.

    `entries` are the live entries of `old`, mapped to the new grid; the old table goes on until the swap. Ids
    of both grids look alike and mean different cells, so the step sends every new range and removes every old
    one without a namesake. Guarantee: an entry that is not among `entries` is an error, never a loss.
    """
    missing = sorted(set(old.entries()) - set(entries))
    if missing:
        raise HilcastError("stale-grid", f"{len(missing)} live entries not on the new grid, first {missing[0]!r}")
    new = Mics(domain, {name: value for name, value in asdict(old.parameters).items() if value is not None})
    new.update({id: entries[id] for id in old.entries()})
    forwarded = new.forwarded()
    return new, Delta(forwarded, tuple(id for id in old.forwarded() if id not in forwarded))


def remapped(ranges: Ranges, old: Grid, new: Grid, cap: int | None = None) -> Ranges:
    """Carry ranges of one grid over to another: every publication that was in one is in one still.

    A range is cut into aligned blocks, each of which is a cube of cells, so a box of ranks. Cost: O(k * d) blocks
    a range at most, each mapped like a subscription. Raises `stale-grid` where the grids are of different types.
    """
    if old.type_name != new.type_name or old.attributes != new.attributes:
        raise HilcastError("stale-grid", f"ranges of {old.type_name!r} have no meaning in {new.type_name!r}")
    return new.ranges(boxes_of(ranges, old), cap)


def boxes_of(ranges: Ranges, grid: Grid) -> Boxes:
    """The boxes of ranks that hold exactly the cells of the ranges; attributes not in the grid are spanned."""
    first, levels = _blocks(ranges, grid)
    corners = (decode(first, grid.d, grid.k) >> levels[:, None]) << levels[:, None]
    last = corners + (1 << levels[:, None]) - 1
    top = 2**grid.k - 1
    everything = Boxes.everything(len(grid.attributes))
    lows = np.repeat(everything.lows, len(first), axis=0)
    highs = np.repeat(everything.highs, len(first), axis=0)
    full = np.ones(len(first), bool)
    for i, column in enumerate(grid.columns):
        low, final = grid.starts[i, corners[:, i]], last[:, i] == top
        following = grid.starts[i, np.minimum(last[:, i] + 1, top)]
        # Of cells with one start all but the last are empty; ABSENT - 1 would wrap round.
        full &= final | (low < following)
        lows[:, column] = low
        highs[:, column] = np.where(final | (low == following), PRESENT_MAX, following - 1)
    return Boxes(np.ascontiguousarray(lows[full]), np.ascontiguousarray(highs[full]))


def _blocks(ranges: Ranges, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Cut ranges into aligned blocks of 2^(d * level) indices: first index and level of each."""
    first, levels = [], []
    for start, end in zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True):
        while start <= end:
            level = 0
            while level < grid.k and start % (1 << grid.d * (level + 1)) == 0:
                if start + (1 << grid.d * (level + 1)) - 1 > end:
                    break
                level += 1
            first.append(start)
            levels.append(level)
            start += 1 << grid.d * level
    return np.array(first, np.int64), np.array(levels, np.int64)
