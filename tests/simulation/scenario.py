"""Scenarios: an overlay, who hosts it, its configurations, and everything that happens, drawn from one seed.

A scenario is data: a list of actions that `drill.py` performs. So it can be printed, shortened and run again. Filters
and events come from a `Workload` that the caller brings (`benchmarks/workloads/mixed.py` is one), mixed with boxes on a
coarse lattice, so that covering, merging and touching of cubes happen all the time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from state.config import CLUSTERINGS, Config, Fitted, parse
from state.overlay import Overlay
from state.space.cells import quantiles
from state.space.event_type import Attribute, EventType
from state.space.ranks import rank
from tests.simulation.avro_events import schema_of

Name = tuple[str, str, str]
"""Broker, type, id."""


class Workload(Protocol):
    """Sources of random filters and events for any event type."""

    def filters(self, event_type: EventType, seed: int) -> Callable[[], str]: ...

    def events(self, event_type: EventType, seed: int) -> Callable[[], dict[str, object]]: ...


# ── what can happen ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Register:
    """A client subscribes or replaces, or a publisher advertises."""

    name: Name
    owner: str
    filter: str
    advertisement: bool = False
    version: int | None = None
    ttl_ms: int | None = None
    sink: str | None = None
    groups: bool = False
    named: bool = True
    """Whether it says whose it is; where clients have inboxes of their own, it need not."""


@dataclass(frozen=True)
class Withdraw:
    """The null value on a key."""

    name: Name
    advertisement: bool = False
    version: int | None = None
    owner: str = ""
    """In whose inbox, where clients have inboxes of their own."""


@dataclass(frozen=True)
class Lapse:
    """The time to live of a key passes, if it has one."""

    name: Name
    advertisement: bool = False
    owner: str = ""
    """In whose namespace, where clients have namespaces of their own."""


@dataclass(frozen=True)
class LapseAll:
    """A fleet goes away: the time to live of every key that has one passes at the same moment."""


@dataclass(frozen=True)
class Renew:
    """The inboxes are deleted and made again: their offsets begin at 0, and they have other ids."""

    seed: int


@dataclass(frozen=True)
class Zombie:
    """A deployment is followed by another driver while its batch is half done, and writes the rest of it later."""

    deployment: int
    seed: int


@dataclass(frozen=True)
class Nonsense:
    """A control event that must be refused with this code; `internal`: no query could be got past it."""

    key: str | None
    value: str
    code: str
    owner: str = "c0"
    """In whose inbox, where clients have inboxes of their own."""
    advertisement: bool = False


@dataclass(frozen=True)
class Step:
    """One batch of a deployment, cut anywhere; or one that dies inside."""

    deployment: int
    seed: int
    crash: bool = False


@dataclass(frozen=True)
class Begin:
    """A deployment loses its checkpoint; with a variant it comes back with that configuration."""

    deployment: int
    seed: int
    variant: int | None = None


@dataclass(frozen=True)
class Restart:
    """A deployment is stopped and started on its checkpoint; with tables only these brokers of it have groups."""

    deployment: int
    tables: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Regroup:
    """The driver of a deployment looks at its groups, and does what is due of it, or some of that."""

    deployment: int
    seed: int


@dataclass(frozen=True)
class LoseIndex:
    """Redis forgets parts of a deployment's index."""

    deployment: int
    seed: int


@dataclass(frozen=True)
class LoseMessage:
    """A control message that nobody has read yet is gone."""

    seed: int


@dataclass(frozen=True)
class Compact:
    """Kafka compacts the registry, and what clients were told of shared topics."""


@dataclass(frozen=True)
class Publish:
    """Events in the middle of everything."""

    seed: int
    n: int


@dataclass(frozen=True)
class Fence:
    """Somebody waits until everything sent so far is in force, and then publishes; others go on meanwhile."""

    seed: int
    n: int


@dataclass(frozen=True)
class Rest:
    """Everybody comes to the same configuration and to rest; everything must be exactly right."""

    seed: int
    n: int
    forget: bool = False


Action = (
    Register
    | Withdraw
    | Lapse
    | LapseAll
    | Renew
    | Zombie
    | Nonsense
    | Step
    | Begin
    | Restart
    | Regroup
    | LoseIndex
    | LoseMessage
    | Compact
    | Publish
    | Fence
    | Rest
)


@dataclass(frozen=True)
class Scenario:
    """Everything that happens in one run."""

    seed: int
    variants: tuple[str, ...]
    """Configurations as `hilcast.toml` has them; all begin with the first."""
    hosting: tuple[tuple[str, ...], ...]
    message_bytes: int
    """The length at which control messages are cut."""
    actions: tuple[Action, ...] = ()

    def configs(self) -> list[Config]:
        """The variants, all but the first with cells that the router moved."""
        rng = random.Random(f"cells {self.seed}")
        first, *others = [parse(text) for text in self.variants]
        return [first, *(config.fitted_with(_moved_cells(config, rng)) for config in others)]

    def with_actions(self, actions: tuple[Action, ...]) -> Scenario:
        return replace(self, actions=actions)


def _moved_cells(config: Config, rng: random.Random) -> dict[str, Fitted]:
    """Quantiles as some publications would give them, for every attribute whose cells may move."""
    return {
        name: Fitted(
            quantiles={
                a.name: list(quantiles(np.array([rank(a, rng.randint(0, 20)) for _ in range(9)], np.int64)))
                for a in event_type.attributes
                if a.cells == "quantile"
            }
        )
        for name, event_type in config.types.items()
    }


# ── drawing one ─────────────────────────────────────────────────────────────────────────────────────────────────

REDUCTIONS: dict[str, tuple[str, ...]] = {
    "none": ("",),
    "covering": ("",),
    "merging": ("", "budget = 0.5"),
    "mics": (
        "",
        "cap = 2",
        'mode = "indexed"',
        'merging = "imperfect"\ngap_cells = 3',
        'merging = "imperfect"\nbudget = 0.3',
    ),
    "negative-space": (
        "",
        'mode = "approximate"\nk = 2',
        'mode = "approximate"\nk = 3\ndynamic = true\nrebuild = 0.3',
    ),
    "hybrid": ("", "budget = 4\ntrials_max = 3"),
    "probabilistic": ("error = 0.3",),
}
"""The reductions of the configuration, each with parameters to choose from."""
LOSSY = frozenset({"probabilistic"})
"""Reductions that may lose deliveries, within a bound of their own."""

ATTRIBUTES = {
    "line": ['x = { kind = "int", min = 0, max = 40 }'],
    "plane": ['x = { kind = "int", min = 0, max = 20, cells = "quantile" }', 'y = { kind = "int", min = 0, max = 20 }'],
    "blurred": [
        'x = { kind = "int", min = 0, max = 20, imprecise = "possible" }',
        'y = { kind = "float", min = -5, max = 5, imprecise = "certain" }',
        'side = { kind = "category", values = ["buy", "sell", "none"] }',
    ],
    "stock.quote": [
        'symbol = { kind = "text" }',
        'price = { kind = "float", min = 0, max = 1000, cells = "quantile" }',
        'volume = { kind = "int", min = 0, max = 1000000 }',
        'side = { kind = "category", values = ["buy", "sell", "none"] }',
        'at = { kind = "timestamp" }',
        'halted = { kind = "boolean" }',
    ],
}
INDEXES: dict[str, tuple[tuple[str, ...], ...]] = {
    "line": (("x",),),
    "plane": (("x", "y"), ("y",)),
    "blurred": (("x", "y"), ("x", "side")),
    "stock.quote": ((), ("price", "volume"), ("symbol", "side")),
}
BUDGETS = (None, None, 1, 2, 4, 8)
"""Of pruning: predicates that the filters of a home key may use; a key has a few ids here."""
MATCHERS = ('matcher = "bitmap"', 'matcher = "s-tree"', 'matcher = "s-tree"\nmatcher_parameters = { fanout = 2 }')
SCHEMA = 'format = "avro"\nschema = '
"""Stands in the table of the type, and not among its attributes."""
THRESHOLDS = ("0.0", "0.15", "0.5", '"fit"')
TABLES_MAX = 4
"""Brokers with groups."""
PARTS_MAX = 600
"""Parts of all brokers and types together: beyond that a run would take minutes."""


@dataclass(frozen=True)
class Size:
    """How much happens in a run."""

    brokers: int = 8
    rounds: int = 3
    changes: int = 24
    """Control events of clients a round."""
    events: int = 16
    """Publications compared at each rest."""

    @classmethod
    def of(cls, seed: int, brokers: int | None = None) -> Size:
        """The size of a seed: mostly small overlays, where more happens in the same time; up to 100 brokers.

        A round of a large one takes many times as long: there is one of them.
        """
        rng = random.Random(f"size {seed}")
        most = rng.choice((4, 6, 8, 8, 12, 25, 50, 100))
        many = brokers or rng.randint(2, most)
        return cls(brokers=many, rounds=1 if many > 30 else 3)


def draw(seed: int, workload: Workload, size: Size = Size(), own: bool = False) -> Scenario:
    """The scenario of a seed; `own`: every client has inboxes of its own, and some try what they may not."""
    rng, pruning, matching = (random.Random(f"{what} {seed}") for what in ("scenario", "pruning", "matching"))
    brokers = tuple(f"b{i}" for i in range(1, size.brokers + 1))
    overlay = _draw_overlay(rng, brokers)
    kinds = rng.sample(sorted(ATTRIBUTES), rng.choice((1, 2, 2, 3)) if size.brokers <= 20 else 1)
    settings = f"home_shards = {rng.choice((1, 2, 3))}\nwide_shards = {rng.choice((1, 2))}"
    producer = random.Random(f"source {seed}")
    source = _source(producer.choice(brokers), producer.choice(kinds)) if producer.random() < 0.5 else ""
    first = [_draw_type(rng, kind, size.brokers * len(kinds), pruning, matching) for kind in kinds]
    hosting = _draw_hosting(rng, brokers)
    sharing = random.Random(f"sharing {seed}")
    security = random.Random(f"security {seed}")
    more = source + _tables(sharing, brokers) + (_security(security) if own else "")
    places = {kind: _places(random.Random(f"places {kind} {seed}"), ATTRIBUTES[kind]) for kind in kinds}
    places = {kind: _format(random.Random(f"format {kind} {seed}"), lines) + lines for kind, lines in places.items()}
    lanes = random.Random(f"lanes {seed}")
    variants = [_text(overlay, settings + _lanes(lanes), first, places) + more]
    for _ in range(rng.choice((0, 0, 1, 2))):
        parts = size.brokers * len(kinds)
        changed = [t if rng.random() < 0.4 else _draw_type(rng, t.kind, parts, pruning, matching) for t in first]
        if rng.random() < 0.3:
            settings = f"home_shards = {rng.choice((1, 2, 3))}\nwide_shards = {rng.choice((1, 2))}"
        if rng.random() < 0.5 and len(hosting) == 1:
            overlay = _draw_overlay(rng, brokers)
        variants.append(_text(overlay, settings + _lanes(lanes), changed, places) + more)
    config = parse(variants[0])
    drawn = Scenario(seed, tuple(variants), hosting, rng.choice((300, 4_000, 512 * 1024)))
    clients = _Clients(rng, config, workload, seed, sharing, security)
    actions: list[Action] = []
    hardship = random.Random(f"hardship {seed}")
    for _ in range(size.rounds):
        actions += _draw_round(rng, drawn, clients, size, hardship)
    return drawn.with_actions(tuple(actions))


def _draw_overlay(rng: random.Random, brokers: tuple[str, ...]) -> Overlay:
    """A tree between a star and a chain: each broker hangs on one of the last two before it, or on any."""
    links = []
    for i in range(1, len(brokers)):
        parent = max(0, i - rng.randint(1, 2)) if rng.random() < 0.5 else rng.randrange(i)
        links.append((brokers[parent], brokers[i]))
    return Overlay(brokers, tuple(links))


def _draw_hosting(rng: random.Random, brokers: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    n = min(len(brokers), rng.choice((1, 2, 2, 3, 4)))
    homes = [*range(n), *(rng.randrange(n) for _ in brokers[n:])]
    rng.shuffle(homes)
    return tuple(tuple(b for b, home in zip(brokers, homes, strict=True) if home == i) for i in range(n))


@dataclass(frozen=True)
class _Type:
    kind: str
    reduction: str
    parameters: str
    advertisements: bool
    cubes: int
    index: tuple[str, ...]
    bits: int | None
    pruning: tuple[int | None, int | None]
    """Budgets for advertisements and subscriptions."""
    matcher: str


def _draw_type(rng: random.Random, kind: str, brokers: int, pruning: random.Random, matching: random.Random) -> _Type:
    index = rng.choice(INDEXES[kind])
    cubes = rng.choice((1, 2, 4, 8, 16, 32, 64))
    while cubes > 1 and cubes * brokers > PARTS_MAX:
        cubes //= 2
    least = -(-(cubes.bit_length() - 1) // max(1, len(index)))
    bits = rng.choice((None, max(least, 2), max(least, 3), max(least, 5))) if index else None
    reduction = rng.choice(
        ("none", "covering", "covering", "merging", "mics", "mics", "negative-space", "hybrid", "probabilistic")
    )
    parameters, advertisements = rng.choice(REDUCTIONS[reduction]), rng.random() < 0.3
    budgets = (pruning.choice(BUDGETS) if advertisements else None, pruning.choice(BUDGETS))
    return _Type(kind, reduction, parameters, advertisements, cubes, index, bits, budgets, matching.choice(MATCHERS))


def _places(rng: random.Random, attributes: list[str]) -> list[str]:
    """The attributes of half the types, most of them elsewhere than at the top of a document; one may be the key."""
    if rng.random() < 0.5:
        return attributes
    placed, keyed = [], False
    for line in attributes:
        name = line.split(" ")[0]
        ways = ["", f', path = "in.{name}"', f", path = 'in.\"a.b\".{name}'", f', path = "in.deep.er.{name}"']
        if "imprecise" not in line:
            ways += [f', header = "x-{name}"', *([] if keyed else [", key = true"])]
        way = rng.choice(ways)
        keyed = keyed or "key" in way
        placed.append(line.removesuffix(" }") + way + " }")
    return placed


def _format(rng: random.Random, attributes: list[str]) -> list[str]:
    """A third of the types are Avro; a name with a dot is none of Avro's."""
    if rng.random() < 0.67 or any("a.b" in line for line in attributes):
        return []
    lines = ["[overlay]", 'brokers = ["b1"]', "[types.t.attributes]", *attributes]
    schema = schema_of(parse("\n".join(lines)).types["t"].attributes)
    return [f"{SCHEMA}{{ avro = '{schema}' }}"]


def _lanes(rng: random.Random) -> str:
    """How many partitions publications, links and shared topics have, and deliveries: one, unless it is set."""
    shared, own = rng.choice(("", "\npartitions = 2", "\npartitions = 3")), rng.choice(("", "", "2", "3"))
    return shared + (own and f"\ndelivery_partitions = {own}")


def _text(overlay: Overlay, settings: str, types: list[_Type], places: dict[str, list[str]]) -> str:
    lines = ["[settings]", settings, "[overlay]", f"brokers = {_listed(overlay.brokers)}"]
    lines.append(f"links = [{', '.join(_listed(link) for link in overlay.links)}]")
    for t in types:
        lines += [f'[types."{t.kind}"]', f'reduction = "{t.reduction}"', f"cubes = {t.cubes}", t.matcher]
        lines += [f"advertisements = {str(t.advertisements).lower()}"]
        lines += [f"index = {_listed(t.index)}"] if t.index else []
        lines += [] if t.bits is None else [f"bits = {t.bits}"]
        named = zip(("advertisements", "subscriptions"), t.pruning, strict=True)
        lines += [line for line in places[t.kind] if line.startswith(SCHEMA)]
        lines += [f'[types."{t.kind}".pruning]', *(f"{name} = {n}" for name, n in named if n is not None)]
        lines += [f'[types."{t.kind}".parameters]', t.parameters, f'[types."{t.kind}".attributes]']
        lines += [line for line in places[t.kind] if not line.startswith(SCHEMA)]
    return "\n".join(lines)


def _source(broker: str, kind: str) -> str:
    """A topic of plain JSON."""
    return f'\n[[sources]]\ntopic = "legacy"\nbroker = "{broker}"\ntype = "{kind}"\n'


def _tables(rng: random.Random, brokers: tuple[str, ...]) -> str:
    """Half of the overlays have a few brokers with groups."""
    some = rng.sample(brokers, min(len(brokers), rng.randint(1, TABLES_MAX))) if rng.random() < 0.5 else []
    text = ""
    for broker in some:
        text += f"[distribution.{broker}]\ngroups = {rng.choice((1, 2, 3))}\nregroup_s = {rng.choice((1, 2))}\n"
        text += f"threshold = {rng.choice(THRESHOLDS)}\n"
        text += f'clustering = "{rng.choice(CLUSTERINGS)}"\n' + rng.choice(("", "broadcast = 0.4\n"))
    return "\n" + text


def _security(rng: random.Random) -> str:
    """Inboxes of one's own; a sink for some; for half of the worlds a limit that is soon reached."""
    text = '[security]\ninboxes = "own"\n[[sinks]]\ntopic = "shared.sink"\nclients = ["c0", "c1", "c2", "c3"]\n'
    text += '[security.clients.p1]\nsources = ["p1", "p1/*"]\n[security.clients.c1]\ngroups = "some"\n'
    text += '[security.clients.c2]\ngroups = "some"\n'
    return text + rng.choice(("", f"[limits]\nsubscriptions = {rng.randint(1, 3)}\n"))


def _listed(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


# ── what happens in a round ─────────────────────────────────────────────────────────────────────────────────────


def _draw_round(
    rng: random.Random, scenario: Scenario, clients: _Clients, size: Size, hardship: random.Random
) -> list[Action]:
    actions: list[Action] = []
    n = len(scenario.hosting)
    pace = [rng.choice((0.0, 0.2, 1.0, 1.0)) for _ in range(n)]
    """How often each deployment steps; some stand still for a whole round."""
    faults = rng.random() < 0.7
    for _ in range(size.changes):
        actions.append(clients.draw())
        for i in range(n):
            while rng.random() < 0.4 * pace[i]:
                actions.append(Step(i, rng.getrandbits(32), crash=faults and rng.random() < 0.2))
        if faults and rng.random() < 0.08:
            actions.append(_draw_fault(rng, scenario))
        if faults and hardship.random() < 0.06:
            actions.append(_draw_hardship(hardship, scenario))
        actions += _draw_regrouping(clients, n, faults)
        if rng.random() < 0.25:
            actions.append(Publish(rng.getrandbits(32), 2))
        if rng.random() < 0.03:
            actions.append(Fence(rng.getrandbits(32), size.events // 2))
    actions.append(Rest(rng.getrandbits(32), size.events, rng.random() < 0.3))
    return actions


def _draw_hardship(rng: random.Random, scenario: Scenario) -> Action:
    """Faults of the world around a job, beyond those that a batch or a generation meets."""
    broker, name = rng.choice(scenario.hosting)[0], rng.choice(list(scenario.configs()[0].types))
    key, seed = f"{broker}/{name}/hard", rng.getrandbits(32)
    return rng.choice(
        (
            LapseAll(),
            Renew(seed),
            Zombie(rng.randrange(len(scenario.hosting)), seed),
            Zombie(rng.randrange(len(scenario.hosting)), seed),
            Nonsense(key, '{"client": "c0", "filter": "TRUE", "sink": "forbidden"}', "sink-refused"),
            Nonsense(key, '{"client": "c0", "filter": "TRUE"}', "internal"),
        )
    )


def _draw_regrouping(clients: _Clients, n: int, faults: bool) -> list[Action]:
    """What drivers do between others' doings, where there are groups."""
    rng, tables = clients.sharing, tuple(clients.config.distribution)
    if not tables:
        return []
    some: list[Action] = [Regroup(i, rng.getrandbits(32)) for i in range(n) if rng.random() < 0.3]
    if faults and rng.random() < 0.08:
        kept = tuple(table for table in tables if rng.random() < 0.6)
        some.append(Restart(rng.randrange(n), kept if rng.random() < 0.5 else None))
    return some


def _draw_fault(rng: random.Random, scenario: Scenario) -> Action:
    deployment, seed = rng.randrange(len(scenario.hosting)), rng.getrandbits(32)
    kind = rng.randrange(8)
    if kind == 0:
        return LoseIndex(deployment, seed)
    if kind in (1, 7):
        return LoseMessage(seed)
    if kind == 2:
        return Compact()
    if kind == 3:
        return Restart(deployment)
    if kind == 4 and len(scenario.variants) > 1:
        return Begin(deployment, seed, rng.randrange(len(scenario.variants)))
    return Begin(deployment, seed)


@dataclass
class _Clients:
    """Clients and publishers, and what each key said last."""

    rng: random.Random
    config: Config
    workload: Workload
    seed: int
    sharing: random.Random
    security: random.Random
    keys: dict[tuple[bool, Name], Register] = field(default_factory=dict)
    versions: dict[tuple[bool, Name], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        types = self.config.types
        self.filters = {name: self.workload.filters(t, self.seed) for name, t in types.items()}

    def draw(self) -> Action:
        rng = self.rng
        chance = rng.random()
        if chance < 0.03:
            return self._nonsense()
        known = list(self.keys)
        if known and chance < 0.20:
            return self._withdraw(*rng.choice(known))
        if known and chance < 0.26:
            advertisement, name = rng.choice(known)
            return Lapse(name, advertisement, self.keys[advertisement, name].owner)
        if known and chance < 0.32:
            return self._again(*rng.choice(known))
        return self._register()

    def _register(self) -> Register:
        rng = self.rng
        type_name = rng.choice(list(self.config.types))
        advertisement = rng.random() < (0.35 if self.config.types[type_name].advertisements else 0.05)
        broker = rng.choice(self.config.overlay.brokers)
        prefix = "" if rng.random() < 0.2 else f"{broker}-"
        name = (broker, type_name, f"{prefix}{'a' if advertisement else 's'}{rng.randint(0, 4)}")
        known = self.keys.get((advertisement, name))
        text = self._filter(type_name, None if known is None else known.filter)
        if advertisement:
            owner, sink = f"p{rng.randint(0, 1)}", None
        else:
            owner = known.owner if known and rng.random() < 0.8 else f"c{rng.randint(0, 6)}"
            sink = rng.choice((None, None, None, "shared.sink"))
        action = Register(
            name,
            owner,
            text,
            advertisement,
            version=self._version(advertisement, name),
            ttl_ms=rng.choice((None, None, 60_000)),
            sink=sink,
            groups=not advertisement and sink is None and self.sharing.random() < 0.7,
        )
        if self.config.security.own:
            # whether a limit is reached must not depend on when a time to live is seen to have passed
            ttl_ms = None if self.config.limits.any else action.ttl_ms
            action = replace(action, named=self.security.random() < 0.5, ttl_ms=ttl_ms)
        self.keys[advertisement, name] = action
        return action

    def _version(self, advertisement: bool, name: Name) -> int | None:
        """Mostly none; now and then a higher one, an equal one, or an old one."""
        last = self.versions.get((advertisement, name), 0)
        if self.rng.random() < 0.7:
            return None
        version = max(0, last + self.rng.choice((-3, -1, 0, 1, 2, 5)))
        self.versions[advertisement, name] = max(last, version)
        return version

    def _withdraw(self, advertisement: bool, name: Name) -> Withdraw:
        owner = self.keys[advertisement, name].owner
        if self.config.security.own and self.security.random() < 0.3:
            owner = f"{'p' if advertisement else 'c'}{self.security.randint(0, 1)}"
        return Withdraw(name, advertisement, self._version(advertisement, name), owner)

    def _again(self, advertisement: bool, name: Name) -> Register:
        """The very same event once more."""
        return self.keys[advertisement, name]

    def _nonsense(self) -> Nonsense:
        rng = self.rng
        broker, type_name = rng.choice(self.config.overlay.brokers), rng.choice(list(self.config.types))
        good, key = '{"client": "c0", "filter": "TRUE"}', f"{broker}/{type_name}/bad"
        if self.config.security.own and self.security.random() < 0.7:
            return self._forged(broker, type_name)
        # in an inbox of its own a client need not say who it is
        lacking = '{"client": "c0"}' if self.config.security.own else '{"filter": "TRUE"}'
        return rng.choice(
            (
                Nonsense(key, '{"client": "c0", "filter": "x <"}', "filter-syntax"),
                Nonsense(key, '{"client": "c0", "filter": "nowhere = 1"}', "filter-attribute"),
                Nonsense(key, '{"client": "c0"', "bad-json"),
                Nonsense(key, lacking, "bad-value"),
                Nonsense(f"nobody/{type_name}/s", good, "unknown-broker"),
                Nonsense(f"{broker}/nothing/s", good, "unknown-type"),
                Nonsense("?", good, "bad-key"),
                Nonsense(None, good, "bad-key"),
            )
        )

    def _forged(self, broker: str, type_name: str) -> Nonsense:
        """Somebody speaks for another client, whose registration may well exist, or delivers where he may not."""
        rng = self.security
        known = [(ad, name) for ad, name in self.keys if name[:2] == (broker, type_name)]
        advertisement, name = rng.choice(known) if known else (False, (broker, type_name, "s1"))
        kind = "publisher" if advertisement else "client"
        owner = self.keys[advertisement, name].owner if known else "c1"
        speaks = f'{{"{kind}": "{owner}", "filter": "TRUE", "version": 99}}'
        sink = '{"filter": "TRUE", "sink": "legacy.out"}'
        return rng.choice(
            (
                Nonsense("/".join(name), speaks, "not-yours", "mallory", advertisement),
                Nonsense(f"{broker}/{type_name}/bad", sink, "sink-refused", "mallory"),
            )
        )

    # ── filters ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _filter(self, type_name: str, before: str | None) -> str:
        """A filter of the workload, a box, everything, or something near what the key said before."""
        rng = self.rng
        if rng.random() < 0.1:
            return "TRUE"
        fresh = self.filters[type_name]() if rng.random() < 0.3 else self._box(self.config.types[type_name])
        if before is None or before == "TRUE" or len(before) > 300 or rng.random() < 0.5:
            return fresh
        return f"({before}) {rng.choice(('AND', 'OR'))} ({fresh})"

    def _box(self, event_type: EventType) -> str:
        numbers = [a for a in event_type.attributes if a.kind in ("int", "float")]
        some = numbers if self.rng.random() < 0.7 else [self.rng.choice(numbers)]
        return " AND ".join(self._span(a) for a in some)

    def _span(self, attribute: Attribute) -> str:
        rng = self.rng
        assert isinstance(attribute.min, int | float)
        assert isinstance(attribute.max, int | float)
        width = attribute.max - attribute.min
        low = attribute.min + width * rng.randint(0, 19) / 20
        high = low + width * rng.choice((0, 1, 1, 2, 4, 10, 20)) / 20
        ends = (int(low), int(high)) if attribute.kind == "int" else (low, high)
        return f"{attribute.name} BETWEEN {ends[0]} AND {ends[1]}"
