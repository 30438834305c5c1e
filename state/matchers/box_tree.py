"""Trees of bounding boxes: the node arrays, the search, and how a tree that cannot be updated lives through changes.

[STREE03] §3: an entry of a leaf is (box, subscription), an entry of an inner node (bounding box, node below); a search
goes down from the root wherever the box of an entry meets the query. Point and region queries are the same search.

    node        entries                                        kinds of trees differ only in how they are packed:
    0 (root)    [box -> 1] [box -> 2] ...                      `stree.py` top-down by volumes
    1 (leaf)    [box = row 0] [box = row 1] ...

The paper has no update. Differs: inserted boxes are kept beside the tree in a *tail*, one leaf of any size, until that
is large compared with the tree; removed ones are marked. `resort` packs everything anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.matchers.matcher import Matches, as_points, owned
from state.matchers.scan import Found, united
from state.shelf import Shelf
from state.space.boxes import Boxes, Ranks


class Nodes(NamedTuple):
    """A packed tree. Entries of node k are `first[k] .. end[k]`; node 0 is the root; no boxes: no nodes.

    Entry e has the box `corners[e]` (low and high of dimension 0, of dimension 1, ..) and `below[e]`: the
    number of a node, or, in a leaf, of a box. The entries of node k + 1 follow those of node k.
    """

    first: Ints
    end: Ints
    leaf: Bools
    corners: Ranks
    below: Ints


def search(nodes: Nodes, alive: Bools, lows: Ranks, highs: Ranks) -> tuple[Ints, Ints, Ints]:
    """Return (offsets, boxes, visited): the living boxes that meet each query box, and how many nodes were looked at.

    A point is the query box with equal corners.
    """
    offsets, visited = np.zeros(len(lows) + 1, np.int64), np.zeros(len(lows), np.int64)
    found = np.empty(len(nodes.below) + 2 * len(lows), np.int64)
    done = 0
    while True:
        done = _search(nodes, alive, lows, highs, offsets, visited, found, done)
        if done == len(lows):
            return offsets, found[: offsets[-1]], visited
        larger = np.empty(2 * len(found), np.int64)
        larger[: offsets[done]] = found[: offsets[done]]
        found = larger


@njit
def _search(
    nodes: Nodes, alive: Bools, lows: Ranks, highs: Ranks, offsets: Ints, visited: Ints, found: Ints, done: int
) -> int:
    """Go on with query `done` until all are done, or there is no room for every box to be found; say how far."""
    first, end, leaf, corners, below = nodes.first, nodes.end, nodes.leaf, nodes.corners, nodes.below
    used = offsets[done]
    stack = np.empty(len(first) + 1, np.int64)
    while done < len(lows) and used + len(below) <= len(found):
        stack[0], waiting = 0, min(1, len(first))
        while waiting:
            waiting -= 1
            node = stack[waiting]
            visited[done] += 1
            for e in range(first[node], end[node]):
                meets = _meets(corners, e, lows, highs, done)
                if meets and leaf[node]:
                    found[used] = below[e]
                    used += alive[below[e]]
                elif meets:
                    stack[waiting] = below[e]
                    waiting += 1
        done += 1
        offsets[done] = used
    return done


@njit
def mark(nodes: Nodes, alive: Bools, points: Ranks, found: Bools) -> None:
    """Set `found[e]` where a living box holds point e; a point ends with the first, and one that is set is left out."""
    first, end, leaf, corners, below = nodes.first, nodes.end, nodes.leaf, nodes.corners, nodes.below
    stack = np.empty(len(first) + 1, np.int64)
    for q in range(len(points)):
        stack[0], waiting = 0, min(1, len(first))
        while waiting and not found[q]:
            waiting -= 1
            node = stack[waiting]
            for e in range(first[node], end[node]):
                meets = _meets(corners, e, points, points, q)
                if meets and leaf[node] and alive[below[e]]:
                    found[q] = True
                    break
                if meets and not leaf[node]:
                    stack[waiting] = below[e]
                    waiting += 1


@njit
def _meets(corners: Ranks, e: int, lows: Ranks, highs: Ranks, q: int) -> bool:
    """Whether the box of an entry and a query box share a point."""
    for j in range(lows.shape[1]):
        if corners[e, 2 * j] > highs[q, j] or corners[e, 2 * j + 1] < lows[q, j]:
            return False
    return True


class _Kept(msgspec.Struct, array_like=True, frozen=True):
    """How packed boxes are found on a shelf: names of nodes and owners, and of what is alive of them."""

    nodes: str
    alive: str
    live: int


@dataclass(slots=True, eq=False)
class Packed:
    """Boxes in nodes, by number with their owners; what is removed is only marked."""

    nodes: Nodes
    owners: Ints
    alive: Bools
    live: int
    by_owner: Ints | None = None
    """Numbers sorted by owner, made by the first removal."""
    kept: _Kept | None = None
    """Where it is kept, as far as that is still so: an empty name is of what has changed since."""

    @classmethod
    def of(cls, nodes: Nodes, owners: Ints) -> Packed:
        return cls(nodes, owners, np.ones(len(owners), np.bool_), len(owners))

    def collect(self, lows: Ranks, highs: Ranks) -> Found:
        offsets, numbers, _ = search(self.nodes, self.alive, lows, highs)
        return offsets[:-1], offsets[1:], self.owners[numbers]

    def remove(self, owners: Ints) -> None:
        """Mark the boxes of these owners, each given once. Cost: that of the owners, after one sort."""
        if self.by_owner is None:
            self.by_owner = np.argsort(self.owners, kind="stable")
        first = np.searchsorted(self.owners, owners, side="left", sorter=self.by_owner)
        counts = np.searchsorted(self.owners, owners, side="right", sorter=self.by_owner) - first
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        gone = self.by_owner[np.repeat(first, counts) + steps]
        self.live -= int(np.count_nonzero(self.alive[gone]))
        self.alive[gone] = False
        if len(gone) and self.kept is not None:
            self.kept = msgspec.structs.replace(self.kept, alive="")

    def keep(self, shelf: Shelf) -> _Kept:
        """Write down what the shelf has not got, and go on with its arrays."""
        kept = self.kept or _Kept(shelf.keep([*self.nodes, self.owners]), "", 0)
        if not kept.alive:
            kept = _Kept(kept.nodes, shelf.keep([self.alive]), self.live)
        if self.kept is None:
            *nodes, self.owners = shelf.read(kept.nodes)
            self.nodes = Nodes(*nodes)
        self.kept = kept
        return kept

    @classmethod
    def opened(cls, kept: _Kept, shelf: Shelf) -> Packed:
        *nodes, owners = shelf.read(kept.nodes)
        return cls(Nodes(*nodes), owners, shelf.read(kept.alive)[0].copy(), kept.live, None, kept)

    def boxes(self) -> tuple[Boxes, Ints]:
        """The living boxes and their owners, in the order of the leaves."""
        entries = np.flatnonzero(np.repeat(self.nodes.leaf, self.nodes.end - self.nodes.first))
        entries = entries[self.alive[self.nodes.below[entries]]]
        corners = self.nodes.corners[entries]
        lows, highs = np.ascontiguousarray(corners[:, 0::2]), np.ascontiguousarray(corners[:, 1::2])
        return Boxes(lows, highs), self.owners[self.nodes.below[entries]]

    def memory(self) -> int:
        index = 0 if self.by_owner is None else self.by_owner.nbytes
        return index + sum(array.nbytes for array in (*self.nodes, self.owners, self.alive))

    def check(self) -> None:
        """Assert that every box is in one leaf, and that the box of an entry is the bounding box of those below."""
        nodes = self.nodes
        assert np.array_equal(nodes.first[1:], nodes.end[:-1])
        entries = np.repeat(nodes.leaf, nodes.end - nodes.first)
        assert np.array_equal(np.sort(nodes.below[entries]), np.arange(len(self.owners)))
        for entry in np.flatnonzero(~entries):
            child = nodes.below[entry]
            inner = nodes.corners[nodes.first[child] : nodes.end[child]]
            assert np.array_equal(nodes.corners[entry, 0::2], inner[:, 0::2].min(axis=0))
            assert np.array_equal(nodes.corners[entry, 1::2], inner[:, 1::2].max(axis=0))
        assert self.live == np.count_nonzero(self.alive)


class TreeMatcher:
    """A packed tree, and a tail for what came after it; subclasses say how boxes are packed.

    Guarantee: exact. Cost: that of the search, and a scan of the tail, which has at most sqrt(M n) boxes beside a tree
    of n: as many as sqrt(n / M) leaves. An insert that would make it longer packs everything anew.
    """

    def __init__(self, boxes: Boxes, owners: Ints, fanout: int) -> None:
        assert fanout > 1
        self._d, self.fanout = boxes.d, fanout
        self._pack_all(boxes, owned(boxes, owners))

    def pack(self, boxes: Boxes) -> Nodes:
        """Arrange boxes in nodes of at most `fanout` entries; each kind of tree has its own way."""
        raise AssertionError("TreeMatcher is not used by itself")

    def _pack_all(self, boxes: Boxes, owners: Ints) -> None:
        self.tree = Packed.of(self.pack(boxes), owners)
        self.tail = Packed.of(no_nodes(self._d), np.empty(0, np.int64))

    @property
    def d(self) -> int:
        return self._d

    @property
    def _held(self) -> list[Packed]:
        return [packed for packed in (self.tree, self.tail) if packed.live]

    def __len__(self) -> int:
        return self.tree.live + self.tail.live

    def match(self, points: Ranks, near: bool = False) -> Matches:
        """`near` is of no use here: a search begins at the root."""
        return self.match_boxes(points, points)

    def match_any(self, points: Ranks, near: bool = False) -> Bools:
        points = as_points(points, self._d)
        found = np.zeros(len(points), np.bool_)
        for packed in self._held:
            mark(packed.nodes, packed.alive, points, found)
        return found

    def match_boxes(self, lows: Ranks, highs: Ranks) -> Matches:
        lows, highs = as_points(lows, self._d), as_points(highs, self._d)
        found = [packed.collect(lows, highs) for packed in self._held]
        return united(found) if found else Matches.none()

    def insert(self, boxes: Boxes, owners: Ints) -> None:
        assert boxes.d == self._d
        tail, tail_owners = self.tail.boxes()
        tail, tail_owners = tail.joined(boxes), np.concatenate([tail_owners, owned(boxes, owners)])
        if len(tail) ** 2 > self.fanout * max(self.fanout, self.tree.live):
            self._pack_with(tail, tail_owners)
        else:
            self.tail = Packed.of(_one_leaf(tail), tail_owners)

    def _pack_with(self, tail: Boxes, tail_owners: Ints) -> None:
        kept, kept_owners = self.tree.boxes()
        self._pack_all(kept.joined(tail), np.concatenate([kept_owners, tail_owners]))

    def remove(self, owners: Ints) -> None:
        gone = np.unique(np.asarray(owners, dtype=np.int64))
        for packed in self._held:
            packed.remove(gone)

    def widen(self, d: int) -> None:
        """Cost: that of a build, for nodes have the corners of all dimensions."""
        assert d >= self._d
        boxes, owners = self.boxes()
        self._d = d
        self._pack_all(boxes.widened(d), owners)

    def resort(self) -> None:
        """Pack all live boxes anew. Cost: that of a build."""
        self._pack_with(*self.tail.boxes())

    def boxes(self) -> tuple[Boxes, Ints]:
        (tree, owners), (tail, tail_owners) = self.tree.boxes(), self.tail.boxes()
        return tree.joined(tail), np.concatenate([owners, tail_owners])

    def order(self, points: Ranks) -> Ints | None:
        """A search begins at the root, whatever was asked before."""
        return None

    def boxes_of(self, owners: Ints) -> tuple[Boxes, Ints]:
        """Cost: a pass over all of them; a tree has no index of its boxes."""
        boxes, every = self.boxes()
        some = np.isin(every, owners)
        return boxes.take(some), every[some]

    def keep(self, shelf: Shelf) -> Any:
        return [msgspec.to_builtins(packed.keep(shelf)) for packed in (self.tree, self.tail)]

    def open(self, kept: Any, shelf: Shelf) -> None:
        self.tree, self.tail = (Packed.opened(one, shelf) for one in msgspec.convert(kept, tuple[_Kept, _Kept]))

    def memory(self) -> int:
        return self.tree.memory() + self.tail.memory()

    def check(self) -> None:
        """Assert the invariants of the tree and of the tail, and that both are as small as promised."""
        self.tree.check()
        self.tail.check()
        assert (self.tree.nodes.end - self.tree.nodes.first <= self.fanout).all()
        assert len(self.tail.nodes.first) <= 1


def no_nodes(d: int) -> Nodes:
    """The tree of no boxes."""
    none = np.empty(0, np.int64)
    return Nodes(none, none, np.empty(0, np.bool_), np.empty((0, 2 * d), np.int64), none)


def _one_leaf(boxes: Boxes) -> Nodes:
    """The tree whose root is the only leaf: its search is a scan."""
    n = len(boxes)
    if n == 0:
        return no_nodes(boxes.d)
    rows = np.arange(n)
    return Nodes(np.array([0]), np.array([n]), np.array([True]), interleaved(boxes, rows), rows)


def interleaved(boxes: Boxes, rows: Ints) -> Ranks:
    """Corners of these rows as nodes store them."""
    return np.stack([boxes.lows[rows], boxes.highs[rows]], axis=2).reshape(len(rows), 2 * boxes.d)
