"""Many boxes merged into rectangles by one compiled pass: what `rectangle_merging.py`, without a budget, does in turn.

Boxes come in their order. One that lies in a rectangle of the tree is held by it; any other becomes a rectangle itself,
with the first one that makes a rectangle with it (it is *grown*), and takes the place of all that lie inside.

    rows    | rectangles before | news, in their order: the box, then the rectangle that it became    -1: owner of the
    tree      some of these       those that nobody holds and that no later one took                      others
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.arrays import Bools, Floats, Ints
from state.kernels import njit
from state.reductions.pairwise import PairwiseTree, around, within
from state.reductions.row_tree import CHANGES_MIN, LEAST, MOST, NONE, Links, insert, remove, search, search_first
from state.space.boxes import Ranks


class Merged(NamedTuple):
    """What became of boxes, in their order; rectangles by their number."""

    holders: Ints
    """Who holds it, or -1: it became a rectangle."""
    whole: Bools
    """Whether it is as large as the rectangle that it is part of."""
    grown: Bools
    """Whether the first of those taken is what it makes a rectangle with."""
    taken: Ints
    """The rectangles whose place each took, one after another."""
    ends: Ints
    """Where those of each end."""


@njit
def _beside(points: Ranks, row: int, j: int, floor: Ranks, ceiling: Ranks) -> None:
    """Ask for what is as a row in all dimensions but j, where it meets or touches it."""
    d = points.shape[1] // 2
    floor[:], ceiling[:] = points[row], points[row]
    floor[j], ceiling[j] = LEAST, min(points[row, d + j], MOST - 1) + 1
    floor[d + j], ceiling[d + j] = max(points[row, j], LEAST + 1) - 1, MOST


@njit
def merge_in(
    points: Ranks,
    owners: Ints,
    bounds: Ranks,
    parts: Ranks,
    links: Links,
    chain: Links,
    stack: Links,
    scale: Floats,
    used: int,
    first: int,
    found: Ints,
    holders: Ints,
    whole: Bools,
    grown: Bools,
    taken: Ints,
    ends: Ints,
    total: int,
) -> tuple[int, int, int]:
    """Merge the rows from `first` on; return the numbers of nodes, of rectangles taken so far, and of rows more.

    The others are `Merged`, written.
    """
    n = points.shape[1]
    d = n // 2
    floor, ceiling = np.empty(n, np.int64), np.empty(n, np.int64)
    more = 0
    for i in range(len(holders)):
        row = first + i
        around(points, row, floor, ceiling)
        by = search_first(points, bounds, links, chain, stack, floor, ceiling)
        holders[i], whole[i], grown[i], ends[i] = NONE, True, False, total
        if by != NONE:
            holders[i], whole[i] = owners[by], (points[by] == points[row]).all()
            owners[row] = NONE
            continue
        within(points, row, floor, ceiling)
        best = search_first(points, bounds, links, chain, stack, floor, ceiling)
        for j in range(d):
            _beside(points, row, j, floor, ceiling)
            other = search_first(points, bounds, links, chain, stack, floor, ceiling)
            if other != NONE and (best == NONE or other < best):
                best = other
        if best != NONE:
            grown[i] = True
            for j in range(d):
                low, high = points[best, j], points[best, d + j]
                whole[i] &= points[row, j] <= low and high <= points[row, d + j]
                points[row, j], points[row, d + j] = min(points[row, j], low), max(points[row, d + j], high)
            taken[total] = owners[best]
            total += 1
            remove(parts, links, chain, points, best)
            owners[best] = NONE
            more -= 1
        within(points, row, floor, ceiling)
        count = search(points, bounds, links, chain, stack, floor, ceiling, found)
        for other in np.sort(found[:count]):
            taken[total] = owners[other]
            total += 1
            remove(parts, links, chain, points, other)
            owners[other] = NONE
        more -= count
        used = insert(bounds, parts, links, chain, points, row, used, scale)
        more += 1
        ends[i] = total
    return used, total, more


class MergingTree(PairwiseTree):
    """A tree of rectangles that takes in many boxes at once."""

    def merge_in(self, owners: Ints, first: int) -> Merged:
        """What becomes of the rows from `first` on, which the tree does not know yet.

        `owners`: of all rows of `points`. Cost: d + 3 questions for each, compiled; as many at once as the tree may
        grow by before it is built anew.
        """
        n = len(owners) - first
        holders, ends = np.empty(n, np.int64), np.empty(n, np.int64)
        whole, grown = np.empty(n, np.bool_), np.empty(n, np.bool_)
        taken = np.empty(self._count + n, np.int64)
        at = total = 0
        while at < n:
            some = slice(at, at + self._count + CHANGES_MIN)
            self.make_room(len(holders[some]))
            used, total, more = merge_in(
                self._points,
                owners,
                self._bounds,
                self._parts,
                self._links,
                self._chain,
                self._stack,
                self._scale,
                self._used,
                first + at,
                self._found,
                holders[some],
                whole[some],
                grown[some],
                taken,
                ends[some],
                int(total),
            )
            self._used = int(used)
            self._count += int(more)
            self._changed(abs(int(more)))
            at = some.stop
        return Merged(holders, whole, grown, taken[: int(total)], ends)
