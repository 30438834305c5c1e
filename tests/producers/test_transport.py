"""Both Kafka clients behind the one protocol, on the real broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from infra.kafka import confluent, open_transport
from infra.kafka.dialects import librdkafka
from infra.kafka.topic_keeper import TopicKeeper
from infra.local.ports import free_port
from state.config import parse
from state.errors import HilcastError
from state.lanes import publication_lanes
from state.messages import Output
from tests.producers.worlds import configured, text

BOTH = ("confluent", "kafka-python")


@pytest.fixture(params=BOTH)
def name(request):
    return request.param


@pytest.fixture
def config(services, unique):
    return configured(services, unique)


@pytest.fixture
def transport(config, name):
    opened = open_transport(config, name)
    yield opened
    opened.close()


def read(transport, starts, count, timeout_s=20.0):
    reader = transport.read(starts)
    records, deadline = [], time.monotonic() + timeout_s
    while len(records) < count and time.monotonic() < deadline:
        records += reader.poll(0.2)
    reader.close()
    return records


def test_what_is_sent_is_read_as_it_was(config, transport):
    """Key, value, headers in order (one of them twice) and a null value come back byte for byte, at their place."""
    topic = config.topics.routed
    headers = (("a", b"1"), ("b", b""), ("a", b"\xff\x00"))
    places = [
        transport.send(Output(topic, b"k", b"\x00value", headers)).place(),
        transport.send(Output(topic, b"k", None)).place(),
    ]
    assert places == [(topic, 0, 0), (topic, 0, 1)]
    first, second = read(transport, {(topic, 0): 0}, 2)
    assert (first.key, first.value, first.headers, first.place) == (b"k", b"\x00value", headers, places[0])
    assert (second.key, second.value, second.headers, second.place) == (b"k", None, (), places[1])
    assert abs(first.timestamp_ms / 1000 - time.time()) < 600


def test_what_others_wrote_is_read_as_it_was(config, transport):
    """A header without a value, and a record without key and value, are read as what they are."""
    topic = config.topics.routed
    other = open_transport(config, "confluent")
    other.send(Output(topic, None, None, (("a", None),))).place()
    other.close()
    (record,) = read(transport, {(topic, 0): 0}, 1)
    assert (record.key, record.value, record.headers) == (None, None, (("a", None),))


def test_reading_begins_where_it_is_told(config, transport):
    """A reader starts at the given offset of each partition, and a span tells first and end."""
    topic = config.topics.routed
    for i in range(5):
        transport.send(Output(topic, None, str(i).encode()))
    transport.flush()
    assert transport.span(topic, 0) == (0, 5)
    assert [r.value for r in read(transport, {(topic, 0): 3}, 2)] == [b"3", b"4"]
    assert transport.span(config.topics.control, 0) == (0, 0)


def test_flush_hands_over_everything_in_order(config, transport):
    """After a flush everything is there, in the order it was sent."""
    topic = config.topics.routed
    for i in range(2000):
        transport.send(Output(topic, None, str(i).encode()))
    transport.flush()
    assert [int(r.value) for r in read(transport, {(topic, 0): 0}, 2000)] == list(range(2000))


def test_topics_and_partitions_are_seen_and_not_made(config, transport):
    """Asking for a topic that does not exist says so, and does not create it."""
    assert config.topics.publications in transport.topics()
    assert transport.partitions(config.topics.publications) == tuple(range(publication_lanes(config)))
    absent = f"{config.deployment.prefix}.deliver.nobody"
    assert transport.partitions(absent) == ()
    with pytest.raises(HilcastError, match=f"kafka-topic.*{absent}"):
        transport.span(absent, 0)
    assert absent not in transport.topics()


def test_offsets_are_stored_in_a_group(config, transport):
    """What is committed is found again, also by the other client; what was never committed is left out."""
    stored = {(config.topics.publications, 0): 7, (config.topics.publications, 1): 0}
    group = f"{config.deployment.prefix}.client.alice"
    transport.commit(group, stored)
    for name in BOTH:
        other = open_transport(config, name)
        assert other.committed(group, [*stored, (config.topics.routed, 0)]) == stored
        other.close()


def test_a_record_beyond_the_limit_fails_by_name(config, transport):
    """A record that Kafka does not take is `kafka-send`: at once, or when its place is asked for."""

    def attempt():
        transport.send(Output(config.topics.publications, None, b"x" * 3_000_000)).place()

    with pytest.raises(HilcastError, match="kafka-send"):
        attempt()


@pytest.mark.parametrize("client", BOTH)
def test_kafka_that_is_away_is_named(client, services, monkeypatch):
    """Without a broker every question ends in `kafka-away`, with the address."""
    monkeypatch.setattr(f"infra.kafka.{client.replace('-', '_')}._TIMEOUT_S", 1.0)
    config = parse(text(services, "p").replace(services.kafka, f"127.0.0.1:{free_port()}"))
    transport = open_transport(config, client)
    with pytest.raises(HilcastError, match=f"kafka-away: Kafka at {config.deployment.kafka}"):
        transport.topics()
    transport.close()


def test_an_unknown_transport_is_refused(services):
    """A name that is no transport is refused with the names that are."""
    with pytest.raises(HilcastError, match="confluent, kafka-python"):
        open_transport(parse(text(services, "p")), "pykafka")  # type: ignore[arg-type]


class Unreadable:
    """A record as confluent-kafka gives one that has a header whose name is no UTF-8."""

    def headers(self):
        raise SystemError("returned a result with an exception set")

    def __getattr__(self, name):
        return lambda: {"topic": "t", "partition": 0, "offset": 7, "timestamp": (1, 5)}.get(name, b"x")


def test_a_header_that_the_client_cannot_read_does_not_stop_a_reader():
    """The record is given, with a header whose name says that it could not be read."""
    record = confluent._record(Unreadable())
    assert (record.place, record.key, record.value) == (("t", 0, 7), b"x", b"x")
    assert record.headers == (("\ufffd", None),)


def test_an_open_transaction_is_found_by_where_it_begins(config):
    """What it holds back is told from the first of its records on, until it is ended; others are not named."""
    topic, keeper = config.topics.routed, TopicKeeper(config)
    producer = Producer({**librdkafka(config), "transactional.id": f"{config.deployment.prefix}-open"})
    producer.init_transactions(60.0)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush(30.0)
    assert keeper.held_back([topic, config.topics.progress, "nothing of this name"]) == {(topic, 0): 0}
    producer.abort_transaction(60.0)
    deadline = time.monotonic() + 30.0
    while keeper.held_back([topic]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert keeper.held_back([topic]) == {}
