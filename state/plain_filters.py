"""Filters judged as naively as can be: what `verify` believes of a filter and many events.

Nothing here is shared with the router's own evaluation (`state/filters/evaluate.py`, `geometry.py`, `imprecise.py`): no
ranks, no boxes, no programs. The judge must not make the defendant's mistakes. An attribute is a column of Python's own
values, each different one once and sorted; a predicate is a run of them, or a look at each.

    prices     7.5  3  -  7.5  9        values  3  7.5  9      price < 8     yes yes no
               place in `values`, or       places  1  0  -1  1  2             yes yes -  yes no
               -1 for absent

An event with intervals is tried out, point by point, among values of which each way to answer occurs.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from state.arrays import Bools, Ints
from state.filters.tree import And, Filter, Operator, Predicate, Timestamp, predicates
from state.space.event_type import Attribute, EventType
from state.space.ranks import Exact

POINTS_MAX = 100_000
"""Points of one event that are tried out for one filter; beyond them it is left open."""
_INT_MAX = 2**63 - 1
_EVERY = slice(None)
_DAYS_OF_400_YEARS = 146_097
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)


class Answer(NamedTuple):
    """For each event whether the filter may hold, and whether it surely does; they differ where it is left open."""

    may: Bools
    must: Bools


class PlainEvents:
    """The events of one type, as `plain_event` read them; None: one whose value is not what its type says.

    >>> quote = EventType("quote", (Attribute("price", "float"),))
    >>> events = PlainEvents(quote, [{"price": 7.5}, {"price": 3}, {}, None])
    >>> events.holding(Predicate("price", Operator.LT, (5,)), np.ones(4, bool)).must
    array([False,  True, False, False])
    """

    def __init__(self, event_type: EventType, events: Sequence[Mapping[str, object] | None]) -> None:
        self.type = event_type
        self.valid = np.array([event is not None for event in events], bool)
        self._columns: dict[str, _Column] = {}
        self._spread: dict[int, dict[str, tuple[Any, Any]]] = {}
        """By row of an event with intervals: their ends."""
        for attribute in event_type.attributes:
            self._add(attribute, [None if event is None else event.get(attribute.name) for event in events])

    def _add(self, attribute: Attribute, given: list[object]) -> None:
        values: list[Any] = []
        for row, one in enumerate(given):
            if attribute.imprecise is not None and isinstance(one, Mapping):
                low, high = value_of(one.get("min"), attribute), value_of(one.get("max"), attribute)
                if low is not None and high is not None and low <= high:
                    self._spread.setdefault(row, {})[attribute.name] = low, high
                values.append(None)
            else:
                values.append(value_of(one, attribute))
        self._columns[attribute.name] = _Column(attribute, values)

    def __len__(self) -> int:
        return len(self.valid)

    def holding(self, filter: Filter, among: Bools) -> Answer:
        """Those of `among` for which the filter holds.

        Guarantee: exact where both answers are one; left open is only an event with too many points to try out.
        Cost: a few runs a predicate, and of a conjunction a look at the events of its narrowest one; for each event
        with intervals its points.
        """
        leaves, rows = dict.fromkeys(predicates(filter)), self._narrowed(filter)
        answers = {leaf: self._columns[leaf.attribute].satisfying(leaf, rows) for leaf in leaves}
        may = np.zeros(len(self), bool)
        may[rows] = among[rows] & self.valid[rows] & self._of_points(filter, answers, len(may[rows]))
        must = may.copy()
        asked = {leaf.attribute for leaf in answers}
        for row, ends in self._spread.items():
            if among[row] and asked & ends.keys():
                known = {leaf: bool(held[row]) for leaf, held in answers.items()}
                held = self._tried(filter, known, {name: ends[name] for name in sorted(asked & ends.keys())})
                may[row], must[row] = held is not False, held is True
        return Answer(may, must)

    def _narrowed(self, filter: Filter) -> Ints | slice:
        """Events outside of which the filter holds for none: those of one predicate that all others are joined to."""
        joined = filter.children if isinstance(filter, And) else (filter,)
        plain = [(self._columns[p.attribute], p) for p in joined if isinstance(p, Predicate) and p.operator in _RUNS]
        if self._spread or not plain:
            return _EVERY
        column, predicate = min(plain, key=lambda one: one[0].count(one[1]))
        return column.rows(predicate)

    def _of_points(self, filter: Filter, answers: Mapping[Predicate, Bools], size: int) -> Bools:
        if isinstance(filter, Predicate):
            return answers[filter]
        children = [self._of_points(child, answers, size) for child in filter.children]
        if isinstance(filter, And):
            return np.logical_and.reduce([np.ones(size, bool), *children])
        return np.logical_or.reduce(children)

    def _tried(
        self, filter: Filter, known: Mapping[Predicate, bool], ends: Mapping[str, tuple[Any, Any]]
    ) -> bool | None:
        """Whether for every choice of the certain ones there is one of the possible ones; None: too many points.

        `known`: what every predicate says, those on intervals aside.
        """
        choices = {name: self._choices(name, two, list(known)) for name, two in ends.items()}
        if math.prod(map(len, choices.values())) > POINTS_MAX:
            return None
        certain = [ways for name, ways in choices.items() if self.type.attribute(name).imprecise == "certain"]
        possible = [ways for name, ways in choices.items() if self.type.attribute(name).imprecise == "possible"]
        return all(
            any(_truth(filter, {**known, **_merged(one), **_merged(other)}) for other in product(*possible))
            for one in product(*certain)
        )

    def _choices(self, name: str, ends: tuple[Any, Any], leaves: list[Predicate]) -> list[dict[Predicate, bool]]:
        """The ways in which values of an interval answer the predicates on them, each once."""
        attribute = self.type.attribute(name)
        own = [leaf for leaf in leaves if leaf.attribute == name]
        points = _Column(attribute, list(_telling(attribute, ends, own)))
        found = {leaf: points.satisfying(leaf).tolist() for leaf in own}
        ways = dict.fromkeys(zip(*found.values(), strict=True))
        return [dict(zip(own, way, strict=True)) for way in ways]


def _merged(some: tuple[dict[Predicate, bool], ...]) -> dict[Predicate, bool]:
    return {leaf: held for one in some for leaf, held in one.items()}


def _truth(filter: Filter, known: Mapping[Predicate, bool]) -> bool:
    if isinstance(filter, Predicate):
        return known[filter]
    held = (_truth(child, known) for child in filter.children)
    return all(held) if isinstance(filter, And) else any(held)


def _telling(attribute: Attribute, ends: tuple[Any, Any], leaves: list[Predicate]) -> Iterator[Any]:
    """Values of an interval among which each way to answer occurs: its ends, and all around each literal."""
    low, high = ends
    yield from ends
    for literal in (value for leaf in leaves for value in leaf.values):
        point = _literal(literal, attribute)
        if attribute.kind == "float":
            near = float(min(max(point, low), high))
            around: list[Any] = [near, math.nextafter(near, -math.inf), math.nextafter(near, math.inf)]
        else:
            around = [math.floor(point) + step for step in (-1, 0, 1)]
        yield from (value for value in around if low <= value <= high)


# --- one attribute ------------------------------------------------------------------------------------------


class _Column:
    """The values of one attribute: each once, in order, and by row where it stands."""

    def __init__(self, attribute: Attribute, values: list[Any]) -> None:
        self._attribute = attribute
        self.values = sorted({value for value in values if value is not None})
        place = {value: i for i, value in enumerate(self.values)}
        self._places: Ints = np.array([-1 if value is None else place[value] for value in values], np.int64)
        self._order = np.argsort(self._places, kind="stable")
        """Rows by their values; those without one are first."""
        self._starts = np.searchsorted(self._places[self._order], np.arange(len(self.values) + 1)).tolist()
        """By value, where its rows begin in that order."""

    def satisfying(self, predicate: Predicate, rows: Ints | slice = _EVERY) -> Bools:
        """By row whether a predicate holds."""
        return self._answers(predicate)[self._places[rows]]

    def count(self, predicate: Predicate) -> int:
        """How many rows a predicate of `_RUNS` holds for."""
        return sum(self._starts[end] - self._starts[first] for first, end in self._runs(predicate) if first < end)

    def rows(self, predicate: Predicate) -> Ints:
        """The rows that a predicate of `_RUNS` holds for; those of a value that is named twice twice."""
        spans = [(self._starts[first], self._starts[end]) for first, end in self._runs(predicate) if first < end]
        return np.concatenate([self._order[:0], *(self._order[low:high] for low, high in spans)])

    def _answers(self, predicate: Predicate) -> Bools:
        """By place whether a predicate holds; the last one stands for absent."""
        answers = np.zeros(len(self.values) + 1, bool)
        for first, end in self._runs(predicate):
            answers[first:end] = True
        if predicate.operator in _NEGATIVE:
            answers[:-1] = ~answers[:-1]
        answers[-1] = predicate.operator is Operator.IS_NULL
        return answers

    def _runs(self, predicate: Predicate) -> Iterator[tuple[int, int]]:
        """Runs of values for which a predicate, or that which it is the opposite of, holds."""
        every, operator = len(self.values), _NEGATIVE.get(predicate.operator, predicate.operator)
        values = () if operator is Operator.LIKE else predicate.values
        literals = [_literal(value, self._attribute) for value in values]
        match operator:
            case Operator.EQ | Operator.IN:
                for literal in literals:
                    yield bisect_left(self.values, literal), bisect_right(self.values, literal)
            case Operator.LT:
                yield 0, bisect_left(self.values, literals[0])
            case Operator.LE:
                yield 0, bisect_right(self.values, literals[0])
            case Operator.BETWEEN:
                yield bisect_left(self.values, literals[0]), bisect_right(self.values, literals[1])
            case Operator.LIKE:
                fits = _pattern(*map(str, predicate.values))
                names = self._attribute.values
                texts = [names[value] for value in self.values] if self._attribute.kind == "category" else self.values
                yield from ((i, i + 1) for i, text in enumerate(texts) if fits(text))
            case Operator.IS_NOT_NULL:
                yield 0, every
            case _:
                assert predicate.operator is Operator.IS_NULL


_NEGATIVE = {
    Operator.NE: Operator.EQ,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
    Operator.NOT_BETWEEN: Operator.BETWEEN,
    Operator.NOT_IN: Operator.IN,
    Operator.NOT_LIKE: Operator.LIKE,
}


_RUNS = (Operator.EQ, Operator.IN, Operator.LT, Operator.LE, Operator.BETWEEN)
"""What holds for runs of values, and for nothing else."""


def _pattern(pattern: str, escape: str | None = None) -> Callable[[str], object]:
    """A LIKE pattern as a regular expression; each piece but the last at its first place, never tried elsewhere."""
    pieces: list[str] = [""]
    characters = iter(pattern)
    for c in characters:
        if c == escape:
            pieces[-1] += re.escape(next(characters))
        elif c == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if c == "_" else re.escape(c)
    first, *rest = pieces
    if not rest:
        return re.compile(first, re.DOTALL).fullmatch
    between = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return re.compile(f"{first}{between}.*{rest[-1]}", re.DOTALL).fullmatch


# --- values -------------------------------------------------------------------------------------------------


def _literal(value: object, attribute: Attribute) -> Any:
    if isinstance(value, Timestamp):
        return value.micros
    return attribute.values.index(str(value)) if attribute.kind == "category" else value


def value_of(given: object, attribute: Attribute) -> Any:
    """What a decoded JSON value counts as; None: absent.

    >>> [value_of(given, Attribute("n", "int")) for given in (3.0, 3.5, True)]
    [3, None, None]
    """
    match attribute.kind:
        case "int":
            return _integer(given)
        case "float":
            return _double(given)
        case "boolean":
            return given if isinstance(given, bool) else None
        case "category":
            return attribute.values.index(given) if isinstance(given, str) and given in attribute.values else None
        case "timestamp":
            return _micros(given) if isinstance(given, str) else None
        case _:
            return given if isinstance(given, str) and not re.search("[\ud800-\udfff]", given) else None


def _integer(given: object) -> int | None:
    if isinstance(given, Exact):
        given = given.whole
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given or abs(given) > _INT_MAX:
        return None
    return int(given) if given == int(given) else None


def _double(given: object) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        nearest = float(given)
    except OverflowError:
        return None
    return nearest if math.isfinite(nearest) else None


def _micros(text: str) -> int | None:
    """RFC 3339 with an offset to microseconds since 1970, finer ones cut; second 60 only at the end of a UTC day."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    fraction, sign, offset_hour, offset_minute = found.groups()[6:]
    away = (int(offset_hour), int(offset_minute)) if sign else (0, 0)
    if hour > 23 or minute > 59 or second > 60 or away[0] > 23 or away[1] > 59:
        return None
    try:
        # 400 years always have as many days, and `date` knows no year 0
        days = date(2000 + year % 400, month, day).toordinal() + (year // 400 - 5) * _DAYS_OF_400_YEARS
    except ValueError:
        return None
    minutes = (days - date(1970, 1, 1).toordinal()) * 1440 + hour * 60 + minute
    minutes -= (away[0] * 60 + away[1]) * (-1 if sign == "-" else 1)
    if second == 60 and minutes % 1440 != 1439:
        return None
    return (minutes * 60 + second) * 1_000_000 + int((fraction or "0")[:6].ljust(6, "0"))
