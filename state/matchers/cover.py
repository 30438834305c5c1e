"""Imprecise publications: which owners cover a box with the union of their own boxes.

[RSPC06] §1 means by a match of an imprecise publication that it is *covered by* a subscription. Where a subscription
is one box this is one comparison; where it has several it takes a subtraction, done here, exactly.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.matchers.matcher import Matches
from state.space.boxes import Ranks


def certain(lows: Ranks, highs: Ranks, rows: Ints, ids: Ints, box_lows: Ranks, box_highs: Ranks) -> Matches:
    """Of pairs that intersect keep the owners whose boxes together cover the publication.

    Pair i says that publication `rows[i]` meets the box `box_lows[i] .. box_highs[i]` of owner `ids[i]`.
    Guarantee: exact, whether or not the boxes of an owner overlap each other.
    Cost: one comparison for a single covering box; else up to (2d)^b pieces for b boxes that all cross, b small.
    """
    if len(rows) == 0:
        return Matches.none()
    order = np.lexsort((ids, rows))
    rows, ids = rows[order], ids[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (rows[1:] != rows[:-1]) | (ids[1:] != ids[:-1])
    starts = np.append(np.flatnonzero(first), len(rows)).astype(np.int64)
    keep = _covered_runs(lows, highs, rows, starts, box_lows[order], box_highs[order])
    return Matches(rows[starts[:-1]][keep], ids[starts[:-1]][keep])


@njit
def _covered_runs(lows: Ranks, highs: Ranks, rows: Ints, starts: Ints, box_lows: Ranks, box_highs: Ranks) -> Bools:
    keep = np.empty(len(starts) - 1, np.bool_)
    for run in range(len(starts) - 1):
        first, end = starts[run], starts[run + 1]
        keep[run] = _covers(lows[rows[first]], highs[rows[first]], box_lows[first:end], box_highs[first:end])
    return keep


@njit
def _covers(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks) -> bool:
    """Subtract the boxes one after the other from one box; depth first, so the first piece that is left ends it."""
    d = len(low)
    for b in range(len(lows)):
        inside = True
        for j in range(d):
            inside &= lows[b, j] <= low[j] and high[j] <= highs[b, j]
        if inside:
            return True
    # A piece of level b has lost boxes 0 .. b-1; each level leaves at most 2d - 1 pieces waiting.
    size = 2 * d * len(lows) + 1
    piece_lows, piece_highs = np.empty((size, d), np.int64), np.empty((size, d), np.int64)
    level = np.empty(size, np.int64)
    piece_lows[0], piece_highs[0], level[0] = low, high, 0
    waiting = 1
    while waiting:
        waiting -= 1
        a, z, b = piece_lows[waiting].copy(), piece_highs[waiting].copy(), level[waiting]
        while b < len(lows) and not _meets(a, z, lows[b], highs[b]):
            b += 1
        if b == len(lows):
            return False
        for j in range(d):
            if a[j] < lows[b, j]:
                piece_lows[waiting], piece_highs[waiting], level[waiting] = a, z, b + 1
                piece_highs[waiting, j] = lows[b, j] - 1
                waiting += 1
                a[j] = lows[b, j]
            if z[j] > highs[b, j]:
                piece_lows[waiting], piece_highs[waiting], level[waiting] = a, z, b + 1
                piece_lows[waiting, j] = highs[b, j] + 1
                waiting += 1
                z[j] = highs[b, j]
    return True


@njit
def _meets(a: Ranks, z: Ranks, low: Ranks, high: Ranks) -> bool:
    meets = True
    for j in range(len(a)):
        meets &= a[j] <= high[j] and low[j] <= z[j]
    return meets
