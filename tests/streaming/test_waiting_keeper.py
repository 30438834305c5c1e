"""Who keeps events that wait for a schema, on topics in memory and a registry that a test serves."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest

from state.config import parse
from state.errors import HilcastError
from state.messages import Output
from state.set_aside import OURS, OUTCOME
from streaming import waiting_keeper
from streaming.waiting_keeper import WaitingKeeper
from tests.infra.fake_registry import FakeRegistry
from tests.simulation.world import Log

CONFIG = """
[deployment]
name = "main"
prefix = "p"
[overlay]
brokers = ["b1"]
[types.t]
format = "avro"
[types.t.attributes]
x = {{ kind = "int" }}
[schemas]
url = "{url}"
wait_ms = 1000
"""
WAITING, WAITED = "p.waiting.main", "p.waited.main"


class Kafka:
    """Topics in memory, the commits of a group, and a time that passes when it is told to."""

    def __init__(self):
        self.log, self.commits, self.fails = Log(), {}, 0
        self.low = 0

    def committed(self, group, partitions):
        assert group == "p.waiting.main"
        return {place: self.commits[place] for place in partitions if place in self.commits}

    def commit(self, group, offsets):
        self.commits |= offsets

    def span(self, topic, partition):
        return self.low, self.log.end(topic)

    def read(self, starts):
        at = dict(starts)

        def poll(timeout_s):
            ((place, start),) = at.items()
            found = self.log.topics[place[0]][start:]
            at[place] = start + len(found)
            if not found:
                time.sleep(0.01)
            return found

        return SimpleNamespace(poll=poll, close=lambda: None)

    def send(self, output):
        self.log.append(output)

    def flush(self):
        if self.fails:
            self.fails -= 1
            raise HilcastError("kafka-away", "it does not answer")

    def due(self, at_ms):
        return self.log.now_ms if self.log.now_ms >= at_ms else None

    def close(self):
        pass


class Shelf:
    def __init__(self):
        self.kept = {}

    def had(self, ids):
        return {}

    def put(self, had):
        self.kept |= had


@pytest.fixture
def registry():
    with FakeRegistry() as fake:
        yield fake


@pytest.fixture
def keeping(registry, monkeypatch):
    """Starts a keeper on a Kafka in memory; ends it with the test."""
    kafka, shelf, begun, lost = Kafka(), Shelf(), [], []
    monkeypatch.setattr(waiting_keeper, "open_transport", lambda config: kafka)
    monkeypatch.setattr(waiting_keeper, "BrokerClock", lambda config: kafka)
    monkeypatch.setattr(waiting_keeper, "AGAIN_S", 0.01)

    def start():
        begun.append(WaitingKeeper(parse(CONFIG.format(url=registry.url)), shelf, lost.append))
        return begun[-1]

    yield SimpleNamespace(kafka=kafka, shelf=shelf, start=start, lost=lost)
    for keeper in begun:
        keeper.close()


def wait(kafka, number, schema):
    said = (b"in", b"0", b"%d" % number, b"%d" % schema, b"")
    kafka.log.append(Output(WAITING, b"k", b"v%d" % number, (("note", b"n"), *zip(OURS, said, strict=True))))


def until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def given_back(kafka):
    return [(r.value, dict(r.headers)[OUTCOME]) for r in kafka.log.topics[WAITED]]


def test_events_leave_when_their_schema_comes_or_their_time_is_over(registry, keeping):
    """What the registry has leaves at once, the rest by Kafka's clock; commits never pass one that waits."""
    one, kafka = registry.add("a", {"schema": json.dumps("int")}), keeping.kafka
    for number, schema in enumerate([77, one, 77, one]):
        wait(kafka, number, schema)
    keeping.start()
    until(lambda: len(given_back(kafka)) == 2)
    assert given_back(kafka) == [(b"v1", b"had"), (b"v3", b"had")]
    assert set(keeping.shelf.kept) == {one}
    assert kafka.commits[WAITING, 0] == 0
    kafka.log.now_ms += 2000
    until(lambda: kafka.commits[WAITING, 0] == 4)
    assert given_back(kafka)[2:] == [(b"v0", b"vain"), (b"v2", b"vain")]
    assert all(r.key == b"k" and ("note", b"n") in r.headers for r in kafka.log.topics[WAITED])


def test_after_trouble_it_goes_on_from_what_was_committed(registry, keeping):
    """What was written before Kafka failed is written again; nothing is left out."""
    one, kafka = registry.add("a", {"schema": json.dumps("int")}), keeping.kafka
    kafka.fails = 1
    for number in range(3):
        wait(kafka, number, one)
    keeping.start()
    until(lambda: kafka.commits.get((WAITING, 0)) == 3)
    assert {value for value, _ in given_back(kafka)} == {b"v0", b"v1", b"v2"}
    assert len(given_back(kafka)) == 6


def test_another_life_begins_where_the_last_one_had_committed(registry, keeping):
    """What was settled stays so; what Kafka deleted before is counted as lost; a topic made again is read whole."""
    one, kafka = registry.add("a", {"schema": json.dumps("int")}), keeping.kafka
    for number in range(3):
        wait(kafka, number, one)
    kafka.commits[WAITING, 0], kafka.low = 1, 2
    first = keeping.start()
    until(lambda: kafka.commits[WAITING, 0] == 3)
    first.close()
    assert (given_back(kafka), keeping.lost) == ([(b"v2", b"had")], [1])
    kafka.commits[WAITING, 0], kafka.low = 50, 0
    keeping.start()
    until(lambda: kafka.commits[WAITING, 0] == 3)
    assert given_back(kafka)[-3:] == [(b"v0", b"had"), (b"v1", b"had"), (b"v2", b"had")]
