"""The transport on confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from infra.kafka.consumers import Consumers
from infra.kafka.dialects import librdkafka
from infra.kafka.topic_keeper import TopicKeeper
from infra.kafka.transport import Partition, Place, away, missing_topic, not_sent
from state.config import Config
from state.errors import HilcastError
from state.limits import OUTPUT_BYTES_MAX
from state.messages import Output, Record
from state.names import UNREADABLE
from state.topics import Kept

T = TypeVar("T")

_TIMEOUT_S = 10.0
_FETCHED_MAX = 10_000
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
_given_headers = methodcaller("headers")
"""Calls it in a way that looks for errors: where Python calls `message.headers()` often, it takes a short cut that
leaves one pending, to be raised by whatever comes next.
"""
_SILENT = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


class ConfluentSending:
    """A record on its way; its delivery report comes while the producer is polled."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._place: Place | None = None
        self.error: KafkaError | None = None

    def done(self, error: KafkaError | None, message: Message) -> None:
        """The delivery report."""
        if error is None:
            self._place = (message.topic(), message.partition(), message.offset())
        self.error = error

    def place(self, timeout_s: float = 30.0) -> Place:
        deadline = time.monotonic() + timeout_s
        while self._place is None and self.error is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise not_sent(self._topic, f"no answer of Kafka in {timeout_s:g} s")
            self._producer.poll(min(left, 0.1))
        if self._place is None:
            assert self.error is not None
            raise not_sent(self._topic, self.error.str())
        return self._place


class ConfluentTransport:
    """A producer, and consumers that nobody groups."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._address = config.deployment.kafka
        self._settings = librdkafka(config)
        self._group = f"{config.deployment.prefix}.reader"
        self._consumers: Consumers[str, Consumer] = Consumers(self._consumer)
        self._sending: Producer | None = None
        self._failed: list[HilcastError] = []

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _looker(self) -> Consumer:
        return self._consumers.of(self._group)

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                **self._settings,
                "group.id": group,
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                # what a producer took back is not there; ends are those of transactions that have ended
                "isolation.level": "read_committed",
                "allow.auto.create.topics": "false",
                "fetch.wait.max.ms": "100",
                # some kilobytes may unpack to more than librdkafka's 100 MB, and must not stop a reader
                "receive.message.max.bytes": "2147483647",
                "enable.partition.eof": "true",  # a reader's position then passes over marks of transactions, too
            }
        )

    def topics(self) -> set[str]:
        return set(self._asked(lambda: self._looker.list_topics(timeout=_TIMEOUT_S)).topics)

    def partitions(self, topic: str) -> tuple[int, ...]:
        known = self._asked(lambda: self._looker.list_topics(topic, timeout=_TIMEOUT_S), topic).topics[topic]
        return tuple(sorted(known.partitions))

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        low, high = self._asked(lambda: self._looker.get_watermark_offsets(place, timeout=_TIMEOUT_S), topic)
        return int(low), int(high)

    def _asked(self, ask: Callable[[], T], topic: str = "") -> T:
        """Ask (about a topic); what Kafka cannot answer for a moment, as while it chooses a leader, is asked again."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() in _UNKNOWN:
                    raise missing_topic(topic) from error
                if reason.code() in _SILENT or time.monotonic() > deadline:
                    raise away(self._address, reason.str()) from error
                time.sleep(0.2)

    def create(self, topics: Mapping[str, Kept]) -> None:
        TopicKeeper(self._config).create(topics)

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, output: Output) -> ConfluentSending:
        if self._sending is None:
            most = {"message.max.bytes": OUTPUT_BYTES_MAX}  # its own default is less than Kafka's
            self._sending = Producer({**most, **self._settings, "enable.idempotence": "true", "linger.ms": "5"})
        sending = ConfluentSending(self._sending, output.topic)

        def report(error: KafkaError | None, message: Message) -> None:
            sending.done(error, message)
            if error is not None:
                self._failed.append(not_sent(output.topic, error.str()))

        while True:
            try:
                self._sending.produce(
                    output.topic,
                    output.value,
                    output.key,
                    partition=-1 if output.partition is None else output.partition,
                    headers=list(output.headers),
                    on_delivery=report,
                )
                self._sending.poll(0)
                return sending
            except BufferError:
                self._sending.poll(0.1)
            except KafkaException as error:
                raise not_sent(output.topic, error.args[0].str()) from error

    def flush(self, timeout_s: float = 30.0) -> None:
        if self._sending is None:
            return
        left = self._sending.flush(timeout_s)
        failed, self._failed = self._failed, []
        if failed:
            raise failed[0]
        if left:
            raise away(self._address, f"{left} records wait to be written")

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, starts: Mapping[Partition, int]) -> ConfluentReader:
        return ConfluentReader(self._consumer(self._group), starts)

    def committed(self, group: str, partitions: list[Partition]) -> dict[Partition, int]:
        wanted = [TopicPartition(*partition) for partition in partitions]
        found = self._asked(lambda: self._consumers.of(group).committed(wanted, timeout=_TIMEOUT_S))
        return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        wanted = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        if wanted:
            self._asked(lambda: self._consumers.of(group).commit(offsets=wanted, asynchronous=False))

    def close(self) -> None:
        if self._sending is not None:
            self._sending.flush(_TIMEOUT_S)
            self._sending = None
        self._consumers.close()


class ConfluentReader:
    """A consumer with fixed partitions."""

    def __init__(self, consumer: Consumer, starts: Mapping[Partition, int]) -> None:
        self._consumer = consumer
        self._starts = starts
        self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in starts.items()])

    def poll(self, timeout_s: float) -> list[Record]:
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        # `consume` alone would wait for all of its number, or for all of the time
        messages = [first, *self._consumer.consume(_FETCHED_MAX, 0)]
        return [_record(message) for message in messages if message.error() is None or _usable(message)]

    def position(self, partition: Partition) -> int:
        # below 0 until something was given, be it only the end
        return max(self._starts[partition], int(self._consumer.position([TopicPartition(*partition)])[0].offset))

    def close(self) -> None:
        self._consumer.close()


def _usable(message: Message) -> bool:
    """Tell that what came instead of a record is none; raise what reading cannot get over."""
    error = message.error()
    if error.code() == KafkaError._PARTITION_EOF:
        return False
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise missing_topic(message.topic())
    if not error.retriable():
        raise HilcastError("kafka-read", f"{message.topic()!r} cannot be read: {error.str()}")
    return False


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Its headers; where the client cannot read a name, because it is no UTF-8, it gives none of them."""
    try:
        return tuple(_given_headers(message) or ())
    except (SystemError, UnicodeDecodeError):  # the first is what confluent-kafka makes of the second
        return ((UNREADABLE, None),)


def _record(message: Message) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        _headers(message),
    )
