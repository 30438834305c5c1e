"""The two queries of a job as Spark runs them: started, each with workers of its own, and again when they fail.

runs ──stops──> said, with the reason ──a little later──> started again ──cannot be──> said, tried again later
         ├─ Kafka has deleted what was not read yet ──> `data-loss`: stop, or go on behind the gap, as it is set
         └─ Redis holds an index newer than ours   ──> `index-superseded`: stop
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from infra.logs import logger
from state.config import Config
from state.errors import HilcastError, StateUnreadable
from state.routing.envelope import input_topics
from streaming import control, route
from streaming.boot import Boot
from streaming.checkpoint import Checkpoint, Generation
from streaming.offsets import Offsets
from streaming.settings import QUERY_VARIABLE

RESTART_S = 2.0
RESTART_MAX_S = 30.0
_LOST = ("KAFKA_DATA_LOSS", "OffsetOutOfRange", "some data may have been missed", "data may have been lost")
"""What Spark says of records that are deleted before they were read."""
_log = logger("queries")

Starter = Callable[[bool], StreamingQuery]
"""Starts a query; told whether to go on where Kafka has deleted what was not read."""


@dataclass
class _Query:
    """One query over all its lives."""

    name: str
    begin: Starter
    topics: list[str]
    stopped: bool = True
    """Whether it is not to run now."""
    running: StreamingQuery | None = None
    restart_at: float = 0.0
    failures: int = 0
    lossy: bool = False
    before: int = 0
    """How many batches count as ended by earlier lives."""
    first: int | None = None
    """The first batch of this life that was seen to have ended."""
    ended: int = 0


class Queries:
    """The control query and the route query of one generation."""

    def __init__(
        self,
        spark: SparkSession,
        boot: Boot,
        generation: Generation | None,
        checkpoint: Checkpoint,
        offsets: Offsets,
        lost: Callable[[str, int], None],
    ) -> None:
        """`lost` is told how many records of which query were passed over."""
        self._spark = spark
        self._offsets = offsets
        self._lost = lost
        self._generation, self._checkpoint = generation, checkpoint
        self.unreadable = False
        """Whether control met a state that it cannot go on with: a new generation is needed."""
        self._boots = {"control": boot, "route": boot}
        """By query: what its workers are told; while a generation takes over, they differ."""
        self._on_data_loss = boot.config.settings.on_data_loss
        topics = boot.config.topics
        inboxes = [topics.subscriptions, topics.advertisements, topics.control]
        self._queries = {
            "control": _Query("control", self._start_control, inboxes),
            "route": _Query("route", self._start_route, input_topics(boot.config)),
        }

    def _start_control(self, lossy: bool) -> StreamingQuery:
        assert self._generation is not None, "a generation was built before its control query starts"
        return control.start(
            self._spark,
            replace(self._boots["control"], samples=self._generation.samples),
            self._generation.starting_offsets,
            self._checkpoint.control(self._generation.number),
            lossy=lossy,
        )

    def _start_route(self, lossy: bool) -> StreamingQuery:
        boot = self._boots["route"]
        topics = input_topics(boot.config)
        return route.start(
            self._spark,
            boot,
            self._offsets.resume("route", topics),
            self._checkpoint.route({topic: boot.topic_ids.get(topic, "") for topic in topics}),
            lossy=lossy,
        )

    def start(self, *names: str) -> None:
        """Start these, or all; one that cannot be started now is tried again by `restart_failed`."""
        for query in self._queries.values():
            if query.stopped and (query.name in names or not names):
                query.stopped = False
                self._try(query)

    def succeed(self, boot: Boot, generation: Generation) -> None:
        """Start the control query of another generation; that of the one before has been stopped."""
        self._generation, self._boots["control"], self.unreadable = generation, boot, False
        self.start("control")

    def adopt(self, boot: Boot) -> None:
        """Route with another configuration: where its input is another one, the route query is started anew.

        It goes on where its group stands, and reads a topic that is new from its beginning. What it had begun is
        repeated, with equal delivery ids; nothing is left out.
        """
        query, topics = self._queries["route"], input_topics(boot.config)
        self._boots["route"] = boot
        if topics == query.topics:
            return
        new, gone = sorted(set(topics) - set(query.topics)), sorted(set(query.topics) - set(topics))
        _log.info("what is routed changed: new %s, gone %s", new, gone)
        query.topics = topics
        if self.runs("route"):
            self.ended("route")  # what ended is counted before its query is gone
            self.stop("route")
            self.start("route")

    def follow(self, config: Config) -> None:
        """Route what this configuration reads, where topics came or went that its patterns match (`adopt`)."""
        self.adopt(replace(self._boots["route"], config=config))

    def _try(self, query: _Query) -> None:
        try:
            self._begin(query)
        except (KafkaException, PySparkException, Py4JJavaError) as error:
            self._later(query, f"cannot be started: {_short(error)}")
        except HilcastError as error:
            if not error.code.startswith("kafka-"):
                raise
            self._later(query, f"cannot be started: {error}")

    def _begin(self, query: _Query) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", query.name)
        # Spark keeps Python workers apart by their environment: a route task must not be given one that has no index
        # yet, while a control batch keeps the others busy
        self._spark.sparkContext.environment[QUERY_VARIABLE] = query.name
        query.running = query.begin(query.lossy)
        query.before, query.first = query.ended + 1, None
        query.ended = query.before

    def _later(self, query: _Query, what: str) -> None:
        """Say what happened, and try again a little later each time."""
        query.failures += 1
        wait_s = min(RESTART_S * 1.5**query.failures, RESTART_MAX_S)
        query.restart_at = time.monotonic() + wait_s
        query.running = None
        _log.error("the %s query %s; it is started again in %.0f s", query.name, what, wait_s)

    def all_run(self) -> bool:
        """Whether both queries read their input."""
        return all(query.running is not None and _reads(query.running) for query in self._queries.values())

    def runs(self, name: str) -> bool:
        """Whether a query is to run, though it may be waiting to be started again."""
        return not self._queries[name].stopped

    def restart_failed(self) -> None:
        """Start again what stopped, a little later each time.

        Guarantee: raises nothing but `data-loss` and `index-superseded`, which no restart can mend.
        """
        now = time.monotonic()
        for query in self._queries.values():
            if query.stopped:
                continue
            if query.running is None:
                if now >= query.restart_at:
                    self._try(query)
            elif not query.running.isActive:
                reason = _reason(query.running)
                if "index-superseded" in reason:
                    raise HilcastError("index-superseded", reason.partition("index-superseded: ")[2] or reason)
                if StateUnreadable.CODE in reason:
                    self.unreadable = True
                if any(word in reason for word in _LOST):
                    self._lose(query, reason)
                self._later(query, f"stopped: {reason}")

    def _lose(self, query: _Query, reason: str) -> None:
        """Kafka has deleted records that this query has not read."""
        gaps = self._offsets.gaps(query.name, query.topics)
        what = "; ".join(map(str, gaps)) or reason
        if self._on_data_loss == "stop":
            raise HilcastError(
                "data-loss",
                f"Kafka has deleted what the {query.name} query has not read: {what}. Nothing was passed over yet. To "
                'go on behind the gap set on_data_loss = "continue" in [settings] and start again; to lose less next '
                "time, raise the retention of these topics",
            )
        query.lossy = True
        lost = sum(gap.records for gap in gaps)
        _log.error("the %s query goes on behind a gap, %d records are lost to it: %s", query.name, lost, what)
        self._lost(query.name, lost)

    def ended(self, name: str) -> int:
        """A count that grows as batches of a query end, over all its lives.

        Guarantee: while it is n, no batch has begun that will make it n + 2. Spark's own numbers do not tell that while
        a life has ended none, and go back when a life repeats batches.
        """
        query = self._queries[name]
        progress = None if query.running is None else query.running.lastProgress
        if progress is not None:
            batch = int(progress["batchId"])
            if query.first is None:
                query.first = batch
            query.ended = max(query.ended, query.before + 1 + batch - query.first)
        return query.ended

    def stop(self, *names: str) -> None:
        """Stop these, or all."""
        for query in self._queries.values():
            if query.name in names or not names:
                query.stopped = True
                if query.running is not None and query.running.isActive:
                    query.running.stop()
                query.running = None


def _reads(query: StreamingQuery) -> bool:
    return bool(query.isActive) and not str(query.status["message"]).startswith("Initializing")


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return "no reason given" if error is None else _short(error)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    found = [text.find(word) for word in ("index-superseded", StateUnreadable.CODE, *_LOST) if word in text]
    # the cause of a task's end stands far behind the stages that it ended
    return text[:500] if not found or min(found) < 500 else f"{text[:200]} ... {text[min(found) :][:500]}"
