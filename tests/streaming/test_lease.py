"""Two drivers of one deployment on a real Kafka: one acts. And what a driver does whose membership is void."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from infra.kafka.topic_keeper import TopicKeeper
from state.config import parse
from streaming import lease
from streaming.lease import Lease


def config_of(services, prefix, checkpoint):
    return parse(f"""
[deployment]
prefix = "{prefix}"
kafka = "{services.kafka}"
redis = "{services.redis}"
checkpoint = "{checkpoint}"
[overlay]
brokers = ["b1"]
[types.t.attributes]
x = {{ kind = "int" }}
""")


def waited(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.services
def test_one_driver_acts_and_the_next_takes_over(services, unique, monkeypatch):
    """The second stands by while the first lives; a restarted one is itself again; the ousted cannot commit."""
    monkeypatch.setattr(lease, "LAPSE_MS", 6000)
    here, there = config_of(services, unique, "/here"), config_of(services, unique, "/there")
    TopicKeeper(here).ensure_needed()
    never = threading.Event()
    first = Lease(here)
    assert first.acquire(never)
    second = Lease(there)
    stopping = threading.Event()
    threading.Timer(8.0, stopping.set).start()
    assert not second.acquire(stopping)
    assert first.held
    again = Lease(here)  # the first was killed, and its successor on the same checkpoint is there before it lapsed
    assert again.acquire(never)
    place = [TopicPartition(here.topics.subscriptions, 0, 0)]
    again.commit(place)
    with pytest.raises(KafkaException, match=r"fenced|FENCED|ILLEGAL|UNKNOWN_MEMBER"):
        first.commit(place)
    assert not second.held
    first.close()
    again.close()
    assert waited(lambda: second.held)
    second.commit(place)
    second.close()


class Member:
    """A consumer as far as a lease needs it: it has the partition at once; the first one is void."""

    made: ClassVar[list[Member]] = []

    def __init__(self, settings):
        self.settings, self.committed, self.void, self.closed = settings, [], len(self.made) == 0, False
        self.made.append(self)

    def subscribe(self, topics, on_assign, on_revoke, on_lost):
        self._assigned, self._revoked = on_assign, on_revoke

    def poll(self, timeout_s):
        if self._assigned is not None:
            assigned, self._assigned = self._assigned, None
            assigned(self, [TopicPartition("registry", 0)])
        time.sleep(0.001)

    def incremental_assign(self, partitions):
        pass

    incremental_unassign = pause = incremental_assign

    def commit(self, offsets, asynchronous):
        assert not self.closed
        if self.void:
            raise KafkaException(KafkaError(KafkaError.FENCED_INSTANCE_ID))
        self.committed.append(offsets)

    def close(self):
        self._revoked(self, [TopicPartition("registry", 0)])
        self.closed = True


def test_a_driver_whose_membership_is_void_joins_again(monkeypatch):
    """Kafka came back and took its only driver for another one: the next commits are made under a new membership."""
    monkeypatch.setattr(lease, "Consumer", Member)
    monkeypatch.setattr(Member, "made", [])
    made = Lease(config_of(SimpleNamespace(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0"), "p", "/here"))
    assert made.acquire(threading.Event())
    place = [TopicPartition("p.subscriptions", 0, 7)]
    with pytest.raises(KafkaException):
        made.commit(place)
    assert waited(lambda: len(Member.made) == 2 and made.held)
    made.commit(place)
    void, valid = Member.made
    assert void.closed
    assert valid.committed == [place]
    assert "group.instance.id" in void.settings
    assert "group.instance.id" not in valid.settings  # who has the name now is not put out again
    made.close()
