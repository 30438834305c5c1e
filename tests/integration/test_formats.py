"""Events as teams have them, on real services and by their own clients: nested JSON, Avro, Protobuf, headers and keys.

Written by confluent-kafka (AvroSerializer and ProtobufSerializer against a registry that the test serves), kafka-python
and kcat. Where kcat is not installed, `kcat.py` beside this file writes the same bytes, by a plain confluent producer.
Judged by fastavro, protobuf, `json` and Python functions: nothing of the router's reading or matching.
"""

from __future__ import annotations

import base64
import io
import json
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from kafka import KafkaProducer

from hilcast import Publisher, Subscriber
from producers.cli import main
from producers.commands.diagnosis import looks
from state.config import load
from state.errors import HilcastError
from tests.infra.fake_registry import FakeRegistry
from tests.integration.harness import RunningJob, Wire

pytestmark = pytest.mark.services

READING = {
    "type": "record", "name": "Reading", "fields": [
        {"name": "room", "type": "string"},
        {"name": "celsius", "type": ["double", {"type": "record", "name": "Span", "fields": [
            {"name": "min", "type": "double"}, {"name": "max", "type": "double"}]}]},
    ],
}  # fmt: skip
CONFIG = """
[deployment]
prefix = "{prefix}"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"
[settings]
trigger_ms = 200
[schemas]
url = "{registry}"
wait_ms = 3000
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.order]
cubes = 4
[types.order.attributes]
country = {{ kind = "text", path = "order.customer.country" }}
total = {{ kind = "float", min = 0, max = 1000, path = "order.total" }}
region = {{ kind = "text", header = "x-region" }}
number = {{ kind = "int", min = 0, max = 100, key = true }}
[types.reading]
cubes = 4
format = "avro"
schema = {{ avro = '{reading}' }}
[types.reading.attributes]
room = {{ kind = "text" }}
celsius = {{ kind = "float", min = -50, max = 50, imprecise = "possible" }}
[types.trade]
cubes = 4
format = "protobuf"
[types.trade.attributes]
country = {{ kind = "text", path = "order.customer.country" }}
[[sources]]
pattern = "{prefix}-json-.*"
broker_header = "x-broker"
type = "order"
[[sources]]
pattern = "{prefix}-avro-.*"
broker = "b1"
type = "order"
format = "avro"
[[sources]]
pattern = "{prefix}-proto-.*"
broker = "b3"
type = "order"
format = "protobuf"
"""
COUNTRIES = ["DE", "FR", "US", "Liechtenstein", "Liechtenberg am Inn", "Österreich"]
WANTED = {
    "german": ("b1", "country = 'DE'", lambda e: e["country"] == "DE"),
    "dear": (
        "b3",
        "total >= 100 AND NOT (country = 'US')",
        lambda e: e["total"] is not None and e["total"] >= 100 and e["country"] not in (None, "US"),
    ),
    "north": (
        "b2",
        "region = 'north' OR number BETWEEN 10 AND 19",
        lambda e: e["region"] == "north" or (e["number"] is not None and 10 <= e["number"] <= 19),
    ),
    "plain": ("b2", "region IS NULL AND EXISTS total", lambda e: e["region"] is None and e["total"] is not None),
    "little": (
        "b1",
        "country LIKE 'Liechten%' AND country != 'Liechtenstein'",
        lambda e: (e["country"] or "").startswith("Liechten") and e["country"] != "Liechtenstein",
    ),
}


@dataclass(frozen=True)
class Sent:
    """A record as Kafka has it, and what must become of it: attributes, or the code of its dead letter."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    attributes: dict | None
    code: str | None = None

    @property
    def id(self):
        return f"kafka:{self.topic}", f"{self.partition}/{self.offset}"

    def clients(self):
        return (
            set()
            if self.attributes is None
            else {name for name, (_, _, wants) in WANTED.items() if wants(self.attributes)}
        )


def attributes(order, key, headers):
    """What an order says, by the plainest reading; `order` is what stands under that name in the document."""
    customer = order.get("customer") if isinstance(order, dict) else None
    country = customer.get("country") if isinstance(customer, dict) else None
    total = order.get("total") if isinstance(order, dict) else None
    region = dict(headers).get("x-region")
    number = key.decode() if key is not None and key.isdigit() and (key == b"0" or not key.startswith(b"0")) else None
    return {
        "country": country if isinstance(country, str) else None,
        "total": total if isinstance(total, int | float) and not isinstance(total, bool) and total < 1e300 else None,
        "region": None if region is None else region.decode(),
        "number": None if number is None else int(number),
    }


# ── schemas ─────────────────────────────────────────────────────────────────────────────────────────────────────


def record(name, **fields):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


STRINGS = {"type": "array", "items": "string"}
AVRO = {
    1: record(
        "Order",
        id="long",
        order=record("Inner", customer=["null", record("Customer", tags=STRINGS, country="string")], total="double"),
    ),
    # the order has lost its total, and the country has become one of a few
    2: record(
        "Order",
        extra={"type": "map", "values": "double"},
        order=record(
            "Inner",
            lines={"type": "array", "items": record("Line", sku="string", count="int")},
            customer=record("Customer", country={"type": "enum", "name": "Country", "symbols": ["DE", "FR", "US"]}),
        ),
    ),
}


def avro_order(version, rng):
    country = rng.choice(COUNTRIES)
    if version == 1:
        customer = {"tags": ["a", "b"], "country": country} if rng.random() < 0.8 else None
        return {"id": rng.randrange(2**40), "order": {"customer": customer, "total": rng.randrange(300) / 2}}
    lines = [{"sku": "x", "count": rng.randrange(9)}] * rng.randrange(3)
    return {"extra": {"total": 1.0}, "order": {"lines": lines, "customer": {"country": rng.choice(["DE", "FR", "US"])}}}


def proto_class(version):
    """`Order` of a file; in the second version it is the second message there, and its total may be missing."""
    file = descriptor_pb2.FileDescriptorProto(name=f"order{version}.proto", package=f"v{version}", syntax="proto3")
    if version == 2:
        file.message_type.add(name="Other").field.add(name="x", number=1, label=1, type=5)
    order, inner, customer = (file.message_type.add(name=name) for name in ("Order", "Inner", "Customer"))
    order.field.add(name="order", number=version, label=1, type=11, type_name=f".v{version}.Inner")
    order.field.add(name="more", number=9, label=3, type=3)
    inner.field.add(name="customer", number=3, label=1, type=11, type_name=f".v{version}.Customer")
    total = inner.field.add(name="total", number=2, label=1, type=1)
    if version == 2:
        total.proto3_optional, total.oneof_index = True, 0
        inner.oneof_decl.add(name="_total")
    customer.field.add(name="country", number=1, label=1, type=9)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v{version}.Order"))


PROTO = {version: proto_class(version) for version in (1, 2)}


def proto_order(version, rng):
    made = PROTO[version](more=[1, 2, 3])
    if rng.random() < 0.9:
        made.order.SetInParent()
        if rng.random() < 0.8:
            made.order.customer.country = rng.choice(COUNTRIES)
        if rng.random() < 0.7:
            made.order.total = rng.randrange(300) / 2
    return made


def proto_read(version, value):
    """As protobuf reads it: a total without presence has its default where its message is there."""
    made = PROTO[version].FromString(value)
    if not made.HasField("order"):
        return None
    order = {"customer": {"country": made.order.customer.country} if made.order.HasField("customer") else None}
    return {**order, "total": made.order.total if version == 1 or made.order.HasField("total") else None}


# ── the world ───────────────────────────────────────────────────────────────────────────────────────────────────


class World:
    """One running job, a registry, and producers of every kind; each gives back what Kafka has of it."""

    def __init__(self, services, folder, registry):
        self.registry, self.kafka = registry, services.kafka
        self.prefix = f"f{uuid.uuid4().hex[:10]}"
        self.path = folder / "hilcast.toml"
        given = {"prefix": self.prefix, "kafka": services.kafka, "redis": services.redis, "registry": registry.url}
        self.path.write_text(CONFIG.format(**given, reading=json.dumps(READING)))
        self.wire = Wire(services.kafka, self.prefix)
        self.admin = AdminClient({"bootstrap.servers": services.kafka})
        self.producer = Producer({"bootstrap.servers": services.kafka})
        self.client = SchemaRegistryClient({"url": registry.url})
        self.job = RunningJob(self.path)

    def name(self, topic):
        return f"{self.prefix}-{topic}"

    def create(self, *topics):
        new = [NewTopic(self.name(topic), 2 if topic == "json-a" else 1, 1) for topic in topics]
        for future in self.admin.create_topics(new).values():
            future.result(30)

    def hilcast(self, capsys, *words):
        """One command, in this process; what it printed."""
        assert main([words[0], "--config", str(self.path), *words[1:]]) == 0
        return capsys.readouterr().out

    def send(self, topic, value, key=None, headers=(), reading=None, code=None):
        """By confluent-kafka's own producer; `reading` is what the order is."""
        where = []
        self.producer.produce(topic, value, key, headers=list(headers), on_delivery=lambda error, m: where.append(m))
        assert self.producer.flush(30) == 0
        found = None if code else attributes(reading, key, headers)
        return Sent(topic, where[0].partition(), where[0].offset(), key, value, found, code)

    def avro(self, topic, version, order, **more):
        serialize = AvroSerializer(self.client, json.dumps(AVRO[version]))
        value = serialize(order, SerializationContext(topic, MessageField.VALUE))
        read = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(AVRO[version]))
        return self.send(topic, value, reading=read["order"], **more)

    def proto(self, topic, version, order, **more):
        serialize = ProtobufSerializer(PROTO[version], self.client, {"use.deprecated.format": False})
        value = serialize(order, SerializationContext(topic, MessageField.VALUE))
        body = order.SerializeToString()
        assert value.endswith(body)
        return self.send(topic, value, reading=proto_read(version, body), **more)

    def delivered(self, by_id, expected):
        """How often each client got each of these, as it was sent; the routing log may be written a moment before."""
        deadline = time.monotonic() + 20
        while True:
            got = Counter()
            for seen in self.wire.read(*self.wire.under("deliver")):
                one = by_id.get((seen.header("ce_source"), seen.header("ce_id")))
                if one is not None:
                    assert (seen.key, seen.value) == (one.key, one.value)
                    got[seen.header("hilcast_client"), one.id] += 1
            if expected <= set(got) or time.monotonic() > deadline:
                return got
            time.sleep(0.3)

    def judge(self, sent):
        """Every record is delivered to whom it should be, byte for byte, is a dead letter, or counts as unmatched."""
        sent = {(one.topic, one.partition, one.offset): one for one in sent}
        lines = [r.json for r in self.wire.until("routed", lambda records: set(sent) <= covered(records))]
        mine = [line for line in lines if line["topic"] in {topic for topic, _, _ in sent}]
        expected = {(client, one.id) for one in sent.values() for client in one.clients()}
        got = self.delivered({one.id: one for one in sent.values()}, expected)
        assert set(got) == expected, self.job.tail()
        assert set(got.values()) <= {1}, "nothing failed, so nothing is repeated"
        refused = {place for place, one in sent.items() if one.code}
        letters = Counter()
        for seen in self.wire.until("deadletter", lambda records: refused <= {place(r) for r in records}):
            if place(seen) in sent:
                letters[place(seen), seen.header("hilcast_code")] += 1
                assert seen.value == sent[place(seen)].value
        assert letters == Counter({(place, one.code): 1 for place, one in sent.items() if one.code})
        waited = {place(r) for r in self.wire.read("waiting.main")} & set(sent)
        unmatched = [place for place, one in sent.items() if not one.code and not one.clients()]
        counted = [sum(line.get(name, 0) for line in mine) for name in ("events", "unmatched", "waiting")]
        assert counted == [len(sent), len(set(unmatched) - waited), len(waited)]

    def set_aside(self, topic):
        """The places of events of a topic that waited."""
        return {place(seen) for seen in self.wire.read("waiting.main") if place(seen)[0] == topic}

    def overtook(self, sent):
        """Whether each of these that was delivered was so before the first dead letter of those that came before it."""
        letters = {place(seen): seen.time_ms for seen in self.wire.read("deadletter")}
        late = [letters[one.topic, one.partition, one.offset] for one in sent if one.code]
        ids = {one.id for one in sent if not one.code}
        seen = [
            r for r in self.wire.read(*self.wire.under("deliver")) if (r.header("ce_source"), r.header("ce_id")) in ids
        ]
        return seen and max(r.time_ms for r in seen) < min(late)

    def verified(self, capsys):
        judged = json.loads(self.hilcast(capsys, "verify", "--json"))
        assert (judged["ok"], judged["missing"], judged["wrong"]) == (True, 0, 0), judged
        return judged


def place(seen):
    """Where a record was sent to that we wrote."""
    topic, partition, offset = (seen.header(f"hilcast_{name}") for name in ("topic", "partition", "offset"))
    return topic, int(partition), int(offset)


def covered(records):
    """The places that the routing log speaks of."""
    return {
        (r.json["topic"], r.json["partition"], offset)
        for r in records
        for offset in range(r.json["first"], r.json["last"] + 1)
    }


@pytest.fixture(scope="module")
def world(services, tmp_path_factory):
    with FakeRegistry() as registry:
        made = World(services, tmp_path_factory.mktemp("formats"), registry)
        made.create("json-a", "json-kcat", "json-alike", "json-away", "avro-a", "proto-a")
        made.create("avro-hostile", "proto-hostile", "avro-away")
        made.job.start()
        try:
            for name, (broker, text, _) in WANTED.items():
                made.wire.subscribe(broker, "order", name, name, text)
            made.wire.subscribe("b1", "reading", "warm", "warm", "celsius > 15 AND room LIKE 'att%'")
            made.wire.subscribe("b1", "trade", "traded", "traded", "country = 'DE'")
            made.wire.flush()
            made.job.wait()
            yield made
        finally:
            made.job.end()


# ── tests ───────────────────────────────────────────────────────────────────────────────────────────────────────


def json_orders(rng, count):
    """Orders as text, with what `json` makes of each."""
    made = []
    for _ in range(count):
        order = {
            "customer": {"country": rng.choice(COUNTRIES), "tags": [{"country": "DE"}]},
            "total": rng.randrange(300) / 2,
        }
        if rng.random() < 0.2:
            order["customer"] = rng.choice([None, [order["customer"]], "DE", {}])
        if rng.random() < 0.2:
            order["total"] = rng.choice(["100", None, {"min": 1}, 10**400, True])
        text = json.dumps({"id": 1, "order": order, "country": "DE"}, ensure_ascii=rng.random() < 0.5)
        if rng.random() < 0.2:
            text = '{"order": {"customer": {"country": "DE"}, "total": 500}, ' + text[1:]
        made.append((text.encode(), json.loads(text)["order"]))
    return made


def beside(rng):
    """A key and headers: regions and numbers that are there, are not, or are none."""
    key = rng.choice([b"7", b"12", b"19", b"012", b"x", b"\xff", None])
    headers = [("x-broker", rng.choice([b"b1", b"b2", b"b3"]))]
    if rng.random() < 0.6:
        headers += [("x-region", b"south"), ("x-region", rng.choice([b"north", b"south", b""]))]
    return key, headers


def test_nested_json_of_three_clients(world, capsys):
    """Topics by a pattern, the broker from a header, attributes below, in headers and in the key; N in, N accounted."""
    rng, sent = random.Random(1), []
    topic = world.name("json-a")
    for value, order in json_orders(rng, 60):
        key, headers = beside(rng)
        sent.append(world.send(topic, value, key, headers, reading=order))
    sent.append(
        world.send(topic, b"{}", None, [("x-region", b"north")], code="bad-event")
    )  # nobody says where it enters
    sent.append(world.send(topic, b"{}", None, [("x-broker", b"b9")], code="unknown-broker"))
    sent.append(world.send(topic, b'{"order": ', None, [("x-broker", b"b1")], code="bad-event"))
    other = KafkaProducer(bootstrap_servers=world.kafka)
    for value, order in json_orders(rng, 20):
        key, headers = beside(rng)
        where = other.send(topic, value, key, headers).get(30)
        sent.append(Sent(topic, where.partition, where.offset, key, value, attributes(order, key, headers)))
    other.close()
    by_kcat = world.name("json-kcat")
    lines = [b"%d|%s" % (i, value) for i, (value, _) in enumerate(json_orders(random.Random(2), 20))]
    kcat = [found] if (found := shutil.which("kcat")) else [sys.executable, str(Path(__file__).parent / "kcat.py")]
    headers = ["-H", "x-broker=b2", "-H", "x-region=north"]
    command = [*kcat, "-P", "-b", world.kafka, "-t", by_kcat, "-K", "|", *headers]
    subprocess.run(command, input=b"\n".join(lines) + b"\n", check=True, timeout=60)
    said = [("x-broker", b"b2"), ("x-region", b"north")]
    for i, (value, order) in enumerate(json_orders(random.Random(2), 20)):
        key = b"%d" % i
        sent.append(Sent(by_kcat, 0, i, key, value, attributes(order, key, said)))
    world.judge(sent)
    assert world.verified(capsys)["published"] >= len(sent)


def test_avro_and_protobuf_of_their_own_serializers(world, capsys):
    """Two versions of each schema side by side, routed as equal attributes in JSON are; clients read what was sent."""
    rng, sent = random.Random(3), []
    avro, proto = world.name("avro-a"), world.name("proto-a")
    for i in range(30):
        key, headers = beside(rng)
        version = 1 + i % 2
        sent.append(world.avro(avro, version, avro_order(version, rng), key=key, headers=headers[1:]))
        sent.append(world.proto(proto, version, proto_order(version, rng), key=key, headers=headers[1:]))
    alike, json_topic = [], world.name("json-alike")
    for country, total in (("DE", 150.0), ("US", 150.0), ("Liechtenberg am Inn", 5.0)):
        order = {"customer": {"tags": [], "country": country}, "total": total}
        made = PROTO[1]()
        made.order.customer.country, made.order.total = country, total
        headers = [("x-broker", b"b1")]
        alike.append([
            world.send(json_topic, json.dumps({"order": order}).encode(), b"12", headers, reading=order),
            world.avro(avro, 1, {"id": 1, "order": order}, key=b"12"),
            world.proto(proto, 1, made, key=b"12"),
        ])  # fmt: skip
    for three in alike:
        assert len({frozenset(one.clients()) for one in three}) == 1
    sent += [one for three in alike for one in three]
    world.judge(sent)
    deliveries = [d for d in Subscriber(load(world.path), "german").present() if d.source == f"kafka:{avro}"]
    assert deliveries
    assert all(d.event["order"]["customer"]["country"] == "DE" for d in deliveries)
    world.verified(capsys)


def test_hostile_bodies_are_dead_letters_and_others_flow(world, capsys):
    """Cut, of another magic byte, with lengths of 2^60, of an id that nobody registered: each one dead letter."""
    rng, sent = random.Random(4), []
    avro, proto = world.name("avro-hostile"), world.name("proto-hostile")
    good = world.avro(avro, 1, avro_order(1, rng))
    fine = world.proto(proto, 2, proto_order(2, rng))
    long = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x1f"
    id, other = good.value[:5], fine.value[:5]
    double, customer = b"\0" * 8, b"\x02\x02"
    bad = {
        avro: [
            good.value[:-3],
            b"\x01" + good.value[1:],
            id,
            id + customer + long,
            good.value + b"\0",
            b"\0\0",
            b"",
            None,
            id + customer + b"\xff" * 9 + b"\x01" + b"\x04" + double,  # a block of -2^63 items
            id + customer + b"\x01\x03" + double,  # one of -3 bytes
            id + b"\x02\x0e" + double,  # a union of two has no eighth branch
            id + b"\x02\x01" + double,  # nor one before the first
            id + b"\xff" * 11 + double,
        ],
        proto: [
            fine.value[:-1],
            b"\x01" + fine.value[1:],
            other,
            other + long,
            fine.value[:7] + b"\x0a" + long,
            fine.value + b"\x7b" * 200 + b"\x7c" * 200,  # groups in groups
            fine.value + b"\x7b",
            fine.value + b"\x7c",
            fine.value + b"\x78" + b"\xff" * 11 + b"\0",
            fine.value + b"\x12\x05\x1a\x04\x0a\xff\x01\x00",  # each longer than what it is in
            fine.value + b"\x00",
        ],
    }
    sent.append(world.send(avro, other + fine.value[6:], code="unknown-schema"))  # a schema of another format
    sent.append(world.send(proto, id + good.value[5:], code="unknown-schema"))
    blocks = id + customer + b"\x01\x04\x02a\x00\x04DE" + double  # a block of -1 items says its size: that is Avro
    order = fastavro.schemaless_reader(io.BytesIO(blocks[5:]), fastavro.parse_schema(AVRO[1]))["order"]
    sent.append(world.send(avro, blocks, b"12", reading=order))
    grouped = fine.value + b"\x7b\x08\x01\x7c"  # an unknown group, and nothing at all: both are messages
    for value in (grouped, fine.value[:7]):
        sent.append(world.send(proto, value, b"12", reading=proto_read(2, value[7:])))
    for topic, values in bad.items():
        sent += [world.send(topic, value, code="bad-event") for value in values]
    for topic in bad:
        for i in range(4):
            unknown = b"\0" + (9_000_001 + i).to_bytes(4, "big")
            sent.append(world.send(topic, unknown + b"\0" * i, code="unknown-schema"))
    for _ in range(10):
        sent.append(world.avro(avro, 1, avro_order(1, rng), key=b"12"))
        sent.append(world.proto(proto, 1, proto_order(1, rng), key=b"12"))
    world.judge([good, fine, *sent])
    world.verified(capsys)


def test_a_registry_that_is_away_delays_only_what_is_new(world, capsys):
    """Ids that were seen are read without it, beside one that was not in the same partition: that one is set aside.

    It becomes a dead letter, or is routed once the registry gives its schema.
    """
    rng, topic, plain = random.Random(5), world.name("avro-away"), world.name("json-away")
    sent = [world.avro(topic, version, avro_order(version, rng), key=b"12") for version in (1, 2)]
    world.judge(sent)
    body, parsed = sent[0].value[5:], fastavro.parse_schema(AVRO[1])
    order = fastavro.schemaless_reader(io.BytesIO(body), parsed)["order"]
    never, later = (
        world.registry.add(name, {"schema": json.dumps({**AVRO[1], "name": name})}) for name in ("Never", "Later")
    )
    new = {id: b"\0" + id.to_bytes(4, "big") + body for id in (never, later)}
    german = {"customer": {"country": "DE"}}
    world.registry.down = True
    try:
        for _ in range(3):
            sent.append(world.send(topic, sent[0].value, b"12", reading=order))
            sent.append(world.send(topic, new[never], b"12", code="unknown-schema"))
        text = json.dumps({"order": german}).encode()
        sent += [world.send(plain, text, b"3", [("x-broker", b"b1")], german) for _ in range(3)]
        world.judge(sent)
    finally:
        world.registry.down = False
    assert world.overtook(sent), "what was known did not wait for what was not"
    world.registry.unready[later] = 4
    sent += [world.send(topic, value, b"12", reading=order) for value in [new[later], sent[0].value] * 3]
    world.judge(sent)
    assert {one.offset for one in sent if one.value == new[later]} & {place[2] for place in world.set_aside(topic)}
    sent.append(world.send(topic, new[never], b"12", reading=order))
    world.judge(sent)
    world.verified(capsys)


def test_what_our_clients_write_and_what_commands_say(world, capsys):
    """`Publisher` and `publish` write in the type's format, intervals too; `tail`, `explain`, `cost`, `type` and the
    doctor read it.
    """
    world.registry.add("trade", proto_schema(1))
    with Publisher(load(world.path), broker="b3", type="reading", source="house") as publisher:
        publisher.publish({"room": "attic", "celsius": 20.5}, id="point")
        publisher.publish({"room": "attic", "celsius": {"min": 5, "max": 25}}, id="span")
        publisher.publish({"room": "attic", "celsius": {"min": 5, "max": 10}}, id="cold")
        publisher.publish(b'{"room": "attic east", "celsius": 30}', id="json", headers={"ce_dataformat": "json"})
        publisher.publish({"order": {"customer": {"country": "DE"}}}, id="trade", type="trade")
    world.hilcast(capsys, "publish", "-b", "b2", "-t", "reading", "--id", "typed", '{"room": "attic", "celsius": 16}')
    with (
        pytest.raises(HilcastError, match="bad-event"),
        Publisher(load(world.path), broker="b1", type="reading") as publisher,
    ):
        publisher.publish({"room": "attic"})
    world.wire.until("deliver.warm", lambda records: len(records) >= 4)
    world.wire.until("deliver.traded", lambda records: len(records) >= 1)
    shown = [json.loads(line) for line in world.hilcast(capsys, "tail", "warm", "--once", "--json").splitlines()]
    assert {d["id"]: d["event"]["celsius"] for d in shown} == {
        "point": 20.5, "span": {"min": 5.0, "max": 25.0}, "json": 30, "typed": 16.0,
    }  # fmt: skip
    (traded,) = Subscriber(load(world.path), "traded").present()
    assert traded.event["order"]["customer"] == {"country": "DE"}
    assert dict(traded.headers)["content-type"] == b"application/protobuf"
    why = json.loads(world.hilcast(capsys, "explain", "house#span", "b1/reading/warm", "--json"))
    assert (why["matches"], why["reaches"], why["event"]["attributes"]["celsius"]) == (
        True,
        True,
        {"min": 5.0, "max": 25.0},
    )
    costs = json.loads(world.hilcast(capsys, "cost", "-t", "reading", "celsius > 15", "--json"))
    assert (costs["sample"]["publications"], costs["sample"]["matching"]) == (5, 4)
    drafted = world.hilcast(capsys, "type", "--sample", world.name("avro-a"))
    assert 'format = "avro"' in drafted
    assert 'path = "order.customer.country"' in drafted
    assert "extra" not in drafted.partition("# left out")[0], "no path leads into a map"
    assert "events order" in {check.name for check in looks(load(world.path))}
    world.verified(capsys)


def proto_schema(version):
    """As ProtobufSerializer registers it."""
    registered = PROTO[version].DESCRIPTOR.file.serialized_pb
    return {"schema": base64.b64encode(registered).decode(), "schemaType": "PROTOBUF"}


def test_a_topic_that_appears_and_one_that_is_made_again(world, capsys):
    """What a pattern matches is routed while the job runs, from its first record; made again, from its first again."""
    rng, topic, sent = random.Random(6), world.name("json-late"), []
    world.create("json-late")
    for value, order in json_orders(rng, 20):
        sent.append(world.send(topic, value, b"12", [("x-broker", b"b2")], order))
    world.judge(sent)
    world.verified(capsys)
    for future in world.admin.delete_topics([topic]).values():
        future.result(30)
    deadline = time.monotonic() + 30
    while topic in world.wire.topics():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    world.create("json-late")
    # more of them than there were: by offset, the first ones would be taken for known
    again = {
        value: attributes(order, b"12", [])
        for value, order in ((value.replace(b'"id": 1', b'"id": 2'), order) for value, order in json_orders(rng, 60))
    }
    for value in again:
        world.send(topic, value, b"12", [("x-broker", b"b2")])
    expected = {
        (client, value) for value, said in again.items() for client, (_, _, wants) in WANTED.items() if wants(said)
    }

    def all_there():
        seen = world.wire.read(*world.wire.under("deliver"))
        return expected <= {(r.header("hilcast_client"), r.value) for r in seen}

    deadline = time.monotonic() + 60
    while not all_there():
        assert time.monotonic() < deadline, world.job.tail()
        time.sleep(0.5)
