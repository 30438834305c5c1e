"""Predicates checked against the event type: does the attribute exist, is each literal of its kind.

Both front ends (`grammar.py`, `cloudevents.py`) end here, so that a predicate means the same however it was
written. A literal arrives as what it looks like (text, number, true or false) and leaves as what the
attribute's kind makes of it:

    kind             literal                  becomes
    int, float       number, not overflowing  int, exact however large; or the nearest double
    boolean          true, false              bool
    category         one of its values        str
    timestamp        RFC 3339 text            Timestamp
    text             text                     str
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from state.errors import FilterError
from state.filters.tree import Operator, Predicate, Timestamp, Value
from state.space.event_type import Attribute, EventType
from state.space.ranks import timestamp_micros

BYTES_MAX = 4096
DEPTH_MAX = 32
PREDICATES_MAX = 64
"""Admission limits, docs/filters.md: counted on what was written, before anything is expanded."""

_LIKE = (Operator.LIKE, Operator.NOT_LIKE)
_OF_BOOLEANS = frozenset(
    {Operator.EQ, Operator.NE, Operator.IN, Operator.NOT_IN, Operator.IS_NULL, Operator.IS_NOT_NULL}
)
_SHOWN_MAX = 60
_SHOWN_LEVELS = 8


class Literal(NamedTuple):
    """A value as it was written, and where."""

    value: str | int | float | bool
    position: int | None = None


def checked(
    name: str,
    operator: Operator,
    literals: Sequence[Literal],
    event_type: EventType,
    position: int | None = None,
) -> Predicate:
    """Return the predicate, or raise `filter-attribute` or `filter-type` (a bad ESCAPE: `filter-syntax`).

    >>> from state.space.event_type import Attribute, EventType
    >>> event_type = EventType("t", (Attribute("at", "timestamp"),))
    >>> checked("at", Operator.LT, [Literal("1970-01-01T00:00:01Z")], event_type)
    Predicate(attribute='at', operator=<Operator.LT: '<'>, values=(Timestamp(micros=1000000),))
    """
    dimension = event_type.dimension.get(name)
    if dimension is None:
        known = _listed([attribute.name for attribute in event_type.attributes])
        raise FilterError("filter-attribute", f"{shown(name)} is no attribute of {event_type.name} ({known})", position)
    attribute = event_type.attributes[dimension]
    if operator in _LIKE:
        return _checked_like(attribute, operator, literals, position)
    if attribute.kind == "boolean" and operator not in _OF_BOOLEANS:
        raise FilterError(
            "filter-type",
            f"{operator.value} does not apply to {shown(name)}, a boolean: use = != <> IN",
            position,
        )
    return Predicate(name, operator, tuple(_typed(literal, attribute) for literal in literals))


def shown(value: object) -> str:
    """A value for a message: quoted as JSON quotes it or as a number, and cut when it is long or deep."""
    text = _written(value, _SHOWN_LEVELS)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"


def _written(value: object, levels: int) -> str:
    if isinstance(value, dict | list):
        few = [_written(item, levels - 1) if levels else "…" for item in islice(value, _SHOWN_MAX)]
        if isinstance(value, list):
            return f"[{', '.join(few)}]"
        below = (_written(item, levels - 1) if levels else "…" for item in islice(value.values(), _SHOWN_MAX))
        return "{" + ", ".join(f"{name}: {item}" for name, item in zip(few, below, strict=True)) + "}"
    if isinstance(value, int) and value.bit_length() > 8 * _SHOWN_MAX:
        return f"a number of {value.bit_length()} bits"  # Python refuses to print the very long ones
    return repr(value) if not isinstance(value, bool) else str(value).lower()


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 20 else ", ".join(names[:20]) + ", …"


def limited(what: str, found: int, limit: int) -> None:
    """Raise `filter-limit` if more was found than is admitted."""
    if found > limit:
        raise FilterError("filter-limit", f"{found} {what}, at most {limit} are admitted")


def _typed(literal: Literal, attribute: Attribute) -> Value:
    value = literal.value
    match attribute.kind:
        case "int" | "float":
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if isinstance(value, float):
                if math.isfinite(value):
                    return value
                raise FilterError("filter-type", "the number overflows a double", literal.position)
        case "boolean":
            if isinstance(value, bool):
                return value
        case "category":
            if isinstance(value, str) and value in attribute.values:
                return value
        case "timestamp":
            if isinstance(value, str) and (micros := timestamp_micros(value)) is not None:
                return Timestamp(micros)
        case "text":
            if isinstance(value, str):
                return value
    raise FilterError(
        "filter-type",
        f"{shown(value)} does not fit {attribute.name}, which needs {_needs(attribute)}",
        literal.position,
    )


def _needs(attribute: Attribute) -> str:
    match attribute.kind:
        case "int" | "float":
            return "a number"
        case "boolean":
            return "true or false"
        case "category":
            return f"one of {_listed([repr(value) for value in attribute.values])}"
        case "timestamp":
            return "a time with offset as in RFC 3339, such as '2026-01-31T12:00:00Z'"
        case "text":
            return "text"


def _checked_like(
    attribute: Attribute, operator: Operator, literals: Sequence[Literal], position: int | None
) -> Predicate:
    if attribute.kind not in ("text", "category"):
        raise FilterError(
            "filter-type",
            f"LIKE is for text and categories, and {attribute.name} is of kind {attribute.kind}",
            position,
        )
    pattern, *rest = literals
    if not isinstance(pattern.value, str):
        raise FilterError(
            "filter-type", f"LIKE needs a pattern in quotes, not {shown(pattern.value)}", pattern.position
        )
    if not rest:
        return Predicate(attribute.name, operator, (pattern.value,))
    escape = rest[0].value
    if not isinstance(escape, str) or len(escape) != 1:
        raise FilterError("filter-syntax", "ESCAPE needs exactly one character", rest[0].position)
    if not _escapes_well(pattern.value, escape):
        raise FilterError(
            "filter-syntax",
            f"in a pattern {shown(escape)} must be followed by %, _ or itself",
            pattern.position,
        )
    return Predicate(attribute.name, operator, (pattern.value, escape))


def _escapes_well(pattern: str, escape: str) -> bool:
    characters = iter(pattern)
    return all(next(characters, "") in ("%", "_", escape) for c in characters if c == escape)
