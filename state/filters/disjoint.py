"""Sets of closed boxes, made disjoint, intersected and joined: the kernels under `geometry.py`.

    ┌──────┐               ┌──────┐
    │  a ┌─┼───┐           │  a   ├───┐        b minus a: what sticks out of a, cut off
    └────┼─┘ b │    ──>    └────┬─┴─┐ │        one side of one dimension after the other,
         └─────┘                └───┴─┘        so at most 2d pieces

On closed integer boxes the cut is at low - 1 and high + 1, so no piece shares a point with another. The
kernels stop as soon as there are too many boxes and say so with a count of -1.
"""

from __future__ import annotations

from array import array

import numpy as np

from state.kernels import njit
from state.space.boxes import Ranks
from state.space.ranks import ABSENT, PRESENT_MAX

Corners = tuple[Ranks, Ranks]


# --- a tree of boxes ----------------------------------------------------------------------------------------

NOWHERE, PRODUCT, INTERSECT, UNITE, SKIP = range(5)
"""What a program does, on a stack of sets of disjoint boxes (`evaluated`)."""


def evaluated(program: list[int], d: int, cap: int) -> tuple[Corners, bool] | None:
    """Run a program: a tree of ANDs and ORs over spans of ranks, written out from its leaves up.

        NOWHERE                                     put an empty set on the stack
        PRODUCT exact m (k n (low high)*n)*m        put all boxes of one span for each of m dimensions
        SKIP to                                     go on there if the topmost set is empty
        INTERSECT                                   the topmost two become what is in both
        UNITE exact n                               the topmost n become their union, made disjoint

    Returns what is left on the stack, and whether it is exact: if all that it was made of is, or if it is empty. None
    if at any point there are more than `cap` boxes. Cost: compiled, at most O(cap^2 * d) for each step.

    >>> evaluated([PRODUCT, 1, 1, 0, 2, 3, 4, 6, 7, PRODUCT, 1, 1, 0, 1, 4, 6, INTERSECT], 1, 9)
    ((array([[4],
           [6]]), array([[4],
           [6]])), True)
    """
    # by an array of Python's own, which takes a list of integers several times as fast as numpy does
    lows, highs, count, exact = _evaluated(np.frombuffer(array("q", program), np.int64), d, cap)
    return None if count < 0 else ((lows, highs), exact)


@njit
def _evaluated(program: Ranks, d: int, cap: int) -> tuple[Ranks, Ranks, int, bool]:
    lows, highs = np.empty((8, d), np.int64), np.empty((8, d), np.int64)
    firsts, exact = np.empty(len(program) + 1, np.int64), np.empty(len(program), np.bool_)
    firsts[0] = top = count = at = 0  # set t is rows firsts[t] to firsts[t + 1]
    while at < len(program):
        step = program[at]
        at += 1
        if step == SKIP:
            at = program[at] if firsts[top] == firsts[top - 1] else at + 1
            continue
        if step == NOWHERE:
            first, certain = count, True
            more_lows, more_highs = lows[:0], highs[:0]
        elif step == PRODUCT:
            first, certain = count, program[at] != 0
            more_lows, more_highs, at = _product(program, at + 1, d, cap)
        elif step == INTERSECT:
            top -= 2
            first, middle, certain = firsts[top], firsts[top + 1], exact[top] and exact[top + 1]
            more_lows, more_highs, more = intersections(
                lows[first:middle], highs[first:middle], lows[middle:count], highs[middle:count], cap
            )
            at = at if more >= 0 else -1
            more_lows, more_highs = more_lows[:more], more_highs[:more]
        else:
            certain, top = program[at] != 0, top - program[at + 1]
            first = firsts[top]
            sets = 0
            for t in range(top, top + program[at + 1]):
                if firsts[t + 1] > firsts[t]:
                    sets, certain = sets + 1, certain and exact[t]
            at += 2
            more_lows, more_highs = lows[first:count].copy(), highs[first:count].copy()
            if count - first > 2 * cap:
                at = -1  # overlaps seldom halve them, and to try costs much
            elif sets > 1:
                more_lows, more_highs, more = disjoint_union(more_lows, more_highs, cap)
                at = at if more >= 0 else -1
                more_lows, more_highs = more_lows[:more], more_highs[:more]
        if at < 0:
            return lows, highs, -1, False
        count = first + len(more_lows)
        while count > len(lows):
            lows, highs = _grown(lows, len(lows)), _grown(highs, len(highs))
        lows[first:count], highs[first:count] = more_lows, more_highs
        exact[top] = certain or len(more_lows) == 0
        top += 1
        firsts[top] = count
    return lows[:count].copy(), highs[:count].copy(), count, exact[0]


@njit
def _product(program: Ranks, at: int, d: int, cap: int) -> tuple[Ranks, Ranks, int]:
    """One box for each choice of a span per dimension, and where the program goes on; -1 if they are too many."""
    dimensions = program[at]
    total, place = 1, at + 1
    for _ in range(dimensions):
        total *= program[place + 1]
        place += 2 + 2 * program[place + 1]
        if total > cap:
            return np.empty((0, d), np.int64), np.empty((0, d), np.int64), -1
    lows, highs = np.full((total, d), ABSENT, np.int64), np.full((total, d), PRESENT_MAX, np.int64)
    repeat, place = total, at + 1
    for _ in range(dimensions):
        k, spans = program[place], program[place + 1]
        repeat //= spans
        for row in range(total):
            span = place + 2 + 2 * (row // repeat % spans)
            lows[row, k], highs[row, k] = program[span], program[span + 1]
        place += 2 + 2 * spans
    return lows, highs, place


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
def _grown(rows: Ranks, count: int) -> Ranks:
    if count < rows.shape[0]:
        return rows
    larger = np.empty((2 * rows.shape[0], rows.shape[1]), np.int64)
    larger[:count] = rows[:count]
    return larger


@njit
def _meet(lows: Ranks, highs: Ranks, i: int, other_lows: Ranks, other_highs: Ranks, j: int) -> bool:
    for k in range(lows.shape[1]):  # noqa: SIM110 - compiled code has no generators
        if lows[i, k] > other_highs[j, k] or highs[i, k] < other_lows[j, k]:
            return False
    return True


@njit
def _disjoint(lows: Ranks, highs: Ranks, room: int) -> tuple[Ranks, Ranks, int]:
    n, d = lows.shape
    out_lows, out_highs = np.empty((2 * n + 8, d), np.int64), np.empty((2 * n + 8, d), np.int64)
    count = 0
    for i in range(n):
        # The pieces of box i lie behind what is out already; those that get cut are replaced in place.
        first = count
        out_lows, out_highs = _grown(out_lows, count), _grown(out_highs, count)
        out_lows[count], out_highs[count] = lows[i], highs[i]
        count += 1
        for j in range(first):
            if not _meet(lows, highs, i, out_lows, out_highs, j):
                continue  # then no piece of box i meets it either
            piece = first
            while piece < count:
                if not _meet(out_lows, out_highs, piece, out_lows, out_highs, j):
                    piece += 1
                    continue
                for k in range(d):
                    if out_lows[piece, k] < out_lows[j, k]:
                        out_lows, out_highs = _grown(out_lows, count), _grown(out_highs, count)
                        out_lows[count], out_highs[count] = out_lows[piece], out_highs[piece]
                        out_highs[count, k] = out_lows[j, k] - 1
                        out_lows[piece, k] = out_lows[j, k]
                        count += 1
                    if out_highs[piece, k] > out_highs[j, k]:
                        out_lows, out_highs = _grown(out_lows, count), _grown(out_highs, count)
                        out_lows[count], out_highs[count] = out_lows[piece], out_highs[piece]
                        out_lows[count, k] = out_highs[j, k] + 1
                        out_highs[piece, k] = out_highs[j, k]
                        count += 1
                # What is left of the piece lies inside box j: the last piece takes its place. Pieces cut off
                # above do not meet box j, so looking at them again costs one comparison each.
                count -= 1
                out_lows[piece], out_highs[piece] = out_lows[count], out_highs[count]
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
                    lows[j], highs[j] = lows[count], highs[count]
                    j = i + 1  # box i has grown: what did not fit before may fit now
                else:
                    j += 1
            i += 1
        if count == before:
            break
    return count
