"""The streaming job of one deployment: begin or continue a generation, run both queries, keep everything in order.

lock the checkpoint ─> topics ─> generation (continue, or rebuild from the registry) ─> index in Redis
    ─> control query, route query ─> `ready` ─> until SIGTERM: timers, Redis, topics, restarts
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from types import FrameType

import redis
from pyspark.sql import SparkSession

from infra.kafka import open_transport
from infra.kafka.retry import retried
from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger
from state.config import Config
from state.redis_index import RedisIndex, patiently
from state.space.grid import Grid
from state.warm import warm
from streaming.boot import Boot
from streaming.broker_clock import BrokerClock
from streaming.checkpoint import Checkpoint, Generation
from streaming.generations import Generations, Seeded
from streaming.group_keeper import GroupKeeper
from streaming.metrics import MetricsServer
from streaming.offsets import Offsets
from streaming.progress import Committer, ProgressListener, group
from streaming.queries import Queries
from streaming.registry import RegistryReader, sinks
from streaming.settings import session
from streaming.timers import Timers
from streaming.watch import TICK_S, Watch
from streaming.writer import DriverWriter

_log = logger("job")


class Job:
    """One life of the streaming job; `run` returns when it was told to stop."""

    def __init__(self, config: Config, path: str) -> None:
        self.config = config
        self.path = path
        self.stopping = threading.Event()
        self.checkpoint = Checkpoint(config.deployment.checkpoint)
        self.topics = TopicKeeper(config)
        self.redis = RedisIndex(config)
        self.transport = open_transport(config)
        self.writer = DriverWriter(config)
        self.clock = BrokerClock(config)
        self.timers = Timers(config, self.writer.send)
        self.offsets = Offsets(config, self.transport)
        self.groups: GroupKeeper | None = None

    # ── from start to stop ──────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        created = self.topics.ensure_needed()
        if created:
            _log.info("created %d topics", len(created))
        self.registry = RegistryReader(self.config, self.transport)
        generation, seeded = self._begin()
        grids = {name: Grid.of(event_type) for name, event_type in self.config.types.items()}
        patiently(lambda: self.redis.describe_grids(grids), say=_log.warning)
        self._begin_groups(generation.number)
        _log.info("preparing the kernels (compiled once, then kept)")
        warm(self.config)
        _log.info("starting Spark")
        spark = session(self.config, self.path)
        self.checkpoint.record(_jvm_pid(spark))
        listener = ProgressListener(self.config, generation.number)
        spark.streams.addListener(listener)
        self._announce(generation)
        boot = Boot(self._with_sources(), generation.number)
        queries = Queries(spark, boot, generation, self.checkpoint, self.offsets, self._lost)
        metrics = None if self.config.settings.metrics_port is None else MetricsServer(self.config, self.redis.figures)
        if metrics is not None:
            _log.info("metrics at port %d", metrics.port)
        try:
            queries.start()
            self._until_ready(queries, listener, seeded)
            self._supervise(queries, self._watch(generation, listener, queries))
        finally:
            if metrics is not None:
                metrics.close()
            self._close(spark, queries, listener)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping.set()  # only a flag: py4j cannot be entered from a signal handler

    def _until_ready(self, queries: Queries, listener: ProgressListener, seeded: Seeded) -> None:
        """Say `ready` once both queries run and the state of a new generation is in."""
        while not self.stopping.is_set():
            if queries.all_run() and self.offsets.reached(listener.latest.get("control"), seeded):
                print("ready", flush=True)
                return
            queries.restart_failed()
            time.sleep(0.05)

    def _supervise(self, queries: Queries, watch: Watch) -> None:
        while not self.stopping.wait(TICK_S):
            watch.look()
            queries.restart_failed()

    def _close(self, spark: SparkSession, queries: Queries, listener: ProgressListener) -> None:
        queries.stop()
        listener.close()
        spark.stop()
        self.writer.nudge(10.0)
        self.clock.close()
        self.registry.close()
        if self.groups is not None:
            self.groups.close()
        self.transport.close()
        self.redis.close()
        self.checkpoint.close()
        _log.info("stopped")

    # ── beginning ───────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> tuple[Generation, Seeded]:
        """Read the registry, then continue the generation of the checkpoint or begin a new one."""
        retried(self.registry.catch_up)
        for key, fact in self.registry.facts.items():
            self.timers.follow(key, fact)
        generations = Generations(
            self.config, self.checkpoint, self.registry, self.transport, self.topics, self.redis, self.writer
        )
        return generations.begin(self.offsets)

    def _begin_groups(self, generation: int) -> None:
        """Take up the groups of the hosted brokers, or see to it that those of before are left."""
        if self.config.topics.groups not in self.topics.existing():
            return
        self.groups = GroupKeeper(
            self._with_sources(), generation, self.topics, self.redis, self.writer.produce, self.writer.flush
        )
        for key, fact in self.registry.facts.items():
            self.groups.follow(key, fact)

    def _announce(self, generation: Generation) -> None:
        """Let `hilcast wait` know who hosts what before the first batch."""
        topics = self.config.topics
        inputs = [(topic, 0) for topic in (topics.subscriptions, topics.advertisements, topics.control)]
        known = retried(lambda: self.transport.committed(group(self.config, "control"), inputs))
        starting: dict[str, dict[str, int]] = json.loads(generation.starting_offsets)
        offsets = {topic: {"0": known.get((topic, 0), max(0, by["0"]))} for topic, by in starting.items()}
        committer = Committer(self.config, "control")
        committer.commit(offsets)
        committer.close()

    def _with_sources(self) -> Config:
        """The configuration with the topics that its patterns match now; later ones are found by the watch."""
        return self.config.with_topics(retried(self.topics.existing), sinks(self.registry.facts.values()))

    def _lost(self, query: str, records: int) -> None:
        """Count what a query passed over."""
        with contextlib.suppress(redis.RedisError):  # it was said; the figure is for people
            self.redis.count({f"lost:{query}": records})

    def _watch(self, generation: Generation, listener: ProgressListener, queries: Queries) -> Watch:
        return Watch(
            self.config,
            generation.number,
            registry=self.registry,
            timers=self.timers,
            groups=self.groups,
            clock=self.clock,
            listener=listener,
            ended=lambda: queries.ended("route"),
            redis=self.redis,
            topics=self.topics,
            writer=self.writer,
            route=queries.follow,
        )


def _jvm_pid(spark: SparkSession) -> int:
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
