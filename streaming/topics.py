"""Topics: which ones the configuration needs, how each is kept, and making sure that they exist.

One partition where order matters to us (inboxes, control, registry, links, deliveries); log-append time everywhere,
since time to live and `verify` are judged by the broker's clock. The registry alone is compacted: it is the truth.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from infra.kafka.settings import librdkafka
from state.config import Config
from state.errors import HilcastError
from state.limits import HEADROOM_BYTES, INPUT_BYTES_MAX

PUBLICATION_PARTITIONS = 2
_OUTPUT_BYTES = str(INPUT_BYTES_MAX + HEADROOM_BYTES)


def needed(config: Config) -> dict[str, NewTopic]:
    """Every topic that the configuration needs before the job starts, with its settings."""
    topics = config.topics
    plain = [topics.subscriptions, topics.advertisements]
    inner = [topics.control, topics.receipts, topics.deadletter, topics.routed, topics.progress]
    links = [topics.link(a, b) for pair in config.overlay.links for a, b in (pair, pair[::-1])]
    made = {name: _topic(config, name, 1, {}) for name in plain}
    made |= {name: _topic(config, name, 1, {"max.message.bytes": _OUTPUT_BYTES}) for name in inner + links}
    made[topics.registry] = _topic(
        config, topics.registry, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    )
    if config.distribution:
        made[topics.groups] = _topic(config, topics.groups, 1, {"cleanup.policy": "compact"})
    made[topics.publications] = _topic(config, topics.publications, PUBLICATION_PARTITIONS, {})
    made |= {source.topic: _topic(config, source.topic, 1, {}) for source in config.sources}
    return made


def destination(config: Config, name: str) -> NewTopic:
    """A delivery, sink or group topic."""
    return _topic(config, name, 1, {"max.message.bytes": _OUTPUT_BYTES})


def _topic(config: Config, name: str, partitions: int, settings: dict[str, str]) -> NewTopic:
    retention = {"retention.ms": str(config.settings.delivery_retention_hours * 3_600_000)}
    if settings.get("cleanup.policy") == "compact":
        retention = {"delete.retention.ms": str(config.settings.tombstone_hours * 3_600_000)}
    return NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=-1,
        config={"message.timestamp.type": "LogAppendTime", **retention, **settings},
    )


class TopicKeeper:
    """Makes sure that topics exist; remembers those that it has seen."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.admin = AdminClient(librdkafka(config))
        self._seen: set[str] = set()

    def existing(self, timeout_s: float = 10.0) -> set[str]:
        """Names of all topics of the cluster."""
        return set(self.admin.list_topics(timeout=timeout_s).topics)

    def ensure(self, names: Iterable[str]) -> None:
        """Return once these delivery topics exist, creating those that do not."""
        wanted = [name for name in sorted(set(names)) if name not in self._seen]
        if wanted:
            self.create({name: destination(self.config, name) for name in wanted})
            self._seen.update(wanted)

    def recreate(self, names: Iterable[str]) -> list[str]:
        """Create the delivery topics among these that are missing; return them."""
        return self.create({name: destination(self.config, name) for name in names})

    def create(self, topics: dict[str, NewTopic], timeout_s: float = 60.0) -> list[str]:
        """Create what is missing and wait until the cluster shows it; return what was created."""
        missing = sorted(set(topics) - self.existing())
        if not missing:
            return []
        futures = self.admin.create_topics([topics[name] for name in missing], request_timeout=30.0)
        for name, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise HilcastError("kafka-topic", f"cannot create topic {name!r}: {error.args[0].str()}") from error
        deadline = time.monotonic() + timeout_s
        while not set(missing) <= self.existing():
            if time.monotonic() > deadline:
                raise HilcastError("kafka-topic", f"topics did not appear: {', '.join(missing[:5])}")
            time.sleep(0.05)
        return missing

    def ensure_needed(self) -> list[str]:
        """Create the topics that the configuration needs."""
        return self.create(needed(self.config))
