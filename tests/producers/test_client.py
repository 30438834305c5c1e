"""Publisher, Subscriber and Advertiser over both Kafka clients, with a router that answers by hand."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import replace

import pytest

from hilcast import Advertiser, Publisher, RefusedError, Subscriber, UnansweredError
from infra.kafka import open_transport
from infra.kafka.topic_keeper import TopicKeeper
from producers.client import subscriber
from state.errors import HilcastError
from tests.producers.test_transport import BOTH, read
from tests.producers.worlds import answer, configured, delivered


@pytest.fixture(params=BOTH)
def name(request):
    return request.param


@pytest.fixture
def config(services, unique):
    return configured(services, unique)


@pytest.fixture
def wire(config):
    """A plain connection, on which the test plays the router."""
    opened = open_transport(config)
    yield opened
    opened.close()


class Answering(threading.Thread):
    """Answers every control event of an inbox by `reply(record)`: a list of outputs."""

    def __init__(self, config, inbox, reply):
        super().__init__(daemon=True)
        self.config, self.inbox, self.reply, self.seen = config, inbox, reply, []
        self.ended = threading.Event()

    def run(self):
        transport = open_transport(self.config)
        reader = transport.read({(self.inbox, 0): 0})
        while not self.ended.is_set():
            for record in reader.poll(0.1):
                self.seen.append(record)
                for output in self.reply(record):
                    transport.send(output).place()
        reader.close()
        transport.close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.ended.set()
        self.join()


# ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_publications_are_cloudevents(config, wire, name):
    """An event leaves as a CloudEvent in binary mode; JSON text is passed on byte for byte; a missing id is made."""
    with Publisher(config, broker="b1", type="quote", source="exchange", transport=name) as publisher:
        made = publisher.publish({"price": 1.5}, key="IBM")
        assert publisher.publish('{ "price" : 2 }', id="e2", broker="b3", source="other", key="IBM") == "e2"
    partitions = {(config.topics.publications, p): 0 for p in wire.partitions(config.topics.publications)}
    first, second = sorted(read(wire, partitions, 2), key=lambda record: record.offset)
    assert json.loads(first.value) == {"price": 1.5}
    assert dict(first.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": made.encode(),
        "ce_source": b"exchange",
        "ce_type": b"quote",
        "ce_broker": b"b1",
    }
    assert (first.key, first.partition) == (second.key, second.partition)
    assert second.value == b'{ "price" : 2 }'
    assert [dict(second.headers)[h] for h in ("ce_id", "ce_source", "ce_broker")] == [b"e2", b"other", b"b3"]


def test_publishing_needs_broker_type_and_topic(services, unique, name):
    """Without a broker, without a type or without the topic nothing is sent, and the reason is said."""
    config = configured(services, unique, create=False)
    with Publisher(config, type="quote", transport=name) as publisher, pytest.raises(HilcastError, match="bad-event"):
        publisher.publish({})
    with (
        Publisher(config, broker="b1", type="quote", transport=name) as publisher,
        pytest.raises(HilcastError, match="hilcast topics"),
    ):
        publisher.publish({})
    transport = open_transport(config)
    assert config.topics.publications not in transport.topics()
    transport.close()


# ── control events ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_receipt_that_names_the_event_is_the_answer(config, name):
    """Of receipts of other events, other topics and of later news, only the first that names this event answers it."""

    def reply(record):
        topic, partition, offset = record.place
        return [
            answer(config, (topic, partition, offset + 1), "refused"),
            answer(config, (config.topics.advertisements, partition, offset), "refused"),
            answer(config, record.place, "accepted", version=offset),
            answer(config, record.place, "expired"),
        ]

    with (
        Answering(config, config.topics.subscriptions, reply) as router,
        Subscriber(config, "alice", transport=name) as alice,
    ):
        receipt = alice.subscribe("b1", "quote", "price < 5", id="s1", version=9, ttl_ms=500, sink="elsewhere")
        assert (receipt.kind, receipt.version, receipt.offset) == ("accepted", 0, 0)
        again = alice.replace("b1", "quote", "s1", "price < 6", timeout_s=20)
        assert again.version == 1
        gone = alice.withdraw("b1", "quote", "s1", version=11)
        assert gone.version == 2
    assert [record.key for record in router.seen] == [b"b1/quote/s1"] * 3
    assert json.loads(router.seen[0].value) == {
        "client": "alice",
        "filter": "price < 5",
        "version": 9,
        "ttl_ms": 500,
        "sink": "elsewhere",
    }
    assert json.loads(router.seen[1].value) == {"client": "alice", "filter": "price < 6"}
    assert router.seen[2].value is None
    assert router.seen[2].headers == (("hilcast_version", b"11"),)


def test_a_refusal_is_raised_with_its_receipt(config, name):
    """A refused event raises the code and reason of its receipt."""

    def reply(record):
        return [answer(config, record.place, "refused", code="filter-syntax", reason="expected a value")]

    with (
        Answering(config, config.topics.advertisements, reply),
        Advertiser(config, "exchange", transport=name) as advertiser,
        pytest.raises(RefusedError, match="filter-syntax: expected a value") as refused,
    ):
        advertiser.advertise("b1", "quote", "price <")
    assert refused.value.receipt.refused
    assert refused.value.code == "filter-syntax"


def test_many_are_sent_before_the_first_is_asked_for(config, name):
    """Requests in flight together each find their own receipt, in whatever order they are asked for."""

    def reply(record):
        return [answer(config, record.place, key=record.key.decode())]

    with (
        Answering(config, config.topics.subscriptions, reply),
        Subscriber(config, "alice", transport=name) as alice,
    ):
        requests = [alice.request("b1", "quote", f"price < {i}", id=f"s{i}") for i in range(50)]
        receipts = {request.id: request.receipt().key for request in reversed(requests)}
    assert receipts == {f"s{i}": f"b1/quote/s{i}" for i in range(50)}


def test_without_an_answer_it_says_sent(config, wire, name):
    """At the timeout the error tells where the event stands; asked again later, the answer is found."""
    with Subscriber(config, "alice", transport=name) as alice:
        request = alice.request("b1", "quote", "price < 5")
        with pytest.raises(UnansweredError, match="sent, unanswered") as unanswered:
            request.receipt(timeout_s=0.3)
        wire.send(answer(config, unanswered.value.place)).place()
        assert request.receipt().kind == "accepted"


def test_advertisements_carry_the_publisher(config, name):
    """An advertisement goes to its own inbox, under the publisher's name."""
    with (
        Answering(config, config.topics.advertisements, lambda r: [answer(config, r.place)]) as router,
        Advertiser(config, "the exchange", transport=name) as advertiser,
    ):
        advertiser.advertise("b2", "quote", "price < 9", id="a1")
        advertiser.withdraw("b2", "quote", "a1")
    first, second = router.seen
    assert (first.key, json.loads(first.value)) == (
        b"b2/quote/a1",
        {"publisher": "the exchange", "filter": "price < 9"},
    )
    assert (second.key, second.value) == (b"b2/quote/a1", None)


# ── deliveries ──────────────────────────────────────────────────────────────────────────────────────────────────


def make(config, *topics):
    TopicKeeper(config).ensure(topics)


def send(wire, *outputs):
    for output in outputs:
        wire.send(output).place()


def test_repeats_are_removed_and_ids_united(config, wire, name):
    """Copies of one delivery are given once; ids that later copies bring join the first one's."""
    make(config, config.topics.deliver("alice"))
    first = delivered(config, "alice", "e1", "s1")
    send(wire, first, first, delivered(config, "alice", "e2", "s1,…"), delivered(config, "alice", "e1", "s2"))
    with Subscriber(config, "alice", transport=name) as alice:
        one, two = alice.present()
        assert (one.event_id, one.subscriptions, one.event) == ("e1", ("s1", "s2"), {"price": 1})
        assert (two.event_id, two.subscriptions) == ("e2", ("s1",))
        assert (one.source, one.type, one.broker, one.epoch, one.stale) == ("test", "quote", "b1", "1.1", False)
        assert alice.repeats == 2


def test_held_back_deliveries_are_complete_when_given(config, wire, name):
    """With `unite_s` a delivery waits for the copies of other deployments, and has their ids when it is given."""
    make(config, config.topics.deliver("alice"))
    with Subscriber(config, "alice", transport=name, unite_s=1.0) as alice:
        send(wire, delivered(config, "alice", "e1", "s1"))
        assert alice.poll(0.4) == []
        send(wire, delivered(config, "alice", "e1", "s2"))
        (delivery,) = alice.deliveries(quiet_s=1.5)
        assert delivery.subscriptions == ("s1", "s2")


def test_a_subscriber_may_be_there_before_its_topic(config, wire, name):
    """The topic that the first subscription makes is found when it comes, and read from its beginning."""
    with Subscriber(config, "alice", transport=name, start="end") as alice:
        assert alice.poll(0.2) == []
        make(config, config.topics.deliver("alice"))
        send(wire, delivered(config, "alice", "e1", "s1"))
        assert [d.event_id for d in alice.poll(20)] == ["e1"]


def test_partitions_that_a_topic_is_given_are_read(config, wire, name, monkeypatch):
    """By whoever reads already, from their beginning, and by who reads up to the ends."""
    monkeypatch.setattr(subscriber, "GROWN_S", 0.2)
    wide = replace(config, settings=replace(config.settings, delivery_partitions=3))
    make(config, config.topics.deliver("alice"))
    with Subscriber(config, "alice", transport=name, start="end") as alice:
        send(wire, delivered(config, "alice", "e0", "s1"))
        assert [d.event_id for d in alice.poll(20)] == ["e0"]
        make(wide, config.topics.deliver("alice"))
        with contextlib.closing(open_transport(wide)) as fresh:  # one that was there before knows one partition
            copies = (delivered(config, "alice", f"e{1 + lane}", "s1") for lane in range(3))
            send(fresh, *(replace(copy, partition=lane) for lane, copy in enumerate(copies)))
        found = set()
        deadline = time.monotonic() + 20
        while len(found) < 3 and time.monotonic() < deadline:
            found |= {(d.event_id, d.record.partition) for d in alice.poll(0.2)}
        assert found == {("e1", 0), ("e2", 1), ("e3", 2)}
    with Subscriber(config, "alice", transport=name) as alice:
        assert sorted(d.event_id for d in alice.present()) == ["e0", "e1", "e2", "e3"]


def test_a_shared_sink_is_read_for_one_client(config, wire, name, unique):
    """Of a shared topic a client gets its own deliveries; what is also in its own topic is given once."""
    sink = f"{unique}-shared"
    make(config, config.topics.deliver("alice"), sink)
    send(wire, delivered(config, "alice", "e1", "s1"), delivered(config, "alice", "e1", "s2", topic=sink))
    send(wire, delivered(config, "bob", "e1", "s3", topic=sink), delivered(config, "alice", "e2", "s2", topic=sink))
    with Subscriber(config, "alice", sinks=[sink], transport=name) as alice:
        found = list(alice.present())
    assert sorted((d.event_id, d.subscriptions) for d in found) == [("e1", ("s1", "s2")), ("e2", ("s2",))]


def test_leaving_the_loop_loses_nothing(config, wire, name):
    """A loop that is left and begun again goes on with the next delivery."""
    make(config, config.topics.deliver("alice"))
    send(wire, *(delivered(config, "alice", f"e{i}", "s1") for i in range(5)))
    with Subscriber(config, "alice", transport=name) as alice:
        assert next(iter(alice)).event_id == "e0"
        assert next(iter(alice)).event_id == "e1"
        assert [d.event_id for d in alice.present()] == ["e2", "e3", "e4"]


def test_what_was_committed_is_not_given_again(config, wire, name):
    """After a commit the next life begins with the first delivery that was not given."""
    make(config, config.topics.deliver("alice"))
    send(wire, *(delivered(config, "alice", f"e{i}", "s1") for i in range(4)))
    with Subscriber(config, "alice", transport=name) as alice:
        deliveries = iter(alice)
        next(deliveries), next(deliveries)
        alice.commit()
    with Subscriber(config, "alice", transport=name, start="stored") as alice:
        assert [d.event_id for d in alice.present()] == ["e2", "e3"]
        send(wire, delivered(config, "alice", "e4", "s1"))
    with Subscriber(config, "alice", transport=name, start="end") as alice:
        send(wire, delivered(config, "alice", "e5", "s1"))
        assert [d.event_id for d in alice.poll(20)] == ["e5"]


def test_structured_events_are_read_from_their_value(config, wire, name):
    """A structured CloudEvent gives its attributes and data, though it has no ce_ headers."""
    make(config, config.topics.deliver("alice"))
    body = {"specversion": "1.0", "id": "e9", "source": "s", "type": "quote", "broker": "b2", "data": {"price": 4}}
    plain = delivered(config, "alice", "e9", "s1", value=json.dumps(body).encode())
    headers = tuple(h for h in plain.headers if not h[0].startswith("ce_"))
    headers += (("Content-Type", b"application/cloudevents+json; charset=utf-8"),)
    send(wire, type(plain)(plain.topic, plain.key, plain.value, headers))
    with Subscriber(config, "alice", transport=name) as alice:
        (delivery,) = alice.present()
    assert (delivery.event, delivery.event_id, delivery.source, delivery.broker) == ({"price": 4}, "e9", "s", "b2")


def test_deliveries_end_when_it_is_quiet(config, name):
    """A quiet client's loop ends after `quiet_s`."""
    with Subscriber(config, "alice", transport=name) as alice:
        began = time.monotonic()
        assert list(alice.deliveries(quiet_s=0.4)) == []
        assert time.monotonic() - began >= 0.4
