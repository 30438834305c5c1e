"""The CloudEvents filter dialects (Subscriptions API, §3.2.4) as a second front end to the same tree.

    {"exact":  {"side": "buy"}}             all of the members equal            side = 'buy'
    {"prefix": {"symbol": "IB"}}            all begin so                        symbol LIKE 'IB%'
    {"suffix": {"symbol": ".DE"}}           all end so                          symbol LIKE '%.DE'
    {"all": [...]}, {"any": [...]}          one filter at least                 AND, OR
    {"not": {...}}                                                              NOT (…)
    {"sql": "price < 5"}                    our own language, docs/filters.md
    [...]                                   the `filters` of a subscription: all of them; none is TRUE

Differs: members name attributes of the event type, not of the envelope; an absent attribute satisfies neither
a filter nor its `not`; `sql` is the language of `grammar.py`, which is not CESQL but looks the same for
comparisons. Values may be JSON numbers and booleans as well as their text, which is all that the
specification knows. The limits are those of the text form: 4096 bytes (as compact JSON), depth 32 (`all`,
`any`, `not`, and what the text of an `sql` adds), 64 predicates.
"""

from __future__ import annotations

import json
from itertools import chain, islice

from state.errors import FilterError
from state.filters.checking import BYTES_MAX, DEPTH_MAX, PREDICATES_MAX, Scalar, checked, limited, shown
from state.filters.grammar import admitted, number, parse, written
from state.filters.tree import TRUE, Filter, Operator, conjunction, disjunction, negated
from state.space.event_type import EventType


def read_filter(value: object, event_type: EventType) -> Filter:
    """Read a filter from a message: text, or the JSON form (an object, or a list of them).

    >>> from state.space.event_type import Attribute, EventType
    >>> quote = EventType("quote", (Attribute("symbol", "text"),))
    >>> read_filter("symbol LIKE 'IB%'", quote) == read_filter([{"prefix": {"symbol": "IB"}}], quote)
    True
    """
    if isinstance(value, str):
        return parse(value, event_type)
    if isinstance(value, dict | list):
        return from_json(value, event_type)
    raise FilterError("bad-value", f"a filter is text or a CloudEvents filter, not {shown(value)}")


def from_json(value: object, event_type: EventType) -> Filter:
    """Read the CloudEvents JSON form, decoded.

    Guarantee: a tree or FilterError, for anything that JSON can hold; limits are counted before anything is
    built.
    """
    limited("bytes of JSON", _size(value), BYTES_MAX)
    reading = _Reading(event_type)
    if isinstance(value, list):
        return conjunction([reading.filter(element, 0) for element in value])
    return reading.filter(value, 0)


class _Reading:
    """One JSON filter being read; `predicates` counts those so far."""

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self.predicates = 0

    def filter(self, value: object, depth: int) -> Filter:
        limited("levels of all, any and not", depth, DEPTH_MAX)
        if not isinstance(value, dict) or len(value) != 1:
            raise FilterError(
                "filter-syntax", f"a filter is an object with one dialect as its member, not {shown(value)}"
            )
        ((dialect, body),) = value.items()
        match dialect:
            case "exact" | "prefix" | "suffix":
                return self.members(dialect, body)
            case "all" | "any":
                return self.several(dialect, body, depth + 1)
            case "not":
                inner = self.filter(body, depth + 1)
                if inner == TRUE:
                    raise FilterError("filter-syntax", "nothing satisfies the opposite of TRUE")
                return negated(inner)
            case "sql":
                return self.sql(body, depth)
            case _:
                raise FilterError(
                    "filter-syntax",
                    f"{shown(dialect)} is no dialect; known are exact, prefix, suffix, all, any, not, sql",
                )

    def members(self, dialect: str, body: object) -> Filter:
        if not isinstance(body, dict) or not body:
            raise FilterError("filter-syntax", f"{dialect} needs an object of attributes and values")
        self.predicates += len(body)
        limited("predicates", self.predicates, PREDICATES_MAX)
        return conjunction([self.member(dialect, name, value) for name, value in body.items()])

    def member(self, dialect: str, name: str, value: object) -> Filter:
        if value is None or value == "" or isinstance(value, dict | list):
            raise FilterError(
                "filter-syntax",
                f"{dialect} of {shown(name)} needs a value that is not empty, not {shown(value)}",
            )
        assert isinstance(value, str | int | float), "JSON has no other scalars"
        if dialect == "exact":
            return checked(name, Operator.EQ, [self.scalar(name, value)], self.event_type)
        pattern: list[Scalar] = [value]
        if isinstance(value, str):
            escaped, *escape = _escaped(value)
            pattern = [f"{escaped}%" if dialect == "prefix" else f"%{escaped}", *escape]
        return checked(name, Operator.LIKE, pattern, self.event_type)

    def scalar(self, name: str, value: str | int | float) -> str | int | float:
        """The specification knows text only: for a number or a boolean it stands for what it spells."""
        dimension = self.event_type.dimension.get(name)
        if dimension is None or not isinstance(value, str):
            return value
        match self.event_type.attributes[dimension].kind:
            case "int" | "float":
                spelled = number(value)
                return value if spelled is None else spelled
            case "boolean":
                return {"true": True, "false": False}.get(value, value)
            case _:
                return value

    def several(self, dialect: str, body: object, depth: int) -> Filter:
        if not isinstance(body, list) or not body:
            raise FilterError("filter-syntax", f"{dialect} needs a list of one filter at least")
        children = [self.filter(element, depth) for element in body]
        return conjunction(children) if dialect == "all" else disjunction(children)

    def sql(self, body: object, depth: int) -> Filter:
        if not isinstance(body, str):
            raise FilterError("filter-syntax", f"sql needs text, not {shown(body)}")
        what = written(body)
        inner = admitted(what, self.event_type, depth, self.predicates)
        self.predicates += what.predicates
        return inner


def _escaped(text: str) -> tuple[str, ...]:
    """A LIKE pattern for exactly this text, and the escape character if it takes one."""
    if not any(c in text for c in "%_"):
        return (text,)
    return "".join(f"\\{c}" if c in "%_\\" else c for c in text), "\\"


def _size(value: object) -> int:
    """Bytes of `value` as compact JSON, or something above the limit as soon as that is reached.

    Cost: O(limit), without recursion, however deep and large the value is.
    """
    size, todo = 0, [value]
    while todo and size <= BYTES_MAX:
        element = todo.pop()
        if isinstance(element, list):
            size += 2 + max(0, len(element) - 1)
            todo.extend(element[:BYTES_MAX])
        elif isinstance(element, dict):
            size += 2 + max(0, 2 * len(element) - 1)
            todo.extend(islice(chain.from_iterable(element.items()), BYTES_MAX))
        else:
            size += _scalar_size(element)
    return size


def _scalar_size(value: object) -> int:
    if isinstance(value, int) and 3 * value.bit_length() > 10 * BYTES_MAX:
        return BYTES_MAX + 1  # a digit has less than 10/3 bits; Python refuses to print more than 4,300 of them
    try:
        return len(json.dumps(value, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise FilterError("filter-syntax", "half of a surrogate pair is no character") from None
