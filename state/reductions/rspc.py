"""Is a box covered by the union of boxes? Fast answers, and random guesses with a bounded error.

Implements [RSPC06] §4: Algorithm 1 (random simple predicates cover), Eq. (1), and the fast answers of §4.3 on the
conflict table and its minimised cover set (`conflict_table.py`).

    s against S ──> a row covers s alone                corollary 1      yes
                ──> a box avoids every row              corollary 3      no, its corner is the witness
                ──> minimise S to S', nothing left      Algorithm 2      no, with witness
                ──> a guess of s lies outside S'        Algorithm 1      no, with witness
                ──> `trials` guesses all lie in S'      Algorithm 1      yes, wrong with probability <= error
                ──> more trials needed than allowed: the same for the few rows of S' that guesses fall into
                ──> still more                          Eq. (1)          unknown: treat as no

Differs: the paper's ρ_w, the product of the smallest distances between the ends of s and those of the s_i, is no lower
bound of the uncovered share (s = [0, 100], s1 = [0, 49], s2 = [51, 100]: 10 trials for δ = 0.001, nine of ten runs
miss). `uncovered_share_min` is one, and with it "wrong with probability <= δ" is true. A true bound asks for more
trials; to need fewer, a subset of S' is tried that covers s as far as guesses tell: fewer rows, fewer cuts, larger gaps
(`subset`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import exp, inf, log, log1p

import numpy as np

from state.arrays import Bools, Floats, Ints, Words
from state.kernels import njit
from state.reductions.conflict_table import COROLLARY_1, COROLLARY_3, EMPTY_SET, OPEN, defined, grow_witness, settle
from state.space.boxes import Ranks

STEPS = ("corollary_1", "corollary_3", "empty_set", "witness", "trials", "subset", "cap")
"""What may decide, in the order in which it is asked."""
PILOT = 500
"""Guesses that choose the first subset."""
ROUNDS = 8
"""Subsets tried; each gets this part of the error."""
ROUNDING = 1.0 - 1e-9
"""Widths and products are floats: a share is taken this much smaller than computed."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)


# --- draws --------------------------------------------------------------------------------------------------


def words_of(ids: Sequence[str]) -> Words:
    """What seeds have of those who ask, the same in every process. Cost: some half of a microsecond each, in Python."""
    digests = b"".join([blake2b(id.encode(), digest_size=8).digest() for id in ids])
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def seed_of(id: str, low: Ranks, high: Ranks) -> int:
    """The seed of the draws for one box of a subscription: from who asks and for what, so a replay draws the same."""
    return int(seed_by(words_of([id])[0], low, high))


@njit
def seed_by(word: np.uint64, low: Ranks, high: Ranks) -> np.uint64:
    """`seed_of` by the word of an id: compiled, so that nothing is made of it where nothing is drawn."""
    seed = word
    for j in range(len(low)):
        seed = _scrambled((seed ^ np.uint64(low[j])) + _GOLDEN) ^ np.uint64(high[j])
    return _scrambled(seed + _GOLDEN)


@njit
def _scrambled(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


@njit
def following(state: Words) -> np.uint64:
    """The next 64 random bits (SplitMix64)."""
    state[0] += _GOLDEN
    return _scrambled(state[0])


@njit
def _high_product(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 bits of the 128-bit product."""
    a0, a1, b0, b1 = a & _LOW_HALF, a >> _HALF, b & _LOW_HALF, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    other = a0 * b1 + (middle & _LOW_HALF)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


@njit
def _below(state: Words, width: np.uint64) -> np.uint64:
    """A uniform integer of [0, width), without bias (Lemire's method); width 0 stands for 2^64."""
    x = following(state)
    if width == _ZERO:
        return x
    if x * width < width:
        reject = (_ZERO - width) % width
        while x * width < reject:
            x = following(state)
    return _high_product(x, width)


@njit
def draw(low: Ranks, high: Ranks, state: Words, point: Ranks) -> None:
    """Write a uniform point of the box to `point`, each rank of up to 2^64 equally likely."""
    for j in range(len(low)):
        width = np.uint64(high[j]) - np.uint64(low[j]) + _ONE
        point[j] = np.int64(np.uint64(low[j]) + _below(state, width))


@njit
def guess(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, trials: int, seed: np.uint64, point: Ranks) -> int:
    """Algorithm 1: the number of guesses until one lies in no row, left in `point`; `trials` + 1 if none does."""
    k = len(lows)
    order = np.arange(k)
    state = np.array([seed], np.uint64)
    for trial in range(trials):
        draw(low, high, state, point)
        held = False
        for at in range(k):
            if _holds(lows, highs, order[at], point):
                _forward(order, at)
                held = True
                break
        if not held:
            return trial + 1
    return trials + 1


@njit
def _holds(lows: Ranks, highs: Ranks, i: int, point: Ranks) -> bool:
    for j in range(len(point)):  # noqa: SIM110 - compiled code has no generators
        if point[j] < lows[i, j] or point[j] > highs[i, j]:
            return False
    return True


@njit
def _forward(order: Ints, at: int) -> None:
    """Have the row at this place asked sooner from now on: what held a guess is likely to hold the next."""
    sooner = at // 2
    order[at], order[sooner] = order[sooner], order[at]


@njit
def _guess_owners(
    low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, trials: int, state: Words, used: Bools, point: Ranks
) -> tuple[int, bool]:
    """Guess, and mark in `used` the row that holds each guess, one already marked if there is one.

    Returns the guesses made and whether the last, left in `point`, lies in no row. `state` goes on from call to call.
    """
    k = len(lows)
    marked = np.flatnonzero(used)
    order, n = np.empty(k, np.int64), len(marked)  # the marked ones, in the order in which they are asked
    order[:n] = marked
    for trial in range(trials):
        draw(low, high, state, point)
        held = False
        for at in range(n):
            if _holds(lows, highs, order[at], point):
                _forward(order, at)
                held = True
                break
        if held:
            continue
        for i in range(k):
            if not used[i] and _holds(lows, highs, i, point):
                used[i], order[n], held = True, i, True
                n += 1
                break
        if not held:
            return trial + 1, True
    return trials, False


# --- how many trials ----------------------------------------------------------------------------------------


@njit
def _width(low: int | np.int64, high: int | np.int64) -> float:
    # Unsigned subtraction wraps to the true width even where the signed one would overflow.
    return np.float64(np.uint64(high) - np.uint64(low)) + 1.0


@njit
def _smallest_sides(low: int, high: int, lows: Ranks, highs: Ranks) -> tuple[float, float]:
    """The smallest share of low..high that one cell of this attribute leaves, and that two cells leave together."""
    starts, ends = np.empty(len(lows), np.int64), np.empty(len(lows), np.int64)
    a = b = 0
    for i in range(len(lows)):
        if highs[i] < high:
            starts[a] = max(highs[i] + 1, low)
            a += 1
        if lows[i] > low:
            ends[b] = min(lows[i] - 1, high)
            b += 1
    starts, ends = np.sort(starts[:a]), np.sort(ends[:b])
    whole = _width(low, high)
    one = 1.0
    if a:
        one = min(one, _width(starts[a - 1], high) / whole)
    if b:
        one = min(one, _width(low, ends[0]) / whole)
    two = one
    e = 0
    for start in starts:
        while e < b and ends[e] < start:
            e += 1
        if e == b:
            break
        two = min(two, _width(start, ends[e]) / whole)
    return one, two


@njit
def uncovered_share_min(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks) -> float:
    """A true lower bound of the share of s that the rows leave uncovered, if they leave anything.

    An uncovered point satisfies one defined cell of each row, and so does the whole box that these cells cut out of
    s. In each attribute that box ends at s or just outside a row: its side is at least the smallest positive
    distance from an upper end (or the lower end of s) up to a lower end (or the upper end of s). And k rows give at
    most k cells: an attribute without one keeps its whole side. The smallest product under both is the bound.
    Differs: see the module. Tighter than the smallest gap between any two cuts, which it contains.
    Cost: O(m k log k + m min(k, 2m)).
    """
    k, m = lows.shape
    cells = min(k, 2 * m)
    # best[c]: the smallest product so far with at most c cells.
    best = np.ones(cells + 1)
    for j in range(m):
        one, two = _smallest_sides(low[j], high[j], lows[:, j], highs[:, j])
        for c in range(cells, 0, -1):
            smallest = min(best[c], best[c - 1] * one)
            if c >= 2:
                smallest = min(smallest, best[c - 2] * two)
            best[c] = smallest
    return best[cells] * ROUNDING


@njit
def trials_needed(share: float, error: float) -> float:
    """The guesses after which an uncovered share was missed with probability at most `error`: Eq. (1) for d.

    >>> trials_needed(0.5, 0.001)
    10.0
    """
    if share >= 1.0:
        return 1.0
    if share <= 0.0:
        return inf
    return max(1.0, float(np.ceil(log(error) / log1p(-share))))  # `math.ceil` would be an int64, compiled


@njit
def error_after(share: float, trials: float) -> float:
    """The probability that `trials` guesses miss an uncovered share: Eq. (1)."""
    return 0.0 if share >= 1.0 else exp(trials * log1p(-share))


# --- the decision -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What is known of a box, and which step found it."""

    covered: bool
    step: str
    by: Ints
    """Rows that cover it together, if covered."""
    witness: tuple[int, ...] | None = None
    """A point of the box in no row, if proven not covered."""
    trials: int = 0
    """Guesses made."""
    needed: float = 0
    """Guesses that Eq. (1) asks for."""
    error: float = 0.0
    """Bound of the probability that `covered` is wrong; at the cap: that it would have been."""

    @property
    def reason(self) -> str:
        left = "nothing" if self.covered else "something"
        return _REASONS[self.step].format(v=self, rows=len(self.by), left=left)


_REASONS = {
    "": "there is nothing in it",
    "corollary_1": "one active box covers it",
    "corner": "a corner of it lies in no active box",
    "corollary_3": "a box of it avoids every active one (corollary 3)",
    "empty_set": "no set of active boxes can cover it (the minimised cover set is empty)",
    "witness": "guess {v.trials} lies in no active box",
    "trials": "{v.trials} guesses lie in active boxes: covered but for a probability of {v.error:.3g}",
    "subset": "{v.trials} guesses lie in {rows} active boxes: covered but for {v.error:.3g}",
    "cap": "undecided: {v.needed:.3g} trials needed; at the cap the error would be up to {v.error:.3g}",
    "rows": "undecided: the largest of the active boxes that meet it do not cover it; others were not asked",
    "subtraction": "active boxes were subtracted, {left} is left",
    "budget": "undecided: the budget of pieces and the trials are used up",
}


NONE = np.empty(0, np.int64)

WITNESS, TRIALS, SUBSET, CAP, ROWS, SUBTRACTION, BUDGET, CORNER = 4, 5, 6, 7, 8, 9, 10, 11
"""Steps, in compiled code, after those of `settle`."""
STEP_NAMES = (
    *("", "corollary_1", "corollary_3", "empty_set"),
    *("witness", "trials", "subset", "cap", "rows", "subtraction", "budget", "corner"),
)
WITNESSED = (COROLLARY_3, EMPTY_SET, WITNESS)
"""Steps that leave a witness in `point`; `SUBTRACTION`, where not all is covered, and `CORNER` do as well."""

MADE, NEEDED, ERROR = 0, 1, 2
"""What of guesses is told: made, asked for by Eq. (1), and `Verdict.error`."""


@njit
def largest_first(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, rows: Ints) -> tuple[Ints, Ranks, Ranks]:
    """`rows` and their parts inside s, the larger first: most points are found in the first few."""
    k, m = len(rows), len(low)
    inner_lows, inner_highs = np.empty((k, m), np.int64), np.empty((k, m), np.int64)
    smaller = np.empty(k)
    for i in range(k):
        share = 1.0
        for j in range(m):
            inner_lows[i, j], inner_highs[i, j] = max(lows[rows[i], j], low[j]), min(highs[rows[i], j], high[j])
            share *= _width(inner_lows[i, j], inner_highs[i, j]) / _width(low[j], high[j])
        smaller[i] = -share
    order = np.argsort(smaller, kind="mergesort")
    return rows[order], inner_lows[order], inner_highs[order]


@njit
def decide_by(
    low: Ranks,
    high: Ranks,
    lows: Ranks,
    highs: Ranks,
    error: float,
    trials_max: int,
    seed: np.uint64,
    point: Ranks,
    used: Bools,
    figures: Floats,
) -> int:
    """`decide`, compiled: the step. `used` becomes the rows that cover, if they do; `point` the witness, if any."""
    table = defined(low, high, lows, highs)
    alive, order = np.ones(len(lows), np.bool_), np.empty(len(lows), np.int64)
    used[:] = False
    figures[:] = 0.0
    step, removed = settle(low, high, lows, highs, table, alive, order, point)
    if step != OPEN:
        if step == COROLLARY_1:
            used[:] = alive
        return step
    rows, inner_lows, inner_highs = largest_first(low, high, lows, highs, np.flatnonzero(alive))
    share = uncovered_share_min(low, high, inner_lows, inner_highs)
    needed = trials_needed(share, error)
    if needed > trials_max:
        inner = np.zeros(len(rows), np.bool_)
        step = subset(low, high, inner_lows, inner_highs, error, trials_max, seed, point, inner, figures)
        if step == SUBSET:
            used[rows[inner]] = True
    else:
        made = guess(low, high, inner_lows, inner_highs, int(needed), seed, point)
        step = TRIALS if made > needed else WITNESS
        figures[MADE], figures[NEEDED] = min(made, needed), needed
        if step == TRIALS:
            used[rows] = True
            figures[ERROR] = error_after(share, needed)
    if step == WITNESS:
        grow_witness(low, high, lows, highs, table, alive, order[:removed], point)
    return step


@njit
def subset(
    low: Ranks,
    high: Ranks,
    lows: Ranks,
    highs: Ranks,
    error: float,
    trials_max: int,
    seed: np.uint64,
    point: Ranks,
    used: Bools,
    figures: Floats,
) -> int:
    """Decide with a subset of S': the rows that earlier guesses fell into, as long as new guesses need no other.

    Beyond the paper. Guarantee: a round's subset is fixed before its guesses are drawn. If s is not covered, the subset
    leaves at least its own bound uncovered, so that all guesses of the round fall into it with probability at most
    error / ROUNDS; over all rounds that is at most `error`. Cost: at most `trials_max` guesses in all.
    """
    state = np.array([seed], np.uint64)
    total, needed, share = 0, float(min(PILOT, trials_max)), 0.0
    for round in range(ROUNDS + 1):
        before = used.copy()
        made, missed = _guess_owners(low, high, lows, highs, int(needed), state, used, point)
        total += made
        figures[MADE], figures[NEEDED] = total, needed
        if missed:
            return WITNESS
        if round > 0 and (used == before).all():
            figures[ERROR] = error_after(share, needed)
            return SUBSET
        share = uncovered_share_min(low, high, lows[used], highs[used])
        needed = trials_needed(share, error / ROUNDS)
        if total + needed > trials_max:
            break
    figures[NEEDED], figures[ERROR] = needed, error_after(share, max(0.0, trials_max - float(total)))
    return CAP


def decide(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, *, error: float, trials_max: int, seed: int) -> Verdict:
    """Say whether the rows cover the box `low..high`: §4.3, then Algorithm 1 on the minimised set.

    Guarantee: "not covered" by any step but "cap" is proven by its witness; "covered" is exact by corollary 1, and by
    "trials" or "subset" wrong with probability <= `error` over the seeds. When more than `trials_max` trials are
    needed, the answer is an unproven "not covered", "cap", with the error that "covered" would have had.
    Cost: O(m k) a round of Algorithm 2, O(m k') a trial, compiled.

    >>> low, high = np.array([0, 0]), np.array([9, 9])
    >>> lows, highs = np.array([[0, 0], [5, 0], [3, 5]]), np.array([[5, 9], [9, 5], [9, 9]])
    >>> verdict = decide(low, high, lows, highs, error=0.001, trials_max=1000, seed=1)
    >>> verdict.covered, verdict.step, verdict.by.tolist()
    (True, 'trials', [0, 1, 2])
    """
    point, used, figures = np.empty(len(low), np.int64), np.zeros(len(lows), bool), np.zeros(3)
    step = decide_by(low, high, lows, highs, float(error), trials_max, np.uint64(seed), point, used, figures)
    return verdict_of(int(step), point, np.flatnonzero(used), figures)


def verdict_of(step: int, point: Ranks, by: Ints, figures: Floats) -> Verdict:
    """What compiled code found: the step, a witness if there is one, the rows that cover."""
    covered = len(by) > 0
    proven = step in WITNESSED or step == CORNER or (step == SUBTRACTION and not covered)
    made, needed, error = figures.tolist()
    return Verdict(covered, STEP_NAMES[step], by, tuple(point.tolist()) if proven else None, int(made), needed, error)
