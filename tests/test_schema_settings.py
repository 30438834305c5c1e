"""Schema files in the configuration, and events written by them."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from producers.client.encoding import Encoder
from state.config import parse
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


def test_a_format_needs_a_schema(tmp_path):
    """A file that is not there is a fault, and so is no file without a registry."""
    with pytest.raises(ConfigError, match=r"types\.order\.schema: order\.avsc: No such file"):
        parse(HEAD + GOOD, tmp_path)
    with pytest.raises(ConfigError, match=r"types\.order\.schema: missing"):
        parse((HEAD + GOOD).replace('schema = "order.avsc"', ""), tmp_path)
