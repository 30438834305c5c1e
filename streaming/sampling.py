"""The sample of publications that a generation begins with (`state/control/samples.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.kafka.settings import librdkafka
from state.config import Config
from state.control.samples import pruned_types, samples_of
from state.messages import Record
from streaming.patience import retried

LOOK = 2000
"""Records at the end of each partition that are looked at."""


def sample(config: Config) -> dict[str, list[dict[str, object]]]:
    """The last publications of every type that is pruned; nothing is read where there is none."""
    types = pruned_types(config)
    if not types:
        return {}
    topics = [config.topics.publications, *(source.topic for source in config.sources if source.type in types)]
    consumer = Consumer(
        {**librdkafka(config), "group.id": f"{config.deployment.prefix}.sampling", "enable.auto.commit": "false"}
    )
    try:
        return samples_of((record for topic in topics for record in _last(consumer, topic)), config)
    finally:
        consumer.close()


def _last(consumer: Consumer, topic: str) -> Iterator[Record]:
    found = retried(lambda: consumer.list_topics(topic, timeout=10.0)).topics[topic].partitions
    for number in sorted(found):
        place = TopicPartition(topic, number)
        low, end = retried(lambda: consumer.get_watermark_offsets(place, timeout=10.0))  # noqa: B023 called at once
        position = max(low, end - LOOK)
        if position >= end:
            continue
        consumer.assign([TopicPartition(topic, number, position)])
        while position < end:
            messages = consumer.consume(LOOK, timeout=2.0)
            if not messages:
                break  # marks of a transaction may stand at the end; a sample need not be whole
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                position = message.offset() + 1
                headers = tuple(message.headers() or ())
                yield Record(topic, number, message.offset(), 0, message.key(), message.value(), headers)
        consumer.unassign()
