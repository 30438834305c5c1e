"""Where a query begins when its checkpoint does not say: where its consumer group stands, else at the beginning."""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from infra.kafka.settings import librdkafka
from state.config import Config
from streaming.patience import retried
from streaming.progress import Committer

EARLIEST = -2


class Offsets:
    """Reads offsets of topics and of our consumer groups."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._consumer = Consumer({**librdkafka(config), "group.id": f"{config.deployment.prefix}.offsets"})

    def partitions(self, topic: str) -> list[TopicPartition]:
        found = retried(lambda: self._consumer.list_topics(topic, timeout=10.0)).topics[topic].partitions
        return [TopicPartition(topic, number) for number in sorted(found)]

    def ends(self, topic: str) -> dict[str, int]:
        """The offset after the last record of each partition."""
        return {str(p.partition): int(self._watermarks(p)[1]) for p in self.partitions(topic)}

    def _watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        low, high = retried(lambda: self._consumer.get_watermark_offsets(partition, timeout=10.0))
        return int(low), int(high)

    def begin(self) -> dict[str, dict[str, int]]:
        """Where the control query of a new generation begins.

        The inboxes go on where the last complete batch ended; what the registry already knows is recognised by its
        offset. Of the control topic nothing older than this moment counts: the registry has it.
        """
        topics = self.config.topics
        starting = self._resume("control", [topics.subscriptions, topics.advertisements])
        return {**starting, topics.control: self.ends(topics.control)}

    def resume(self, query: str, topics: list[str]) -> str:
        """Starting offsets for Spark: where the group stands; used only if the checkpoint is new."""
        return json.dumps(self._resume(query, topics))

    def _resume(self, query: str, topics: list[str]) -> dict[str, dict[str, int]]:
        partitions = [p for topic in topics for p in self.partitions(topic)]
        committer = Committer(self.config, query)
        committed = committer.committed(partitions)
        committer.close()
        starting: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        for partition in partitions:
            place = (partition.topic, partition.partition)
            low, high = self._watermarks(partition)
            offset = committed.get(place, EARLIEST)
            if offset != EARLIEST and not low <= offset <= high:
                lost = f"{place[0]}/{place[1]}: committed {offset}, the topic holds {low} to {high}"
                print(
                    f"the {query} query cannot resume where it was, beginning at the oldest record: {lost}",
                    file=sys.stderr,
                )
                offset = EARLIEST
            starting[partition.topic][str(partition.partition)] = offset
        return starting

    @staticmethod
    def reached(progress: dict[str, Any] | None, wanted: dict[str, dict[str, int]]) -> bool:
        """Whether a query has read to these offsets."""
        if not any(offset for by in wanted.values() for offset in by.values()):
            return True
        if progress is None:
            return False
        got = progress["offsets"]
        return all(
            got.get(topic, {}).get(partition, -1) >= offset
            for topic, by in wanted.items()
            for partition, offset in by.items()
        )
