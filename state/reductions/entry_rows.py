"""Entries by id, and their boxes in flat arrays that compiled scans and a tree read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from state.arrays import Bools, Floats, Ints, Words
from state.kernels import njit
from state.reductions.arrivals import Arrivals, by_share
from state.reductions.cover_links import CoverLinks
from state.reductions.group_pass import (
    COUNTS,
    NO_TREE,
    ONE_OPEN,
    GroupTree,
    Nodes,
    judge_again,
    judge_box,
    needed_of_each,
    shares,
)
from state.reductions.judging import PAIRWISE, Rules
from state.reductions.merging_pass import Merged
from state.reductions.row_tree import LEAST, MOST, between
from state.space.boxes import Boxes, Ranks
from state.space.packing import PackedEntries, pack_boxes, pack_numbers

Left = dict[str, list[tuple[str, Boxes, int]]]
"""Who left for an entry, with their boxes and the row at which they began."""


class Taken(NamedTuple):
    """What a pass did with entries."""

    covered: Bools
    """Of each."""
    members: Ints
    """The first rows of who covers each that is, one after another."""
    ends: Ints
    """Where those of each entry end."""
    left: Left
    """By the id of a new one."""


DEAD = -1
"""The owner of rows whose entry was removed."""
ROWS_MIN = 256
"""Rows below which a scan is as good as a tree."""
SCANS_MAX = 32
"""Scans of all rows before a tree of them is built, which costs about as much."""
_ROOM_MIN = 16


@njit
def _scan(points: Ranks, owners: Ints, floor: Ranks, ceiling: Ranks) -> Ints:
    """The live rows between, in their order."""
    found, count = np.empty(len(owners), np.int64), 0
    for i in range(len(owners)):
        if owners[i] >= 0 and between(points, i, floor, ceiling):
            found[count] = i
            count += 1
    return found[:count].copy()


@njit
def _scan_first(points: Ranks, owners: Ints, floor: Ranks, ceiling: Ranks) -> int:
    """The first live row between, or -1."""
    for i in range(len(owners)):
        if owners[i] >= 0 and between(points, i, floor, ceiling):
            return i
    return -1


@njit
def _touch(points: Ranks, owners: Ints, starts: Ints, lows: Ranks, highs: Ranks) -> Bools:
    """Which entries, whose rows begin at `starts`, have a row that meets one of the boxes."""
    d = lows.shape[1]
    touched = np.zeros(len(starts), np.bool_)
    for i in range(len(starts)):
        row = starts[i]
        while not touched[i] and row < len(owners) and owners[row] == owners[starts[i]]:
            for box in range(len(lows)):
                meets = True
                for j in range(d):
                    if points[row, j] > highs[box, j] or points[row, d + j] < lows[box, j]:
                        meets = False
                        break
                if meets:
                    touched[i] = True
                    break
            row += 1
    return touched


class EntryRows:
    """Entries in the order of their coming; the boxes of one lie together, under a number that rises with each.

        row     0     1     2     3     4
        owner   0     0    -1     2     3        entry 1 was removed: its rows are dead until the arrays are full,
                a, box 0 and 1    c     d        and then written anew

    A mark, a truth value of the method's own, stands beside each box.

    Questions scan the rows at first; where there are many and questions go on, they ask a tree (`row_tree.py`), which
    follows each change. The answers are the same. Neither is packed: a state that is unpacked for one change pays for
    one scan.
    Cost, n boxes: a question O(n) for the first few, then O(log n + answers) where boxes are spread; a change O(log n).
    """

    def __init__(self, d: int) -> None:
        self.entries: dict[str, Boxes] = {}
        self._start: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._next = 0
        self.size = self.marked = 0
        """How many boxes there are, and how many are marked."""
        self.moved: Callable[[Ints, int], None] | None = None
        """Told when rows are written anew: those that there were, in their order, and how much room there is now."""
        self._least, self._most = np.full(d, LEAST), np.full(d, MOST)
        self._allocate(d, _ROOM_MIN)

    def _allocate(self, d: int, capacity: int) -> None:
        self._d = d
        self._points = np.empty((capacity, 2 * d), np.int64)
        """Lows, then highs, of each box."""
        self._owners, self._marks = np.empty(capacity, np.int64), np.empty(capacity, bool)
        self._n = 0
        self._tree: GroupTree | None = None
        self._scanned = 0
        """Rows that were looked at since there are so many."""

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
        self._points[start:end, : self._d], self._points[start:end, self._d :] = boxes.lows, boxes.highs
        self._owners[start:end] = self._next
        self._marks[start:end] = False if marks is None else marks
        self.entries[id], self._start[id] = boxes, start
        if n:
            self._ids[self._next] = id
        self._next += 1
        self._n = end
        if self._tree is not None:
            for row in range(start, end):
                self._tree.add(row)
        self.size += n
        self.marked += 0 if marks is None else int(marks.sum())

    def extend(self, news: Arrivals) -> Ints:
        """Take entries in, as the last; the row at which each begins.

        Cost: O(boxes) in a few passes; a tree takes them in one compiled one.
        """
        if not len(news):
            return np.empty(0, np.int64)
        firsts = self._write(news)
        self._enter(news, firsts, self._next - len(news))
        if self._tree is not None:
            self._tree.add_all(int(firsts[0]), self._n)
        return firsts

    def _write(self, news: Arrivals) -> Ints:
        """Write the rows of entries behind the others, under the next numbers; where each begins. No tree knows them.

        Who stays of them must be entered before anything is asked.
        """
        sizes, boxes = news.sizes, news.boxes
        n = len(boxes)
        if self._n + n > len(self._owners):
            self._make_room(n)
        start, end = self._n, self._n + n
        self._points[start:end, : self._d], self._points[start:end, self._d :] = boxes.lows, boxes.highs
        self._owners[start:end] = np.repeat(np.arange(self._next, self._next + len(news)), sizes)
        self._marks[start:end] = False
        self._next += len(news)
        self._n = end
        return start + np.cumsum(sizes) - sizes

    def _enter(self, news: Arrivals, firsts: Ints, number: int, stay: Bools | None = None) -> None:
        """Know entries whose rows are written, or some of them; the first has this number."""
        numbers = np.arange(number, number + len(news))
        if stay is not None:
            news, firsts, numbers = news.where(stay), firsts[stay], numbers[stay]
        assert self.entries.keys().isdisjoint(news.ids)
        self.entries.update(zip(news.ids, news.each, strict=True))
        self._start.update(zip(news.ids, firsts.tolist(), strict=True))
        some = zip(numbers.tolist(), news.ids, strict=True)
        self._ids.update(some if news.sizes.all() else compress(some, news.sizes.tolist()))
        self.size += int(news.sizes.sum())

    def take_in(self, news: Arrivals) -> Taken:
        """Take in, one after another, the entries that no entry covers; those that one contains leave.

        Returns who covers each that is covered, at the moment it came; and who left for a new one. What is covered or
        left is not here afterwards. No entry is marked; there are `news`, and none is empty.
        Cost: that of asking the tree twice for each, compiled (`pairwise.py`).
        """
        number = self._next
        tree, firsts = self._beside(news)
        by, retired = tree.take_in(self._owners[: self._n], firsts, news.sizes)
        covered = by >= 0
        self._enter(news, firsts, number, ~covered)
        return Taken(covered, by[covered], np.cumsum(covered), self._left(news, retired))

    def take_in_by_groups(self, news: Arrivals, words: Words, rules: Rules, counts: Floats) -> Taken:
        """The same where several together may cover one (`group_pass.py`).

        `words`: of their ids; `counts` go on. Cost: that of judging each, compiled.
        """
        taken, retired = self._take_in_by_groups(news, words, rules, counts)
        return taken._replace(left=self._left(news, retired))

    def take_in_by_boxes(self, news: Arrivals) -> tuple[Taken, Ints]:
        """The same where each box of one must lie in one box of another; who covers one in the order of their coming.

        Returns also the numbers of those who left, each with the position of whom it left for.
        """
        words, counts = np.zeros(len(news), np.uint64), np.zeros(COUNTS)
        taken, retired = self._take_in_by_groups(news, words, PAIRWISE, counts)
        groups = np.repeat(np.arange(len(news)), np.diff(taken.ends, prepend=0))
        members = taken.members[np.lexsort((taken.members, groups))]
        return taken._replace(members=members, left=self._left(news, retired)), retired

    def _take_in_by_groups(self, news: Arrivals, words: Words, rules: Rules, counts: Floats) -> tuple[Taken, Ints]:
        """What became of each, as long as all that did have their numbers; and who must be struck."""
        number = self._next
        tree, firsts = self._beside(news)
        rows = self._owners[: self._n]
        members, ends, retired = tree.take_in_by_groups(rows, firsts, news.sizes, words, rules, counts)
        covered = np.diff(ends, prepend=0) > 0
        self._enter(news, firsts, number, ~covered)
        return Taken(covered, members, ends, {}), retired

    def merge_in(self, news: Arrivals) -> tuple[Merged, dict[int, str], dict[str, Boxes]]:
        """Let entries of one box each join entries of one box, or take their place, as `merging_pass.py` says.

        What takes the place of one that it makes a rectangle with goes under its id, else under its own. Returns what
        became of each, the ids of all numbers in that, and who left of those that were here. No entry is marked; there
        are `news`. Cost: that of asking the tree d + 3 times for each, compiled.
        """
        number = self._next
        tree, firsts = self._beside(news)
        owners = self._owners[: self._n]
        merged = tree.merge_in(owners, int(firsts[0]))
        told = np.unique(np.concatenate([merged.taken, merged.holders]))
        names = {old: self._ids[old] for old in told[(told >= 0) & (told < number)].tolist()}
        names |= enumerate(news.ids, number)
        left = {names[old]: self._strike(old)[1] for old in merged.taken[merged.taken < number].tolist()}
        each, at = list(news.each), np.flatnonzero(merged.grown)
        of_first = merged.taken[np.append(0, merged.ends)[at]]
        for i, first in zip(at.tolist(), of_first.tolist(), strict=True):
            names[number + i] = names[first]
            each[i] = self.boxes(firsts[i : i + 1])
        ids = [names[number + i] for i in range(len(news))]
        self._enter(Arrivals(ids, each, self._d), firsts, number, owners[firsts] >= 0)
        return merged, names, left

    def take_in_marked(self, news: Arrivals, judge: Callable[[GroupTree, int], Bools]) -> Bools:
        """Take in the first of some entries of one box each, marked, but for those that a judge finds covered.

        `judge` is given the tree and the first row, lets the tree take in what is not covered as far as it goes, and
        says for each it came to whether it is covered. Returns what it said.
        """
        number, marked = self._next, self.marked
        tree, firsts = self._beside(news)
        size = int(firsts[0])
        covered = judge(tree, size)
        done = len(covered)
        self._owners[size : size + done][covered] = DEAD
        self._n, self._next = size + done, number + done
        self._marks[size : size + done] = ~covered
        self._enter(news.span(0, done), firsts[:done], number, ~covered)
        self.marked = marked + int((~covered).sum())
        return covered

    def _beside(self, news: Arrivals) -> tuple[GroupTree, Ints]:
        """Write the rows of entries that are to be taken in; the tree without them, and where each begins."""
        firsts = self._write(news)
        if self._tree is None:
            live = self.live()
            self._tree = GroupTree(self._points, live[live < firsts[0]])
        return self._tree, firsts

    def _left(self, news: Arrivals, retired: Ints) -> Left:
        """Strike what a pass retired; by the id of a new one who left for it."""
        left: Left = {}
        for number, i in retired.tolist():
            left.setdefault(news.ids[i], []).append(self._strike(number))
        return left

    def _strike(self, number: int) -> tuple[str, Boxes, int]:
        """An entry whose rows are dead already is no more."""
        id = self._ids.pop(number)
        boxes = self.entries.pop(id)
        self.size -= len(boxes)
        return id, boxes, self._start.pop(id)

    def fill(self, entries: dict[str, Boxes], boxes: Boxes, marks: Bools | None = None) -> None:
        """Become `entries`, whose boxes are `boxes` in their order; was empty."""
        assert not self.entries
        n = len(boxes)
        sizes = np.array([len(each.lows) for each in entries.values()], np.int64)
        self._allocate(boxes.d, max(_ROOM_MIN, 2 * n))
        self._points[:n, : boxes.d], self._points[:n, boxes.d :] = boxes.lows, boxes.highs
        self._owners[:n] = np.repeat(np.arange(len(entries)), sizes)
        self._marks[:n] = False if marks is None else marks
        self.entries, self._next = entries, len(entries)
        self._ids = dict(enumerate(entries) if sizes.all() else compress(enumerate(entries), sizes.tolist()))
        self._start = dict(zip(entries, (np.cumsum(sizes) - sizes).tolist(), strict=True))
        self._n = self.size = n
        self.marked = 0 if marks is None else int(marks.sum())
        if self.moved is not None:
            self.moved(np.empty(0, np.int64), len(self._owners))

    def remove(self, id: str) -> Boxes:
        """Remove an entry; its boxes."""
        boxes, start = self.entries.pop(id), self._start.pop(id)
        end = start + len(boxes)
        if end > start:
            del self._ids[int(self._owners[start])]
            self._owners[start:end] = DEAD
            if self._tree is not None:
                for row in range(start, end):
                    self._tree.remove(row)
            self.size -= len(boxes)
            self.marked -= int(self._marks[start:end].sum()) if self.marked else 0
        return boxes

    def mark(self, marks: Bools) -> None:
        """Say anew which boxes are marked, in the order of `boxes()`."""
        self._marks[self.live()] = marks
        self.marked = int(marks.sum())

    def _make_room(self, more: int) -> None:
        live, had_tree = self.live(), self._tree is not None
        points, owners, marks = self._points[live], self._owners[live], self._marks[live]
        self._allocate(self._d, max(_ROOM_MIN, 2 * (len(live) + more)))
        self._n = n = len(live)
        self._points[:n], self._owners[:n], self._marks[:n] = points, owners, marks
        sizes = np.array([len(boxes.lows) for boxes in self.entries.values()], np.int64)
        self._start = dict(zip(self.entries, (np.cumsum(sizes) - sizes).tolist(), strict=True))
        if had_tree and n >= ROWS_MIN:
            self._tree = GroupTree(self._points, np.arange(n))
        if self.moved is not None:
            self.moved(live, len(self._owners))

    def packed(self) -> PackedEntries:
        """The entries in their order."""
        sizes = np.array([len(boxes.lows) for boxes in self.entries.values()], np.int64)
        return PackedEntries(list(self.entries), pack_numbers(sizes), pack_boxes(self.boxes()))

    # --- questions

    def live(self) -> Ints:
        """The rows that are not dead."""
        return np.flatnonzero(self._owners[: self._n] >= 0)

    def boxes(self, rows: Ints | None = None) -> Boxes:
        """The boxes of some rows, or of all entries in their order."""
        points = self._points[self.live() if rows is None else rows]
        return Boxes(np.ascontiguousarray(points[:, : self._d]), np.ascontiguousarray(points[:, self._d :]))

    @property
    def next_number(self) -> int:
        """What the next entry will have."""
        return self._next

    def number(self, id: str) -> int:
        """The number of an entry that has boxes: greater than that of those before it."""
        return int(self._owners[self._start[id]])

    def id(self, number: int) -> str:
        """The entry of a number."""
        return self._ids[number]

    def row(self, id: str) -> int:
        """Where the rows of an entry begin: known until rows are written anew."""
        return self._start[id]

    def by_share(self, starts: Ints, sides: Floats) -> Ints:
        """The order of the entries that begin there by their shares of a domain with such sides: `arrivals.by_share`.

        Cost: one compiled pass over their boxes; in Python only those of equal shares.
        """
        found, order, alike = shares(self._points, self._owners[: self._n], starts, sides)
        return by_share(found, lambda some: self.owners(starts[some])) if alike else order

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
        """The rows that meet a box, in their order."""
        return self._between(np.concatenate([self._least, low]), np.concatenate([high, self._most]))

    def within(self, low: Ranks, high: Ranks) -> Ints:
        """The rows that lie inside a box, in their order."""
        return self._between(np.concatenate([low, self._least]), np.concatenate([self._most, high]))

    def beside(self, low: Ranks, high: Ranks, j: int) -> Ints:
        """The rows that are as a box in all dimensions but j, where they meet or touch it; in their order."""
        floor, ceiling = np.concatenate([low, high]), np.concatenate([low, high])
        floor[j], ceiling[j] = LEAST, min(int(high[j]), MOST - 1) + 1
        floor[self._d + j], ceiling[self._d + j] = max(int(low[j]), LEAST + 1) - 1, MOST
        return self._between(floor, ceiling)

    def containing(self, low: Ranks, high: Ranks) -> int:
        """The first row that contains a box, or -1."""
        return self._first_between(np.concatenate([self._least, high]), np.concatenate([low, self._most]))

    def judged(self, low: Ranks, high: Ranks, rules: Rules, word: np.uint64) -> tuple[int, Ints, Ranks, Floats]:
        """Which step decided whether the rows cover a box; those that do, a witness, and figures of guesses.

        `word`: of the id that asks (`rspc.py`).
        """
        point, figures = np.empty(self._d, np.int64), np.empty(3)
        owners, found, nodes = self._question()
        step, rows = judge_box(self._points, owners, *nodes, found, rules, low, high, word, point, figures)
        return int(step), rows, point, figures

    def judged_again(
        self, withheld: EntryRows, links: CoverLinks, heirs: Ints, left: Boxes, gone: Ints, spans: Ints,
        words: Words, rules: Rules, counts: Floats,
    ) -> tuple[int, int, Ints, Ints]:  # fmt: skip
        """Judge withheld entries, some of whose coverers left, as far as the first that is not covered (`judge_again`).

        `heirs`: where each begins; its span of `gone`: the rows of `left` that were in its group; `words` of their ids,
        or none. Returns how many were judged, what is to be said of them, and where begins who covers each that is
        covered; `counts` go on.
        """
        owners, _, nodes = self._question()
        done, said, by, ends = judge_again(
            self._points, owners, *nodes, rules, withheld._points, withheld._owners[: withheld._n], heirs,
            *links.groups, _rows(left), gone, spans, words, counts,
        )  # fmt: skip
        return int(done), int(said), by, ends[: done - (said == ONE_OPEN)]

    def needed(self, withheld: EntryRows, links: CoverLinks, heirs: Ints) -> tuple[Ints, Ints]:
        """Of the coverers of each withheld entry those that are needed, if that is soon seen; with the ends."""
        owners = self._owners[: self._n]
        theirs = withheld._points, withheld._owners[: withheld._n]
        by, ends = needed_of_each(self._points, owners, *theirs, heirs, *links.groups)
        return by, ends

    def _question(self) -> tuple[Ints, Ints, Nodes]:
        """The owners of all rows, room for as many, and the tree, if there is one to ask."""
        tree = self._asked()
        owners = self._owners[: self._n]
        return owners, np.empty(len(owners), np.int64), NO_TREE if tree is None else tree.nodes

    def meets(self, low: Ranks, high: Ranks) -> bool:
        """Whether any row meets a box."""
        return self._first_between(np.concatenate([self._least, low]), np.concatenate([high, self._most])) >= 0

    def starts(self, ids: Sequence[str]) -> Ints:
        """Where the rows of entries begin: known until the next change."""
        return np.fromiter(map(self._start.__getitem__, ids), np.int64, len(ids))

    def touching(self, starts: Ints, boxes: Boxes) -> Bools:
        """Which of the entries that begin there, none of which is empty, have a box that meets one of `boxes`.

        Cost: for each the pairs of boxes up to the first that meet, compiled.
        """
        return _touch(self._points[: self._n], self._owners[: self._n], starts, boxes.lows, boxes.highs)

    def coverer(self, boxes: Boxes) -> str | None:
        """The first entry that contains each of `boxes` within one of its own."""
        if len(boxes) == 1:
            row = self.containing(boxes.lows[0], boxes.highs[0])
            return None if row < 0 else self._ids[int(self._owners[row])]
        floor, ceiling = np.concatenate([self._least, boxes.highs[0]]), np.concatenate([boxes.lows[0], self._most])
        rows = self._between(floor, ceiling)
        return next((id for id in self.ids(rows) if covers(self.entries[id], boxes)), None)

    def inside(self, boxes: Boxes) -> list[str]:
        """The entries all of whose boxes lie inside one of `boxes` each, in the order of their coming."""
        found = [self.within(low, high) for low, high in boxes]
        # The boxes are disjoint, so no row is found twice.
        rows = found[0] if len(found) == 1 else np.concatenate(found)
        if len(rows) == 0:
            return []
        numbers, counts = np.unique(self._owners[rows], return_counts=True)
        ids = [self._ids[number] for number in numbers.tolist()]
        return [id for id, count in zip(ids, counts.tolist(), strict=True) if count == len(self.entries[id])]

    def _first_between(self, floor: Ranks, ceiling: Ranks) -> int:
        tree = self._asked()
        if tree is not None:
            return tree.first_between(floor, ceiling)
        return int(_scan_first(self._points[: self._n], self._owners[: self._n], floor, ceiling))

    def _between(self, floor: Ranks, ceiling: Ranks) -> Ints:
        tree = self._asked()
        if tree is not None:
            return tree.between(floor, ceiling)
        return _scan(self._points[: self._n], self._owners[: self._n], floor, ceiling)

    def _asked(self) -> GroupTree | None:
        """The tree to ask, built once scans have cost as much; None while scans will do."""
        if self._tree is None and self._n >= ROWS_MIN:
            self._scanned += self._n
            if self._scanned > SCANS_MAX * self._n:
                self._tree = GroupTree(self._points, self.live())
        return self._tree

    def check(self) -> None:
        """Assert: the arrays are the entries, in their order."""
        live = self.live()
        assert self.size == len(live) == sum(len(boxes) for boxes in self.entries.values())
        assert self.marked == int(self._marks[live].sum())
        assert sorted(self._ids.values()) == sorted(id for id, boxes in self.entries.items() if len(boxes))
        assert (np.diff(self._owners[live]) >= 0).all()
        if self._tree is not None:
            self._tree.check()
            assert np.array_equal(self._tree.rows(), live)
        for id, boxes in self.entries.items():
            rows = np.arange(self._start[id], self._start[id] + len(boxes))
            assert self.boxes(rows) == boxes
            assert set(self.owners(rows)) <= {id}


def _rows(boxes: Boxes) -> Ranks:
    """Lows, then highs, of each box."""
    return np.concatenate([boxes.lows, boxes.highs], axis=1)


def covers(outer: Boxes, inner: Boxes) -> bool:
    """Whether each box of `inner` lies inside one box of `outer`."""
    inside = (outer.lows[:, None, :] <= inner.lows[None, :, :]) & (outer.highs[:, None, :] >= inner.highs[None, :, :])
    return bool(inside.all(axis=2).any(axis=0).all())


def warm() -> None:
    """Compile or load every kernel of the rows and of their tree."""
    rows = EntryRows(1)
    for i in range(ROWS_MIN + SCANS_MAX):
        rows.add(str(i), Boxes.of([([i], [i + 1])]))
        rows.meeting(np.array([i]), np.array([i]))
        rows.containing(np.array([i]), np.array([i]))
    rows.remove("0")
    rows.touching(rows.starts(["1"]), Boxes.of([([0], [1])]))
    rows.take_in(Arrivals.of({"many": Boxes.of([([0], [1]), ([3], [4])]), "more": Boxes.of([([0], [9])])}, 1))
    rows.extend(Arrivals.of({"last": Boxes.of([([0], [1])])}, 1))
    rows.merge_in(Arrivals.of({"next": Boxes.of([([0], [1])])}, 1))
