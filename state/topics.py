"""The names of Kafka topics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topics:
    """The names of all topics of a prefix (contract.md §3).

    >>> topics = Topics("hilcast")
    >>> topics.registry, topics.link("b1", "b2"), topics.group("b1", 3)
    ('hilcast.registry', 'hilcast.link.b1.b2', 'hilcast.group.b1.3')
    """

    prefix: str

    @property
    def subscriptions(self) -> str:
        return f"{self.prefix}.subscriptions"

    @property
    def advertisements(self) -> str:
        return f"{self.prefix}.advertisements"

    @property
    def registry(self) -> str:
        return f"{self.prefix}.registry"

    @property
    def publications(self) -> str:
        return f"{self.prefix}.publications"

    @property
    def control(self) -> str:
        return f"{self.prefix}.control"

    @property
    def receipts(self) -> str:
        return f"{self.prefix}.receipts"

    @property
    def deadletter(self) -> str:
        return f"{self.prefix}.deadletter"

    @property
    def routed(self) -> str:
        return f"{self.prefix}.routed"

    @property
    def progress(self) -> str:
        return f"{self.prefix}.progress"

    @property
    def groups(self) -> str:
        return f"{self.prefix}.groups"

    def link(self, origin: str, target: str) -> str:
        return f"{self.prefix}.link.{origin}.{target}"

    def deliver(self, client: str) -> str:
        return f"{self.prefix}.deliver.{client}"

    def group(self, broker: str, number: int) -> str:
        return f"{self.prefix}.group.{broker}.{number}"

    def broadcast(self, broker: str) -> str:
        return f"{self.prefix}.broadcast.{broker}"


def metric_name(topic: str) -> str:
    """What Kafka compares when it refuses a topic: in its metric names `.` becomes `_`, so both are one."""
    return topic.replace(".", "_")
