"""Clients and commands where attributes are not at the top of the document, on Kafka in memory."""

from __future__ import annotations

import argparse
import json

import pytest

from hilcast import Publisher
from producers.commands import cost, diagnosis, explain
from state.config import parse
from state.errors import HilcastError
from state.filters.evaluate import matches
from state.filters.grammar import parse as parse_filter
from state.messages import Output
from state.plain_events import beside_of, plain_event
from tests.producers.memory import MemoryKafka

CONFIG = parse("""
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.order.attributes]
total = { kind = "int", min = 0, max = 100, path = "order.total", imprecise = "possible" }
region = { kind = "category", values = ["EU", "US"], header = "x-region" }
id = { kind = "int", min = 0, max = 100, key = true }
note = { kind = "text" }
[[sources]]
pattern = "orders.*"
broker = "b2"
type = "order"
""")
ORDER = CONFIG.types["order"]
TOPIC = CONFIG.topics.publications


@pytest.fixture
def kafka():
    made = MemoryKafka()
    made.make(TOPIC, "orders.de", "else")
    return made


def published(kafka, attributes, **more):
    with Publisher(CONFIG, broker="b1", type="order", transport=kafka, **more) as publisher:
        publisher.publish_attributes(attributes)
    return kafka.logs[TOPIC][-1]


def test_attributes_are_published_in_their_places(kafka):
    """Given by name, they stand below others, in headers and in the key; what is no attribute stands at the top."""
    record = published(kafka, {"total": 7, "region": "EU", "id": 3, "further": [1]})
    assert json.loads(record.value) == {"order": {"total": 7}, "further": [1]}
    assert (record.key, dict(record.headers)["x-region"]) == (b"3", b"EU")
    found = plain_event(ORDER, record.value, beside_of(ORDER, record.headers, record.key))
    assert found == {"total": 7, "region": "EU", "id": 3}


def test_a_document_is_published_as_it_is(kafka):
    """`publish` changes nothing of it, and headers travel with it."""
    with Publisher(CONFIG, broker="b1", type="order", transport=kafka) as publisher:
        publisher.publish({"total": 7}, key=b"9", headers={"x-region": "US", "raw": b"\xff"})
    (record,) = kafka.logs[TOPIC]
    assert (json.loads(record.value), record.key) == ({"total": 7}, b"9")
    assert record.headers[-2:] == (("x-region", b"US"), ("raw", b"\xff"))


def test_what_cannot_be_put_in_place_is_said(kafka):
    """A type that is not known, two keys, and a value in the way of another are `HilcastError`s; nothing is sent."""
    with Publisher(CONFIG, broker="b1", transport=kafka) as publisher:
        for attributes, more, code in (
            ({}, {"type": "nothing"}, "unknown-type"),
            ({"id": 3}, {"type": "order", "key": "k"}, "bad-event"),
            ({"order": 1, "total": 3}, {"type": "order"}, "bad-event"),
        ):
            with pytest.raises(HilcastError, match=code):
                publisher.publish_attributes(attributes, **more)
    assert kafka.logs[TOPIC] == []


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def full(kafka, monkeypatch):
    """Twenty orders in Kafka, half of them in a topic that a pattern matches."""
    with Publisher(CONFIG, broker="b1", type="order", source="shop", transport=kafka) as publisher:
        for i in range(10):
            publisher.publish_attributes({"total": i, "region": "EU", "id": i}, id=f"e{i}")
    for i in range(10):
        value = json.dumps({"order": {"total": 500 + i}}).encode()
        kafka.append(Output("orders.de", b"%d" % (50 + i), value, (("x-region", b"US"),)))
    kafka.append(Output("else", b"1", b'{"order": {"total": 1}}', ()))
    for command in (cost, diagnosis, explain):
        monkeypatch.setattr(command, "open_transport", lambda config: kafka)
    return kafka


@pytest.mark.parametrize(
    ("text", "matching"),
    [("total < 5", 5), ("region = 'US'", 10), ("id >= 5 AND total < 100", 5), ("id > 54", 5), ("note IS NULL", 20)],
)
def test_cost_counts_what_is_in_headers_keys_and_below(full, text, matching):
    """The share of publications is counted on attributes, those of a source that a pattern matches included."""
    events, note = cost.sample_of(CONFIG, ORDER, 100)
    assert (len(events), note) == (20, "")
    assert sum(matches(parse_filter(text, ORDER), event, ORDER) for event in events) == matching


def test_explain_sees_the_attributes_of_a_publication(full):
    """Looked up by source and id it has headers and key; given as JSON it has neither."""
    chosen = argparse.Namespace(
        event="kafka:orders.de#0/3", broker=None, type=None, source="s", subscription=("b1", "order", "s1")
    )
    event = explain.read_event(chosen, CONFIG, full)
    assert (event.broker, event.attributes) == ("b2", {"total": 503, "region": "US", "id": 53})
    chosen.event = '{"order": {"total": 4}, "note": "x", "region": "EU"}'
    assert explain.read_event(chosen, CONFIG, full).attributes == {"total": 4, "note": "x"}
    said = {"specversion": "1.0", "data": {"order": {"total": 5}}, "total": 6}
    chosen.event = json.dumps(said)
    assert explain.read_event(chosen, CONFIG, full).attributes == {"total": 5}


def test_doctor_says_when_events_no_longer_look_like_their_type(full):
    """Half the orders are beyond the grid, and none has a note: it says so, with what to do, and does not fail."""
    (check,) = diagnosis.looks(CONFIG)
    assert (check.name, check.ok) == ("events order", True)
    assert (
        check.detail
        == "total is outside min and max in 50% of them; note is absent, or of another kind, in 100% of them"
    )
    assert "hilcast type --sample" in check.advice
