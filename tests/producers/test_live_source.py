"""How the console reads Kafka: the newest of everything, within bounds, and what it passed over."""

from __future__ import annotations

import pytest

from producers.console.live_source import (
    AHEAD_MAX,
    ANSWER_TOPICS_MAX,
    DELIVERY_TOPICS_MAX,
    FIRST,
    INPUT_TOPICS_MAX,
    TOPICS_EVERY,
    LiveSource,
)
from state.config import parse
from state.messages import Output
from tests.producers.memory import MemoryKafka

CONFIG = parse("""
[deployment]
kafka = "127.0.0.1:1"
redis = "redis://127.0.0.1:1/0"
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = { kind = "int" }
[[sources]]
pattern = 'legacy\\..*'
broker = "b1"
type = "t"
""")
TOPICS = CONFIG.topics


@pytest.fixture
def kafka():
    made = MemoryKafka(most=10_000)
    made.make(TOPICS.publications, TOPICS.progress, TOPICS.deadletter, TOPICS.receipts, TOPICS.registry)
    return made


def send(kafka, topic, count):
    for _ in range(count):
        kafka.append(Output(topic, b"k", b"{}"))


def test_the_newest_are_read_and_the_rest_is_counted(kafka):
    """At first the newest of each topic; later all that came, or of more than the bound the newest, with the number."""
    source = LiveSource(CONFIG, kafka)
    send(kafka, TOPICS.publications, FIRST + 50)
    first = source.tail()
    assert [r.offset for r in first.records] == list(range(50, FIRST + 50))
    assert (first.passed_over, first.ends[TOPICS.publications, 0]) == (0, FIRST + 50)
    assert source.tail().records == []
    send(kafka, TOPICS.publications, 7)
    assert len(source.tail().records) == 7
    send(kafka, TOPICS.publications, AHEAD_MAX + 30)
    late = source.tail()
    assert (len(late.records), late.passed_over) == (AHEAD_MAX, 30)
    assert late.records[-1].offset == kafka.end(TOPICS.publications) - 1
    source.close()
    assert kafka.open == 0


def test_topics_that_come_later_are_found_up_to_a_number(kafka):
    """New delivery topics and sources are followed after some polls; of too many, some, and their number is told."""
    source = LiveSource(CONFIG, kafka)
    assert source.tail().followed == (0, 0)
    kafka.make(*(TOPICS.deliver(f"c{i}") for i in range(DELIVERY_TOPICS_MAX + 5)), "legacy.quotes")
    send(kafka, TOPICS.deliver("c0"), 2)
    send(kafka, "legacy.quotes", 3)
    tails = [source.tail() for _ in range(TOPICS_EVERY)]
    assert tails[-1].followed == (DELIVERY_TOPICS_MAX, DELIVERY_TOPICS_MAX + 5)
    assert sum(len(tail.records) for tail in tails) == 5
    assert [one.topic for one in tails[-1].config.sources] == ["legacy.quotes"]
    source.close()


def test_however_many_topics_there_are_a_poll_asks_about_some(kafka):
    """Topics of receipts and of publications are followed up to their numbers, too."""
    kafka.make(*(f"{TOPICS.receipts_of('')}c{i}" for i in range(100)), *(f"legacy.t{i}" for i in range(200)))
    source = LiveSource(CONFIG, kafka)
    asked = {topic for topic, _ in source.tail().ends}
    assert len([topic for topic in asked if topic.startswith("legacy.")]) == INPUT_TOPICS_MAX - 1
    assert len([topic for topic in asked if topic.startswith(TOPICS.receipts)]) == ANSWER_TOPICS_MAX
    source.close()


def test_the_registry_is_read_from_its_beginning(kafka):
    """Every record is given once, in order, however late it comes."""
    source = LiveSource(CONFIG, kafka)
    send(kafka, TOPICS.registry, 500)
    seen = source.registry()
    send(kafka, TOPICS.registry, 3)
    seen += source.registry()
    assert [record.offset for record in seen] == list(range(503))
    source.close()
