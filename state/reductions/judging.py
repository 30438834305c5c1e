"""Do boxes cover a box? What `hybrid.py` and `probabilistic.py` ask, whole in compiled code.

proving   subtraction, `budget` pieces at most ──> conflict table ──> guesses for a witness    never wrong
guessing  of more than `rows_max` boxes the largest ──> subtraction, `budget` numbers compared at most
              ──> conflict table ──> guesses, `error`                                          may say covered
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.arrays import Bools, Floats, Ints
from state.kernels import njit
from state.reductions.conflict_table import COROLLARY_1, OPEN, defined, grow_witness, settle
from state.reductions.rspc import (
    BUDGET,
    ERROR,
    MADE,
    NEEDED,
    ROWS,
    SUBTRACTION,
    WITNESS,
    WITNESSED,
    Verdict,
    decide_by,
    error_after,
    guess,
    largest_first,
    trials_needed,
    uncovered_share_min,
    verdict_of,
)
from state.space.boxes import Ranks
from state.space.subtraction import COVERED, UNCOVERED, subtract


class Rules(NamedTuple):
    """How to judge."""

    proving: bool
    budget: int
    """Pieces; where guesses may say covered, numbers compared: of few boxes in few dimensions that is more pieces."""
    error: float
    trials_max: int
    rows_max: int
    """Rows that a judgement goes by; 0, where nothing is proved: each box must lie in one row."""


PAIRWISE = Rules(False, 0, 1.0, 0, 0)


@njit
def _prove(
    rules: Rules,
    low: Ranks,
    high: Ranks,
    lows: Ranks,
    highs: Ranks,
    seed: np.uint64,
    point: Ranks,
    used: Bools,
    figures: Floats,
) -> int:
    used[:] = False
    figures[:] = 0.0
    found, _ = subtract(low, high, lows, highs, rules.budget, point, used)
    if found == COVERED:
        return SUBTRACTION
    used[:] = False
    if found == UNCOVERED:
        return SUBTRACTION
    table = defined(low, high, lows, highs)
    alive, order = np.ones(len(lows), np.bool_), np.empty(len(lows), np.int64)
    step, removed = settle(low, high, lows, highs, table, alive, order, point)
    if step != OPEN:
        if step == COROLLARY_1:
            used[:] = alive
        return step
    _, inner_lows, inner_highs = largest_first(low, high, lows, highs, np.flatnonzero(alive))
    share = uncovered_share_min(low, high, inner_lows, inner_highs)
    needed = trials_needed(share, rules.error)
    trials = int(min(needed, float(rules.trials_max)))
    made = guess(low, high, inner_lows, inner_highs, trials, seed, point)
    figures[MADE], figures[NEEDED] = min(made, trials), needed
    if made <= trials:
        grow_witness(low, high, lows, highs, table, alive, order[:removed], point)
        return WITNESS
    figures[ERROR] = error_after(share, float(trials))
    return BUDGET


@njit
def _largest(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, count: int) -> Ints:
    """The `count` rows that share most with a box, in their order; of equally large ones the first."""
    k, m = lows.shape
    shares = np.ones(k)
    for i in range(k):
        for j in range(m):
            first, last = max(lows[i, j], low[j]), min(highs[i, j], high[j])
            shares[i] *= np.float64(np.uint64(last) - np.uint64(first)) + 1.0
    least = np.partition(shares, k - count)[k - count]
    room = count - (shares > least).sum()
    chosen, n = np.empty(count, np.int64), 0
    for i in range(k):
        if shares[i] > least or (shares[i] == least and room > 0):
            room -= shares[i] == least
            chosen[n] = i
            n += 1
    return chosen


@njit
def _subtract_or_guess(
    rules: Rules,
    low: Ranks,
    high: Ranks,
    lows: Ranks,
    highs: Ranks,
    seed: np.uint64,
    point: Ranks,
    used: Bools,
    figures: Floats,
) -> int:
    """A proof where it is to be had for less than guesses, either way; else what `rspc.decide` says."""
    used[:] = False
    figures[:] = 0.0
    found, _ = subtract(low, high, lows, highs, rules.budget // max(1, lows.size), point, used)
    if found == COVERED:
        return SUBTRACTION
    if found == UNCOVERED:
        used[:] = False
        return SUBTRACTION
    return decide_by(low, high, lows, highs, rules.error, rules.trials_max, seed, point, used, figures)


@njit
def _guess_whether(
    rules: Rules,
    low: Ranks,
    high: Ranks,
    lows: Ranks,
    highs: Ranks,
    seed: np.uint64,
    point: Ranks,
    used: Bools,
    figures: Floats,
) -> int:
    if len(lows) <= rules.rows_max:
        return _subtract_or_guess(rules, low, high, lows, highs, seed, point, used, figures)
    # By the largest: what they do not cover may be covered by the others, and counts as undecided.
    rows = _largest(low, high, lows, highs, rules.rows_max)
    inner = np.zeros(len(rows), np.bool_)
    step = _subtract_or_guess(rules, low, high, lows[rows], highs[rows], seed, point, inner, figures)
    used[:] = False
    used[rows[inner]] = True
    if step in WITNESSED or (step == SUBTRACTION and not inner.any()):
        for i in range(len(lows)):
            if (lows[i] <= point).all() and (point <= highs[i]).all():
                return ROWS
    return step


@njit
def judge(
    rules: Rules,
    low: Ranks,
    high: Ranks,
    lows: Ranks,
    highs: Ranks,
    seed: np.uint64,
    point: Ranks,
    used: Bools,
    figures: Floats,
) -> int:
    """Which step of `rspc` decided whether the rows cover a box; `used` are the rows that do, if they do.

    `point` is a witness where the step says that there is one; `figures` tell of guesses.
    """
    if rules.proving:
        return _prove(rules, low, high, lows, highs, seed, point, used, figures)
    return _guess_whether(rules, low, high, lows, highs, seed, point, used, figures)


def verdict(rules: Rules, low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, seed: int) -> Verdict:
    """The same for people, and for who asks once."""
    point, used, figures = np.empty(len(low), np.int64), np.zeros(len(lows), bool), np.zeros(3)
    step = judge(rules, low, high, lows, highs, np.uint64(seed), point, used, figures)
    return verdict_of(int(step), point, np.flatnonzero(used), figures)
