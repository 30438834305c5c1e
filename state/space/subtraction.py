"""Subtracting boxes from a box, exactly: is it covered by their union?

On ranks a box without another is at most 2d boxes, cut off at the faces (plus or minus 1), so what is left after many
is known to the point.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools
from state.kernels import njit
from state.space.boxes import Boxes, Ranks

COVERED, UNCOVERED, EXHAUSTED = 0, 1, 2


@njit
def _first_meeting(lows: Ranks, highs: Ranks, low: Ranks, high: Ranks, start: int) -> int:
    """The first row from `start` on that meets the box, or the number of rows."""
    k, m = lows.shape
    for i in range(start, k):
        meets = True
        for j in range(m):
            if lows[i, j] > high[j] or highs[i, j] < low[j]:
                meets = False
                break
        if meets:
            return i
    return k


@njit
def subtract(
    low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, budget: int, point: Ranks, used: Bools
) -> tuple[int, int]:
    """Subtract the rows from the box, piece by piece, depth first; stop at the first piece that nothing meets.

    Implements the splitting of [NEG08] figure 4. Differs: depth first, so that a box that is not covered is known at
    its first uncovered piece and no more than 2m pieces a row are held at a time.
    Guarantee: COVERED and UNCOVERED (then `point` is uncovered) are exact; EXHAUSTED: more than `budget` pieces. The
    rows marked in `used` took something away; if COVERED, they cover the box without the others.
    Cost: O(m k) a piece. Returns also the number of pieces looked at.
    """
    k, m = lows.shape
    size = 2 * m * k + 1
    # A piece keeps the first row that may meet it: those before were subtracted from it, or miss it.
    stack_low, stack_high = np.empty((size, m), np.int64), np.empty((size, m), np.int64)
    first = np.empty(size, np.int64)
    stack_low[0], stack_high[0], first[0] = low, high, 0
    depth, pieces = 1, 0
    piece_low, piece_high = np.empty(m, np.int64), np.empty(m, np.int64)
    while depth > 0:
        if pieces == budget:
            return EXHAUSTED, pieces
        pieces += 1
        depth -= 1
        piece_low[:], piece_high[:] = stack_low[depth], stack_high[depth]
        i = _first_meeting(lows, highs, piece_low, piece_high, first[depth])
        if i == k:
            point[:] = piece_low
            return UNCOVERED, pieces
        used[i] = True
        for j in range(m):
            if piece_low[j] < lows[i, j]:
                stack_low[depth], stack_high[depth], first[depth] = piece_low, piece_high, i + 1
                stack_high[depth, j] = lows[i, j] - 1
                piece_low[j] = lows[i, j]
                depth += 1
            if piece_high[j] > highs[i, j]:
                stack_low[depth], stack_high[depth], first[depth] = piece_low, piece_high, i + 1
                stack_low[depth, j] = highs[i, j] + 1
                piece_high[j] = highs[i, j]
                depth += 1
    return COVERED, pieces


def covers(boxes: Boxes, low: Ranks, high: Ranks, budget: int) -> bool | None:
    """Whether the union of `boxes` covers the box `low..high`; None: not known after `budget` pieces."""
    inside = boxes.clipped(low, high)
    point, used = np.empty(len(low), np.int64), np.zeros(len(inside), bool)
    answer, _ = subtract(low, high, inside.lows, inside.highs, budget, point, used)
    return None if answer == EXHAUSTED else answer == COVERED
