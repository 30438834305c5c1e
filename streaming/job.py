"""The streaming job of one deployment: the lease, a generation, both queries, and everything kept in order.

lock the checkpoint ─> topics ─> the lease ─> what all deployments agreed on ─> Spark
    ─> the generation of the checkpoint, or a new one (routing meanwhile by the one in Redis, if that is whole)
    ─> control query, route query ─> `ready` ─> until SIGTERM: timers, Redis, topics, restarts, changes of configuration
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import redis
from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from infra.kafka import open_transport
from infra.kafka.retry import retried
from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger
from infra.signing_keys import SigningKeys
from state.config import Config, load
from state.control.agreed import Refusal, configuration_record, refusal_record
from state.errors import ConfigError, HilcastError
from state.index_mark import Mark, Marks, is_whole
from state.keys import index_keys
from state.redis_index import RedisIndex
from state.redis_retry import redis_retried
from state.space.grid import Grid
from state.topics import guarded
from streaming.agreement import file_hash, merged, not_agreed, own_changes, proposal
from streaming.broker_clock import BrokerClock
from streaming.checkpoint import Checkpoint, Generation
from streaming.folders import open_folder
from streaming.generations import Generations, Seeded
from streaming.group_keeper import GroupKeeper
from streaming.health import Health
from streaming.idle_keeper import IdleKeeper
from streaming.last_resort import LastResort
from streaming.lease import Lease
from streaming.metrics import MetricsServer
from streaming.offsets import Offsets
from streaming.precompile import kept, prepare
from streaming.progress import Committed, Committer, ProgressListener, group
from streaming.queries import Queries
from streaming.registry import RegistryReader, sinks
from streaming.schema_shelf import RedisShelf
from streaming.settings import SUBMITTED, is_local, session
from streaming.source_topics import followed
from streaming.succession import Succession
from streaming.timers import Timers
from streaming.tuner import Tuner
from streaming.waiting_keeper import WaitingKeeper
from streaming.watch import TICK_S, Watch, topic_lost
from streaming.writer import DriverWriter

SAY_AFTER_S = 2.0
"""A start that takes longer says what it waits for."""
AGREED_POLL_S = 1.0
"""How often a job that waits for its configuration looks whether it was agreed on."""
_log = logger("job")


class Job:
    """One life of the streaming job; `run` returns when it was told to stop."""

    def __init__(self, config: Config, path: str) -> None:
        self.config = config
        self.path = path
        self.number = 0
        """Of the generation in force."""
        self.stopping, self.reloading = threading.Event(), threading.Event()
        self.checkpoint = Checkpoint(open_folder(config))
        self.topics = TopicKeeper(config)
        self.keys = SigningKeys(config)
        self.redis = RedisIndex(config, keys=self.keys.current)
        self.transport = open_transport(config)
        self.writer = DriverWriter(config)
        self.clock = BrokerClock(config)
        self.tuner = Tuner(self.transport)
        self.offsets = Offsets(config, self.transport)
        self.idle = IdleKeeper(self.topics, self.offsets.holds, self.clock.now_ms, self.checkpoint)
        self.health = Health()
        self.marks = Marks()
        """How far the index in Redis has been written."""
        self._marking = threading.Lock()
        self.groups: GroupKeeper | None = None
        self.waiting: WaitingKeeper | None = None
        self.succession: Succession | None = None
        self.inbox_ids: dict[str, str] = {}
        """Kafka's ids of clients' own inboxes, as they were at the start."""
        self._refused = 0
        """The version of the configuration that this deployment cannot take."""

    # ── from start to stop ──────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Run until SIGTERM or SIGINT, and tell how it is meanwhile."""
        has_port = self.config.settings.metrics_port is not None
        server = MetricsServer(self.config, self.redis.figures, self.health) if has_port else None
        if server is not None:
            _log.info("metrics and health at port %d", server.port)
        try:
            self._run()
        finally:
            if server is not None:
                server.close()

    def _run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stopping.set())  # only a flag: py4j cannot be entered from here
        signal.signal(signal.SIGHUP, lambda *_: self.reloading.set())
        ids = self._prepare_topics()
        self.health.say("standing by")
        self.lease = Lease(self.config)
        if not self.lease.acquire(self.stopping):
            self.lease.close()
            return
        self.registry = RegistryReader(self.config, self.transport, self.keys)
        retried(self.registry.catch_up)
        if not self._until_agreed():
            self.lease.close()
            return
        file, at_first = file_hash(self.config), self.config.shared
        self._agree()
        if self.config.shared != at_first:
            self.topics.ensure_needed()  # it may need other links, and more lanes, than the file says
        self.marks.committed = retried(Committed(self.config).mark)
        self.generations = Generations(
            self.checkpoint,
            self.registry,
            self.transport,
            self.topics,
            self.redis,
            self.writer,
            file,
            ids,
            self.offsets.renewed,
            0 if self.marks.committed is None else self.marks.committed.generation,
        )
        self.health.say("starting Spark")
        spark = self._prepare()
        self.health.jvm = _jvm_pid(spark)
        self.checkpoint.record(self.health.jvm)
        listener = self.listener = ProgressListener(self.config, 0, self.lease.commit, self._committed_mark)
        spark.streams.addListener(listener)
        boot = self.generations.routing(self.config, 0)
        self.queries = Queries(
            spark,
            boot,
            None,
            self.checkpoint,
            self.offsets,
            self._lost,
            self._last_resort,
            self._look,
            self.topics.ids,
        )
        self.generations.spark = self.queries.builder
        self._warming(self.queries.wake)
        if self.config.schemas is not None:
            shelf = RedisShelf(RedisIndex(self.config, keys=self.keys.current), self.config)
            self.waiting = WaitingKeeper(self.config, shelf, lambda records: self._lost("waiting", records))
        try:
            self._begin()
            self._supervise()
        finally:
            self.health.say("stopping")
            self._close(spark)

    def _prepare(self) -> SparkSession:
        """Compile the kernels while Spark starts, where others wait for them.

        Where most are kept the processes that workers are forked from compile what is missing, each query's its own
        half, and to load here what only they use would cost each start a second of the processor.
        """
        is_one_process = SUBMITTED not in os.environ and is_local(self.config.settings.master)
        if is_one_process and kept():
            _log.info("starting Spark")
            return session(self.config)
        _log.info("starting Spark; preparing the kernels meanwhile")
        kernels = threading.Thread(target=prepare, args=(self.config,), name="kernels")
        kernels.start()
        if not is_one_process:
            kernels.join()  # executors are sent them with the code
        spark = session(self.config)
        kernels.join()
        return spark

    def _begin(self) -> None:
        """Continue the generation of the checkpoint, or make a new one; say `ready` once it is in force and in."""
        known = self.generations.known(self.config)
        seeded: Seeded = {}
        if known is not None:
            _log.info("continuing generation %d", known.number)
            redis_retried(lambda: self.redis.point(known.number, self.config.shared), say=_log.warning)
            self.generations.claim(self.config, known.number)  # the same again, with the file of this life
            self._announce(known)
            self.queries.succeed(self.generations.boot(self.config, known.number), known)
            self._take_office(known.number)
        else:
            if redis_retried(lambda: self.generations.is_whole(self.config), say=_log.warning):
                _log.info("routing by the generation that was in force, while another one is built")
                self.queries.start("route")
            succession = Succession(self.generations, self.queries, self.listener, self.config, alone=True)
            while not self.stopping.is_set() and not succession.step():
                self.queries.restart_failed()
                self.health.say("building a generation", succession.number)
                time.sleep(0.05)
            if self.stopping.is_set():
                return
            seeded = succession.seeded
            self._announce(succession.generation)
            self._take_office(succession.number)
        self.queries.start("route")
        self._until_ready(seeded)
        if not self.stopping.is_set():
            self._keep_topics(self.inbox_ids)

    def _keep_topics(self, inboxes: Mapping[str, str]) -> None:
        """Write down which topics the checkpoint belongs to, clients' own inboxes among them."""
        self.checkpoint.keep_topics({**self.generations.ids, **inboxes})

    def _until_ready(self, seeded: Seeded) -> None:
        """Say `ready` once both queries run, their workers are warm, and the state of a new generation is in."""
        warming = self._warming(self.queries.warm_up)
        said, began = "", time.monotonic()
        while not self.stopping.is_set():
            waits = {
                "both queries to read": not self.queries.all_run(),
                "their workers": warming.is_alive(),
                "the states of the generation": not self.offsets.reached(self.listener.latest.get("control"), seeded),
            }
            if not any(waits.values()):
                self._tell_health()
                print("ready", flush=True)
                return
            self.health.say("waiting for workers and states", self.number)
            what = ", ".join(name for name, is_awaited in waits.items() if is_awaited)
            if what != said and time.monotonic() - began > SAY_AFTER_S:
                _log.info("waiting for %s", what)
                said = what
            self.queries.restart_failed()
            time.sleep(0.05)

    def _warming(self, warm: Callable[[], None]) -> threading.Thread:
        """Have workers do something beforehand, beside everything else."""

        def run() -> None:
            try:
                warm()
            except (PySparkException, Py4JJavaError) as error:  # the first batches do it then
                _log.warning("the workers could not be warmed: %s", error)

        thread = threading.Thread(target=run, name="warming", daemon=True)
        thread.start()
        return thread

    def _supervise(self) -> None:
        while not self.stopping.wait(TICK_S):
            self._tell_health()
            self.watch.look()
            self.queries.restart_failed()
            self._heed_claims()
            if self.succession is not None:
                self._continue(self.succession)
            else:
                self._heed_configuration()
            if self.succession is None:
                self._tune()

    def _tell_health(self) -> None:
        """Ready while both queries read their input; one that is started again is not."""
        now = datetime.now(UTC)
        said: dict[str, dict[str, object]] = {}
        for name in ("control", "route"):
            line = self.listener.latest.get(name)
            said[name] = {"runs": self.queries.reads(name)}
            if line is not None:
                age = now - datetime.fromisoformat(line["began"])
                said[name] |= {"lag": line["lag"], "batch_age_s": round(age.total_seconds(), 1)}
        self.health.say("ready" if all(one["runs"] for one in said.values()) else "restarting", self.number, said)

    def _close(self, spark: SparkSession) -> None:
        self.queries.stop()
        self.listener.close()
        spark.stop()
        self.writer.nudge(10.0)
        self.clock.close()
        self.registry.close()
        if self.groups is not None:
            self.groups.close()
        if self.waiting is not None:
            self.waiting.close()
        self.lease.close()
        self.transport.close()
        self.redis.close()
        self.checkpoint.close()
        _log.info("stopped")

    # ── the configuration ───────────────────────────────────────────────────────────────────────────────────────

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
        found = self.config.with_own(retried(self.topics.existing)).inbox_topics
        ids = retried(lambda: self.topics.ids([*kept, *found]))
        renewed = sorted(topic for topic, id in ids.items() if before.get(topic, id) != id)
        truth = sorted({self.config.topics.registry, self.config.topics.groups} & set(renewed))
        if truth:
            raise topic_lost(truth, "were deleted and made again: what they held is not there")
        if renewed:
            _log.warning("made again since the last life, read from their beginning: %s", ", ".join(renewed))
        self.offsets.renewed = frozenset(renewed)
        self.inbox_ids = {topic: ids.pop(topic) for topic in found if topic in ids}
        return ids

    def _until_agreed(self) -> bool:
        """Where the file says so, wait until all deployments go by what it says; False if told to stop before.

        SIGHUP has them all take the file, as it is then.
        """
        file, said = self.config, list[str]()
        while tables := self._awaited(file):
            self.health.say("waiting for its configuration to be agreed on")
            if tables != said:
                what, version = ", ".join(f"[{name}]" for name in tables), self.registry.agreements.version
                _log.warning("waiting: %s of the file is not as the deployments agreed (version %d)", what, version)
                said = tables
            if self.stopping.wait(AGREED_POLL_S):
                return False
            if self.reloading.is_set():
                self.reloading.clear()
                file = self._reload() or file
            self.registry.catch_up_quietly()
        if file is not self.config:
            self._take(self.config.adopting(file.shared, self.config.version))
        return True

    def _awaited(self, file: Config) -> list[str]:
        """The tables of a file that a job waits for to be agreed on."""
        agreed = self.registry.agreements.agreed
        if agreed is None or self.config.settings.changed_file != "wait":
            return []
        return not_agreed(file, bytes(agreed.shared))

    def _agree(self) -> None:
        """Go by what all deployments have agreed on, and have them follow a file that is newer, where it may."""
        name, agreed = self.config.deployment.name, self.registry.agreements.agreed
        config, proposed = proposal(self.config, agreed, self.registry.agreements.claims.get(name))
        if proposed is not None:
            self._propose(proposed)
            config = config.adopting(proposed, self.registry.agreements.version)
        others = proposed is None and config.fitted_with({}).shared != self.config.shared
        if others or not_agreed(self.config, config.shared):
            _log.warning("the file is not what the deployments agreed on: going by version %d of that", config.version)
        self._take(config)

    def _propose(self, shared: bytes) -> None:
        """Have all deployments, this one among them, take a configuration."""
        version = self.registry.agreements.version + 1
        self.writer.produce(self.config.topics.registry, *configuration_record(version, shared))
        self.writer.flush()
        self.registry.catch_up_quietly()
        _log.info("version %d of the configuration is to be taken by all deployments", self.registry.agreements.version)

    def _take(self, config: Config) -> None:
        self.config = self.topics.config = self.offsets.config = config

    def _heed_claims(self) -> None:
        """Stop if another driver has followed: it had the lease while this one was not heard of."""
        claim = self.registry.agreements.claims.get(self.config.deployment.name)
        ours = self.number if self.succession is None else max(self.number, self.succession.number)
        if claim is not None and claim.generation > ours:
            raise HilcastError(
                "superseded",
                f"another driver of deployment {self.config.deployment.name!r} has begun generation "
                f"{claim.generation} after ours, {ours}: this one stops",
            )

    def _heed_configuration(self) -> None:
        """Take what was agreed on since, or is in the file that was read again."""
        if self.reloading.is_set():
            self.reloading.clear()
            self._reload()
        if self.registry.agreements.contested and self.registry.agreements.agreed is not None:
            _log.warning(
                "two configurations were sent as version %d: the last one counts", self.registry.agreements.version
            )
            self._propose(bytes(self.registry.agreements.agreed.shared))
        if self.queries.unreadable:
            _log.error("a state cannot be read: a new generation is built from the registry")
            self.succession = self._successor(self.config)
            return
        agreed = self.registry.agreements.agreed
        if agreed is None or agreed.version in (self.config.version, self._refused):
            return
        try:
            config = self.config.adopting(bytes(agreed.shared), agreed.version)
        except ConfigError as error:
            self._refuse(agreed.version, error.faults)
            return
        _log.info("taking version %d of the configuration", agreed.version)
        self.succession = self._successor(config)

    def _tune(self) -> None:
        """Have all deployments go by another choice of what the configuration leaves open, where there is a better."""
        chosen = self.tuner.look(self.config, self.registry.facts)
        if chosen is not None and self.registry.agreements.version == self.config.version:
            _log.info("chosen anew: %s", ", ".join(chosen) or "as where nothing is known")
            self._propose(self.config.fitted_with(chosen).shared)

    def _successor(self, config: Config) -> Succession:
        return Succession(self.generations, self.queries, self.listener, config, alone=False)

    def _reload(self) -> Config | None:
        """Have all deployments take the file as it is now; None if it cannot be read."""
        try:
            file = load(self.path)
        except ConfigError as error:
            _log.error("the file stays unread: %s", error)
            return None
        for table in own_changes(file, self.config):
            _log.error("[%s] of the file is another than at the start: that is taken by a restart alone", table)
        agreed = self.registry.agreements.agreed
        self._propose(file.shared if agreed is None else merged(file, bytes(agreed.shared), joining=False))
        return file

    def _refuse(self, version: int, faults: list[str]) -> None:
        _log.error("version %d of the configuration is not taken: %s", version, "; ".join(faults))
        self._refused = version
        record = refusal_record(self.config.deployment.name, Refusal(version, faults))
        self.writer.produce(self.config.topics.registry, *record)
        self.writer.flush()

    def _continue(self, succession: Succession) -> None:
        try:
            if not succession.step():
                return
        except HilcastError as error:
            if succession.claimed:
                raise
            self.succession = None
            if error.code.startswith("kafka-"):
                _log.warning("generation %d is not built, and tried again: %s", succession.number, error)
                return
            self._refuse(succession.config.version, [str(error)])
            return
        self._take(succession.config)
        self._take_office(succession.number)
        self.succession = None

    # ── office: what is kept for one generation ─────────────────────────────────────────────────────────────────

    def _take_office(self, number: int) -> None:
        """Keep timers, groups and all else for the generation that is in force now."""
        self.number = self.listener.generation = number
        grids = {name: Grid.of(event_type) for name, event_type in self.config.types.items()}
        redis_retried(lambda: self.redis.describe_grids(grids), say=_log.warning)
        timers = Timers(self.config, self.writer.send)
        for key, fact in self.registry.facts.items():
            timers.follow(key, fact)
        self._begin_groups(number)
        self.watch = Watch(
            self.generations.boot(self.config, number),
            registry=self.registry,
            timers=timers,
            groups=self.groups,
            clock=self.clock,
            listener=self.listener,
            ended=lambda: self.queries.ended("route"),
            redis=self.redis,
            topics=self.topics,
            writer=self.writer,
            route=self._follow,
            inboxes=self._keep_topics,
            idle=self.idle.look,
            failures=lambda: self.queries.failures("route"),
            mark=self._mark,
        )

    def _begin_groups(self, generation: int) -> None:
        """Take up the groups of the hosted brokers, or see to it that those of before are left."""
        if self.groups is not None:
            self.groups.close()
            self.groups = None
        if self.config.topics.groups not in self.topics.existing():
            return
        config = self.generations.routing(self.config, generation).config
        self.groups = GroupKeeper(config, generation, self.topics, self.redis, self.writer.produce, self.writer.flush)
        for key, fact in self.registry.facts.items():
            self.groups.follow(key, fact)

    def _announce(self, generation: Generation) -> None:
        """Let `hilcast wait` know who hosts what before the first batch."""
        starting: dict[str, dict[str, int]] = json.loads(generation.starting_offsets)
        inputs = [(topic, 0) for topic in starting]
        known = retried(lambda: self.transport.committed(group(self.config, "control"), inputs))
        offsets = {topic: {"0": known.get((topic, 0), max(0, by["0"]))} for topic, by in starting.items()}
        Committer(self.config, "control", self.lease.commit, self._committed_mark).commit(offsets)

    def _mark(self) -> bool:
        """Take notice of how far the index in Redis has been written; False if it is older than it was."""
        with self._marking:
            number, keys = self.number, index_keys(self.config, self.config.deployment.hosts)
            run, vector = self.redis.followed(number)
            return self.marks.take(Mark.of(number, run, vector), is_whole(run, vector, keys))

    def _committed_mark(self) -> Mark | None:
        """What is committed with the offsets of a control batch that has ended."""
        with contextlib.suppress(redis.RedisError):  # away: whoever routes waits for it, and goes by what was before
            if self.number:
                self._mark()
        return self.marks.committed

    def _last_resort(self, query: str) -> LastResort:
        return LastResort(
            query, self.redis, self.checkpoint, lambda records: self._note(f"quarantined:{query}", records)
        )

    def _follow(self, config: Config, ids: Mapping[str, str]) -> bool:
        """Have the route query read the topics that patterns match now."""
        return self.queries.follow(config, ids, self.listener.latest.get("route", {}).get("began"))

    def _look(self) -> bool:
        """The same at once; True where that changed something, or Kafka does not say now."""
        try:
            return self._follow(*followed(self.config, self.topics, sinks(self.registry.facts.values())))
        except (KafkaException, HilcastError) as error:
            _log.warning("which topics there are is not known now: %s", error)
            return True

    def _lost(self, query: str, records: int) -> None:
        """Count what a query passed over."""
        self._note(f"lost:{query}", records)

    def _note(self, figure: str, records: int) -> None:
        with contextlib.suppress(redis.RedisError):  # it was said; the figure is for people
            self.redis.count({figure: records})


def _jvm_pid(spark: SparkSession) -> int:
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
