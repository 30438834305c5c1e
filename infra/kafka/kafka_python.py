"""The transport on kafka-python: pure Python, slower, nothing compiled to install.

It reads everything (lz4, which our job writes, needs the package of that name); it cannot write a header without a
value, nor a record without key and value, which nothing of ours has. A topic that is deleted and made again while
it is read is not found again by the same reader; confluent-kafka's finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from infra.kafka.consumers import Consumers
from infra.kafka.dialects import kafka_python
from infra.kafka.transport import Partition, Place, away, missing_topic, not_sent
from state.config import Config
from state.errors import HilcastError
from state.messages import Output, Record
from state.topics import Kept

T = TypeVar("T")

_TIMEOUT_S = 10.0


class KafkaPythonSending:
    """A record on its way."""

    def __init__(self, future: Any, topic: str) -> None:
        self._future = future
        self._topic = topic

    def place(self, timeout_s: float = 30.0) -> Place:
        try:
            written = self._future.get(timeout=timeout_s)
        except KafkaTimeoutError as error:
            raise not_sent(self._topic, f"no answer of Kafka in {timeout_s:g} s") from error
        except KafkaError as error:
            raise not_sent(self._topic, str(error)) from error
        return (written.topic, written.partition, written.offset)


class KafkaPythonTransport:
    """A producer, and consumers that nobody groups."""

    def __init__(self, config: Config) -> None:
        self._address = config.deployment.kafka
        self._settings = {**kafka_python(config), "bootstrap_timeout_ms": int(_TIMEOUT_S * 1000)}
        self._consumers: Consumers[str | None, KafkaConsumer] = Consumers(self._consumer)
        self._sending: KafkaProducer | None = None
        self._failed: list[HilcastError] = []

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _looker(self) -> KafkaConsumer:
        return self._consumers.of(None)

    def _consumer(self, group: str | None) -> KafkaConsumer:
        return self._asked(
            lambda: KafkaConsumer(
                **self._settings,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",  # the other client's default, and what the job reads by
                allow_auto_create_topics=False,
                fetch_max_wait_ms=100,
            )
        )

    def topics(self) -> set[str]:
        return set(self._asked(lambda: self._looker.topics()))

    def partitions(self, topic: str) -> tuple[int, ...]:
        # the list of one topic is remembered after it was deleted; that of all topics is always asked for
        if topic not in self.topics():
            return ()
        return tuple(sorted(self._asked(lambda: self._looker.partitions_for_topic(topic)) or ()))

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        if partition not in self.partitions(topic):
            raise missing_topic(topic)
        place = TopicPartition(topic, partition)
        low = self._asked(lambda: self._looker.beginning_offsets([place]))[place]
        high = self._asked(lambda: self._looker.end_offsets([place]))[place]
        return int(low), int(high)

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except KafkaError as error:
            raise away(self._address, type(error).__name__) from error

    def create(self, topics: Mapping[str, Kept]) -> None:
        new = [NewTopic(name, kept.partitions, -1, topic_configs=dict(kept.settings)) for name, kept in topics.items()]
        admin = self._asked(lambda: KafkaAdminClient(**self._settings))
        try:
            admin.create_topics(new)
        except TopicAlreadyExistsError:
            return  # somebody else was quicker
        except KafkaError as error:
            raise HilcastError("kafka-topic", f"cannot create {', '.join(topics)}: {type(error).__name__}") from error
        finally:
            admin.close()

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, output: Output) -> KafkaPythonSending:
        if self._sending is None:
            self._sending = self._asked(
                lambda: KafkaProducer(**self._settings, linger_ms=5, allow_auto_create_topics=False)
            )
        try:
            what = {"value": output.value, "key": output.key, "headers": list(output.headers)}
            future = self._sending.send(output.topic, **what, partition=output.partition)
        except (KafkaError, TypeError, ValueError) as error:
            raise not_sent(output.topic, str(error)) from error
        future.add_errback(lambda error: self._failed.append(not_sent(output.topic, str(error))))
        return KafkaPythonSending(future, output.topic)

    def flush(self, timeout_s: float = 30.0) -> None:
        if self._sending is None:
            return
        try:
            self._sending.flush(timeout=timeout_s)
        except KafkaTimeoutError as error:
            raise away(self._address, "records wait to be written") from error
        failed, self._failed = self._failed, []
        if failed:
            raise failed[0]

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, starts: Mapping[Partition, int]) -> KafkaPythonReader:
        return KafkaPythonReader(self._consumer(None), starts)

    def committed(self, group: str, partitions: list[Partition]) -> dict[Partition, int]:
        consumer = self._consumers.of(group)
        found = self._asked(lambda: [consumer.committed(TopicPartition(*p)) for p in partitions])
        return {p: int(offset) for p, offset in zip(partitions, found, strict=True) if offset is not None}

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        wanted = {TopicPartition(*p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}
        if wanted:
            self._asked(lambda: self._consumers.of(group).commit(wanted))

    def close(self) -> None:
        if self._sending is not None:
            self._sending.close(timeout=_TIMEOUT_S)
            self._sending = None
        self._consumers.close()


class KafkaPythonReader:
    """A consumer with fixed partitions."""

    def __init__(self, consumer: KafkaConsumer, starts: Mapping[Partition, int]) -> None:
        self._consumer = consumer
        self._consumer.assign([TopicPartition(*partition) for partition in starts])
        for partition, offset in starts.items():
            self._consumer.seek(TopicPartition(*partition), offset)

    def poll(self, timeout_s: float) -> list[Record]:
        try:
            batches = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=10_000)
        except KafkaError as error:
            raise HilcastError("kafka-read", f"cannot read: {error}") from error
        return [_record(message) for messages in batches.values() for message in messages]

    def position(self, partition: Partition) -> int:
        try:
            return int(self._consumer.position(TopicPartition(*partition)) or 0)
        except KafkaError as error:
            raise HilcastError("kafka-read", f"cannot read: {error}") from error

    def close(self) -> None:
        self._consumer.close()


def _record(message: Any) -> Record:
    return Record(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp,
        message.key,
        message.value,
        tuple(message.headers or ()),
    )
