"""Observed publications: how many of the last ones satisfy a predicate or a whole filter.

[BADV06] §2.3 and §5.3 count, for each predicate of a subscription, the publications that matched it; for new
predicates and for trees they estimate. Here the last publications are kept, and any predicate or tree, new or
old, is counted on them: nothing has to be estimated by operators, and correlated attributes count as they are.

    per attribute: values sorted  3   5   9        a span [4, 10) = after[9] ^ after[3]
                   after[value]  0b0010 0b0111 0b1111     one bit per publication
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from state.advertisements.extents import Extent, holds
from state.advertisements.normal import Leaf
from state.filters.evaluate import Event, reader
from state.filters.tree import And, Filter, Predicate
from state.space.event_type import EventType
from state.space.ranks import ABSENT, rank

WINDOW = 1024


class _Column:
    """The values of one attribute in the window, and which publications had which."""

    def __init__(self, keys: list[Any]) -> None:
        bits: dict[Any, int] = {}
        self.absent = 0
        for i, key in enumerate(keys):
            if key is None:
                self.absent |= 1 << i
            else:
                bits[key] = bits.get(key, 0) | 1 << i
        self.keys = sorted(bits)
        self.bits = [bits[key] for key in self.keys]
        self.before = [0]
        for each in self.bits:
            self.before.append(self.before[-1] | each)

    def inside(self, extent: Extent) -> int:
        found = self.absent if extent.absent else 0
        for low, high in extent.spans:
            begin, end = bisect_left(self.keys, low), bisect_left(self.keys, high)
            if not extent.patterned:
                found |= self.before[end] ^ self.before[begin]
                continue
            for i in range(begin, end):
                if holds(extent, self.keys[i]):
                    found |= self.bits[i]
        return found


class Observations:
    """A window of the last publications of one event type.

    >>> from state.advertisements.normal import Normaliser
    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute, EventType
    >>> book = EventType("book", (Attribute("price", "float"),))
    >>> observations = Observations(book)
    >>> for price in (3, 7, 9, None):
    ...     observations.observe({"price": price})
    >>> observations.matches(Normaliser(book).leaf(parse("price > 5", book)))
    2
    """

    def __init__(self, event_type: EventType, window: int = WINDOW) -> None:
        assert window > 0
        self.event_type = event_type
        self.window = window
        self.seen = 0
        """Publications observed so far, those that left the window included."""
        self._readers = [reader(attribute) if attribute.kind == "text" else None for attribute in event_type.attributes]
        self._ring: list[tuple[Any, ...]] = []
        self._columns: list[_Column] | None = None

    def __len__(self) -> int:
        return len(self._ring)

    def observe(self, event: Event) -> None:
        """Take one publication (decoded JSON) into the window; the oldest goes when it is full."""
        keys = tuple(self._key(i, event.get(attribute.name)) for i, attribute in enumerate(self.event_type.attributes))
        if len(self._ring) < self.window:
            self._ring.append(keys)
        else:
            self._ring[self.seen % self.window] = keys
        self.seen += 1
        self._columns = None

    def matches(self, leaf: Leaf) -> int:
        """How many publications of the window satisfy a predicate."""
        return self._bits(leaf).bit_count()

    def selectivity(self, filter: Filter, leaf_of: Any) -> float:
        """The share of the window that satisfies a filter; 0 while nothing was observed.

        `leaf_of` turns a predicate into a leaf (`Normaliser.leaf`). Cost: O(predicates * log window).
        """
        if not self._ring:
            return 0.0
        return self._satisfying(filter, leaf_of).bit_count() / len(self._ring)

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._ring) == min(self.seen, self.window)
        assert all(len(keys) == self.event_type.d for keys in self._ring)
        for column in self._columns or ():
            assert sum(each.bit_count() for each in column.bits) + column.absent.bit_count() == len(self._ring)

    def _satisfying(self, filter: Filter, leaf_of: Any) -> int:
        if isinstance(filter, Predicate):
            return self._bits(leaf_of(filter))
        conjunctive = isinstance(filter, And)
        found = (1 << len(self._ring)) - 1 if conjunctive else 0
        for child in filter.children:
            bits = self._satisfying(child, leaf_of)
            found = found & bits if conjunctive else found | bits
        return found

    def _bits(self, leaf: Leaf) -> int:
        if self._columns is None:
            self._columns = [_Column([keys[i] for keys in self._ring]) for i in range(self.event_type.d)]
        return self._columns[leaf.dimension].inside(leaf.extent)

    def _key(self, dimension: int, value: object) -> Any:
        """What extents compare: a rank, or text as it is; None if absent."""
        read = self._readers[dimension]
        if read is not None:
            return read(value)
        found = rank(self.event_type.attributes[dimension], value)
        return None if found == ABSENT else found
