"""Which advertisements a subscription overlaps, and which subscriptions an advertisement: [BADV06] §4.

A subscription travels to a neighbour only if an advertisement that came from there overlaps it: if some event
could satisfy both.

    new subscription  ──> advertisements, by neighbour ──> First: where to forward it;  All: why
    new advertisement ──> subscriptions                ──> All: which of them must now follow it

Both sides are arbitrary Boolean filters, and "overlaps" is the same relation in both directions.
"""

from __future__ import annotations

from typing import Literal

from state.advertisements.extents import disjoint
from state.advertisements.filter_index import FilterIndex
from state.advertisements.normal import Normal, Normaliser, Structure
from state.filters.tree import Filter
from state.space.event_type import EventType

Mode = Literal["first", "all"]


class OverlapIndex:
    """The advertisements and subscriptions that one broker knows of one event type.

    Guarantee: an overlap is never missed. Without LIKE (other than by prefix) and within the limits of
    `normal.py` none is claimed that is not there. Deterministic: answers depend on the calls and their order.
    Cost: adding and removing O(predicates), amortised; asking O(filters * predicates), nanoseconds each.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute, EventType
    >>> book = EventType("book", (Attribute("title", "text"), Attribute("price", "float")))
    >>> index = OverlapIndex(book)
    >>> index.add_advertisement("a1", parse("title = 'Emma' AND price > 5", book), "b2")
    >>> index.add_advertisement("a2", parse("price > 20", book), "b3")
    >>> index.overlapping_advertisements(parse("price < 10", book))
    {'b2': ['a1']}
    >>> index.add_subscription("s1", parse("title = 'Persuasion' OR price > 100", book))
    >>> index.overlapping_subscriptions(parse("price BETWEEN 1 AND 2 AND title != 'Persuasion'", book))
    []
    """

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self.normal = Normaliser(event_type)
        self.advertisements = FilterIndex(event_type)
        self.subscriptions = FilterIndex(event_type)

    def add_advertisement(self, id: str, filter: Filter, neighbour: str) -> None:
        """Add an advertisement that came from `neighbour`; one under the same id is replaced."""
        self.advertisements.add(id, self.normal(filter), neighbour)

    def remove_advertisement(self, id: str) -> bool:
        """Remove an advertisement; tell whether it was there."""
        return self.advertisements.remove(id)

    def add_subscription(self, id: str, filter: Filter) -> None:
        """Add a subscription; one under the same id is replaced."""
        self.subscriptions.add(id, self.normal(filter))

    def remove_subscription(self, id: str) -> bool:
        """Remove a subscription; tell whether it was there."""
        return self.subscriptions.remove(id)

    def overlapping_advertisements(self, filter: Filter, mode: Mode = "first") -> dict[str, list[str]]:
        """Return the advertisements that a subscription's filter overlaps, by neighbour.

        `first`: one per neighbour that has any, which is what forwarding asks; `all`: every one.
        """
        assert mode in ("first", "all"), mode
        return self.advertisements.overlapping(self.normal(filter), mode == "first")

    def overlapping_subscriptions(self, filter: Filter) -> list[str]:
        """Return the subscriptions that an advertisement's filter overlaps."""
        return self.subscriptions.overlapping(self.normal(filter)).get("", [])

    def overlaps(self, one: Filter, other: Filter) -> bool:
        """Tell whether two filters overlap: the same relation, without an index."""
        return overlap(self.normal(one), self.normal(other))

    def associations_of(self, filter: Filter) -> int:
        """How many predicates a filter uses once it is in the index: the paper's measure of memory."""
        return len(self.normal(filter).leaves)

    def stats(self) -> dict[str, int]:
        """Figures for people: both sides, as `advertisements_...` and `subscriptions_...`."""
        sides = {"advertisements": self.advertisements, "subscriptions": self.subscriptions}
        return {f"{side}_{name}": n for side, index in sides.items() for name, n in index.stats().items()}

    def check(self) -> None:
        """Assert every invariant."""
        self.advertisements.check()
        self.subscriptions.check()


def overlap(one: Normal, other: Normal) -> bool:
    """Tell whether two filters in normal form overlap.

    [BADV06] §4.3: evaluates one of them for all conjunctions of the other at once.
    Cost: O(leaves of one * leaves of other).
    """
    if len(one.shape.conjunctions) < len(other.shape.conjunctions):
        one, other = other, one  # symmetric; the one with fewer conjunctions makes the shorter words
    full = (1 << len(other.shape.conjunctions)) - 1
    words = []
    for leaf in one.leaves:
        word = full
        for asked, mask in zip(other.leaves, other.shape.masks, strict=True):
            if asked.dimension == leaf.dimension and word & mask and disjoint(asked.extent, leaf.extent):
                word &= ~mask
        words.append(word)
    return _alive(one.shape.structure, iter(words), full) != 0


def _alive(structure: Structure, words: object, full: int) -> int:
    if structure == 0:
        return next(words)  # type: ignore[call-overload, no-any-return]
    children = [_alive(child, words, full) for child in structure[1:]]
    alive = full if structure[0] == "&" else 0
    for child in children:
        alive = alive & child if structure[0] == "&" else alive | child
    return alive
