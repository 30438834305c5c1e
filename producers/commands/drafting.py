"""`type`: a type for `hilcast.toml` from what is there, a schema or a sample of a topic."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import cast

from infra.kafka import open_transport
from infra.kafka.reading import newest
from infra.schema_registry import prompt_schemas
from producers.cli import config_path
from state.config import Config, load
from state.errors import HilcastError
from state.schema_drafts import draft_avro, draft_protobuf
from state.space.decode import json_object
from state.space.encodings.documents import read_document
from state.space.encodings.protobuf_schema import files_of_set
from state.space.encodings.schemas import Schema, Schemas
from state.space.event_type import EventType, Format
from state.type_sketch import sketch

SAMPLE = 1000


def draft(chosen: argparse.Namespace) -> int:
    """Print the type."""
    if chosen.origin and (chosen.format or chosen.schema):
        raise HilcastError("bad-schema", "--format and --schema are for a sample; --from is a schema itself")
    print(_from_schema(Path(chosen.origin), chosen.message) if chosen.origin else _from_topic(chosen), end="")
    return 0


# ── from a topic ────────────────────────────────────────────────────────────────────────────────────────────────


def _from_topic(chosen: argparse.Namespace) -> str:
    config = load(config_path(chosen))
    transport = open_transport(config)
    try:
        written = _written(chosen, config.with_topics(transport.topics()))
        values = [record.value or b"" for record in islice(newest(transport, [chosen.sample]), SAMPLE)]
    finally:
        transport.close()
    documents = sampled(written, values, prompt_schemas(config, strict=True))
    if not documents:
        advice = "give --format, and --schema where events do not name their own" if written.format == "json" else ""
        advice = advice or "see --schema, and [schemas] of the configuration"
        raise HilcastError("no-sample", f"{chosen.sample} holds no {written.format} that can be read; {advice}")
    return sketch(chosen.sample, documents, _head(chosen, written))


def sampled(written: EventType, values: Iterable[bytes], schemas: Schemas) -> list[dict[str, object]]:
    """The values that can be read, as documents in which an object is what a path can lead into."""
    documents = []
    for value in values:
        try:
            document = (
                json_object(value) if written.format == "json" else read_document(written, value, schemas, maps=False)
            )
        except HilcastError as error:
            if error.code not in ("bad-event", "unknown-schema"):
                raise
            continue
        if document is not None:
            documents.append(document)
    return documents


def _written(chosen: argparse.Namespace, config: Config) -> EventType:
    """How the topic is written: as the options say, else as the configuration says of a source, else as JSON."""
    source = next((source for source in config.sources if source.topic == chosen.sample), None)
    if source is not None and chosen.format is None and chosen.schema is None:
        return config.types[source.type].written_in(source.format)
    if chosen.schema is None:
        return EventType("", (), format=chosen.format or "json")
    schema = _opened(Path(chosen.schema), chosen.message)
    if chosen.format not in (None, schema.kind):
        raise HilcastError("bad-schema", f"{chosen.schema} is of {schema.kind}, and --format says {chosen.format}")
    return EventType("", (), format=cast(Format, schema.kind), schema=schema)


def _head(chosen: argparse.Namespace, written: EventType) -> list[str]:
    """What the proposal says of the format."""
    if written.format == "json":
        return []
    lines = [f'format = "{written.format}"']
    if chosen.schema is not None:
        name = Path(chosen.schema).with_suffix(".desc") if chosen.schema.endswith(".proto") else Path(chosen.schema)
        lines.append(f"schema = {json.dumps(name.name, ensure_ascii=False)}")
    elif written.own_schema is not None:
        lines.append("# schema: as in the configuration")
    else:
        lines.append("# each event names its schema: [schemas] must have a url")
    if written.own_schema is not None and written.own_schema.message:
        lines.append(f"message = {json.dumps(written.own_schema.message)}")
    return lines


# ── from a schema ───────────────────────────────────────────────────────────────────────────────────────────────


def _from_schema(path: Path, message: str | None) -> str:
    schema = _opened(path, message)
    if schema.kind == "avro":
        return draft_avro(path.name, schema.avro())
    return draft_protobuf(path.with_suffix(".desc").name if path.suffix == ".proto" else path.name, schema.protobuf())


def _opened(path: Path, message: str | None) -> Schema:
    """The schema in a file, usable, and of Protobuf with the message that is meant."""
    try:
        content = path.read_bytes()
        if path.suffix in (".avsc", ".json"):
            schema = Schema("avro", content.decode())
            schema.avro()
            return schema
        files = files_of_set(_compiled(path) if path.suffix == ".proto" else content)
        messages = Schema("protobuf", files=files).messages()
        top = [one.full_name for one in messages.top()]
        if message is None and len(top) > 1:
            raise HilcastError("bad-schema", f"{path}: give --message, one of {', '.join(sorted(top))[:400]}")
        return Schema("protobuf", files=files, message=messages.message(message or top[0]).full_name)
    except (OSError, ValueError) as error:
        raise HilcastError("bad-schema", f"{path}: {error}") from error


def _compiled(path: Path) -> bytes:
    """The descriptor set of a .proto file, by the protoc of grpcio-tools."""
    try:
        from grpc_tools import protoc
    except ImportError as error:
        advice = "protoc --include_imports --descriptor_set_out=FILE.desc"
        raise HilcastError("packages-missing", f"a .proto needs grpcio-tools; or give what {advice} writes") from error
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.desc"
        arguments = ["protoc", f"-I{path.parent}", "--include_imports", f"--descriptor_set_out={out}", str(path)]
        if protoc.main([*arguments, f"-I{Path(protoc.__file__).parent / '_proto'}"]) != 0:
            raise ValueError("protoc refuses it")
        return out.read_bytes()
