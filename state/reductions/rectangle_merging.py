"""Merging by minimum bounding rectangle ([MICS09] §3.6, figure 5b), perfect or within a budget.

Boxes are gathered in groups, and a neighbour gets the bounding rectangle of each. That is one box however
many it stands for. With a budget it also covers space that nobody asked for: the excess that MICS avoids (figure 5c).

       ┌───┐                     ┌─────────┐
       │ a │ ┌───┐    becomes    │ a . . . │     extra: every dot
       └───┘ │ b │               │ . . . b │
             └───┘               └─────────┘

Which boxes to group well is NP-complete (the paper's [15]); here a box joins, of all groups, the one whose rectangle
grows over the least space that neither held, if that is at most `budget` times what the two hold. With a budget
of 0 only such boxes merge that make a rectangle exactly: perfect merging, as far as rectangles can.

A group goes under the id of its first member's entry, and of its box where that is not the first: `b1/s7`, `b1/s7.2`.
No subscription has an id with a point in it, so the names of a part's groups differ, also from those that come from
other neighbours: behind each of these are other brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from state import formats
from state.arrays import Bools, Floats, Ints
from state.reductions.arrivals import Arrivals, entry_boxes
from state.reductions.entry_rows import EntryRows
from state.reductions.parameters import MergingSettings, read
from state.reductions.reduction import Decision, Delta, Fate
from state.space.boxes import Boxes, Ranks
from state.space.packing import (
    Geometry,
    PackedEntries,
    pack_entries,
    pack_numbers,
    unpack_entries,
    unpack_numbers,
)

MANY = 32
"""Boxes that come together from which on one pass is the cheaper way."""
FORMAT = 4
"""3: a group that loses a member and stays keeps its place among the others."""
Member = tuple[str, int]
"""An entry's id and the number of one of its boxes."""


class _State(msgspec.Struct, array_like=True):
    entries: PackedEntries
    groups: bytes
    """How many groups there are, the size of each, then their members as positions among all boxes."""
    merged: int


def _volumes(lows: Ranks, highs: Ranks) -> Floats:
    """Cells of each box, 0 if it is upside down, as floats: sides of 2^64 in many dimensions fit."""
    return np.where(highs >= lows, Boxes(lows, highs).sides(), 0.0).prod(axis=1)  # type: ignore[no-any-return]


def added_space(lows: Ranks, highs: Ranks, low: Ranks, high: Ranks) -> tuple[Floats, Floats]:
    """For each rectangle: the space its bounding with one more box adds beyond both, and the space both hold."""
    bounding = _volumes(np.minimum(lows, low), np.maximum(highs, high))
    common = _volumes(np.maximum(lows, low), np.minimum(highs, high))
    both = _volumes(lows, highs) + _volumes(low[None, :], high[None, :]) - common
    return bounding - both, both


def makes_rectangles(lows: Ranks, highs: Ranks, low: Ranks, high: Ranks) -> Bools:
    """For each rectangle: whether it and one more box, that does not lie in it, are a rectangle, in integers."""
    inside = ((lows >= low) & (highs <= high)).all(axis=1)
    alike = ((lows != low) | (highs != high)).sum(axis=1) <= 1
    start, end = np.maximum(lows, low), np.minimum(highs, high)
    return inside | (alike & ((start <= end) | (start - 1 == end)).all(axis=1))


class RectangleMerging:
    """Forwards the bounding rectangles of groups of boxes, each under the id of the group's first member.

    Implements [MICS09] figure 5b. A group that loses a member is taken apart and its members are placed anew, in the
    step that takes the old rectangle back, so that nothing remains of what was withdrawn and nothing else is lost.
    What a new or grown rectangle contains joins it.
    Guarantee: a budget of 0: exact; else a superset, each merge adding at most `budget` times what it merges.
    Cost: a box is held against the rectangles in it and those that differ from it in one dimension, found by a tree in
    d + 1 questions, of many boxes in one compiled pass; with a budget against all, O(groups * d), vectorised. A
    removal: O(1) from a group whose rectangle another member is, as long as it is neither the first nor that one; else
    that of placing the group's members anew.

    >>> merging = RectangleMerging(Boxes.of([([0, 0], [9, 9])]), {"budget": 0.5})
    >>> a, b = Boxes.of([([0, 0], [1, 3])]), Boxes.of([([2, 1], [3, 3])])
    >>> delta = merging.update({"a": a, "b": b})
    >>> {id: (box.lows.tolist(), box.highs.tolist()) for id, box in delta.added.items()}
    {'a': ([[0, 0]], [[3, 3]])}
    """

    many: int = MANY

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        assert isinstance(domain, Boxes)
        self.domain = domain
        self.budget = read(MergingSettings, parameters).budget
        self._entries: dict[str, Boxes] = {}
        self._groups: dict[str, dict[Member, None]] = {}
        """Members of each group, the one that it is named after first."""
        self._whole: dict[str, Member] = {}
        """The first member of a group that is the whole rectangle, where there is one: while it stays, so does this."""
        self._of: dict[Member, str] = {}
        """The group of each box."""
        self._rectangles = EntryRows(domain.d)
        """One box for each group."""
        self._merged = 0
        self._before: dict[str, Boxes | None] = {}
        """What the neighbour held, of every group that the step under way touched."""

    # --- changes

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        """Add, replace and remove entries; the neighbour's rectangles change by the difference."""
        self._before = {}
        news: dict[str, Boxes] = {}
        for id, boxes in added.items():
            held = self._entries.get(id)
            if held is None or held != boxes:
                news[id] = entry_boxes(boxes)
        gone = [id for id in dict.fromkeys(removed) if id in self._entries and id not in added]
        homeless = self._take_apart([*gone, *(id for id in news if id in self._entries)])
        for id in gone:
            del self._entries[id]
        for id, boxes in news.items():
            self._entries.pop(id, None)
            self._entries[id] = boxes
            homeless += [(id, i) for i in range(len(boxes))]
        if len(homeless) < self.many or self.budget:
            for member in homeless:
                self._place(member)
        else:
            self._place_all(homeless)
        return self._delta()

    def _delta(self) -> Delta:
        new: dict[str, Geometry] = {}
        removed = []
        for name, old in self._before.items():
            now = self._rectangles.entries.get(name)
            if now is None and old is not None:
                removed.append(name)
            elif now is not None and (old is None or old != now):
                new[name] = now
        return Delta(new, tuple(removed))

    def _take_apart(self, gone: Sequence[str]) -> list[Member]:
        """Dissolve every group with a member that goes; return the members that stay without one.

        A group stays as it is where one of those that stay is the whole rectangle.
        """
        leaving: dict[str, list[Member]] = {}
        for id in gone:
            for i in range(len(self._entries[id])):
                leaving.setdefault(self._of.pop((id, i)), []).append((id, i))
        homeless: list[Member] = []
        for name, members in leaving.items():
            group = self._groups[name]
            for member in members:
                del group[member]
            whole = self._whole.get(name)
            if whole is None or whole not in group:
                rectangle = self._rectangles.entries[name]
                whole = next((member for member in group if self._is_whole(member, rectangle)), None)
            if whole is not None and _name(next(iter(group))) == name:
                self._whole[name] = whole
                continue
            rectangle = self._dissolved(name)
            if whole is None:
                homeless += group
            else:
                self._form([whole, *(member for member in group if member != whole)], rectangle, whole)
        for member in homeless:
            del self._of[member]
        return homeless

    def _dissolved(self, name: str) -> Boxes:
        """A group is no more; the rectangle that it had."""
        rectangle = self._rectangles.remove(name)
        self._before.setdefault(name, rectangle)
        del self._groups[name]
        self._whole.pop(name, None)
        return rectangle

    def _is_whole(self, member: Member, rectangle: Boxes) -> bool:
        low, high = self._box(member)
        return bool((low == rectangle.lows[0]).all() and (high == rectangle.highs[0]).all())

    def _form(self, group: Sequence[Member], rectangle: Boxes, whole: Member | None) -> None:
        """Make a group, named after its first member; `whole`: the first of them that is the rectangle, if any is."""
        name = _name(group[0])
        self._before.setdefault(name, None)
        self._groups[name] = dict.fromkeys(group)
        self._of |= dict.fromkeys(group, name)
        if whole is not None:
            self._whole[name] = whole
        self._rectangles.add(name, rectangle)

    def _place(self, member: Member) -> None:
        """Add one box to a group that holds it, to the one that grows least, or make it a group."""
        low, high = self._box(member)
        holding = self._holding(low, high)
        if holding is not None:
            self._groups[holding][member] = None
            self._of[member] = holding
            if holding not in self._whole and self._is_whole(member, self._rectangles.entries[holding]):
                self._whole[holding] = member
            self._merged += 1
            return
        grown = self._cheapest(low, high)
        group, rectangle = [member], Boxes(low[None], high[None])
        if grown is not None:
            rectangle = rectangle.joined(self._absorbed(grown, group)).bounding()
        for inner in self._rectangles.inside(rectangle):
            self._absorbed(inner, group)
        self._merged += len(group) > 1
        # Of what it takes in nobody is the whole rectangle: that one would have held the new box.
        whole = member if self._is_whole(member, rectangle) else None
        if grown is not None:
            # The new one is no reason to call the group by another name.
            group.append(group.pop(0))
        self._form(group, rectangle, whole)

    def _place_all(self, members: Sequence[Member]) -> None:
        """The same for many, one after another, without a budget: in one compiled pass."""
        each = [self._boxes_of(member) for member in members]
        news = Arrivals([_name(member) for member in members], each, self.domain.d)
        merged, names, left = self._rectangles.merge_in(news)
        first, begin = max(names) - len(members) + 1, 0  # the new ones have the last numbers
        judged = zip(merged.holders.tolist(), merged.whole.tolist(), merged.ends.tolist(), strict=True)
        for i, (holder, whole, end) in enumerate(judged):
            member = members[i]
            if holder >= 0:
                name = names[holder]
                self._groups[name][member] = None
                if whole:
                    self._whole.setdefault(name, member)
                self._merged += 1
            else:
                name, group = names[first + i], [member]
                for inner in merged.taken[begin:end].tolist() if end > begin else ():
                    self._before.setdefault(names[inner], left.get(names[inner]))
                    group += self._groups.pop(names[inner])
                    self._whole.pop(names[inner], None)
                if merged.grown[i]:
                    group.append(group.pop(0))
                self._merged += len(group) > 1
                self._before.setdefault(name, None)
                self._groups[name] = dict.fromkeys(group)
                self._of.update(dict.fromkeys(group, name) if len(group) > 1 else ())
                if whole:
                    self._whole[name] = member
                begin = end
            self._of[member] = name

    def _boxes_of(self, member: Member) -> Boxes:
        boxes = self._entries[member[0]]
        return boxes if len(boxes.lows) == 1 else boxes.take(np.array([member[1]]))

    def _absorbed(self, name: str, group: list[Member]) -> Boxes:
        """Let the members of a group join another; the rectangle that they had."""
        group += self._groups[name]
        return self._dissolved(name)

    def _box(self, member: Member) -> tuple[Ranks, Ranks]:
        boxes = self._entries[member[0]]
        return boxes.lows[member[1]], boxes.highs[member[1]]

    def _holding(self, low: Ranks, high: Ranks) -> str | None:
        """The first group whose rectangle holds a box."""
        row = self._rectangles.containing(low, high)
        return None if row < 0 else self._rectangles.owners(np.array([row]))[0]

    def _cheapest(self, low: Ranks, high: Ranks) -> str | None:
        """The group whose rectangle would grow over the least space, if that is within the budget."""
        if not self.budget:
            return self._perfect(low, high)
        if not len(self._rectangles):
            return None
        live = self._rectangles.live()
        rectangles = self._rectangles.boxes(live)
        extra, both = added_space(rectangles.lows, rectangles.highs, low, high)
        extra = np.where(extra <= self.budget * both, extra, np.inf)
        best = int(np.argmin(extra))
        return self._rectangles.owners(live[best : best + 1])[0] if np.isfinite(extra[best]) else None

    def _perfect(self, low: Ranks, high: Ranks) -> str | None:
        """The first group whose rectangle makes one with a box: such lie in it, or differ from it in one dimension.

        Not by volumes: they are rounded, and that must not let a merge pass for perfect.
        """
        known = self._rectangles
        beside = [known.beside(low, high, j) for j in range(len(low))]
        near = np.unique(np.concatenate([known.within(low, high), *beside]))
        rectangles = known.boxes(near)
        fits = near[makes_rectangles(rectangles.lows, rectangles.highs, low, high)]
        return known.owners(fits[:1])[0] if len(fits) else None

    # --- questions

    def decide(self, entry: Geometry) -> Decision:
        """Covered if each of its boxes lies in one rectangle."""
        by: dict[str, None] = {}
        for low, high in entry_boxes(entry):
            held = self._holding(low, high)
            if held is None:
                return Decision(False, tuple(by), "a box lies in no single rectangle")
            by[held] = None
        return Decision(True, tuple(by), "every box lies in one rectangle")

    def rectangles(self) -> Boxes:
        """What is forwarded, as one set of boxes; they may overlap."""
        return self._rectangles.boxes()

    def forwarded(self) -> dict[str, Geometry]:
        return dict(self._rectangles.entries)

    def fate(self, id: str) -> Fate:
        """Forwarded if each of its boxes is a group of its own, else merged."""
        names = list(dict.fromkeys(self._of[id, i] for i in range(len(self._entries[id]))))
        if not names:
            return Fate("covered")
        alone = all(len(self._groups[name]) == 1 for name in names)
        return Fate("forwarded") if alone and names == [id] else Fate.of("forwarded" if alone else "merged", names)

    def fates(self, ids: Sequence[str]) -> dict[str, Fate]:
        return {id: self.fate(id) for id in ids}

    def stats(self) -> dict[str, int | float]:
        boxes = len(self._of)
        return {
            "entries": len(self._entries),
            "forwarded": len(self._groups),
            "withheld": boxes - len(self._groups),
            "bytes": 16 * self.domain.d * (boxes + len(self._groups)),
            "merged": self._merged,
        }

    def check(self) -> None:
        """Assert: every box is in one group, and each rectangle bounds its members exactly."""
        self._rectangles.check()
        members = {member: name for name, group in self._groups.items() for member in group}
        assert members == self._of
        assert sorted(members) == sorted((id, i) for id, boxes in self._entries.items() for i in range(len(boxes)))
        assert self._groups.keys() == self._rectangles.entries.keys()
        for name, group in self._groups.items():
            assert name == _name(next(iter(group)))
            rectangle = self._rectangles.entries[name]
            assert rectangle == self._bounding(list(group))
            assert self._whole.get(name) == next((m for m in group if self._is_whole(m, rectangle)), None)

    def _bounding(self, group: Sequence[Member]) -> Boxes:
        lows, highs = zip(*map(self._box, group), strict=True)
        return Boxes(np.min(lows, axis=0, keepdims=True), np.max(highs, axis=0, keepdims=True))

    # --- state

    def encode(self) -> bytes:
        """Pack the entries and the groups, in the order of their rectangles."""
        members = ((id, i) for id, boxes in self._entries.items() for i in range(len(boxes)))
        positions = {member: position for position, member in enumerate(members)}
        groups = [self._groups[name] for name in self._rectangles.entries]
        numbers = [len(groups), *map(len, groups), *(positions[member] for group in groups for member in group)]
        entries = pack_entries(self._entries, self.domain.d)
        return formats.write(FORMAT, _State(entries, pack_numbers(numbers), self._merged))

    @classmethod
    def decode(cls, blob: bytes, domain: Geometry, parameters: Mapping[str, object] | None = None) -> RectangleMerging:
        """The reduction that `encode` packed."""
        self = cls(domain, parameters)
        state = formats.read("merged rectangles", FORMAT, blob, _State)
        self._entries, boxes = unpack_entries(state.entries, self.domain.d)
        self._merged = state.merged
        members = [(id, i) for id, own in self._entries.items() for i in range(len(own))]
        count, at = unpack_numbers(state.groups, 1)
        sizes, at = unpack_numbers(state.groups, int(count[0]), at)
        positions, at = unpack_numbers(state.groups, len(members), at)
        whole = sorted(positions.tolist()) == list(range(len(members))) and int(sizes.sum()) == len(members)
        if not whole or at != len(state.groups) or not (sizes > 0).all():
            raise formats.unreadable("merged rectangles", f"groups of {len(boxes)} boxes")
        if members:
            self._restore(boxes.take(positions), [members[row] for row in positions.tolist()], sizes)
        return self

    def _restore(self, boxes: Boxes, members: list[Member], sizes: Ints) -> None:
        """Take over groups of so many members each, with their boxes."""
        ends = np.cumsum(sizes)
        starts = ends - sizes
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            group = members[start:end]
            self._groups[_name(group[0])] = dict.fromkeys(group)
            self._of |= dict.fromkeys(group, _name(group[0]))
        lows, highs = np.minimum.reduceat(boxes.lows, starts), np.maximum.reduceat(boxes.highs, starts)
        rectangles = {name: Boxes(lows[i : i + 1], highs[i : i + 1]) for i, name in enumerate(self._groups)}
        of_group = np.repeat(np.arange(len(sizes)), sizes)
        whole = (boxes.lows == lows[of_group]).all(axis=1) & (boxes.highs == highs[of_group]).all(axis=1)
        names = list(self._groups)
        for row in np.flatnonzero(whole).tolist():
            self._whole.setdefault(names[of_group[row]], members[row])
        self._rectangles.fill(rectangles, Boxes(lows, highs))


def _name(member: Member) -> str:
    """The id of the group that begins with a box."""
    id, number = member
    return f"{id}.{number}" if number else id
