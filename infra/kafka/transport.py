"""What the client library, the command line and `verify` need of Kafka, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from state.errors import HilcastError
from state.messages import Output, Record
from state.topics import Kept

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""

Partition = tuple[str, int]


class Sending(Protocol):
    """A record on its way."""

    def place(self, timeout_s: float = 30.0) -> Place:
        """Wait until Kafka has it and return where it stands; `kafka-send` if that fails."""


class Reader(Protocol):
    """Reads some partitions forward. Not for several threads at once."""

    def poll(self, timeout_s: float) -> list[Record]:
        """Return what is there, after `timeout_s` at the latest; nothing is an empty list.

        Guarantee: records of one partition come in order, none is left out but what Kafka itself has deleted.
        """

    def position(self, partition: Partition) -> int:
        """The offset before which everything that Kafka holds of a partition has been given.

        It passes over offsets that hold no record, which the offsets of records do not tell of.
        """

    def close(self) -> None: ...


class Transport(Protocol):
    """One connection to Kafka. Not for several threads at once.

    It reads what is committed: what a producer took back is not given, and a partition ends where the first transaction
    begins that has not ended.
    """

    def topics(self) -> set[str]:
        """Names of all topics of the cluster."""

    def partitions(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic; none if it does not exist. Asking does not create it."""

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that is held and the one after the last; equal if the partition is empty."""

    def create(self, topics: Mapping[str, Kept]) -> None:
        """Have these topics, each kept as it is said; `kafka-topic` if Kafka does not let us make one."""

    def send(self, output: Output) -> Sending:
        """Hand over a record. Guarantee: in order per partition, without repeats of its own; waits while the buffer
        is full.
        """

    def flush(self, timeout_s: float = 30.0) -> None:
        """Return when Kafka has everything that was handed over; `kafka-send` names the first that it does not."""

    def read(self, starts: Mapping[Partition, int]) -> Reader:
        """Read partitions, each from an offset; what is no longer held is passed over."""

    def committed(self, group: str, partitions: list[Partition]) -> dict[Partition, int]:
        """The offsets that a consumer group has stored."""

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Store offsets in a consumer group that nobody joins."""

    def close(self) -> None:
        """Flush what is left, quietly, and end."""


def away(address: str, reason: str) -> HilcastError:
    """The error of a Kafka that does not answer."""
    advice = "start it (`hilcast up`), or look at deployment.kafka and the kafka.* settings"
    return HilcastError("kafka-away", f"Kafka at {address} does not answer ({reason}): {advice}")


def missing_topic(topic: str) -> HilcastError:
    """The error of a topic that ought to be there."""
    return HilcastError("kafka-topic", f"the topic {topic!r} does not exist: run `hilcast topics`")


def not_sent(topic: str, reason: str) -> HilcastError:
    """The error of a record that Kafka did not take."""
    return HilcastError("kafka-send", f"a record for {topic!r} was not written: {reason}")
