"""Many entries of one box cut out of the negative space by compiled passes: what `negative_space.py` does one by one.

A pass goes on as long as nothing but the arrays is needed; what else there is to do, its caller does, and begins anew.

    covered by what is cut out   ──> passive                                              room    for more nodes
    nothing active lies in it,   ──> cut out, and a row of the active ones                grown   merge, or build anew
    and it fits under the cap                                                             alone   any other: by itself
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Floats, Ints
from state.kernels import njit
from state.reductions.negative_tree import (
    REBALANCE_MIN,
    NegativeTree,
    Nodes,
    collect,
    cut_leaves,
    meets_any,
    new_boxes,
)
from state.reductions.pairwise import within
from state.reductions.row_tree import Links, RowTree, insert, search_any
from state.space.boxes import Ranks

DONE, ROOM, GROWN, ALONE = 0, 1, 2, 3
"""Why a pass ended."""


@njit
def cut_out(
    bounds: Ranks,
    child: Nodes,
    free: Nodes,
    hits: Nodes,
    trail: Nodes,
    stack: Nodes,
    n_free: int,
    count: int,
    changes: int,
    largest_first: bool,
    merge_above: int,
    caps: Ints,
    points: Ranks,
    row_bounds: Ranks,
    row_parts: Ranks,
    row_links: Links,
    row_chain: Links,
    row_stack: Links,
    row_scale: Floats,
    used: int,
    first: int,
    covered: Bools,
) -> tuple[int, int, int, int, int, int]:
    """Take in the rows from `first` on; `covered`: which of them nothing negative meets.

    First the negative tree and how it is cut (`caps`: the boxes that there may be at each, -1: no limit), then the tree
    of active rows. Returns how many were taken in, why it ended, free nodes, boxes and changes of the one tree, and the
    nodes of the other.
    """
    n = points.shape[1]
    d = n // 2
    floor, ceiling = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(len(covered)):
        row = first + i
        low, high = points[row, :d], points[row, d:]
        covered[i] = not meets_any(bounds, child, low, high, stack)
        if covered[i]:
            continue
        within(points, row, floor, ceiling)
        if search_any(points, row_bounds, row_links, row_chain, row_stack, floor, ceiling):
            return i, ALONE, n_free, count, changes, used
        n_hits, n_trail = collect(bounds, child, low, high, hits, trail, stack)
        new, nodes = new_boxes(bounds, hits[:n_hits], low, high)
        if new > 0 and 0 <= caps[i] < count + new:
            return i, ALONE, n_free, count, changes, used
        if n_free < nodes:
            return i, ROOM, n_free, count, changes, used
        new, n_free = cut_leaves(bounds, child, free, n_free, hits[:n_hits], trail[:n_trail], low, high, largest_first)
        count += new
        changes += n_hits
        used = insert(row_bounds, row_parts, row_links, row_chain, points, row, used, row_scale)
        if changes > count + REBALANCE_MIN or count > merge_above:
            return i + 1, GROWN, n_free, count, changes, used
    return len(covered), DONE, n_free, count, changes, used


class CuttingTree(NegativeTree):
    """A negative tree that many boxes are cut out of at once."""

    def cut_out(self, rows: RowTree, first: int, caps: Ints, sweeps: int) -> tuple[Bools, bool, int]:
        """Cut boxes out, those at `first` and behind among the points of `rows`, the tree of what is cut out already.

        As far as nothing of `rows` lies in one that is to be cut out, and as it fits under its cap (-1: there is none).
        Returns which of those it came to were covered, whether it came to all, and how many boxes merging saved.
        Cost: that of `covered` and `subtract`, compiled.
        """
        covered, saved, at = np.zeros(len(caps), np.bool_), 0, 0
        while at < len(caps):
            rows.make_room(len(caps) - at)
            done, why, n_free, count, changes, used = cut_out(
                self._bounds, self._child, self._free, self._hits, self._trail, self._stack,
                self._n_free, self._count, self._changes, self.largest_first, self.merges_above(sweeps), caps[at:],
                *rows.arrays, first + at, covered[at:],
            )  # fmt: skip
            rows.took_in(int(used), int(done - covered[at : at + done].sum()))
            self._n_free, self._count, self._changes = int(n_free), int(count), int(changes)
            at += int(done)
            if why == ALONE:
                return covered[:at], False, saved
            if why == ROOM:
                self._reserve(self._n_free + 1)
            if why == GROWN:
                self._changed(0)
                saved += self.merge_if_grown(sweeps)
        return covered, True, saved
