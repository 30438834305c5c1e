"""The S-tree, as published: an unbalanced tree of bounding boxes, packed from above.

Implements [STREE03] §3: binarization by sweep (§3.1) and compression (§3.2).

    binarization   split along the longest dimension at the place, no more uneven than the skew p allows,
                   where the two bounding boxes have the least volume together
    compression    a node takes over the children of its largest child until it has M of them

Differs: §3.1 stops at N_A <= M, §3 at single objects; here a node of at most M boxes is a leaf, which is the
penultimate node of §3.2 after its first compression. Sides are shares of the domain, the bounding box of all finite
corners: attributes have units of their own, and a volume of int64 sides overflows. Half-infinite boxes are clipped
to the domain for centres and volumes only, those that begin with the lowest value (`price < 5`) as well as those of
the absent (`price IS NULL`); the tree stores them as they are.
"""

from __future__ import annotations

import heapq

import numpy as np

from state.arrays import Floats, Ints
from state.kernels import njit
from state.matchers.box_tree import Nodes, TreeMatcher, interleaved, no_nodes
from state.space.boxes import Boxes, Ranks
from state.space.ranks import PRESENT_MAX, PRESENT_MIN


class STreeMatcher(TreeMatcher):
    """The matcher of [STREE03].

    Guarantee: exact. Cost: build, a sort of every node's boxes; search, every node whose box holds the event.

    >>> m = STreeMatcher(Boxes.of([([0, 0], [3, 3]), ([2, 2], [9, 9])]), np.array([7, 5]))
    >>> m.match(np.array([[1, 1], [2, 3], [8, 0]]))
    Matches(rows=array([0, 1, 1]), ids=array([7, 5, 7]))
    """

    def __init__(self, boxes: Boxes, owners: Ints, skew: float = 0.3, fanout: int = 40) -> None:
        """`skew` is p, the least share of the smaller side of a split, "about 0.3"; `fanout` is M, "about 40"."""
        assert 0 < skew <= 0.5
        self.skew = skew
        super().__init__(boxes, owners, fanout)

    def pack(self, boxes: Boxes) -> Nodes:
        if len(boxes) == 0:
            return no_nodes(boxes.d)
        order, left, right, first, end = binarize(*shares_of_domain(boxes), self.skew, self.fanout)
        return _compress(boxes, order, left, right, first, end, self.fanout)

    def check(self) -> None:
        super().check()
        nodes = self.tree.nodes
        for node in np.flatnonzero(~nodes.leaf):
            below = nodes.below[nodes.first[node] : nodes.end[node]]
            assert len(below) == self.fanout or nodes.leaf[below].all(), "a node that could take over another"


def shares_of_domain(boxes: Boxes) -> tuple[Floats, Floats]:
    """Return lows and ends (one past the high) as shares of the domain, clipped to it."""
    lows, ends = np.zeros(boxes.lows.shape), np.ones(boxes.lows.shape)
    for j in range(boxes.d):
        low, high = boxes.lows[:, j], boxes.highs[:, j]
        corners = np.concatenate([low, high])
        finite = corners[(corners > PRESENT_MIN) & (corners < PRESENT_MAX)]
        if len(finite):
            least, most = float(finite.min()), float(finite.max())
            side = most - least + 1.0
            lows[:, j] = np.clip((low - least) / side, 0.0, 1.0)
            ends[:, j] = np.clip((high - least + 1.0) / side, 0.0, 1.0)
    return lows, ends


@njit
def binarize(lows: Floats, ends: Floats, skew: float, fanout: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Split all boxes into a binary tree; return (order, left, right, first, end).

    Implements [STREE03] §3.1. Node k holds the boxes `order[first[k] : end[k]]`; left[k] < 0: a leaf.
    Cost: O(n log^2 n) while splits are not too uneven: each level sorts its boxes.
    """
    n = len(lows)
    order = np.arange(n)
    room = 2 * n
    left, right = np.full(room, -1, np.int64), np.full(room, -1, np.int64)
    first, end = np.zeros(room, np.int64), np.zeros(room, np.int64)
    end[0] = n
    node, nodes = 0, 1
    while node < nodes:
        a, z = first[node], end[node]
        if z - a > fanout:
            cut = a + _split(lows, ends, order[a:z], skew, fanout)
            left[node], right[node] = nodes, nodes + 1
            first[nodes], end[nodes] = a, cut
            first[nodes + 1], end[nodes + 1] = cut, z
            nodes += 2
        node += 1
    return order, left[:nodes], right[:nodes], first[:nodes], end[:nodes]


@njit
def _split(lows: Floats, ends: Floats, rows: Ints, skew: float, fanout: int) -> int:
    """Sort `rows` along the longest dimension and return how many go to the left."""
    n, d = len(rows), lows.shape[1]
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    for i in range(n):
        for j in range(d):
            low[j], high[j] = min(low[j], lows[rows[i], j]), max(high[j], ends[rows[i], j])
    longest = np.argmax(high - low)
    twice_centre = np.empty(n)
    for i in range(n):
        twice_centre[i] = lows[rows[i], longest] + ends[rows[i], longest]
    rows[:] = rows[np.argsort(twice_centre, kind="mergesort")]

    least, most = int(np.ceil(skew * n)), int(np.floor((1 - skew) * n))
    tries = (most - least) // fanout + 1
    if tries < 1:  # p = 1/2 of an odd number: no place is allowed, the middle is nearest
        return n // 2
    volume, perimeter = np.zeros(tries), np.zeros(tries)
    _sweep(lows, ends, rows, least, fanout, False, volume, perimeter)
    _sweep(lows, ends, rows, least, fanout, True, volume, perimeter)
    best = 0
    for t in range(1, tries):
        if volume[t] < volume[best] or (volume[t] == volume[best] and perimeter[t] < perimeter[best]):
            best = t
    return least + best * fanout


@njit
def _sweep(
    lows: Floats,
    ends: Floats,
    rows: Ints,
    least: int,
    step: int,
    backward: bool,
    volume: Floats,
    perimeter: Floats,
) -> None:
    """Add the volume and perimeter of one side's bounding box to each candidate, growing the box as it goes."""
    n, d, tries = len(rows), lows.shape[1], len(volume)
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    taken = 0
    for t in range(tries):
        candidate = tries - 1 - t if backward else t
        cut = least + candidate * step
        while taken < (n - cut if backward else cut):
            row = rows[n - 1 - taken] if backward else rows[taken]
            taken += 1
            for j in range(d):
                low[j], high[j] = min(low[j], lows[row, j]), max(high[j], ends[row, j])
        product, total = 1.0, 0.0
        for j in range(d):
            product *= high[j] - low[j]
            total += high[j] - low[j]
        volume[candidate] += product
        perimeter[candidate] += total


def _compress(boxes: Boxes, order: Ints, left: Ints, right: Ints, first: Ints, end: Ints, fanout: int) -> Nodes:
    """Turn the binary tree into one of branching M, top-down: a node takes over its child with most boxes.

    Implements [STREE03] §3.2. Only leaves and nodes above nothing but leaves may stay below M.
    """
    corners = interleaved(boxes, order)
    size = end - first
    children: dict[int, list[int]] = {}
    queue = [0]
    for node in queue:
        if left[node] < 0:
            continue
        # A leaf has at most M boxes and an inner node more: the largest child is a leaf only if all are.
        taken = [(-int(size[child]), child) for child in (int(left[node]), int(right[node]))]
        heapq.heapify(taken)
        while len(taken) < fanout and left[taken[0][1]] >= 0:
            _, largest = heapq.heappop(taken)
            for child in (int(left[largest]), int(right[largest])):
                heapq.heappush(taken, (-int(size[child]), child))
        children[node] = sorted(child for _, child in taken)
        queue.extend(children[node])
    return _laid_out(boxes.d, queue, children, corners, order, first, end)


def _laid_out(
    d: int, queue: list[int], children: dict[int, list[int]], corners: Ranks, order: Ints, first: Ints, end: Ints
) -> Nodes:
    """Number the nodes breadth first and write their entries one after the other."""
    number = {node: k for k, node in enumerate(queue)}
    boxes_of = np.empty((len(queue), 2 * d), np.int64)
    for k, node in enumerate(queue):
        boxes_of[k, 0::2] = corners[first[node] : end[node], 0::2].min(axis=0)
        boxes_of[k, 1::2] = corners[first[node] : end[node], 1::2].max(axis=0)
    parts_corners, parts_below, counts = [], [], []
    for node in queue:
        if node in children:
            below = np.array([number[child] for child in children[node]], np.int64)
            parts_corners.append(boxes_of[below])
        else:
            below = order[first[node] : end[node]]
            parts_corners.append(corners[first[node] : end[node]])
        parts_below.append(below)
        counts.append(len(below))
    ends = np.cumsum(counts, dtype=np.int64)
    return Nodes(
        ends - np.array(counts, np.int64),
        ends,
        np.array([node not in children for node in queue], np.bool_),
        np.concatenate(parts_corners),
        np.concatenate(parts_below),
    )
