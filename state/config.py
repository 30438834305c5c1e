"""The configuration `hilcast.toml` (docs/operations.md): read, checked as a whole, and frozen.

    text --tomllib--> tables --checks--> Config        or ConfigError with every fault and its place

Everything that can be judged from the file alone is judged here, at start, all at once; a reduction's own
`parameters` are kept as they are and judged by `state/reductions/parameters.py`. Nothing is guessed or corrected.
Left out: which file to read (`--config`, `HILCAST_CONFIG`) is decided by the command line.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

import msgspec

from state import overlay as overlays
from state.errors import ConfigError
from state.limits import CELL_BITS_MAX, CUBES_DEFAULT, CUBES_MAX, DIMENSIONS_MAX, INDEX_BITS_MAX, PATH_MAX, fence_rounds
from state.names import ENVELOPE_HEADERS, NAME, OUR_HEADERS, TOPIC_NAME, TYPE_NAME
from state.overlay import Overlay
from state.reductions.parameters import SETTINGS, check_parameters
from state.schema_settings import SchemaRegistry, check_formats, embedded, read_registry, read_schema
from state.secrets import ClientSettings, redacted
from state.security_settings import (
    Limits,
    Security,
    Signing,
    Sink,
    read_limits,
    read_security,
    read_signing,
    read_sinks,
)
from state.space.event_type import DIMENSIONS_DEFAULT, FORMATS, Attribute, EventType, Format, Kind, Pruning
from state.space.ranks import ABSENT, PRESENT_MAX, rank, unrank
from state.tables import (
    Scalar,
    Table,
    boolean,
    choice,
    flat,
    fraction,
    integer,
    list_of,
    named,
    number,
    scalar,
    scalar_text,
    shown,
    text,
)
from state.tables import table as a_table
from state.topics import Topics, metric_name

__all__ = [
    "ClientSettings",
    "Config",
    "Deployment",
    "Distribution",
    "Fitted",
    "Limits",
    "Overlay",
    "Security",
    "Settings",
    "Signing",
    "Sink",
    "Source",
    "SourcePattern",
    "Topics",
    "load",
    "parse",
    "redacted",
]

KINDS = ("int", "float", "boolean", "category", "timestamp", "text")
MATCHERS = ("bitmap", "s-tree")
SKEW_MIN = 0.01
FANOUT_MAX = 1024
BUDGET_MAX = 10**12

SHARED = ("overlay", "types", "sources", "distribution", "security", "sinks", "limits")
"""Tables that all deployments of an overlay must have in common."""
SHARED_SETTINGS = ("home_shards", "wide_shards", "partitions", "delivery_partitions")
HOSTS_BYTES_MAX = 3900
"""With inboxes of their own, clients may look at one commit that names the hosts: Kafka takes 4 KB of text with it."""
SHARED_BYTES_MAX = 900_000
"""It is one record of the registry."""


# --- what a configuration holds -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deployment:
    """One streaming job: where its services are, and which brokers of the overlay it routes."""

    name: str
    prefix: str
    kafka: str
    redis: str = field(repr=False)
    """A URL, perhaps with a password: print it `redacted`."""
    checkpoint: str
    hosts: tuple[str, ...]
    stale: Literal["wait", "route"]


@dataclass(frozen=True, slots=True)
class Source:
    """A topic of an existing producer: plain values that enter the overlay at `broker` as events of `type`."""

    topic: str
    broker: str | None
    """None: the record's header `broker_header` names it."""
    type: str
    format: Format | None = None
    """What its values are written in; None: what the type says."""
    broker_header: str | None = None


@dataclass(frozen=True, slots=True)
class SourcePattern:
    """Topics of existing producers by a regular expression, which must match their whole name."""

    pattern: str
    source: Source
    """What each of them is; its topic is empty."""

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None


CLUSTERINGS = ("forgy", "k-means", "pairwise", "spanning-tree")
"""How cells are put into groups (`state/distribution/clustering.py`)."""
THRESHOLD = 0.15
"""The share of interested members from which a group is used: the paper's best ([STREE03] §5.2)."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Group topics of a broker [STREE03]: how many per type, and the share of members from which a group is used."""

    groups: int
    threshold: float | Literal["fit"] = THRESHOLD
    """`fit`: found from the subscriptions that opt in and the publications that are seen."""
    broadcast: float | None = None
    """The share of all who listen from which an event is broadcast; None: never."""
    clustering: str = "pairwise"
    regroup_s: int = 30
    """How often it is looked whether groups should be formed anew."""


class Fitted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the running router chose for a type that leaves it to it (`state/tuning.py`)."""

    cubes: int | None = None
    index: list[str] = []
    quantiles: dict[str, list[int]] = {}
    """By attribute: ranks that divide its publications evenly."""

    def of(self, event_type: EventType) -> Fitted:
        """As much of it as the type leaves to be chosen, and has attributes for."""
        quantile = {a.name for a in event_type.attributes if a.cells == "quantile"}
        is_index = "index" in event_type.auto and all(name in event_type.dimension for name in self.index)
        return Fitted(
            self.cubes if "cubes" in event_type.auto else None,
            self.index if is_index else [],
            {name: ranks for name, ranks in self.quantiles.items() if name in quantile},
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """Tunables of the router; every one has a default that works."""

    trigger_ms: int = 500
    home_shards: int = 8
    wide_shards: int = 4
    master: str = "local[4]"
    shuffle_partitions: int = 2
    partitions: int | None = None
    """Lanes of publications, links and topics that clients share; None: `state/lanes.py` says how many."""
    delivery_partitions: int | None = None
    """Lanes of each client's delivery topic; None: one."""
    max_offsets_per_trigger: int | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    """Where the metrics listen: on loopback, unless it is set."""
    tombstone_hours: int = 168
    delivery_retention_hours: int = 168
    inbox_records_per_batch: int = 5000
    """With inboxes of clients' own: how many records a control batch takes of all of them, by equal shares."""
    control_records_per_batch: int = 100_000
    """With shared inboxes: how many records a control batch takes of them and of the control topic."""
    idle_topic_hours: float | None = None
    """After how long a job that begins removes the delivery topic of a client that holds nothing; None: never."""
    tune_s: int = 60
    """How often the router looks whether what it may choose should be chosen anew; 0: never."""
    index_folder: str | None = None
    """Where the workers of a host share the index, in files; None: in memory (`streaming/host_index.py`)."""
    on_data_loss: Literal["stop", "continue"] = "stop"
    """When Kafka has deleted what a query has not read: end the job, or go on behind the gap."""
    changed_file: Literal["apply", "follow", "wait"] = "apply"
    """What a job makes of a file that is not what all deployments agreed on (`streaming/agreement.py`)."""


@dataclass(frozen=True)
class Config:
    """A configuration without faults. Its text form shows no password."""

    deployment: Deployment
    overlay: Overlay
    types: dict[str, EventType]
    sources: tuple[Source, ...] = ()
    """Topics of existing producers: those that the file names and, in `with_topics`, those that patterns match."""
    patterns: tuple[SourcePattern, ...] = ()
    kafka: ClientSettings[str] = field(default_factory=ClientSettings)
    """Further settings of Kafka clients, as text."""
    redis: ClientSettings[Scalar] = field(default_factory=ClientSettings)
    """Further arguments of the Redis client."""
    spark: ClientSettings[str] = field(default_factory=ClientSettings)
    """Overrides of Spark settings, as text."""
    settings: Settings = field(default_factory=Settings)
    distribution: dict[str, Distribution] = field(default_factory=dict)
    """Brokers with group topics."""
    schemas: SchemaRegistry | None = None
    security: Security = field(default_factory=Security)
    sinks: tuple[Sink, ...] = ()
    """Where subscriptions may deliver to, and whose."""
    limits: Limits = field(default_factory=Limits)
    inbox_topics: tuple[str, ...] = ()
    """Clients' own inboxes, where they have some: those that exist, in `with_topics`."""
    signing: Signing | None = None
    tables: Mapping[str, object] = field(default_factory=dict, repr=False, compare=False)
    """What was read, table by table; it may hold passwords."""
    fitted: Mapping[str, Fitted] = field(default_factory=dict)
    """By type: what the router chose. It is in `types` already; no file says it."""
    version: int = field(default=0, compare=False)
    """Which configuration of the overlay this is, as Kafka counts them; 0: read from a file, and not agreed yet."""

    @cached_property
    def topics(self) -> Topics:
        return Topics(self.deployment.prefix)

    def with_topics(self, existing: Collection[str], sinks: Collection[str] = ()) -> Config:
        """This configuration with every topic of the cluster among its sources that a pattern matches, and with the
        inboxes that clients have of their own.

        Guarantee: a topic that the file names is what the file says; of several patterns the first counts; none is
        under the prefix, Kafka's own (`__...`) or one of `sinks`, for what is delivered must not enter again.
        Cost: one match per pattern and topic; the configuration itself where it has no pattern and inboxes are shared.
        """
        found = self.with_own(existing)
        return found._with_sources(existing, sinks) if self.patterns else found

    def with_own(self, existing: Collection[str]) -> Config:
        """This configuration with the inboxes that clients have of their own, where they have some."""
        if not self.security.own:
            return self
        found = tuple(sorted(topic for topic in existing if self.topics.client_of(topic) is not None))
        return self if found == self.inbox_topics else replace(self, inbox_topics=found)

    def _with_sources(self, existing: Collection[str], sinks: Collection[str]) -> Config:
        taken = {source.topic for source in self.sources} | set(sinks)
        found = list(self.sources)
        for topic in sorted(set(existing) - taken):
            if topic.startswith("__") or self.topics.owns(topic):
                continue
            pattern = next((pattern for pattern in self.patterns if pattern.matches(topic)), None)
            if pattern is not None:
                found.append(replace(pattern.source, topic=topic))
        return replace(self, sources=tuple(found))

    def reads(self, topic: str) -> bool:
        """Tell whether a topic is a source, or would be one if it were there."""
        return any(source.topic == topic for source in self.sources) or any(p.matches(topic) for p in self.patterns)

    def grants(self, topic: str, client: str) -> bool:
        """Tell whether subscriptions of a client may deliver to a topic outside the prefix.

        Where nothing is said of sinks and inboxes are shared, everybody may deliver everywhere.
        """
        if not self.sinks and not self.security.own:
            return True
        return any(sink.topic == topic and client in sink.clients for sink in self.sinks)

    def fence_rounds(self) -> int:
        """How many rounds `hilcast wait` makes."""
        return fence_rounds(self.overlay.diameter(), any(t.advertisements for t in self.types.values()))

    @cached_property
    def shared(self) -> bytes:
        """What all deployments of an overlay must have in common, as JSON: no address, no password, no host, no file.

        Guarantee: equal bytes mean that nothing of it differs, the order of types and attributes included.
        Schemas are in it themselves: where it is read, a path would lead nowhere, or to another schema.
        """
        shards = {name: getattr(self.settings, name) for name in SHARED_SETTINGS}
        shards = {name: number for name, number in shards.items() if number is not None}
        tables = {name: self.tables[name] for name in SHARED if name in self.tables}
        types = cast(Mapping[str, Mapping[str, object]], self.tables.get("types", {}))
        schemas = {name: one.schema for name, one in self.types.items() if one.schema is not None}
        if schemas:
            within = {name: {**types[name], "schema": embedded(schema)} for name, schema in schemas.items()}
            tables["types"] = {name: within.get(name, table) for name, table in types.items()}
        fitted = {"fitted": msgspec.to_builtins(self.fitted)} if self.fitted else {}
        whole = {**tables, "settings": shards, **fitted}
        return json.dumps(whole, default=_as_json, separators=(",", ":")).encode()

    def fitted_with(self, fitted: Mapping[str, Fitted]) -> Config:
        """This configuration with these choices, as far as its types leave them open, instead of those it had."""
        chosen = {name: one.of(self.types[name]) for name, one in fitted.items() if name in self.types}
        chosen = {name: one for name, one in chosen.items() if one != Fitted()}
        types = {name: _with_choices(one, chosen.get(name, Fitted())) for name, one in self.types.items()}
        return replace(self, types=types, fitted=chosen)

    def adopting(self, shared: bytes, version: int = 0) -> Config:
        """This deployment with another configuration in common (`shared`); ConfigError where both do not agree."""
        given = cast(dict[str, object], json.loads(shared))
        fitted = _read_fitted(given.pop("fitted", {}))
        settings = dict(cast(dict[str, object], self.tables.get("settings", {})))
        settings = {name: value for name, value in settings.items() if name not in SHARED_SETTINGS}
        settings |= cast(dict[str, object], given["settings"])
        own = {name: table for name, table in self.tables.items() if name not in SHARED}
        types = cast(dict[str, dict[str, object]], given.get("types", {}))
        paths = [name for name, table in types.items() if isinstance(table.get("schema"), str)]
        faults = [f"types.{name}.schema: what is in common holds the schema itself, not a path" for name in paths]
        if faults:
            raise ConfigError(faults)
        config = _read_config(Table({**own, **given, "settings": settings}, "", faults), None)
        if faults:
            raise ConfigError(faults)
        deployment = replace(config.deployment, checkpoint=self.deployment.checkpoint)
        return replace(config.fitted_with(fitted), deployment=deployment, signing=self.signing, version=version)

    def fingerprint(self) -> str:
        """Return 16 hex digits that change with whatever makes a new generation of control state.

        That is the overlay, the types (attributes in order, grid, cubes, reduction, parameters,
        advertisements, budgets of pruning, matcher), the numbers of shards, and what decides whether a control event is
        accepted (inboxes, sources of clients, sinks, limits); not addresses, hosts, sources or the file's own order.
        Nor where attributes are read from and in which format: boxes and states are the same. A
        sample of publications that pruning judges by may then be of attributes that were elsewhere: it judges what
        is worth pruning, never what is delivered.
        """
        facts = {
            "brokers": sorted(self.overlay.brokers),
            "links": sorted(sorted(link) for link in self.overlay.links),
            "types": {name: _facts(event_type) for name, event_type in self.types.items()},
            "shards": [self.settings.home_shards, self.settings.wide_shards],
            **_permissions(self),
        }
        canonical = json.dumps(facts, sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _facts(event_type: EventType) -> dict[str, object]:
    facts: dict[str, object] = {name: getattr(event_type, name) for name in EventType.__dataclass_fields__}
    facts["attributes"] = [[a.name, a.kind, a.min, a.max, a.values, a.imprecise] for a in event_type.attributes]
    budgets = event_type.pruning
    facts["pruning"] = [budgets.advertisements, budgets.subscriptions]
    del facts["format"], facts["schema"], facts["subject"], facts["auto"]
    # A file that names none of these has the fingerprint that it always had.
    if budgets == Pruning():
        del facts["pruning"]
    if event_type.matcher == "bitmap":
        del facts["matcher"], facts["matcher_parameters"]
    if not event_type.quantiles:
        del facts["quantiles"]
    return facts


def _permissions(config: Config) -> dict[str, object]:
    """What decides who may do what; a file that says nothing of it has the fingerprint that it always had."""
    facts: dict[str, object] = {}
    if config.security.own:
        facts["own"] = {name: client.sources for name, client in config.security.clients.items()}
    if config.sinks:
        facts["sinks"] = {sink.topic: sorted(sink.clients) for sink in config.sinks}
    if config.limits.any:
        limits = config.limits
        tables = (limits.clients, limits.types)
        facts["limits"] = [limits.every.given(), *({name: q.given() for name, q in t.items()} for t in tables)]
    return facts


def _with_choices(event_type: EventType, fitted: Fitted) -> EventType:
    changed: dict[str, object] = {"quantiles": {name: tuple(ranks) for name, ranks in fitted.quantiles.items()}}
    if "cubes" in event_type.auto:
        changed["cubes"] = fitted.cubes or CUBES_DEFAULT
    if "index" in event_type.auto:
        changed["index"] = tuple(fitted.index)
    return replace(event_type, **changed)  # type: ignore[arg-type]


def _read_fitted(raw: object) -> dict[str, Fitted]:
    """What was chosen, as it is in common; ConfigError for what `state/tuning.py` would never choose."""
    try:
        fitted = msgspec.convert(raw, dict[str, Fitted])
    except msgspec.ValidationError as error:
        raise ConfigError([f"fitted: {error}"]) from error
    faults = []
    for name, one in fitted.items():
        if one.cubes is not None and not (1 <= one.cubes <= CUBES_MAX and one.cubes.bit_count() == 1):
            faults.append(f"fitted.{name}.cubes: {one.cubes}")
        if len(one.index) > DIMENSIONS_MAX or len(set(one.index)) < len(one.index):
            faults.append(f"fitted.{name}.index: {one.index}")
        for attribute, ranks in one.quantiles.items():
            if ranks != sorted(ranks) or not all(ABSENT <= rank <= PRESENT_MAX for rank in ranks):
                faults.append(f"fitted.{name}.quantiles.{attribute}: not sorted ranks")
    if faults:
        raise ConfigError(faults)
    return fitted


def _as_json(value: object) -> str:
    assert isinstance(value, datetime.datetime | datetime.date | datetime.time), f"{value!r} is not of TOML"
    return value.isoformat()


def from_shared(shared: bytes) -> Config:
    """What deployments have in common as a configuration by itself: its addresses mean nothing.

    >>> config = parse('[overlay]\\nbrokers = ["b1"]\\n[types.t.attributes]\\nx = { kind = "int" }')
    >>> from_shared(config.shared).types == config.types
    True
    """
    nowhere = (
        "[overlay]\nbrokers = ['b']\n[types.t.attributes]\nx = { kind = 'int' }\n[schemas]\nurl = 'http://localhost'"
    )
    return parse(nowhere).adopting(shared)


def load(path: str | Path) -> Config:
    """Read and check a configuration file; a relative checkpoint is relative to the file.

    Raises ConfigError, also for a file that cannot be read.
    """
    path = Path(path)
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 at byte {error.start + 1}"]) from error
    return parse(content, path.parent)


def parse(content: str, directory: Path | None = None) -> Config:
    """Check a configuration and return it; `directory` is what a relative checkpoint is relative to.

    Guarantee: raises ConfigError with all faults, each as `place: what is wrong`; a Config has none.

    >>> parse('[overlay]\\nbrokers = ["b1", "b1"]\\nlink = []')
    Traceback (most recent call last):
        ...
    state.errors.ConfigError: bad-config: 3 fault(s)
      overlay.brokers: item 2: 'b1' is given twice
      overlay.link: unknown key; did you mean 'links'?
      types: missing
    """
    try:
        raw = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"not TOML: {error}"]) from error
    faults: list[str] = []
    config = _read_config(Table(raw, "", faults), directory)
    if faults:
        raise ConfigError(faults)
    return config


# --- the parts ----------------------------------------------------------------------------------------------


def _read_config(root: Table, directory: Path | None) -> Config:
    overlay_table, types_table, deployment_table = map(root.table, ("overlay", "types", "deployment"))
    overlay = _read_overlay(overlay_table)
    types = {name: _read_type(types_table, name, below, directory) for name, below in types_table.tables()}
    if not types_table.raw and root.raw.get("types", {}) == {}:
        root.fault("types", "must hold at least one event type" if "types" in root.raw else "missing")
    deployment = _read_deployment(deployment_table, overlay, directory)
    topics = Topics(deployment.prefix)
    _check_collisions(overlay_table, overlay, topics)
    kafka = _read_client(root.table("kafka"), deployment_table, "kafka")
    redis = _read_client(root.table("redis"), deployment_table, "redis")
    sources, patterns = _read_sources(root, overlay, types, topics)
    schemas = read_registry(root)
    check_formats(root, types, [*sources, *(pattern.source for pattern in patterns)], schemas)
    security = read_security(root)
    config = Config(
        deployment=deployment,
        overlay=overlay,
        types=types,
        sources=sources,
        patterns=patterns,
        kafka=ClientSettings({name: scalar_text(value) for name, value in kafka.items()}),
        redis=ClientSettings(redis),
        spark=ClientSettings({name: scalar_text(value) for name, value in flat(root.table("spark")).items()}),
        settings=_read_settings(root.table("settings")),
        distribution=_read_distribution(root.table("distribution"), overlay),
        schemas=schemas,
        security=security,
        sinks=read_sinks(root),
        limits=read_limits(root, types, own=security.own),
        signing=read_signing(root, directory),
        tables=root.raw,
    )
    _check_sinks(root, config)
    if security.own and len(json.dumps(deployment.hosts)) > HOSTS_BYTES_MAX:
        deployment_table.fault("hosts", f"more names than {HOSTS_BYTES_MAX} bytes hold, which is what a commit can say")
    deployment_table.end()
    root.end()
    if not root.faults and len(config.shared) > SHARED_BYTES_MAX:
        reason = f"what deployments have in common is {len(config.shared)} bytes, more than {SHARED_BYTES_MAX}"
        root.fault("types", f"{reason}; large schemas belong in a registry")
    return config


def _read_overlay(table: Table) -> Overlay:
    brokers = table.take("brokers", list_of(named(NAME)), ())
    links = table.take("links", list_of(_link, distinct=False), ())
    table.end()
    table.need("brokers")
    if not brokers and table.raw.get("brokers") == []:
        table.fault("brokers", "must name at least one broker")
    if brokers:
        for fault in overlays.faults(brokers, links):
            table.fault("links", fault)
    return Overlay(brokers, links)


def _link(value: object) -> tuple[str, str]:
    pair = list_of(text, distinct=False)(value)
    if len(pair) != 2:
        raise ValueError(f"must be a pair of brokers, not {shown(value)}")
    return pair[0], pair[1]


def _check_collisions(table: Table, overlay: Overlay, topics: Topics) -> None:
    """Refuse links whose topics Kafka cannot tell apart, such as a -> b_c and a_b -> c."""
    first: dict[str, tuple[str, str]] = {}
    for link in overlay.links:
        for direction in (link, link[::-1]):
            other = first.setdefault(metric_name(topics.link(*direction)), direction)
            if other != direction:
                both = f"{topics.link(*other)} and {topics.link(*direction)}"
                table.fault("links", f"{both} collide in Kafka, which takes '.' and '_' for one; rename a broker")


def _read_deployment(table: Table, overlay: Overlay, directory: Path | None) -> Deployment:
    hosts = table.take("hosts", list_of(named(NAME)), overlay.brokers)
    for host in hosts:
        if _lacks(overlay.brokers, host):
            table.fault("hosts", f"{host!r} is no broker of the overlay")
    if not hosts and table.raw.get("hosts") == []:
        table.fault("hosts", "must name at least one broker")
    checkpoint = table.take("checkpoint", _directory, "var/checkpoint")
    if directory is not None and not _ADDRESS.match(checkpoint):
        checkpoint = str(directory.resolve() / checkpoint)
    return Deployment(
        name=table.take("name", named(NAME), "main"),
        prefix=table.take("prefix", named(TYPE_NAME), "hilcast"),
        kafka=table.take("kafka", _bootstrap, "127.0.0.1:9092"),
        redis=table.take("redis", _redis_url, "redis://127.0.0.1:6379/0"),
        checkpoint=checkpoint,
        hosts=hosts,
        stale=cast(Literal["wait", "route"], table.take("stale", choice("wait", "route"), "wait")),
    )


def _lacks(known: Collection[str], name: str) -> bool:
    """Tell whether a name is unknown. Where nothing is known, that is already a fault, and enough."""
    return bool(known) and name not in known


_ADDRESS = re.compile(r"[A-Za-z][\w+.-]*:/")
"""Of a file system: `hdfs://`, `s3a://`, `file:/`; anything else is a path."""


def _directory(value: object) -> str:
    if not text(value):
        raise ValueError("must name a directory")
    return text(value)


def _bootstrap(value: object) -> str:
    for address in text(value).split(","):
        match = re.fullmatch(r"\s*(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@]+):([0-9]{1,5})\s*", address)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise ValueError("must be HOST:PORT, several with commas between")
    return text(value)


def _redis_url(value: object) -> str:
    """The value is never shown: what is wrong with it may be that it is a bare password."""
    try:
        parts = urlsplit(text(value))
        network = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        network = False
    node = r"(\[[0-9A-Fa-f:.]+\]|[^\s:,/@]+):\d{1,5}"
    cluster = re.fullmatch(rf"rediss?\+cluster://([^/@]*@)?{node}(,{node})*/?", text(value)) is not None
    if not network and not cluster and not re.fullmatch(r"unix://([^/@]*@)?/.+", text(value)):
        one = "redis://HOST:PORT/DB, rediss:// for TLS, unix:///PATH"
        raise ValueError(f"must be a URL: {one}, or redis+cluster://HOST:PORT,HOST:PORT")
    return text(value)


def _read_settings(table: Table) -> Settings:
    defaults = Settings()
    limits = {
        "trigger_ms": (0, 3_600_000),
        "home_shards": (1, 4096),
        "wide_shards": (1, 4096),
        "shuffle_partitions": (1, 10_000),
        "partitions": (1, 1000),
        "delivery_partitions": (1, 1000),
        "max_offsets_per_trigger": (1, 2**63 - 1),
        "metrics_port": (0, 65_535),
        "tombstone_hours": (1, 1_000_000),
        "tune_s": (0, 86_400),
        "delivery_retention_hours": (1, 1_000_000),
        "inbox_records_per_batch": (1, 1_000_000),
        "control_records_per_batch": (1, 10_000_000),
    }
    numbers = {name: table.take(name, integer(*limit), getattr(defaults, name)) for name, limit in limits.items()}
    settings = Settings(
        master=table.take("master", text, defaults.master),
        metrics_host=table.take("metrics_host", text, defaults.metrics_host),
        index_folder=table.take("index_folder", text, None),
        on_data_loss=cast(
            Literal["stop", "continue"], table.take("on_data_loss", choice("stop", "continue"), defaults.on_data_loss)
        ),
        changed_file=cast(
            Literal["apply", "follow", "wait"],
            table.take("changed_file", choice("apply", "follow", "wait"), defaults.changed_file),
        ),
        idle_topic_hours=table.take("idle_topic_hours", number(0, above=True), None),
        **numbers,
    )
    idle = settings.idle_topic_hours
    if idle is not None and idle > settings.tombstone_hours:
        reason = f"must be at most tombstone_hours ({settings.tombstone_hours}): so long it is known who held what"
        table.fault("idle_topic_hours", reason)
    table.end()
    return settings


def _read_distribution(table: Table, overlay: Overlay) -> dict[str, Distribution]:
    distribution: dict[str, Distribution] = {}
    for broker, below in table.tables():
        if _lacks(overlay.brokers, broker):
            table.fault(broker, "is no broker of the overlay")
        below.need("groups")
        defaults = Distribution(1)
        distribution[broker] = Distribution(
            groups=below.take("groups", integer(1, 1000), 1),
            threshold=below.take("threshold", _threshold, defaults.threshold),
            broadcast=below.take("broadcast", fraction, None),
            clustering=below.take("clustering", choice(*CLUSTERINGS), defaults.clustering),
            regroup_s=below.take("regroup_s", integer(1, 86_400), defaults.regroup_s),
        )
        below.end()
    return distribution


def _threshold(value: object) -> float | Literal["fit"]:
    if value == "fit":
        return "fit"
    if isinstance(value, str):
        raise ValueError(f'must be a number from 0 to 1, or "fit", not {shown(value)}')
    return fraction(value)


def _read_sources(
    root: Table, overlay: Overlay, types: Mapping[str, EventType], topics: Topics
) -> tuple[tuple[Source, ...], tuple[SourcePattern, ...]]:
    sources: list[Source] = []
    patterns: list[SourcePattern] = []
    for nth, raw in enumerate(root.take("sources", list_of(a_table, distinct=False), ()), 1):
        table = Table(raw, f"sources[{nth}]", root.faults)
        source = _read_source(table, overlay, types)
        pattern = table.take("pattern", _expression, None)
        table.end()
        if pattern is not None:
            if pattern in [other.pattern for other in patterns]:
                table.fault("pattern", f"{pattern!r} is given twice")
            patterns.append(SourcePattern(pattern, source))
            continue
        if topics.owns(source.topic):
            table.fault("topic", f"{source.topic!r} is under the prefix {topics.prefix!r}, hilcast's own topics")
        if source.topic and source.topic in [other.topic for other in sources]:
            table.fault("topic", f"{source.topic!r} is given twice")
        sources.append(source)
    return tuple(sources), tuple(patterns)


def _check_sinks(root: Table, config: Config) -> None:
    """Refuse a sink that would lead back: what is delivered must not enter again."""
    for nth, sink in enumerate(config.sinks, 1):
        if config.topics.owns(sink.topic):
            reason = f"{sink.topic!r} is under the prefix {config.topics.prefix!r}, hilcast's own topics"
        elif sink.topic.startswith("__"):
            reason = f"{sink.topic!r} is Kafka's own"
        elif sink.topic and config.reads(sink.topic):
            reason = f"{sink.topic!r} is a source: what is delivered there would enter again"
        else:
            continue
        root.faults.append(f"sinks[{nth}].topic: {reason}")


def _read_source(table: Table, overlay: Overlay, types: Mapping[str, EventType]) -> Source:
    table.need("type")
    _one_of(table, "topic", "pattern")
    _one_of(table, "broker", "broker_header")
    source = Source(
        topic=table.take("topic", named(TOPIC_NAME), ""),
        broker=table.take("broker", named(NAME), None),
        type=table.take("type", named(TYPE_NAME), ""),
        format=cast(Format | None, table.take("format", choice(*FORMATS), None)),
        broker_header=table.take("broker_header", _header, None),
    )
    if source.broker and _lacks(overlay.brokers, source.broker):
        table.fault("broker", f"{source.broker!r} is no broker of the overlay")
    if source.type and _lacks(types, source.type):
        table.fault("type", f"{source.type!r} is no event type")
    return source


def _one_of(table: Table, first: str, second: str) -> None:
    """Note it unless exactly one of two keys is given."""
    if not table.is_sound or (first in table.raw) != (second in table.raw):
        return
    if first in table.raw:
        table.fault(second, f"{first} is given already; give one of the two")
    else:
        table.fault(first, f"missing; or give {second}")


def _expression(value: object) -> str:
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from error
    if not text(value):
        raise ValueError("must be a regular expression of topic names")
    return text(value)


# --- settings of other software -----------------------------------------------------------------------------

# Each of these is hilcast's own to set; a second opinion would break routing silently.
_TAKEN = {
    "kafka": {
        "bootstrap.servers": "set deployment.kafka instead",
        "group.id": "is set by hilcast",
        "enable.auto.commit": "is set by hilcast",
        "auto.offset.reset": "is set by hilcast",
    },
    "redis": dict.fromkeys(("host", "port", "db", "url", "unix_socket_path"), "set deployment.redis instead"),
}


def _read_client(table: Table, deployment: Table, client: str) -> dict[str, Scalar]:
    """The settings of `[kafka]`, and those of `[deployment]` written `"kafka.NAME" = ...`; Redis the same."""
    settings = flat(table)
    for name, reason in _TAKEN[client].items():
        if name in settings:
            table.fault(name, reason)
    for key in deployment.raw:
        name = key.removeprefix(f"{client}.")
        if name == key:
            continue
        value = deployment.take(key, scalar, "")
        if name in settings:
            deployment.fault(key, f"is also given in [{client}]")
        elif name in _TAKEN[client]:
            deployment.fault(key, _TAKEN[client][name])
        settings[name] = value
    return settings


# --- event types --------------------------------------------------------------------------------------------


_CHOICES = {"cubes": "auto", "index": None}
"""What a type may leave to the router, and what it means where the type says nothing."""


def _read_type(types: Table, name: str, table: Table, directory: Path | None) -> EventType:
    if not TYPE_NAME.fullmatch(name):
        types.fault(name, f"the name of a type must match {TYPE_NAME.pattern}")
    attributes_table = table.table("attributes")
    attributes = tuple(_read_attribute(key, below) for key, below in attributes_table.tables())
    if table.raw.get("attributes", {}) == {}:
        table.fault("attributes", "must hold at least one attribute" if "attributes" in table.raw else "missing")
    if "" in attributes_table.raw:
        attributes_table.fault("", "an attribute needs a name")
    no_parameters: dict[str, object] = {}
    event_type = EventType(
        name=name,
        attributes=attributes,
        reduction=table.take("reduction", choice(*SETTINGS), "covering"),
        parameters=dict(table.take("parameters", a_table, no_parameters)),
        advertisements=table.take("advertisements", boolean, False),
        cubes=table.take("cubes", _cubes, None) or CUBES_DEFAULT,
        index=table.take("index", _index, ()),
        bits=table.take("bits", integer(1, CELL_BITS_MAX), None),
        pruning=_read_pruning(table.table("pruning")),
        matcher=table.take("matcher", choice(*MATCHERS), "bitmap"),
        matcher_parameters=_read_matcher_parameters(table),
        format=cast(Format, table.take("format", choice(*FORMATS), "json")),
        subject=table.take("subject", text, None),
        auto=frozenset(name for name, default in _CHOICES.items() if table.raw.get(name, default) == "auto"),
    )
    if event_type.pruning.advertisements is not None and not event_type.advertisements:
        table.fault("pruning", "a budget for advertisements needs advertisements = true")
    _check_grid(table, event_type, attributes_table.raw.keys())
    _check_parameters(table, event_type)
    event_type = replace(event_type, schema=read_schema(table, attributes, directory))
    table.end()
    return event_type


def _read_pruning(table: Table) -> Pruning:
    # every filter keeps a predicate, so that no budget below 1 could be met
    budget = integer(1, BUDGET_MAX)
    pruning = Pruning(table.take("advertisements", budget, None), table.take("subscriptions", budget, None))
    table.end()
    return pruning


def _read_matcher_parameters(table: Table) -> dict[str, float]:
    """Skew and fan-out of the S-tree [STREE03], as far as they are given; a bitmap has no parameters."""
    below = table.table("matcher_parameters")
    if below.raw and table.raw.get("matcher") != "s-tree":
        table.fault("matcher_parameters", 'only matcher = "s-tree" has parameters')
        return {}
    skew, fanout = below.take("skew", _skew, None), below.take("fanout", integer(2, FANOUT_MAX), None)
    below.end()
    return {name: value for name, value in (("skew", skew), ("fanout", fanout)) if value is not None}


def _skew(value: object) -> float:
    if not SKEW_MIN <= fraction(value) <= 0.5:
        raise ValueError(f"must be a number from {SKEW_MIN} to 0.5, not {shown(value)}")
    return fraction(value)


def _check_parameters(table: Table, event_type: EventType) -> None:
    """Note the faults of the reduction's own parameters, unless the reduction itself is at fault."""
    if event_type.reduction == table.raw.get("reduction", event_type.reduction):
        table.faults += check_parameters(event_type, table.at("parameters"))


def _cubes(value: object) -> int | None:
    """None: the router chooses."""
    if value == "auto":
        return None
    if isinstance(value, str):
        raise ValueError(f'must be a power of two, or "auto", not {shown(value)}')
    number = integer(1, CUBES_MAX)(value)
    if number & (number - 1):
        raise ValueError(f"must be a power of two, not {number}")
    return number


def _index(value: object) -> tuple[str, ...]:
    """None at all: the router chooses."""
    return () if value == "auto" else list_of(text)(value)


def _check_grid(table: Table, event_type: EventType, attributes: Iterable[str]) -> None:
    if len(event_type.index) > DIMENSIONS_MAX:
        table.fault("index", f"must name at most {DIMENSIONS_MAX} attributes, not {len(event_type.index)}")
    known = list(attributes)
    for name in event_type.index:
        if name not in known:
            table.fault("index", f"{name!r} is no attribute of this type")
    if event_type.bits is None or not known:
        return
    dimensions = len(event_type.index) or min(DIMENSIONS_DEFAULT, len(known))
    bits = dimensions * event_type.bits
    if bits > INDEX_BITS_MAX:
        reason = f"{dimensions} dimensions of {event_type.bits} bits are {bits}, more than {INDEX_BITS_MAX}"
        table.fault("bits", f"{reason}; take fewer bits, or fewer attributes into index")
    if event_type.cubes > 2**bits:
        table.fault("cubes", f"{event_type.cubes} cubes are more than the 2^{bits} cells of the grid")


def _read_attribute(name: str, table: Table) -> Attribute:
    table.need("kind")
    kind = table.take("kind", choice(*KINDS), None)
    low, high = table.take("min", _raw, None), table.take("max", _raw, None)
    values = table.take("values", list_of(text), None)
    imprecise = table.take("imprecise", choice("certain", "possible"), None)
    cells = table.take("cells", choice("uniform", "quantile"), "uniform")
    path, header, key = _read_place(table)
    table.end()
    if kind is None:  # nothing below can be judged
        return Attribute(name, "text")
    if kind == "category" and "values" not in table.raw:
        table.fault("values", "missing; a category declares its values, in order")
    elif kind == "category" and values == ():
        table.fault("values", "must hold at least one value")
    elif kind != "category" and "values" in table.raw:
        table.fault("values", f"only a category has values, not a {kind}")
    if imprecise and kind not in ("int", "float", "timestamp"):
        table.fault("imprecise", f"only int, float and timestamp can be imprecise, not {kind}")
    if imprecise and (header is not None or key):
        table.fault("imprecise", "only what is in the document can be imprecise, not a header or the key")
    if cells == "quantile" and kind in ("category", "boolean"):
        table.fault("cells", f"a {kind} has a cell for each of its values; only other kinds have quantiles")
    certainty = cast(Literal["certain", "possible"] | None, imprecise)
    attribute = Attribute(
        name, cast(Kind, kind), None, None, values or (), certainty, path, header, key,
        cast(Literal["uniform", "quantile"], cells),
    )  # fmt: skip
    return _with_domain(attribute, table, low, high)


def _read_place(table: Table) -> tuple[tuple[str, ...] | None, str | None, bool]:
    """Where an attribute is: path, header, key; at most one of them is given."""
    place = (
        table.take("path", _path, None),
        table.take("header", _header, None),
        table.take("key", boolean, False),
    )
    given = [name for name in ("path", "header", "key") if name in table.raw and table.raw[name] is not False]
    for name in given[1:]:
        table.fault(name, f"{given[0]} is given already; an attribute is in one place")
    return place


def _path(value: object) -> tuple[str, ...]:
    """The members of a path: dots descend, and a part in double quotes may hold a dot.

    >>> _path('order."a.b".c')
    ('order', 'a.b', 'c')
    """
    rest, parts = text(value), []
    while True:
        match = re.match(r'"((?:[^"\\]|\\.)*)"|([^".]+)', rest)
        if match is None:
            raise ValueError(f"must be members with dots between, none of them empty, not {shown(value)}")
        quoted, plain = match.groups()
        parts.append(plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        rest = rest[match.end() :]
        if not parts[-1] or (rest and rest[0] != "."):
            raise ValueError(f"must be members with dots between, none of them empty, not {shown(value)}")
        if not rest:
            break
        rest = rest[1:]
    if len(parts) > PATH_MAX:
        raise ValueError(f"must descend at most {PATH_MAX} members, not {len(parts)}")
    return tuple(parts)


def _header(value: object) -> str:
    """A header that records bring along: not those that hilcast writes, drops or may add itself."""
    name = text(value)
    if not name:
        raise ValueError("must name a header")
    if name.startswith(OUR_HEADERS) or name in ENVELOPE_HEADERS:
        raise ValueError(f"{name!r} is a header that hilcast itself writes")
    return name


def _raw(value: object) -> object:
    return value


def _with_domain(attribute: Attribute, table: Table, low: object, high: object) -> Attribute:
    """The attribute with `min` and `max` as values of its kind; a fault for each that is not one."""
    bounds: dict[str, int | float | str | None] = {"min": None, "max": None}
    for key, value in (("min", low), ("max", high)):
        if value is not None:
            bounds[key] = table.take(key, lambda raw: _bound(attribute, raw), None)
    low_bound, high_bound = bounds["min"], bounds["max"]
    both = low_bound is not None and high_bound is not None
    if both and rank(attribute, low_bound) >= rank(attribute, high_bound):
        table.fault("max", f"must be greater than min: {shown(low_bound)} .. {shown(high_bound)}")
    return replace(attribute, min=low_bound, max=high_bound)


_BOUND_OF_KIND = {
    "int": f"an integer within +-{PRESENT_MAX}",
    "float": "a finite number",
    "timestamp": "an RFC 3339 time with an offset",
    "text": "text",
}


def _bound(attribute: Attribute, value: object) -> int | float | str:
    """A bound in the form that is kept: however it is written, the fingerprint is the same."""
    if attribute.kind not in _BOUND_OF_KIND:
        raise ValueError(f"a {attribute.kind} has no such bound")
    raw = value.isoformat() if isinstance(value, datetime.datetime) else value
    place = rank(attribute, raw)
    if place == ABSENT:
        raise ValueError(f"must be {_BOUND_OF_KIND[attribute.kind]}, not {shown(value)}")
    if attribute.kind == "text":
        return text(raw)
    canonical = unrank(attribute, place)
    return cast(int | float | str, raw if canonical is None else canonical)
