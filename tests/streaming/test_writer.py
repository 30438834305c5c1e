"""What the driver writes: what Kafka did not take is known to whoever needs it to be written."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from state.config import parse
from state.errors import HilcastError
from streaming import writer
from streaming.writer import DriverWriter

AWAY = parse("""
[deployment]
kafka = "127.0.0.1:1"
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = { kind = "int" }
""")


def test_a_kafka_that_is_away_is_no_bug_of_ours(monkeypatch):
    """What cannot be written in time is `kafka-away`, which its caller waits for; it does not end the job."""
    monkeypatch.setattr(writer, "FLUSH_S", 0.1)
    made = DriverWriter(AWAY)
    made.produce("t", None, b"x")
    with pytest.raises(HilcastError, match="kafka-away"):
        made.flush()


def test_a_record_that_was_refused_is_told_by_the_next_flush():
    """A span that clients were not told of must not be taken for told; told once, it is over."""
    made = DriverWriter(AWAY)

    class Message:
        def topic(self):
            return "groups"

    made._report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Message())
    with pytest.raises(HilcastError, match=r"kafka-send: a record for 'groups'"):
        made.flush()
    made.flush()
