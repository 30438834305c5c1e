"""The two queries of a job as Spark runs them: started, each with workers of its own, and again when they fail.

runs ──stops──> said, with the reason ──a little later──> started again ──cannot be──> said, tried again later
         ├─ Kafka has deleted what was not read yet ──> `data-loss`: stop, or go on behind the gap, as it is set
         ├─ Redis holds an index newer than ours   ──> `index-superseded`: stop
         └─ again and again in the same place      ──> piece by piece, to find out why (`last_resort.py`)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from infra.logs import logger
from state.config import Config
from state.errors import HilcastError, StateUnreadable
from state.lanes import cores, publication_lanes, shared_lanes
from state.routing.envelope import input_topics
from state.topics import inboxes
from streaming import control, route
from streaming.boot import Boot
from streaming.building import Spark
from streaming.checkpoint import Checkpoint, Generation
from streaming.last_resort import LastResort
from streaming.offsets import Offsets
from streaming.settings import QUERY_VARIABLE, executors, is_local
from streaming.warm_up import preparing, warming

PREPARED_ROUNDS = 20
"""How often each executor is asked to load a generation beforehand, while another one is busy: for some seconds."""
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
    last_resort: LastResort
    stopped: bool = True
    """Whether it is not to run now."""
    running: StreamingQuery | None = None
    restart_at: float = 0.0
    began: datetime | None = None
    """When this life did."""
    failures: int = 0
    """How often it stopped, or could not be started, in all its lives."""
    in_a_row: int = 0
    """The same since a batch of it ended."""
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
        last_resort: Callable[[str], LastResort],
        look: Callable[[], bool] = lambda: False,
        ids: Callable[[list[str]], Mapping[str, str]] = lambda topics: {},
    ) -> None:
        """`lost` is told how many records of which query were passed over; `ids` tells Kafka's ids of topics.

        `look` has what is routed follow the topics that there are now (`follow`), and tells whether it changed.
        """
        self._spark = spark
        self._environment = threading.Lock()
        """Held while Spark is told for which query it works: that is one setting of all threads."""
        self._offsets = offsets
        self._lost, self._look, self._ids = lost, look, ids
        self._generation, self._checkpoint = generation, checkpoint
        self.unreadable = False
        """Whether control met a state that it cannot go on with: a new generation is needed."""
        self._boots = {"control": boot, "route": boot}
        """By query: what its workers are told; while a generation takes over, they differ."""
        self._on_data_loss = boot.config.settings.on_data_loss
        self._settled = checkpoint.followed()
        """Kafka's ids of topics that patterns match, as far as the offsets of the route query's group are theirs."""
        self._queries = {
            "control": _Query(
                "control",
                self._start_control,
                [*inboxes(boot.config), boot.config.topics.control],
                last_resort("control"),
            ),
            "route": _Query("route", self._start_route, input_topics(boot.config), last_resort("route")),
        }

    def _start_control(self, lossy: bool) -> StreamingQuery:
        assert self._generation is not None, "a generation was built before its control query starts"
        return control.start(
            self._spark,
            self._told("control", replace(self._boots["control"], samples=self._generation.samples)),
            self._generation.starting_offsets,
            self._checkpoint.control(self._generation.number),
            lossy=lossy,
        )

    def _start_route(self, lossy: bool) -> StreamingQuery:
        boot = self._told("route", self._boots["route"])
        own = self._own(boot.config, "publications")
        topics = [*input_topics(boot.config), *own]
        ids = {**boot.topic_ids, **boot.followed_ids, **self._ids(own)}
        again = {topic for topic, id in boot.followed_ids.items() if self._settled.get(topic, id) != id}
        self._offsets.renewed |= again
        return route.start(
            self._spark,
            boot,
            self._offsets.resume("route", topics),
            self._checkpoint.route({topic: ids.get(topic, "") for topic in topics}),
            lossy=lossy,
        )

    def _own(self, config: Config, *kinds: str) -> list[str]:
        """Clients' own inboxes of these kinds that there are now."""
        if not config.security.own:
            return []
        owners = ((topic, config.topics.client_of(topic)) for topic in self._offsets.topics())
        return sorted(topic for topic, owner in owners if owner is not None and owner[0] in kinds)

    def _told(self, name: str, boot: Boot) -> Boot:
        return self._queries[name].last_resort.told(boot)

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
        before, self._boots["route"] = self._boots["route"].followed_ids, boot
        again = sorted(topic for topic, id in boot.followed_ids.items() if before.get(topic, id) != id)
        if topics == query.topics and not again:
            return
        new, gone = sorted(set(topics) - set(query.topics)), sorted(set(query.topics) - set(topics))
        _log.info("what is routed changed: new %s, gone %s, made again %s", new, gone, again)
        query.topics = topics
        if self.runs("route"):
            self.ended("route")  # what ended is counted before its query is gone
            self.stop("route")
            self.start("route")

    def follow(self, config: Config, ids: Mapping[str, str], committed: str | None) -> bool:
        """Route what this configuration reads, where topics came or went that its patterns match (`adopt`).

        `ids` are Kafka's of these; `committed` is when the last route batch began whose offsets are in the group: those
        of a topic that was made again count from then on. Returns whether anything changed.
        """
        query, boot = self._queries["route"], self._boots["route"]
        if committed is not None and query.began is not None and datetime.fromisoformat(committed) > query.began:
            self._settled |= boot.followed_ids
            self._checkpoint.keep_followed(self._settled)
            self._offsets.renewed = frozenset()
        self.adopt(replace(boot, config=config, followed_ids=ids))
        return (query.topics, ids) != (input_topics(boot.config), boot.followed_ids)

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
        query.began = datetime.now(UTC)
        with self._environment:
            self._as(query.name)
            query.running = query.begin(query.lossy)
        query.before, query.first = query.ended + 1, None
        query.ended = query.before

    def _as(self, name: str) -> None:
        """What this thread has Spark do from now on is done for this query."""
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        # Spark keeps Python workers apart by their environment: a route task must not be given one that has no index
        # yet, while a control batch keeps the others busy
        self._spark.sparkContext.environment[QUERY_VARIABLE] = name

    def builder(self) -> Spark:
        """What generations are built by: the workers of control, as many as leave a core to what runs now.

        On one machine Spark may have more places for tasks than there are processors: no more build than there are
        of these, so that what runs finds a place at once.
        """
        context, config = self._spark.sparkContext, self._boots["control"].config
        places = context.defaultParallelism - any(not q.stopped for q in self._queries.values())
        if is_local(context.master):
            places = min(places, cores(config))
        return Spark(context, self._as_builder, max(1, places))

    @contextmanager
    def _as_builder(self) -> Iterator[None]:
        with self._environment:
            self._as("control")
            yield

    def _later(self, query: _Query, what: str) -> None:
        """Say what happened, and try again a little later each time."""
        query.failures += 1
        query.in_a_row += 1
        wait_s = min(RESTART_S * 1.5**query.in_a_row, RESTART_MAX_S)
        query.restart_at = time.monotonic() + wait_s
        query.running = None
        _log.error("the %s query %s; it is started again in %.0f s", query.name, what, wait_s)

    def wake(self) -> None:
        """Have the workers of both queries start, while there is nothing for them to do."""
        self._have_warmed({"control": None, "route": None})

    def warm_up(self) -> None:
        """Have the workers of both queries do everything once."""
        self._have_warmed(self._boots)

    def prepare(self, boot: Boot) -> str:
        """Have a worker of the route query on every executor load a generation before it is in force.

        All workers of its host then map it, and none makes its events wait while it loads. Returns why some have not
        loaded it, or nothing.
        """
        seen: set[str] = set()
        try:
            for _ in range(PREPARED_ROUNDS):
                wanted = executors(self._spark)
                with self._environment:
                    self._as("route")
                    job = preparing(self._spark, boot, wanted)
                told = job.collect()
                seen |= {row.executor for row in told}
                if not all(row.held for row in told):
                    return "redis does not have all of it"
                if len(seen) >= wanted:
                    _log.info("generation %d is loaded beforehand, executors: %d", boot.generation, len(seen))
                    return ""
        except (PySparkException, Py4JError) as error:  # the latter also where the job ends meanwhile
            return _short(error)
        return f"{len(seen)} of {wanted} executors have it, others were busy"

    def _have_warmed(self, boots: Mapping[str, Boot | None]) -> None:
        places, settings = self._spark.sparkContext.defaultParallelism, self._boots["control"].config.settings
        tasks = {"control": settings.shuffle_partitions, "route": self._route_tasks()}

        def run(name: str) -> None:
            began = time.monotonic()
            with self._environment:
                self._as(name)
                job = warming(self._spark, boots[name], name, min(places, tasks[name]))
            what = "awake" if boots[name] is None else "ready"
            _log.info("%d workers of the %s query %s in %.1f s", job.count(), name, what, time.monotonic() - began)

        with ThreadPoolExecutor(len(boots)) as pool:
            for done in [pool.submit(run, name) for name in boots]:
                done.result()

    def _route_tasks(self) -> int:
        """As many as the input has lanes: each partition is read by a task of its own."""
        query, config = self._queries["route"], self._boots["route"].config
        links = [topic for topic in query.topics if topic.startswith(config.topics.link("", "")[:-1])]
        return publication_lanes(config) + len(config.sources) + shared_lanes(config) * len(links)

    def all_run(self) -> bool:
        """Whether both queries read their input."""
        return all(self.reads(name) for name in self._queries)

    def reads(self, name: str) -> bool:
        """Whether a query reads its input."""
        running = self._queries[name].running
        return running is not None and _reads(running)

    def runs(self, name: str) -> bool:
        """Whether a query is to run, though it may be waiting to be started again."""
        return not self._queries[name].stopped

    def failures(self, name: str) -> int:
        """How often a query has failed."""
        return self._queries[name].failures

    def restart_failed(self) -> None:
        """Start again what stopped, a little later each time, and what was done carefully and is past its trouble.

        Guarantee: raises nothing but `data-loss` and `index-superseded`, which no restart can mend.
        """
        now = time.monotonic()
        for query in self._queries.values():
            if query.stopped:
                continue
            if query.running is None:
                if now >= query.restart_at:
                    self._try(query)
            elif query.running.isActive:
                self._go_on(query)
            else:
                reason = _reason(query.running)
                if "index-superseded" in reason:
                    raise HilcastError("index-superseded", reason.partition("index-superseded: ")[2] or reason)
                if StateUnreadable.CODE in reason:
                    self.unreadable = True
                if any(word in reason for word in _LOST) and not self._explained(query):
                    self._lose(query, reason)
                if query.running is not None and not query.running.isActive:
                    query.last_resort.failed(query.running.lastProgress is not None)
                    self._later(query, f"stopped: {reason}")

    def _explained(self, query: _Query) -> bool:
        """Whether what a query misses is of a topic that came by a pattern: its owner may delete it, or make it anew.

        Then the query has been started again, on the topics that there are now.
        """
        return query.name == "route" and bool(self._boots["route"].followed_ids) and self._look()

    def _go_on(self, query: _Query) -> None:
        """A query that has ended a batch is not where it failed any more."""
        if query.in_a_row and query.running is not None and query.running.lastProgress is not None:
            query.in_a_row = 0
            if query.last_resort.ended():
                self.ended(query.name)  # what ended is counted before its query is gone
                self.stop(query.name)
                self.start(query.name)

    def _lose(self, query: _Query, reason: str) -> None:
        """Kafka has deleted records that this query has not read."""
        kinds = ("publications",) if query.name == "route" else ("subscriptions", "advertisements")
        own = self._own(self._boots[query.name].config, *kinds)
        gaps = self._offsets.gaps(query.name, [*query.topics, *own])
        if not gaps and self._boots[query.name].config.security.own:
            return  # a client's own topic is gone or was made again: the next life reads those that there are
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
