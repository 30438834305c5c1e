"""Imprecise publications: which owners cover a box with the union of their own boxes.

[RSPC06] §1 means by a match of an imprecise publication that it is *covered by* a subscription. Where a subscription
is one box this is one comparison; where it has several it takes a subtraction (`state/space/subtraction.py`), exact.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.matchers.matcher import Matches
from state.space.boxes import Ranks
from state.space.subtraction import COVERED, subtract

PIECES_MAX = 2**62
"""An owner has few boxes: their subtraction always comes to an end."""


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
    point = np.empty(lows.shape[1], np.int64)
    for run in range(len(starts) - 1):
        first, end = starts[run], starts[run + 1]
        keep[run] = _covers(lows[rows[first]], highs[rows[first]], box_lows[first:end], box_highs[first:end], point)
    return keep


@njit
def _covers(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, point: Ranks) -> bool:
    for b in range(len(lows)):
        inside = True
        for j in range(len(low)):
            inside &= lows[b, j] <= low[j] and high[j] <= highs[b, j]
        if inside:
            return True
    return bool(subtract(low, high, lows, highs, PIECES_MAX, point)[0] == COVERED)
