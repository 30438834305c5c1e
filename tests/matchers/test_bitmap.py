"""What the bitmap matcher promises beyond its answers: what it stores, and how little it looks at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.matchers import order, scan_ahead, segment
from state.matchers.bitmap import BitmapMatcher
from state.matchers.order import search_tree, spatial_order
from state.matchers.scan import collect_each, mark_each
from state.matchers.segment import Segment, build, build_segments, check, choose_cuts, locate, unpacked
from state.space.boxes import Boxes
from state.space.ranks import ABSENT, PRESENT_MAX


def small_boxes(n, d, side, seed=1, domain=10**6):
    rng = np.random.default_rng(seed)
    lows = rng.integers(0, domain, (n, d))
    return lows, lows + int(side * domain)


def words_read(some: Segment, points) -> float:
    """Mean number of words per event that no summary excludes."""
    rows = locate(points, some.dims, some.trees, some.first_node, some.first_row)
    left = [np.bitwise_and.reduce(some.summary[row]) for row in rows]
    return float(np.mean([unpacked(words, len(some.alive)).sum() for words in left]))


def test_a_dimension_that_no_box_constrains_has_no_bitmap():
    """Of five dimensions only the two that some box constrains are stored."""
    lows, highs = np.full((100, 5), ABSENT), np.full((100, 5), PRESENT_MAX)
    lows[3, 1], highs[70, 4] = 10, 20
    some = build(lows, highs, np.arange(100))
    assert sorted(some.dims.tolist()) == [1, 4]
    assert some.corners.shape == (100, 4)


def test_boxes_that_span_everything_need_no_bits():
    """A set of full boxes is stored without any cell."""
    some = build(np.full((70, 3), ABSENT), np.full((70, 3), PRESENT_MAX), np.arange(70))
    assert some.bits.size == len(some.compared) == 0


def test_a_row_keeps_the_words_that_its_boxes_stand_in():
    """Boxes are sorted by the dimension where they are points, so that each of its cells has few words."""
    rng = np.random.default_rng(3)
    lows = np.stack([rng.integers(0, 300, 20_000) * 1000, rng.integers(0, 10**6, 20_000)], axis=1)
    some = build(lows, lows + np.array([0, 50_000]), np.arange(20_000))
    check(some)
    assert some.dims[0] == 0
    there = [np.flatnonzero(unpacked(row, len(some.alive))) for row in some.summary]
    kept = [2 * int(words[-1] + 1 - words[0]) if len(words) else 0 for words in there]
    assert some.bits.size == sum(kept)
    narrow = int(some.first_row[1])
    assert sum(kept[:narrow]) < 0.05 * narrow * 2 * len(some.alive)


def test_few_distinct_corners_are_never_compared():
    """Where every corner is a cut, the cells alone decide."""
    lows = np.random.default_rng(2).integers(0, 20, (1000, 2))
    some = build(lows, lows + 1, np.arange(1000))
    assert len(some.compared) == 0
    lows, highs = small_boxes(1000, 2, 0.1)
    assert len(build(lows, highs, np.arange(1000)).compared) == 2


def test_sets_that_constrain_different_dimensions_are_stored_apart(monkeypatch):
    """Each large set of equally constrained boxes has a segment with just its dimensions; the rest is together."""
    monkeypatch.setattr(segment, "SEGMENT_MIN", 50)
    lows, highs = np.full((230, 4), ABSENT), np.full((230, 4), PRESENT_MAX)
    lows[:100, 0] = np.arange(100)
    lows[100:200, 2] = np.arange(100)
    lows[200:215, 1], lows[215:, 3] = 7, 7
    segments = build_segments(lows, highs, np.arange(230))
    assert sorted((p.dims.tolist(), p.size()) for p in segments) == [([0], 100), ([1, 3], 30), ([2], 100)]


def test_narrow_dimensions_get_the_cells_that_others_do_not_need():
    """A boolean dimension takes three cells of the budget, and the others share what is left."""
    lows, highs = small_boxes(5000, 3, 0.1)
    lows[:, 1] = np.arange(5000) % 2
    highs[:, 1] = lows[:, 1]
    cuts = choose_cuts(lows, highs)
    assert len(cuts[1]) == 3
    assert min(len(cuts[0]), len(cuts[2])) > segment.CELLS_PER_BOX // 3


def test_spatial_order_makes_summaries_exclude_words():
    """In order an event reads under 2 % of the words, shuffled over half of them."""
    lows, highs = small_boxes(40_000, 3, 0.03)
    points = np.random.default_rng(5).integers(0, 10**6, (50, 3))
    ordered = build(lows, highs, np.arange(len(lows)))
    assert words_read(ordered, points) < 0.02 * len(ordered.alive)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "spatial_order", lambda lows, highs: np.arange(len(lows)))
        shuffled = build(lows, highs, np.arange(len(lows)))
    assert words_read(shuffled, points) > 0.5 * len(shuffled.alive)


def test_wide_boxes_stand_apart_from_narrow_ones():
    """Boxes that are wide in a dimension do not share words with those that are narrow in it."""
    lows, highs = small_boxes(6400, 2, 0.01)
    wide = np.random.default_rng(4).random(6400) < 0.5
    lows[wide, 0], highs[wide, 0] = 1000, 999_000
    placed = spatial_order(lows, highs)
    mixed = [w for w in wide[placed].reshape(-1, 64) if w.any() and not w.all()]
    assert len(mixed) <= 1


def test_equality_on_many_values_reads_few_words():
    """Points in one dimension, wide in another: blocks are thin in the one, and spans exclude the rest of a cell."""
    rng = np.random.default_rng(6)
    symbol = rng.integers(0, 4000, 40_000)
    price = rng.integers(0, 700, 40_000)
    some = build(np.stack([symbol, price], 1), np.stack([symbol, price + 300], 1), np.arange(40_000))
    assert some.dims[some.fine].tolist() == [0]
    held = 0
    for value in range(0, 4000, 100):
        held += ((some.spans[:, 0] <= value) & (value <= some.spans[:, 1])).sum()
    assert held / 40 <= 3


def test_order_is_a_permutation():
    """Every box is stored once, whatever its shape."""
    rng = np.random.default_rng(7)
    for d in (1, 2, 7, 12):
        lows = rng.integers(-9, 9, (500, d))
        highs = np.where(rng.random((500, d)) < 0.5, PRESENT_MAX, lows + 3)
        assert np.array_equal(np.sort(spatial_order(lows, highs)), np.arange(500))


@given(
    cuts=st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=40),
    values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=10),
)
@settings(max_examples=100, deadline=None)
def test_cells_are_found_as_by_bisection(cuts, values):
    """The branch-free search counts the cuts at or below a value, ends of the rank space included."""
    ranks = np.array(sorted(cuts), np.int64)
    tree = search_tree(ranks)
    points = np.array([*values, *cuts, -(2**63), 2**63 - 1], np.int64)[:, None]
    ends = np.array([0, len(tree)]), np.array([5, 5 + len(ranks) + 1])
    rows = locate(points, np.array([0]), tree, *ends)
    assert (rows[:, 0] - 5).tolist() == np.searchsorted(ranks, points[:, 0], side="right").tolist()


@given(
    boxes=st.lists(
        st.tuples(st.integers(-3, 3) | st.just(ABSENT), st.integers(0, 4) | st.just(PRESENT_MAX)),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=100, deadline=None)
def test_boxes_are_placed_as_by_bisection(boxes):
    """Centres and widths count the corners below and above, ends of the rank space included."""
    lows = np.array([[low] for low, _ in boxes], np.int64)
    highs = np.array([[size if size == PRESENT_MAX else max(low, -3) + size] for low, size in boxes], np.int64)
    places = order.sample_corners(lows[:, 0], highs[:, 0])
    begin, end = (
        np.searchsorted(places, column[:, 0], side=side).astype(np.float32)
        for column, side in ((lows, "left"), (highs, "right"))
    )
    centres, widths = order._quantile_space(lows, highs)
    assert np.array_equal(centres[0], (begin + end) / (2 * len(places) + 1))
    assert np.array_equal(widths[0], (end - begin) / (len(places) + 1))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_points_are_put_in_the_order_of_cells(d):
    """By the cell of the most selective dimension, then by eighths of two more; equal ones stay as they came."""
    lows, highs = small_boxes(3000, d, 0.01)
    matcher = BitmapMatcher(Boxes(lows, highs), np.arange(3000))
    points = np.random.default_rng(2).integers(-10, 10**6, (700, d))
    some = matcher._held[0].segment
    rows = locate(points, some.dims, some.trees, some.first_node, some.first_row).astype(np.int64)
    counts = np.diff(some.first_row)
    key = rows[:, 0] - some.first_row[0]
    for j in range(1, min(d, 3)):
        key = key * 8 + (rows[:, j] - some.first_row[j]) * 8 // counts[j]
    assert np.array_equal(matcher.order(points), np.argsort(key, kind="stable"))


def test_points_have_an_order_where_no_box_says_one():
    """Of no boxes there is none, and where all span everything it is that in which the points came."""
    points = np.arange(40).reshape(20, 2)
    assert BitmapMatcher(Boxes.empty(2), np.empty(0, np.int64)).order(points) is None
    assert BitmapMatcher(Boxes.everything(2), np.array([1])).order(points).tolist() == list(range(20))


def test_inserts_one_by_one_make_few_segments():
    """Levels halve in size: 300 single inserts leave at most nine segments, and resort leaves one."""
    matcher = BitmapMatcher(Boxes.empty(1), np.empty(0, np.int64))
    for i in range(300):
        matcher.insert(Boxes(np.array([[i]]), np.array([[i + 5]])), np.array([i]))
        assert len(matcher._held) <= 9
    matcher.check()
    matcher.resort()
    assert len(matcher._held) == 1
    assert len(matcher) == 300


def test_memory_counts_what_is_held():
    """A box of four dimensions takes its corners, owner and at most 128 bytes of bitmaps and their summaries."""
    lows, highs = small_boxes(50_000, 4, 0.1)
    matcher = BitmapMatcher(Boxes(lows, highs), np.arange(50_000))
    per_box = matcher.memory() / 50_000
    assert 72 < per_box < 72 + 1.1 * 2 * segment.CELLS_PER_BOX / 8


def test_removing_everything_leaves_nothing():
    """A segment without living boxes is dropped."""
    matcher = BitmapMatcher(Boxes(np.zeros((100, 1), np.int64), np.ones((100, 1), np.int64)), np.arange(100))
    matcher.remove(np.arange(50))
    assert (len(matcher), len(matcher._held)) == (50, 1)
    matcher.remove(np.arange(100))
    assert (len(matcher), len(matcher._held), matcher.memory()) == (0, 0, 0)


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(1, 3),
    n=st.integers(1, 2000),
    side=st.sampled_from([0.0, 0.003, 0.1, 0.9]),
    alone=st.booleans(),
    owners=st.sampled_from([3, 10**6]),
    seed=st.integers(0, 10**6),
)
def test_points_taken_together_get_the_answers_of_each(d, n, side, alone, owners, seed):
    """Few words and many, boxes that are gone, what is found already, and points in any order."""
    rng = np.random.default_rng(seed)
    lows = rng.integers(0, 3000, (n, d))
    highs = lows + rng.integers(0, 1 + int(side * 3000), (n, d))
    some = build(lows, highs, rng.integers(0, owners, n))
    some.alive[rng.integers(0, len(some.alive))] &= np.uint64(rng.integers(0, 2**62))
    points = rng.integers(0, 3500, (3 * scan_ahead.MANY, d))
    rows = locate(points, some.dims, some.trees, some.first_node, some.first_row)
    order, known = rng.permutation(len(points))[: 2 * scan_ahead.MANY + 5], rng.random(len(points)) < 0.2
    together, each = known.copy(), known.copy()
    scan_ahead.mark(some, points, rows, order, together)
    mark_each(some, points, rows, order, each)
    assert np.array_equal(together, each)
    given_ids = some, points, rows, order, int(some.owners.min()), int(some.owners.max()), alone
    starts, ends, ids = scan_ahead.collect(*given_ids)
    room, one_by_one = np.empty((2, len(points)), np.int64), np.empty(len(order) * n + n, np.int64)
    assert collect_each(*given_ids, *room, one_by_one, 0, 0)[0] == len(order)
    for e in order.tolist():
        together, each = ids[starts[e] : ends[e]], one_by_one[room[0, e] : room[1, e]]
        assert np.array_equal(together, each) if alone else sorted(together) == sorted(each)
