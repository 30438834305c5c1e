"""Many entries taken in by one compiled pass: what `covering.py` does entry by entry.

Entries come in their order, the larger first. One that lies inside an entry of the tree is covered; any other joins the
tree, and those that lie inside it leave. The rows of all of them stand in the arrays before the pass begins: a covered
one's are dead after it.

    rows    | active before | news, in their order       |        owner   number of the entry, -1: dead
    tree      some of these   those that nobody covers
"""

from __future__ import annotations

import numpy as np

from state.arrays import Floats, Ints
from state.kernels import njit
from state.reductions.row_tree import (
    CHANGES_MIN,
    LEAST,
    MOST,
    NONE,
    Links,
    RowTree,
    between,
    insert,
    remove,
    search,
    search_first,
)
from state.space.boxes import Ranks


@njit
def around(points: Ranks, row: int, floor: Ranks, ceiling: Ranks) -> None:
    """Ask for what contains a row."""
    d = points.shape[1] // 2
    for j in range(d):
        floor[j], floor[d + j] = LEAST, points[row, d + j]
        ceiling[j], ceiling[d + j] = points[row, j], MOST


@njit
def within(points: Ranks, row: int, floor: Ranks, ceiling: Ranks) -> None:
    """Ask for what lies inside a row."""
    d = points.shape[1] // 2
    for j in range(d):
        floor[j], floor[d + j] = points[row, j], LEAST
        ceiling[j], ceiling[d + j] = MOST, points[row, d + j]


@njit
def first_of(owners: Ints, row: int) -> int:
    """The first row of the entry that a row belongs to."""
    while row > 0 and owners[row - 1] == owners[row]:
        row -= 1
    return row


@njit
def _covered(points: Ranks, owners: Ints, first: int, end: int, outer: int, floor: Ranks, ceiling: Ranks) -> bool:
    """Whether each row of first..end lies inside one of the entry that owns the row `outer`."""
    owner, begin = owners[outer], first_of(owners, outer)
    for row in range(first, end):
        around(points, row, floor, ceiling)
        other, held = begin, False
        while not held and other < len(owners) and owners[other] == owner:
            held = between(points, other, floor, ceiling)
            other += 1
        if not held:
            return False
    return True


@njit
def take_in(
    points: Ranks,
    owners: Ints,
    bounds: Ranks,
    parts: Ranks,
    links: Links,
    chain: Links,
    stack: Links,
    scale: Floats,
    used: int,
    firsts: Ints,
    sizes: Ints,
    by: Ints,
    retired: Ints,
    found: Ints,
) -> tuple[int, int, int]:
    """Take in the entries that none covers; return the numbers of nodes, of entries that left, and of rows more.

    `by`: for each the first row of what covers it, or -1; `retired`: number and position of the entry that contains it,
    for each that left, in the order of their leaving.
    """
    n = points.shape[1]
    floor, ceiling = np.empty(n, np.int64), np.empty(n, np.int64)
    nobody = np.empty(0, np.int64)
    left = more = 0
    for i in range(len(firsts)):
        first, end = firsts[i], firsts[i] + sizes[i]
        by[i] = NONE
        around(points, first, floor, ceiling)
        if sizes[i] == 1:
            row = search_first(points, bounds, links, chain, stack, floor, ceiling)
            if row != NONE:
                by[i] = first_of(owners, row)
        else:
            count = search(points, bounds, links, chain, stack, floor, ceiling, found)
            for row in np.sort(found[:count]):
                if _covered(points, owners, first, end, row, floor, ceiling):
                    by[i] = first_of(owners, row)
                    break
        if by[i] != NONE:
            owners[first:end] = NONE
            continue
        count = 0
        for row in range(first, end):
            within(points, row, floor, ceiling)
            count += search(points, bounds, links, chain, stack, floor, ceiling, found[count:])
        if count:
            inside = np.sort(found[:count])
            left, gone = leave(points, owners, parts, links, chain, inside, nobody, i, retired, left)
            more -= gone
        for row in range(first, end):
            used = insert(bounds, parts, links, chain, points, row, used, scale)
        more += sizes[i]
    return used, left, more


@njit
def leave(
    points: Ranks,
    owners: Ints,
    parts: Ranks,
    links: Links,
    chain: Links,
    inside: Ints,
    staying: Ints,
    i: int,
    retired: Ints,
    left: int,
) -> tuple[int, int]:
    """Take out the entries all of whose rows are among those `inside` entry i, but for those that begin at `staying`.

    Returns how many have left so far, and how many rows did now.
    """
    at = gone = 0
    while at < len(inside):
        first = inside[at]
        owner, last = owners[first], at
        while last + 1 < len(inside) and owners[inside[last + 1]] == owner:
            last += 1
        size = last - at + 1
        end = first + size
        whole = inside[last] == end - 1 and (first == 0 or owners[first - 1] != owner)
        if whole and (end == len(owners) or owners[end] != owner) and not (staying == first).any():
            for row in range(first, end):
                remove(parts, links, chain, points, row)
                owners[row] = NONE
            retired[left, 0], retired[left, 1] = owner, i
            left += 1
            gone += size
        at = last + 1
    return left, gone


class PairwiseTree(RowTree):
    """A tree of rows that takes in many entries at once, as far as none covers them."""

    def take_in(self, owners: Ints, firsts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
        """Who covers each entry, and who left: `by` and `retired` of the kernel.

        `owners`: of all rows of `points`.
        Cost: two questions for each entry, compiled; as many at once as the tree may grow by before it is built anew.
        """
        by, retired = np.empty(len(firsts), np.int64), np.empty((self._count + len(firsts), 2), np.int64)
        at = left = 0
        while at < len(firsts):
            some = slice(at, at + self._count + CHANGES_MIN)
            self.make_room(int(sizes[some].sum()))
            used, gone, more = take_in(
                self._points,
                owners,
                self._bounds,
                self._parts,
                self._links,
                self._chain,
                self._stack,
                self._scale,
                self._used,
                firsts[some],
                sizes[some],
                by[some],
                retired[left:],
                self._found,
            )
            retired[left : left + gone, 1] += at
            self._used, left = int(used), left + gone
            self._count += int(more)
            self._changed(abs(int(more)))
            at = some.stop
        return by, retired[:left]
