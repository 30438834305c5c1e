"""Kafka topics: their names, which ones a configuration needs, and how each is kept.

One partition where order matters to us (inboxes, control, registry); as many as there are lanes (`lanes.py`) of
publications and, where that is set, of links, shared topics and deliveries; log-append time everywhere, since time to
live and `verify` are judged by the broker's clock. What is the truth is compacted: the registry, and the spans of
groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from state.lanes import delivery_lanes, publication_lanes, shared_lanes
from state.limits import OUTPUT_BYTES_MAX
from state.names import NAME

if TYPE_CHECKING:
    from state.config import Config

Inbox = Literal["subscriptions", "advertisements", "publications"]
INBOXES: tuple[Inbox, ...] = ("subscriptions", "advertisements", "publications")
"""What a client writes to: shared topics of these names, or one of each for every client."""


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

    def waiting(self, deployment: str) -> str:
        """Events that wait for their schema; `waited`: those that have done so."""
        return f"{self.prefix}.waiting.{deployment}"

    def waited(self, deployment: str) -> str:
        return f"{self.prefix}.waited.{deployment}"

    def link(self, origin: str, target: str) -> str:
        return f"{self.prefix}.link.{origin}.{target}"

    def deliver(self, client: str) -> str:
        return f"{self.prefix}.deliver.{client}"

    def inbox(self, kind: Inbox, client: str) -> str:
        return f"{self.prefix}.{kind}.{client}"

    def receipts_of(self, client: str) -> str:
        return f"{self.prefix}.receipts.{client}"

    def client_of(self, topic: str) -> tuple[Inbox, str] | None:
        """Whose inbox a topic is, and which one; None if it is nobody's own.

        >>> topics = Topics("hilcast")
        >>> topics.client_of("hilcast.subscriptions.alice"), topics.client_of("hilcast.subscriptions")
        (('subscriptions', 'alice'), None)
        """
        head, _, client = topic.rpartition(".")
        kind = head.removeprefix(f"{self.prefix}.")
        if kind == head or kind not in INBOXES or not NAME.fullmatch(client):
            return None
        return kind, client

    def group(self, broker: str, number: int, set: str | None = None) -> str:
        """The topic of a group, of clients of one set only where they have sets.

        >>> Topics("hilcast").group("b1", 3, "team-a")
        'hilcast.set.team-a.group.b1.3'
        """
        return f"{self._of_set(set)}.group.{broker}.{number}"

    def broadcast(self, broker: str, set: str | None = None) -> str:
        return f"{self._of_set(set)}.broadcast.{broker}"

    def _of_set(self, set: str | None) -> str:
        return self.prefix if set is None else f"{self.prefix}.set.{set}"


def metric_name(topic: str) -> str:
    """What Kafka compares when it refuses a topic: in its metric names `.` becomes `_`, so both are one."""
    return topic.replace(".", "_")


@dataclass(frozen=True)
class Kept:
    """How a topic is kept: what it is created with."""

    partitions: int
    settings: Mapping[str, str]
    lanes: bool = False
    """Whether it may have more partitions than that, and is given those that it lacks: each is read by itself."""
    most: bool = False
    """Whether it is worth saying that it has more."""


def needed(config: Config) -> dict[str, Kept]:
    """Every topic that must exist before the job starts; those of clients and groups come as they are wanted."""
    topics = config.topics
    inner = [topics.control, topics.receipts, topics.deadletter, topics.routed, topics.progress]
    links = [topics.link(a, b) for pair in config.overlay.links for a, b in (pair, pair[::-1])]
    shared = () if config.security.own else (topics.subscriptions, topics.advertisements)
    kept = {name: _kept(config) for name in shared}
    kept |= {name: destination(config, name) for name in [*inner, *links, *asides(config)]}
    kept[topics.registry] = _compacted(config, {"min.cleanable.dirty.ratio": "0.1"})
    if config.distribution:
        kept[topics.groups] = _compacted(config, {})
    if not config.security.own:
        kept[topics.publications] = inbox(config, "publications")
    return kept | {source.topic: _kept(config) for source in config.sources}


def asides(config: Config) -> list[str]:
    """The topics of this deployment for events that wait for a schema, and have waited; none without a registry."""
    if config.schemas is None:
        return []
    return [config.topics.waiting(config.deployment.name), config.topics.waited(config.deployment.name)]


def inbox(config: Config, kind: Inbox) -> Kept:
    """How a client's own inbox is kept."""
    if kind != "publications":
        return _kept(config)
    is_set = config.settings.partitions is not None
    return replace(_kept(config), partitions=publication_lanes(config), lanes=True, most=is_set)


def of_client(config: Config, client: str) -> dict[str, Kept]:
    """The topics of a client that has inboxes of its own: what it writes to, and where it is answered and served.

    >>> from state.config import parse
    >>> config = parse('[overlay]\\nbrokers = ["b1"]\\n[types.t.attributes]\\nx = { kind = "int" }')
    >>> sorted(of_client(config, "bob"))[:3]
    ['hilcast.advertisements.bob', 'hilcast.deliver.bob', 'hilcast.publications.bob']
    """
    topics = config.topics
    kept = {topics.inbox(kind, client): inbox(config, kind) for kind in INBOXES}
    return kept | {name: destination(config, name) for name in (topics.receipts_of(client), topics.deliver(client))}


def destination(config: Config, topic: str) -> Kept:
    """How a topic is kept that the job writes what came in to, with headers added: links, deliveries, sinks, groups."""
    kept = _kept(config, {"max.message.bytes": str(OUTPUT_BYTES_MAX)})
    if topic.startswith(config.topics.deliver("")):
        return replace(kept, partitions=delivery_lanes(config), lanes=True)
    heads = tuple(f"{config.deployment.prefix}.{kind}." for kind in ("link", "group", "broadcast", "set"))
    return replace(kept, partitions=shared_lanes(config), lanes=True, most=True) if topic.startswith(heads) else kept


def published(config: Config) -> list[str]:
    """The topics by which publications enter the overlay; of clients' own those that are known to exist."""
    entered = _own(config, "publications") if config.security.own else [config.topics.publications]
    return [*entered, *(source.topic for source in config.sources)]


def inboxes(config: Config) -> list[str]:
    """The topics by which registrations come in; of clients' own those that are known to exist."""
    if config.security.own:
        return [*_own(config, "subscriptions"), *_own(config, "advertisements")]
    return [config.topics.subscriptions, config.topics.advertisements]


def _own(config: Config, kind: Inbox) -> list[str]:
    """Clients' own inboxes of one kind."""
    return [topic for topic in config.inbox_topics if (config.topics.client_of(topic) or ("", ""))[0] == kind]


def guarded(config: Config) -> list[str]:
    """The topics that nobody may lose unnoticed: what comes in, and what is the truth.

    An empty one in place of a lost one would hide the loss; and its offsets begin anew, so that what comes in would be
    taken for known. All others hold what the job has written, and are made again.
    """
    topics = config.topics
    # a client's own inbox is its own to lose: whoever reads it goes by its id (`streaming/inbox_source.py`)
    shared = [source.topic for source in config.sources]
    shared += [] if config.security.own else [*inboxes(config), topics.publications]
    kept = [topics.registry, topics.control, *shared, *asides(config)]
    return [*kept, topics.groups] if config.distribution else kept


# ── topics that somebody else made ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Found:
    """How a topic is kept in fact."""

    id: str
    partitions: int
    replication: int
    settings: Mapping[str, str]
    """What is not there is not known."""


@dataclass(frozen=True)
class Fault:
    """A topic that is not as it must be, or ought to be."""

    topic: str
    what: str
    mend: str
    """The command that mends it."""
    fatal: bool = True
    """Whether a promise is broken by it."""

    def __str__(self) -> str:
        return f"{self.topic}: {self.what}; mend it: {self.mend}"


def faults(config: Config, found: Mapping[str, Found], nodes: int) -> list[Fault]:
    """What is wrong with those of the needed topics that exist, on a cluster of so many nodes.

    Topics of `[[sources]]` are their producers' own, and may be kept as they like.

    >>> from state.config import parse
    >>> config = parse('[overlay]\\nbrokers = ["b1"]\\n[types.t.attributes]\\nx = { kind = "int" }')
    >>> seen = {"hilcast.registry": Found("id", 1, 1, {"cleanup.policy": "delete"})}
    >>> [(fault.topic, fault.what) for fault in faults(config, seen, 1)]
    [('hilcast.registry', 'cleanup.policy is delete, and must be compact')]
    """
    theirs = {source.topic for source in config.sources}
    asked = needed(config) | {name: inbox(config, kind) for name, kind in _inbox_kinds(config).items()}
    return [
        fault
        for name, kept in asked.items()
        if name in found and name not in theirs
        for fault in _faults(config.deployment.kafka, name, kept, found[name], nodes)
    ]


def _inbox_kinds(config: Config) -> dict[str, Inbox]:
    """Clients' own inboxes, and which each is."""
    return {topic: of[0] for topic in config.inbox_topics if (of := config.topics.client_of(topic)) is not None}


def unfit(found: Found) -> str | None:
    """Why a topic that somebody else made cannot be a destination; None if it can.

    >>> unfit(Found("id", 1, 1, {"cleanup.policy": "compact"}))
    'it is compacted (cleanup.policy=compact), and deliveries need no key'
    """
    policy = found.settings.get("cleanup.policy", "delete")
    if "compact" in policy:
        return f"it is compacted (cleanup.policy={policy}), and deliveries need no key"
    size = int(found.settings.get("max.message.bytes", OUTPUT_BYTES_MAX))
    if size < OUTPUT_BYTES_MAX:
        return f"max.message.bytes is {size}, and a delivery may take {OUTPUT_BYTES_MAX}"
    return None


def _faults(kafka: str, topic: str, kept: Kept, found: Found, nodes: int) -> Iterator[Fault]:
    tool = f"--bootstrap-server {kafka}"

    def setting(name: str, wanted: str) -> Fault:
        mend = f"kafka-configs.sh {tool} --alter --topic {topic} --add-config {name}={wanted}"
        return Fault(topic, f"{name} is {found.settings[name]}, and must be {wanted}", mend)

    if not kept.lanes and kept.partitions == 1 and found.partitions != 1:
        mend = f"save what it holds, then kafka-topics.sh {tool} --delete --topic {topic} and hilcast topics"
        yield Fault(topic, f"it has {found.partitions} partitions, and must have 1", mend)
    if kept.lanes and found.partitions < kept.partitions:
        mend = f"kafka-topics.sh {tool} --alter --topic {topic} --partitions {kept.partitions}, or hilcast topics"
        yield Fault(topic, f"it has {found.partitions} of {kept.partitions} partitions", mend, fatal=False)
    if kept.most and found.partitions > kept.partitions:
        mend = f"nothing is lost; to have fewer, empty it, then kafka-topics.sh {tool} --delete --topic {topic}"
        what = f"it has {found.partitions} partitions, {kept.partitions} are set: Kafka takes none away, all are read"
        yield Fault(topic, what, mend, fatal=False)
    policy = kept.settings.get("cleanup.policy", "delete")
    actual = found.settings.get("cleanup.policy", policy)
    if actual != policy and (policy == "compact" or "compact" in actual):
        yield setting("cleanup.policy", policy)
    stamp = "message.timestamp.type"
    if found.settings.get(stamp, kept.settings[stamp]) != kept.settings[stamp]:
        yield setting(stamp, kept.settings[stamp])
    limit = "max.message.bytes"
    if int(found.settings.get(limit, OUTPUT_BYTES_MAX)) < int(kept.settings.get(limit, "0")):
        yield setting(limit, kept.settings[limit])
    least = int(found.settings.get("min.insync.replicas", "1"))
    if least > found.replication:
        mend = f"kafka-configs.sh {tool} --alter --topic {topic} --add-config min.insync.replicas={found.replication}"
        yield Fault(topic, f"nothing can be written: min.insync.replicas {least}, replicas {found.replication}", mend)
    if nodes >= 3 and found.replication == 1:
        mend = f"kafka-reassign-partitions.sh {tool} with 3 replicas for {topic}"
        yield Fault(topic, f"one copy on a cluster of {nodes} nodes: it is lost with its node", mend, fatal=False)


def _kept(config: Config, settings: Mapping[str, str] | None = None) -> Kept:
    retention = {"retention.ms": str(config.settings.delivery_retention_hours * 3_600_000)}
    return Kept(1, {"message.timestamp.type": "LogAppendTime", **retention, **(settings or {})})


def _compacted(config: Config, settings: Mapping[str, str]) -> Kept:
    retention = {"delete.retention.ms": str(config.settings.tombstone_hours * 3_600_000)}
    return Kept(1, {"message.timestamp.type": "LogAppendTime", **retention, "cleanup.policy": "compact", **settings})
