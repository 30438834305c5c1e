"""Filters as boxes: which part of the rank space an event must lie in to satisfy a filter.

[MICS09] §3 and [NEG08] §2 take subscriptions as boxes; here any Boolean filter becomes a set of disjoint
ones (docs/architecture.md).

    predicate ──intervals──> spans of ranks, sorted and disjoint     price != 5  ->  [lowest, 5)  (5, highest]
    AND       ──> intersection of boxes
    OR        ──> union, made disjoint

An attribute without a predicate spans everything, absent included; with one, only what is present.

Every predicate has two answers: the ranks that may satisfy it and the ranks that surely do. They differ only
for texts beyond 7 bytes, which share ranks, and for LIKE beyond a prefix. Negation swaps them.

A tree has as many conjunctions as its disjunctive normal form; they are counted, never written out. Above
128, or where the boxes become more than 1,024 (`IN` of two attributes with 40 values each), the filter is
covered by its bounding box and checked as a tree. Differs: the design counts conjunctions alone; a conjunction of
`IN` lists is one, and can have a hundred thousand boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np

from state.filters.disjoint import INTERSECT, NOWHERE, PRODUCT, SKIP, UNITE, evaluated
from state.filters.like import Like
from state.filters.tree import NEGATION, And, Filter, Operator, Or, Predicate, Timestamp, Value, conjunction
from state.limits import GEOMETRY_BYTES_MAX
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType, Kind
from state.space.ranks import (
    ABSENT,
    ABSENT_SPAN,
    PRESENT_MAX,
    PRESENT_MIN,
    Span,
    last_float_at_most,
    last_int_at_most,
    present_span,
    rank,
    text_is_exact,
    text_prefix_span,
)

CONJUNCTIONS_MAX = 128
BOXES_MAX = 1024
"""More boxes than this are one bounding box: what a broker keeps and sends for a filter stays small."""

Spans = tuple[Span, ...]
"""Sorted, disjoint, closed, not even touching."""


class Intervals(NamedTuple):
    """The ranks that a predicate allows; `exact`: every value there satisfies it, else some may not."""

    spans: Spans
    exact: bool


class FilterGeometry(msgspec.Struct, frozen=True, gc=False):
    """The region of a filter.

    Invariant: the boxes are disjoint and hold every event that satisfies the filter. An event satisfies the
    filter if and only if a box holds it and `residual` (where there is one) is true of it; `exact` means that
    there is none.
    """

    boxes: Boxes
    exact: bool
    residual: Filter | None

    def check(self) -> None:
        """Assert the invariant."""
        self.boxes.check()
        assert self.exact == (self.residual is None)
        for i, (low, high) in enumerate(self.boxes):
            rest = Boxes(self.boxes.lows[i + 1 :], self.boxes.highs[i + 1 :])
            assert len(rest.clipped(low, high)) == 0, "boxes overlap"


def geometry(filter: Filter, event_type: EventType, boxes_max: int = BOXES_MAX) -> FilterGeometry:
    """Return the disjoint boxes of a filter, in the dimensions of the event type.

    Guarantee: exact if every predicate is (no text beyond 7 bytes, LIKE by prefix only), there are at most
    128 conjunctions and at most `boxes_max` boxes, which fit a control message twice; else a superset with
    what is still to be checked. A contradiction has none.
    Cost: microseconds per predicate for a conjunction; bounded by `boxes_max`^2 for anything.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute, EventType
    >>> quote = EventType("quote", (Attribute("volume", "int"), Attribute("symbol", "text")))
    >>> found = geometry(parse("volume BETWEEN 5 AND 9 AND symbol IS NULL", quote), quote)
    >>> found.boxes.lows[:, 0], found.boxes.highs[:, 0], found.exact
    (array([5]), array([9]), True)
    >>> len(geometry(parse("volume < 5 AND volume > 9", quote), quote).boxes)
    0
    >>> geometry(parse("volume = 1 AND symbol = 'a long text'", quote), quote).residual.attribute
    'symbol'
    """
    cap = min(boxes_max, GEOMETRY_BYTES_MAX // (16 * max(1, event_type.d)))
    found = _region(filter, event_type, cap, CONJUNCTIONS_MAX)
    if found is not None:
        residual = None if found.exact else _residual(filter, event_type)
        return FilterGeometry(found.boxes, residual is None, residual)
    bounds = _bounds(filter, event_type, list(_EVERYTHING) * event_type.d)
    if bounds is None:
        return FilterGeometry(Boxes.empty(event_type.d), True, None)
    lows, highs = np.array(bounds, dtype=np.int64).T.copy()
    return FilterGeometry(Boxes(lows[None], highs[None]), False, filter)


_ONE_SPAN = frozenset(
    (
        Operator.EQ,
        Operator.LT,
        Operator.LE,
        Operator.GT,
        Operator.GE,
        Operator.BETWEEN,
        Operator.IS_NULL,
        Operator.IS_NOT_NULL,
    )
)


def beyond_boxes(filter: Filter, event_type: EventType) -> Filter:
    """What is still to be asked of an event that lies in a box of `geometry`, found without it.

    Of a conjunction it leaves out predicates that are one span of ranks each, and exact: also a bounding box, which
    stands for too many boxes, lies within such a span. Guarantee: in a box, as true as the filter.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute, EventType
    >>> quote = EventType("quote", (Attribute("volume", "int"), Attribute("symbol", "text")))
    >>> beyond_boxes(parse("volume > 1 AND symbol = 'a long text'", quote), quote).attribute
    'symbol'
    """
    if not isinstance(filter, And):
        return filter
    dimension, attributes = event_type.dimension, event_type.attributes
    left = [
        child
        for child in filter.children
        if not isinstance(child, Predicate)
        or child.operator not in _ONE_SPAN
        or attributes[dimension[child.attribute]].kind == "text"
    ]
    return filter if len(left) == len(filter.children) else conjunction(left)


def region(filter: Filter, event_type: EventType, boxes_max: int) -> Boxes | None:
    """The disjoint boxes of a filter however many conjunctions it has, or None if there are too many boxes."""
    found = _region(filter, event_type, boxes_max, None)
    return None if found is None else found.boxes


def conjunctions(filter: Filter) -> int:
    """Count the conjunctions of the disjunctive normal form, without writing it out.

    >>> p = Predicate("a", Operator.IS_NULL)
    >>> conjunctions(And((Or((p, p)), Or((p, p, p)), p)))
    6
    """
    if isinstance(filter, Predicate):
        return 1
    counts = [conjunctions(child) for child in filter.children if child.__class__ is not Predicate]
    return prod(counts) if filter.__class__ is And else sum(counts) + len(filter.children) - len(counts)


# --- predicates -------------------------------------------------------------------------------------------


def intervals(predicate: Predicate, attribute: Attribute) -> Intervals:
    """Return the ranks that a predicate allows; absent is among them for IS NULL only.

    >>> intervals(Predicate("v", Operator.NE, (5,)), Attribute("v", "int")).spans == (
    ...     (ABSENT + 1, 4), (6, PRESENT_MAX))
    True
    """
    possible, certain = _RULES[attribute.kind][predicate.operator](attribute, predicate.values)
    return Intervals(possible, possible is certain or possible == certain)


Pair = tuple[Spans, Spans]
"""The ranks that may satisfy a predicate, and those that surely do."""


def _in(attribute: Attribute, values: Values) -> Pair:
    possible: list[Span] = []
    certain: list[Span] = []
    for value in values:
        p, c = _equal(attribute, value)
        possible += p
        certain += c
    spans = united(possible)
    return spans, spans if len(certain) == len(possible) else united(certain)


def _between(attribute: Attribute, values: Values) -> Pair:
    low, high = values
    above = _opposite(_below(attribute, low, False), attribute)
    below = _below(attribute, high, True)
    possible = common(above[0], below[0])
    exact = above[0] is above[1] and below[0] is below[1]
    return possible, possible if exact else common(above[1], below[1])


def _opposite(pair: Pair, attribute: Attribute) -> Pair:
    possible, certain = pair
    whole = present_span(attribute)
    unsure = complement(certain, whole)
    return unsure, unsure if possible is certain else complement(possible, whole)


def _equal(attribute: Attribute, value: Value) -> Pair:
    point = value.micros if isinstance(value, Timestamp) else rank(attribute, value)
    # A number that the attribute cannot hold (1.5 for an int, 2^53 + 1 for a double) equals no value of it.
    if point == ABSENT or (attribute.kind == "float" and float(value) != value):  # type: ignore[arg-type]
        return (), ()
    spans = ((point, point),)
    return spans, () if isinstance(value, str) and _shares_rank(attribute, value) else spans


def _below(attribute: Attribute, value: Value, inclusive: bool) -> Pair:
    assert isinstance(value, str), "numbers and times have rules of their own"
    low, high = present_span(attribute)[0], rank(attribute, value)
    if _shares_rank(attribute, value):
        # Others share this rank, some of them below and some above.
        return ((low, high),), ((low, high - 1),)
    high -= not inclusive
    spans = ((low, high),) if low <= high else ()
    return spans, spans


def _shares_rank(attribute: Attribute, value: str) -> bool:
    return attribute.kind == "text" and not text_is_exact(value)


def _like(attribute: Attribute, like: Like) -> Pair:
    if attribute.kind == "category":
        spans = united((i, i) for i, value in enumerate(attribute.values) if like.matches(value))
        return spans, spans
    if like.is_literal:
        return _equal(attribute, like.prefix)
    if not like.prefix:
        spans, exact = (present_span(attribute),), True
    else:
        low, high, exact = text_prefix_span(like.prefix)
        spans = ((low, high),)
    return spans, spans if exact and like.is_prefix else ()


Values = tuple[Value, ...]
Rule = Callable[[Attribute, Values], Pair]
"""What a predicate with these values allows of an attribute."""


def _null(attribute: Attribute, values: Values) -> Pair:
    return (ABSENT_SPAN,), (ABSENT_SPAN,)


def _not_null(attribute: Attribute, values: Values) -> Pair:
    spans = (present_span(attribute),)
    return spans, spans


def _negated(rule: Rule) -> Rule:
    return lambda attribute, values: _opposite(rule(attribute, values), attribute)


_TEXTS: dict[Operator, Rule] = {
    Operator.IS_NULL: _null,
    Operator.IS_NOT_NULL: _not_null,
    Operator.EQ: lambda attribute, values: _equal(attribute, values[0]),
    Operator.LT: lambda attribute, values: _below(attribute, values[0], False),
    Operator.LE: lambda attribute, values: _below(attribute, values[0], True),
    Operator.IN: _in,
    Operator.BETWEEN: _between,
    Operator.LIKE: lambda attribute, values: _like(attribute, Like.of(*values)),  # type: ignore[arg-type]
}
"""The rules of text and categories; what is not here is the negation of one that is."""


def _ordered(last: Callable[[Any, bool], int]) -> dict[Operator, Rule]:
    """The rules of numbers or times: one span each, exact. `last`: the last rank that is `<=`, or `<`, a value."""

    def between(low: int, high: int) -> Pair:
        low, high = low if low > PRESENT_MIN else PRESENT_MIN, high if high < PRESENT_MAX else PRESENT_MAX
        spans = ((low, high),) if low <= high else ()
        return spans, spans

    return {
        Operator.LT: lambda attribute, values: between(PRESENT_MIN, last(values[0], False)),
        Operator.LE: lambda attribute, values: between(PRESENT_MIN, last(values[0], True)),
        Operator.GT: lambda attribute, values: between(last(values[0], True) + 1, PRESENT_MAX),
        Operator.GE: lambda attribute, values: between(last(values[0], False) + 1, PRESENT_MAX),
        Operator.BETWEEN: lambda attribute, values: between(last(values[0], False) + 1, last(values[1], True)),
    }


@lru_cache(maxsize=4096)
def _of_words(kind: Kind, names: tuple[str, ...], operator: Operator, values: Values) -> Pair:
    """The same few names and codes are asked for by very many filters, and text is dear."""
    return _WORDS[operator](Attribute("any", kind, values=names), values)


_NAMES_MAX = 64
"""Values of a category that are compared sooner than looked up."""


def _memorised(operator: Operator, rule: Rule) -> Rule:
    def remembered(attribute: Attribute, values: Values) -> Pair:
        names = attribute.values
        return (
            _of_words(attribute.kind, names, operator, values) if len(names) <= _NAMES_MAX else rule(attribute, values)
        )

    return remembered


def _all_rules(some: dict[Operator, Rule]) -> dict[Operator, Rule]:
    """Rules for every operator: those given, and the negations of those given."""
    return {operator: some.get(operator) or _negated(some[NEGATION[operator]]) for operator in Operator}


_WORDS = _all_rules(_TEXTS)
_WORDS_REMEMBERED = {operator: _memorised(operator, rule) for operator, rule in _WORDS.items()}
_RULES: dict[str, dict[Operator, Rule]] = {
    "int": _all_rules(_TEXTS | _ordered(last_int_at_most)),
    "float": _all_rules(_TEXTS | _ordered(last_float_at_most)),
    "timestamp": _all_rules(_TEXTS | _ordered(lambda value, inclusive: value.micros - (not inclusive))),
    "boolean": _WORDS_REMEMBERED,
    "category": _WORDS_REMEMBERED,
    "text": _WORDS_REMEMBERED,
}
"""By kind of attribute and operator."""


# --- spans ------------------------------------------------------------------------------------------------


def united(spans: Iterable[Span]) -> Spans:
    """Sort spans and join those that overlap or touch.

    >>> united([(5, 6), (1, 2), (3, 3)])
    ((1, 3), (5, 6))
    """
    result: list[Span] = []
    for low, high in sorted(spans):
        if result and low <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(high, result[-1][1])
        else:
            result.append((low, high))
    return tuple(result)


def common(one: Spans, other: Spans) -> Spans:
    """What is in both. Cost: O(n + m).

    >>> common(((1, 5), (8, 9)), ((4, 8),))
    ((4, 5), (8, 8))
    """
    if len(one) == len(other) == 1:  # what most are
        low, high = max(one[0][0], other[0][0]), min(one[0][1], other[0][1])
        return ((low, high),) if low <= high else ()
    result: list[Span] = []
    i = j = 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            result.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(result)


def complement(spans: Spans, whole: Span) -> Spans:
    """What is in `whole` and not in `spans`, which lie inside it.

    >>> complement(((1, 5), (8, 9)), (0, 9))
    ((0, 0), (6, 7))
    """
    result = []
    start, end = whole
    for low, high in spans:
        if start < low:
            result.append((start, low - 1))
        start = high + 1
    if start <= end:
        result.append((start, end))
    return tuple(result)


# --- regions ----------------------------------------------------------------------------------------------


class _Region(NamedTuple):
    """Disjoint boxes, and whether they are exact."""

    boxes: Boxes
    exact: bool


_EVERYTHING: Spans = ((ABSENT, PRESENT_MAX),)


def _region(filter: Filter, event_type: EventType, cap: int, most: int | None) -> _Region | None:
    """The boxes of a tree; None if at any point they are more than `cap`, or its conjunctions more than `most`."""
    program: list[int] = []
    if filter.__class__ is Or:
        count = _write(filter, event_type, program)
    else:
        spans, exact, branches = _taken(filter, event_type)
        if spans is None:
            return _Region(Boxes.empty(event_type.d), True)
        if not branches and max(map(len, spans.values()), default=1) == 1:
            return _Region(_one_box(spans, event_type.d), exact)
        count = _write_all(spans, exact, branches, event_type, program)
    if most is not None and count > most:
        return None
    region = evaluated(program, event_type.d, cap)
    return None if region is None else _Region(Boxes(*region[0]), region[1])


def _one_box(spans: dict[int, Spans], d: int) -> Boxes:
    """What most filters are: one span of each dimension."""
    lows, highs = [ABSENT] * d, [PRESENT_MAX] * d
    for k, ((low, high),) in spans.items():
        lows[k], highs[k] = low, high
    corners = np.array([lows, highs], np.int64)
    return Boxes(corners[:1], corners[1:])


Taken = tuple[dict[int, Spans] | None, bool, Sequence[And | Or]]
"""The spans of each dimension, whether they are exact, and the branches that are left."""


def _taken(filter: Filter, event_type: EventType) -> Taken:
    """What the predicates right under an AND or OR leave of each dimension; a predicate is its own.

    Of an AND that leaves nothing of some dimension the spans are None.
    """
    dimension, attributes = event_type.dimension, event_type.attributes
    spans: dict[int, Spans] = {}
    branches: list[And | Or] = []
    every, exact = filter.__class__ is not Or, True
    for child in (filter,) if isinstance(filter, Predicate) else filter.children:
        if not isinstance(child, Predicate):
            branches.append(child)
            continue
        k = dimension[child.attribute]
        attribute = attributes[k]
        found, certain = _RULES[attribute.kind][child.operator](attribute, child.values)
        if found is not certain and found != certain:
            exact = False
        if k in spans:
            found = common(spans[k], found) if every else united([*spans[k], *found])
        if every and not found:
            return None, True, ()
        spans[k] = found
    return spans, exact, branches


def _write(filter: Filter, event_type: EventType, program: list[int]) -> int:
    """Write out a tree as a program of `disjoint.evaluated` that leaves its boxes; return its conjunctions."""
    spans, exact, branches = _taken(filter, event_type)
    if spans is None:
        program.append(NOWHERE)
        return conjunctions(filter)
    if not isinstance(filter, Or):
        return _write_all(spans, exact, branches, event_type, program)
    count, several = len(filter.children) - len(branches), 0
    for k, each in spans.items():
        if each:
            _write_product({k: each}, True, program)
            several += 1
    for branch in branches:
        count += _write(branch, event_type, program)
    program += (UNITE, exact, several + len(branches))
    return count


def _write_all(
    spans: dict[int, Spans], exact: bool, branches: Sequence[Filter], event_type: EventType, program: list[int]
) -> int:
    """Write out an AND, what its predicates leave and its branches; return its conjunctions."""
    _write_product(spans, exact, program)
    skips, count = [], 1
    for branch in branches:
        count *= _write(branch, event_type, program)
        program += (INTERSECT, SKIP, 0)
        skips.append(len(program) - 1)
    for skip in skips:
        program[skip] = len(program)
    return count


def _write_product(spans: dict[int, Spans], exact: bool, program: list[int]) -> None:
    program += (PRODUCT, exact, len(spans))
    for k, each in spans.items():
        program += (k, len(each))
        for span in each:
            program += span


def _residual(filter: Filter, event_type: EventType) -> Filter:
    """What boxes alone do not decide: of a conjunction the parts that are not exact, else the whole."""
    if not isinstance(filter, And):
        return filter
    return conjunction(child for child in filter.children if not _decided(child, event_type))


def _decided(filter: Filter, event_type: EventType) -> bool:
    if isinstance(filter, Predicate):
        attribute = event_type.attributes[event_type.dimension[filter.attribute]]
        return attribute.kind != "text" or intervals(filter, attribute).exact  # other kinds share no ranks
    return all(_decided(child, event_type) for child in filter.children)


Bounds = list[Span]
"""One span for each dimension: a box."""


def _bounds(filter: Filter, event_type: EventType, within: Bounds) -> Bounds | None:
    """A box around the part of a filter that lies in `within`, without expanding it; None if there is none.

    The branches of an AND are looked at inside what its predicates leave, so that most contradictions show.
    """
    if isinstance(filter, Or):
        each = [_bounds(child, event_type, within) for child in filter.children]
        sides = zip(*(bounds for bounds in each if bounds is not None), strict=True)
        return [(min(low for low, _ in side), max(high for _, high in side)) for side in sides] or None
    spans, _, branches = _taken(filter, event_type)
    if spans is None:
        return None
    inside = [common(spans.get(k, _EVERYTHING), (span,)) for k, span in enumerate(within)]
    if not all(inside):
        return None
    bounds: Bounds | None = [(left[0][0], left[-1][1]) for left in inside]
    for branch in branches:
        bounds = None if bounds is None else _bounds(branch, event_type, bounds)
    return bounds
