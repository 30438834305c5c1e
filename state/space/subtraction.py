"""Subtracting boxes from a box, exactly: is it covered by their union?

On ranks a box without another is at most 2d boxes, cut off at the faces (plus or minus 1), so what is left after many
is known to the point.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.space.boxes import Boxes, Ranks

COVERED, UNCOVERED, EXHAUSTED = 0, 1, 2


@njit
def _largest_part(lows: Ranks, highs: Ranks, low: Ranks, high: Ranks) -> int:
    """The row that holds the largest part of the box, the first of equally large ones; -1 if none meets it."""
    k, m = lows.shape
    best, most = -1, -1.0
    for i in range(k):
        meets, whole = True, True
        for j in range(m):
            if lows[i, j] > high[j] or highs[i, j] < low[j]:
                meets = False
                break
            whole &= lows[i, j] <= low[j] and highs[i, j] >= high[j]
        if not meets:
            continue
        if whole:
            return i
        part = 1.0
        for j in range(m):
            # Unsigned subtraction wraps to the true width.
            part *= np.float64(np.uint64(min(highs[i, j], high[j])) - np.uint64(max(lows[i, j], low[j]))) + 1.0
        if part > most:
            best, most = i, part
    return best


@njit
def _holds_all(lows: Ranks, highs: Ranks, rows: Ints, low: Ranks, high: Ranks) -> bool:
    """Whether one of some rows contains the box."""
    for i in rows:
        whole = True
        for j in range(len(low)):
            if lows[i, j] > low[j] or highs[i, j] < high[j]:
                whole = False
                break
        if whole:
            return True
    return False


@njit
def subtract(
    low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, budget: int, point: Ranks, used: Bools
) -> tuple[int, int]:
    """Subtract the rows from the box, piece by piece, depth first; stop at the first piece that nothing meets.

    Implements the splitting of [NEG08] figure 4. Differs: depth first, so that a box that is not covered is known at
    its first uncovered piece and no more than 2m pieces a row are held at a time; and from each piece the row that
    holds most of it is taken, one that took something away already before others, where it contains the piece: so that
    pieces, and rows that take something away, are few.
    Guarantee: COVERED and UNCOVERED (then `point` is uncovered) are exact; EXHAUSTED: more than `budget` pieces. The
    rows marked in `used` took something away; if COVERED, they cover the box without the others.
    Cost: O(m k) a piece. Returns also the number of pieces looked at.
    """
    k, m = lows.shape
    # Pieces that a row was subtracted from do not meet it: on the way to a piece each row cuts once.
    size = 2 * m * k + 1
    stack_low, stack_high = np.empty((size, m), np.int64), np.empty((size, m), np.int64)
    stack_low[0], stack_high[0] = low, high
    depth, pieces = 1, 0
    taken, n_taken = np.empty(k, np.int64), 0
    piece_low, piece_high = np.empty(m, np.int64), np.empty(m, np.int64)
    while depth > 0:
        if pieces == budget:
            return EXHAUSTED, pieces
        pieces += 1
        depth -= 1
        piece_low[:], piece_high[:] = stack_low[depth], stack_high[depth]
        if _holds_all(lows, highs, taken[:n_taken], piece_low, piece_high):
            continue
        i = _largest_part(lows, highs, piece_low, piece_high)
        if i < 0:
            point[:] = piece_low
            return UNCOVERED, pieces
        if not used[i]:
            used[i] = True
            taken[n_taken] = i
            n_taken += 1
        for j in range(m):
            if piece_low[j] < lows[i, j]:
                stack_low[depth], stack_high[depth] = piece_low, piece_high
                stack_high[depth, j] = lows[i, j] - 1
                piece_low[j] = lows[i, j]
                depth += 1
            if piece_high[j] > highs[i, j]:
                stack_low[depth], stack_high[depth] = piece_low, piece_high
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
