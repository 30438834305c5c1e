"""Entries by id, and their boxes in flat arrays that compiled scans read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry, PackedEntries, pack_boxes, pack_numbers

DEAD = -1
"""The owner of rows whose entry was removed."""
_ROOM_MIN = 16


@njit
def meeting(lows: Ranks, highs: Ranks, owners: Ints, low: Ranks, high: Ranks) -> Ints:
    """The live rows that meet the box low..high."""
    found, count = np.empty(len(owners), np.int64), 0
    for i in range(len(owners)):
        meets = owners[i] >= 0
        for j in range(len(low)):
            if not meets:
                break
            meets = lows[i, j] <= high[j] and highs[i, j] >= low[j]
        if meets:
            found[count] = i
            count += 1
    return found[:count]


@njit
def containing(lows: Ranks, highs: Ranks, owners: Ints, low: Ranks, high: Ranks, start: int) -> int:
    """The first live row at or after `start` that contains the box low..high, or -1."""
    for i in range(start, len(owners)):
        contains = owners[i] >= 0
        for j in range(len(low)):
            if not contains:
                break
            contains = lows[i, j] <= low[j] and highs[i, j] >= high[j]
        if contains:
            return i
    return -1


@njit
def contained(lows: Ranks, highs: Ranks, owners: Ints, low: Ranks, high: Ranks) -> Ints:
    """The live rows that the box low..high contains."""
    found, count = np.empty(len(owners), np.int64), 0
    for i in range(len(owners)):
        inside = owners[i] >= 0
        for j in range(len(low)):
            if not inside:
                break
            inside = lows[i, j] >= low[j] and highs[i, j] <= high[j]
        if inside:
            found[count] = i
            count += 1
    return found[:count]


@njit
def _disjoint(lows: Ranks, highs: Ranks) -> bool:
    """Whether no two rows meet; rows that begin after another ends in the first dimension are passed over by a sort."""
    order = np.argsort(lows[:, 0])
    for a in range(len(order)):
        i = order[a]
        for b in range(a + 1, len(order)):
            k = order[b]
            if lows[k, 0] > highs[i, 0]:
                break
            meets = True
            for j in range(1, lows.shape[1]):
                if lows[i, j] > highs[k, j] or highs[i, j] < lows[k, j]:
                    meets = False
                    break
            if meets:
                return False
    return True


def entry_boxes(entry: Geometry) -> Boxes:
    """The boxes of one entry, in memory that kernels can take. Asserts what `reduction.py` says of entries."""
    assert isinstance(entry, Boxes)
    boxes = entry.owned()
    assert len(boxes) < 2 or _disjoint(boxes.lows, boxes.highs), "the boxes of one entry overlap"
    return boxes


class EntryRows:
    """Entries in the order of their coming; the boxes of one lie together, under a number that rises with each.

        row     0     1     2     3     4
        owner   0     0    -1     2     3        entry 1 was removed: its rows are dead until the arrays are full,
                a, box 0 and 1    c     d        and then written anew

    A mark, a truth value of the method's own, stands beside each box.
    """

    def __init__(self, d: int) -> None:
        self.entries: dict[str, Boxes] = {}
        self._start: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._next = 0
        self.size = self.marked = 0
        """How many boxes there are, and how many are marked."""
        self._allocate(d, _ROOM_MIN)

    def _allocate(self, d: int, capacity: int) -> None:
        self._lows, self._highs = np.empty((capacity, d), np.int64), np.empty((capacity, d), np.int64)
        self._owners, self._marks = np.empty(capacity, np.int64), np.empty(capacity, bool)
        self._n = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, id: str) -> bool:
        return id in self.entries

    # --- changes

    def add(self, id: str, boxes: Boxes, marks: Bools | None = None) -> None:
        """Take an entry in, as the last."""
        assert id not in self.entries
        n = len(boxes)
        start, end = self._n, self._n + n
        if end > len(self._owners):
            self._make_room(n)
            start, end = self._n, self._n + n
        self._lows[start:end], self._highs[start:end] = boxes.lows, boxes.highs
        self._owners[start:end] = self._next
        self._marks[start:end] = False if marks is None else marks
        self.entries[id], self._start[id] = boxes, start
        if n:
            self._ids[self._next] = id
        self._next += 1
        self._n = end
        self.size += n
        self.marked += 0 if marks is None else int(marks.sum())

    def fill(self, entries: dict[str, Boxes], boxes: Boxes, marks: Bools | None = None) -> None:
        """Become `entries`, whose boxes are `boxes` in their order; was empty."""
        assert not self.entries
        n = len(boxes)
        sizes = np.array([len(each) for each in entries.values()], np.int64)
        self._allocate(boxes.d, max(_ROOM_MIN, 2 * n))
        self._lows[:n], self._highs[:n] = boxes.lows, boxes.highs
        self._owners[:n] = np.repeat(np.arange(len(entries)), sizes)
        self._marks[:n] = False if marks is None else marks
        self.entries, self._next = entries, len(entries)
        self._ids = {number: id for number, id in enumerate(entries) if len(entries[id])}
        self._start = dict(zip(entries, (np.cumsum(sizes) - sizes).tolist(), strict=True))
        self._n = self.size = n
        self.marked = 0 if marks is None else int(marks.sum())

    def remove(self, id: str) -> Boxes:
        """Remove an entry; its boxes."""
        boxes, start = self.entries.pop(id), self._start.pop(id)
        end = start + len(boxes)
        if end > start:
            del self._ids[int(self._owners[start])]
            self._owners[start:end] = DEAD
            self.size -= len(boxes)
            self.marked -= int(self._marks[start:end].sum()) if self.marked else 0
        return boxes

    def mark(self, marks: Bools) -> None:
        """Say anew which boxes are marked, in the order of `boxes()`."""
        self._marks[self.live()] = marks
        self.marked = int(marks.sum())

    def _make_room(self, more: int) -> None:
        live = self.live()
        lows, highs, owners, marks = self._lows[live], self._highs[live], self._owners[live], self._marks[live]
        self._allocate(lows.shape[1], max(_ROOM_MIN, 2 * (len(live) + more)))
        self._n = n = len(live)
        self._lows[:n], self._highs[:n], self._owners[:n], self._marks[:n] = lows, highs, owners, marks
        start = 0
        for id, boxes in self.entries.items():
            self._start[id] = start
            start += len(boxes)

    def packed(self) -> PackedEntries:
        """The entries in their order."""
        sizes = [len(boxes) for boxes in self.entries.values()]
        return PackedEntries(list(self.entries), pack_numbers(sizes), pack_boxes(self.boxes()))

    # --- questions

    def live(self) -> Ints:
        """The rows that are not dead."""
        return np.flatnonzero(self._owners[: self._n] >= 0)

    def boxes(self, rows: Ints | None = None) -> Boxes:
        """The boxes of some rows, or of all entries in their order."""
        taken = self.live() if rows is None else rows
        return Boxes(self._lows[taken], self._highs[taken])

    def number(self, id: str) -> int:
        """The number of an entry that has boxes: greater than that of those before it."""
        return int(self._owners[self._start[id]])

    def id(self, number: int) -> str:
        """The entry of a number."""
        return self._ids[number]

    def owners(self, rows: Ints) -> list[str]:
        """The entry that owns each of `rows`."""
        return [self._ids[number] for number in self._owners[rows].tolist()]

    def ids(self, rows: Ints) -> list[str]:
        """The entries that own `rows`, each once, in the order of their coming."""
        return [self._ids[number] for number in np.unique(self._owners[rows]).tolist()]

    def marks(self, rows: Ints | None = None) -> Bools:
        return self._marks[self.live() if rows is None else rows]

    def marks_of(self, id: str) -> Bools:
        start = self._start[id]
        return self._marks[start : start + len(self.entries[id])].copy()

    def meeting(self, low: Ranks, high: Ranks) -> Ints:
        """The rows that meet a box."""
        return meeting(*self._arrays(), low, high)

    def containing(self, low: Ranks, high: Ranks) -> int:
        """The first row that contains a box, or -1."""
        return containing(*self._arrays(), low, high, 0)

    def coverer(self, boxes: Boxes) -> str | None:
        """The first entry that contains each of `boxes` within one of its own."""
        lows, highs, owners = self._arrays()
        row = -1
        while (row := int(containing(lows, highs, owners, boxes.lows[0], boxes.highs[0], row + 1))) >= 0:
            id = self._ids[int(owners[row])]
            if len(boxes) == 1 or covers(self.entries[id], boxes):
                return id
        return None

    def inside(self, boxes: Boxes) -> list[str]:
        """The entries all of whose boxes lie inside one of `boxes` each."""
        arrays = self._arrays()
        rows = contained(*arrays, boxes.lows[0], boxes.highs[0])
        if len(boxes) > 1:
            rest = (contained(*arrays, low, high) for low, high in zip(boxes.lows[1:], boxes.highs[1:], strict=True))
            rows = np.unique(np.concatenate([rows, *rest]))
        if len(rows) == 0:
            return []
        numbers, counts = np.unique(self._owners[rows], return_counts=True)
        ids = [self._ids[number] for number in numbers.tolist()]
        return [id for id, count in zip(ids, counts.tolist(), strict=True) if count == len(self.entries[id])]

    def _arrays(self) -> tuple[Ranks, Ranks, Ints]:
        """Lows, highs and owners of all rows, dead ones included: what the scans above take."""
        return self._lows[: self._n], self._highs[: self._n], self._owners[: self._n]

    def check(self) -> None:
        """Assert: the arrays are the entries, in their order."""
        live = self.live()
        assert self.size == len(live) == sum(len(boxes) for boxes in self.entries.values())
        assert self.marked == int(self._marks[live].sum())
        assert sorted(self._ids.values()) == sorted(id for id, boxes in self.entries.items() if len(boxes))
        assert (np.diff(self._owners[live]) >= 0).all()
        for id, boxes in self.entries.items():
            rows = np.arange(self._start[id], self._start[id] + len(boxes))
            assert self.boxes(rows) == boxes
            assert set(self.owners(rows)) <= {id}


def covers(outer: Boxes, inner: Boxes) -> bool:
    """Whether each box of `inner` lies inside one box of `outer`."""
    inside = (outer.lows[:, None, :] <= inner.lows[None, :, :]) & (outer.highs[:, None, :] >= inner.highs[None, :, :])
    return bool(inside.all(axis=2).any(axis=0).all())


def largest_first(entries: dict[str, Boxes], domain: Boxes) -> Iterable[tuple[str, Boxes]]:
    """Entries by their share of the domain, the larger first, equally large ones by id."""
    if len(entries) < 2:
        return entries.items()
    sides = Boxes.concatenated(list(entries.values()), domain.d).sides() / domain.sides()
    owners = np.repeat(np.arange(len(entries)), [len(boxes) for boxes in entries.values()])
    sizes = np.bincount(owners, sides.prod(axis=1), len(entries))
    order = sorted(zip((-sizes).tolist(), entries, strict=True))
    return [(id, entries[id]) for _, id in order]
