"""A set of filters that can be asked which of them overlap another one.

[BADV06] §4.3 and §4.4, used for both directions: filled with advertisements it answers for a new
subscription, filled with subscriptions for a new advertisement. Filters stand in groups (advertisements: one
per neighbour).

    filter that asks ──normal form──> conjunctions, as bits ──> predicates they violate ──> trees left alive

Differs: the paper counts violating predicates per tree in a hit vector, takes the trees with |P| >= |P_vio| +
|P_min| as candidates, and evaluates those, once per set of violating predicates. Here every tree is evaluated
for all sets at once, stopping at the first reason for a no, which costs less than counting does
(`benchmarks/advertisements.py` runs both). `candidates` still says how many there are, and
`boolean_counting.py` is the paper's way.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from state.advertisements.extents import disjoint
from state.advertisements.filter_programs import (
    BITS,
    UNKNOWN,
    Asked,
    ByShape,
    ShapeTable,
    Stored,
    Trees,
    all_overlapping,
    by_shape,
    candidates,
    first_overlapping,
)
from state.advertisements.normal import Leaf, Normal
from state.advertisements.predicates import PredicateTable
from state.advertisements.rows import Rows, grown
from state.arrays import Ints
from state.space.event_type import EventType

SPARSE_MIN = 64
"""A group of more rows than this is packed anew when less than a quarter of them are in use."""


class Group:
    """Filters that are answered for together, as rows of predicate numbers with the shape's number last."""

    def __init__(self) -> None:
        self.rows = Rows(np.int32)
        self.ids = np.empty(0, object)

    def add(self, id: str, numbers: list[int]) -> int:
        row = self.rows.add(numbers)
        self.ids = grown(self.ids, self.rows.size)
        self.ids[row] = id
        return row

    def remove(self, row: int) -> None:
        self.ids[row] = None
        self.rows.remove(row)


class FilterIndex:
    """Filters under ids, in groups, with the predicates and shapes that they share.

    Guarantee: what overlaps is exact for normal forms without patterns, and never loses an overlap.
    Cost: adding and removing O(leaves), amortised; asking O(trees looked at * leaves reached), and microseconds for
    each distinct text that a pattern (other than a prefix) has to be tried on.
    """

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self.predicates = PredicateTable(event_type)
        self.shapes = ShapeTable()
        self.groups: dict[str, Group] = {}
        self.evaluated = 0
        """Trees evaluated so far, by all questions."""
        self.changes = 0
        """Filters added and removed so far."""
        self._place: dict[str, tuple[str, int]] = {}
        self._filters: dict[str, Normal] = {}
        self._memo = np.empty(0, np.int64)
        self._by_shape: dict[str, ByShape] = {}
        """By group, while nothing changes: its trees, those of one shape together."""

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, id: str) -> bool:
        return id in self._filters

    def __getitem__(self, id: str) -> Normal:
        return self._filters[id]

    def ids(self) -> list[str]:
        """All ids, in the order in which they came."""
        return list(self._filters)

    def add(self, id: str, filter: Normal, group: str = "") -> None:
        """Add a filter; one that was there under this id is replaced."""
        self.remove(id)
        self.changes += 1
        self._by_shape.clear()
        self._filters[id] = filter
        if filter.never:
            return  # overlaps nothing: it needs no place
        numbers = [self.predicates.hold(leaf) for leaf in filter.leaves]
        numbers.append(self.shapes.hold(filter.shape))
        if group not in self.groups:
            self.groups[group] = Group()
        self._place[id] = group, self.groups[group].add(id, numbers)

    def remove(self, id: str) -> bool:
        """Remove a filter; tell whether it was there."""
        if self._filters.pop(id, None) is None:
            return False
        self.changes += 1
        self._by_shape.clear()
        place = self._place.pop(id, None)
        if place is not None:
            name, row = place
            group = self.groups[name]
            *numbers, shape = group.rows.row(row)[0].tolist()
            group.remove(row)
            if not len(group.rows) or (group.rows.size > SPARSE_MIN and 4 * len(group.rows) < group.rows.size):
                self._repack(name)
            for number in numbers:
                self.predicates.release(number)
            self.shapes.release(shape)
        return True

    def _repack(self, name: str) -> None:
        """Number the filters of a group anew, without the gaps that removals left; an empty group goes."""
        old, new = self.groups.pop(name), Group()
        for row in np.flatnonzero(old.rows.count[: old.rows.size] >= 0).tolist():
            id = old.ids[row]
            self._place[id] = name, new.add(id, old.rows.row(row)[0].tolist())
        if len(new.rows):
            self.groups[name] = new

    def overlapping(self, filter: Normal, first: bool = False) -> dict[str, list[str]]:
        """Return the ids that overlap `filter`, by group; with `first` one of each group that has any.

        [BADV06] §6.2, the scenarios All and First. Groups without an overlap are left out.
        """
        return self._first(filter) if first else self._all(filter)

    def _all(self, filter: Normal) -> dict[str, list[str]]:
        found = {name: self.groups[name].ids[rows].tolist() for name, rows in self.rows(filter).items()}
        return {name: ids for name, ids in found.items() if ids}

    def rows(self, filter: Normal) -> dict[str, Ints]:
        """The rows of all filters that overlap `filter`, by group: positions in its `ids`, in their order."""
        hits = {name: np.zeros(group.rows.size, bool) for name, group in self.groups.items()}
        for asked, memo in self._questions(filter):
            for name, group in self.groups.items():
                order = self._in_order(name)
                all_overlapping(self.trees(group), self.stored(), asked, memo, order, hits[name])
                self.evaluated += len(order[0])
        return {name: np.flatnonzero(hit) for name, hit in hits.items()}

    def _in_order(self, name: str) -> ByShape:
        if name not in self._by_shape:
            self._by_shape[name] = by_shape(self.trees(self.groups[name]))
        return self._by_shape[name]

    def _first(self, filter: Normal) -> dict[str, list[str]]:
        rows = {name: group.rows.size for name, group in self.groups.items()}
        for asked, memo in self._questions(filter):
            for name, group in self.groups.items():
                rows[name], evaluated = first_overlapping(self.trees(group), self.stored(), asked, memo, rows[name])
                self.evaluated += evaluated
        return {name: [self.groups[name].ids[row]] for name, row in rows.items() if row < self.groups[name].rows.size}

    def candidates(self, filter: Normal) -> list[int]:
        """For each conjunction of `filter` how many stored filters are candidates, [BADV06] §4.3."""
        result: list[int] = []
        for asked, memo in self._questions(filter):
            counts = np.zeros(int(asked.full).bit_length(), np.int64)
            for group in self.groups.values():
                candidates(self.trees(group), self.shapes.minimum, self.stored(), asked, memo, counts)
            result += counts.tolist()
        return result

    def violating(self, filter: Normal) -> list[list[Leaf]]:
        """P'_vio of a filter, [BADV06] §4.3: for each of its conjunctions the predicates it violates."""
        by_leaf = [set(self.predicates.violating(leaf).tolist()) for leaf in filter.leaves]
        result = []
        for members in filter.shape.conjunctions:
            numbers = sorted(set().union(*(by_leaf[i] for i in members)))
            result.append([leaf for n in numbers if (leaf := self.predicates.things[n]) is not None])
        return result

    @property
    def associations(self) -> int:
        """How many predicates all filters use, repeated ones counted again: the paper's measure of memory."""
        return self.predicates.associations

    def stats(self) -> dict[str, int]:
        """Figures for people."""
        rows = [group.rows for group in self.groups.values()]
        return {
            "filters": len(self),
            "groups": len(self.groups),
            "predicates": len(self.predicates),
            "associations": self.associations,
            "shapes": len(self.shapes),
            "evaluated": self.evaluated,
            "bytes": self.predicates.nbytes + self.shapes.rows.nbytes + sum(each.nbytes for each in rows),
        }

    def check(self) -> None:
        """Assert every invariant."""
        self.predicates.check()
        self.shapes.check()
        uses = np.zeros(self.predicates.rows.size, np.int64)
        shape_uses = np.zeros(self.shapes.rows.size, np.int64)
        for name, group in self.groups.items():
            group.rows.check()
            assert len(group.rows), "an empty group stays behind"
            for row in np.flatnonzero(group.rows.count[: group.rows.size] >= 0).tolist():
                id = group.ids[row]
                assert self._place[id] == (name, row)
                *numbers, shape = group.rows.row(row)[0].tolist()
                assert tuple(self.predicates.things[n] for n in numbers) == self._filters[id].leaves
                assert self.shapes.things[shape] is self._filters[id].shape
                np.add.at(uses, numbers, 1)
                shape_uses[shape] += 1
        assert np.array_equal(uses, self.predicates.uses[: len(uses)])
        assert np.array_equal(shape_uses, self.shapes.uses[: len(shape_uses)])
        assert sum(len(group.rows) for group in self.groups.values()) == len(self._place)
        assert {id for id, filter in self._filters.items() if not filter.never} == set(self._place)
        for name, (order, ends) in self._by_shape.items():
            assert all(map(np.array_equal, (order, ends), by_shape(self.trees(self.groups[name]))))

    def stored(self) -> Stored:
        """The predicates as the kernels see them."""
        table, rows = self.predicates, self.predicates.rows
        return Stored(table.dimension, rows.start, rows.count, rows.columns[0], rows.columns[1])

    def trees(self, group: Group) -> Trees:
        """The trees of a group as the kernels see them."""
        rows, programs = group.rows, self.shapes.rows
        start, count = rows.start[: rows.size], rows.count[: rows.size]
        return Trees(start, count, rows.columns[0], programs.start, programs.count, *programs.columns)

    def _questions(self, filter: Normal) -> Iterator[tuple[Asked, Ints]]:
        """The filter as the kernels see it, 62 conjunctions at a time, each with a memo for its answers."""
        order = sorted(range(len(filter.leaves)), key=lambda i: filter.leaves[i].dimension)
        begin, span = [0] * (self.event_type.d + 1), [0]
        lows: list[int] = []
        highs: list[int] = []
        for i in order:
            leaf = filter.leaves[i]
            begin[leaf.dimension + 1] += 1
            leaf_lows, leaf_highs = self.predicates.columns_of(leaf)
            lows += leaf_lows
            highs += leaf_highs
            span.append(len(lows))
        arrays = np.cumsum(begin), np.array(span), np.array(lows, np.int64), np.array(highs, np.int64)
        count = len(filter.shape.conjunctions)
        for offset in range(0, count, BITS):
            full = (1 << min(BITS, count - offset)) - 1
            masks = [mask >> offset & full for mask in filter.shape.masks]
            asked = Asked(*arrays, np.array([masks[i] for i in order], np.int64), full)
            yield asked, self._memo_for(filter, masks, full)

    def _memo_for(self, filter: Normal, masks: list[int], full: int) -> Ints:
        """A memo that is empty but for the predicates that need a look at text."""
        self._memo = grown(self._memo, self.predicates.rows.size)
        memo = self._memo[: self.predicates.rows.size]
        memo[:] = UNKNOWN
        special = {number for leaf in filter.leaves for number in self.predicates.special(leaf)}
        for number in special:
            stored, word = self.predicates.things[number], full
            assert stored is not None
            for leaf, mask in zip(filter.leaves, masks, strict=True):
                if leaf.dimension == stored.dimension and disjoint(leaf.extent, stored.extent):
                    word &= ~mask
            memo[number] = word
        return memo
