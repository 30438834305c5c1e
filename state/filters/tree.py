"""The one filter tree: AND and OR over predicates, NOT already pushed to the leaves.

    price < 100 AND NOT (symbol IN ('IBM', 'SAP') OR halted = true)

        And ── price LT 100
         ├──── symbol NOT_IN 'IBM' 'SAP'
         └──── halted NE true

A predicate on an absent attribute is false, and so is its negation; IS_NULL is the only one that absence satisfies.
That is why negation can be pushed to the leaves for good: each operator has its opposite, and both need a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time as microseconds since 1970-01-01T00:00:00Z."""

    micros: int


Value = str | int | float | bool | Timestamp


@dataclass(frozen=True, slots=True)
class Predicate:
    """A leaf. `values`: one for a comparison, two for BETWEEN, n for IN, pattern (and escape) for LIKE, none for NULL."""

    attribute: str
    operator: Operator
    values: tuple[Value, ...] = ()

    def negated(self) -> Predicate:
        return Predicate(self.attribute, NEGATION[self.operator], self.values)


@dataclass(frozen=True, slots=True)
class And:
    """All children hold; without children it is TRUE."""

    children: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Some child holds; always at least one child."""

    children: tuple[Filter, ...]


Filter = And | Or | Predicate

TRUE = And(())
