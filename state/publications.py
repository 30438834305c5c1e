"""Publications as samples read them: the type and the document of one record, however its publisher wrote it.

The route query reads whole batches by column (`state/routing/envelope.py`). Here a few records are enough, and nobody
is told what is wrong with one that cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from state.config import Config
from state.messages import Record
from state.space.event_type import EventType, Format, format_said

_STRUCTURED = b"application/cloudevents"
_NONE = ("", b"")


def types_of_sources(config: Config) -> dict[str, str]:
    """By topic of `[[sources]]`: the type of what it holds."""
    return {source.topic: source.type for source in config.sources}


def format_of(record: Record, config: Config) -> Format | None:
    """What a value is written in, where that is not what its type says."""
    headers = {name.lower(): value or b"" for name, value in record.headers}
    if headers.get("content-type", b"").lower().startswith(_STRUCTURED):
        return "json"
    given = next((source.format for source in config.sources if source.topic == record.topic), None)
    return given or format_said(record.headers)


def read_publication(record: Record, sources: Mapping[str, str]) -> tuple[str, bytes]:
    """The type and the JSON of the attributes: in binary or structured mode, or of a source topic.

    The type is empty where none is given; the JSON is not looked at unless the type stands in it.

    >>> read_publication(Record("p", 0, 0, 0, None, b'{"x": 1}', (("ce_type", b"t"),)), {})
    ('t', b'{"x": 1}')
    >>> structured = (("Content-Type", b"application/cloudevents+json"),)
    >>> read_publication(Record("p", 0, 0, 0, None, b'{"type": "t", "data": {"x": 1}}', structured), {})
    ('t', b'{"x":1}')
    >>> read_publication(Record("orders", 0, 0, 0, None, b'{"x": 1}'), {"orders": "t"})
    ('t', b'{"x": 1}')
    """
    headers = {name.lower(): value or b"" for name, value in record.headers}
    if headers.get("content-type", b"").lower().startswith(_STRUCTURED):
        return _read_structured(record.value or b"")
    given = headers.get("ce_type", b"").decode("utf-8", "replace")
    return given or sources.get(record.topic, ""), record.value or b""


def beside_columns(event_type: EventType, records: Sequence[Record]) -> dict[str, list[bytes | None]]:
    """By attribute that is in a header or in the key: what each of these records holds, as `decode` takes it.

    >>> from state.space.event_type import Attribute
    >>> order = EventType("order", (Attribute("region", "text", header="r"), Attribute("id", "int", key=True)))
    >>> beside_columns(order, [Record("p", 0, 0, 0, b"7", b"{}", (("r", b"US"), ("r", b"EU")))])
    {'region': [b'EU'], 'id': [b'7']}
    """
    return {
        attribute.name: [
            record.key if attribute.header is None else dict(record.headers).get(attribute.header) for record in records
        ]
        for attribute in event_type.beside
    }


def _read_structured(value: bytes) -> tuple[str, bytes]:
    try:
        event = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _NONE
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return _NONE
    return event["type"], msgspec.json.encode(event.get("data"))
