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
from state.errors import HilcastError
from state.redis_index import RedisIndex, patiently
from state.space.grid import Grid
from state.topics import guarded
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
from streaming.registry import RegistryReader
from streaming.settings import session
from streaming.timers import Timers
from streaming.watch import TICK_S, Watch, topic_lost
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
        ids = self._prepare_topics()
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
        boot = Boot(self.config, generation.number, topic_ids=ids)
        queries = Queries(spark, boot, generation, self.checkpoint, self.offsets, self._lost)
        metrics = None if self.config.settings.metrics_port is None else MetricsServer(self.config, self.redis.figures)
        if metrics is not None:
            _log.info("metrics at port %d", metrics.port)
        try:
            queries.start()
            self._until_ready(queries, listener, seeded)
            if not self.stopping.is_set():
                self.checkpoint.keep_topics(ids)
            self._supervise(queries, self._watch(boot, listener, queries))
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

    def _prepare_topics(self) -> dict[str, str]:
        """Create what is missing, unless that would hide a loss; refuse what breaks a promise; return Kafka's ids."""
        before, kept = self.checkpoint.topics(), guarded(self.config)
        gone = sorted(set(before) & set(kept) - retried(self.topics.existing))
        if gone:
            raise topic_lost(gone, "do not exist any more")
        created = self.topics.ensure_needed()
        if created:
            _log.info("created %d topics", len(created))
        wrong = retried(self.topics.faults)
        for fault in wrong:
            (_log.error if fault.fatal else _log.warning)("%s", fault)
        if any(fault.fatal for fault in wrong):
            raise HilcastError("topic-settings", "\n  ".join(str(fault) for fault in wrong if fault.fatal))
        ids = retried(lambda: self.topics.ids(kept))
        renewed = sorted(topic for topic, id in ids.items() if before.get(topic, id) != id)
        truth = sorted({self.config.topics.registry, self.config.topics.groups} & set(renewed))
        if truth:
            raise topic_lost(truth, "were deleted and made again: what they held is not there")
        if renewed:
            _log.warning("made again since the last life, read from their beginning: %s", ", ".join(renewed))
        self.offsets.renewed = frozenset(renewed)
        return ids

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
            self.config, generation, self.topics, self.redis, self.writer.produce, self.writer.flush
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

    def _lost(self, query: str, records: int) -> None:
        """Count what a query passed over."""
        with contextlib.suppress(redis.RedisError):  # it was said; the figure is for people
            self.redis.count({f"lost:{query}": records})

    def _watch(self, boot: Boot, listener: ProgressListener, queries: Queries) -> Watch:
        return Watch(
            boot,
            registry=self.registry,
            timers=self.timers,
            groups=self.groups,
            clock=self.clock,
            listener=listener,
            ended=lambda: queries.ended("route"),
            redis=self.redis,
            topics=self.topics,
            writer=self.writer,
        )


def _jvm_pid(spark: SparkSession) -> int:
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
