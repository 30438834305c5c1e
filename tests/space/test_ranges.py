"""Ranges of boxes against an enumeration of cells with the `hilbertcurve` package."""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hilbertcurve.hilbertcurve import HilbertCurve
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.range_counts import box_ranges, expected_ranges, over_coverage
from state.space import ranges as module
from state.space.ranges import (
    RANGES_MAX,
    Ranges,
    boxes_ranges,
    capped,
    each_ranges,
    union,
)

Pairs = list[tuple[int, int]]


@cache
def index_table(d: int, k: int) -> dict[tuple[int, ...], int]:
    package = HilbertCurve(k, d)
    return {cell: package.distance_from_point(list(cell)) for cell in product(range(2**k), repeat=d)}


def runs(indices: set[int]) -> Pairs:
    """Maximal runs of consecutive numbers, one by one."""
    found: Pairs = []
    for index in sorted(indices):
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def indices_of(low: list[int], high: list[int], k: int) -> set[int]:
    table = index_table(len(low), k)
    return {table[cell] for cell in product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))}


def arrays(*corners: list[int]) -> list[np.ndarray]:
    return [np.array(corner, np.int64) for corner in corners]


SMALL = [(1, 5), (2, 1), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2), (5, 1), (5, 2), (6, 1)]


@st.composite
def boxes(draw: st.DrawFn, n_max: int = 1) -> tuple[int, list[list[int]], list[list[int]]]:
    """k and the corners of 1 to n_max boxes in one small grid."""
    d, k = draw(st.sampled_from(SMALL))
    corner = st.lists(st.integers(0, 2**k - 1), min_size=d, max_size=d)
    pairs = draw(st.lists(st.tuples(corner, corner), min_size=1, max_size=n_max))
    lows = [[min(a, b) for a, b in zip(*pair, strict=True)] for pair in pairs]
    highs = [[max(a, b) for a, b in zip(*pair, strict=True)] for pair in pairs]
    return k, lows, highs


def test_figure_3() -> None:
    """Subscription s2 of [MICS09] figure 3 (x 4-6, y 2-5) has the three printed intervals."""
    ranges = box_ranges(*arrays([4, 2], [6, 5]), k=3)
    assert list(ranges) == [(32, 35), (45, 46), (50, 55)]
    assert ranges.contains(np.array([28, 52, 50])).tolist() == [False, True, True]


@pytest.mark.parametrize(("d", "k"), [(1, 4), (2, 3), (3, 2)])
def test_every_box_of_a_small_grid(d: int, k: int) -> None:
    """All boxes of the grid: exactly the runs of their cells, and never more than there is room for."""
    spans = [(a, b) for a in range(2**k) for b in range(a, 2**k)]
    for box in product(spans, repeat=d):
        low, high = ([span[side] for span in box] for side in (0, 1))
        ranges = box_ranges(*arrays(low, high), k=k)
        ranges.check()
        assert list(ranges) == runs(indices_of(low, high, k)), box
        assert len(ranges) <= d * expected_ranges(*arrays(low, high), k=k), box


@given(boxes())
@settings(max_examples=200, deadline=None)
def test_box_is_exactly_its_cells(box: tuple[int, list[list[int]], list[list[int]]]) -> None:
    """In 1 to 6 dimensions the ranges of a box are the runs of the indices of its cells."""
    k, (low,), (high,) = box
    ranges = box_ranges(*arrays(low, high), k=k)
    ranges.check()
    assert list(ranges) == runs(indices_of(low, high, k))
    assert over_coverage(ranges, *arrays([low], [high])) == 1.0


@given(boxes(n_max=5))
@settings(max_examples=150, deadline=None)
def test_boxes_are_the_union_of_their_cells(box: tuple[int, list[list[int]], list[list[int]]]) -> None:
    """Several boxes, overlapping or not, give the runs of all their cells."""
    k, lows, highs = box
    ranges = boxes_ranges(*arrays(lows, highs), k=k)
    ranges.check()
    cells = set().union(*(indices_of(low, high, k) for low, high in zip(lows, highs, strict=True)))
    assert list(ranges) == runs(cells)


@given(boxes(n_max=3), st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_cap_covers_and_keeps_the_largest_gaps(box: tuple[int, list[list[int]], list[list[int]]], cap: int) -> None:
    """Under a cap every cell is still covered, and only the smallest gaps are closed, no more than needed."""
    k, lows, highs = box
    exact = boxes_ranges(*arrays(lows, highs), k=k)
    short = boxes_ranges(*arrays(lows, highs), k=k, cap=cap)
    short.check()
    assert len(short) <= cap
    assert short.contains(np.concatenate([exact.starts, exact.ends])).all()
    gaps = sorted(int(b - a - 1) for a, b in zip(exact.ends[:-1], exact.starts[1:], strict=True))
    closed = gaps[: max(len(exact) - cap, 0)]
    assert short.cells == exact.cells + sum(closed)


@given(boxes(n_max=5), st.integers(1, 6), st.sampled_from([0, 4, 4096]))
@settings(max_examples=150, deadline=None)
def test_boxes_side_by_side_are_as_each_alone(
    box: tuple[int, list[list[int]], list[list[int]]], cap: int, effort: int
) -> None:
    """Many at once have the ranges that each has by itself, also where some are too wide to be walked."""
    k, lows, highs = box[0], *arrays(box[1], box[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EFFORT_MIN", effort)
        patch.setattr(module, "EFFORT_PER_RANGE", 1)
        starts, ends, sizes = each_ranges(lows, highs, k, cap)
        alone = [boxes_ranges(lows[i : i + 1], highs[i : i + 1], k, cap) for i in range(len(lows))]
    assert sizes.tolist() == [len(ranges) for ranges in alone]
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [pair for ranges in alone for pair in ranges]


@given(st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=7).map(sorted), st.integers(1, 7))
@settings(max_examples=200, deadline=None)
def test_capped_is_the_best_superset(indices: list[int], cap: int) -> None:
    """No way to cut an exact list into `cap` ranges has fewer cells; among equal gaps the first stay."""
    exact = runs(set(indices))
    short = capped(Ranges.of(exact), cap)
    best = None
    for kept in combinations(range(1, len(exact)), min(cap, len(exact)) - 1):
        bounds = [0, *kept, len(exact)]
        tried = [(exact[a][0], exact[b - 1][1]) for a, b in pairwise(bounds)]
        cells = sum(b - a + 1 for a, b in tried)
        if best is None or cells < best[0]:
            best = (cells, tried)
    assert best is not None
    assert (short.cells, list(short)) == best


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), max_size=8), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_union_is_a_set_union(spans: list[tuple[int, int]], cut: int) -> None:
    """The union of sets of ranges holds the indices of all of them, in maximal runs."""
    sets = [{i for a, n in part for i in range(a, a + n + 1)} for part in (spans[:cut], spans[cut:])]
    joined = union([Ranges.of(runs(indices)) for indices in sets])
    joined.check()
    assert list(joined) == runs(sets[0] | sets[1])
    assert joined.contains(np.arange(60)).tolist() == [i in sets[0] | sets[1] for i in range(60)]


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
@settings(max_examples=200, deadline=None)
def test_covers_is_set_inclusion(ours: set[int], theirs: set[int]) -> None:
    """Maximal ranges cover others exactly if their indices include the others'."""
    assert Ranges.of(runs(ours)).covers(Ranges.of(runs(theirs))) == (theirs <= ours)
    assert Ranges.of(runs(ours)).covers(Ranges.of(runs(ours & theirs)))


def test_union_of_nothing() -> None:
    """No sets, or empty ones, have an empty union; no boxes have no ranges."""
    assert union([]) == Ranges.empty() == union([Ranges.empty(), Ranges.empty()])
    assert boxes_ranges(np.empty((0, 3), np.int64), np.empty((0, 3), np.int64), k=4) == Ranges.empty()
    assert not Ranges.empty().contains(np.array([0, 5])).any()


@given(boxes(), st.integers(0, 200))
@settings(max_examples=150, deadline=None)
def test_budgeted_walk_covers(box: tuple[int, list[list[int]], list[list[int]]], extra: int) -> None:
    """A walk within a budget covers the box with at most as many pieces; with enough of them it is exact."""
    k, (low,), (high,) = box
    corners, d = arrays([low], [high]), len(low)
    cells = indices_of(low, high, k)
    starts, ends = module._cover_all(*corners, k, module.curve(d).child, 2**d + extra)
    assert len(starts) <= 2**d + extra
    ranges = module._joined(starts, ends)
    ranges.check()
    assert ranges.contains(np.array(sorted(cells))).all()
    if len(starts) < extra // 2:  # it stopped because nothing is wasted any more
        assert list(ranges) == runs(cells)
    whole = module._joined(*module._cover_all(*corners, k, module.curve(d).child, 2 ** (d * k + d)))
    assert list(whole) == runs(cells)


@pytest.mark.parametrize(("d", "side"), [(2, 900), (3, 60), (4, 20)])
def test_budgeted_walk_is_nearly_the_best(d: int, side: int) -> None:
    """Opening the most wasteful first covers, under a cap of 64, at most 5 % more than the exact list's best."""
    random = np.random.default_rng(d)
    cap, k, best, budgeted = 64, 10, 0, 0
    for _ in range(10):
        low = random.integers(0, 2**k - side, (1, d))
        nodes = module.EFFORT_PER_RANGE * cap
        pieces = module._cover_all(low, low + side - 1, k, module.curve(d).child, nodes)
        assert len(pieces[0]) <= nodes
        budgeted += capped(module._joined(*pieces), cap).cells
        best += capped(box_ranges(low[0], low[0] + side - 1, k), cap).cells
    assert best <= budgeted <= 1.05 * best


@pytest.mark.parametrize(("d", "k"), [(2, 31), (3, 21), (4, 15), (5, 12), (6, 10)])
@pytest.mark.parametrize("cap", [None, 1, 40, 1000])
def test_huge_boxes_stay_bounded(d: int, k: int, cap: int | None) -> None:
    """A box of astronomically many ranges is covered by a bounded list: every point of it lies inside."""
    random = np.random.default_rng(d)
    low, high = np.full(d, 3), np.full(d, 2**k - 6)
    ranges = box_ranges(low, high, k, cap)
    ranges.check()
    assert expected_ranges(low, high, k) > RANGES_MAX
    assert len(ranges) <= (cap or RANGES_MAX)
    points = random.integers(low, high + 1, (2000, d))
    points[:d] = np.where(np.eye(d, dtype=bool), low, high)
    assert ranges.contains(module_encode(points, k)).all()
    assert 1.0 <= over_coverage(ranges, low[None], high[None]) < 1.6


def module_encode(points: np.ndarray, k: int) -> np.ndarray:
    package = HilbertCurve(k, points.shape[1])
    return np.array([package.distance_from_point([int(x) for x in point]) for point in points], np.int64)


@pytest.mark.parametrize(("d", "k"), [(1, 63), (3, 21)])
def test_whole_grid_of_63_bits_is_one_range(d: int, k: int) -> None:
    """The largest grid there is, whole: one range up to 2^63 - 1, its 2^63 cells counted without overflow."""
    ranges = box_ranges(np.zeros(d, np.int64), np.full(d, 2**k - 1), k)
    assert list(ranges) == [(0, 2**63 - 1)]
    assert ranges.cells == 2**63
    assert over_coverage(ranges, np.zeros((1, d), np.int64), np.full((1, d), 2**k - 1)) == 1.0


def test_half_of_a_huge_grid_is_exact_under_a_cap() -> None:
    """Boxes along the borders of sub-cubes cost no budget: half of a 60-bit grid is exact."""
    low, high = np.zeros(6, np.int64), np.full(6, 2**10 - 1)
    high[2] = 2**9 - 1
    assert over_coverage(box_ranges(low, high, 10, cap=64), low[None], high[None]) == 1.0


@pytest.mark.parametrize(
    ("d", "sides"), [(2, (16, 16)), (2, (5, 40)), (3, (8, 8, 8)), (3, (2, 9, 20)), (4, (6, 4, 5, 3))]
)
def test_expected_number_of_ranges(d: int, sides: tuple[int, ...]) -> None:
    """[MICS09] eq. 3, sides in cells: over random places the mean number of ranges is within 6 % of it."""
    random = np.random.default_rng(7)
    k = 8
    lengths = np.array(sides)
    counts, expected = [], []
    for _ in range(600):
        low = random.integers(0, 2**k - lengths + 1)
        counts.append(len(box_ranges(low, low + lengths - 1, k)))
        expected.append(expected_ranges(low, low + lengths - 1))
    paper = sum(np.prod(lengths) / side for side in sides) / d
    assert expected == [pytest.approx(paper)] * 600
    assert np.mean(counts) == pytest.approx(paper, rel=0.06)


def test_expected_number_of_ranges_at_the_border() -> None:
    """Faces on the border of the grid cost no range: one-sided boxes have the ranges of one face."""
    random = np.random.default_rng(3)
    k, d = 7, 3
    counts, expected, unbounded = [], [], []
    for _ in range(400):
        low, high = np.zeros(d, np.int64), np.full(d, 2**k - 1)
        high[random.integers(d)] = random.integers(5, 2**k - 5)
        counts.append(len(box_ranges(low, high, k)))
        expected.append(expected_ranges(low, high, k))
        unbounded.append(expected_ranges(low, high))
    assert np.mean(counts) == pytest.approx(np.mean(expected), rel=0.15)
    assert np.mean(counts) < np.mean(unbounded) / 4


def test_equality_and_text() -> None:
    """Ranges compare by value and print as the code that makes them."""
    ranges = Ranges.of([(1, 2), (4, 4)])
    assert ranges == eval(repr(ranges))  # noqa: S307
    assert ranges != Ranges.of([(1, 2)])
    assert ranges != "ranges"
    assert repr(Ranges.of((i, i) for i in range(0, 40, 2))).endswith("(14, 14), ...])")
