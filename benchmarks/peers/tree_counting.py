"""Counting without listing: how many boxes of a tree meet a query ([STREE03] §1, "compute or bound").

A node whose bounding box lies inside the query is counted by its leaf number N_A, without being looked at. The router
lists, since it delivers to whom it finds.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.matchers.box_tree import Nodes, Packed, TreeMatcher
from state.matchers.matcher import as_points
from state.space.boxes import Ranks


def count_boxes(matcher: TreeMatcher, lows: Ranks, highs: Ranks) -> Ints:
    """Return how many boxes meet each query box; a point is the query box with equal corners.

    Cost: one pass over the nodes for their leaf numbers, then a search that ends above what lies inside the query.
    """
    lows, highs = as_points(lows, matcher.d), as_points(highs, matcher.d)
    return count(matcher.tree, lows, highs)[0] + count(matcher.tail, lows, highs)[0]


def count(packed: Packed, lows: Ranks, highs: Ranks) -> tuple[Ints, Ints]:
    """Return (counts, visited): how many living boxes meet each query box, and how many nodes were looked at."""
    whole = packed.live == len(packed.owners)
    return _count_all(packed.nodes, _sizes(packed.nodes), packed.alive, whole, lows, highs)


@njit
def _sizes(nodes: Nodes) -> Ints:
    """N_A of each node: how many boxes are below it. Nodes come before those below them."""
    size = nodes.end - nodes.first
    for node in range(len(size) - 1, -1, -1):
        if not nodes.leaf[node]:
            size[node] = size[nodes.below[nodes.first[node] : nodes.end[node]]].sum()
    return size


@njit
def _count_all(nodes: Nodes, size: Ints, alive: Bools, whole: bool, lows: Ranks, highs: Ranks) -> tuple[Ints, Ints]:
    """If `whole`, nothing is dead, and a node inside the query counts as it is."""
    first, end, leaf = nodes.first, nodes.end, nodes.leaf
    corners, below = nodes.corners, nodes.below
    n, d = lows.shape
    counts, visited = np.zeros(n, np.int64), np.zeros(n, np.int64)
    stack = np.empty(len(first) + 1, np.int64)
    for q in range(n):
        stack[0], waiting = 0, min(1, len(first))
        while waiting:
            waiting -= 1
            node = stack[waiting]
            visited[q] += 1
            for e in range(first[node], end[node]):
                meets, inside = True, True
                for j in range(d):
                    meets &= corners[e, 2 * j] <= highs[q, j] and corners[e, 2 * j + 1] >= lows[q, j]
                    inside &= corners[e, 2 * j] >= lows[q, j] and corners[e, 2 * j + 1] <= highs[q, j]
                if meets and leaf[node]:
                    counts[q] += alive[below[e]]
                elif meets and inside and whole:
                    counts[q] += size[below[e]]
                elif meets:
                    stack[waiting] = below[e]
                    waiting += 1
    return counts, visited
