"""What `hilcast.toml` says of who may do what: inboxes, principals, sinks, limits, where the signing key is.

    [security]                            [[sinks]]                          [limits]
    inboxes = "own"                       topic = "alerts.eu"                subscriptions = 1000
    [security.clients.alice]              clients = ["alice"]                [limits.clients.alice]
    sources = ["urn:shop", "urn:shop/*"]                                     subscriptions = 5000

Kafka does not tell a reader who wrote a record. With `inboxes = "own"` a record speaks for the client whose topic it is
in, and Kafka's ACLs decide who may write there. Without any of these tables nothing of it is looked at.
Left out: the keys themselves (`[signing]` holds paths), and the ACLs, which follow from what is here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal, cast

from state.filters.checking import PREDICATES_MAX
from state.names import NAME, TOPIC_NAME
from state.tables import Table, boolean, choice, fraction, integer, list_of, named, shown, text
from state.tables import table as a_table

JOB = "User:hilcast"
COUNT_MAX = 10**12
COUNTED = ("subscriptions", "changes_per_minute")
"""Limits of what a client has or does, all together."""


@dataclass(frozen=True, slots=True)
class Client:
    """What is said of one client."""

    principal: str
    sources: tuple[str, ...]
    """What its publications may name as their `ce_source`; with `*` at the end: whatever begins so."""
    groups: str | None = None
    """Which set it belongs to: group topics unite clients of one set only."""


@dataclass(frozen=True)
class Security:
    """Who speaks for whom.

    >>> security = Security("own", clients={"shop": Client("User:shop", ("urn:shop", "urn:shop/*"))})
    >>> [security.may_publish("shop", source) for source in ("urn:shop", "urn:shop/7", "urn:shopper", "shop")]
    [True, True, False, False]
    >>> [security.may_publish("bob", source) for source in ("bob", "bob/7", "bobby")]
    [True, True, False]
    """

    inboxes: Literal["shared", "own"] = "shared"
    dead_letters: Literal["whole", "reference"] = "whole"
    """`reference`: a dead letter says why and where the original is, and holds nothing of it."""
    job: str = JOB
    operators: tuple[str, ...] = ()
    clients: Mapping[str, Client] = field(default_factory=dict)

    @property
    def own(self) -> bool:
        """Whether every client has inboxes of its own."""
        return self.inboxes == "own"

    def client(self, name: str) -> Client:
        """What is said of a client, or what counts where nothing is."""
        return self.clients.get(name) or Client(f"User:{name}", (name, f"{name}/*"))

    @property
    def sets(self) -> dict[str, str]:
        """By client that belongs to one: its set."""
        return {name: client.groups for name, client in self.clients.items() if client.groups is not None}

    def may_publish(self, client: str, source: str) -> bool:
        """Whether a client's publications and advertisements may be of this source."""
        return any(
            source.startswith(known[:-1]) if known.endswith("*") else source == known
            for known in self.client(client).sources
        )

    def source_of(self, client: str) -> str | None:
        """The source of its publications that name none: the first that is given whole.

        >>> Security().source_of("bob"), Security(clients={"shop": Client("User:shop", ("urn:*",))}).source_of("shop")
        ('bob', None)
        """
        return next((known for known in self.client(client).sources if not known.endswith("*")), None)


@dataclass(frozen=True, slots=True)
class Sink:
    """A topic outside the prefix that these clients' subscriptions may deliver to."""

    topic: str
    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quota:
    """How much one client may have and do; None: as much as it likes."""

    subscriptions: int | None = None
    """Live subscriptions at one broker and of one type."""
    boxes: int | None = None
    """Of one filter."""
    predicates: int | None = None
    """Of one filter."""
    share: float | None = None
    """Of the content space, of one filter: what `hilcast cost` says."""
    changes_per_minute: int | None = None
    """Control events at one broker and of one type, accepted or refused, by the broker's clock."""
    event_bytes: int | None = None
    """Key, value and headers of one publication."""

    def stricter(self, other: Quota) -> Quota:
        """Of each limit the smaller.

        >>> Quota(subscriptions=5, boxes=9).stricter(Quota(subscriptions=7, share=0.5))
        Quota(subscriptions=5, boxes=9, predicates=None, share=0.5, changes_per_minute=None, event_bytes=None)
        """
        pairs = {one.name: (getattr(self, one.name), getattr(other, one.name)) for one in fields(Quota)}
        return Quota(**{name: min((v for v in pair if v is not None), default=None) for name, pair in pairs.items()})

    def given(self) -> dict[str, int | float]:
        """The limits that there are, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


UNLIMITED = Quota()


@dataclass(frozen=True)
class Limits:
    """Quotas: of every client, of some clients in place of that, and of some types besides.

    >>> limits = Limits(Quota(boxes=10), {"alice": Quota(boxes=99)}, {"t": Quota(boxes=50)})
    >>> [limits.of(client, type).boxes for client in ("alice", "bob") for type in ("t", "u")]
    [50, 99, 10, 10]
    """

    every: Quota = UNLIMITED
    clients: Mapping[str, Quota] = field(default_factory=dict)
    """Whole: what a client's table leaves out is as for every client."""
    types: Mapping[str, Quota] = field(default_factory=dict)
    """Only what a type's table says."""

    def of(self, client: str, type: str) -> Quota:
        """The quota of a client for a type: its own, or a type's where that is stricter."""
        own = self.clients.get(client, self.every)
        return own.stricter(self.types[type]) if type in self.types else own

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return self != Limits()


@dataclass(frozen=True, slots=True)
class Signing:
    """Where the key is that control records and index entries are signed with; the environment may hold it instead."""

    key_file: str | None = None
    previous_file: str | None = None
    """Accepted, not used for writing."""
    unsigned: bool = False
    """Whether what bears no signature is accepted, too: while signing is introduced."""

    @property
    def place(self) -> str:
        """What tells where one has its keys from where another has; nothing of the keys.

        >>> Signing("/etc/a").place == Signing("/etc/a").place != Signing("/etc/b").place
        True
        """
        return hashlib.sha256(repr((self.key_file, self.previous_file, self.unsigned)).encode()).hexdigest()[:16]


# --- reading ------------------------------------------------------------------------------------------------


def read_security(root: Table) -> Security:
    """The table `[security]`."""
    table = root.table("security")
    defaults = Security()
    job = table.take("job", _principal, defaults.job)
    clients: dict[str, Client] = {}
    for name, below in _by_name(table.table("clients")):
        fallback = defaults.client(name)
        clients[name] = Client(
            principal=below.take("principal", _principal, fallback.principal),
            sources=below.take("sources", list_of(_source), fallback.sources),
            groups=below.take("groups", named(NAME), None),
        )
        if not clients[name].sources:
            below.fault("sources", "must name at least one source")
        if clients[name].principal == job:
            below.fault("principal", f"{job} is the job's: it could speak for everybody")
        below.end()
    security = Security(
        inboxes=cast(Literal["shared", "own"], table.take("inboxes", choice("shared", "own"), defaults.inboxes)),
        dead_letters=cast(
            Literal["whole", "reference"],
            table.take("dead_letters", choice("whole", "reference"), defaults.dead_letters),
        ),
        job=job,
        operators=table.take("operators", list_of(_principal), ()),
        clients=clients,
    )
    if security.job in security.operators:
        table.fault("operators", f"{security.job} is the job's")
    table.end()
    return security


def read_sinks(root: Table) -> tuple[Sink, ...]:
    """The tables `[[sinks]]`; what a sink may not be is judged where sources and the prefix are known."""
    sinks: list[Sink] = []
    for number, raw in enumerate(root.take("sinks", list_of(a_table, distinct=False), ()), 1):
        table = Table(raw, f"sinks[{number}]", root.faults)
        table.need("topic", "clients")
        sink = Sink(table.take("topic", named(TOPIC_NAME), ""), table.take("clients", list_of(named(NAME)), ()))
        table.end()
        if sink.topic and sink.topic in [other.topic for other in sinks]:
            table.fault("topic", f"{sink.topic!r} is given twice")
        sinks.append(sink)
    return tuple(sinks)


def read_limits(root: Table, types: Collection[str], *, own: bool) -> Limits:
    """The table `[limits]`; what is counted by client needs clients that are who they say (`own` inboxes)."""
    table = root.table("limits")
    clients, by_type = table.table("clients"), table.table("types")
    every = _read_quota(table, UNLIMITED)
    limits = Limits(
        every,
        {name: _closed(below, every) for name, below in _by_name(clients)},
        {name: _closed(below, UNLIMITED) for name, below in by_type.tables()},
    )
    for name in limits.types:
        if types and name not in types:
            by_type.fault(name, "is no event type")
    reason = 'needs inboxes = "own" in [security]: where everybody writes to one topic, anybody is any client'
    for below in () if own else (table, *(one for _, one in clients.tables()), *(one for _, one in by_type.tables())):
        for key in COUNTED:
            if key in below.raw:
                below.fault(key, reason)
    if limits.clients and not own:
        table.fault("clients", reason)
    table.end()
    return limits


def read_signing(root: Table, directory: Path | None) -> Signing | None:
    """The table `[signing]`; None where it is missing. Relative paths are relative to the file."""
    if "signing" not in root.raw:
        return None
    table = root.table("signing")
    key, previous = (table.take(name, _file, None) for name in ("key_file", "previous_file"))
    unsigned = table.take("unsigned", boolean, False)
    table.end()
    if directory is not None:
        key, previous = (None if path is None else str(directory.resolve() / path) for path in (key, previous))
    return Signing(key, previous, unsigned)


def _closed(table: Table, others: Quota) -> Quota:
    quota = _read_quota(table, others)
    table.end()
    return quota


def _read_quota(table: Table, others: Quota) -> Quota:
    """The limits of a table; those that it leaves out are as in `others`."""
    count = integer(0, COUNT_MAX)
    return Quota(
        subscriptions=table.take("subscriptions", count, others.subscriptions),
        boxes=table.take("boxes", integer(1, COUNT_MAX), others.boxes),
        predicates=table.take("predicates", integer(0, PREDICATES_MAX), others.predicates),
        share=table.take("share", fraction, others.share),
        changes_per_minute=table.take("changes_per_minute", integer(1, 1_000_000), others.changes_per_minute),
        event_bytes=table.take("event_bytes", integer(1, COUNT_MAX), others.event_bytes),
    )


def _by_name(table: Table) -> list[tuple[str, Table]]:
    """The tables below whose keys are names of clients."""
    below = table.tables()
    for name, _ in below:
        if not NAME.fullmatch(name):
            table.fault(name, f"the name of a client must match {NAME.pattern}")
    return [(name, one) for name, one in below if NAME.fullmatch(name)]


def _principal(value: object) -> str:
    kind, _, name = text(value).partition(":")
    if not kind.isalnum() or not name or name == "*":
        raise ValueError(f"must be a principal of Kafka such as User:alice, not {shown(value)}")
    return text(value)


def _source(value: object) -> str:
    if not text(value) or "*" in text(value)[:-1]:
        raise ValueError(f"must be a ce_source, or the beginning of one and a *, not {shown(value)}")
    return text(value)


def _file(value: object) -> str:
    if not text(value):
        raise ValueError("must name a file")
    return text(value)
