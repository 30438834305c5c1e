"""Events in the format of their type: what a publisher writes, and what a delivery says."""

from __future__ import annotations

import json
from collections.abc import Mapping

from state.config import Config
from state.errors import HilcastError
from state.messages import Record
from state.space.encodings.documents import read_document
from state.space.encodings.schemas import NO_SCHEMAS, Schema, Schemas
from state.space.encodings.wire import framed
from state.space.encodings.writing import write_document
from state.space.event_type import EventType, format_said


class Encoder:
    """Writes and reads the events of a configuration; asks the schema registry only for types that name none."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._schemas: Schemas = NO_SCHEMAS
        self._latest: dict[str, tuple[int, Schema]] = {}

    def is_json(self, type: str) -> bool:
        """Whether events of this type leave as they are given."""
        return type not in self._config.types or self._config.types[type].format == "json"

    def headers(self, type: str) -> dict[str, str]:
        """What is said of the value beside it: `datacontenttype`, as CloudEvents' binding for Kafka has it."""
        return {} if self.is_json(type) else {"content-type": f"application/{self._config.types[type].format}"}

    def written(self, type: str, value: bytes) -> bytes:
        """A JSON object in the format of its type."""
        event_type = self._config.types[type]
        try:
            document = json.loads(value)
        except ValueError as error:
            raise HilcastError("bad-event", f"the event is not JSON: {error}") from error
        if not isinstance(document, Mapping):
            raise HilcastError("bad-event", "the event is not a JSON object")
        if event_type.own_schema is not None:
            return write_document(event_type.own_schema, document)
        id, schema = self._newest(event_type)
        indexes = (0,) if event_type.format == "protobuf" else None
        return framed(id, write_document(schema, document), indexes)

    def _newest(self, event_type: EventType) -> tuple[int, Schema]:
        """The schema that events of a type are written with, looked up once."""
        from infra.schema_registry import RegistrySchemas

        assert self._config.schemas is not None, "the configuration lets no such type pass"
        subject = event_type.subject or event_type.name
        if subject not in self._latest:
            self._latest[subject] = RegistrySchemas(self._config.schemas).latest(subject)
        return self._latest[subject]

    def read(self, type: str | None, record: Record) -> dict[str, object] | None:
        """What a record of this type says, if that is not JSON."""
        event_type = self._config.types.get(type or "")
        if event_type is None:
            return None
        event_type = event_type.written_in(format_said(record.headers))
        if event_type.format == "json":
            return None
        if event_type.own_schema is None and self._schemas is NO_SCHEMAS:
            from infra.schema_registry import prompt_schemas

            self._schemas = prompt_schemas(self._config, strict=True)
        return read_document(event_type, record.value or b"", self._schemas)
