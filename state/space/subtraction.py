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
def _largest_part(lows: Ranks, highs: Ranks, first: int, end: int, low: Ranks, high: Ranks) -> int:
    """The row of first..end - 1 that holds most of the box, the first of equally large ones; -1 if none meets it."""
    m = lows.shape[1]
    best, most = -1, -1.0
    for i in range(first, end):
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
            # Rounded, where ranks are many: which row is taken first is no matter of right and wrong.
            part *= np.float64(min(highs[i, j], high[j])) - np.float64(max(lows[i, j], low[j])) + 1.0
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
    stack, taken = room_for(k, m)
    return subtract_in(low, high, lows, highs, 0, budget, point, used, stack, taken)


@njit
def room_for(k: int, m: int) -> tuple[Ranks, Ints]:
    """Memory to subtract k rows in, for who does it often."""
    # Pieces that a row was subtracted from do not meet it: on the way to a piece each row cuts once.
    return np.empty((2, 2 * m * k + 2, m), np.int64), np.empty(k, np.int64)


@njit
def subtract_in(
    low: Ranks,
    high: Ranks,
    lows: Ranks,
    highs: Ranks,
    preferred: int,
    budget: int,
    point: Ranks,
    used: Bools,
    stack: Ranks,
    taken: Ints,
) -> tuple[int, int]:
    """`subtract` in memory that is there; the first rows, so many, take away what they can before others do."""
    m = lows.shape[1]
    stack_low, stack_high = stack[0], stack[1]
    piece_low, piece_high = stack_low[-1], stack_high[-1]
    for j in range(m):
        stack_low[0, j], stack_high[0, j] = low[j], high[j]
    depth, pieces, n_taken = 1, 0, 0
    while depth > 0:
        if pieces == budget:
            return EXHAUSTED, pieces
        pieces += 1
        depth -= 1
        for j in range(m):  # rows of arrays, written as slices, take several times as long
            piece_low[j], piece_high[j] = stack_low[depth, j], stack_high[depth, j]
        if _holds_all(lows, highs, taken[:n_taken], piece_low, piece_high):
            continue
        i = _largest_part(lows, highs, 0, preferred, piece_low, piece_high)
        if i < 0:
            i = _largest_part(lows, highs, preferred, len(lows), piece_low, piece_high)
        if i < 0:
            point[:] = piece_low
            return UNCOVERED, pieces
        if not used[i]:
            used[i] = True
            taken[n_taken] = i
            n_taken += 1
        for j in range(m):
            if piece_low[j] < lows[i, j]:
                for n in range(m):
                    stack_low[depth, n], stack_high[depth, n] = piece_low[n], piece_high[n]
                stack_high[depth, j] = lows[i, j] - 1
                piece_low[j] = lows[i, j]
                depth += 1
            if piece_high[j] > highs[i, j]:
                for n in range(m):
                    stack_low[depth, n], stack_high[depth, n] = piece_low[n], piece_high[n]
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
