"""Topics that must exist, those of the configuration (`state/topics.py`) and those of clients; how they are kept."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from infra.kafka.dialects import librdkafka
from infra.kafka.transport import away
from state.config import Config
from state.errors import HilcastError
from state.topics import Fault, Found, Kept, destination, faults, needed, unfit

_REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,  # no name for a topic, or one that Kafka cannot tell from another
    KafkaError.POLICY_VIOLATION,
)
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


class RefusedError(HilcastError):
    """A topic that Kafka will not let us create, however often we ask."""


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

    def ensure(self, names: Iterable[str]) -> dict[str, str]:
        """Return once these delivery topics exist, creating those that do not; of what Kafka refuses, the reasons."""
        wanted = [name for name in sorted(set(names)) if name not in self._seen]
        _, refused = self.recreate(wanted) if wanted else ([], {})
        self._seen.update(set(wanted) - set(refused))
        return refused

    def recreate(self, names: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Create the delivery topics among these that are missing; what was created, and why some cannot be."""
        refused: dict[str, str] = {}
        return self.create(dict.fromkeys(names, destination(self.config)), refused=refused), refused

    def create(
        self, topics: Mapping[str, Kept], timeout_s: float = 60.0, refused: dict[str, str] | None = None
    ) -> list[str]:
        """Create what is missing and wait until the cluster shows it; return what was created.

        `refused` takes the reasons for what Kafka will not let us create; without it, that raises `RefusedError`.
        """
        missing = sorted(set(topics) - self.existing())
        if not missing:
            return []
        self._create({name: topics[name] for name in missing}, refused=refused)
        missing = [name for name in missing if name not in (refused or {})]
        deadline = time.monotonic() + timeout_s
        while not set(missing) <= self.existing():
            if time.monotonic() > deadline:
                raise HilcastError("kafka-topic", f"topics did not appear: {', '.join(missing[:5])}")
            time.sleep(0.05)
        return missing

    def rehearse(self, name: str) -> None:
        """Find out whether this delivery topic could be created; `RefusedError` if not."""
        self._create({name: destination(self.config)}, rehearse=True)

    def _create(
        self, topics: Mapping[str, Kept], *, rehearse: bool = False, refused: dict[str, str] | None = None
    ) -> None:
        new = [_new(name, kept) for name, kept in topics.items()]
        for name, future in self.admin.create_topics(new, request_timeout=30.0, validate_only=rehearse).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                reason = f"cannot create topic {name!r}: {error.args[0].str()}"
                if error.args[0].code() not in _REFUSED:
                    raise HilcastError("kafka-topic", reason) from error
                if refused is None:
                    raise RefusedError("kafka-topic", reason) from error
                refused[name] = reason

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics; one that is not there any more is no error."""
        asked = sorted(names)
        for name, future in self.admin.delete_topics(asked, request_timeout=30.0).items() if asked else ():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise HilcastError("kafka-topic", f"cannot delete {name!r}: {error.args[0].str()}") from error
        self._seen -= set(asked)

    def ensure_needed(self, but: Iterable[str] = (), config: Config | None = None) -> list[str]:
        """Create the topics that this configuration, or the keeper's own, needs, but these."""
        left = set(but)
        return self.create({name: kept for name, kept in needed(config or self.config).items() if name not in left})

    # ── how they are kept ───────────────────────────────────────────────────────────────────────────────────────

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Kafka's id of each of these topics that exists: one that is deleted and made again has another."""
        return {name: str(found.topic_id) for name, found in self._described(names).items()}

    def found(self, names: Iterable[str]) -> dict[str, Found]:
        """How each of these topics is kept that exists."""
        described = self._described(names)
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in described]
        settings: dict[str, dict[str, str]] = {}
        for resource, future in (
            self.admin.describe_configs(resources, request_timeout=30.0).items() if resources else ()
        ):
            try:
                entries = future.result().values()
                settings[resource.name] = {entry.name: entry.value for entry in entries if entry.value is not None}
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise away(self.config.deployment.kafka, error.args[0].str()) from error
        return {
            name: Found(
                str(topic.topic_id),
                len(topic.partitions),
                min((len(partition.replicas) for partition in topic.partitions), default=0),
                settings.get(name, {}),
            )
            for name, topic in described.items()
        }

    def unfit(self, names: Iterable[str], unseen: str | None = None) -> dict[str, str]:
        """Those of these topics that nothing can be delivered to, with the reason.

        `unseen`: the reason for what does not exist, or is not shown to us; None: that is left out.
        """
        asked = set(names)
        described = self._described(asked, operations=True)
        found = self.found(described)
        reasons = {} if unseen is None else dict.fromkeys(sorted(asked - set(described)), unseen)
        for name, topic in described.items():
            allowed = topic.authorized_operations
            # without an authorizer Kafka lists everything; where it lists nothing, it does not say
            writable = allowed is None or AclOperation.WRITE in allowed or AclOperation.ALL in allowed
            reason = unfit(found[name]) if name in found else None
            if reason is not None or not writable:
                reasons[name] = reason or "the job may not write to it"
        return reasons

    def faults(self) -> list[Fault]:
        """What is wrong with the topics that exist of those that the configuration needs."""
        nodes = len(self.admin.list_topics(timeout=10.0).brokers)
        return faults(self.config, self.found([*needed(self.config), *self.config.inbox_topics]), nodes)

    def held_back(self, names: Iterable[str]) -> dict[tuple[str, int], int]:
        """Partitions of these topics that nobody can read to the end, because a transaction is open; from which offset.

        Who reads what is committed, as the job does, gets nothing behind it until it is ended or Kafka aborts it.
        """
        described = self._described(names)
        asked = {
            TopicPartition(name, partition.id): OffsetSpec.latest()
            for name, topic in described.items()
            for partition in topic.partitions
        }
        if not asked:
            return {}
        levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        # the stable end is asked for first: what is committed meanwhile must not pass for open
        stable, ends = (self._ends(asked, level) for level in levels)
        return {place: offset for place, offset in stable.items() if offset < ends.get(place, offset)}

    def _ends(
        self, asked: Mapping[TopicPartition, OffsetSpec], isolation_level: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        answers = self.admin.list_offsets(dict(asked), isolation_level=isolation_level, request_timeout=30.0)
        return {(place.topic, place.partition): int(future.result().offset) for place, future in answers.items()}

    def _described(self, names: Iterable[str], *, operations: bool = False) -> dict[str, TopicDescription]:
        asked = sorted(set(names))
        if not asked:
            return {}
        answers = self.admin.describe_topics(
            TopicCollection(asked), request_timeout=30.0, include_authorized_operations=operations
        )
        described = {}
        for name, future in answers.items():
            try:
                described[name] = future.result()
            except KafkaException as error:
                if error.args[0].code() not in _ABSENT:
                    raise away(self.config.deployment.kafka, error.args[0].str()) from error
        return described


def _new(name: str, kept: Kept) -> NewTopic:
    return NewTopic(name, num_partitions=kept.partitions, replication_factor=-1, config=dict(kept.settings))
