"""Reading topics to their end: in memory, where ends can be made unreadable, and on the real broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from infra.kafka import open_transport, reading
from infra.kafka.reading import Follower, between, every, newest
from state.errors import HilcastError
from state.messages import Output
from tests.producers.memory import MemoryKafka
from tests.producers.worlds import configured


def filled(count=10, most=3):
    kafka = MemoryKafka(most)
    kafka.make("a", "b", "empty")
    for i in range(count):
        for topic in ("a", "b"):
            kafka.append(Output(topic, None, str(i).encode()))
    return kafka


class Silent(MemoryKafka):
    """Gives the first records of a topic, and then nothing, though it says that there are more."""

    def span(self, topic, partition):
        low, end = super().span(topic, partition)
        return low, end + 5


def silent(monkeypatch):
    monkeypatch.setattr(reading, "SILENCE_S", 0.05)
    monkeypatch.setattr(reading, "SAMPLE_SILENCE_S", 0.05)
    kafka = Silent()
    kafka.make("a")
    kafka.append(Output("a", None, b"0"))
    return kafka


def values(records):
    return [int(record.value) for record in records]


def test_every_record_of_topics_is_read_in_order():
    """All of each topic, in order, of those that exist; nothing that came after the reading began; readers closed."""
    kafka = filled()
    reads = every(kafka, "a", "nowhere", "empty", "b")
    found = [next(reads)]
    kafka.append(Output("a", None, b"99"))
    found += reads
    for topic in ("a", "b"):
        assert values(r for r in found if r.topic == topic) == list(range(10))
    assert kafka.open == 0


def test_a_span_is_read_from_its_first_to_before_its_last():
    """Of each partition what the span says; what Kafka has deleted of it is passed over."""
    kafka = filled()
    kafka.lows["b"] = 5
    found = list(between(kafka, {("a", 0): (2, 4), ("b", 0): (3, 7), ("empty", 0): (0, 0)}))
    assert values(r for r in found if r.topic == "a") == [2, 3]
    assert values(r for r in found if r.topic == "b") == [5, 6]


def test_the_newest_come_first_and_no_more_is_read_than_asked():
    """From the end back, chunk by chunk."""
    kafka = filled()
    assert values(newest(kafka, ["a"], chunk=3)) == list(range(9, -1, -1))
    kafka.given = 0
    assert int(next(newest(kafka, ["a"], chunk=2)).value) == 9
    assert kafka.given <= 3


def test_a_follower_gives_each_record_once():
    """From the beginning, then what has come since; a topic that is missing is an error."""
    kafka = filled(4)
    follower = Follower(kafka, "a")
    assert values(follower.catch_up()) == [0, 1, 2, 3]
    assert values(follower.catch_up()) == []
    for i in range(4, 9):
        kafka.append(Output("a", None, str(i).encode()))
    assert values(follower.catch_up()) == [4, 5, 6, 7, 8]
    follower.close()
    assert kafka.open == 0
    with pytest.raises(HilcastError, match="kafka-topic"):
        Follower(kafka, "nowhere")


def test_an_end_that_cannot_be_reached_is_an_error(monkeypatch):
    """What must be whole raises `kafka-read` and closes its reader; a follower may be asked again, and goes on."""
    kafka = silent(monkeypatch)
    with pytest.raises(HilcastError, match=r"kafka-read: cannot read 'a'/0 to its end: 1 of 6"):
        list(every(kafka, "a"))
    with pytest.raises(HilcastError, match="kafka-read"):
        list(newest(kafka, ["a"]))
    assert kafka.open == 0
    follower = Follower(kafka, "a")
    with pytest.raises(HilcastError, match="kafka-read"):
        list(follower.catch_up())
    for i in range(1, 6):
        kafka.append(Output("a", None, str(i).encode()))
    monkeypatch.setattr(Silent, "span", MemoryKafka.span)
    assert values(follower.catch_up()) == [1, 2, 3, 4, 5]


def test_a_sample_may_be_partial(monkeypatch):
    """A sample ends where Kafka gives no more, without an error."""
    kafka = silent(monkeypatch)
    assert values(between(kafka, {("a", 0): (0, 6)}, sample=True)) == [0]


@pytest.mark.services
@pytest.mark.parametrize("name", ["confluent", "kafka-python"])
def test_marks_of_transactions_are_no_records_and_no_wait(services, unique, name, monkeypatch):
    """A mark at the very end, or an aborted transaction, does not keep a reader from knowing that it is there."""
    monkeypatch.setattr(reading, "SILENCE_S", 5.0)
    config = configured(services, unique)
    topic = config.topics.routed
    producer = Producer({"bootstrap.servers": services.kafka, "transactional.id": unique})
    producer.init_transactions()
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        for i in range(3):
            producer.produce(topic, str(3 * number + i))
        producer.flush()
        end()
    transport = open_transport(config, name)
    assert transport.span(topic, 0)[1] == 8
    given = values(every(transport, topic))
    assert given == [0, 1, 2], "what was taken back is not there"
    follower = Follower(transport, topic)
    assert values(follower.catch_up()) == given
    transport.send(Output(topic, None, b"6")).place()
    assert values(follower.catch_up()) == [6]
    producer.begin_transaction()
    producer.produce(topic, "7")
    producer.flush()
    transport.send(Output(topic, None, b"8")).place()
    assert transport.span(topic, 0)[1] == 9, "it ends where the first open transaction begins"
    assert values(follower.catch_up()) == []
    producer.commit_transaction()
    given, deadline = [], time.monotonic() + 60.0
    while len(given) < 2 and time.monotonic() < deadline:  # the mark comes a moment after the commit
        given += values(follower.catch_up())
    assert given == [7, 8]
    follower.close()
    transport.close()
