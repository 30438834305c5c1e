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

from collections.abc import Callable, Sequence
from itertools import islice
from math import isfinite

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


Scalar = str | int | float | bool
"""A literal as it was written."""
At = Callable[[int | None], int | None]
"""Where in the text a predicate's name begins (None), or one of its literals; asked for a message only."""


def nowhere(_: int | None) -> None:
    """The place of what was not written as text."""


def checked(
    name: str, operator: Operator, literals: Sequence[Scalar], event_type: EventType, at: At = nowhere
) -> Predicate:
    """Return the predicate, or raise `filter-attribute` or `filter-type` (a bad ESCAPE: `filter-syntax`).

    >>> from state.space.event_type import Attribute, EventType
    >>> event_type = EventType("t", (Attribute("at", "timestamp"),))
    >>> checked("at", Operator.LT, ["1970-01-01T00:00:01Z"], event_type)
    Predicate(attribute='at', operator=<Operator.LT: '<'>, values=(Timestamp(micros=1000000),))
    """
    dimension = event_type.dimension.get(name)
    if dimension is None:
        known = _listed([attribute.name for attribute in event_type.attributes])
        raise FilterError("filter-attribute", f"{shown(name)} is no attribute of {event_type.name} ({known})", at(None))
    attribute = event_type.attributes[dimension]
    if operator in _LIKE:
        return _checked_like(attribute, operator, literals, at)
    if attribute.kind == "boolean" and operator not in _OF_BOOLEANS:
        raise FilterError(
            "filter-type",
            f"{operator.value} does not apply to {shown(name)}, a boolean: use = != <> IN",
            at(None),
        )
    typed = TYPED[attribute.kind]
    values: list[Value] = []
    for literal in literals:
        value = typed(literal, attribute)
        if value is None:
            raise _misfit(literal, attribute, at(len(values)))
        values.append(value)
    return Predicate(name, operator, tuple(values))


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


def _typed_number(value: Scalar, _: Attribute) -> int | float | None:
    if type(value) is int:
        return value
    return value if type(value) is float and isfinite(value) else None


def _typed_boolean(value: Scalar, _: Attribute) -> bool | None:
    return value if type(value) is bool else None


def _typed_category(value: Scalar, attribute: Attribute) -> str | None:
    return value if type(value) is str and value in attribute.values else None


def _typed_timestamp(value: Scalar, _: Attribute) -> Timestamp | None:
    micros = timestamp_micros(value) if type(value) is str else None
    return None if micros is None else Timestamp(micros)


def _typed_text(value: Scalar, _: Attribute) -> str | None:
    return value if type(value) is str else None


TYPED: dict[str, Callable[[Scalar, Attribute], Value | None]] = {
    "int": _typed_number,
    "float": _typed_number,
    "boolean": _typed_boolean,
    "category": _typed_category,
    "timestamp": _typed_timestamp,
    "text": _typed_text,
}
"""By kind: what an attribute makes of a literal; None if it does not fit."""


def _misfit(value: Scalar, attribute: Attribute, position: int | None) -> FilterError:
    if type(value) is float and attribute.kind in ("int", "float"):
        return FilterError("filter-type", "the number overflows a double", position)
    needs = f"which needs {_needs(attribute)}"
    return FilterError("filter-type", f"{shown(value)} does not fit {attribute.name}, {needs}", position)


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


def _checked_like(attribute: Attribute, operator: Operator, literals: Sequence[Scalar], at: At) -> Predicate:
    if attribute.kind not in ("text", "category"):
        raise FilterError(
            "filter-type",
            f"LIKE is for text and categories, and {attribute.name} is of kind {attribute.kind}",
            at(None),
        )
    pattern, *rest = literals
    if not isinstance(pattern, str):
        raise FilterError("filter-type", f"LIKE needs a pattern in quotes, not {shown(pattern)}", at(0))
    if not rest:
        return Predicate(attribute.name, operator, (pattern,))
    escape = rest[0]
    if not isinstance(escape, str) or len(escape) != 1:
        raise FilterError("filter-syntax", "ESCAPE needs exactly one character", at(1))
    if not _escapes_well(pattern, escape):
        raise FilterError("filter-syntax", f"in a pattern {shown(escape)} must be followed by %, _ or itself", at(0))
    return Predicate(attribute.name, operator, (pattern, escape))


def _escapes_well(pattern: str, escape: str) -> bool:
    characters = iter(pattern)
    return all(next(characters, "") in ("%", "_", escape) for c in characters if c == escape)
