"""Conformance: does a publication keep what its publisher advertised? [BADV06] §3.3.

The semantics of an advertisement is a promise: every publication of its publisher satisfies it. A publisher may
have several; a publication conforms if one of them holds. What is checked are the advertisements as they were
written, never pruned ones: pruning widens what a broker assumes, not what a publisher may send.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from state.arrays import Bools, Ints
from state.filters.evaluate import Event, Holds, TextOf, compile, matches, matches_batch
from state.filters.tree import Filter
from state.space.boxes import Ranks
from state.space.event_type import EventType


def conforms(filter: Filter, event: Event, event_type: EventType) -> bool:
    """Tell whether one publication satisfies one advertisement; to ask many times, use `Promises`."""
    return matches(filter, event, event_type)


class Promises:
    """The advertisements that entered at one broker, by publisher.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute, EventType
    >>> book = EventType("book", (Attribute("price", "float"),))
    >>> promises = Promises(book)
    >>> promises.add("a1", "shop", parse("price > 5", book))
    >>> promises.conforms("shop", {"price": 7}), promises.conforms("shop", {"price": 3})
    (True, False)
    >>> promises.conforms("stranger", {"price": 7})
    False
    """

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self._of: dict[str, dict[str, tuple[Filter, Holds]]] = {}
        self._publisher: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._publisher)

    def add(self, id: str, publisher: str, filter: Filter, compiled: Holds | None = None) -> None:
        """Add an advertisement (`compiled` if that is done already); one under the same id is replaced."""
        self.remove(id)
        self._publisher[id] = publisher
        self._of.setdefault(publisher, {})[id] = filter, compiled or compile(filter, self.event_type)

    def remove(self, id: str) -> bool:
        """Remove an advertisement; tell whether it was there."""
        publisher = self._publisher.pop(id, None)
        if publisher is None:
            return False
        del self._of[publisher][id]
        if not self._of[publisher]:
            del self._of[publisher]
        return True

    def conforms(self, publisher: str, event: Event) -> bool:
        """Tell whether some advertisement of the publisher holds for a publication (decoded JSON)."""
        return any(holds(event) for _, holds in self._of.get(publisher, {}).values())

    def conforms_batch(self, publishers: Sequence[str], ranks: Ranks, text: TextOf | None = None) -> Bools:
        """Tell for each row of rank vectors whether it conforms, row i being of `publishers[i]`.

        `text(attribute, rows)` gives the text of rows that their ranks leave open (`matches_batch`).
        Guarantee: equal to `conforms` on each precise event; an imprecise one is not a rank vector, ask `conforms`.
        Cost: vectorised per advertisement of the batch's publishers, each seeing the rows that were left open.
        """
        result = np.zeros(len(ranks), bool)
        rows_of: dict[str, list[int]] = {}
        for row, publisher in enumerate(publishers):
            rows_of.setdefault(publisher, []).append(row)
        for publisher, found in rows_of.items():
            rows = np.array(found)
            for filter, _ in self._of.get(publisher, {}).values():
                held = matches_batch(filter, ranks[rows], self.event_type, _of_rows(text, rows))
                result[rows[held]] = True
                rows = rows[~held]
                if not len(rows):
                    break
        return result

    def check(self) -> None:
        """Assert every invariant."""
        assert sum(map(len, self._of.values())) == len(self._publisher)
        assert all(self._of.values()), "a publisher without advertisements stays behind"
        assert all(id in self._of[publisher] for id, publisher in self._publisher.items())


def _of_rows(text: TextOf | None, rows: Ints) -> TextOf | None:
    """The same for a part of the batch, whose row i is rows[i]."""
    if text is None:
        return None
    whole = text
    return lambda attribute, part: whole(attribute, rows[part])
