"""Making sure that topics exist: those that the configuration needs (`state/topics.py`), and those of clients."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from infra.kafka.dialects import librdkafka
from infra.kafka.transport import away
from state.config import Config
from state.errors import HilcastError
from state.topics import Kept, destination, needed


class TopicKeeper:
    """Makes sure that topics exist; remembers those that it has seen."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.admin = AdminClient(librdkafka(config))
        self._seen: set[str] = set()

    def existing(self, timeout_s: float = 10.0) -> set[str]:
        """Names of all topics of the cluster."""
        try:
            return set(self.admin.list_topics(timeout=timeout_s).topics)
        except KafkaException as error:
            raise away(self.config.deployment.kafka, error.args[0].str()) from error
        finally:
            self.admin.poll(0)  # lets librdkafka's own lines out

    def ensure(self, names: Iterable[str]) -> None:
        """Return once these delivery topics exist, creating those that do not."""
        wanted = [name for name in sorted(set(names)) if name not in self._seen]
        if wanted:
            self.create(dict.fromkeys(wanted, destination(self.config)))
            self._seen.update(wanted)

    def recreate(self, names: Iterable[str]) -> list[str]:
        """Create the delivery topics among these that are missing; return them."""
        return self.create(dict.fromkeys(names, destination(self.config)))

    def create(self, topics: Mapping[str, Kept], timeout_s: float = 60.0) -> list[str]:
        """Create what is missing and wait until the cluster shows it; return what was created."""
        missing = sorted(set(topics) - self.existing())
        if not missing:
            return []
        futures = self.admin.create_topics([_new(name, topics[name]) for name in missing], request_timeout=30.0)
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

    def ensure_needed(self, config: Config | None = None) -> list[str]:
        """Create the topics that this configuration needs; without one, the keeper's own."""
        return self.create(needed(config or self.config))


def _new(name: str, kept: Kept) -> NewTopic:
    return NewTopic(name, num_partitions=kept.partitions, replication_factor=-1, config=dict(kept.settings))
