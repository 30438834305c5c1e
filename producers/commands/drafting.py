"""`type`: a type for `hilcast.toml` from what is there, a schema or a sample of a topic."""

from __future__ import annotations

import argparse
import tempfile
from itertools import islice
from pathlib import Path

from infra.kafka import open_transport
from infra.kafka.reading import newest
from producers.cli import config_path
from state.config import load
from state.errors import HilcastError
from state.schema_drafts import draft_avro, draft_protobuf
from state.space.decode import json_object
from state.space.encodings.protobuf_schema import files_of_set
from state.space.encodings.schemas import Schema
from state.type_sketch import sketch

SAMPLE = 1000


def draft(chosen: argparse.Namespace) -> int:
    """Print the type."""
    print(_from_schema(Path(chosen.schema), chosen.message) if chosen.schema else _from_topic(chosen), end="")
    return 0


def _from_topic(chosen: argparse.Namespace) -> str:
    transport = open_transport(load(config_path(chosen)))
    try:
        values = [record.value for record in islice(newest(transport, [chosen.sample]), SAMPLE)]
    finally:
        transport.close()
    documents = [document for value in values if (document := json_object(value)) is not None]
    if not documents:
        raise HilcastError(
            "no-sample", f"{chosen.sample} holds no JSON objects; for Avro or Protobuf give --from SCHEMA"
        )
    return sketch(chosen.sample, documents)


def _from_schema(path: Path, message: str | None) -> str:
    try:
        content = path.read_bytes()
        if path.suffix in (".avsc", ".json"):
            return draft_avro(path.name, Schema("avro", content.decode()).avro())
        name = path.name
        if path.suffix == ".proto":
            content, name = _compiled(path), f"{path.stem}.desc"
        messages = Schema("protobuf", files=files_of_set(content)).messages()
        top = [one.full_name for one in messages.top()]
        if message is None and len(top) > 1:
            raise HilcastError("bad-schema", f"{path}: give --message, one of {', '.join(sorted(top))[:400]}")
        return draft_protobuf(name, messages.message(message or top[0]))
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
