"""Filters evaluated: one event, or a batch of rank columns; the same answer as the boxes of `geometry.py`.

    compile(filter) ──> function of one event (decoded JSON)   the edge's exact check; `matches`, `explain`
    matches_batch   ──> one bool per row of a rank array       looks at text only where ranks do not decide

The language is total (docs/filters.md): a missing, null or ill-typed attribute is absent, and a predicate on
an absent attribute is false. What could still go wrong inside an evaluation is a bug of ours, and raised: routing makes
a dead letter `internal` of the event, where an answer of *false* would be a lost delivery that nobody sees.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from state.arrays import Bools, Ints
from state.filters.geometry import intervals
from state.filters.imprecise import holds_of_box, imprecise_names, spread
from state.filters.like import Like
from state.filters.printing import predicate_text
from state.filters.tree import And, Filter, Operator, Or, Predicate, Timestamp, predicates
from state.space.boxes import Ranks
from state.space.event_type import Attribute, EventType
from state.space.ranks import ABSENT_SPAN, PRESENT_MAX, Exact, rank_span, timestamp_micros

Event = Mapping[str, object]
Holds = Callable[[Event], bool]
"""A filter, or a part of one, as a function of one event."""
Read = Callable[[object], Any]
"""A decoded JSON value to what is compared, or None if it counts as absent."""


def compile(filter: Filter, event_type: EventType) -> Holds:
    """Return the filter as a function of one event, for repeated use.

    An attribute that the type lets be imprecise may be an interval (`imprecise.py`).

    Guarantee: exact, docs/filters.md. Cost: one call per predicate that is looked at; AND and OR stop early.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute, EventType
    >>> quote = EventType("quote", (Attribute("price", "float"), Attribute("symbol", "text")))
    >>> holds = compile(parse("price < 100 AND symbol LIKE 'I%'", quote), quote)
    >>> holds({"price": 99.5, "symbol": "IBM"}), holds({"symbol": "IBM"})
    (True, False)
    """
    holds = _holds(filter, event_type)
    names = imprecise_names(filter, event_type)
    if not names:
        return holds

    def of_point_or_box(event: Event) -> bool:
        spans = spread(event, names, event_type)
        if not spans:
            return holds(event)
        return holds_of_box(filter, event, spans, event_type, lambda leaf: _holds(leaf, event_type))

    return of_point_or_box


def matches(filter: Filter, event: Event, event_type: EventType) -> bool:
    """Tell whether one event satisfies a filter; to ask many times, `compile` it."""
    return compile(filter, event_type)(event)


class Explained(NamedTuple):
    """One predicate on one event: its text, whether it holds, and the value it saw (None: absent)."""

    predicate: str
    holds: bool
    value: object


def explain(filter: Filter, event: Event, event_type: EventType) -> list[Explained]:
    """Say what each predicate of a filter made of an event, from left to right.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute, EventType
    >>> quote = EventType("quote", (Attribute("price", "float"),))
    >>> explain(parse("price < 5 OR price IS NULL", quote), {"price": "7"}, quote)
    [Explained(predicate='price < 5', holds=False, value=None), \
Explained(predicate='price IS NULL', holds=True, value=None)]
    """
    result = []
    for predicate in predicates(filter):
        attribute = event_type.attribute(predicate.attribute)
        value = event.get(predicate.attribute)
        absent = rank_span(attribute, value) == ABSENT_SPAN
        holds = compile(predicate, event_type)(event)
        result.append(Explained(predicate_text(predicate), holds, None if absent else value))
    return result


# --- one event --------------------------------------------------------------------------------------------


def _holds(filter: Filter, event_type: EventType) -> Holds:
    if isinstance(filter, Predicate):
        return _predicate(filter, event_type.attribute(filter.attribute))
    children = [_holds(child, event_type) for child in filter.children]
    return _all_of(children) if isinstance(filter, And) else _any_of(children)


def _all_of(children: list[Holds]) -> Holds:
    if len(children) == 2:  # the common case, without a loop
        one, other = children
        return lambda event: one(event) and other(event)

    def holds(event: Event) -> bool:
        for child in children:  # noqa: SIM110 - a generator would double the time
            if not child(event):
                return False
        return True

    return holds


def _any_of(children: list[Holds]) -> Holds:
    def holds(event: Event) -> bool:
        for child in children:  # noqa: SIM110 - a generator would double the time
            if child(event):
                return True
        return False

    return holds


def _predicate(predicate: Predicate, attribute: Attribute) -> Holds:
    name, read = attribute.name, reader(attribute)
    if predicate.operator is Operator.IS_NULL:
        return lambda event: read(event.get(name)) is None
    test = _test(predicate, attribute)

    def holds(event: Event) -> bool:
        value = read(event.get(name))
        return value is not None and test(value)

    return holds


_ORDERED = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}
_OPPOSITES = (Operator.NOT_IN, Operator.NOT_BETWEEN, Operator.NOT_LIKE)


def _test(predicate: Predicate, attribute: Attribute) -> Callable[[Any], bool]:
    """The predicate as a function of a value that was read.

    Python compares int with float exactly and text by code point, so its own operators are the contract's.
    """
    if predicate.operator is Operator.LIKE:
        return _like(predicate, attribute)
    if predicate.operator in _OPPOSITES:
        opposite = _test(predicate.negated(), attribute)
        return lambda value: not opposite(value)
    values = [_comparable(value, attribute) for value in predicate.values]
    match predicate.operator:
        case Operator.IS_NOT_NULL:
            return lambda value: True
        case Operator.IN:
            chosen = frozenset(values)
            return lambda value: value in chosen
        case Operator.BETWEEN:
            low, high = values
            return lambda value: low <= value <= high
        case _:
            compared, literal = _ORDERED[predicate.operator], values[0]
            return lambda value: compared(value, literal)


def _comparable(value: object, attribute: Attribute) -> Any:
    if isinstance(value, Timestamp):
        return value.micros
    return attribute.values.index(str(value)) if attribute.kind == "category" else value


def _like(predicate: Predicate, attribute: Attribute) -> Callable[[Any], bool]:
    like = Like.of(*predicate.values)  # type: ignore[arg-type]
    if attribute.kind == "text":
        return like.matches
    chosen = frozenset(i for i, value in enumerate(attribute.values) if like.matches(value))
    return lambda value: value in chosen


def reader(attribute: Attribute) -> Read:
    """Return the function that reads a decoded JSON value as this attribute; None is absent."""
    if attribute.kind == "category":
        places = {value: i for i, value in enumerate(attribute.values)}
        return lambda value: places.get(value) if type(value) is str else None
    return _READERS[attribute.kind]


def _read_int(value: object) -> int | None:
    if type(value) is int:
        return value if -PRESENT_MAX <= value <= PRESENT_MAX else None
    if type(value) is float and value.is_integer():
        return _read_int(int(value))
    return value.whole if type(value) is Exact else None


def _read_float(value: object) -> float | None:
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return None
    return value if isinstance(value, float) and isfinite(value) else None


def _read_boolean(value: object) -> bool | None:
    return value if type(value) is bool else None


def _read_timestamp(value: object) -> int | None:
    return timestamp_micros(value) if type(value) is str else None


def _read_text(value: object) -> str | None:
    if type(value) is not str:
        return None
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair is no text, as in `ranks.py`
        return None
    return value


_READERS: dict[str, Read] = {
    "int": _read_int,
    "float": _read_float,
    "boolean": _read_boolean,
    "timestamp": _read_timestamp,
    "text": _read_text,
}


# --- a batch ----------------------------------------------------------------------------------------------

TextOf = Callable[[str, Ints], Sequence[object]]
"""The values of a text attribute in some rows of the batch: asked only for rows that ranks leave open."""


def matches_batch(filter: Filter, ranks: Ranks, event_type: EventType, text: TextOf | None = None) -> Bools:
    """Tell for each row of rank vectors (n, d) whether it satisfies the filter; rows are points, not boxes.

    `text(attribute, rows)` gives the values of those rows; a filter whose geometry is exact never asks.

    Guarantee: equal to `matches` on each event. Cost: vectorised; each child of an AND (or OR) sees only the
    rows that those before it left open, those that look at text last.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute, EventType
    >>> quote = EventType("quote", (Attribute("volume", "int"),))
    >>> matches_batch(parse("volume != 5", quote), np.array([[4], [5], [6]]), quote)
    array([ True, False,  True])
    """
    result = np.zeros(len(ranks), dtype=bool)
    result[_Batch(ranks, event_type, text).satisfying(filter, np.arange(len(ranks)))] = True
    return result


@dataclass(frozen=True, slots=True)
class _Batch:
    ranks: Ranks
    event_type: EventType
    text: TextOf | None

    def satisfying(self, filter: Filter, rows: Ints) -> Ints:
        """Those of `rows` that satisfy the filter, in any order."""
        if isinstance(filter, Predicate):
            return self.leaf(filter, rows)
        children = sorted(filter.children, key=self.looks_at_text)
        if isinstance(filter, Or):
            found = []
            for child in children:
                found.append(self.satisfying(child, rows))
                rows = np.setdiff1d(rows, found[-1], assume_unique=True)
            return np.concatenate(found)
        for child in children:
            rows = self.satisfying(child, rows)
        return rows

    def looks_at_text(self, filter: Filter) -> bool:
        return any(self.event_type.attribute(p.attribute).kind == "text" for p in predicates(filter))

    def leaf(self, predicate: Predicate, rows: Ints) -> Ints:
        k = self.event_type.dimension[predicate.attribute]
        attribute = self.event_type.attributes[k]
        allowed = intervals(predicate, attribute)
        if not allowed.spans:
            return rows[:0]
        column = self.ranks[rows, k]
        spans = np.array(allowed.spans, dtype=np.int64)
        # The span that begins at or before a rank is the only one that can hold it.
        place = np.searchsorted(spans[:, 0], column, side="right") - 1
        rows = rows[(place >= 0) & (column <= spans[place, 1])]
        if allowed.exact or len(rows) == 0:
            return rows
        assert self.text is not None, f"ranks alone do not decide {predicate_text(predicate)}"
        holds = _predicate(predicate, attribute)
        values = self.text(attribute.name, rows)
        return rows[[holds({attribute.name: value}) for value in values]]
