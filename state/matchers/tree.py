"""Trees of bounding boxes: the node arrays, the search, and what S-tree and packed R-tree share as matchers.

[STREE03] §3: an entry of a leaf is (box, subscription), an entry of an inner node (bounding box, node below); a search
goes down from the root wherever the box of an entry meets the query. Point and region queries are the same
search; the count-only query of §1 counts without listing, and takes whole nodes that lie inside the region.

    node        entries                                        the trees differ only in how they are packed:
    0 (root)    [box -> 1] [box -> 2] ...                      stree.py top-down by volumes,
    1 (leaf)    [box = row 0] [box = row 1] ...                packed.py bottom-up along a curve

Neither tree has an update in the paper. Differs: to be matchers they keep inserted boxes beside the tree in a linear
scan and mark removed ones; `resort` packs everything anew.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.matchers.cover import certain
from state.matchers.linear import LinearMatcher
from state.matchers.matcher import Matches, Mode, as_points, owned
from state.matchers.scan import united
from state.space.boxes import Boxes, Ranks


class Nodes(NamedTuple):
    """A packed tree. Entries of node k are `first[k] .. end[k]`; node 0 is the root; no boxes: no nodes.

    Entry e has the box `corners[e]` (low and high of dimension 0, of dimension 1, ..) and `below[e]`: the
    number of a node, or, in a leaf, of a box.
    """

    first: Ints
    end: Ints
    leaf: Bools
    size: Ints
    """Leaf number N_A of each node: how many boxes are below it."""
    corners: Ranks
    below: Ints


def search(nodes: Nodes, lows: Ranks, highs: Ranks) -> tuple[Ints, Ints, Ints]:
    """Return (offsets, boxes, visited): the boxes that meet each query box, and how many nodes were looked at.

    A point is the query box with equal corners.
    """
    offsets, visited = np.zeros(len(lows) + 1, np.int64), np.zeros(len(lows), np.int64)
    found = np.empty(len(nodes.below) + 2 * len(lows), np.int64)
    done = 0
    while True:
        done = _search(nodes, lows, highs, offsets, visited, found, done)
        if done == len(lows):
            return offsets, found[: offsets[-1]], visited
        larger = np.empty(2 * len(found), np.int64)
        larger[: offsets[done]] = found[: offsets[done]]
        found = larger


@njit
def _search(nodes: Nodes, lows: Ranks, highs: Ranks, offsets: Ints, visited: Ints, found: Ints, done: int) -> int:
    """Go on with query `done` until all are done, or there is no room for every box to be found; say how far."""
    first, end, leaf, corners, below = nodes.first, nodes.end, nodes.leaf, nodes.corners, nodes.below
    d, used = lows.shape[1], offsets[done]
    stack = np.empty(len(first) + 1, np.int64)
    while done < len(lows) and used + len(below) <= len(found):
        stack[0], waiting = 0, min(1, len(first))
        while waiting:
            waiting -= 1
            node = stack[waiting]
            visited[done] += 1
            for e in range(first[node], end[node]):
                meets = True
                for j in range(d):
                    if corners[e, 2 * j] > highs[done, j] or corners[e, 2 * j + 1] < lows[done, j]:
                        meets = False
                        break
                if meets and leaf[node]:
                    found[used] = below[e]
                    used += 1
                elif meets:
                    stack[waiting] = below[e]
                    waiting += 1
        done += 1
        offsets[done] = used
    return done


@njit
def count(nodes: Nodes, lows: Ranks, highs: Ranks, alive: Bools, whole: bool) -> tuple[Ints, Ints]:
    """Return (counts, visited): how many living boxes meet each query box.

    If `whole` (nothing is dead) a node whose box lies inside the query is counted without being looked at.
    """
    first, end, leaf, size = nodes.first, nodes.end, nodes.leaf, nodes.size
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


class TreeMatcher:
    """A packed tree with a linear scan for what came after it; subclasses say how boxes are packed.

    Guarantee: exact. Cost: that of the search, plus the scan of what was inserted since the last `resort`.
    """

    fanout: ClassVar[int] = 40
    """M: the greatest number of entries of a node."""

    def __init__(self, boxes: Boxes, owners: Ints) -> None:
        self._build(boxes, owned(boxes, owners))

    def pack(self, boxes: Boxes) -> Nodes:
        """Arrange boxes in nodes; each kind of tree has its own way."""
        raise AssertionError("TreeMatcher is not used by itself")

    def _build(self, boxes: Boxes, owners: Ints) -> None:
        self.nodes = self.pack(boxes)
        self._boxes, self._owners = boxes, owners
        self._alive = np.ones(len(boxes), dtype=bool)
        self._late = LinearMatcher(Boxes.empty(boxes.d), np.empty(0, np.int64))

    @property
    def d(self) -> int:
        return self._boxes.d

    def __len__(self) -> int:
        return int(self._alive.sum()) + len(self._late)

    def match(self, points: Ranks) -> Matches:
        points = as_points(points, self.d)
        return self._united(points, points)

    def match_any(self, points: Ranks) -> Bools:
        rows = self.match(points).rows
        found = np.zeros(len(points), dtype=bool)
        found[rows] = True
        return found

    def match_groups(self, points: Ranks, group_of_owner: Ints, n_groups: int) -> Bools:
        rows, ids = self.match(points)
        groups = np.asarray(group_of_owner)[ids]
        out = np.zeros((len(points), n_groups), dtype=bool)
        out[rows[groups >= 0], groups[groups >= 0]] = True
        return out

    def match_boxes(self, lows: Ranks, highs: Ranks, mode: Mode = "possible") -> Matches:
        lows, highs = as_points(lows, self.d), as_points(highs, self.d)
        if mode == "possible":
            return self._united(lows, highs)
        offsets, rows, _ = search(self.nodes, lows, highs)
        keep = self._alive[rows]
        rows, events = rows[keep], np.repeat(np.arange(len(lows)), np.diff(offsets))[keep]
        late_events, late_rows = self._late.meeting(lows, highs)
        late_boxes, late_owners = self._late.boxes()
        events = np.concatenate([events, late_events])
        ids = np.concatenate([self._owners[rows], late_owners[late_rows]])
        box_lows = np.concatenate([self._boxes.lows[rows], late_boxes.lows[late_rows]])
        box_highs = np.concatenate([self._boxes.highs[rows], late_boxes.highs[late_rows]])
        return certain(lows, highs, events, ids, box_lows, box_highs)

    def _united(self, lows: Ranks, highs: Ranks) -> Matches:
        offsets, rows, _ = search(self.nodes, lows, highs)
        if not self._alive.all():
            keep = self._alive[rows]
            offsets = np.concatenate([[0], np.cumsum(keep)])[offsets]
            rows = rows[keep]
        found = [(offsets[:-1], offsets[1:], self._owners[rows])]
        if len(self._late):
            events, late_rows = self._late.meeting(lows, highs)
            late = np.searchsorted(events, np.arange(len(lows) + 1))
            found.append((late[:-1], late[1:], self._late.boxes()[1][late_rows]))
        return united(found)

    def count(self, points: Ranks) -> Ints:
        """Return how many boxes hold each point, without listing them ([STREE03] §1, "compute or bound")."""
        return self.count_boxes(points, points)

    def count_boxes(self, lows: Ranks, highs: Ranks) -> Ints:
        """Return how many boxes meet each query box, without listing them."""
        lows, highs = as_points(lows, self.d), as_points(highs, self.d)
        counts, _ = count(self.nodes, lows, highs, self._alive, bool(self._alive.all()))
        late_events, _ = self._late.meeting(lows, highs)
        return counts + np.bincount(late_events, minlength=len(lows))

    def visited(self, points: Ranks) -> Ints:
        """Return how many nodes the search for each point looks at: the paper's measure of a packing."""
        points = as_points(points, self.d)
        return search(self.nodes, points, points)[2]

    def insert(self, boxes: Boxes, owners: Ints) -> None:
        self._late.insert(boxes, owners)

    def remove(self, owners: Ints) -> None:
        self._alive &= ~np.isin(self._owners, owners)
        self._late.remove(owners)

    def resort(self) -> None:
        """Pack all live boxes anew. Cost: that of a build."""
        late, late_owners = self._late.boxes()
        kept = Boxes(self._boxes.lows[self._alive], self._boxes.highs[self._alive])
        self._build(kept.joined(late), np.concatenate([self._owners[self._alive], late_owners]))

    def memory(self) -> int:
        own = (*self.nodes, self._owners, self._alive, self._boxes.lows, self._boxes.highs)
        return sum(array.nbytes for array in own) + self._late.memory()

    def check(self) -> None:
        """Assert that the tree holds every box once, and that every box below an entry is inside its box."""
        self._late.check()
        nodes, n = self.nodes, len(self._boxes)
        assert np.array_equal(np.sort(nodes.below[_leaf_entries(nodes)]), np.arange(n))
        for node in range(len(nodes.first)):
            entries = np.arange(nodes.first[node], nodes.end[node])
            assert 1 <= len(entries) <= self.fanout
            below = nodes.below[entries]
            if nodes.leaf[node]:
                assert nodes.size[node] == len(entries)
                assert np.array_equal(nodes.corners[entries, 0::2], self._boxes.lows[below])
                assert np.array_equal(nodes.corners[entries, 1::2], self._boxes.highs[below])
            else:
                assert nodes.size[node] == nodes.size[below].sum()
                for entry, child in zip(entries, below, strict=True):
                    inner = nodes.corners[nodes.first[child] : nodes.end[child]]
                    assert np.array_equal(nodes.corners[entry, 0::2], inner[:, 0::2].min(axis=0))
                    assert np.array_equal(nodes.corners[entry, 1::2], inner[:, 1::2].max(axis=0))


def _leaf_entries(nodes: Nodes) -> Ints:
    runs = [np.arange(nodes.first[k], nodes.end[k]) for k in np.flatnonzero(nodes.leaf)]
    return np.concatenate([*runs, np.empty(0, np.int64)])


def no_nodes(d: int) -> Nodes:
    """The tree of no boxes."""
    none = np.empty(0, np.int64)
    return Nodes(none, none, np.empty(0, np.bool_), none, np.empty((0, 2 * d), np.int64), none)


def interleaved(boxes: Boxes, rows: Ints) -> Ranks:
    """Corners of these rows as nodes store them."""
    return np.stack([boxes.lows[rows], boxes.highs[rows]], axis=2).reshape(len(rows), 2 * boxes.d)


def bounding(corners: Ranks, starts: Ints) -> Ranks:
    """Bounding boxes of the runs of entries that start there."""
    out = np.empty((len(starts), corners.shape[1]), np.int64)
    out[:, 0::2] = np.minimum.reduceat(corners[:, 0::2], starts, axis=0)
    out[:, 1::2] = np.maximum.reduceat(corners[:, 1::2], starts, axis=0)
    return out
