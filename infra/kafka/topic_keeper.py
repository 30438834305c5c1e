"""Topics that must exist, those of the configuration (`state/topics.py`) and those of clients; how they are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from infra.kafka.dialects import librdkafka
from infra.kafka.transport import away
from infra.logs import logger
from state.config import Config
from state.errors import HilcastError
from state.lanes import delivery_lanes
from state.topics import Fault, Found, Kept, destination, faults, inbox, needed, unfit

_REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,  # no name for a topic, or one that Kafka cannot tell from another
    KafkaError.POLICY_VIOLATION,
)
FENCE = "min.insync.replicas"
FENCED = "32767"
"""More than there are replicas: Kafka takes nothing into the topic from who wants all of them to have it."""
SAID_MAX = 20
"""Topics that are named in one go."""
_log = logger("topics")
Asked = TypeVar("Asked")
CHANGED_MAX = 500
"""Topics that are made, given partitions or deleted by one request: Kafka refuses one that would write more than 10,000
records, of which a topic with its settings is six and more, and a long one outlasts its time limit."""
NAMED_MAX = 2000
"""Topics that are asked for by name; of more, all that there are cost less."""
_ABSENT = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,  # no name for a topic: whoever would create it is told
)


class RefusedError(HilcastError):
    """A topic that Kafka will not let us create, however often we ask."""


class TopicKeeper:
    """Makes sure that topics exist; remembers those that it has seen."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.admin = AdminClient(librdkafka(config))
        self._seen: set[str] = set()
        self._unfenced: dict[str, str] = {}
        """Of fenced topics that had a value of their own there: that value."""

    def existing(self, timeout_s: float = 10.0) -> set[str]:
        """Names of all topics of the cluster."""
        return set(self.partitions(timeout_s))

    def partitions(self, timeout_s: float = 10.0, names: Collection[str] | None = None) -> dict[str, int]:
        """By topic of the cluster, or by those of these names that exist: how many partitions it has.

        Cost: all topics of the cluster are told, unless it is asked for at most NAMED_MAX.
        """
        if names is not None and len(names) <= NAMED_MAX:
            return {name: len(found.partitions) for name, found in self._described(names).items()}
        try:
            topics = self.admin.list_topics(timeout=timeout_s).topics
            return {name: len(found.partitions) for name, found in topics.items()}
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
        return self.create({name: destination(self.config, name) for name in names}, refused=refused), refused

    def create(
        self, topics: Mapping[str, Kept], timeout_s: float = 60.0, refused: dict[str, str] | None = None
    ) -> list[str]:
        """Create what is missing, with all its lanes, and wait until the cluster shows it; return what was created.

        `refused` takes the reasons for what Kafka will not let us create; without it, that raises `RefusedError`.
        """
        there = self.partitions(names=topics)
        missing = sorted(set(topics) - set(there))
        lanes = {n: k.partitions for n, k in topics.items() if k.lanes and n in there and there[n] < k.partitions}
        if not missing and not lanes:
            return []
        self._create({name: topics[name] for name in missing}, refused=refused)
        self._grow(lanes, refused)
        missing = [name for name in missing if name not in (refused or {})]
        self._until_shown({**dict.fromkeys(missing, 1), **lanes}, timeout_s)
        return missing

    def _until_shown(self, wanted: Mapping[str, int], timeout_s: float) -> None:
        """Return once the cluster shows these topics with so many partitions each."""
        deadline, late = time.monotonic() + timeout_s, list(wanted)
        while late := [name for name, there in self._shown(late).items() if there < wanted[name]]:
            if time.monotonic() > deadline:
                raise HilcastError("kafka-topic", f"topics did not appear: {', '.join(late[:5])}")
            time.sleep(0.05)

    def _shown(self, names: Collection[str]) -> dict[str, int]:
        there = self.partitions(names=names)
        return {name: there.get(name, 0) for name in names}

    def _grow(self, lanes: dict[str, int], refused: dict[str, str] | None) -> None:
        """Give topics that have fewer so many partitions; what they hold stays where it is.

        Where Kafka does not let us, publications stay in fewer lanes, and that is said: it is taken out of `lanes`. Any
        other must have as many as are written to: that is a reason in `refused`, or without it a `RefusedError`.
        """
        asked, grown = [NewPartitions(name, n) for name, n in sorted(lanes.items())], list[str]()
        for name, future in _in_parts(asked, lambda some: self.admin.create_partitions(some, request_timeout=30.0)):
            try:
                future.result()
                grown.append(name)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.INVALID_PARTITIONS:
                    continue  # somebody else was first; whether it has enough now is looked at next
                reason = f"cannot give topic {name!r} {lanes[name]} partitions: {error.args[0].str()}"
                if error.args[0].code() not in _REFUSED:
                    raise HilcastError("kafka-topic", reason) from error
                if name.startswith(self.config.topics.publications):
                    _log.warning("%s", reason)
                elif refused is None:
                    raise RefusedError("kafka-topic", reason) from error
                else:
                    refused[name] = reason
                del lanes[name]
        for name in grown[:SAID_MAX]:
            _log.info("%s has %d partitions now", name, lanes[name])
        if len(grown) > SAID_MAX:
            _log.info("%d topics more have what they lacked of them", len(grown) - SAID_MAX)

    def rehearse(self, name: str) -> None:
        """Find out whether this delivery topic could be created; `RefusedError` if not."""
        self._create({name: destination(self.config, name)}, rehearse=True)

    def _create(
        self, topics: Mapping[str, Kept], *, rehearse: bool = False, refused: dict[str, str] | None = None
    ) -> None:
        new = [_new(name, kept) for name, kept in topics.items()]

        def make(some: list[NewTopic]) -> Mapping[str, Future[None]]:
            return self.admin.create_topics(some, request_timeout=30.0, validate_only=rehearse)

        for name, future in _in_parts(new, make):
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
        for name, future in _in_parts(asked, lambda some: self.admin.delete_topics(some, request_timeout=30.0)):
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise HilcastError("kafka-topic", f"cannot delete {name!r}: {error.args[0].str()}") from error
        self._seen -= set(asked)

    def ensure_needed(self, but: Iterable[str] = (), config: Config | None = None, *, own: bool = True) -> list[str]:
        """Create the topics that this configuration, or the keeper's own, needs, but these; return what was created.

        Those that have lanes are given what they lack of them; unless it is left out, clients' `own` topics too.
        """
        left, config = set(but), config or self.config
        grown = self._own(config) if own else {}
        return self.create({name: kept for name, kept in {**needed(config), **grown}.items() if name not in left})

    def _own(self, config: Config) -> dict[str, Kept]:
        """The topics that clients have, each for itself, and that may have several partitions by this configuration."""
        heads = []
        if config.security.own:
            heads.append(f"{config.topics.publications}.")
        if delivery_lanes(config) > 1:
            heads.append(config.topics.deliver(""))
        found = [topic for topic in self.existing() if topic.startswith(tuple(heads))] if heads else []
        publications = inbox(config, "publications")
        return {t: publications if config.topics.client_of(t) else destination(config, t) for t in found}

    # ── how they are kept ───────────────────────────────────────────────────────────────────────────────────────

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Kafka's id of each of these topics that exists: one that is deleted and made again has another."""
        return {name: str(found.topic_id) for name, found in self._described(names).items()}

    def found(self, names: Iterable[str]) -> dict[str, Found]:
        """How each of these topics is kept that exists."""
        described = self._described(names)
        settings = {
            name: {entry.name: entry.value for entry in entries.values() if entry.value is not None}
            for name, entries in self._settings(described).items()
        }
        return {
            name: Found(
                str(topic.topic_id),
                len(topic.partitions),
                min((len(partition.replicas) for partition in topic.partitions), default=0),
                settings.get(name, {}),
            )
            for name, topic in described.items()
        }

    # ── fences ──────────────────────────────────────────────────────────────────────────────────────────────────

    def fenced(self, names: Iterable[str]) -> set[str]:
        """Which of these topics take nothing now."""
        return {name for name, entry in self._fences(names).items() if entry.value == FENCED}

    def fence(self, names: Collection[str]) -> None:
        """Have Kafka take nothing into these topics: writers wait."""
        for name, entry in self._fences(names).items():
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value and entry.value != FENCED:
                self._unfenced[name] = str(entry.value)
        self._alter(dict.fromkeys(names, FENCED))

    def lift(self, names: Collection[str]) -> None:
        """Have Kafka take again what is written to these topics."""
        self._alter({name: self._unfenced.pop(name, None) for name in names})

    def _fences(self, names: Iterable[str]) -> dict[str, ConfigEntry]:
        return {name: entries[FENCE] for name, entries in self._settings(names).items() if FENCE in entries}

    def _settings(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        """What Kafka says of how these topics are kept, as far as they exist and it says anything."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        answers = self.admin.describe_configs(resources, request_timeout=30.0) if resources else {}
        settings = {}
        for resource, future in answers.items():
            try:
                settings[resource.name] = future.result()
            except KafkaException as error:
                if error.args[0].code() not in _ABSENT:
                    raise away(self.config.deployment.kafka, error.args[0].str()) from error
        return settings

    def _alter(self, values: Mapping[str, str | None]) -> None:
        """Set the fence of each topic, or leave it to the cluster (None); one that is not there is no error."""
        resources = []
        for name, value in sorted(values.items()):
            kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            entry = ConfigEntry(FENCE, value, incremental_operation=kind)
            resources.append(ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry]))
        answers = self.admin.incremental_alter_configs(resources, request_timeout=30.0) if resources else {}
        for resource, future in answers.items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    reason = f"cannot set {FENCE} of {resource.name!r}: {error.args[0].str()}"
                    raise HilcastError("kafka-topic", reason) from error

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
        found = faults(self.config, self.found([*needed(self.config), *self.config.inbox_topics]), nodes)
        wanted, head = delivery_lanes(self.config), self.config.topics.deliver("")
        there = self.partitions() if wanted > 1 else {}
        narrow = sorted(name for name, n in there.items() if name.startswith(head) and n < wanted)
        if narrow:
            what = f"of topics such as this, {len(narrow)} have less than {wanted} partitions"
            found.append(Fault(narrow[0], what, "hilcast topics", fatal=False))
        return found

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


def _in_parts(
    asked: list[Asked], ask: Callable[[list[Asked]], Mapping[str, Future[None]]]
) -> Iterator[tuple[str, Future[None]]]:
    """Ask for some at once, and for the next when these are answered."""
    for first in range(0, len(asked), CHANGED_MAX):
        yield from ask(asked[first : first + CHANGED_MAX]).items()


def _new(name: str, kept: Kept) -> NewTopic:
    return NewTopic(name, num_partitions=kept.partitions, replication_factor=-1, config=dict(kept.settings))
