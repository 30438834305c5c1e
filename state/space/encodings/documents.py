"""Documents one at a time, whatever they are written in: what a publication says, as JSON would say it.

For people and for judges; the router reads batches (`encoded_batches.py`). Needs no numpy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from state.errors import HilcastError
from state.space.encodings.avro_reader import read_avro
from state.space.encodings.avro_schema import Type
from state.space.encodings.protobuf_reader import read_protobuf
from state.space.encodings.protobuf_schema import place_of
from state.space.encodings.schemas import NO_SCHEMAS, Schema, Schemas
from state.space.encodings.wire import HEAD_BYTES, read_id, read_indexes
from state.space.event_type import EventType, Format

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


def read_document(
    event_type: EventType,
    value: bytes,
    schemas: Schemas = NO_SCHEMAS,
    attributes_only: bool = False,
    *,
    maps: bool = True,
) -> dict[str, object]:
    """What an Avro or Protobuf value holds; with `attributes_only` no more than the router looks at.

    Without `maps` these are arrays, so that an object is what a path can lead into.
    Raises `unknown-schema` if the schema that it was written with cannot be had, `bad-event` if it is not of it.
    """
    assert event_type.format != "json", "JSON is read where it is needed"
    schema, body = event_type.own_schema, value
    indexes: tuple[int, ...] = (0,)
    if schema is None:
        schema, indexes, body = _unframed(event_type.format, value, schemas)
    try:
        found = _read(event_type, schema, indexes, body, attributes_only, maps)
    except ValueError as error:
        raise HilcastError("bad-event", f"the value is not {event_type.format} of its schema: {error}") from error
    if not isinstance(found, dict):
        # a schema that is no record has no attributes, but its values are events
        return {}
    return found


def _unframed(format: Format, value: bytes, schemas: Schemas) -> tuple[Schema, tuple[int, ...], bytes]:
    try:
        id = read_id(value)
    except ValueError as error:
        raise HilcastError("bad-event", str(error)) from error
    schema = schemas.of([id]).get(id)
    if schema is None:
        raise HilcastError("unknown-schema", f"the schema {id} is not to be had from the registry")
    try:
        indexes, at = read_indexes(value) if format == "protobuf" else ((0,), HEAD_BYTES)
    except ValueError as error:
        raise HilcastError("bad-event", str(error)) from error
    try:
        _avro(schema) if format == "avro" else _protobuf(schema, indexes)
    except ValueError as error:
        raise HilcastError("unknown-schema", f"the schema {id} cannot be used: {error}") from error
    return schema, indexes, value[at:]


def _read(
    event_type: EventType, schema: Schema, indexes: tuple[int, ...], body: bytes, attributes_only: bool, maps: bool
) -> object:
    if event_type.format == "avro":
        paths = [a.members for a in event_type.attributes if a.members]
        paths += [(*a.members, end) for a in event_type.attributes if a.imprecise for end in ("min", "max")]
        return read_avro(_avro(schema), body, paths if attributes_only else None, maps=maps)
    message = _protobuf(schema, indexes)
    places = [place_of(message, attribute) for attribute in event_type.attributes if attribute.members]
    only = [path for place in places for path in place.paths()] if attributes_only else None
    return read_protobuf(message, body, only, maps=maps)


@lru_cache(maxsize=256)
def _avro(schema: Schema) -> Type:
    return schema.avro()


@lru_cache(maxsize=256)
def _protobuf(schema: Schema, indexes: tuple[int, ...]) -> Descriptor:
    return schema.protobuf(indexes)
