"""Queries that stop, cannot be started, or find that Kafka has deleted their input: with queries made by hand."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.errors import PySparkException

from state.config import parse
from state.errors import HilcastError
from streaming import queries
from streaming.offsets import Gap, Offsets
from streaming.queries import Queries
from tests.producers.memory import MemoryKafka

CONFIG = """
[overlay]
brokers = ["b1"]
links = []
[types.t.attributes]
x = { kind = "int" }
"""
LOSS = "[KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS] Some data may have been lost"


class Query:
    """A query as Spark hands it out."""

    def __init__(self):
        self.isActive, self.error, self.message, self.batch = True, None, "Waiting for data to arrive", None

    def fail(self, error):
        self.isActive, self.error = False, error

    def exception(self):
        return self.error

    @property
    def status(self):
        return {"message": self.message}

    @property
    def lastProgress(self):
        return None if self.batch is None else {"batchId": self.batch}

    def stop(self):
        self.isActive = False


class Stage:
    """Both queries, with starters that note how they were asked and fail as they are told; a clock set by hand."""

    def __init__(self, monkeypatch, on_data_loss="stop", gaps=()):
        self.started: list[tuple[str, bool]] = []
        self.refuse: Exception | None = None
        self.lost: list[tuple[str, int]] = []
        self.now = 100.0
        monkeypatch.setattr(queries.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(queries.control, "start", self._starter("control"))
        monkeypatch.setattr(queries.route, "start", self._starter("route"))
        config = parse(CONFIG + f'[settings]\non_data_loss = "{on_data_loss}"\n')
        self.of = {}
        self.queries = Queries(
            SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda name, value: None, environment={})),
            queries.Boot(config, 1),
            SimpleNamespace(samples={}, starting_offsets="{}", number=1),
            SimpleNamespace(control=str, route=str),
            SimpleNamespace(resume=lambda query, topics: "{}", gaps=lambda query, topics: list(gaps)),
            lambda query, records: self.lost.append((query, records)),
        )

    def _starter(self, name):
        def start(*_, lossy):
            self.started.append((name, lossy))
            if self.refuse is not None:
                raise self.refuse
            self.of[name] = Query()
            return self.of[name]

        return start

    def later(self, s=60.0):
        self.now += s
        self.queries.restart_failed()


@pytest.mark.parametrize(
    "error",
    [HilcastError("kafka-away", "no"), KafkaException(KafkaError(KafkaError._TIMED_OUT)), PySparkException("no")],
    ids=["ours", "librdkafka's", "Spark's"],
)
def test_a_query_that_cannot_be_started_is_tried_again(monkeypatch, error):
    """While Kafka is away a start fails, at first and again; nothing is raised, and both run once it is back."""
    stage = Stage(monkeypatch)
    stage.refuse = error
    stage.queries.start()
    assert not stage.queries.all_run()
    stage.later()
    assert [name for name, _ in stage.started] == ["control", "route"] * 2
    stage.refuse = None
    stage.queries.restart_failed()
    assert not stage.queries.all_run(), "not at once"
    stage.later()
    assert stage.queries.all_run()


def test_a_query_runs_when_it_has_its_sources(monkeypatch):
    """One that has only been handed to Spark, or has stopped, does not count as running."""
    stage = Stage(monkeypatch)
    stage.queries.start()
    stage.of["route"].message = "Initializing sources"
    assert not stage.queries.all_run()
    stage.of["route"].message = "Processing new data"
    assert stage.queries.all_run()
    stage.of["control"].fail(PySparkException("a task failed"))
    assert not stage.queries.all_run()


def test_what_stopped_is_started_again_a_little_later_each_time(monkeypatch):
    """A stop is said once with its reason; the wait grows."""
    stage = Stage(monkeypatch)
    stage.queries.start()
    waits = []
    for _ in range(3):
        stage.of["route"].fail(PySparkException("a task failed"))
        stage.queries.restart_failed()
        before, started = stage.now, len(stage.started)
        while len(stage.started) == started:
            stage.later(0.25)
        waits.append(stage.now - before)
    assert waits == sorted(waits)
    assert waits[0] < waits[2]


def test_deleted_input_stops_the_job_and_names_the_offsets(monkeypatch):
    """By default nothing is passed over: the job ends with the exact offsets and the setting that goes on."""
    stage = Stage(monkeypatch, gaps=[Gap("hilcast.publications", 1, 40, 52)])
    stage.queries.start()
    stage.of["route"].fail(PySparkException("x" * 3000 + LOSS))
    with pytest.raises(HilcastError, match=r"data-loss: .*publications/1: offsets 40 to 51.*on_data_loss"):
        stage.queries.restart_failed()
    assert stage.lost == []


def test_deleted_input_is_passed_over_if_that_is_set(monkeypatch, caplog):
    """With `continue` the query is started so that it goes on behind the gap, which is said and counted."""
    stage = Stage(monkeypatch, "continue", [Gap("hilcast.publications", 1, 40, 52)])
    stage.queries.start()
    stage.of["route"].fail(PySparkException(LOSS))
    logging.getLogger("hilcast.queries").addHandler(caplog.handler)
    stage.queries.restart_failed()
    logging.getLogger("hilcast.queries").removeHandler(caplog.handler)
    assert "publications/1: offsets 40 to 51" in caplog.text
    stage.later()
    assert stage.started == [("control", False), ("route", False), ("route", True)]
    assert stage.lost == [("route", 12)]


def test_a_newer_index_in_redis_stops_the_job(monkeypatch):
    """Whoever is superseded ends, with the reason that the task gave, and does not try for ever."""
    stage = Stage(monkeypatch)
    stage.queries.start()
    stage.of["control"].fail(PySparkException("y" * 2000 + " index-superseded: redis holds 3.9 of b1/t/cube:0"))
    with pytest.raises(HilcastError, match=r"index-superseded: redis holds 3\.9"):
        stage.queries.restart_failed()


def test_the_count_of_ended_batches_tells_what_had_begun(monkeypatch):
    """While the count is n no batch has begun that makes it n + 2: within a life, before its first end, over a restart
    that repeats batches, and when ends were not looked at.
    """
    stage = Stage(monkeypatch)
    stage.queries.start()
    counts = [stage.queries.ended("route")]
    for batch in (7, 8):  # 7 may have run already: it makes the count n + 1
        stage.of["route"].batch = batch
        counts.append(stage.queries.ended("route"))
    assert [n - counts[0] for n in counts] == [0, 1, 2]
    stage.of["route"].batch = 12
    at = stage.queries.ended("route")
    assert at == counts[-1] + 4
    stage.of["route"].fail(PySparkException("a task failed"))
    stage.queries.restart_failed()
    stage.later()
    assert stage.queries.ended("route") == at + 1, "the batch that was running counts as ended"
    stage.of["route"].batch = 5  # repeated from an older place
    assert stage.queries.ended("route") == at + 2


def test_gaps_are_what_a_group_has_not_read_and_kafka_does_not_hold():
    """By where the group stands and what each partition holds; a topic that was made anew is one, too."""
    config, kafka = parse(CONFIG), MemoryKafka()
    topics = [config.topics.publications, config.topics.subscriptions, config.topics.control]
    kafka.make(*topics)
    kafka.lows[topics[0]] = 5
    kafka.stored["hilcast.route.main"] = {(topics[0], 0): 2, (topics[2], 0): 3}
    found = Offsets(config, kafka).gaps("route", topics)
    assert found == [Gap(topics[0], 0, 2, 5), Gap(topics[2], 0, 0, 3)]
    assert [gap.records for gap in found] == [3, 3]


PATTERN = """
[[sources]]
pattern = "orders.*"
broker = "b1"
type = "t"
"""


def test_the_route_query_is_started_anew_when_its_topics_change(monkeypatch):
    """It begins at once, where its group stands on the new set, with a checkpoint of its own; else it is left alone."""
    stage, config, started = Stage(monkeypatch), parse(CONFIG + PATTERN), []

    def begin(spark, boot, starting, checkpoint, *, lossy):
        started.append(([source.topic for source in boot.config.sources], starting, checkpoint))
        return Query()

    monkeypatch.setattr(queries.route, "start", begin)
    stage.queries._offsets = SimpleNamespace(resume=lambda query, topics: ",".join(topics))
    stage.queries._checkpoint = SimpleNamespace(route=lambda topics: f"of {len(topics)}", control=str)
    stage.queries.start()
    own, before = config.topics.publications, stage.queries.ended("route")
    for cluster in (set(), {"orders.de"}, {"orders.de", "else"}, {"orders.de", "orders.fr"}, {"orders.fr"}):
        stage.queries.follow(config.with_topics(cluster))
        stage.queries.restart_failed()
        assert stage.queries.all_run()
    assert started == [
        ([], own, "of 1"),
        (["orders.de"], f"{own},orders.de", "of 2"),
        (["orders.de", "orders.fr"], f"{own},orders.de,orders.fr", "of 3"),
        (["orders.fr"], f"{own},orders.fr", "of 2"),
    ]
    assert stage.queries.ended("route") == before + 3, "the batch that was running counts as ended"
