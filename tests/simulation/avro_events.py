"""Events of the simulator in Avro: a schema in which any attribute may be anything, and events written by fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache

import fastavro

from state.space.event_type import Attribute

END = ["long", "double"]
SPAN = {"type": "record", "name": "Span", "fields": [{"name": "min", "type": END}, {"name": "max", "type": END}]}


def schema_of(attributes: Iterable[Attribute]) -> str:
    """The schema of documents that hold these attributes where they belong, and a note.

    Every record is there or null. An attribute is nothing, a single value of any kind, or an interval.
    """
    paths = [attribute.members for attribute in attributes if attribute.members] + [("note",)]
    return json.dumps(_Making().record("Event", paths))


def encoded(schema: str, document: Mapping[str, object]) -> bytes:
    """The document as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _parsed(schema), dict(document))
    return out.getvalue()


@lru_cache(maxsize=64)
def _parsed(schema: str) -> object:
    return fastavro.parse_schema(json.loads(schema))


class _Making:
    """A schema being made: what it has named."""

    def __init__(self) -> None:
        self._records = 0
        self._spans = False

    def record(self, name: str, paths: list[tuple[str, ...]]) -> dict[str, object]:
        below: dict[str, list[tuple[str, ...]]] = {}
        for path in paths:
            below.setdefault(path[0], []).append(path[1:])
        return {"type": "record", "name": name, "fields": [self._field(*member) for member in below.items()]}

    def _field(self, name: str, ways: list[tuple[str, ...]]) -> dict[str, object]:
        if () not in ways:
            self._records += 1
            return {"name": name, "type": ["null", self.record(f"Below{self._records}", ways)]}
        assert ways == [()], "no attribute of the simulator lies on the way to another"
        span: object = "Span" if self._spans else SPAN
        self._spans = True
        return {"name": name, "type": ["null", "boolean", "long", "double", "string", span]}
