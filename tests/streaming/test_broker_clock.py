"""Kafka's time: asked for only when something may be due, and never taken from the driver."""

from __future__ import annotations

import time

import pytest

from infra.kafka import open_transport
from infra.kafka.reading import every
from state.config import parse
from state.control.facts import Fact
from state.control.protocol import Expire, Forget
from state.errors import HilcastError
from streaming import broker_clock
from streaming.broker_clock import BrokerClock
from streaming.timers import Timers
from tests.producers.worlds import configured

AWAY = parse("""
[deployment]
kafka = "127.0.0.1:1"
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = { kind = "int" }
""")


@pytest.mark.services
def test_kafka_says_what_time_it_is(services, unique, monkeypatch):
    """What is due by the broker's clock is due though the driver's is a day behind or ahead; asking writes a line, and
    where the time cannot have come yet nothing is written.
    """
    config = configured(services, unique)
    clock = BrokerClock(config)
    now_ms = int(time.time() * 1000)
    monkeypatch.setattr(time, "time", lambda: now_ms / 1000 - 86_400)
    told = clock.due(now_ms - 5_000)
    assert told is not None
    assert abs(told - now_ms) < 60_000
    for _ in range(20):
        assert clock.due(now_ms + 3_600_000) is None
    transport = open_transport(config)
    assert len(list(every(transport, config.topics.progress))) == 1
    transport.close()


def test_without_an_answer_nothing_is_due(monkeypatch):
    """A Kafka that is away is said; a lease does not end because nobody can be asked."""
    monkeypatch.setattr(broker_clock, "ANSWER_S", 0.2)
    with pytest.raises(HilcastError, match="kafka-"):
        BrokerClock(AWAY).due(0)


def test_an_answer_is_extrapolated_only_to_know_when_to_ask(monkeypatch):
    """Between answers the driver's clock may run as it likes: it only chooses when to ask; an old answer is renewed."""
    clock, asked, now = BrokerClock(AWAY), [], [0.0]
    monkeypatch.setattr(broker_clock.time, "monotonic", lambda: now[0])
    answers = [1_000, 1_500, 40_000]
    monkeypatch.setattr(clock, "_ask", lambda: asked.append(now[0]) or answers.pop(0))
    assert clock.due(5_000) is None
    now[0] = 2.0
    assert clock.due(5_000) is None, "by any clock it is too early"
    assert asked == [0.0]
    now[0] = 10.0  # the driver's runs five times as fast: Kafka is asked, and says that it is not time
    assert clock.due(5_000) is None
    assert asked == [0.0, 10.0]
    now[0] = 50.0
    assert clock.due(5_000) == 40_000


def fact(**more):
    plain = {"version": 1, "owner": "a", "filter": None, "ttl_ms": None, "expires_ms": None, "sink": None}
    plain |= {"content": b"", "topic": "t", "partition": 0, "offset": 0, "timestamp_ms": 1_000, "live": True}
    return Fact(**plain | more)


def test_timers_know_what_is_due_next():
    """The earliest end of a live lease or a tombstone; what has been replaced since is not sent."""
    sent = []
    timers = Timers(AWAY, lambda key, message: sent.append(message))
    assert timers.next_ms is None
    key, other, gone = (("subscription", "b1", "t", id) for id in ("s1", "s2", "s3"))
    facts = {key: fact(expires_ms=9_000), other: fact(expires_ms=5_000), gone: fact(live=False)}
    for name, known in facts.items():
        timers.follow(name, known)
    assert timers.next_ms == 5_000
    facts[other] = fact(version=2)
    assert timers.fire(9_000, facts) == 1
    assert sent == [Expire(False, "s1", 1)]
    assert timers.fire(1_000 + AWAY.settings.tombstone_hours * 3_600_000, facts) == 2
    assert Forget(False, "s3", 1) in sent
