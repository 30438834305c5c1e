"""Two drivers of one deployment on a real Kafka: one acts."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import KafkaException, TopicPartition

from infra.kafka.topic_keeper import TopicKeeper
from state.config import parse
from streaming import lease
from streaming.lease import Lease

pytestmark = pytest.mark.services


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
    again.close()
    assert waited(lambda: second.held)
    second.commit(place)
    for one in (first, second):
        one.close()
