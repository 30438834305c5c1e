"""Keeps the groups of the hosted brokers: gathers what `Regrouping` asks for, and carries out what it says, in order.

    registry, newest publications ──> Regrouping ──> Prepare, Announce, Switch, Measure, Close ──> Kafka, Redis

What is decided, and why nothing is lost by it, stands in `state/distribution/regrouping.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from infra.kafka import open_transport
from infra.kafka.reading import between, every
from infra.kafka.topic_keeper import TopicKeeper
from infra.kafka.transport import Partition, missing_topic
from infra.logs import logger
from infra.schema_registry import prompt_schemas
from state.config import Config
from state.control.facts import Fact
from state.distribution.regrouping import Announce, Close, Effect, Measure, Prepare, Regrouping, Switch
from state.errors import HilcastError
from state.messages import Record, Span, read_reader, read_spans, write_spans
from state.redis_index import RedisIndex
from state.topics import destination, published
from streaming import dying
from streaming.registry import FactKey

SAMPLE = 1000
"""Publications of each partition that are looked at before groups are formed or judged."""
_log = logger("groups")


class GroupKeeper:
    """Groups of the hosted brokers."""

    def __init__(
        self,
        config: Config,
        generation: int,
        keeper: TopicKeeper,
        index: RedisIndex,
        produce: Callable[[str, bytes | None, bytes | None], None],
        flush: Callable[[], None],
    ) -> None:
        self.config = config
        self.generation = generation
        self._keeper, self._index, self._produce, self._flush = keeper, index, produce, flush
        self._transport = open_transport(config)
        self._schemas = prompt_schemas(config, strict=False)
        self._regrouping = Regrouping(config, self._read_spans())
        self._read_by = config
        self._seen: dict[Partition, int] = {}
        """How far publications have been looked at."""

    def follow(self, key: FactKey, fact: Fact | None) -> None:
        """Take notice of a fact of the registry."""
        self._regrouping.follow(key, fact)

    def sources(self, config: Config) -> None:
        """Take notice of the topics that patterns match now: publications of theirs count, too."""
        self._read_by = config

    def tick(self, ended: Callable[[], int]) -> None:
        """Do what is due; `ended` counts the route batches that have ended, as `Queries.ended` does."""
        due = self._regrouping.due(time.monotonic())
        if due:
            self._regrouping.observe(self._newest(), self._schemas, self._read_by)
            lost = self._index.groups_missing(due, self.generation)
            self._regrouping.look(time.monotonic(), lost)
        while (effect := self._regrouping.next(ended())) is not None:
            self._carry_out(effect, ended)

    def topics(self) -> set[str]:
        """Shared topics that must exist."""
        return self._regrouping.topics()

    def close(self) -> None:
        self._transport.close()

    # ── effects ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effect: Effect, ended: Callable[[], int]) -> None:
        regrouping = self._regrouping
        match effect:
            case Prepare(_, topics, lanes):
                self._keeper.create({topic: destination(self.config, topic) for topic in topics})
                places = [(topic, lane) for topic in topics for lane in range(lanes)]
                ends = self._offsets(places, OffsetSpec.latest())
                for topic, _ in set(places) - set(ends):
                    raise missing_topic(topic)  # deleted since we saw it: the job makes it again
                regrouping.prepared(ends)
            case Announce():
                self._write(effect)
                dying.at("groups-announced")
                regrouping.announced()
            case Switch(broker, assignment, readers):
                self._index.publish_groups(broker, self.generation, assignment.encode(), readers)
                dying.at("groups-switched")
                # one more may have begun: batches are counted, since a clock may be set back
                regrouping.switched(ended() + 1)
            case Measure(_, partitions):
                ends = self._offsets(partitions, OffsetSpec.latest())
                lows = self._offsets(partitions, OffsetSpec.earliest())
                regrouping.measured({place: (lows[place], ends[place]) for place in lows if place in ends})
            case Close():
                self._write(effect)
                dying.at("groups-closed")
                regrouping.closed()

    def _write(self, effect: Announce | Close) -> None:
        for client, spans in effect.spans.items():
            output = write_spans(self.config.topics, effect.broker, client, spans)
            self._produce(output.topic, output.key, output.value)
        self._flush()

    def _offsets(self, partitions: Iterable[Partition], spec: OffsetSpec) -> dict[Partition, int]:
        """The first or the next offset of each of these partitions that exists, asked for together."""
        asked = {TopicPartition(*place): spec for place in partitions}
        found = {}
        for place, answer in self._keeper.admin.list_offsets(asked, request_timeout=30.0).items():
            try:
                found[place.topic, place.partition] = int(answer.result().offset)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return found

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_spans(self) -> dict[tuple[str, str], list[Span]]:
        """What clients have been told, all of it: what is not known here would be taken from them.

        A record that cannot be read is a stranger's: what was said before it counts, and is said again, for Kafka
        keeps the last record of a key only.
        """
        spans: dict[tuple[str, str], list[Span]] = {}
        damaged: set[tuple[str, str]] = set()
        for record in every(self._transport, self.config.topics.groups):
            reader = read_reader(record)
            try:
                spans[reader] = read_spans(record)
                damaged.discard(reader)
            except HilcastError as error:
                damaged.add(reader)
                _log.error("passed over: %s", error)
        for reader in sorted(damaged & set(spans)):
            output = write_spans(self.config.topics, *reader, spans[reader])
            self._produce(output.topic, output.key, output.value)
        self._flush()
        return {reader: of for reader, of in spans.items() if of}

    def _newest(self) -> list[Record]:
        """The newest publications of every partition, sources included, that were not looked at yet."""
        # clients' own topics come while groups are kept
        topics, spans = published(self._read_by.with_own(self._transport.topics())), {}
        for place in [(topic, number) for topic in topics for number in self._transport.partitions(topic)]:
            low, end = self._transport.span(*place)
            spans[place] = max(low, self._seen.get(place, 0), end - SAMPLE), end
        found = list(between(self._transport, spans, sample=True))
        self._seen.update({place: end for place, (_, end) in spans.items()})
        return found
