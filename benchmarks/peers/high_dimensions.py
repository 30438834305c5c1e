"""MICS in high dimensions beyond what a configuration can choose ([MICS09] §5, and L433 of §8), and their measure.

| way | table | a publication is forwarded if | guarantee |
|---|---|---|---|
| content space projection | `Mics` over a grid of some attributes | its cell is in the table | superset |
| subscription indexing | `IndexedMatcher`: ranges list their subscriptions | an exact phase finds one there | exact |
| attribute subsets | `SubsetTables`: one table per subset of attributes | every table holds its cell | superset |

`judged` counts false positives. The router matches subscriptions by `state/matchers/`, whatever they were reduced by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.reductions.interval_table import CompiledTable, closed
from state.reductions.mics import Mics
from state.reductions.mics_high_dimensions import RangeIndex
from state.reductions.reduction import Delta
from state.space.boxes import Boxes, Ranks
from state.space.event_type import EventType
from state.space.grid import Grid
from state.space.ranges import Ranges

# --- false positives ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """Routing compared with the truth: what crossed a link, and how much of it nobody behind it wanted."""

    publications: int
    forwarded: int
    false: int
    lost: int
    """Publications that should have crossed and did not: 0 for everything here."""

    @property
    def share(self) -> float:
        """False positives as a share of what was forwarded ([MICS09] Table 2)."""
        return self.false / self.forwarded if self.forwarded else 0.0


def judged(routed: Bools, wanted: Bools) -> Judged:
    """Compare what was routed with what was wanted, one truth value per publication.

    >>> judged(np.array([True, True, False]), np.array([True, False, False]))
    Judged(publications=3, forwarded=2, false=1, lost=0)
    """
    false, lost = int((routed & ~wanted).sum()), int((wanted & ~routed).sum())
    return Judged(len(routed), int(routed.sum()), false, lost)


# --- subscription indexing ----------------------------------------------------------------------------------


def leaf_candidates(index: RangeIndex, boxes: Boxes) -> Ints:
    """The entries listed by the merged ranges that `boxes` meet: what the paper's leaves hold. Cost: O(n)."""
    starts, ends, owners = index.columns()
    leaves, asked = closed(starts, ends), index.ranges(boxes)
    if len(leaves) == 0 or len(asked) == 0:
        return np.empty(0, np.int64)
    first = np.searchsorted(leaves.ends, asked.starts)
    last = np.searchsorted(leaves.starts, asked.ends, side="right")
    met = np.unique(np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)]))
    runs = [
        owners[np.searchsorted(starts, leaves.starts[i]) : np.searchsorted(starts, leaves.ends[i], side="right")]
        for i in met.tolist()
    ]
    return np.unique(np.concatenate([np.empty(0, np.int64), *runs]))


@njit
def _match_any(
    indices: Ints, points: Ranks, starts: Ints, ends: Ints, reach: Ints, owners: Ints,
    first_box: Ints, lows: Ranks, highs: Ranks, matched: Bools, examined: Ints,
) -> None:  # fmt: skip
    """For each point walk back over the ranges that may hold its index, and test their owners exactly."""
    n, d = starts.shape[0], points.shape[1]
    for p in range(indices.shape[0]):
        h = indices[p]
        left, right = 0, n
        while left < right:
            middle = (left + right) >> 1
            if starts[middle] <= h:
                left = middle + 1
            else:
                right = middle
        i = left - 1
        while i >= 0 and reach[i] >= h and not matched[p]:
            if ends[i] >= h:
                examined[p] += 1
                for b in range(first_box[owners[i]], first_box[owners[i] + 1]):
                    inside = True
                    for j in range(d):
                        if points[p, j] < lows[b, j] or points[p, j] > highs[b, j]:
                            inside = False
                            break
                    if inside:
                        matched[p] = True
                        break
            i -= 1


class IndexedMatcher:
    """An index for matching: phase 1 by ranges, phase 2 by all attributes.

    Implements [MICS09] §5, content matching in subscription indexing: no false positives by projection.
    Cost: O(log n + candidates * d) a publication, compiled; the walk back ends where no earlier range reaches.
    """

    def __init__(self, grid: Grid, entries: Sequence[Boxes], cap: int | None = None) -> None:
        index = RangeIndex(grid, cap)
        index.add_all(dict(enumerate(entries)))
        self.grid = grid
        self._starts, self._ends, self._owners = index.columns()
        self._reach = np.maximum.accumulate(self._ends) if len(self._ends) else self._ends
        self._first_box = np.cumsum([0, *(len(boxes) for boxes in entries)])
        together = Boxes.concatenated(entries, len(grid.attributes))
        self._lows, self._highs = together.lows, together.highs

    def __len__(self) -> int:
        return len(self._starts)

    def table(self) -> Ranges:
        """The merged ranges: what content space projection would forward by."""
        return closed(self._starts, self._ends)

    def match(self, ranks: Ranks) -> tuple[Bools, Ints]:
        """For each publication whether an entry matches it, and how many entries were examined to know."""
        matched, examined = np.zeros(len(ranks), bool), np.zeros(len(ranks), np.int64)
        points = np.ascontiguousarray(ranks, np.int64)
        _match_any(
            self.grid.index(points), points, self._starts, self._ends, self._reach, self._owners,
            self._first_box, self._lows, self._highs, matched, examined,
        )  # fmt: skip
        return matched, examined


# --- attribute subsets --------------------------------------------------------------------------------------


def subset_grids(event_type: EventType, subsets: Sequence[Sequence[str]]) -> list[Grid]:
    """One grid for each subset of attributes."""
    return [Grid.of(replace(event_type, index=tuple(names), cubes=1)) for names in subsets]


class SubsetTables:
    """One table for each subset of the attributes; a publication must be in all of them.

    Implements the idea of [MICS09] L433 (after subscription summaries). Each table holds the projections of all
    entries on its attributes, so together they hold the product of the projections.
    Guarantee: superset. It forwards no more than projection on any one of the subsets alone.
    """

    def __init__(self, grids: Sequence[Grid], cap: int | None = None) -> None:
        assert grids, "at least one subset"
        self.grids = list(grids)
        self.cap = cap
        self.tables = [Mics((0, 2**grid.index_bits - 1)) for grid in grids]

    def update(self, added: Mapping[str, Boxes], removed: Iterable[str] = ()) -> list[Delta]:
        """Change every table; one delta each. An entry is withheld only where its projection is covered."""
        gone = list(removed)
        deltas = []
        for grid, table in zip(self.grids, self.tables, strict=True):
            deltas.append(table.update({id: grid.ranges(boxes, self.cap) for id, boxes in added.items()}, gone))
        return deltas

    def route(self, ranks: Ranks) -> Bools:
        """For each publication whether every table holds its cell."""
        routed = np.ones(len(ranks), bool)
        for grid, table in zip(self.grids, self.tables, strict=True):
            routed &= CompiledTable(table.table()).lookup(grid.index(ranks))
        return routed

    def stats(self) -> dict[str, int | float]:
        each = [table.stats() for table in self.tables]
        sums = {name: sum(stats[name] for stats in each) for name in ("forwarded", "withheld", "ranges", "bytes")}
        return sums | {"entries": each[0]["entries"]}

    def check(self) -> None:
        for table in self.tables:
            table.check()
