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

from itertools import pairwise
from typing import Any

import numpy as np
from sortedcontainers import SortedDict

from state.advertisements.extents import END, Extent, disjoint, is_points
from state.advertisements.normal import Leaf
from state.advertisements.rows import Pool, grown
from state.arrays import Ints
from state.space.event_type import EventType
from state.space.ranks import ABSENT

_EDGE = 1 << 61
_STEP = 1 << 40
_SLACK = 1 << 20
"""Labels are spread over n texts where they come to lie this much times n apart."""


class TextOrder:
    """Texts with integer labels in the same order; a new text moves few of the others, most often none.

    Where there is no room left, the labels of the smallest neighbourhood that has plenty are spread evenly. How much is
    plenty grows with the neighbourhood, so that large ones are rarely needed: amortised a logarithmic number of
    labels moves per new text, whatever the order in which they come.

    >>> order = TextOrder()
    >>> for text in ("b", "a", "c"):
    ...     moved = order.hold(text)
    >>> order.place("a") < order.place("aa") < order.place("b") < order.place("c") < order.place("d")
    True
    """

    def __init__(self) -> None:
        self.labels = SortedDict()
        self.uses: dict[str, int] = {}

    def hold(self, text: str) -> list[str]:
        """Count one more use of a text, and return the texts whose labels had to move."""
        self.uses[text] = self.uses.get(text, 0) + 1
        if self.uses[text] > 1:
            return []
        i = self.labels.bisect_left(text)
        moved = [] if self._has_room(i) else self._make_room(i)
        self.labels[text] = self._label(i)
        return moved

    def release(self, text: str) -> None:
        """Count one use less of a text."""
        self.uses[text] -= 1
        if self.uses[text] == 0:
            del self.labels[text], self.uses[text]

    def place(self, text: Any) -> int:
        """The label of a text, or a number between those of the texts around it."""
        if text is END:
            return _EDGE
        known: int | None = self.labels.get(text)
        if known is not None:
            return known
        i = self.labels.bisect_left(text)
        return self._at(i - 1) + 1 if i else -_EDGE

    def _at(self, i: int) -> int:
        """The label of the i-th text; before the first and after the last one the edges."""
        if 0 <= i < len(self.labels):
            return int(self.labels.peekitem(i)[1])
        return -_EDGE if i < 0 else _EDGE

    def _has_room(self, i: int) -> bool:
        return self._at(i) - self._at(i - 1) >= 8  # two apart on both sides, so that `place` finds a number between

    def _make_room(self, i: int) -> list[str]:
        """Spread the labels around place i; return their texts."""
        count, reach = len(self.labels), 1
        while True:
            first, last = max(0, i - reach), min(count, i + reach)
            low, high = self._at(first - 1), self._at(last)
            if last - first == count or high - low >= _SLACK * (last - first) ** 2:
                break
            reach *= 2
        step = (high - low) // (last - first + 1) & ~1
        moved: list[str] = self.labels.keys()[first:last]
        for k, text in enumerate(moved, 1):
            self.labels[text] = low + k * step
        return moved

    def _label(self, i: int) -> int:
        low, high = self._at(i - 1), self._at(i)
        middle = (low + high) // 2
        # Texts that come in order would halve the room at an end each time: there, go in steps.
        if i == len(self.labels):
            middle = min(middle, low + _STEP) if i else middle
        elif i == 0:
            middle = max(middle, high - _STEP)
        return middle & ~1

    def check(self) -> None:
        """Assert every invariant."""
        assert list(self.labels) == sorted(self.uses)
        assert all(count > 0 for count in self.uses.values())
        edges = [-_EDGE, *self.labels.values(), _EDGE]
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
        self._bounding: dict[int, dict[str, dict[int, None]]] = {i: {} for i in self.orders}
        """For each text of an attribute the predicates with a span that begins or ends there."""
        self._closed: dict[int, dict[int, None]] = {i: {} for i in self.orders}
        self._patterned: dict[int, dict[int, None]] = {i: {} for i in self.orders}
        self._closed_patterned: dict[int, dict[int, None]] = {i: {} for i in self.orders}
        """The closed ones without a pattern, all with one, and those that are both."""
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

    def violating(self, leaf: Leaf) -> Ints:
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
        """The stored predicates that codes do not decide: two patterns, and one that shares but a single text.

        One of two is closed where all that they share may be single texts, and then one has a pattern, or codes decide.
        """
        if leaf.dimension not in self.orders:
            return []
        patterned, closed = self._patterned[leaf.dimension], _closed(leaf.extent)
        if not leaf.extent.patterned:
            return list(patterned if closed else self._closed_patterned[leaf.dimension])
        if any(is_points((span,)) for span in leaf.extent.spans):
            return list(self.of_dimension[leaf.dimension])
        # besides, what begins at a text that the leaf ends with
        begins = [self._bounding[leaf.dimension].get(high[:-1], {}) for _, high in leaf.extent.spans if high is not END]
        return list({**patterned, **self._closed[leaf.dimension], **{n: None for at in begins for n in at}})

    def extent(self, number: int) -> Extent:
        """The values that a stored predicate allows."""
        leaf = self.things[number]
        assert leaf is not None
        return leaf.extent

    def _enter(self, leaf: Leaf) -> int:
        texts = _bounds(leaf.extent) if leaf.dimension in self.orders else []
        for text in texts:
            self._relabel(leaf.dimension, self.orders[leaf.dimension].hold(text))
        number = super()._enter(leaf)
        for text in texts:
            self._bounding[leaf.dimension].setdefault(text, {})[number] = None
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
        for text in _bounds(leaf.extent) if leaf.dimension in self.orders else ():
            self.orders[leaf.dimension].release(text)
            bounding = self._bounding[leaf.dimension]
            del bounding[text][number]
            if not bounding[text]:
                del bounding[text]
        return leaf

    def _kept_in(self, leaf: Leaf) -> list[dict[int, None]]:
        kept = [self.of_dimension[leaf.dimension]]
        if leaf.dimension in self.orders:
            closed = _closed(leaf.extent)
            if leaf.extent.patterned:
                kept += [self._patterned[leaf.dimension], *([self._closed_patterned[leaf.dimension]] if closed else [])]
            elif closed:
                kept.append(self._closed[leaf.dimension])
        return kept

    def _relabel(self, dimension: int, moved: list[str]) -> None:
        """Write the codes of the predicates anew that are bounded by texts whose labels moved."""
        bounding = self._bounding[dimension]
        for number in dict.fromkeys(number for text in moved for number in bounding.get(text, ())):
            leaf = self.things[number]
            assert leaf is not None
            for column, codes in zip(self.rows.row(number), self.columns_of(leaf), strict=True):
                column[:] = codes

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.uses.nbytes + self.dimension.nbytes)

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        assert self.associations == int(self.uses[: self.rows.size].sum())
        for dimension, order in self.orders.items():
            order.check()
            held = {(text, n) for n in self.of_dimension[dimension] for text in _bounds(self.extent(n))}
            assert held == {(text, n) for text, ns in self._bounding[dimension].items() for n in ns}
            assert order.uses == {text: len(ns) for text, ns in self._bounding[dimension].items()}
        for dimension, numbers in enumerate(self.of_dimension):
            assert all(self.dimension[number] == dimension for number in numbers)
        assert sum(map(len, self.of_dimension)) == len(self)


def _bounds(extent: Extent) -> list[str]:
    return [bound for span in extent.spans for bound in span if bound is not END]


def _closed(extent: Extent) -> bool:
    """Whether a span ends with a text that it holds: `<= 'a'`, `= 'a'`, `<= 'a' AND t LIKE '_'`.

    All that it shares with another extent may be that one text, which a pattern of either then decides (`LIKE 'a_'` and
    `<= 'a'`; the third above and `LIKE 'a%'`).
    """
    return any(isinstance(high, str) and high.endswith("\0") for _, high in extent.spans)
