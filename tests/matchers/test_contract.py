"""One contract for every matcher: its answers are those of a scan in plain Python, through any changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from benchmarks.peers.linear_scan import LinearMatcher
from benchmarks.peers.packed_rtree import PackedTreeMatcher
from state.matchers import bitmap, segment
from state.matchers.bitmap import BitmapMatcher
from state.matchers.matcher import Matcher, Matches
from state.matchers.stree import STreeMatcher
from state.space.boxes import Boxes
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN
from tests.matchers.naive import Naive


class SmallSTree(STreeMatcher):
    """Three entries to a node: splits, compression and a tail that grows too long happen with a handful of boxes."""

    def __init__(self, boxes, owners):
        super().__init__(boxes, owners, fanout=3)


class SmallPackedTree(PackedTreeMatcher):
    def __init__(self, boxes, owners):
        super().__init__(boxes, owners, fanout=3)


class CoarseBitmap(BitmapMatcher):
    """Few cells, tiny parts, events always in curve order: candidates are unsure and parts are many."""


MATCHERS = [LinearMatcher, STreeMatcher, SmallSTree, PackedTreeMatcher, SmallPackedTree, BitmapMatcher, CoarseBitmap]


@pytest.fixture(params=MATCHERS, ids=lambda kind: kind.__name__)
def kind(request, monkeypatch):
    if request.param is CoarseBitmap:
        make_coarse(monkeypatch)
    return request.param


def make_coarse(monkeypatch):
    monkeypatch.setattr(segment, "CELLS_PER_BOX", 8)
    monkeypatch.setattr(segment, "CELLS_MIN", 3)
    monkeypatch.setattr(segment, "SEGMENT_MIN", 4)
    monkeypatch.setattr(bitmap, "CACHE_BYTES", 0)


ANY_SMALL = st.integers(-4, 4)
EDGES = st.sampled_from([ABSENT, PRESENT_MIN, -(2**62), -1, 0, 1, 2**53 + 1, PRESENT_MAX - 1, PRESENT_MAX])


@st.composite
def some_boxes(draw, d, ranks, most=12):
    """Lists of lows and highs; a dimension may be open on either side."""
    lows, highs = [], []
    for _ in range(draw(st.integers(0, most))):
        corners = [sorted((draw(ranks), draw(ranks))) for _ in range(d)]
        open_low, open_high = draw(st.integers(0, 2**d - 1)), draw(st.integers(0, 2**d - 1))
        lows.append([ABSENT if open_low >> j & 1 else corners[j][0] for j in range(d)])
        highs.append([PRESENT_MAX if open_high >> j & 1 else corners[j][1] for j in range(d)])
    return lows, highs


def as_boxes(lows, highs, d):
    shape = (len(lows), d)
    return Boxes(np.array(lows, np.int64).reshape(shape), np.array(highs, np.int64).reshape(shape))


def as_array(points, d):
    return np.array(points, np.int64).reshape(len(points), d)


def pairs(matches: Matches):
    return list(zip(matches.rows.tolist(), matches.ids.tolist(), strict=True))


def agree(matcher: Matcher, naive: Naive, points):
    """Compare every kind of answer for points, whether or not they are said to be near each other."""
    array = as_array(points, matcher.d)
    for near in (False, True):
        assert pairs(matcher.match(array, near=near)) == naive.match(points)
        assert matcher.match_any(array, near=near).tolist() == [bool(naive.owners_of(p)) for p in points]


def test_every_matcher_keeps_the_protocol(kind):
    """Every matcher has the methods of the interface."""
    matcher = kind(Boxes.empty(2), np.empty(0, np.int64))
    assert isinstance(matcher, Matcher)


@pytest.mark.parametrize("ranks", [ANY_SMALL, EDGES], ids=["small", "whole rank space"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_answers_are_those_of_a_scan(ranks, data):
    """On random boxes, half-open ones and ends of the rank space included, all answers equal the oracle's."""
    d = data.draw(st.integers(1, 4))
    lows, highs = data.draw(some_boxes(d, ranks))
    owners = data.draw(st.lists(st.integers(0, 4), min_size=len(lows), max_size=len(lows)))
    points = data.draw(st.lists(st.lists(ranks, min_size=d, max_size=d), max_size=8))
    naive = Naive()
    naive.insert(lows, highs, owners)
    for kind in MATCHERS:
        with pytest.MonkeyPatch.context() as patch:
            if kind is CoarseBitmap:
                make_coarse(patch)
            matcher = kind(as_boxes(lows, highs, d), np.array(owners, np.int64))
            matcher.check()
            assert len(matcher) == len(lows)
            agree(matcher, naive, points)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_imprecise_publications(data):
    """A box meets the owners whose boxes it intersects."""
    d = data.draw(st.integers(1, 3))
    lows, highs = data.draw(some_boxes(d, st.integers(-2, 2), most=10))
    owners = data.draw(st.lists(st.integers(0, 3), min_size=len(lows), max_size=len(lows)))
    corners = data.draw(st.lists(st.lists(st.integers(-3, 2), min_size=d, max_size=d), max_size=5))
    query_highs = [[x + data.draw(st.integers(0, 2)) for x in low] for low in corners]
    naive = Naive()
    naive.insert(lows, highs, owners)
    for kind in MATCHERS:
        with pytest.MonkeyPatch.context() as patch:
            if kind is CoarseBitmap:
                make_coarse(patch)
            matcher = kind(as_boxes(lows, highs, d), np.array(owners, np.int64))
            query = as_array(corners, d), as_array(query_highs, d)
            assert pairs(matcher.match_boxes(*query)) == naive.possible(corners, query_highs)


def adversarial(name, n, d, rng):
    """Sets of boxes that defeat an order, a cell or a tree."""
    full_low, full_high = np.full((n, d), ABSENT), np.full((n, d), PRESENT_MAX)
    if name == "all equal":
        return np.full((n, d), 3), np.full((n, d), 5)
    if name == "nested":
        steps = np.arange(n)[:, None].repeat(d, axis=1)
        return -steps, steps
    if name == "points":
        at = rng.integers(-5, 6, (n, d))
        return at, at
    if name == "full domain":
        return full_low, full_high
    if name == "full domain and a few":
        full_low[: n // 10], full_high[: n // 10] = -1, 1
        return full_low, full_high
    if name == "one dimension only":
        full_low[:, 0] = rng.integers(-50, 50, n)
        full_high[:, 0] = full_low[:, 0] + rng.integers(0, 3, n)
        return full_low, full_high
    if name == "one dimension each":
        which = np.arange(n) % d
        full_low[np.arange(n), which] = rng.integers(-9, 9, n)
        full_high[np.arange(n), which] = full_low[np.arange(n), which] + 2
        return full_low, full_high
    if name == "absent":
        low = np.where(rng.random((n, d)) < 0.5, ABSENT, rng.integers(-3, 3, (n, d)))
        return low, np.where(low == ABSENT, ABSENT, low + 1)
    if name == "present":
        return np.full((n, d), PRESENT_MIN), full_high
    assert name == "far apart"
    low = rng.integers(-(2**61), 2**61, (n, d))
    return low, low + rng.integers(0, 2**61, (n, d))


NAMES = [
    "all equal",
    "nested",
    "points",
    "full domain",
    "full domain and a few",
    "one dimension only",
    "one dimension each",
    "absent",
    "present",
    "far apart",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
def test_adversarial_sets(kind, name, n):
    """Equal, nested, point, full, one-dimensional and absent boxes match as a scan does, around each word's end."""
    rng = np.random.default_rng(n)
    d = 3
    lows, highs = adversarial(name, n, d, rng)
    owners = rng.integers(0, n, n)
    points = rng.integers(-10, 11, (12, d))
    points[:4] = lows[rng.integers(0, n, 4)]
    points[4:6] = highs[rng.integers(0, n, 2)]
    points[6, 1] = ABSENT
    naive = Naive()
    naive.insert(lows.tolist(), highs.tolist(), owners.tolist())
    matcher = kind(Boxes(lows.astype(np.int64), highs.astype(np.int64)), owners)
    matcher.check()
    agree(matcher, naive, points.tolist())


def test_ids_may_be_any_int64(kind):
    """Owners far apart, negative ones included, come out sorted."""
    owners = np.array([2**63 - 1, -(2**63), 0, 5, -7, 2**40], np.int64)
    matcher = kind(Boxes(np.zeros((6, 1), np.int64), np.full((6, 1), 9, np.int64)), owners)
    assert matcher.match(np.array([[4]])).ids.tolist() == sorted(owners.tolist())


def test_an_owner_of_many_boxes_is_reported_once(kind):
    """However many of an owner's boxes hold a point, there is one pair; many matches take another way than few."""
    n = 500
    owners = np.arange(n) % 100
    matcher = kind(Boxes(np.zeros((n, 2), np.int64), np.full((n, 2), 9, np.int64)), owners)
    matches = matcher.match(np.array([[1, 1], [99, 0], [0, 9]]))
    assert matches.ids.tolist() == [*range(100), *range(100)]
    assert matches.rows.tolist() == [0] * 100 + [2] * 100


@pytest.mark.parametrize("n", [127, 128, 129, 255, 256, 257, 1000])
def test_a_few_points_that_match_much(kind, n):
    """However many pairs a small batch has, each is found: there is room for some at once, and for all in the end."""
    matcher = kind(Boxes(np.zeros((n, 2), np.int64), np.full((n, 2), 9, np.int64)), np.arange(n)[::-1])
    for points in (np.array([[1, 1]]), np.array([[99, 0], [0, 9], [3, 3]])):
        matches, hit = matcher.match(points), [i for i, point in enumerate(points) if point[0] < 10]
        assert matches.ids.tolist() == [*range(n)] * len(hit)
        assert matches.rows.tolist() == [i for i in hit for _ in range(n)]


def test_no_boxes_and_no_points(kind):
    """An empty matcher answers, and an empty batch is answered."""
    none = kind(Boxes.empty(2), np.empty(0, np.int64))
    none.check()
    points = np.zeros((3, 2), np.int64)
    assert len(none.match(points).rows) == 0
    assert none.match_any(points).tolist() == [False] * 3
    assert len(none.match_boxes(points, points).ids) == 0
    none.remove(np.array([3]))
    none.resort()
    none.insert(Boxes.everything(2), np.array([4]))
    assert none.match(points).ids.tolist() == [4, 4, 4]
    assert len(none.match(points[:0]).ids) == 0
    assert none.match_any(points[:0]).shape == (0,)


def test_twice_the_same_is_the_same(kind):
    """Two matchers that saw the same calls answer with the same bytes."""
    rng = np.random.default_rng(3)
    lows = rng.integers(0, 50, (400, 3))
    boxes, owners = Boxes(lows, lows + rng.integers(0, 9, (400, 3))), rng.integers(0, 200, 400)
    points = rng.integers(0, 60, (100, 3))
    answers = []
    for _ in range(2):
        matcher = kind(boxes, owners)
        matcher.remove(owners[:50])
        matcher.insert(boxes, owners + 100)
        answers.append(matcher.match(points))
    assert answers[0].rows.tobytes() == answers[1].rows.tobytes()
    assert answers[0].ids.tobytes() == answers[1].ids.tobytes()


class Changes(RuleBasedStateMachine):
    """Random inserts, removes and resorts of all matchers at once, compared with the oracle after each."""

    @initialize(seed=st.integers(0, 2**32), d=st.integers(1, 3))
    def begin(self, seed, d):
        self.rng, self.d = np.random.default_rng(seed), d
        self.patch = pytest.MonkeyPatch()
        self.naive = Naive()
        self.matchers = []
        for kind in MATCHERS:
            if kind is CoarseBitmap:
                make_coarse(self.patch)
            self.matchers.append(kind(Boxes.empty(d), np.empty(0, np.int64)))
            self.patch.undo()

    @rule(n=st.sampled_from([1, 2, 5, 70]))
    def insert(self, n):
        lows = self.rng.integers(-5, 6, (n, self.d))
        highs = lows + self.rng.integers(0, 5, (n, self.d))
        lows = np.where(self.rng.random(lows.shape) < 0.3, ABSENT, lows)
        highs = np.where(self.rng.random(lows.shape) < 0.3, PRESENT_MAX, highs)
        owners = self.rng.integers(0, 40, n)
        self.naive.insert(lows.tolist(), highs.tolist(), owners.tolist())
        for matcher in self.each():
            matcher.insert(Boxes(lows, highs), owners)

    @rule(n=st.integers(0, 20))
    def remove(self, n):
        owners = self.rng.integers(0, 50, n)
        self.naive.remove(owners.tolist())
        for matcher in self.each():
            matcher.remove(owners)

    @rule()
    def resort(self):
        for matcher in self.each():
            matcher.resort()

    def each(self):
        for matcher in self.matchers:
            if isinstance(matcher, CoarseBitmap):
                make_coarse(self.patch)
            yield matcher
            self.patch.undo()

    @invariant()
    def answers_agree(self):
        if not hasattr(self, "naive"):
            return
        points = self.rng.integers(-6, 9, (4, self.d))
        points[0, 0] = ABSENT
        for matcher in self.each():
            matcher.check()
            assert len(matcher) == len(self.naive.boxes)
            agree(matcher, self.naive, points.tolist())


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
