"""The schema registry through confluent-kafka's client: kept, bounded, waited for; and its own serializers' records."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2

from infra.schema_registry import RegistrySchemas
from state.schema_settings import SchemaRegistry
from state.space.decode import decode
from state.space.event_type import Attribute, EventType
from tests.infra.fake_registry import FakeRegistry

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]})
ATTRIBUTES = (Attribute("total", "float"),)


@pytest.fixture
def registry():
    with FakeRegistry() as fake:
        yield fake


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self):
        self.now = 0.0
        self.slept = []
        self.then = None

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.slept.append(seconds)
        if self.then is not None:
            self.then()


def opened(registry, clock, **settings):
    return RegistrySchemas(SchemaRegistry(registry.url, **settings), clock, clock.sleep)


def test_what_confluents_avro_serializer_writes_is_read(registry):
    """A record of AvroSerializer is read by the schema that it names."""
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), ORDER)
    value = serialize({"total": 9.5}, SerializationContext("orders", MessageField.VALUE))
    batch = decode(EventType("t", ATTRIBUTES, format="avro"), [value], None, opened(registry, Clock()))
    assert batch.event(0) == {"total": 9.5}


def test_what_confluents_protobuf_serializer_writes_is_read(registry):
    """A record of ProtobufSerializer is read by the descriptor that the registry has, and its message index."""
    serialize = ProtobufSerializer(
        timestamp_pb2.Timestamp, SchemaRegistryClient({"url": registry.url}), {"use.deprecated.format": False}
    )
    value = serialize(timestamp_pb2.Timestamp(seconds=7), SerializationContext("times", MessageField.VALUE))
    kind = EventType("t", (Attribute("seconds", "int"),), format="protobuf")
    batch = decode(kind, [value], None, opened(registry, Clock()))
    assert batch.event(0) == {"seconds": 7}


def test_what_was_had_is_kept_while_the_registry_is_away(registry):
    """A known id needs no registry; an unknown one waits for it as long as is allowed, and no longer."""
    one = registry.add("a", {"schema": ORDER})
    clock = Clock()
    schemas = opened(registry, clock, wait_ms=1000)
    assert set(schemas.of([one])) == {one}
    registry.down = True
    assert set(schemas.of([one])) == {one}
    assert clock.slept == []
    assert set(schemas.of([one, 77])) == {one}
    assert sum(clock.slept) == pytest.approx(1.0)


def test_a_registry_that_comes_back_is_asked_again(registry):
    """Events that wait go on when the registry answers."""
    one = registry.add("a", {"schema": ORDER})
    registry.down = True
    clock = Clock()
    clock.then = lambda: setattr(registry, "down", False)
    assert set(opened(registry, clock).of([one])) == {one}
    assert len(clock.slept) == 1


def test_ids_that_nobody_registered_do_not_make_every_batch_wait(registry):
    """After one wait in vain the next unregistered ids are refused at once."""
    clock = Clock()
    schemas = opened(registry, clock, wait_ms=1000)
    assert schemas.of([5]) == {}
    waited = sum(clock.slept)
    assert schemas.of([6]) == {}
    assert sum(clock.slept) == waited
    assert waited == pytest.approx(1.0)


def test_so_many_schemas_are_kept_and_no_more(registry):
    """The least recently used is asked for again; ids beyond a limit are not asked for at all."""
    ids = [registry.add("a", {"schema": ORDER.replace("Order", f"O{k}")}) for k in range(3)]
    schemas = opened(registry, Clock(), cached=2, wait_ms=0)
    for id in ids:
        schemas.of([id])
    asked = len(registry.asked)
    schemas.of(ids[1:])
    assert len(registry.asked) == asked
    schemas.of(ids[:1])
    assert len(registry.asked) == asked + 1
    schemas.of(range(1000, 6000))
    assert len(registry.asked) <= asked + 1 + 200
