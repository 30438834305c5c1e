"""The one filter tree: AND and OR over predicates, NOT already pushed to the leaves.

    price < 100 AND NOT (symbol IN ('IBM', 'SAP') OR halted = true)

        And ── price LT 100
         ├──── symbol NOT_IN 'IBM' 'SAP'
         └──── halted NE true

A predicate on an absent attribute is false, and so is its negation; IS_NULL is the only one that absence
satisfies. That is why negation can be pushed to the leaves for good: each operator has its opposite, and both
need a value.

Trees are made by the hundred thousand: their nodes are structs, which cost a fifth of a frozen dataclass to make.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

import msgspec


class Operator(Enum):
    """Operators of a leaf; `NEGATION` gives each one's opposite."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    BETWEEN = "BETWEEN"
    NOT_BETWEEN = "NOT BETWEEN"
    IN = "IN"
    NOT_IN = "NOT IN"
    LIKE = "LIKE"
    NOT_LIKE = "NOT LIKE"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"

    __hash__ = object.__hash__  # an enumeration's own is Python's, and every look-up below a filter would call it


_PAIRS = [
    (Operator.EQ, Operator.NE),
    (Operator.LT, Operator.GE),
    (Operator.GT, Operator.LE),
    (Operator.BETWEEN, Operator.NOT_BETWEEN),
    (Operator.IN, Operator.NOT_IN),
    (Operator.LIKE, Operator.NOT_LIKE),
    (Operator.IS_NULL, Operator.IS_NOT_NULL),
]
NEGATION: dict[Operator, Operator] = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}


class Timestamp(msgspec.Struct, frozen=True, order=True, gc=False):
    """A point in time as microseconds since 1970-01-01T00:00:00Z."""

    micros: int


Value = str | int | float | bool | Timestamp


class Predicate(msgspec.Struct, frozen=True, gc=False):
    """A leaf.

    `values`: one for a comparison, two for BETWEEN, n for IN, pattern (and escape) for LIKE, none for NULL.
    """

    attribute: str
    operator: Operator
    values: tuple[Value, ...] = ()

    def negated(self) -> Predicate:
        return Predicate(self.attribute, NEGATION[self.operator], self.values)


class And(msgspec.Struct, frozen=True, gc=False):
    """All children hold; without children it is TRUE."""

    children: tuple[Filter, ...]


class Or(msgspec.Struct, frozen=True, gc=False):
    """Some child holds; always at least one child."""

    children: tuple[Filter, ...]


Filter = And | Or | Predicate

TRUE = And(())


def conjunction(children: Iterable[Filter]) -> Filter:
    """All of `children`, flat: an AND inside joins in, TRUE vanishes, a single child stands for itself."""
    flat: list[Filter] = []
    for child in children:
        if isinstance(child, And):
            flat += child.children
        else:
            flat.append(child)
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def disjunction(children: Iterable[Filter]) -> Filter:
    """Some of `children` (one at least), flat: an OR inside joins in, TRUE takes all."""
    flat: list[Filter] = []
    for child in children:
        if isinstance(child, Or):
            flat += child.children
        elif isinstance(child, And) and not child.children:
            return TRUE
        else:
            flat.append(child)
    assert flat, "an OR of nothing is FALSE, which is no filter"
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


def negated(filter: Filter) -> Filter:
    """The opposite, with NOT pushed to the leaves; TRUE has none.

    >>> both = And((Predicate("a", Operator.LT, (5,)), Predicate("b", Operator.IS_NULL)))
    >>> [child.operator.value for child in negated(both).children]
    ['>=', 'IS NOT NULL']
    """
    assert filter != TRUE, "FALSE is no filter"
    if isinstance(filter, Predicate):
        return filter.negated()
    opposite = disjunction if isinstance(filter, And) else conjunction
    return opposite(negated(child) for child in filter.children)


def predicates(filter: Filter) -> Iterator[Predicate]:
    """The leaves from left to right."""
    if isinstance(filter, Predicate):
        yield filter
    else:
        for child in filter.children:
            yield from predicates(child)
