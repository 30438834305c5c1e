"""What `hilcast.toml` says of formats: schema files, the registry, and whether attributes are where they should be.

    [types.order]                    [schemas]
    format = "avro"                  url = "http://127.0.0.1:8081"
    schema = "order.avsc"            wait_ms = 5000

A schema is read when the configuration is, and goes with it wherever it goes: workers need no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from state.secrets import ClientSettings, redacted
from state.space.encodings.avro_schema import Type, at_path, leaves_of
from state.space.encodings.leaves import can_match
from state.space.encodings.protobuf_schema import NOWHERE, field_at, files_of_set, kinds_of, place_of
from state.space.encodings.schemas import Schema
from state.space.event_type import Attribute, EventType
from state.tables import Table, flat, integer, scalar_text, text

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

WAIT_MS = 5000
CACHED = 1000
FILE_BYTES_MAX = 10_000_000


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
    """How long the events of a batch wait, all together, for schemas that cannot be had yet."""
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
    name, message = table.take("schema", text, None), table.take("message", text, None)
    if name is None:
        if message is not None:
            table.fault("message", "names a message of a schema file, and none is given")
        return None
    try:
        content = _content(Path(name) if directory is None else directory / name)
        if name.endswith((".avsc", ".json")):
            return _avro(table, content, message, attributes)
        return _protobuf(table, content, message, attributes)
    except ValueError as error:
        table.fault("schema", f"{name}: {error}")
    except ImportError as error:
        table.fault("schema", f"{name}: {error.name or 'protobuf'} is not installed: pip install 'hilcast[formats]'")
    return None


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ValueError(f"more than {FILE_BYTES_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or "cannot be read") from error


def _avro(table: Table, content: bytes, message: str | None, attributes: Sequence[Attribute]) -> Schema:
    if message is not None:
        table.fault("message", "is for Protobuf; an Avro schema is one type")
    schema = Schema("avro", text=content.decode())
    _check(table, attributes, _AvroPlaces(schema.avro()))
    return schema


def _protobuf(table: Table, content: bytes, message: str | None, attributes: Sequence[Attribute]) -> Schema | None:
    files = files_of_set(content)
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
