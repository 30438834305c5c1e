"""The driver's half of the distribution method: forming groups, announcing who reads what, and handing it to routing.

    registry (subscriptions that opt in), a sample of publications ──> Grouping ──> assignment
        1. announce   topic `groups`: each new reader gets a span that begins where the topic ends now
        2. switch     the assignment goes to Redis; tasks that begin from now on use it
        3. close      once a route batch that began after the switch has ended, spans nobody needs any more get an end

So a client that reads all its spans misses nothing, however late it reads them: a message that names it lies in a span
that was announced before the message was written, and no span ends before the last such message. A crash between the
steps leaves spans that are longer than needed, which costs reading, not deliveries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from infra.kafka.dialects import librdkafka
from infra.kafka.retry import retried
from infra.kafka.topic_keeper import TopicKeeper
from state.config import Config
from state.control.facts import Fact
from state.distribution.assignment import BROADCAST
from state.distribution.grouping import Grouping
from state.errors import HilcastError
from state.filters.cloudevents import read_filter
from state.filters.geometry import geometry
from state.messages import Membership, Span
from state.redis_index import RedisIndex
from state.space.decode import decode
from streaming.registry import FactKey

SAMPLE = 1000
"""Publications of each partition that are looked at before groups are formed or judged."""
PATIENCE_S = 60.0


class Grouper:
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
        hosts = config.deployment.hosts
        self._groupings = {b: Grouping(d, config.types) for b, d in config.distribution.items() if b in hosts}
        self._consumer = Consumer(
            {**librdkafka(config), "group.id": f"{config.deployment.prefix}.grouper", "enable.auto.commit": "false"}
        )
        self._spans = self._read_spans()
        self._wanted: dict[str, dict[str, set[str]]] = {}
        """By broker, then client: the topics through which it may be served from the last switch on."""
        self._switched: dict[str, float] = {}
        """Brokers whose spans are still to be closed, and when their assignment was handed over."""
        self._unpublished: set[str] = set()
        """Brokers whose present assignment is not in Redis."""
        self._sampled: dict[int, int] = {}
        self._looked: dict[str, float] = {}

    def follow(self, key: FactKey, fact: Fact | None) -> None:
        """Take notice of a fact of the registry."""
        kind, broker, type_name, id = key
        grouping = self._groupings.get(broker)
        if kind != "subscription" or grouping is None or type_name not in self.config.types:
            return
        if fact is None or not fact.live or not fact.groups:
            grouping.drop(type_name, id)
            return
        event_type = self.config.types[type_name]
        try:
            boxes = geometry(read_filter(msgspec.json.decode(fact.filter or "null"), event_type), event_type).boxes
        except HilcastError:  # dormant: the present configuration cannot use it, and home has said so
            grouping.drop(type_name, id)
            return
        grouping.put(type_name, id, fact.owner or "", boxes)

    def tick(self, route_began_s: float | None) -> None:
        """Regroup what is due, then close what a route batch that began at `route_began_s` and ended has made safe."""
        now = time.monotonic()
        due = [
            broker
            for broker in self._groupings
            if now - self._looked.get(broker, float("-inf")) >= self.config.distribution[broker].regroup_s
        ]
        if due:
            self._observe()
            self._unpublished |= self._index.groups_missing(due, self.generation)
            self._unpublished |= {broker for broker in due if self._groupings[broker].settle()}
            for broker in due:
                if broker in self._unpublished:
                    self._switch(broker)
                self._looked[broker] = now
        for broker in self._left():
            self._switched[broker] = time.time()
        for broker, since in list(self._switched.items()):
            if route_began_s is not None and route_began_s > since:
                self._close(broker)
                del self._switched[broker]

    def topics(self) -> set[str]:
        """Shared topics that are in use."""
        return {topic for clients in self._wanted.values() for topics in clients.values() for topic in topics}

    def _left(self) -> list[str]:
        """Hosted brokers that have open spans and no groups any more."""
        hosts = self.config.deployment.hosts
        brokers = {b for (b, _), spans in self._spans.items() if any(s.end is None for s in spans)}
        return [b for b in sorted(brokers) if b in hosts and b not in self._groupings and b not in self._switched]

    # ── the three steps ─────────────────────────────────────────────────────────────────────────────────────────

    def _switch(self, broker: str) -> None:
        assignment = self._groupings[broker].assignment()
        readers = {self._topic(broker, number): clients for number, clients in assignment.readers().items()}
        self._keeper.ensure(readers)
        wanted: dict[str, set[str]] = {}
        for topic, clients in readers.items():
            for client in clients:
                wanted.setdefault(client, set()).add(topic)
        ends = self._offsets(readers, OffsetSpec.latest())
        for client, topics in wanted.items():
            held = self._spans.get((broker, client), [])
            fresh = topics - {span.topic for span in held if span.end is None}
            if fresh:
                self._announce(broker, client, [*held, *(Span(topic, ends[topic]) for topic in sorted(fresh))])
        self._flush()
        self._index.publish_groups(broker, self.generation, assignment.encode(), readers)
        self._unpublished.discard(broker)
        self._wanted[broker] = wanted
        self._switched[broker] = time.time()

    def _close(self, broker: str) -> None:
        """End the spans that nobody needs any more; forget those of which Kafka keeps nothing."""
        here = {client: spans for (at, client), spans in self._spans.items() if at == broker}
        wanted = self._wanted.get(broker, {})
        done = {
            (client, span)
            for client, spans in here.items()
            for span in spans
            if span.end is not None or span.topic not in wanted.get(client, set())
        }
        topics = {span.topic for _, span in done}
        lows, ends = self._offsets(topics, OffsetSpec.earliest()), self._offsets(topics, OffsetSpec.latest())
        for client, spans in here.items():
            kept = []
            for span in spans:
                if (client, span) in done:
                    span = Span(span.topic, span.first, ends[span.topic] if span.end is None else span.end)
                if span.end is None or span.end > max(lows[span.topic], span.first):
                    kept.append(span)
            if kept != spans:
                self._announce(broker, client, kept)
        self._flush()

    def _announce(self, broker: str, client: str, spans: list[Span]) -> None:
        value = msgspec.json.encode(Membership(spans)) if spans else None
        self._produce(self.config.topics.groups, f"{broker}/{client}".encode(), value)
        if spans:
            self._spans[broker, client] = spans
        else:
            self._spans.pop((broker, client), None)

    def _topic(self, broker: str, number: int) -> str:
        topics = self.config.topics
        return topics.broadcast(broker) if number == BROADCAST else topics.group(broker, number)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _offsets(self, topics: Iterable[str], spec: OffsetSpec) -> dict[str, int]:
        """The first or the next offset of each of these topics, asked for together."""
        asked = {TopicPartition(topic, 0): spec for topic in topics}
        if not asked:
            return {}
        answers = self._keeper.admin.list_offsets(asked, request_timeout=30.0)
        return {place.topic: int(answer.result().offset) for place, answer in answers.items()}

    def _marks(self, topic: str, number: int) -> tuple[int, int]:
        low, end = retried(lambda: self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10.0))
        return int(low), int(end)

    def _read_spans(self) -> dict[tuple[str, str], list[Span]]:
        spans: dict[tuple[str, str], list[Span]] = {}
        for key, value, _ in self._read(self.config.topics.groups, 0, 0):
            broker, _, client = (key or b"").decode().partition("/")
            if value is None:
                spans.pop((broker, client), None)
            else:
                spans[broker, client] = msgspec.json.decode(value, type=Membership).spans
        return spans

    def _observe(self) -> None:
        """Look at the latest publications, to know where they fall."""
        topic = self.config.topics.publications
        values: dict[str, list[bytes]] = {name: [] for name in self.config.types}
        for number in retried(lambda: self._consumer.list_topics(topic, timeout=10.0)).topics[topic].partitions:
            _, end = self._marks(topic, number)
            first = max(self._sampled.get(number, 0), end - SAMPLE)
            self._sampled[number] = end
            for _, value, headers in self._read(topic, number, first, end):
                name = (headers.get("ce_type") or b"").decode("utf-8", "replace")
                if name in values and value is not None:
                    values[name].append(value)
        for name, seen in values.items():
            if seen:
                batch = decode(self.config.types[name], seen)
                for grouping in self._groupings.values():
                    grouping.observe(name, np.ascontiguousarray(batch.ranks[batch.valid]))

    def _read(
        self, topic: str, number: int, first: int, end: int | None = None
    ) -> Iterator[tuple[bytes | None, bytes | None, dict[str, bytes | None]]]:
        """Records from `first` to `end`; without an end to the present one, and then nothing may be missing."""
        low, high = self._marks(topic, number)
        position, stop = max(first, low), high if end is None else end
        if position >= stop:
            return
        self._consumer.assign([TopicPartition(topic, number, position)])
        deadline = time.monotonic() + PATIENCE_S
        while position < stop:
            messages = self._consumer.consume(5000, timeout=1.0)
            if not messages and end is not None:
                break  # marks of a transaction may stand at the end; a sample need not be whole
            if time.monotonic() > deadline:
                raise HilcastError("kafka-read", f"cannot read {topic!r} to its end: {position} of {stop}")
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                position = message.offset() + 1
                yield message.key(), message.value(), dict(message.headers() or [])
        self._consumer.unassign()  # whoever fetches is slow to answer other questions

    def close(self) -> None:
        self._consumer.close()
