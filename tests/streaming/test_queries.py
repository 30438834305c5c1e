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


class Resort:
    """A last resort that notes what it is told."""

    def __init__(self):
        self.failures: list[bool] = []
        self.careful = False

    def told(self, boot):
        return boot

    def failed(self, progressed):
        self.failures.append(progressed)

    def ended(self):
        was, self.careful = self.careful, False
        return was


class Stage:
    """Both queries, with starters that note how they were asked and fail as they are told; a clock set by hand."""

    def __init__(self, monkeypatch, on_data_loss="stop", gaps=(), kept=None):
        self.started: list[tuple[str, bool]] = []
        self.refuse: Exception | None = None
        self.lost: list[tuple[str, int]] = []
        self.kept: dict[str, str] = {} if kept is None else kept
        self.look = lambda: False
        self.resorts: dict[str, Resort] = {}
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
            SimpleNamespace(control=str, route=str, followed=lambda: dict(self.kept), keep_followed=self.kept.update),
            SimpleNamespace(
                resume=lambda query, topics: "{}", gaps=lambda query, topics: list(gaps), renewed=frozenset()
            ),
            lambda query, records: self.lost.append((query, records)),
            lambda query: self.resorts.setdefault(query, Resort()),
            lambda: self.look(),
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
    stage.queries._offsets = SimpleNamespace(resume=lambda query, topics: ",".join(topics), renewed=frozenset())
    stage.queries._checkpoint = SimpleNamespace(route=lambda topics: f"of {len(topics)}", control=str)
    stage.queries.start()
    own, before = config.topics.publications, stage.queries.ended("route")
    for cluster in (set(), {"orders.de"}, {"orders.de", "else"}, {"orders.de", "orders.fr"}, {"orders.fr"}):
        stage.queries.follow(config.with_topics(cluster), dict.fromkeys(cluster, "1"), None)
        stage.queries.restart_failed()
        assert stage.queries.all_run()
    assert started == [
        ([], own, "of 1"),
        (["orders.de"], f"{own},orders.de", "of 2"),
        (["orders.de", "orders.fr"], f"{own},orders.de,orders.fr", "of 3"),
        (["orders.fr"], f"{own},orders.fr", "of 2"),
    ]
    assert stage.queries.ended("route") == before + 3, "the batch that was running counts as ended"


def test_a_topic_of_a_pattern_that_was_made_again_is_read_from_its_beginning(monkeypatch):
    """By Kafka's id, not its name: at once, when it comes back later, and in the next life; until its own offsets are
    committed, and not after.
    """
    config, started = parse(CONFIG + PATTERN).with_topics({"orders.de"}), []
    kept: dict[str, str] = {}

    def life():
        stage = Stage(monkeypatch, kept=kept)

        def begin(*_, **__):
            started.append(stage.queries._offsets.renewed)
            return Query()

        monkeypatch.setattr(queries.route, "start", begin)
        stage.queries.start()
        return stage

    def renewed(stage, ids, committed=None, cluster=config):
        started.clear()
        stage.queries.follow(cluster, ids, committed)
        return [sorted(topics) for topics in started]

    later = "2999-01-01T00:00:00.000Z"
    stage = life()
    assert renewed(stage, {"orders.de": "1"}) == [[]], "what is new has no offsets yet"
    assert renewed(stage, {"orders.de": "1"}, later) == []
    assert kept == {"orders.de": "1"}
    assert renewed(stage, {"orders.de": "2"}, "2000-01-01T00:00:00.000Z") == [["orders.de"]]
    gone = parse(CONFIG + PATTERN)
    renewed(stage, {}, None, gone)
    assert renewed(stage, {"orders.de": "2"}) == [["orders.de"]], "the group may still have the old offsets"
    assert kept == {"orders.de": "1"}
    second = life()
    assert renewed(second, {"orders.de": "2"}) == [["orders.de"]], "nor did the life before commit any"
    assert renewed(second, {"orders.de": "2"}, later) == []
    assert kept == {"orders.de": "2"}
    assert second.queries._offsets.renewed == frozenset()


def test_a_deleted_topic_of_a_pattern_is_no_loss(monkeypatch):
    """Where what is routed has changed, the query goes on without the topic; where it has not, the job ends."""
    config = parse(CONFIG + PATTERN)
    stage = Stage(monkeypatch)
    stage.queries.start()
    stage.queries.follow(config.with_topics({"orders.de"}), {"orders.de": "1"}, None)
    stage.look = lambda: stage.queries.follow(config, {}, None)
    stage.of["route"].fail(PySparkException(LOSS))
    stage.queries.restart_failed()
    assert stage.queries.all_run()
    assert stage.lost == []
    stage.of["route"].fail(PySparkException(LOSS))
    with pytest.raises(HilcastError, match="data-loss"):
        stage.queries.restart_failed()


def test_the_last_resort_is_told_where_a_query_fails(monkeypatch):
    """Whether it had ended a batch; once it is past its trouble, one that was done carefully is started as before."""
    stage = Stage(monkeypatch)
    stage.queries.start()
    resort = stage.resorts["route"]
    stage.of["route"].batch = 7
    stage.of["route"].fail(PySparkException("a worker died"))
    stage.queries.restart_failed()
    stage.later()
    stage.of["route"].fail(PySparkException("a worker died"))
    stage.queries.restart_failed()
    assert resort.failures == [True, False]
    assert stage.queries.failures("route") == 2
    stage.later()
    resort.careful = True
    before = len(stage.started)
    stage.queries.restart_failed()
    assert len(stage.started) == before, "it has not ended a batch yet"
    stage.of["route"].batch = 8
    stage.queries.restart_failed()
    assert stage.started[before:] == [("route", False)]
    stage.queries.restart_failed()
    assert len(stage.started) == before + 1
    assert stage.resorts["control"].failures == []


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([["one", "two"]], ""),
        ([["one", "one"], ["two", "one"]], ""),
        ([["one", "one"]] * queries.PREPARED_ROUNDS, "1 of 2 executors have it, others were busy"),
        ([["one", "-"]], "redis does not have all of it"),
    ],
)
def test_every_executor_loads_a_generation_beforehand(monkeypatch, rounds, expected):
    """Those that were busy are asked again, a few times; whoever cannot is told of at once."""
    stage, left = Stage(monkeypatch), list(rounds)

    def preparing(spark, boot, tasks):
        assert (tasks, boot.generation) == (2, 3)
        told = [SimpleNamespace(executor=name, held=name != "-") for name in left.pop(0)]
        return SimpleNamespace(collect=lambda: told)

    monkeypatch.setattr(queries, "preparing", preparing)
    monkeypatch.setattr(queries, "executors", lambda spark: 2)
    assert stage.queries.prepare(queries.Boot(parse(CONFIG), 3)) == expected
    assert not left


@pytest.mark.parametrize(
    ("master", "places", "runs", "width"),
    [
        ("local[5]", 5, True, 2),
        ("local[5]", 5, False, 2),
        ("local[2]", 2, True, 1),
        ("local[1]", 1, True, 1),
        ("spark://host:7077", 8, True, 7),
        ("spark://host:7077", 8, False, 8),
    ],
)
def test_what_runs_finds_a_place_while_a_generation_is_built(monkeypatch, master, places, runs, width):
    """A place is left to the queries; on one machine no more tasks build than it has processors, here two."""
    stage = Stage(monkeypatch)
    monkeypatch.setattr(queries, "cores", lambda config: 2)
    stage.queries._spark.sparkContext.master = master
    stage.queries._spark.sparkContext.defaultParallelism = places
    if runs:
        stage.queries.start()
    assert stage.queries.builder().width == width
