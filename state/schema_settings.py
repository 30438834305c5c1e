"""What `hilcast.toml` says of formats: schema files, the registry, and whether attributes are where they should be.

    [types.order]                    [schemas]
    format = "avro"                  url = "http://127.0.0.1:8081"
    schema = "order.avsc"            wait_ms = 5000

A schema is read when the configuration is, and goes with it wherever it goes: workers and other deployments need no
file. There it stands in the place of the path (`embedded`), as a file may have it, too:

    schema = { avro = '{"type": "record", ...}' }        or { protobuf = ["file of a descriptor set in base64", ...] }
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import urlsplit

from state.secrets import ClientSettings, redacted
from state.space.encodings.avro_schema import Type, at_path, leaves_of
from state.space.encodings.leaves import can_match
from state.space.encodings.protobuf_schema import NOWHERE, field_at, files_of_set, kinds_of, place_of
from state.space.encodings.schemas import Schema
from state.space.event_type import Attribute, EventType
from state.tables import Table, flat, integer, list_of, scalar_text, text
from state.tables import table as a_table

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

WAIT_MS = 5000
CACHED = 1000
FILE_BYTES_MAX = 10_000_000

Content = str | tuple[bytes, ...]
"""Of a schema: the text of Avro, the files of Protobuf."""


class Sourced(Protocol):
    """What is looked at of a source."""

    @property
    def type(self) -> str: ...
    @property
    def format(self) -> str | None: ...


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry and how it is asked."""

    url: str = field(repr=False)
    """Perhaps with a password: print it `redacted`."""
    wait_ms: int = WAIT_MS
    """How long an event waits for a schema that cannot be had yet."""
    cached: int = CACHED
    """Schemas that are kept."""
    settings: ClientSettings[str] = field(default_factory=ClientSettings)
    """Further settings of confluent-kafka's client."""

    def secrets(self) -> list[str]:
        return ClientSettings({"url": self.url}).secrets() + self.settings.secrets()


def read_registry(root: Table) -> SchemaRegistry | None:
    """The table `[schemas]`; None where it is missing."""
    if "schemas" not in root.raw:
        return None
    table = root.table("schemas")
    table.need("url")
    url = table.take("url", _url, "")
    wait_ms = table.take("wait_ms", integer(0, 600_000), WAIT_MS)
    cached = table.take("cached", integer(1, 1_000_000), CACHED)
    others = Table({k: v for k, v in table.raw.items() if k not in table.taken}, table.place, table.faults)
    settings = {name: scalar_text(value) for name, value in flat(others).items()}
    return SchemaRegistry(url, wait_ms, cached, ClientSettings(settings))


def _url(value: object) -> str:
    """The value is shown without a password."""
    parts = urlsplit(text(value))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"must be a URL, http:// or https://, not {redacted(text(value))!r}")
    return text(value)


# --- schema files -------------------------------------------------------------------------------------------


def read_schema(table: Table, attributes: Sequence[Attribute], directory: Path | None) -> Schema | None:
    """The schema file of a type, checked: what is wrong with it, and attributes that it lacks, are faults."""
    given, message = table.take("schema", _path_or_table, None), table.take("message", text, None)
    if given is None:
        if message is not None:
            table.fault("message", "names a message of a schema file, and none is given")
        return None
    name = f"{given}: " if isinstance(given, str) else ""
    try:
        kind, content = _opened(given, directory) if isinstance(given, str) else _embedded(given)
        if kind == "avro":
            return _avro(table, str(content), message, attributes)
        return _protobuf(table, cast(tuple[bytes, ...], content), message, attributes)
    except ValueError as error:
        table.fault("schema", f"{name}{error}")
    except ImportError as error:
        table.fault("schema", f"{name}{error.name or 'protobuf'} is not installed: pip install 'hilcast[formats]'")
    return None


def embedded(schema: Schema) -> dict[str, object]:
    """The schema of a file as the configuration itself may hold it.

    >>> embedded(Schema("avro", text='"string"'))
    {'avro': '"string"'}
    """
    if schema.kind == "avro":
        return {"avro": schema.text}
    return {"protobuf": [base64.b64encode(file).decode() for file in schema.files]}


def _path_or_table(value: object) -> str | Mapping[str, object]:
    return value if isinstance(value, str) else a_table(value)


def _opened(name: str, directory: Path | None) -> tuple[str, Content]:
    """What a schema file holds, by its kind."""
    content = _content(Path(name) if directory is None else directory / name)
    if name.endswith((".avsc", ".json")):
        return "avro", content.decode()
    return "protobuf", files_of_set(content)


def _embedded(given: Mapping[str, object]) -> tuple[str, Content]:
    """The same from the configuration itself."""
    if list(given) == ["avro"]:
        return "avro", text(given["avro"])
    if list(given) == ["protobuf"]:
        files = list_of(text)(given["protobuf"])
        if not files:
            raise ValueError("a descriptor set without files")
        return "protobuf", tuple(base64.b64decode(file, validate=True) for file in files)
    raise ValueError("must be a path, { avro = ... } or { protobuf = ... }")


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ValueError(f"more than {FILE_BYTES_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or "cannot be read") from error


def _avro(table: Table, content: str, message: str | None, attributes: Sequence[Attribute]) -> Schema:
    if message is not None:
        table.fault("message", "is for Protobuf; an Avro schema is one type")
    schema = Schema("avro", text=content)
    _check(table, attributes, _AvroPlaces(schema.avro()))
    return schema


def _protobuf(
    table: Table, files: tuple[bytes, ...], message: str | None, attributes: Sequence[Attribute]
) -> Schema | None:
    if message is None:
        known = sorted(one.full_name for one in Schema("protobuf", files=files).messages().top())
        table.fault("message", f"missing; one of {', '.join(known)[:300]}")
        return None
    schema = Schema("protobuf", files=files, message=message)
    _check(table, attributes, _ProtobufPlaces(schema.protobuf()))
    return schema


class _AvroPlaces:
    def __init__(self, type: Type) -> None:
        self._type = type

    def has(self, attribute: Attribute) -> bool:
        return bool(at_path(self._type, attribute.members))

    def fits(self, attribute: Attribute) -> bool:
        return can_match(attribute, leaves_of(self._type, attribute))


class _ProtobufPlaces:
    def __init__(self, message: Descriptor) -> None:
        self._message = message

    def has(self, attribute: Attribute) -> bool:
        return place_of(self._message, attribute) != NOWHERE or field_at(self._message, attribute.members) is not None

    def fits(self, attribute: Attribute) -> bool:
        return attribute.kind in kinds_of(self._message, attribute)


def _check(table: Table, attributes: Sequence[Attribute], places: _AvroPlaces | _ProtobufPlaces) -> None:
    """Note every attribute that the schema lacks, or that can never be of its kind."""
    below = table.table("attributes")
    for attribute in attributes:
        if not attribute.members:
            continue
        path, here = ".".join(attribute.members), below.table(attribute.name)
        if not places.has(attribute):
            here.fault("path", f"the schema has no single value at {path!r}")
        elif not places.fits(attribute):
            here.fault("kind", f"what the schema has at {path!r} is never a {attribute.kind}")


# --- together -----------------------------------------------------------------------------------------------


def check_formats(
    root: Table, types: Mapping[str, EventType], sources: Sequence[Sourced], registry: SchemaRegistry | None
) -> None:
    """Note formats without a schema, and schemas of another format."""
    for name, event_type in types.items():
        here = root.table("types").table(name)
        overriding = {source.format for source in sources if source.type == name and source.format}
        wanted = {event_type.format, *overriding} - {"json"}
        if event_type.schema is not None and event_type.schema.kind not in wanted:
            here.fault("schema", f"is for {event_type.schema.kind}, and no events of this type are written so")
        lacking = wanted - ({event_type.schema.kind} if event_type.schema is not None else set())
        if lacking and registry is None and "schema" not in here.raw:
            here.fault(
                "schema", f"missing; {' and '.join(sorted(lacking))} needs a schema file, or [schemas] with a url"
            )
        elif lacking and registry is None and event_type.schema is not None:
            here.fault("schema", f"is for {event_type.schema.kind}; {' and '.join(lacking)} needs [schemas] with a url")
