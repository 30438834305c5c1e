"""Filters back to text, in the language that `grammar.py` reads: parsing it gives the same tree.

Only the brackets that precedence asks for are printed (an OR inside an AND), so the text is never deeper than
the one the tree came from. It may be longer (`a<1e9` becomes `a < 1000000000.0`), even beyond what a subscriber
may write: text that was printed is parsed with `limits=False`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from state.filters.grammar import KEYWORDS
from state.filters.tree import TRUE, Filter, Operator, Or, Predicate, Timestamp, Value
from state.space.event_type import Attribute
from state.space.ranks import unrank

_PLAIN_NAME = re.compile(r"[^\W0-9]\w*")
_LISTS = (Operator.IN, Operator.NOT_IN)
_TIME = Attribute("", "timestamp")
_OFFSET_MICROS = (23 * 60 + 59) * 60_000_000


def to_text(filter: Filter) -> str:
    """Print a filter as people write it.

    Guarantee: `parse(to_text(filter), event_type, limits=False) == filter` for every filter that was parsed.

    >>> from state.filters.tree import conjunction
    >>> either = Or((Predicate("side", Operator.EQ, ("buy",)), Predicate("in", Operator.IS_NULL)))
    >>> print(to_text(conjunction([Predicate("price", Operator.LT, (100,)), either])))
    price < 100 AND (side = 'buy' OR "in" IS NULL)
    """
    if filter == TRUE:
        return "TRUE"
    if isinstance(filter, Predicate):
        return predicate_text(filter)
    if isinstance(filter, Or):
        return " OR ".join(to_text(child) for child in filter.children)
    return " AND ".join(f"({to_text(child)})" if isinstance(child, Or) else to_text(child) for child in filter.children)


def predicate_text(predicate: Predicate) -> str:
    """Print one leaf."""
    operator, values = predicate.operator, predicate.values
    name = name_text(predicate.attribute)
    if len(values) == 1 and operator not in _LISTS:
        return f"{name} {operator.value} {value_text(values[0])}"
    match operator:
        case Operator.IS_NULL | Operator.IS_NOT_NULL:
            return f"{name} {operator.value}"
        case Operator.BETWEEN | Operator.NOT_BETWEEN:
            return f"{name} {operator.value} {value_text(values[0])} AND {value_text(values[1])}"
        case Operator.LIKE | Operator.NOT_LIKE:
            return f"{name} {operator.value} {' ESCAPE '.join(map(value_text, values))}"
        case _:
            return f"{name} {operator.value} ({', '.join(map(value_text, values))})"


@lru_cache(maxsize=1024)
def name_text(name: str) -> str:
    """An attribute's name, in double quotes if it is not a plain name or reads as a keyword."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def value_text(value: Value) -> str:
    """A literal. A double prints as the shortest text that reads back as the same double."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Timestamp):
        return f"'{timestamp_text(value)}'"
    return repr(value) if not isinstance(value, bool) else str(value).lower()


def timestamp_text(timestamp: Timestamp) -> str:
    """RFC 3339 in UTC; what an offset carried out of the years 0000 to 9999 is written with one again.

    >>> timestamp_text(Timestamp(0))
    '1970-01-01T00:00:00Z'
    """
    text = unrank(_TIME, timestamp.micros)
    if text is None:
        sign = "+" if timestamp.micros < 0 else "-"
        shifted = timestamp.micros + (_OFFSET_MICROS if sign == "+" else -_OFFSET_MICROS)
        text = f"{unrank(_TIME, shifted)}"[:-1] + f"{sign}23:59"
    return str(text)
