"""Kafka topics: their names, which ones a configuration needs, and how each is kept.

One partition where order matters to us (inboxes, control, registry, links, deliveries); log-append time everywhere,
since time to live and `verify` are judged by the broker's clock. What is the truth is compacted: the registry, and
the spans of groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.limits import OUTPUT_BYTES_MAX

if TYPE_CHECKING:
    from state.config import Config

PUBLICATION_PARTITIONS = 2


@dataclass(frozen=True)
class Topics:
    """The names of all topics of a prefix (`docs/messages.md`).

    >>> topics = Topics("hilcast")
    >>> topics.registry, topics.link("b1", "b2"), topics.group("b1", 3)
    ('hilcast.registry', 'hilcast.link.b1.b2', 'hilcast.group.b1.3')
    """

    prefix: str

    def owns(self, topic: str) -> bool:
        """Tell whether a topic is under the prefix, or Kafka could take it for one that is.

        Collisions go by metric name, and any client may come along: the whole prefix is taken.

        >>> Topics("hilcast").owns("hilcast_deliver.x"), Topics("hilcast").owns("orders")
        (True, False)
        """
        return metric_name(topic).startswith(metric_name(f"{self.prefix}."))

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


@dataclass(frozen=True)
class Kept:
    """How a topic is kept: what it is created with."""

    partitions: int
    settings: Mapping[str, str]


def needed(config: Config) -> dict[str, Kept]:
    """Every topic that must exist before the job starts; those of clients and groups come as they are wanted."""
    topics = config.topics
    inner = [topics.control, topics.receipts, topics.deadletter, topics.routed, topics.progress]
    links = [topics.link(a, b) for pair in config.overlay.links for a, b in (pair, pair[::-1])]
    kept = {name: _kept(config) for name in (topics.subscriptions, topics.advertisements)}
    kept |= {name: destination(config) for name in inner + links}
    kept[topics.registry] = _compacted(config, {"min.cleanable.dirty.ratio": "0.1"})
    if config.distribution:
        kept[topics.groups] = _compacted(config, {})
    kept[topics.publications] = _kept(config, partitions=PUBLICATION_PARTITIONS)
    return kept | {source.topic: _kept(config) for source in config.sources}


def destination(config: Config) -> Kept:
    """How a topic is kept that the job writes what came in to, with headers added: links, deliveries, sinks, groups."""
    return _kept(config, {"max.message.bytes": str(OUTPUT_BYTES_MAX)})


def published(config: Config) -> list[str]:
    """The topics by which publications enter the overlay."""
    return [config.topics.publications, *(source.topic for source in config.sources)]


def _kept(config: Config, settings: Mapping[str, str] | None = None, partitions: int = 1) -> Kept:
    retention = {"retention.ms": str(config.settings.delivery_retention_hours * 3_600_000)}
    return Kept(partitions, {"message.timestamp.type": "LogAppendTime", **retention, **(settings or {})})


def _compacted(config: Config, settings: Mapping[str, str]) -> Kept:
    retention = {"delete.retention.ms": str(config.settings.tombstone_hours * 3_600_000)}
    return Kept(1, {"message.timestamp.type": "LogAppendTime", **retention, "cleanup.policy": "compact", **settings})
