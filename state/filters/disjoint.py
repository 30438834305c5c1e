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

Corners = tuple[Ranks, Ranks]


def disjoint_union(lows: Ranks, highs: Ranks, cap: int) -> Corners | None:
    """Return disjoint boxes with the same union, or None if they are more than `cap`.

    Large boxes go first, so that small ones vanish in them instead of cutting them up.
    Cost: O(n * pieces * d), then `joined`; at most 2 * `cap` pieces are ever held.

    >>> a, b = np.array([[0, 0], [2, 2]]), np.array([[4, 4], [6, 6]])
    >>> [box.tolist() for box in disjoint_union(a, b, 9)[0]]
    [[0, 0], [2, 5], [5, 2]]
    """
    sizes = np.log2(highs.astype(np.float64) - lows.astype(np.float64) + 1.0).sum(axis=1)
    order = np.argsort(-sizes, kind="stable")
    out_lows, out_highs, count = _disjoint(lows[order], highs[order], 2 * cap)
    if count < 0:
        return None
    corners = joined(out_lows[:count], out_highs[:count])
    return corners if len(corners[0]) <= cap else None


def intersections(one: Corners, other: Corners, cap: int) -> Corners | None:
    """Return what is in some box of `one` and some of `other`, or None if these are more than `cap` boxes.

    Guarantee: disjoint, if each of the two sets is. Cost: O(n * m * d).
    """
    lows, highs, count = _intersections(*one, *other, cap)
    return None if count < 0 else (lows[:count], highs[:count])


def joined(lows: Ranks, highs: Ranks) -> Corners:
    """Unite disjoint boxes that differ in one dimension only and touch there; changes its arguments.

    Guarantee: no more boxes than before, disjoint, the same union.
    Cost: O(n^2 * d) for each round, and at most eight rounds; the second one seldom finds anything.
    """
    count = _joined(lows, highs)
    return lows[:count], highs[:count]


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
def _intersections(
    lows: Ranks, highs: Ranks, other_lows: Ranks, other_highs: Ranks, cap: int
) -> tuple[Ranks, Ranks, int]:
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
def _joined(lows: Ranks, highs: Ranks) -> int:
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
