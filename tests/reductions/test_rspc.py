"""RSPC: honest draws, a true bound of the uncovered share, and errors within δ over 10^5 decisions."""

from __future__ import annotations

import itertools
from collections import Counter
from math import ceil, inf, log, sqrt
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.chain_loss import found, loss
from benchmarks.peers.imprecise_cover import concerned
from state.reductions.conflict_table import ConflictTable, grow_witness
from state.reductions.rspc import (
    SUBSET,
    WITNESS,
    decide,
    draw,
    error_after,
    guess,
    largest_first,
    seed_of,
    subset,
    trials_needed,
    uncovered_share_min,
)
from state.space.boxes import Boxes
from state.space.ranks import ABSENT, PRESENT_MAX

Side = tuple[int, int]
Box = tuple[Side, ...]


def ends(boxes: list[Box], m: int) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(boxes, np.int64).reshape(len(boxes), m, 2)
    return array[:, :, 0].copy(), array[:, :, 1].copy()


def points_of(box: Box) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(low, high + 1) for low, high in box)))


# --- draws --------------------------------------------------------------------------------------------------


def naive_draws(box: Box, n: int, seed: int) -> list[list[int]]:
    """SplitMix64 and Lemire's rejection in Python's unbounded integers."""
    mask, state, points = 2**64 - 1, seed, []

    def bits() -> int:
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & mask
        x = state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    for _ in range(n):
        point = []
        for low, high in box:
            width = high - low + 1
            x = bits()
            while (x * width) & mask < 2**64 % width:
                x = bits()
            point.append(low + (x * width >> 64))
        points.append(point)
    return points


def draw_points(low: np.ndarray, high: np.ndarray, n: int, seed: np.uint64) -> np.ndarray:
    """The first `n` points that guesses draw under a seed."""
    state, points = np.array([seed], np.uint64), np.empty((n, len(low)), np.int64)
    for point in points:
        draw(low, high, state, point)
    return points


ranks = st.one_of(st.integers(-9, 9), st.integers(ABSENT, PRESENT_MAX), st.sampled_from([ABSENT, PRESENT_MAX]))


@given(st.lists(st.tuples(ranks, ranks).map(sorted), min_size=1, max_size=3), st.integers(0, 2**64 - 1))
@settings(max_examples=200, deadline=None)
def test_draws_are_those_of_unbounded_integers(box: list[list[int]], seed: int) -> None:
    """Every draw equals the one computed without overflow, up to sides of all 2^64 ranks."""
    low, high = np.array(box, np.int64).T.copy()
    assert draw_points(low, high, 8, np.uint64(seed)).tolist() == naive_draws(tuple(map(tuple, box)), 8, seed)


def test_draws_are_uniform() -> None:
    """70,000 draws from seven ranks, and from the eighths of all ranks: chi-square under its 1 - 10^-6 quantile."""
    seven = draw_points(np.array([-3]), np.array([3]), 70_000, np.uint64(5))[:, 0]
    counts = np.bincount(seven + 3, minlength=7)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 38.3
    whole = draw_points(np.array([ABSENT]), np.array([PRESENT_MAX]), 80_000, np.uint64(6))[:, 0]
    counts = np.bincount((whole >> 61) + 4, minlength=8)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 40.6


def test_guess_uses_the_draws() -> None:
    """The guess that is returned is the first draw outside every row."""
    low, high = np.array([0, 0]), np.array([99, 99])
    lows, highs = ends([((0, 90), (0, 99)), ((0, 99), (0, 80))], 2)
    point = np.empty(2, np.int64)
    made = guess(low, high, lows, highs, 10_000, np.uint64(9), point)
    drawn = naive_draws(((0, 99), (0, 99)), made, 9)
    outside = [x > 90 and y > 80 for x, y in drawn]
    assert outside.index(True) == made - 1
    assert point.tolist() == drawn[-1]
    assert guess(low, high, *ends([((0, 99), (0, 99))], 2), 50, np.uint64(9), point) == 51


# --- the bound ----------------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[Box, list[Box]]:
    m = draw(st.integers(1, 3))
    side = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda pair: (min(pair), max(pair)))
    box = st.tuples(*[side] * m)
    return draw(box), draw(st.lists(box, min_size=1, max_size=6))


@given(cases())
@settings(max_examples=500, deadline=None)
def test_the_share_is_a_true_lower_bound(case: tuple[Box, list[Box]]) -> None:
    """What rows leave uncovered, if anything, is at least the bound; and the bound is positive."""
    s, rows = case
    left = points_of(s).difference(*(points_of(row) for row in rows))
    low, high = np.array(s, np.int64).T.copy()
    share = uncovered_share_min(low, high, *ends(rows, len(s)))
    assert 0 < share <= 1
    assert not left or share <= len(left) / len(points_of(s))


def test_the_share_at_full_width() -> None:
    """All ranks but one: the share is 2^-64, neither 0 nor wrapped."""
    low, high = np.array([ABSENT]), np.array([PRESENT_MAX])
    share = uncovered_share_min(low, high, *ends([((ABSENT, 6),), ((8, PRESENT_MAX),)], 1))
    assert share == pytest.approx(2.0**-64, rel=1e-6)
    assert trials_needed(share, 0.001) > 10**19


def test_the_printed_bound_is_none() -> None:
    """READING of ρ_w: for [0, 49] and [51, 100] in [0, 100] it asks for 10 trials, which miss nine times of ten."""
    low, high = np.array([0]), np.array([100])
    rows = ends([((0, 49),), ((51, 100),)], 1)
    printed = min(51 - 0, 100 - 49) / 101
    few = ceil(log(0.001) / log(1 - printed))
    assert few == 10
    point = np.empty(1, np.int64)
    missed = sum(guess(low, high, *rows, few, np.uint64(seed), point) > few for seed in range(2000))
    assert 1700 < missed < 1900
    enough = int(trials_needed(uncovered_share_min(low, high, *rows), 0.001))
    missed = sum(guess(low, high, *rows, enough, np.uint64(seed), point) > enough for seed in range(2000))
    assert missed <= 12


def test_trials_and_error_are_inverse() -> None:
    """Eq. (1) in both directions, and at its ends."""
    for share, error in itertools.product((0.9, 0.1, 1e-4, 1e-12), (0.1, 1e-3, 1e-10)):
        trials = trials_needed(share, error)
        assert error_after(share, trials) <= error * (1 + 1e-6)
        assert trials == 1 or error_after(share, trials - 1) > error * (1 - 1e-6)
    assert trials_needed(1.0, 0.1) == 1
    assert trials_needed(0.0, 0.1) == inf


# --- errors within δ ----------------------------------------------------------------------------------------

DELTA = 0.01
SIDE = 1000
SCALE = 2**54
"""Ranks of a thousandth of a side: the boxes span nearly all of int64."""


def most(n: int, error: float) -> float:
    """What a binomial of n and `error` exceeds with probability under 10^-6."""
    return n * error + 5 * sqrt(n * error) + 5


def pinwheel(random: Random, width: int, height: int) -> list[Box]:
    """Four boxes around a hole of width x height thousandths, in random order: no fast answer sees the hole."""
    # Away from the sides of s: the hole, not a slice at a side, is then the smallest box that the ends allow.
    x, y = random.randint(300, SIDE - 300 - width), random.randint(300, SIDE - 300 - height)
    rows: list[Box] = [
        ((0, x), (0, y + height)),
        ((0, x + width), (y + height, SIDE)),
        ((x + width, SIDE), (y, SIDE)),
        ((x, SIDE), (0, y)),
    ]
    random.shuffle(rows)
    return [tuple((a * SCALE - 2**63, b * SCALE - 2**63 - 1) for a, b in row) for row in rows]


def test_wrong_in_at_most_delta_of_a_hundred_thousand_decisions() -> None:
    """10^5 holes, a fifth of them a thousandth of a side wide: withheld in at most δ of the cases.

    If each decision errs with probability <= δ = 0.01, the limit is exceeded with probability under 10^-6. The bound is
    tight here (the hole is the smallest that these ends allow), so errors must also occur: the test can fail both ways.
    """
    random = Random(1)
    low, high = ends([((-(2**63), SIDE * SCALE - 2**63 - 1),) * 2], 2)
    n, wrong, steps = 100_000, 0, Counter[str]()
    for case in range(n):
        if case % 50 == 0:
            wide, thin = pinwheel(random, random.randint(50, 300), random.randint(50, 300)), pinwheel(random, 1, 400)
        lows, highs = ends(thin if case % 5 == 0 else wide, 2)
        verdict = decide(low[0], high[0], lows, highs, error=DELTA, trials_max=10**6, seed=random.getrandbits(64))
        steps[verdict.step] += 1
        wrong += verdict.covered
        if case % 1000 == 0 and verdict.witness is not None:
            assert not Boxes(lows, highs).contains(np.array([verdict.witness])).any()
    assert set(steps) == {"witness", "trials"}, "these cases are for the guesses"
    assert DELTA * n / 3 < wrong <= most(n, DELTA)


def test_a_subset_errs_in_at_most_delta() -> None:
    """10,000 holes a thousandth wide, decided by subsets only: wrong in at most δ, and every "no" has its witness.

    The limit would be exceeded with probability under 10^-6 if each decision erred with probability <= δ.
    """
    random = Random(2)
    low, high = ends([((-(2**63), SIDE * SCALE - 2**63 - 1),) * 2], 2)
    n, wrong, steps = 10_000, 0, Counter[str]()
    for case in range(n):
        if case % 50 == 0:
            lows, highs = ends(pinwheel(random, 1, 400), 2)
            table = ConflictTable(low[0], high[0], lows, highs)
            minimised = table.minimised()
            _, inner_lows, inner_highs = largest_first(low[0], high[0], lows, highs, minimised.rows)
            point, used = np.empty(2, np.int64), np.empty(len(inner_lows), bool)
        used[:] = False
        seed = np.uint64(random.getrandbits(64))
        step = subset(low[0], high[0], inner_lows, inner_highs, DELTA, 10**6, seed, point, used, np.zeros(3))
        steps[step] += 1
        wrong += step == SUBSET
        if step == WITNESS and case % 100 == 0:
            grow_witness(low[0], high[0], lows, highs, table.defined, minimised.alive, minimised.order, point)
            assert not Boxes(lows, highs).contains(point[None]).any()
    assert set(steps) == {WITNESS, SUBSET}
    assert 0 < wrong <= most(n, DELTA)


def test_a_subset_needs_fewer_trials() -> None:
    """Three boxes cover s; the cuts of 200 others make the bound of S' useless, and that of the three is not."""
    random = Random(1)
    low, high = np.zeros(3, np.int64), np.full(3, 999, np.int64)
    side = (0, 999)
    three: list[Box] = [((0, 600), side, side), ((400, 999), (0, 600), side), ((400, 999), (400, 999), side)]
    others = [tuple(sorted((random.randint(0, 999), random.randint(0, 999))) for _ in range(3)) for _ in range(200)]
    question = ends([*others, *three], 3)  # type: ignore[list-item]
    verdict = decide(low, high, *question, error=0.001, trials_max=1000, seed=1)
    assert (verdict.covered, verdict.step) == (True, "subset")
    assert verdict.by.tolist() == [200, 201, 202]
    open_question = ends([*others, *three[:2]], 3)  # type: ignore[list-item]
    assert not decide(low, high, *open_question, error=0.001, trials_max=1000, seed=1).covered


def test_a_gap_of_a_thousandth_is_found_by_guesses_alone() -> None:
    """20,000 runs of Algorithm 1 on a slice of a thousandth, without the fast answers: missed in about δ."""
    low, high = np.array([0, 0]), np.array([SIDE - 1, SIDE - 1])
    lows, highs = ends([((0, 499), (0, 999)), ((501, 999), (0, 999))], 2)
    trials = int(trials_needed(uncovered_share_min(low, high, lows, highs), DELTA))
    point = np.empty(2, np.int64)
    n = 20_000
    missed = sum(guess(low, high, lows, highs, trials, np.uint64(seed), point) > trials for seed in range(n))
    assert DELTA * n / 3 < missed <= most(n, DELTA)


@given(cases())
@settings(max_examples=300, deadline=None)
def test_decisions_against_enumeration(case: tuple[Box, list[Box]]) -> None:
    """Every "not covered" has a true witness; every covered box is called covered; the rows named do cover it."""
    s, rows = case
    low, high = np.array(s, np.int64).T.copy()
    left = points_of(s).difference(*(points_of(row) for row in rows))
    lows, highs = ends(rows, len(s))
    verdict = decide(low, high, lows, highs, error=1e-9, trials_max=10**6, seed=seed_of("x", low, high))
    assert verdict.covered == (not left)
    if left:
        assert verdict.witness in left
    else:
        assert not points_of(s).difference(*(points_of(rows[i]) for i in verdict.by))


# --- imprecise publications, and chains ---------------------------------------------------------------------


@given(cases())
@settings(max_examples=200, deadline=None)
def test_publications_that_are_boxes(case: tuple[Box, list[Box]]) -> None:
    """Possible is: some point is held; certain is: every point is."""
    s, rows = case
    publication = Boxes(*ends([s], len(s)))
    union = Boxes(*ends(rows, len(s)))
    held = points_of(s) & set().union(*(points_of(row) for row in rows))
    assert concerned(publication, union, "possible").tolist() == [bool(held)]
    assert concerned(publication, union, "certain").tolist() == [held == points_of(s)]


def test_an_undecided_publication_counts_as_concerned() -> None:
    """Beyond the budget nothing is lost."""
    union = Boxes.of([([0, 0], [4, 6]), ([0, 6], [6, 10]), ([6, 4], [10, 10]), ([4, 0], [10, 4])])
    publication = Boxes.of([([1, 1], [9, 9])])
    assert concerned(publication, union, "certain").tolist() == [False]
    assert concerned(publication, union, "certain", budget=1).tolist() == [True]


def test_equation_2_is_the_probability_of_finding() -> None:
    """Predicted and simulated chains of five brokers agree, with errors of their own and with shared ones."""
    random, runs, rho, error, n = Random(4), 40_000, 0.2, 0.3, 5
    for shared in (False, True):
        hits = lost = 0
        for _ in range(runs):
            has = [random.random() < rho for _ in range(n)]
            hops = [random.random() >= error for _ in range(n - 1)]
            if shared:
                hops = [hops[0]] * (n - 1)
            if any(has):
                reached = all(hops[: has.index(True)])
                hits += reached
                lost += not reached
        assert hits / runs == pytest.approx(found(rho, error, n, shared), abs=0.015)
        assert lost / runs == pytest.approx(loss(rho, error, n, shared), abs=0.015)
    assert loss(rho, error, n, shared=True) < loss(rho, error, n)
