"""The schema registry through confluent-kafka's client: kept, bounded, waited for; and its own serializers' records."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2

from infra.schema_registry import AWAY_S, PromptSchemas, RegistrySchemas
from state.errors import HilcastError
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


def test_a_slow_registry_is_asked_for_every_id(registry, monkeypatch):
    """What it has is had, though answers take longer together than anybody waits for one that it lacks."""
    clock = Clock()
    ids = [registry.add("a", {"schema": ORDER.replace("Order", f"O{k}")}) for k in range(6)]
    schemas = opened(registry, clock, wait_ms=1000)
    fetch = schemas._fetch

    def slowly(id):
        clock.now += 0.6
        return fetch(id)

    monkeypatch.setattr(schemas, "_fetch", slowly)
    assert set(schemas.of([*ids, 999])) == set(ids)
    assert clock.now < 5.0


def test_opening_the_client_is_not_waiting(registry, monkeypatch):
    """In a new process it takes seconds to import it: the schemas of the first batch are had all the same."""
    clock = Clock()
    ids = [registry.add("a", {"schema": ORDER.replace("Order", f"O{k}")}) for k in range(2)]
    schemas = opened(registry, clock, wait_ms=1000)
    open_client = schemas._opened

    def slowly():
        if schemas._client is None:
            clock.now += 30.0
        return open_client()

    monkeypatch.setattr(schemas, "_opened", slowly)
    assert set(schemas.of(ids)) == set(ids)


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


# ── without waiting ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("strict", [True, False])
def test_who_reads_one_event_after_another_does_not_wait(registry, strict):
    """A registry that is away is asked once in a while; judges are told, samples lack what it has."""
    one, two = (registry.add("a", {"schema": ORDER.replace("Order", name)}) for name in ("O1", "O2"))
    clock = Clock()
    schemas = PromptSchemas(opened(registry, clock), strict=strict, clock=clock)
    assert set(schemas.of([one, 77])) == {one}
    assert set(schemas.of([77])) == set()
    asked = len(registry.asked)
    schemas.of([77])
    assert len(registry.asked) == asked, "it was said that nobody registered it"
    registry.down = True
    assert set(schemas.of([one])) == {one}
    for _ in range(5):
        if strict:
            with pytest.raises(HilcastError, match="registry-away"):
                schemas.of([two])
        else:
            assert schemas.of([one, two]).keys() == {one}
    assert len(registry.asked) == asked + 1
    registry.down = False
    clock.now += AWAY_S
    assert set(schemas.of([two])) == {two}
    assert clock.slept == []


class Memory:
    """A shelf that other workers have filled."""

    def __init__(self):
        self.kept = {}

    def had(self, ids):
        return {id: self.kept[id] for id in ids if id in self.kept}

    def put(self, had):
        self.kept |= had


def test_a_new_worker_needs_no_registry_for_what_others_had(registry):
    """What one process has had lies on the shelf: another one reads events by it while the registry is away."""
    one, shelf = registry.add("a", {"schema": ORDER}), Memory()
    first, second = (
        RegistrySchemas(SchemaRegistry(registry.url), clock, clock.sleep, shelf) for clock in (Clock(), Clock())
    )
    had = first.of([one])
    registry.down = True
    asked = len(registry.asked)
    assert second.of([one]) == had
    assert len(registry.asked) == asked


def test_a_registry_answers_or_does_not(registry):
    """What the doctor asks."""
    opened(registry, Clock()).answers()
    registry.down = True
    with pytest.raises(OSError, match="503"):
        opened(registry, Clock()).answers()
