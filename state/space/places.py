"""Where the attributes of an event are: in its document by path, in a header, or in the record's key.

    path    order.customer.country     {"order": {"customer": {"country": "DE"}}}
    header  x-region                   x-region: EU
    key     the record's key           order-17

Filters and everything behind them know attributes by name; this page alone knows where they come from. It is the
reference: `decode.py` reads batches of documents with compiled code and must find the same. Nothing here needs numpy.

What is missing anywhere on the way is absent. So is what lies behind anything but an object: no path descends into an
array. A header or key is text in UTF-8 and is read by the attribute's kind: a number in JSON's syntax, `true` or
`false`, a time or any text as it stands, without quotes. What cannot be read so is absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from state.space.event_type import Attribute, EventType
from state.space.ranks import read_decimal

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DIGITS_MAX = 400
"""No attribute holds a longer integer; `float` says infinite at once."""

Headers = Mapping[str, bytes | None]
"""By name; of several of one name the last."""


def attributes_of(
    event_type: EventType, document: Mapping[str, object], headers: Headers | None = None, key: bytes | None = None
) -> dict[str, object]:
    """Return what an event says of the attributes of its type, by their names; those that are absent are left out.

    A value of the wrong kind is among them if it is in the document: its rank tells.

    >>> country = Attribute("country", "text", path=("order", "customer", "country"))
    >>> region, id = Attribute("region", "text", header="x-region"), Attribute("id", "int", key=True)
    >>> order = EventType("order", (country, region, id))
    >>> attributes_of(order, {"order": {"customer": {"country": "DE"}}}, {"x-region": b"EU"}, b"17")
    {'country': 'DE', 'region': 'EU', 'id': 17}
    >>> attributes_of(order, {"order": [{"customer": {"country": "DE"}}]})
    {}
    """
    found = {}
    for attribute in event_type.attributes:
        if attribute.header is not None:
            value = value_of_text(attribute, (headers or {}).get(attribute.header))
        elif attribute.key:
            value = value_of_text(attribute, key)
        else:
            value = member_of(document, attribute.members)
        if value is not None:
            found[attribute.name] = value
    return found


def member_of(document: object, members: tuple[str, ...]) -> object:
    """What a document holds at the end of a path; None if it does not lead there."""
    for member in members:
        if not isinstance(document, Mapping):
            return None
        document = document.get(member)
    return document


def value_of_text(attribute: Attribute, raw: bytes | None) -> object:
    """Return the value that a header or key stands for, as JSON would give it; None if it is none of the kind.

    >>> volume, halted = Attribute("volume", "int", header="v"), Attribute("halted", "boolean", key=True)
    >>> value_of_text(volume, b"3.0"), value_of_text(volume, b"03"), value_of_text(halted, b"true")
    (3.0, None, True)
    """
    try:
        text = None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None
    if text is None or attribute.kind not in ("int", "float", "boolean"):
        return text
    if attribute.kind == "boolean":
        return {"true": True, "false": False}.get(text)
    number = _NUMBER.fullmatch(text)
    if number is None:
        return None
    return integer(text) if number[2] is None and number[3] is None else read_decimal(text)


def integer(digits: str) -> int | float:
    """The integer of its digits; an infinite float where no attribute could hold it."""
    return int(digits) if len(digits) <= _DIGITS_MAX else float(digits)


class Placed(NamedTuple):
    """An event as its publisher would write it: the document, and what is beside it."""

    document: dict[str, object]
    headers: tuple[tuple[str, bytes], ...]
    key: bytes | None


def placed(event_type: EventType, attributes: Mapping[str, object]) -> Placed:
    """Return attributes in their places, so that `attributes_of` gives them again; others stand at the top.

    Raises ValueError where a path leads through what another attribute has put there.

    >>> country, key = Attribute("country", "text", path=("order", "country")), Attribute("id", "int", key=True)
    >>> placed(EventType("order", (country, key)), {"country": "DE", "id": 7, "note": "x"})
    Placed(document={'order': {'country': 'DE'}, 'note': 'x'}, headers=(), key=b'7')
    """
    document: dict[str, object] = {}
    headers: list[tuple[str, bytes]] = []
    key = None
    for name, value in attributes.items():
        attribute = event_type.attribute(name) if name in event_type.dimension else Attribute(name, "text")
        if attribute.members:
            _put(document, attribute.members, value)
        elif value is not None and attribute.header is not None:
            headers.append((attribute.header, _text_of(value)))
        elif value is not None:
            key = _text_of(value)
    return Placed(document, tuple(headers), key)


def _put(document: dict[str, object], members: tuple[str, ...], value: object) -> None:
    *way, last = members
    for member in way:
        below = document.setdefault(member, {})
        if not isinstance(below, dict):
            raise ValueError(f"{'.'.join(members)!r} leads through {member!r}, which holds a value")
        document = below
    if last in document:
        raise ValueError(f"{'.'.join(members)!r} holds something already")
    document[last] = value


def _text_of(value: object) -> bytes:
    return str(value).lower().encode() if isinstance(value, bool) else str(value).encode()
