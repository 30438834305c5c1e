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

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np

from state.filters.like import Like
from state.filters.span_trees import AND, OR, boxes_of
from state.filters.tree import NEGATION, And, Filter, Operator, Or, Predicate, Timestamp, Value, conjunction
from state.limits import GEOMETRY_BYTES_MAX
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
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
    bounds = _bounds(filter, event_type, [(ABSENT, PRESENT_MAX)] * event_type.d)
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


Writer = Callable[[Values], tuple[int, ...]]
"""What a predicate with these values writes of itself: dimension, exact, number of spans, low, high, low, .."""
Last = Callable[[Any, bool], int]
"""The last rank that is `<=`, or `<`, a value."""

_LAST: dict[str, Last] = {
    "int": last_int_at_most,
    "float": last_float_at_most,
    "timestamp": lambda value, inclusive: value.micros - (not inclusive),
}
"""By kind of what is ordered as its values are."""

_RANGES: dict[Operator, tuple[int, bool, int, bool]] = {
    Operator.LT: (-1, False, 0, False),
    Operator.LE: (-1, False, 0, True),
    Operator.GT: (0, True, -1, False),
    Operator.GE: (0, False, -1, False),
    Operator.BETWEEN: (0, False, 1, True),
}
"""By operator that is one span of these: which value is below it, and whether up to that; which is its end."""


def _ordered_writer(k: int, last: Last, low_at: int, excluded: bool, high_at: int, included: bool) -> Writer:
    """Of numbers or times, between the ends that these values are; -1 is no value."""

    def write(values: Values) -> tuple[int, ...]:
        low = last(values[low_at], excluded) + 1 if low_at >= 0 else PRESENT_MIN
        high = last(values[high_at], included) if high_at >= 0 else PRESENT_MAX
        low, high = low if low > PRESENT_MIN else PRESENT_MIN, high if high < PRESENT_MAX else PRESENT_MAX
        return (k, 1, 1, low, high) if low <= high else (k, 1, 0)

    return write


def _ordered(last: Last) -> dict[Operator, Rule]:
    """The rules of numbers or times: one span each, exact."""
    return {operator: _ruled(_ordered_writer(0, last, *ends)) for operator, ends in _RANGES.items()}


def _ruled(write: Writer) -> Rule:
    def rule(attribute: Attribute, values: Values) -> Pair:
        _, _, _, *span = write(values)
        spans = ((span[0], span[1]),) if span else ()
        return spans, spans

    return rule


def _all_rules(some: dict[Operator, Rule]) -> dict[Operator, Rule]:
    """Rules for every operator: those given, and the negations of those given."""
    return {operator: some.get(operator) or _negated(some[NEGATION[operator]]) for operator in Operator}


_WORDS = _all_rules(_TEXTS)
_RULES: dict[str, dict[Operator, Rule]] = {
    "int": _all_rules(_TEXTS | _ordered(_LAST["int"])),
    "float": _all_rules(_TEXTS | _ordered(_LAST["float"])),
    "timestamp": _all_rules(_TEXTS | _ordered(_LAST["timestamp"])),
    "boolean": _WORDS,
    "category": _WORDS,
    "text": _WORDS,
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


def _region(filter: Filter, event_type: EventType, cap: int, most: int | None) -> _Region | None:
    """The boxes of a tree; None if at any point they are more than `cap`, or its conjunctions more than `most`.

    A contradiction that shows right under an AND may be None, too, where its conjunctions are too many.
    """
    tree: list[int] = []
    count = _write(filter, _writers_of(event_type), tree)
    if tree[0] == AND and tree[2] == 0 and len(tree) == 3 + _ONE * tree[1]:
        box = _one_box(tree, event_type.d)
        if box is not None:
            return box
    if most is not None and count > most:
        return None
    found = boxes_of(tree, event_type.d, cap)
    if found is None:
        return None
    corners, exact = found
    return _Region(Boxes(corners[0], corners[1]), exact)


_ONE = 5
"""Numbers of a leaf of one span; of one that has none and another that has several they may be as many."""


def _one_box(tree: list[int], d: int) -> _Region | None:
    """What most filters are, one span for each predicate; None if they are not."""
    lows, highs, exact = [ABSENT] * d, [PRESENT_MAX] * d, True
    for at in range(3, len(tree), _ONE):
        k, certain, spans, low, high = tree[at : at + _ONE]
        if spans != 1:
            return None
        if low > lows[k]:
            lows[k] = low
        if high < highs[k]:
            highs[k] = high
        if lows[k] > highs[k]:
            return _Region(Boxes.empty(d), True)
        exact = exact and certain == 1
    corners = np.array([lows, highs], np.int64)
    return _Region(Boxes(corners[:1], corners[1:]), exact)


def _write(filter: Filter, writers: Writers, tree: list[int]) -> int:
    """Write a tree out with the spans of its predicates (`span_trees.py`); return its conjunctions.

    A predicate is an AND of its own.
    """
    kind = filter.__class__
    children: Sequence[Filter] = (filter,) if isinstance(filter, Predicate) else filter.children
    begun = len(tree)
    tree += (OR if kind is Or else AND, len(children), 0)
    branches: list[Filter] = []
    for child in children:
        if isinstance(child, Predicate):
            tree += writers[child.attribute][child.operator](child.values)
        else:
            branches.append(child)
    if not branches:
        return len(children) if kind is Or else 1
    leaves = len(children) - len(branches)
    tree[begun + 1], tree[begun + 2] = leaves, len(branches)
    counts = [_write(branch, writers, tree) for branch in branches]
    return sum(counts) + leaves if kind is Or else prod(counts)


# --- what a predicate writes --------------------------------------------------------------------------------

Writers = Mapping[str, Mapping[Operator, Writer]]
"""By attribute and operator."""

REMEMBERED_MAX = 4096
"""Lists of values whose spans an attribute of words remembers, for each operator."""
TYPES_MAX = 64
"""Types whose writers are kept."""

_writers: dict[int, tuple[EventType, Writers]] = {}


def _writers_of(event_type: EventType) -> Writers:
    """The writers of a type: by the very object, which is kept, so that no other has its id."""
    known = _writers.get(id(event_type))
    if known is None:
        if len(_writers) >= TYPES_MAX:
            _writers.clear()
        made = {
            attribute.name: {operator: _writer(k, attribute, operator) for operator in Operator}
            for k, attribute in enumerate(event_type.attributes)
        }
        known = _writers[id(event_type)] = event_type, made
    return known[1]


def _writer(k: int, attribute: Attribute, operator: Operator) -> Writer:
    last = _LAST.get(attribute.kind)
    if last is not None and operator in _RANGES:
        return _ordered_writer(k, last, *_RANGES[operator])
    rule = _RULES[attribute.kind][operator]

    def write(values: Values) -> tuple[int, ...]:
        found, certain = rule(attribute, values)
        return (k, found == certain, len(found), *[end for span in found for end in span])

    return write if last is not None else _remembering(write)


def _remembering(write: Writer) -> Writer:
    """The same few names and codes are asked for by very many filters, and text is dear."""
    known: dict[Values, tuple[int, ...]] = {}

    def remembered(values: Values) -> tuple[int, ...]:
        found = known.get(values)
        if found is None:
            if len(known) >= REMEMBERED_MAX:
                known.clear()
            found = known[values] = write(values)
        return found

    return remembered


def _residual(filter: Filter, event_type: EventType) -> Filter:
    """What boxes alone do not decide: of a conjunction the parts that are not exact, else the whole."""
    if not isinstance(filter, And):
        return filter
    writers = _writers_of(event_type)
    return conjunction([child for child in filter.children if not _decided(child, writers)])


def _decided(filter: Filter, writers: Writers) -> bool:
    if isinstance(filter, Predicate):
        _, exact, *_ = writers[filter.attribute][filter.operator](filter.values)
        return exact == 1
    for child in filter.children:  # noqa: SIM110 - a generator costs more than all the rest
        if not _decided(child, writers):
            return False
    return True


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
    left: list[Spans] = [(span,) for span in within]
    branches = []
    for child in (filter,) if isinstance(filter, Predicate) else filter.children:
        if not isinstance(child, Predicate):
            branches.append(child)
            continue
        k = event_type.dimension[child.attribute]
        left[k] = common(left[k], intervals(child, event_type.attributes[k]).spans)
    if not all(left):
        return None
    bounds: Bounds | None = [(spans[0][0], spans[-1][1]) for spans in left]
    for branch in branches:
        bounds = None if bounds is None else _bounds(branch, event_type, bounds)
    return bounds
