"""Where a query begins when its checkpoint does not say: where its consumer group stands, else at the beginning."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from infra.kafka import Transport
from infra.kafka.retry import retried
from infra.logs import logger
from state.config import Config
from state.topics import inboxes
from streaming.progress import group

EARLIEST = -2
_log = logger("offsets")


@dataclass(frozen=True)
class Gap:
    """Records of a partition that Kafka deleted before a query had read them.

    >>> print(Gap("hilcast.publications", 0, 40, 52))
    hilcast.publications/0: offsets 40 to 51
    """

    topic: str
    partition: int
    first: int
    end: int

    @property
    def records(self) -> int:
        return self.end - self.first

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}: offsets {self.first} to {self.end - 1}"


class Offsets:
    """Reads offsets of topics and of our consumer groups."""

    def __init__(self, config: Config, transport: Transport) -> None:
        self.config = config
        self._transport = transport
        self.renewed: frozenset[str] = frozenset()
        """Topics that were deleted and made again since the last life: offsets of theirs mean nothing any more."""

    def topics(self) -> set[str]:
        """Names of all topics of the cluster."""
        return retried(self._transport.topics)

    def ends(self, topic: str) -> dict[str, int]:
        """The offset after the last record of each partition."""
        return {str(number): self._span(topic, number)[1] for number in self._partitions(topic)}

    def holds(self, topic: str) -> bool:
        """Whether Kafka holds a record of a topic."""
        return any(low < end for low, end in (self._span(topic, number) for number in self._partitions(topic)))

    def _partitions(self, topic: str) -> tuple[int, ...]:
        return retried(lambda: self._transport.partitions(topic))

    def _span(self, topic: str, number: int) -> tuple[int, int]:
        return retried(lambda: self._transport.span(topic, number))

    def begin(self) -> dict[str, dict[str, int]]:
        """Where the control query of a new generation begins.

        The inboxes go on where the last complete batch ended; what the registry already knows is recognised by its
        offset. Of the control topic nothing older than this moment counts: the registry has it.
        """
        control = self.config.topics.control
        found = self.config.with_own(self.topics())
        return {**self._resume("control", inboxes(found)), control: self.ends(control)}

    def resume(self, query: str, topics: list[str]) -> str:
        """Starting offsets for Spark: where the group stands; used only if the checkpoint is new."""
        return json.dumps(self._resume(query, topics))

    def _resume(self, query: str, topics: list[str]) -> dict[str, dict[str, int]]:
        partitions = [(topic, number) for topic in topics for number in self._partitions(topic)]
        committed = retried(lambda: self._transport.committed(group(self.config, query), partitions))
        starting: dict[str, dict[str, int]] = {topic: {} for topic in topics}
        for topic, number in partitions:
            low, high = self._span(topic, number)
            offset = EARLIEST if topic in self.renewed else committed.get((topic, number), EARLIEST)
            if offset != EARLIEST and not low <= offset <= high:
                lost = f"{topic}/{number}: committed {offset}, the topic holds {low} to {high}"
                _log.warning("the %s query cannot resume where it was, beginning at the oldest record: %s", query, lost)
                offset = EARLIEST
            starting[topic][str(number)] = offset
        return starting

    def gaps(self, query: str, topics: list[str]) -> list[Gap]:
        """What Kafka no longer holds of what a query had still to read, by where its group stands."""
        partitions = [(topic, number) for topic in topics for number in self._partitions(topic)]
        committed = retried(lambda: self._transport.committed(group(self.config, query), partitions))
        found = []
        for topic, number in partitions:
            low, high = self._span(topic, number)
            at = committed.get((topic, number), 0)
            if at < low:
                found.append(Gap(topic, number, at, low))
            elif (
                at > high and self.config.topics.client_of(topic) is None
            ):  # the topic was made anew: what it held is gone, and nobody knows how much that was
                found.append(Gap(topic, number, high, at))
        return found

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
