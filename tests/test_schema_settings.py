"""Schema files in the configuration, and events written by them."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from producers.client.encoding import Encoder
from state.config import SHARED_BYTES_MAX, parse
from state.errors import ConfigError
from state.messages import Record
from state.space.decode import decode

HEAD = """
[overlay]
brokers = ["b1"]
[types.order]
format = "avro"
schema = "order.avsc"
[types.order.attributes]
"""
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "to", "type": ["null", {"type": "record", "name": "To", "fields": [{"name": "n", "type": "int"}]}]},
    ],
}
GOOD = 'at = { kind = "timestamp" }\nn = { kind = "int", path = "to.n" }\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    return tmp_path


def test_what_a_publisher_writes_is_read_by_fastavro_and_by_us(folder):
    """A JSON object is written in the format of its type, and reads as it was given."""
    config = parse(HEAD + GOOD, folder)
    event = {"at": "2026-11-17T06:00:00Z", "to": {"n": 7}}
    value = Encoder(config).written("order", json.dumps(event).encode())
    read = fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(SCHEMA), None)
    assert (read["at"].isoformat(), read["to"]) == ("2026-11-17T06:00:00+00:00", {"n": 7})
    assert decode(config.types["order"], [value]).event(0) == {"at": event["at"], "n": 7}
    assert Encoder(config).read("order", Record("t", 0, 0, 0, None, value)) == event


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ('x = { kind = "int" }', "types.order.attributes.x.path: the schema has no single value at 'x'"),
        ('at = { kind = "int" }', "types.order.attributes.at.kind: what the schema has at 'at' is never a int"),
    ],
)
def test_attributes_that_the_schema_lacks_are_faults(folder, attributes, fault):
    """A path that is not there, and a kind that can never be, are refused at start with their place."""
    with pytest.raises(ConfigError) as refused:
        parse(HEAD + attributes, folder)
    assert refused.value.faults == [fault]


PROTOBUF = """
[overlay]
brokers = ["b1"]
[types.order]
format = "protobuf"
schema = "order.desc"
message = "shop.Order"
subject = "orders"
[types.order.attributes]
country = { kind = "text", path = "to.country" }
region = { kind = "text", header = "x-region" }
id = { kind = "int", key = true }
"""


def described():
    """A descriptor set of a message with a message in it."""
    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="To").field.add(name="country", number=1, type=9, label=1)
    file.message_type.add(name="Order").field.add(name="to", number=1, type=11, type_name=".shop.To", label=1)
    return found.SerializeToString()


@pytest.mark.parametrize("text", [HEAD + GOOD, PROTOBUF], ids=["avro", "protobuf"])
def test_who_adopts_a_configuration_needs_no_file(folder, tmp_path_factory, monkeypatch, text):
    """What is in common holds the schema itself: with other files of that name, or none, types are the same."""
    (folder / "order.desc").write_bytes(described())
    given, elsewhere = parse(text, folder), tmp_path_factory.mktemp("elsewhere")
    own = parse('[overlay]\nbrokers = ["b1"]\n[types.t.attributes]\nx = { kind = "int" }', elsewhere)
    (elsewhere / "order.avsc").write_text('"string"')
    (elsewhere / "order.desc").write_bytes(b"")
    monkeypatch.chdir(elsewhere)
    adopted = own.adopting(given.shared)
    assert adopted.types == given.types
    assert adopted.types["order"].own_schema == given.types["order"].schema is not None
    assert (adopted.shared, adopted.fingerprint()) == (given.shared, given.fingerprint())
    assert adopted.adopting(adopted.shared).types == given.types
    assert b"order.avsc" not in given.shared
    assert b"order.desc" not in given.shared


def test_a_path_in_what_is_in_common_is_never_followed(folder, monkeypatch):
    """A configuration of others that names a file is refused, though such a file is here."""
    config = parse(HEAD + GOOD, folder)
    monkeypatch.chdir(folder)
    shared = json.loads(config.shared)
    shared["types"]["order"]["schema"] = "order.avsc"
    with pytest.raises(ConfigError) as refused:
        config.adopting(json.dumps(shared).encode())
    assert refused.value.faults == ["types.order.schema: what is in common holds the schema itself, not a path"]


def test_what_is_in_common_fits_a_record(folder):
    """Schemas that are too large for it are refused at start, before anybody proposes them."""
    (folder / "order.avsc").write_text(json.dumps({**SCHEMA, "doc": "x" * SHARED_BYTES_MAX}))
    with pytest.raises(ConfigError, match="large schemas belong in a registry"):
        parse(HEAD + GOOD, folder)


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ("7", "must be a table, not 7"),
        ("{ json = '{}' }", "must be a path, { avro = ... } or { protobuf = ... }"),
        ("{ protobuf = [] }", "a descriptor set without files"),
        ("{ protobuf = ['?'] }", "Only base64 data is allowed"),
    ],
)
def test_schemas_in_the_configuration_itself_are_checked(tmp_path, schema, fault):
    """What is neither a path nor a schema is a fault at its place."""
    with pytest.raises(ConfigError) as refused:
        parse((HEAD + GOOD).replace('"order.avsc"', schema), tmp_path)
    assert f"types.order.schema: {fault}" in refused.value.faults


def test_a_format_needs_a_schema(tmp_path):
    """A file that is not there is a fault, and so is no file without a registry."""
    with pytest.raises(ConfigError, match=r"types\.order\.schema: order\.avsc: No such file"):
        parse(HEAD + GOOD, tmp_path)
    with pytest.raises(ConfigError, match=r"types\.order\.schema: missing"):
        parse((HEAD + GOOD).replace('schema = "order.avsc"', ""), tmp_path)
