"""The predicates that occur in a set of filters, each stored once.

Where [BADV06] §4.2 looks up violating predicates. The paper keeps one index per attribute and operator. Here
a predicate is a row of closed spans of int64 codes, whatever its operator, and is tested when a tree that
uses it is looked at, at most once per question: a stored predicate that no tree asks for costs nothing, and
one that a thousand trees share costs one test.

    code of a number, boolean, category, timestamp    its rank
    code of a text                                    its place among the bounds in use, with room between
    code of absent                                    ABSENT, below all others

Differs: no sorted index. In the mode All every tree looks at its predicates anyway, and in the mode First
only a few trees are looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from state.advertisements.extents import END, Extent, disjoint, is_points
from state.advertisements.normal import Leaf
from state.advertisements.rows import Pool, grown
from state.space.boxes import ABSENT
from state.space.event_type import EventType

Codes = NDArray[np.int64]

_EDGE = 1 << 61
_STEP = 1 << 40


class TextOrder:
    """Texts with integer labels in the same order; a new text gets a label without moving the others.

    >>> order = TextOrder()
    >>> for text in ("b", "a", "c"):
    ...     relabelled = order.hold(text)
    >>> order.place("a") < order.place("aa") < order.place("b") < order.place("c") < order.place("d")
    True
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.labels: list[int] = []
        self.uses: dict[str, int] = {}

    def hold(self, text: str) -> tuple[Codes, Codes] | None:
        """Count one more use of a text; if all labels had to move, return the old and the new ones."""
        self.uses[text] = self.uses.get(text, 0) + 1
        if self.uses[text] > 1:
            return None
        i = bisect_left(self.texts, text)
        moved = None if self._has_room(i) else self._spaced()
        self.texts.insert(i, text)
        self.labels.insert(i, self._label(i))
        return moved

    def release(self, text: str) -> None:
        """Count one use less of a text."""
        self.uses[text] -= 1
        if self.uses[text] == 0:
            i = bisect_left(self.texts, text)
            del self.texts[i], self.labels[i], self.uses[text]

    def place(self, text: Any) -> int:
        """The label of a text, or a number between those of the texts around it."""
        if text is END:
            return _EDGE
        i = bisect_left(self.texts, text)
        if i < len(self.texts) and self.texts[i] == text:
            return self.labels[i]
        return self.labels[i - 1] + 1 if i else -_EDGE

    def _around(self, i: int) -> tuple[int, int]:
        low = self.labels[i - 1] if i else -_EDGE
        return low, self.labels[i] if i < len(self.labels) else _EDGE

    def _has_room(self, i: int) -> bool:
        low, high = self._around(i)
        return high - low >= 8  # two apart on both sides, so that `place` finds a number between

    def _spaced(self) -> tuple[Codes, Codes]:
        before = np.array(self.labels, np.int64)
        step = 2 * _EDGE // (len(self.labels) + 1) & ~1
        self.labels = [(k + 1) * step - _EDGE for k in range(len(self.labels))]
        return before, np.array(self.labels, np.int64)

    def _label(self, i: int) -> int:
        low, high = self._around(i)
        middle = (low + high) // 2
        # Texts that come in order would halve the room at an end each time: there, go in steps.
        if i == len(self.labels):
            middle = min(middle, low + _STEP) if i else middle
        elif i == 0:
            middle = max(middle, high - _STEP)
        return middle & ~1

    def check(self) -> None:
        """Assert every invariant."""
        assert self.texts == sorted(self.uses)
        assert all(count > 0 for count in self.uses.values())
        edges = [-_EDGE, *self.labels, _EDGE]
        assert all(high - low >= 2 for low, high in pairwise(edges))


class PredicateTable(Pool[Leaf]):
    """The predicates of a set of filters; `uses` counts their associations, one per occurrence."""

    def __init__(self, event_type: EventType) -> None:
        super().__init__(self.columns_of, np.int64, np.int64)
        self.event_type = event_type
        self.dimension = np.zeros(0, np.int32)
        self.since = np.zeros(0, np.int64)
        """When each predicate came, counted in predicates that ever came."""
        self.came = 0
        self.orders = {i: TextOrder() for i, attribute in enumerate(event_type.attributes) if attribute.kind == "text"}
        self.of_dimension: list[dict[int, None]] = [{} for _ in event_type.attributes]
        self._points: dict[int, dict[int, None]] = {i: {} for i in self.orders}
        self._patterned: dict[int, dict[int, None]] = {i: {} for i in self.orders}
        self.associations = 0

    def columns_of(self, leaf: Leaf) -> tuple[list[int], list[int]]:
        """The closed spans of codes that stand for a leaf, stored or asked about: lows and highs."""
        order = self.orders.get(leaf.dimension)
        absent = [ABSENT] if leaf.extent.absent else []
        spans = leaf.extent.spans
        if order is None:
            return absent + [low for low, _ in spans], absent + [high - 1 for _, high in spans]
        lows, highs = [order.place(low) for low, _ in spans], [order.place(high) - 1 for _, high in spans]
        return absent + lows, absent + highs

    def hold(self, leaf: Leaf) -> int:
        self.associations += 1
        return super().hold(leaf)

    def release(self, number: int) -> None:
        self.associations -= 1
        super().release(number)

    def violating(self, leaf: Leaf) -> Codes:
        """The numbers of the stored predicates that no value satisfies together with `leaf`, ascending.

        P_vio of a leaf, [BADV06] §4.2. Cost: vectorised over the stored predicates of its attribute.
        """
        numbers = np.array(list(self.of_dimension[leaf.dimension]), np.int64)
        places, counts = self.rows.places(numbers), self.rows.count[numbers]
        lows, highs = (column[places] for column in self.rows.columns)
        meets = np.zeros(len(places), bool)
        for low, high in zip(*self.columns_of(leaf), strict=True):
            meets |= (lows <= high) & (highs >= low)
        owner = np.repeat(np.arange(len(numbers)), counts)
        apart = np.bincount(owner, meets, len(numbers)) == 0
        special = self.special(leaf)
        if special:
            at = {number: i for i, number in enumerate(numbers.tolist())}
            for number in special:
                apart[at[number]] = disjoint(self.extent(number), leaf.extent)
        return np.sort(numbers[apart])

    def special(self, leaf: Leaf) -> list[int]:
        """The stored predicates that codes do not decide: patterns, or texts against the leaf's patterns."""
        if leaf.dimension not in self.orders:
            return []
        patterned = self._patterned[leaf.dimension]
        if leaf.extent.patterned:
            return [*patterned, *self._points[leaf.dimension]]
        return list(patterned) if is_points(leaf.extent.spans) else []

    def extent(self, number: int) -> Extent:
        """The values that a stored predicate allows."""
        leaf = self.things[number]
        assert leaf is not None
        return leaf.extent

    def _enter(self, leaf: Leaf) -> int:
        order = self.orders.get(leaf.dimension)
        if order is not None:
            for text in _bounds(leaf.extent):
                moved = order.hold(text)
                if moved is not None:
                    self._relabel(leaf.dimension, *moved)
        number = super()._enter(leaf)
        self.dimension = grown(self.dimension, self.rows.size)
        self.dimension[number] = leaf.dimension
        self.came += 1
        self.since = grown(self.since, self.rows.size)
        self.since[number] = self.came
        for kept in self._kept_in(leaf):
            kept[number] = None
        return number

    def _leave(self, number: int) -> Leaf:
        leaf = super()._leave(number)
        for kept in self._kept_in(leaf):
            del kept[number]
        order = self.orders.get(leaf.dimension)
        if order is not None:
            for text in _bounds(leaf.extent):
                order.release(text)
        return leaf

    def _kept_in(self, leaf: Leaf) -> list[dict[int, None]]:
        kept = [self.of_dimension[leaf.dimension]]
        if leaf.dimension in self.orders:
            if leaf.extent.patterned:
                kept.append(self._patterned[leaf.dimension])
            elif leaf.extent.spans and is_points(leaf.extent.spans):
                kept.append(self._points[leaf.dimension])
        return kept

    def _relabel(self, dimension: int, before: Codes, after: Codes) -> None:
        """Move the codes of an attribute's predicates from the old labels to the new ones."""
        places = self.rows.places(np.array(list(self.of_dimension[dimension]), np.int64))
        for column, offset in zip(self.rows.columns, (0, 1), strict=True):
            codes = column[places] + offset  # a closed high end stands one below its bound
            at = np.searchsorted(before, codes)
            known = (at < len(before)) & (before[np.minimum(at, len(before) - 1)] == codes)
            column[places[known]] = after[at[known]] - offset

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.uses.nbytes + self.dimension.nbytes)

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        assert self.associations == int(self.uses[: self.rows.size].sum())
        for dimension, order in self.orders.items():
            order.check()
            held = [text for n in self.of_dimension[dimension] for text in _bounds(self.extent(n))]
            assert order.texts == sorted(set(held))
        for dimension, numbers in enumerate(self.of_dimension):
            assert all(self.dimension[number] == dimension for number in numbers)
        assert sum(map(len, self.of_dimension)) == len(self)


def _bounds(extent: Extent) -> list[str]:
    return [bound for span in extent.spans for bound in span if bound is not END]
