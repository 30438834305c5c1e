"""The S-tree as published, against a reference that is written from the paper; what searches look at."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.packed_rtree import PackedTreeMatcher
from state.matchers.box_tree import TreeMatcher, search
from state.matchers.stree import STreeMatcher, binarize, shares_of_domain
from state.space.boxes import Boxes
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN


def bounding(rows, lows, ends):
    d = len(lows[0])
    return [(min(lows[r][j] for r in rows), max(ends[r][j] for r in rows)) for j in range(d)]


def volume(box):
    return math.prod(z - a for a, z in box)


def perimeter(box):
    return math.fsum(z - a for a, z in box)


def binary_tree(rows, lows, ends, p, m):
    """[STREE03] §3.1 in plain Python: a leaf is a list of rows, an inner node a pair."""
    if len(rows) <= m:
        return rows
    box = bounding(rows, lows, ends)
    longest = max(range(len(box)), key=lambda j: box[j][1] - box[j][0])
    rows = sorted(rows, key=lambda r: lows[r][longest] + ends[r][longest])
    candidates = range(math.ceil(p * len(rows)), math.floor((1 - p) * len(rows)) + 1, m)
    cut = min(
        candidates,
        key=lambda q: (
            volume(bounding(rows[:q], lows, ends)) + volume(bounding(rows[q:], lows, ends)),
            perimeter(bounding(rows[:q], lows, ends)) + perimeter(bounding(rows[q:], lows, ends)),
        ),
        default=len(rows) // 2,
    )
    return binary_tree(rows[:cut], lows, ends, p, m), binary_tree(rows[cut:], lows, ends, p, m)


def as_nested(node, order, left, right, first, end):
    if left[node] < 0:
        return order[first[node] : end[node]].tolist()
    return tuple(as_nested(child, order, left, right, first, end) for child in (left[node], right[node]))


@given(seed=st.integers(0, 2**32), n=st.integers(1, 60), p=st.sampled_from([0.1, 0.25, 0.3, 0.5]), m=st.integers(2, 5))
@settings(max_examples=60, deadline=None)
def test_binarization_is_that_of_the_paper(seed, n, p, m):
    """Longest dimension, centres, steps of M within the skew, least sum of volumes, then least perimeter."""
    rng = np.random.default_rng(seed)
    # Powers of two: sums and products of shares are exact, so that ties are ties in both.
    lows = rng.integers(0, 8, (n, 2)) / 16.0
    ends = lows + 2.0 ** rng.integers(-4, -1, (n, 2))
    tree = binarize(lows, ends, p, m)
    expected = binary_tree(list(range(n)), lows.tolist(), ends.tolist(), p, m)
    assert as_nested(0, *tree) == expected


def test_skew_bounds_every_split():
    """No side of a split has less than the share p of its boxes."""
    rng = np.random.default_rng(1)
    lows = rng.random((3000, 3)) ** 3
    _, left, right, first, end = binarize(lows, lows + 0.05 * rng.random((3000, 3)), 0.3, 40)
    inner = np.flatnonzero(left >= 0)
    assert len(inner) > 50
    size = end - first
    assert (np.minimum(size[left[inner]], size[right[inner]]) >= 0.3 * size[inner]).all()


def test_compression_fills_nodes_to_the_fanout():
    """Every inner node has M children, unless all its children are leaves."""
    lows = np.random.default_rng(2).integers(0, 10**6, (5000, 2))

    tree = STreeMatcher(Boxes(lows, lows + 1000), np.arange(5000), fanout=5)
    tree.check()
    nodes = tree.tree.nodes
    counts = (nodes.end - nodes.first)[~nodes.leaf]
    above_leaves = [nodes.leaf[nodes.below[a:z]].all() for a, z in entries(nodes) if z > a]
    assert counts.max() == 5
    assert not all(above_leaves)


def entries(nodes):
    inner = np.flatnonzero(~nodes.leaf)
    return [(nodes.first[k], nodes.end[k]) for k in inner]


def visited(matcher: TreeMatcher, points):
    """How many nodes of the tree the search for each point looks at: the paper's measure of a packing."""
    return search(matcher.tree.nodes, matcher.tree.alive, points, points)[2]


def test_half_infinite_boxes_are_clipped_to_the_domain():
    """Open sides count as the least and the greatest finite corner, and a free dimension as the whole."""
    boxes = Boxes.of(
        [([0, ABSENT], [9, PRESENT_MAX]), ([ABSENT, ABSENT], [4, PRESENT_MAX]), ([5, 3], [PRESENT_MAX, 3])]
    )
    lows, ends = shares_of_domain(boxes)
    assert lows.tolist() == [[0.0, 0.0], [0.0, 0.0], [0.5, 0.0]]
    assert ends.tolist() == [[1.0, 1.0], [0.5, 1.0], [1.0, 1.0]]


def test_the_lowest_value_and_absence_are_no_corners_of_the_domain():
    """`price < 5` begins with the lowest value, `IS NULL` is the absent rank: both lie at the edge of the domain."""
    boxes = Boxes.of([([0], [9]), ([PRESENT_MIN], [4]), ([ABSENT], [ABSENT]), ([PRESENT_MIN], [PRESENT_MAX])])
    lows, ends = shares_of_domain(boxes)
    assert lows[:, 0].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert ends[:, 0].tolist() == [1.0, 0.5, 0.0, 1.0]


@pytest.mark.parametrize(("low", "high"), [(PRESENT_MIN, 4), (ABSENT, ABSENT), (995, PRESENT_MAX)])
def test_one_half_infinite_box_leaves_the_tree_as_good_as_without(low, high):
    """One `x < 5`, `x IS NULL` or `x >= 995` among 5,000 small boxes costs a few nodes per search, no more."""
    rng = np.random.default_rng(5)
    lows = rng.integers(0, 1000, (5000, 2))
    highs = lows + rng.integers(0, 20, (5000, 2))
    points = rng.integers(0, 1000, (200, 2))
    without = visited(STreeMatcher(Boxes(lows, highs), np.arange(5000)), points).mean()
    lows[0], highs[0] = low, high
    assert visited(STreeMatcher(Boxes(lows, highs), np.arange(5000)), points).mean() < 2 * without


@pytest.mark.parametrize("kind", [STreeMatcher, PackedTreeMatcher])
def test_a_search_looks_at_few_nodes(kind):
    """A point query on small boxes visits under 5 % of the nodes, and at least the way from root to leaf."""
    lows = np.random.default_rng(3).integers(0, 10**6, (20_000, 2))
    tree = kind(Boxes(lows, lows + 5000), np.arange(20_000))
    looked_at = visited(tree, np.random.default_rng(4).integers(0, 10**6, (200, 2)))
    assert looked_at.mean() < 0.05 * len(tree.tree.nodes.first)
    assert (looked_at >= 1).all()


def test_a_tree_that_changes_all_day_stays_fast():
    """Through 3,000 replacements one by one, an event is compared with few boxes more than in a fresh tree, and
    the tree is packed once in some sqrt(M n) changes."""
    rng = np.random.default_rng(7)
    n, changes = 2000, 3000
    lows = rng.integers(0, 10**6, (n + changes, 2))
    boxes = Boxes(lows, lows + 20_000)
    matcher = STreeMatcher(boxes.take(np.arange(n)), np.arange(n))
    points = rng.integers(0, 10**6, (20, 2))
    packed, longest, examined = 0, 0, []
    for i in range(n, n + changes):
        before = matcher.tree
        matcher.remove(np.array([i - n]))
        matcher.insert(boxes.take(np.array([i])), np.array([i]))
        packed += matcher.tree is not before
        longest = max(longest, len(matcher.tail.owners))
        if i % 100 == 0:
            examined.append(matcher.fanout * visited(matcher, points).mean() + len(matcher.tail.owners))
    assert len(matcher) == n
    assert longest <= np.sqrt(40 * n)
    assert packed <= 3 * changes / np.sqrt(40 * n)
    fresh = matcher.fanout * visited(STreeMatcher(boxes.take(np.arange(changes, n + changes)), np.arange(n)), points)
    assert np.mean(examined) < 2 * fresh.mean() + np.sqrt(40 * n)
    matcher.check()


def test_a_small_change_leaves_the_tree_as_it_is():
    """What is inserted into a large tree waits in the tail; the same boxes at once, and many, are packed."""
    lows = np.random.default_rng(8).integers(0, 10**6, (10_000, 2))
    matcher = STreeMatcher(Boxes(lows, lows + 5), np.arange(10_000))
    tree = matcher.tree
    matcher.insert(Boxes(lows[:632], lows[:632] + 9), np.arange(632))
    assert matcher.tree is tree
    assert (matcher.tree.live, matcher.tail.live) == (10_000, 632)
    matcher.insert(Boxes(lows[:1], lows[:1] + 9), np.array([0]))
    assert (matcher.tree.live, matcher.tail.live) == (10_633, 0)
