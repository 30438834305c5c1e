"""The streaming job of one deployment: begin or continue a generation, run both queries, keep everything in order.

lock the checkpoint ─> topics ─> generation (continue, or rebuild from the registry) ─> index in Redis
    ─> control query, route query ─> `ready` ─> until SIGTERM: timers, Redis, topics, restarts
"""

from __future__ import annotations

import contextlib
import datetime
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import redis
from confluent_kafka import KafkaException, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from infra.kafka.settings import librdkafka
from state.config import Config
from state.control.context import Context
from state.control.protocol import Message, Republish, encode, seeds
from state.control.rebuild import Rebuilt, rebuild
from state.errors import HilcastError
from state.keys import Key, index_keys
from state.redis_index import RedisIndex, patiently
from state.space.grid import Grid
from state.warm import warm
from streaming import control, route
from streaming.boot import Boot
from streaming.checkpoint import Checkpoint, Generation
from streaming.group_keeper import GroupKeeper
from streaming.metrics import MetricsServer
from streaming.offsets import Offsets
from streaming.progress import Committer, ProgressListener
from streaming.registry import RegistryReader, generation_record
from streaming.sampling import sample
from streaming.settings import QUERY_VARIABLE, session
from streaming.timers import Timers
from streaming.topics import TopicKeeper

TICK_S = 0.25
WATCH_S = 1.0
TOPICS_S = 5.0
REPUBLISH_S = 20.0
HEARTBEAT_S = 30.0
PROGRESS_S = 5.0
RESTART_S = 2.0
RESTART_MAX_S = 30.0


def say(line: str) -> None:
    """One line for the operator."""
    print(line, file=sys.stderr, flush=True)


class Job:
    """One life of the streaming job; `run` returns when it was told to stop."""

    def __init__(self, config: Config, path: str) -> None:
        self.config = config
        self.path = path
        self.stopping = threading.Event()
        self.checkpoint = Checkpoint(config.deployment.checkpoint)
        self.topics = TopicKeeper(config)
        self.redis = RedisIndex(config)
        self.producer = Producer(
            {
                **librdkafka(config),
                "enable.idempotence": "true",
                "linger.ms": "5",
                "message.max.bytes": "1100000",
            }
        )
        self.timers = Timers(config, self._send)
        self.offsets = Offsets(config)
        self.groups: GroupKeeper | None = None
        self.queries: dict[str, StreamingQuery] = {}
        self._grids = {name: Grid.of(event_type) for name, event_type in config.types.items()}
        self._beaten = (0.0, 0)
        self._republished: dict[Key, float] = {}
        self._restart_at: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    # ── from start to stop ──────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        created = self.topics.ensure_needed()
        if created:
            say(f"created {len(created)} topics")
        self.registry = RegistryReader(self.config)
        generation = self._begin()
        patiently(lambda: self.redis.describe_grids(self._grids), say=say)
        boot = Boot(self.config, generation.number)
        self._begin_groups(generation.number)
        say("preparing the kernels (compiled once, then kept)")
        warm(self.config)
        say("starting Spark")
        spark = session(self.config, self.path)
        self.checkpoint.record(_jvm_pid(spark))
        listener = ProgressListener(self.config, generation.number)
        spark.streams.addListener(listener)
        self._announce(generation)
        metrics = None if self.config.settings.metrics_port is None else MetricsServer(self.config, self.redis.figures)
        if metrics is not None:
            say(f"metrics at port {metrics.port}")
        try:
            starters = self._starters(spark, boot, generation)
            for name, start in starters.items():
                self.queries[name] = start()
            self._until_ready(listener, generation)
            self._supervise(starters, listener)
        finally:
            if metrics is not None:
                metrics.close()
            self._close(spark, listener)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping.set()  # only a flag: py4j cannot be entered from a signal handler

    def _starters(
        self, spark: SparkSession, boot: Boot, generation: Generation
    ) -> dict[str, Callable[[], StreamingQuery]]:
        topics = route.input_topics(self.config)

        def pooled(name: str, start: Callable[[], StreamingQuery]) -> Callable[[], StreamingQuery]:
            def begin() -> StreamingQuery:
                spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
                # Spark keeps Python workers apart by their environment: a route task must not be given one that has
                # no index yet, while a control batch keeps the others busy
                spark.sparkContext.environment[QUERY_VARIABLE] = name
                return start()

            return begin

        return {
            "control": pooled(
                "control",
                lambda: control.start(
                    spark,
                    replace(boot, samples=generation.samples),
                    generation.starting_offsets,
                    self.checkpoint.control(generation.number),
                ),
            ),
            "route": pooled(
                "route",
                lambda: route.start(spark, boot, self.offsets.resume("route", topics), self.checkpoint.route(topics)),
            ),
        }

    def _until_ready(self, listener: ProgressListener, generation: Generation) -> None:
        """Say `ready` once both queries run and the state of a new generation is in."""
        while not self.stopping.is_set():
            failed = [name for name, query in self.queries.items() if not query.isActive]
            if failed:
                break
            if self.offsets.reached(listener.latest.get("control"), self._seeded_to):
                break
            time.sleep(0.05)
        if not self.stopping.is_set():
            print("ready", flush=True)

    def _close(self, spark: SparkSession, listener: ProgressListener) -> None:
        for query in self.queries.values():
            if query.isActive:
                query.stop()
        listener.close()
        spark.stop()
        self.producer.flush(10.0)
        self.registry.close()
        if self.groups is not None:
            self.groups.close()
        self.redis.close()
        self.checkpoint.close()
        say("stopped")

    # ── generations ─────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> Generation:
        """Continue the generation of the checkpoint, or begin a new one from the registry."""
        self.registry.catch_up()
        for key, fact in self.registry.facts.items():
            self.timers.follow(key, fact)
        known = self.checkpoint.generation()
        claimed = self.registry.generations.get(self.config.deployment.name, 0)
        fingerprint = f"{self.config.fingerprint()}:{','.join(sorted(self.config.deployment.hosts))}"
        self._seeded_to: dict[str, dict[str, int]] = {}
        if known is not None and known.fingerprint == fingerprint and known.number == claimed:
            say(f"continuing generation {known.number}")
            return known
        number = max(claimed, known.number if known else 0) + 1
        say(f"beginning generation {number} from {len(self.registry.facts)} registered facts")
        self._produce(self.config.topics.registry, *generation_record(self.config.deployment.name, number, fingerprint))
        self._flush()
        starting = self.offsets.begin()
        samples = sample(self.config)
        context = Context(self.config, number, 0, samples=samples)
        rebuilt = rebuild(((*key, fact) for key, fact in self.registry.facts.items()), context, _Progress())
        self._install(rebuilt, number)
        generation = Generation(number, fingerprint, json.dumps(starting), samples)
        self.checkpoint.begin(generation)
        self._seeded_to = {self.config.topics.control: self.offsets.ends(self.config.topics.control)}
        return generation

    def _begin_groups(self, generation: int) -> None:
        """Take up the groups of the hosted brokers, or see to it that those of before are left."""
        if self.config.topics.groups not in self.topics.existing():
            return
        self.groups = GroupKeeper(self.config, generation, self.topics, self.redis, self._produce, self._flush)
        for key, fact in self.registry.facts.items():
            self.groups.follow(key, fact)

    def _install(self, rebuilt: Rebuilt, number: int) -> None:
        """Put a new generation in place: topics, index, then the seeds of the states and the first words to others."""
        self.topics.ensure(rebuilt.topics)
        keys = {Key.parse(text): blob for text, blob in rebuilt.indexes.items()}
        forwarding = {Key.parse(text): told for text, told in rebuilt.forwarding.items()}
        reduced = {Key.parse(text): told for text, told in rebuilt.reduced.items()}

        def publish() -> None:
            self.redis.publish(keys, number, 0, forwarding, reduced)
            self.redis.retire(keys)

        patiently(publish, say=say)
        for text, blob in rebuilt.states.items():
            for seed in seeds(number, blob):
                self._send(text, seed)
        for output in rebuilt.outputs:
            self._produce(output.topic, output.key, output.value)
        self._flush()

    def _announce(self, generation: Generation) -> None:
        """Let `hilcast wait` know who hosts what before the first batch."""
        committer = Committer(self.config, "control")
        topics = self.config.topics
        known = committer.committed(
            [TopicPartition(t, 0) for t in (topics.subscriptions, topics.advertisements, topics.control)]
        )
        starting: dict[str, dict[str, int]] = json.loads(generation.starting_offsets)
        offsets = {topic: {"0": known.get((topic, 0), max(0, by["0"]))} for topic, by in starting.items()}
        committer.commit(offsets)
        committer.close()

    # ── while it runs ───────────────────────────────────────────────────────────────────────────────────────────

    def _supervise(self, starters: dict[str, Callable[[], StreamingQuery]], listener: ProgressListener) -> None:
        watched = checked = 0.0
        while not self.stopping.wait(TICK_S):
            now = time.monotonic()
            try:
                self._tick()
                self._beat(now, listener)
                if now - watched > WATCH_S:
                    watched = now
                    self._watch_redis()
                    self._regroup(listener)
                    self._note(listener)
                if now - checked > TOPICS_S:
                    checked = now
                    self._watch_topics()
            except KafkaException as error:
                say(f"kafka does not answer: {error.args[0].name() if error.args else error}")
            self._restart_failed(starters)

    def _beat(self, now: float, listener: ProgressListener) -> None:
        """Give the Python workers something to do: after a minute without a task Spark ends them, caches and all."""
        batches = sum(listener.batches.values())
        if batches != self._beaten[1]:
            self._beaten = (now, batches)
        elif now - self._beaten[0] > HEARTBEAT_S:
            self._beaten = (now, batches)
            self._send(str(index_keys(self.config, self.config.deployment.hosts)[0]), Republish())
            self.producer.flush(5.0)

    def _tick(self) -> None:
        for key in self.registry.catch_up():
            fact = self.registry.facts.get(key)
            self.timers.follow(key, fact)
            if self.groups is not None:
                self.groups.follow(key, fact)
        if self.timers.fire(int(time.time() * 1000), self.registry.facts):
            self._flush()

    def _regroup(self, listener: ProgressListener) -> None:
        if self.groups is None:
            return
        routed = listener.latest.get("route")
        began_s = None if routed is None else datetime.datetime.fromisoformat(routed["began"]).timestamp()
        try:
            self.groups.tick(began_s)
        except redis.RedisError:
            return  # away: everybody is served by unicast once it is back, until it is asked again in a second
        except HilcastError as error:
            if error.code not in ("kafka-away", "kafka-topic"):
                raise
            say(str(error))  # it is tried again in a second; a topic that was deleted is made again

    def _watch_redis(self) -> None:
        """Have everything written again that Redis lost."""
        keys = index_keys(self.config, self.config.deployment.hosts)
        try:
            missing = self.redis.missing(keys, self._generation())
            if missing:
                self.redis.describe_grids(self._grids)
        except redis.RedisError:
            return  # away: the workers wait and say so; it is asked again in a second
        if not missing:
            self._republished.clear()
            return
        now = time.monotonic()
        due = [key for key in missing if now - self._republished.get(key, -REPUBLISH_S) >= REPUBLISH_S]
        if due:
            say(f"redis lost {len(due)} of {len(keys)} index parts; having them written again")
            for key in due:
                self._republished[key] = now
                self._send(str(key), Republish())
            self._flush()

    def _note(self, listener: ProgressListener) -> None:
        """Leave the state of the queries where `status` and the metrics find it."""
        figures: dict[str, float] = {}
        for name, line in list(listener.latest.items()):
            figures[f"batch_seconds:{name}"] = line["batch_ms"] / 1000
            figures[f"lag:{name}"] = line["lag"]
        if figures:
            with contextlib.suppress(redis.RedisError):  # figures are for people; the next second brings them again
                self.redis.note(figures)

    def _generation(self) -> int:
        generation = self.checkpoint.generation()
        assert generation is not None, "a running job has begun its generation"
        return generation.number

    def _watch_topics(self) -> None:
        """Recreate what was deleted under us, before the sink gives up."""
        recreated = self.topics.ensure_needed()
        hosts = self.config.deployment.hosts
        wanted = {
            fact.sink or self.config.topics.deliver(fact.owner or "")
            for (kind, broker, _, _), fact in self.registry.facts.items()
            if kind == "subscription" and fact.live and broker in hosts
        }
        if self.groups is not None:
            wanted |= self.groups.topics()
        recreated += self.topics.recreate(wanted)
        if recreated:
            say(f"recreated topics that had gone: {', '.join(recreated[:5])}{' ...' if len(recreated) > 5 else ''}")

    def _restart_failed(self, starters: dict[str, Callable[[], StreamingQuery]]) -> None:
        now = time.monotonic()
        for name, query in list(self.queries.items()):
            if query.isActive:
                continue
            if name not in self._restart_at:
                self._failures[name] = self._failures.get(name, 0) + 1
                wait_s = min(RESTART_S * 1.5 ** self._failures[name], RESTART_MAX_S)
                self._restart_at[name] = now + wait_s
                say(f"the {name} query stopped and is started again in {wait_s:.0f} s: {_reason(query)}")
            elif now >= self._restart_at[name]:
                del self._restart_at[name]
                self.queries[name] = starters[name]()

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, key: str, message: Message) -> None:
        self._produce(self.config.topics.control, key.encode(), encode(message))

    def _produce(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                self.producer.produce(topic, key=key, value=value)
                return
            except BufferError:
                self.producer.poll(0.1)

    def _flush(self) -> None:
        left = self.producer.flush(60.0)
        assert left == 0, f"{left} control records could not be written in a minute"


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return "no reason given" if error is None else " ".join(str(error).split())[:500]


def _jvm_pid(spark: SparkSession) -> int:
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


class _Progress:
    """Says every few seconds how far a long step is."""

    def __init__(self) -> None:
        self.said = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.said > PROGRESS_S:
            self.said = time.monotonic()
            say(f"rebuilding: {done} of {total} {what}")
