"""Sets of closed boxes, made disjoint, intersected and joined: the kernels under `geometry.py`.

    ┌──────┐               ┌──────┐
    │  a ┌─┼───┐           │  a   ├───┐        b minus a: what sticks out of a, cut off
    └────┼─┘ b │    ──>    └────┬─┴─┐ │        one side of one dimension after the other,
         └─────┘                └───┴─┘        so at most 2d pieces

On closed integer boxes the cut is at low - 1 and high + 1, so no piece shares a point with another. The
kernels stop as soon as there are too many boxes and say so with a count of -1.
"""

from __future__ import annotations

import numpy as np

from state.kernels import njit
from state.space.boxes import Ranks
from state.space.ranks import ABSENT, PRESENT_MAX

Corners = tuple[Ranks, Ranks]


# --- a tree of boxes ----------------------------------------------------------------------------------------

NOWHERE, PRODUCT, INTERSECT, UNITE, SKIP = range(5)
"""What a program does, on a stack of sets of disjoint boxes (`run`)."""


@njit
def run(program: Ranks, d: int, cap: int) -> tuple[Ranks, int, bool]:
    """Run a program: a tree of ANDs and ORs over spans of ranks, written out from its leaves up (`span_trees.py`).

        NOWHERE                                     put an empty set on the stack
        PRODUCT exact m (k n (low high)*n)*m        put all boxes of one span for each of m dimensions
        SKIP to                                     go on there if the topmost set is empty
        INTERSECT                                   the topmost two become what is in both
        UNITE exact n                               the topmost n become their union, made disjoint

    Returns what is left on the stack, low and high corners in one array (each that leaves compiled code costs half a
    microsecond), how many boxes that is, and whether it is exact: if all that it was made of is, or if it is empty. -1
    if at any point there are more than `cap` boxes. Cost: compiled, at most O(cap^2 * d) for each step.

    >>> run(np.array([PRODUCT, 1, 1, 0, 2, 3, 4, 6, 7, PRODUCT, 1, 1, 0, 1, 4, 6, INTERSECT]), 1, 9)
    (array([[[4],
            [6]],
    <BLANKLINE>
           [[4],
            [6]]]), 2, True)
    """
    lows, highs = np.empty((16, d), np.int64), np.empty((16, d), np.int64)
    none = np.empty((2, 0, d), np.int64)
    firsts, exact = np.empty(len(program) + 1, np.int64), np.empty(len(program), np.bool_)
    firsts[0] = top = count = at = 0  # set t is rows firsts[t] to firsts[t + 1]
    while at < len(program):
        step = program[at]
        at += 1
        if step == SKIP:
            at = program[at] if firsts[top] == firsts[top - 1] else at + 1
            continue
        certain = True
        if step == PRODUCT:
            certain, first = program[at] != 0, count
            count += _product_size(program, at + 1, cap)
            if count < first:
                return none, -1, False
            lows, highs = _with_room(lows, first, count), _with_room(highs, first, count)
            at = _product(program, at + 1, lows[first:count], highs[first:count])
        elif step == INTERSECT:
            top -= 2
            first, middle, certain = firsts[top], firsts[top + 1], exact[top] and exact[top + 1]
            more_lows, more_highs, more = intersections(
                lows[first:middle], highs[first:middle], lows[middle:count], highs[middle:count], cap
            )
            if more < 0:
                return none, -1, False
            count = first + more
            lows, highs = _put(more_lows, more, lows, first), _put(more_highs, more, highs, first)
        elif step == UNITE:
            certain, top = program[at] != 0, top - program[at + 1]
            first, sets = firsts[top], 0
            for t in range(top, top + program[at + 1]):
                if firsts[t + 1] > firsts[t]:
                    sets, certain = sets + 1, certain and exact[t]
            at += 2
            if count - first > 2 * cap:
                return none, -1, False  # overlaps seldom halve them, and to try costs much
            if sets > 1:
                more_lows, more_highs, more = disjoint_union(lows[first:count], highs[first:count], cap)
                if more < 0:
                    return none, -1, False
                count = first + more
                lows, highs = _put(more_lows, more, lows, first), _put(more_highs, more, highs, first)
        exact[top] = certain or count == firsts[top]
        top += 1
        firsts[top] = count
    corners = np.empty((2, count, d), np.int64)
    for i in range(count):
        for k in range(d):
            corners[0, i, k], corners[1, i, k] = lows[i, k], highs[i, k]
    return corners, count, exact[0]


@njit
def _with_room(rows: Ranks, held: int, wanted: int) -> Ranks:
    """The rows, or the first `held` of them in an array that has room for so many as are wanted."""
    if wanted <= len(rows):
        return rows
    larger = np.empty((2 * wanted, rows.shape[1]), np.int64)
    larger[:held] = rows[:held]
    return larger


@njit
def _put(some: Ranks, count: int, rows: Ranks, first: int) -> Ranks:
    """The rows with some written over them from `first` on: number by number, for slices are looked at for overlaps."""
    rows = _with_room(rows, first, first + count)
    for i in range(count):
        for k in range(rows.shape[1]):
            rows[first + i, k] = some[i, k]
    return rows


@njit
def _product_size(program: Ranks, at: int, cap: int) -> int:
    """How many boxes a product has; -1 if they are more than `cap`."""
    total, place = 1, at + 1
    for _ in range(program[at]):
        total *= program[place + 1]
        place += 2 + 2 * program[place + 1]
        if total > cap:
            return -1
    return total


@njit
def _product(program: Ranks, at: int, lows: Ranks, highs: Ranks) -> int:
    """Write one box for each choice of a span per dimension; return where the program goes on."""
    lows[:], highs[:] = ABSENT, PRESENT_MAX
    repeat, place = len(lows), at + 1
    for _ in range(program[at]):
        k, spans = program[place], program[place + 1]
        repeat //= spans
        for row in range(len(lows)):
            span = place + 2 + 2 * (row // repeat % spans)
            lows[row, k], highs[row, k] = program[span], program[span + 1]
        place += 2 + 2 * spans
    return place


@njit
def disjoint_union(lows: Ranks, highs: Ranks, cap: int) -> tuple[Ranks, Ranks, int]:
    """Disjoint boxes with the same union, and how many of the rows they are; -1 if they are more than `cap`.

    Large boxes go first, so that small ones vanish in them instead of cutting them up.
    Cost: O(n * pieces * d), then `joined`; at most 2 * `cap` pieces are ever held.
    """
    n, d = lows.shape
    sizes = np.zeros(n)
    for i in range(n):
        for k in range(d):
            sizes[i] -= np.log2(np.float64(highs[i, k]) - np.float64(lows[i, k]) + 1.0)
    order = np.argsort(sizes, kind="mergesort")
    lows, highs, count = _disjoint(lows[order], highs[order], 2 * cap)
    if count >= 0:
        count = joined(lows[:count], highs[:count])
    return lows, highs, count if count <= cap else -1


@njit
def _copy(lows: Ranks, highs: Ranks, source: int, target: int) -> None:
    """Write one box over another."""
    for k in range(lows.shape[1]):
        lows[target, k], highs[target, k] = lows[source, k], highs[source, k]


@njit
def _meet(lows: Ranks, highs: Ranks, i: int, other_lows: Ranks, other_highs: Ranks, j: int) -> bool:
    for k in range(lows.shape[1]):  # noqa: SIM110 - compiled code has no generators
        if lows[i, k] > other_highs[j, k] or highs[i, k] < other_lows[j, k]:
            return False
    return True


@njit
def _disjoint(lows: Ranks, highs: Ranks, room: int) -> tuple[Ranks, Ranks, int]:
    n, d = lows.shape
    out_lows, out_highs = np.empty((2 * n + 4 * d, d), np.int64), np.empty((2 * n + 4 * d, d), np.int64)
    count = 0
    for i in range(n):
        # The pieces of box i lie behind what is out already; those that get cut are replaced in place.
        first = count
        out_lows, out_highs = _with_room(out_lows, count, count + 1), _with_room(out_highs, count, count + 1)
        for k in range(d):
            out_lows[count, k], out_highs[count, k] = lows[i, k], highs[i, k]
        count += 1
        for j in range(first):
            if not _meet(lows, highs, i, out_lows, out_highs, j):
                continue  # then no piece of box i meets it either
            piece = first
            while piece < count:
                if not _meet(out_lows, out_highs, piece, out_lows, out_highs, j):
                    piece += 1
                    continue
                if count + 2 * d > len(out_lows):  # as many as may be cut off
                    more = count + 2 * d
                    out_lows, out_highs = _with_room(out_lows, count, more), _with_room(out_highs, count, more)
                for k in range(d):
                    if out_lows[piece, k] < out_lows[j, k]:
                        _copy(out_lows, out_highs, piece, count)
                        out_highs[count, k] = out_lows[j, k] - 1
                        out_lows[piece, k] = out_lows[j, k]
                        count += 1
                    if out_highs[piece, k] > out_highs[j, k]:
                        _copy(out_lows, out_highs, piece, count)
                        out_lows[count, k] = out_highs[j, k] + 1
                        out_highs[piece, k] = out_highs[j, k]
                        count += 1
                # What is left of the piece lies inside box j: the last piece takes its place. Pieces cut off
                # above do not meet box j, so looking at them again costs one comparison each.
                count -= 1
                _copy(out_lows, out_highs, count, piece)
            if count > room:
                return out_lows, out_highs, -1
    return out_lows, out_highs, count


@njit
def intersections(
    lows: Ranks, highs: Ranks, other_lows: Ranks, other_highs: Ranks, cap: int
) -> tuple[Ranks, Ranks, int]:
    """What is in some box of one set and some of the other, and their number: -1 if they are more than `cap`.

    Guarantee: disjoint, if each of the two sets is. Cost: O(n * m * d).
    """
    d = lows.shape[1]
    room = min(cap, lows.shape[0] * other_lows.shape[0])
    out_lows, out_highs = np.empty((room, d), np.int64), np.empty((room, d), np.int64)
    count = 0
    for i in range(lows.shape[0]):
        for j in range(other_lows.shape[0]):
            if not _meet(lows, highs, i, other_lows, other_highs, j):
                continue
            if count == cap:
                return out_lows, out_highs, -1
            for k in range(d):
                out_lows[count, k] = max(lows[i, k], other_lows[j, k])
                out_highs[count, k] = min(highs[i, k], other_highs[j, k])
            count += 1
    return out_lows, out_highs, count


@njit
def joined(lows: Ranks, highs: Ranks) -> int:
    """Unite disjoint boxes that differ in one dimension only and touch there, in place; returns how many are left.

    Guarantee: no more boxes than before, disjoint, the same union.
    Cost: O(n^2 * d) for each round, and at most eight rounds; the second one seldom finds anything.
    """
    count, d = lows.shape
    for _ in range(8):
        before = count
        i = 0
        while i < count:
            j = i + 1
            while j < count:
                different = -1
                for k in range(d):
                    if lows[i, k] != lows[j, k] or highs[i, k] != highs[j, k]:
                        if different >= 0:
                            different = -2
                            break
                        different = k
                # Disjoint boxes that differ in one dimension only are apart there, so low - 1 cannot
                # overflow.
                if different >= 0 and (
                    (lows[i, different] > highs[j, different] and lows[i, different] - 1 == highs[j, different])
                    or (lows[j, different] > highs[i, different] and lows[j, different] - 1 == highs[i, different])
                ):
                    lows[i, different] = min(lows[i, different], lows[j, different])
                    highs[i, different] = max(highs[i, different], highs[j, different])
                    count -= 1
                    _copy(lows, highs, count, j)
                    j = i + 1  # box i has grown: what did not fit before may fit now
                else:
                    j += 1
            i += 1
        if count == before:
            break
    return count
