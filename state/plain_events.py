"""Events one at a time, read as naively as possible: what `verify`, `explain` and `cost` believe of an event.

Nothing here is shared with the router's own reading (`state/space/decode.py`, `places.py`): the judge must not make
the defendant's mistakes. Python's `json`, or a plain reader of the other formats, reads the document, and a loop
follows the path.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from state.errors import HilcastError
from state.space.encodings.documents import read_document
from state.space.encodings.schemas import NO_SCHEMAS, Schemas
from state.space.event_type import Attribute, EventType
from state.space.ranks import PRESENT_MAX, Exact

DEPTH_MAX = 128
"""Objects and arrays may lie in each other this deep (docs/messages.md)."""

Beside = Mapping[str, bytes | None]
"""By attribute that is in a header or in the key: what that holds."""


def beside_of(event_type: EventType, headers: tuple[tuple[str, bytes | None], ...], key: bytes | None) -> Beside:
    """What a record holds of the attributes that are beside its value; of equal headers the last counts."""
    return {a.name: key if a.key else dict(headers).get(cast(str, a.header)) for a in event_type.beside}


def plain_event(
    event_type: EventType, value: bytes, beside: Beside, schemas: Schemas = NO_SCHEMAS
) -> dict[str, object] | None:
    """The attributes of an event by name, absent ones left out; None if its value is not what its type says.

    >>> order = EventType("order", (Attribute("n", "int", path=("a", "b")), Attribute("region", "text", header="r")))
    >>> plain_event(order, b'{"a": {"b": 3}}', {"region": b"EU"}), plain_event(order, b"[]", {})
    ({'n': 3, 'region': 'EU'}, None)
    """
    document = plain_document(event_type, value, schemas)
    return None if document is None else plain_attributes(event_type, document, beside)


def plain_document(event_type: EventType, value: bytes, schemas: Schemas) -> dict[str, object] | None:
    """What a value says, as far as attributes need it, in the format of its type; None if it is not written so."""
    if event_type.format == "json":
        return _document(value)
    try:
        return read_document(event_type, value, schemas, attributes_only=True)
    except HilcastError as error:
        if error.code not in ("bad-event", "unknown-schema"):
            raise  # a schema that cannot be had just now says nothing of the event
        return None


def plain_attributes(event_type: EventType, document: Mapping[str, object], beside: Beside) -> dict[str, object]:
    """The attributes of a document that was read already, by name, absent ones left out."""
    found: dict[str, object] = {}
    for attribute in event_type.attributes:
        here: object = document
        for member in attribute.members:
            here = here.get(member) if isinstance(here, dict) else None
        if not attribute.members:
            here = _stands_for(attribute, beside.get(attribute.name))
        if here is not None:
            found[attribute.name] = here
    return found


def _document(value: bytes) -> dict[str, object] | None:
    try:
        document = json.loads(value.decode(), parse_constant=_refuse, parse_int=_integer, parse_float=_number)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and _depth(value) <= DEPTH_MAX else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 4000 else float(digits)


def _number(text: str) -> float:
    """A number with a fraction or an exponent: its nearest double, and where that is not exact, the integer it is."""
    nearest = float(text)
    if math.isinf(nearest):
        return nearest
    if nearest == 0:  # so small that `Decimal` may not have it
        return Exact(nearest, None) if re.search("[1-9]", re.split("[eE]", text)[0]) else nearest
    exact = Decimal(text)
    if exact == Decimal(nearest):
        return nearest
    return Exact(nearest, int(exact) if abs(exact) <= PRESENT_MAX and exact == int(exact) else None)


def _depth(value: bytes) -> int:
    """How deep the objects and arrays of a JSON text lie in each other; what is inside strings does not count."""
    depth = deepest = 0
    for bracket in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", value):
        depth += (bracket in b"[{") - (bracket in b"]}")
        deepest = max(deepest, depth)
    return deepest


def _stands_for(attribute: Attribute, raw: bytes | None) -> object:
    """A header or key: text as it stands, numbers and truth values as JSON writes them."""
    if raw is None:
        return None
    try:
        text = raw.decode()
        if attribute.kind in ("category", "text", "timestamp"):
            return text
        if text != text.strip():
            return None
        given = json.loads(text, parse_constant=_refuse, parse_int=_integer, parse_float=_number)
    except (ValueError, RecursionError):
        return None
    wanted = isinstance(given, bool) == (attribute.kind == "boolean") and isinstance(given, bool | int | float)
    return given if wanted else None
