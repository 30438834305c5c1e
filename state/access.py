"""Who may do what in Kafka: the rights that a configuration implies, as Kafka's ACLs have them.

    configuration, clients ──> Grant(principal, topic | group | cluster, name, literal | prefixed, operation), ...

    who         writes                                   reads
    job         control, registry, receipts, links,      inboxes, sources, control, registry, groups, links,
                deliveries, groups, routed, progress,    what waits for a schema
                dead letters, granted sinks, what waits
    client      its own inboxes                          its own deliveries and receipts; group topics of its set
    operator    registry (`hilcast apply`)               everything under the prefix, sources, sinks

Nobody is granted anything by a prefix that ends inside a name: `deliver.bob` is not the beginning of `deliver.bobby`.
What is left out: deny rules, hosts, and the rights of producers of `[[sources]]` and of readers of sinks, which are
other people's topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from state.config import Config
from state.lanes import delivery_lanes
from state.topics import INBOXES, Topics

Resource = Literal["topic", "group", "cluster"]
Pattern = Literal["literal", "prefixed"]
Operation = Literal["read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs"]
CLUSTER = "kafka-cluster"
"""The name of the one resource of this kind."""
_LITERAL_HEAD = re.compile(r"((?:[A-Za-z0-9_-]|\\[.])+)\.[*+]")
"""A regular expression that means: whatever begins like this."""


class Grant(NamedTuple):
    """One right of one principal, from any host."""

    principal: str
    resource: Resource
    pattern: Pattern
    name: str
    operation: str
    """An `Operation`, or one of Kafka's that nobody is granted by us."""

    def covers(self, resource: Resource, name: str) -> bool:
        """Whether it is about this topic or group.

        >>> Grant("User:a", "topic", "prefixed", "hilcast.link.", "read").covers("topic", "hilcast.link.b1.b2")
        True
        """
        if self.resource != resource:
            return False
        return name.startswith(self.name) if self.pattern == "prefixed" else name == self.name


def grants(config: Config, clients: Iterable[str] = ()) -> list[Grant]:
    """All rights that the configuration implies, of these clients and of those that it names; sorted, none twice."""
    names = {*config.security.clients, *clients}
    found = {*_of_job(config)}
    for principal in config.security.operators:
        found.update(_of_operator(config, principal))
    for name in names:
        found.update(of_client(config, name))
    return sorted(found)


def clients_of(topics: Topics, existing: Iterable[str]) -> set[str]:
    """The clients that have an inbox of their own among these topics.

    >>> sorted(clients_of(Topics("p"), ["p.subscriptions.bob", "p.publications.eve", "p.deliver.zoe", "p.control"]))
    ['bob', 'eve']
    """
    return {found[1] for topic in existing if (found := topics.client_of(topic)) is not None}


def of_client(config: Config, client: str) -> list[Grant]:
    """The rights of one client."""
    topics, prefix = config.topics, config.deployment.prefix
    known = config.security.client(client)
    own = config.security.own
    inboxes = [topics.inbox(kind, client) if own else f"{prefix}.{kind}" for kind in INBOXES]
    receipts = topics.receipts_of(client) if own else topics.receipts
    give = _Giver(known.principal)
    give.topic(inboxes, "write")
    give.topic([topics.deliver(client), receipts], "read")
    # `hilcast wait` looks at how far the control queries are, and that is all it looks at
    give.topic([topics.control], "describe")
    give.group([f"{prefix}.control."], "describe", pattern="prefixed")
    give.group([f"{prefix}.reader", f"{prefix}.fence"], "describe")
    give.group([f"{prefix}.client.{client}"], "read")
    give.group([f"{prefix}.client.{client}."], "read", pattern="prefixed")
    if config.distribution:
        # those of its set, or of all who are in none
        shared = [f"{prefix}.set.{known.groups}."] if known.groups else [f"{prefix}.group.", f"{prefix}.broadcast."]
        give.topic([topics.groups], "read")
        give.topic(shared, "read", pattern="prefixed")
    return give.given


def unexpressed(config: Config) -> list[str]:
    """What the job needs and no ACL can say: lines for people."""
    lines = [
        f"sources like {pattern.pattern!r}: ACLs know no regular expressions; grant {config.security.job} read and "
        "describe on the topics that it matches"
        for pattern in config.patterns
        if _LITERAL_HEAD.fullmatch(pattern.pattern) is None
    ]
    if not config.sinks and not config.security.own:
        lines.append(
            f"sinks: none are listed, so that subscriptions may name any topic; grant {config.security.job} write on "
            "those that may be delivered to, or list them ([[sinks]])"
        )
    return lines


class _Giver:
    """Collects the rights of one principal."""

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.given: list[Grant] = []

    def topic(self, names: Iterable[str], *operations: Operation, pattern: Pattern = "literal") -> None:
        self._give("topic", names, operations, pattern)

    def lanes(self, config: Config) -> None:
        """Give topics the partitions that they lack."""
        prefix, publications = config.deployment.prefix, config.topics.publications
        heads = [f"{prefix}.{kind}." for kind in ("link", "group", "broadcast", "set")]
        if delivery_lanes(config) > 1:
            heads.append(config.topics.deliver(""))
        if config.security.own:
            heads.append(f"{publications}.")
        else:
            self.topic([publications], "alter")
        self.topic(heads, "alter", pattern="prefixed")

    def group(self, names: Iterable[str], *operations: Operation, pattern: Pattern = "literal") -> None:
        self._give("group", names, operations, pattern)

    def cluster(self, *operations: Operation) -> None:
        self._give("cluster", [CLUSTER], operations, "literal")

    def _give(
        self, resource: Resource, names: Iterable[str], operations: Iterable[Operation], pattern: Pattern
    ) -> None:
        # read and write imply describe in Kafka: it is not said again
        self.given += [
            Grant(self.principal, resource, pattern, name, operation) for name in names for operation in operations
        ]


def _of_job(config: Config) -> Iterator[Grant]:
    topics, prefix = config.topics, config.deployment.prefix
    give = _Giver(config.security.job)
    give.topic([f"{prefix}."], "create", "describe", "describe-configs", pattern="prefixed")
    own = config.security.own
    inboxes = [f"{prefix}.{kind}." if own else f"{prefix}.{kind}" for kind in INBOXES]
    give.topic(inboxes, "read", pattern="prefixed" if own else "literal")
    both = [topics.control, topics.registry, topics.groups]
    give.topic(both, "read", "write")
    asides = [f"{prefix}.waiting.", f"{prefix}.waited."] if config.schemas is not None else []
    give.topic([f"{prefix}.link.", *asides], "read", "write", pattern="prefixed")
    give.topic([topics.receipts, topics.deadletter, topics.routed, topics.progress], "write")
    written = [f"{prefix}.{kind}." for kind in ("receipts", "deliver", "group", "broadcast", "set")]
    give.topic(written, "write", pattern="prefixed")
    give.lanes(config)
    # those of clients that hold nothing any more are fenced, then removed
    give.topic([f"{prefix}.deliver."], "delete", "alter-configs", pattern="prefixed")
    give.group([f"{prefix}."], "read", pattern="prefixed")
    give.topic([source.topic for source in config.sources], "read", "create", "describe-configs")
    heads = [_LITERAL_HEAD.fullmatch(pattern.pattern) for pattern in config.patterns]
    give.topic([head[1].replace("\\", "") for head in heads if head is not None], "read", pattern="prefixed")
    give.topic([sink.topic for sink in config.sinks], "write", "create", "describe-configs")
    yield from give.given


def _of_operator(config: Config, principal: str) -> Iterator[Grant]:
    prefix = config.deployment.prefix
    give = _Giver(principal)
    give.topic([f"{prefix}."], "read", "create", "describe-configs", pattern="prefixed")
    give.topic([config.topics.registry], "write")
    give.lanes(config)
    give.group([f"{prefix}."], "describe", pattern="prefixed")
    give.topic([source.topic for source in config.sources], "read", "describe-configs")
    give.topic([sink.topic for sink in config.sinks], "read")
    give.cluster("describe")
    yield from give.given


# ── what is there, and what should be ───────────────────────────────────────────────────────────────────────────────


class Difference(NamedTuple):
    """What has to be granted, and what is granted beyond that to somebody in what is ours."""

    missing: list[Grant]
    surplus: list[Grant]


def compared(wanted: Iterable[Grant], there: Iterable[Grant], prefix: str) -> Difference:
    """Compare; of what is there only rights are looked at that reach into the prefix, or are of a principal of ours.

    >>> ours = Grant("User:a", "topic", "literal", "hilcast.control", "read")
    >>> wide = Grant("User:b", "topic", "literal", "*", "write")
    >>> compared([ours], [wide, Grant("User:c", "topic", "prefixed", "shop.", "read")], "hilcast").surplus == [wide]
    True
    """
    should, have = set(wanted), set(there)
    surplus = [grant for grant in have - should if reaches(grant, prefix)]
    return Difference(sorted(should - have), sorted(surplus))


def reaches(grant: Grant, prefix: str) -> bool:
    """Whether a right is about something under the prefix, or could be."""
    if grant.resource == "cluster":
        return False
    if grant.pattern == "prefixed":
        return grant.name.startswith(f"{prefix}.") or f"{prefix}.".startswith(grant.name)
    return grant.name == "*" or grant.name.startswith(f"{prefix}.")
