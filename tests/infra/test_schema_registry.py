"""The schema registry through confluent-kafka's client: kept, bounded, asked beside; its own serializers' records."""

from __future__ import annotations

import json
import threading
import time

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2

from infra import schema_registry
from infra.schema_registry import AGAIN_S, AWAY_S, BesideSchemas, PromptSchemas, RegistrySchemas
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
    """Time that passes only when it is told to, or a second at each look."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


def opened(registry, clock=time.monotonic, **settings):
    return RegistrySchemas(SchemaRegistry(registry.url, **settings), clock)


def beside(registry, clock=time.monotonic, shelf=None, **settings):
    return BesideSchemas(opened(registry, **settings), shelf, clock)


def test_what_confluents_avro_serializer_writes_is_read(registry):
    """A record of AvroSerializer is read by the schema that it names."""
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), ORDER)
    value = serialize({"total": 9.5}, SerializationContext("orders", MessageField.VALUE))
    batch = decode(EventType("t", ATTRIBUTES, format="avro"), [value], None, beside(registry))
    assert batch.event(0) == {"total": 9.5}


def test_what_confluents_protobuf_serializer_writes_is_read(registry):
    """A record of ProtobufSerializer is read by the descriptor that the registry has, and its message index."""
    serialize = ProtobufSerializer(
        timestamp_pb2.Timestamp, SchemaRegistryClient({"url": registry.url}), {"use.deprecated.format": False}
    )
    value = serialize(timestamp_pb2.Timestamp(seconds=7), SerializationContext("times", MessageField.VALUE))
    kind = EventType("t", (Attribute("seconds", "int"),), format="protobuf")
    batch = decode(kind, [value], None, beside(registry))
    assert batch.event(0) == {"seconds": 7}


# ── beside route workers ────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_had_is_kept_while_the_registry_is_away(registry):
    """A known id needs no registry; another is not had, and asked for again when it may be back."""
    one, two = (registry.add("a", {"schema": ORDER.replace("Order", name)}) for name in ("O1", "O2"))
    clock = Clock()
    schemas = beside(registry, clock)
    assert set(schemas.of([one])) == {one}
    registry.down = True
    asked = len(registry.asked)
    assert set(schemas.of([one])) == {one}
    assert len(registry.asked) == asked
    assert set(schemas.of([one, two])) == {one}
    registry.down = False
    clock.now += AGAIN_S
    assert set(schemas.of([one, two])) == {one, two}


def test_an_id_that_nobody_registered_is_asked_for_once_in_a_while(registry):
    """However many batches name it."""
    clock = Clock()
    schemas = beside(registry, clock)
    for _ in range(5):
        assert schemas.of([5]) == {}
    assert len(registry.asked) == 1
    clock.now += AGAIN_S
    schemas.of([5])
    assert len(registry.asked) == 2


def test_a_registry_that_hangs_holds_up_few_batches(registry, monkeypatch):
    """After one wait in vain no batch waits for a long time; what comes at last is there for the next."""
    one, answering, waits = registry.add("a", {"schema": ORDER}), threading.Event(), []
    monkeypatch.setattr(schema_registry, "SLOW_S", 0.05)
    schemas = beside(registry, Clock(tick=1.0))
    fetch, wait_for = schemas._registry.fetch, schemas._changed.wait_for
    monkeypatch.setattr(schemas._registry, "fetch", lambda id: fetch(id) if answering.wait(60) else None)

    def counted(predicate, timeout=None):
        if timeout is not None:
            waits.append(timeout)
        return wait_for(predicate, timeout)

    monkeypatch.setattr(schemas._changed, "wait_for", counted)
    for _ in range(5):
        assert schemas.of([one]) == {}
        assert schemas.of([one + 1, one + 2]) == {}
    assert len(waits) == 1
    answering.set()
    with schemas._changed:
        assert wait_for(lambda: not schemas._asked, 60)
    assert set(schemas.of([one])) == {one}


def test_one_id_that_fails_keeps_no_other_from_being_had(registry, monkeypatch):
    """A registry that answers for one id with errors or nonsense is asked for the others; the thread lives on."""
    ids = [registry.add("a", {"schema": ORDER.replace("Order", f"O{k}")}) for k in range(3)]
    schemas, client = beside(registry), opened(registry)
    for one in (schemas._registry, client):
        fetch = one.fetch
        monkeypatch.setattr(one, "fetch", lambda id, fetch=fetch: 1 // 0 if id == ids[0] else fetch(id))
    assert set(schemas.of(ids)) == set(ids[1:])
    monkeypatch.setattr(client, "fetch", lambda id, fetch=fetch: _away() if id == ids[0] else fetch(id))
    had, away = client.at_once(ids)
    assert (set(had), away) == (set(ids[1:]), True)


def _away():
    raise OSError("503")


def test_so_many_schemas_are_kept_and_no_more(registry):
    """The least recently used is asked for again; ids beyond a limit are not asked for at all."""
    ids = [registry.add("a", {"schema": ORDER.replace("Order", f"O{k}")}) for k in range(3)]
    schemas = beside(registry, cached=2)
    for id in ids:
        schemas.of([id])
    asked = len(registry.asked)
    schemas.of(ids[1:])
    assert len(registry.asked) == asked
    schemas.of(ids[:1])
    assert len(registry.asked) == asked + 1
    schemas.of(range(1000, 6000))
    with schemas._changed:
        assert schemas._changed.wait_for(lambda: not schemas._asked, 60)
    assert len(registry.asked) <= asked + 1 + 200


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
    first, second = (beside(registry, shelf=shelf) for _ in range(2))
    had = first.of([one])
    registry.down = True
    asked = len(registry.asked)
    assert second.of([one]) == had
    assert len(registry.asked) == asked


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


def test_a_registry_answers_or_does_not(registry):
    """What the doctor asks."""
    opened(registry, Clock()).answers()
    registry.down = True
    with pytest.raises(OSError, match="503"):
        opened(registry, Clock()).answers()
