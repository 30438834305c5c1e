"""Counting on trees, against the lists that the same trees give."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.peers.packed_rtree import PackedTreeMatcher
from benchmarks.peers.tree_counting import count, count_boxes
from state.matchers.stree import STreeMatcher
from state.space.boxes import Boxes


@pytest.mark.parametrize("kind", [STreeMatcher, PackedTreeMatcher])
def test_count_only_counts_what_a_list_would_show(kind):
    """Counts of points and regions equal the lengths of the lists, also after inserts and removals."""
    rng = np.random.default_rng(5)
    lows = rng.integers(0, 1000, (800, 2))
    boxes, owners = Boxes(lows, lows + rng.integers(0, 80, (800, 2))), np.arange(800)
    tree = kind(boxes, owners)
    query_lows = rng.integers(0, 900, (50, 2))
    query_highs = query_lows + rng.integers(0, 400, (50, 2))
    for _ in range(2):
        listed = np.bincount(tree.match(query_lows).rows, minlength=50)
        assert count_boxes(tree, query_lows, query_lows).tolist() == listed.tolist()
        listed = np.bincount(tree.match_boxes(query_lows, query_highs).rows, minlength=50)
        assert count_boxes(tree, query_lows, query_highs).tolist() == listed.tolist()
        tree.remove(np.arange(0, 800, 3))
        tree.insert(boxes, owners + 800)


def test_counting_takes_whole_nodes():
    """A region that holds the whole tree is counted at the root, without going down."""
    lows = np.random.default_rng(6).integers(0, 1000, (5000, 2))
    tree = STreeMatcher(Boxes(lows, lows + 5), np.arange(5000))
    everywhere = np.array([[-10, -10]]), np.array([[2000, 2000]])
    counts, visited = count(tree.tree, *everywhere)
    assert (counts.tolist(), visited.tolist()) == ([5000], [1])
