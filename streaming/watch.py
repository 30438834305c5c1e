"""What the driver looks after while the queries run: facts and their time to live, Redis, groups, topics, figures.

    every 0.25 s   registry and timers; something to do for idle workers
    every second   index parts that Redis lost; groups; figures for `status` and the metrics
    every 5 s      topics that were deleted under us, delivery topics some at a time; destinations that nothing can be
                   written to (at once, where the route query has failed); topics that a pattern of sources matches;
                   transactions left open; delivery topics that nobody uses

What there is to look after is counted as facts come and go, and Kafka is asked for topics by name: a look costs what it
is about, not what there is. Only who does not know the names asks for all topics: sources by pattern, inboxes of
clients' own, topics that nobody uses.

A duty that Kafka or Redis does not let it do now is done the next time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import redis
from confluent_kafka import KafkaException

from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger
from state.config import Config
from state.control.facts import Fact
from state.control.protocol import Renew, Republish
from state.errors import HilcastError
from state.keys import Key, index_keys
from state.redis_index import RedisIndex
from state.routing.envelope import input_topics
from state.space.grid import Grid
from state.topics import inboxes
from streaming.boot import Boot
from streaming.broker_clock import BrokerClock
from streaming.closed import ClosedDestinations
from streaming.group_keeper import GroupKeeper
from streaming.progress import ProgressListener
from streaming.registry import RegistryReader
from streaming.source_topics import followed
from streaming.timers import Timers
from streaming.wanted_destinations import WantedDestinations
from streaming.writer import DriverWriter

TICK_S = 0.25
WATCH_S = 1.0
WHOLE_LOOKS = 10
"""Of so many looks at the index in Redis one reads all versions: somebody may have changed some and told nobody."""
TOPICS_S = 5.0
REPUBLISH_S = 20.0
HEARTBEAT_S = 30.0
SAY_AGAIN_S = 10.0
"""The same trouble is not told more often."""
_log = logger("watch")


class Idle(Protocol):
    """Looks after delivery topics that nobody uses (`idle_keeper.py`)."""

    def __call__(self, facts: Iterable[Fact], *, stumbled: bool = False) -> None: ...


@dataclass
class _Duty:
    """Something to do every so often."""

    every_s: float
    do: Callable[[], None]
    done: float = float("-inf")


class Watch:
    """All duties of the driver; `look` does those that are due."""

    def __init__(
        self,
        boot: Boot,
        *,
        registry: RegistryReader,
        timers: Timers,
        groups: GroupKeeper | None,
        clock: BrokerClock,
        listener: ProgressListener,
        ended: Callable[[], int],
        redis: RedisIndex,
        topics: TopicKeeper,
        writer: DriverWriter,
        route: Callable[[Config, Mapping[str, str]], bool],
        failures: Callable[[], int],
        mark: Callable[[], bool],
        inboxes: Callable[[Mapping[str, str]], None] = lambda ids: None,
        idle: Idle | None = None,
    ) -> None:
        """`failures`: how often the route query has failed; `mark`: whether Redis is as far as it was once.

        `inboxes` is told Kafka's ids of clients' own inboxes, where they have some; `idle` removes delivery topics.
        """
        self._mark = mark
        self.config = config = boot.config
        self.generation = boot.generation
        self._ids = boot.topic_ids
        self._absent: set[str] = set()
        """Topics that must not be lost and were not there at the last look."""
        self.registry, self.timers, self.groups, self.listener = registry, timers, groups, listener
        self._wanted = WantedDestinations(config)
        for key, fact in registry.facts.items():
            self._wanted.follow(key, fact)
        self.redis, self.topics, self.writer = redis, topics, writer
        self._route, self._inboxes, self._idle = route, inboxes, idle
        self.clock, self._ended = clock, ended
        self._keys = index_keys(config, config.deployment.hosts)
        self._closed = ClosedDestinations(topics, redis, boot.generation)
        self._failures, self._stumbled = failures, -1
        self._beaten = (float("-inf"), 0)
        self._looks = 0
        self._republished: dict[Key, float] = {}
        self._told: dict[str, float] = {}
        self._held: dict[tuple[str, int], int] = {}
        """Where transactions were open at the last look."""
        self._forged = 0
        """Records of the registry that are not genuine, as far as they are counted."""
        self._duties = [
            _Duty(0.0, self._follow),
            _Duty(0.0, self._beat),
            _Duty(WATCH_S, self._watch_redis),
            _Duty(WATCH_S, self._regroup),
            _Duty(WATCH_S, self._note),
            _Duty(TOPICS_S, self._watch_topics),
            _Duty(TOPICS_S, self._watch_idle),
            _Duty(TOPICS_S, self.watch_destinations),
            _Duty(TOPICS_S, self._watch_sources),
            _Duty(TOPICS_S, self._watch_inboxes),
            _Duty(TOPICS_S, self._watch_transactions),
        ]

    def look(self) -> None:
        """Do what is due; what Kafka does not allow now waits, and does not keep the rest from being done."""
        failed = self._failures() != self._stumbled
        for duty in self._duties:
            now = time.monotonic()
            urgent = failed and duty.do == self.watch_destinations and now - duty.done > WATCH_S
            if now - duty.done <= duty.every_s and not urgent:
                continue
            duty.done = now
            try:
                duty.do()
            except KafkaException as error:
                self._tell(f"kafka does not answer: {error.args[0].name() if error.args else error}")
            except HilcastError as error:
                if not error.code.startswith("kafka-"):
                    raise
                self._tell(str(error))

    def _tell(self, trouble: str) -> None:
        now = time.monotonic()
        if now - self._told.get(trouble, float("-inf")) >= SAY_AGAIN_S:
            self._told = {trouble: now}
            _log.warning("%s", trouble)

    # ── duties ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _follow(self) -> None:
        """Take notice of what the registry says now, and send what is due."""
        for key in self.registry.catch_up():
            fact = self.registry.facts.get(key)
            self.timers.follow(key, fact)
            self._wanted.follow(key, fact)
            if self.groups is not None:
                self.groups.follow(key, fact)
        for record in self.registry.overwritten():
            self.writer.produce(self.config.topics.registry, *record)
        self._sign_anew()
        next_ms = self.timers.next_ms
        now_ms = None if next_ms is None else self.clock.due(next_ms)
        if now_ms is not None and self.timers.fire(now_ms, self.registry.facts):
            self.writer.flush()

    def _sign_anew(self) -> None:
        """Have everything written again that bears the signature of a key that was followed by another."""
        aged = self.registry.aged(self.config)
        for key in aged.homes:
            self.writer.send(str(key), Renew())
        for record in aged.records:
            self.writer.produce(self.config.topics.registry, *record)
        if aged.homes or aged.records:
            self.writer.flush()
            n, m = len(aged.homes), len(aged.records)
            _log.info("another key signs now: the facts of %d home keys and %d records are written again", n, m)

    def _beat(self) -> None:
        """Give the Python workers something to do: after a minute without a task Spark ends them, caches and all."""
        now, batches = time.monotonic(), sum(self.listener.batches.values())
        if batches != self._beaten[1]:
            self._beaten = (now, batches)
        elif now - self._beaten[0] > HEARTBEAT_S:
            self._beaten = (now, batches)
            self.writer.send(str(self._keys[0]), Republish())
            self.writer.nudge(5.0)

    def _watch_redis(self) -> None:
        """Have everything written again that Redis lost."""
        try:
            if self.redis.current()[1] != self.generation:
                self.redis.point(self.generation, self.config.shared)
            if not self._mark():
                _log.error("redis holds an older index than was in force: nobody goes by it, it is written again")
                self.redis.disown(self.generation)
            missing = self.redis.missing(self._keys, self.generation, whole=self._looks % WHOLE_LOOKS == 0)
            self._looks += 1
            if missing:
                self.redis.describe_grids({name: Grid.of(event_type) for name, event_type in self.config.types.items()})
        except redis.RedisError:
            return  # away: the workers wait and say so; it is asked again in a second
        if not missing:
            self._republished.clear()
            return
        now = time.monotonic()
        due = [key for key in missing if now - self._republished.get(key, -REPUBLISH_S) >= REPUBLISH_S]
        if due:
            _log.warning("redis lost %d of %d index parts; having them written again", len(due), len(self._keys))
            for key in due:
                self._republished[key] = now
                self.writer.send(str(key), Republish())
            self.writer.flush()

    def _regroup(self) -> None:
        if self.groups is None:
            return
        try:
            self.groups.tick(self._ended)
        except redis.RedisError:
            return  # away: everybody is served by unicast once it is back, until it is asked again in a second

    def _note(self) -> None:
        """Leave the state of the queries where `status` and the metrics find it."""
        figures: dict[str, float] = {}
        for name, line in list(self.listener.latest.items()):
            figures[f"batch_seconds:{name}"] = line["batch_ms"] / 1000
            figures[f"lag:{name}"] = line["lag"]
        forged, self._forged = self.registry.forged - self._forged, self.registry.forged
        if forged:
            with contextlib.suppress(redis.RedisError):  # it was said; the figure is for people
                self.redis.count({"forged": forged})
        if figures:
            with contextlib.suppress(redis.RedisError):  # figures are for people; the next second brings them again
                self.redis.note(figures)

    def _watch_topics(self) -> None:
        """Recreate what was deleted under us; stop if that would hide a loss."""
        self._guard_topics()
        self._recreated(self.topics.ensure_needed(but=self._ids, own=False))

    def _watch_idle(self) -> None:
        """Remove delivery topics of clients that have held nothing for the stated time."""
        if self._idle is not None:
            facts = (fact for (kind, *_), fact in self.registry.facts.items() if kind == "subscription")
            self._idle(facts, stumbled=self._failures() != self._stumbled)

    def watch_destinations(self) -> None:
        """Recreate destinations before the sink gives up; close those that it cannot write to."""
        wanted = self._wanted.hosted
        if self.groups is not None and (shared := self.groups.topics()):
            wanted = {*wanted, *shared}
        if self.config.security.own:
            self._recreated(self.topics.recreate(self._own_receipts())[0])
        failures = self._failures()
        self._recreated(self._closed.look(wanted, all_of_them=failures != self._stumbled))
        try:
            self._closed.tell()
        except redis.RedisError:
            return  # away: nothing is routed without it, and it is told at the next look
        self._stumbled = failures

    def _recreated(self, topics: list[str]) -> None:
        if topics:
            some = f"{', '.join(topics[:5])}{' ...' if len(topics) > 5 else ''}"
            _log.warning("recreated topics that had gone: %s", some)

    def _own_receipts(self) -> set[str]:
        """Where clients that have inboxes of their own are answered."""
        topics = self.config.topics
        owners = (topics.client_of(topic) for topic in self.config.with_own(self.topics.existing()).inbox_topics)
        return {topics.receipts_of(owner[1]) for owner in owners if owner is not None}

    def _watch_sources(self) -> None:
        """Have topics routed that a pattern matches and that were not there before, or are others of the same name."""
        if self.config.patterns:
            found, ids = followed(self.config, self.topics, self._wanted.sinks)
            self._route(found, ids)
            if self.groups is not None:
                self.groups.sources(found)

    def _watch_inboxes(self) -> None:
        """Note which clients' own inboxes there are: one that is deleted and made again must not pass for the old."""
        if self.config.security.own:
            self._inboxes(self.topics.ids(self.config.with_own(self.topics.existing()).inbox_topics))

    def _watch_transactions(self) -> None:
        """Say which transaction nobody ends: what stands behind it cannot be read, by us or by anybody."""
        topics = [*inboxes(self.config), *input_topics(self.config), self.config.topics.control]
        held = self.topics.held_back([*topics, self.config.topics.registry])
        left = sorted(place for place, offset in held.items() if self._held.get(place) == offset)
        self._held = held
        if left:
            where = ", ".join(f"{topic}/{number} from offset {held[topic, number]}" for topic, number in left[:5])
            self._tell(
                f"an open transaction holds back {where}{' ...' if len(left) > 5 else ''}: nothing behind it can be "
                "read until its producer ends it or Kafka aborts it (docs/operations.md)"
            )

    def _guard_topics(self) -> None:
        """Stop if a topic is lost that must not be; twice unseen is gone, for a node may just not know of it yet."""
        found = self.topics.ids(self._ids)
        renewed = sorted(topic for topic, id in found.items() if id != self._ids[topic])
        if renewed:
            raise topic_lost(renewed, "were deleted and made again")
        absent = set(self._ids) - set(found)
        gone = sorted(absent & self._absent)
        if gone:
            raise topic_lost(gone, "do not exist any more")
        self._absent = absent


def topic_lost(topics: list[str], how: str) -> HilcastError:
    """The error of topics that must not be made again by themselves."""
    return HilcastError(
        "topic-lost",
        f"{', '.join(topics)} {how}. Nothing was put in their place: an empty topic would hide the loss. Put them "
        "back, or make them anew on purpose, as docs/operations.md says (`topic-lost`)",
    )
