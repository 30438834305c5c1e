"""The control query's SQL on a real Spark: records come to Python as they were, and cut as the core cuts them."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from msgspec.structs import astuple
from pyspark.sql import SparkSession

from infra.kafka import open_transport
from infra.kafka.reading import every
from infra.kafka.topic_keeper import TopicKeeper
from state.config import parse
from state.fitting import clipped
from state.keys import UNROUTABLE
from state.limits import INBOX_BYTES_MAX, OUTPUT_BYTES_MAX
from state.messages import Record, content_bytes
from streaming import control, key_step

TEXT = '[overlay]\nbrokers = ["b1"]\n[types.t.attributes]\nx = { kind = "int" }'
CONFIG = parse(TEXT)
HEADERS = "headers array<struct<key: string, value: binary>>"
SCHEMA = f"topic string, offset long, key binary, value binary, {HEADERS}"
WHOLE = f"topic string, partition int, offset long, timestamp_ms long, key binary, value binary, {HEADERS}"
SIZES = (0, 4095, 4096, 4097, 30_000, INBOX_BYTES_MAX - 11, INBOX_BYTES_MAX, INBOX_BYTES_MAX + 100)


@pytest.fixture(scope="module")
def spark():
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


def records(topic):
    """Records around every limit, by key, by value and by headers; parts that are null."""
    made = [(b"k", b"v" * size, ()) for size in SIZES] + [(b"k" * size, None, ()) for size in SIZES]
    made += [(None, b"v", (("h", b"x" * size),)) for size in SIZES] + [
        (b"k", b"v", (("ü" * 30_000, None),) * n) for n in (1, 20)
    ]
    made += [
        (b"k" * 600_000, b"v" * 600_000, (("h", b"1"),)),
        (None, b"v" * (OUTPUT_BYTES_MAX + 1), ()),
        (None, None, ()),
    ]
    return [Record(topic, 0, i, 0, *each) for i, each in enumerate(made)]


@pytest.mark.services
def test_sql_clips_as_the_core_does(spark):
    """Key, value and headers of every record, large or not, are what `state.fitting.clipped` makes of them."""
    topics = {CONFIG.topics.subscriptions: INBOX_BYTES_MAX, CONFIG.topics.control: OUTPUT_BYTES_MAX}
    sent = [record for topic in topics for record in records(topic)]
    rows = [(r.topic, r.offset, r.key, r.value, [{"key": k, "value": v} for k, v in r.headers] or None) for r in sent]
    found = {(r.topic, r.offset): r for r in control.clipped(spark.createDataFrame(rows, SCHEMA), CONFIG).collect()}
    assert len(found) == len(sent)
    for record in sent:
        want, got = clipped(record, topics[record.topic]), found[record.topic, record.offset]
        headers = tuple((h["key"], None if h["value"] is None else bytes(h["value"])) for h in got["headers"] or ())
        assert (got["key"], got["value"], headers) == (want.key, want.value, want.headers), content_bytes(record)


@pytest.mark.services
def test_a_record_comes_to_its_key_as_it_was(spark):
    """Through the one column that all of a record has on its way to Python: numbers, nulls, bytes, every header."""
    topic, control_topic = CONFIG.topics.subscriptions, CONFIG.topics.control
    headers = ((), (("a", b"1"),), (("a", None), ("ü", b""), ("a", b"\xff")), (("", b"x"),))
    keys = {b"b1/t/s": "b1/t/home:", b"b1/none/s": UNROUTABLE, b"\xff": UNROUTABLE, None: UNROUTABLE}
    made = [(topic, key, value, some) for key in keys for value in (b"\xfe{}", b"", None) for some in headers]
    made += [(control_topic, b"b1/t/cube:0", b"\0", ())]
    sent = [Record(t, i % 3, 2**40 + i, 2**41 + i, key, value, some) for i, (t, key, value, some) in enumerate(made)]
    rows = [(*astuple(r)[:6], [{"key": k, "value": v} for k, v in r.headers] or None) for r in sent]
    found = control.keyed(spark.createDataFrame(rows, WHOLE), CONFIG).collect()
    came = {
        key_step._record(*(None if x is None else bytes(x) for x in row["record"])): row["state_key"] for row in found
    }
    assert set(came) == set(sent)
    for record, key in came.items():
        assert key.startswith("b1/t/cube:0" if record.topic == control_topic else keys[record.key])


@pytest.mark.services
def test_what_unpacks_to_more_than_a_client_takes_is_read(services, unique):
    """A record of some kilobytes, 120 MB when it is unpacked, stops no reader of ours; what is behind it is read."""
    config = parse(f'[deployment]\nkafka = "{services.kafka}"\nprefix = "{unique}"\n{TEXT}')
    TopicKeeper(config).ensure_needed()
    settings = {"compression.type": "zstd", "message.max.bytes": 1_000_000_000}
    producer = Producer({"bootstrap.servers": services.kafka, **settings})
    for value in (b"x" * 120_000_000, b"behind"):
        producer.produce(config.topics.subscriptions, value)
        assert producer.flush(60) == 0
    transport = open_transport(config)
    assert [len(record.value or b"") for record in every(transport, config.topics.subscriptions)] == [120_000_000, 6]
    transport.close()
