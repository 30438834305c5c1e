"""Rebuild all state from the registry: how a generation begins.

A new generation starts with a new checkpoint or a changed configuration. The facts of every broker, its own and other
deployments', are put through the same core, wave by wave, until nothing is left to say; the result is complete before
anything routes with it. What other deployments' brokers would have said is computed here too, and stands in until their
own snapshots arrive.

    registry facts ──by home key──> restored homes ──by type and part──> settled: cubes ──> neighbours' cubes ──> quiet
                                      │                                    ├─> states of our keys   (seeds)
                                      └─> states, receipts                 └─> compiled indexes     (Redis)

No home needs another, and neither does a part of a type. `restored` and `settled` are one such piece each; `rebuild`
does them one after another, Spark in any order (`streaming/building.py`), and the bytes are the same.

When the generation takes over it greets other deployments: the streams to and from their brokers begin anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from state.compiled_part import FORMAT as INDEX_FORMAT
from state.compiled_part import compile_part, compile_stamped
from state.control import journal
from state.control.context import Context
from state.control.facts import Fact, Kind, Name
from state.control.home import FORMAT as HOME_FORMAT
from state.control.home import Home
from state.control.part import FORMAT as PART_FORMAT
from state.control.part import Part
from state.control.protocol import FORMAT as MESSAGE_FORMAT
from state.control.protocol import Change, Resync
from state.errors import HilcastError
from state.fitting import misfits
from state.index_delta import FORMAT as DELTA_FORMAT
from state.keys import Key, home_key, index_keys
from state.messages import Output, addressee, own_receipts, receipt
from state.names import parted
from state.reductions.reduction import Fate

FORMATS = f"{HOME_FORMAT}.{PART_FORMAT}.{MESSAGE_FORMAT}.{INDEX_FORMAT}.{DELTA_FORMAT}"
"""Of all that a generation leaves behind: states of home keys and parts, messages, index. A version that reads others
begins a generation of its own.
"""


@dataclass
class Rebuilt:
    """A generation at its birth."""

    states: dict[str, bytes] = field(default_factory=dict)
    indexes: dict[str, bytes] = field(default_factory=dict)
    forwarding: dict[str, dict[str, dict[str, Fate]]] = field(default_factory=dict)
    """By key and neighbour: what became of each entry."""
    reduced: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """The same in numbers."""
    outputs: list[Output] = field(default_factory=list)
    """Receipts of dormant registrations."""
    topics: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    """Lines for the log: registrations that failed inside, and lie dormant (code `internal`)."""

    def take(self, one: Restored | Settled) -> None:
        """Add a key of ours."""
        if one.state is not None:
            self.states[str(one.key)] = one.state
        if isinstance(one, Restored):
            self.outputs += one.outputs
            self.topics |= one.topics
            self.faults += one.faults
        else:
            self.indexes[str(one.key)] = one.index
            self.forwarding[str(one.key)], self.reduced[str(one.key)] = one.forwarding, one.reduced


FactOf = tuple[str, str, str, str, Fact]
"""Kind, broker, type, id, and what the registry says of it."""
Told = tuple[str, Change]
"""A key, and what it is told."""


@dataclass(frozen=True)
class Restored:
    """One home key at the birth of a generation."""

    key: Key
    state: bytes
    told: list[Told]
    """What it tells its broker's parts."""
    outputs: list[Output]
    """Receipts of dormant registrations."""
    topics: set[str]
    faults: list[str]


@dataclass(frozen=True)
class Settled:
    """One cube or wide key at the birth of a generation."""

    key: Key
    state: bytes | None
    """None: nobody has said anything to it."""
    index: bytes
    forwarding: dict[str, dict[str, Fate]]
    reduced: dict[str, dict[str, int]]


def rebuild(
    facts: Iterable[FactOf],
    context: Context,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Rebuilt:
    """Fold facts into the states, indexes and messages of a new generation.

    Guarantee: complete: every live subscription is in force in the result. Deterministic.
    Cost: that of handling each fact once at each broker it reaches, in bulk.
    """
    everyone = context.of_everyone()
    by_home, displaced = by_home_key(facts, context)
    rebuilt = Rebuilt(outputs=displaced)
    by_part: dict[tuple[str, str], list[Told]] = defaultdict(list)
    done, total = 0, sum(map(len, by_home.values()))
    for key in sorted(by_home):
        home = restored(key, by_home[key], everyone)
        for told in home.told:
            to = Key.parse(told[0])
            by_part[to.type, to.part].append(told)
        if key.broker in context.hosts:
            rebuilt.take(home)
        done += len(by_home[key])
        progress("registrations", done, total)
    parts = parts_of(context)
    for n, part in enumerate(parts):
        for one in settled(part, by_part.pop(part, []), context, everyone):
            rebuilt.take(one)
        progress("parts", n + 1, len(parts))
    rebuilt.topics |= own_receipts(rebuilt.outputs, context.topics)
    assert not misfits(rebuilt.outputs, context.topics), "what would not fit is cut or split where it is made"
    assert not by_part, "every part is somewhere of ours, for every broker has every part"
    return rebuilt


def by_home_key(facts: Iterable[FactOf], context: Context) -> tuple[dict[Key, list[tuple[Name, Fact]]], list[Output]]:
    """Facts by the home key that has them, and the answers to those that no key of this configuration has."""
    by_home: dict[Key, list[tuple[Name, Fact]]] = defaultdict(list)
    displaced, config = [], context.config
    for kind, broker, type_name, id, fact in facts:
        if broker in config.overlay.brokers and type_name in config.types:
            by_home[home_key(broker, type_name, id, config)].append((Name(Kind(kind), id), fact))
        elif fact.live and (broker in context.hosts or config.overlay.brokers[0] in context.hosts):
            displaced.append(_displaced(kind, broker, type_name, id, fact, context))
    return by_home, displaced


def restored(key: Key, facts: Iterable[tuple[Name, Fact]], everyone: Context) -> Restored:
    """A home key with these facts, all that the registry has of it; it takes them over, and changes them.

    `everyone`: a context that hosts every broker.
    """
    home = Home(key, None, everyone)
    for name, fact in sorted(facts, key=lambda item: (item[1].offset, item[0])):
        home.restore(name, fact)
    told = home.tell()
    return Restored(key, home.encoded(), told, home.outputs, home.topics, home.faults)


def parts_of(context: Context) -> list[tuple[str, str]]:
    """Type and part of everything that is to be settled."""
    return sorted({(key.type, key.part) for key in index_keys(context.config, context.hosts)})


def settled(part: tuple[str, str], told: Iterable[Told], context: Context, everyone: Context) -> Iterator[Settled]:
    """One part of a type at every broker of ours, once nothing is left to say; `told`: what homes say to it anywhere.

    Guarantee: the same, in whatever order homes come.
    """
    messages: dict[Key, list[Change]] = defaultdict(list)
    for target, change in told:
        messages[Key.parse(target)].append(change)
    for changes in messages.values():
        changes.sort(key=lambda change: (Key.parse(change.source), change.sequence))
    asks = everyone.config.types[part[0]].advertisements
    cubes = _in_waves(messages, everyone) if asks else _swept(part, messages, everyone)
    for broker in context.hosts:
        yield _finish(Key(broker, *part), cubes.get(Key(broker, *part)), context)


def greetings(context: Context) -> Iterator[tuple[Key, Resync]]:
    """What opens the streams to and from brokers of other deployments: a snapshot out, a request for one back.

    To be said once the generation before says nothing any more: whoever has heard this one hears that one no longer.
    """
    for key in index_keys(context.config, context.hosts):
        for neighbour in context.config.overlay.neighbours(key.broker):
            if neighbour not in context.hosts:
                theirs, dialect = key.at(neighbour), context.dialect(key.type)
                yield key, Resync(str(theirs), dialect)
                yield theirs, Resync(str(key), dialect)


def _finish(key: Key, settled: Part | None, context: Context) -> Settled:
    """One part of ours as the new generation begins with it."""
    cube = settled or Part(key, None, context)
    compiled = cube.compiled()
    if settled is None:
        state, index = None, compile_part(compiled)
    else:
        _forget_strangers(cube, context)
        # another generation, or another attempt at this one, may have begun with something else
        index, cube.state.stamp = compile_stamped(compiled, journal.stamped)
        state = cube.encoded()
    return Settled(key, state, index, cube.forwarding(cube.neighbours), cube.reduced(cube.neighbours))


def _displaced(kind: str, broker: str, type_name: str, id: str, fact: Fact, context: Context) -> Output:
    """The answer to a registration whose broker or type the configuration no longer has: it stays, dormant."""
    known = broker in context.config.overlay.brokers
    code = "unknown-type" if known else "unknown-broker"
    error = HilcastError(code, f"{type_name if known else broker!r} is no longer in the configuration")
    return receipt(
        context.topics,
        kind="refused",
        key=f"{broker}/{type_name}/{parted(id)[1]}",
        owner=fact.owner,
        version=fact.version,
        broker=broker if known else None,
        epoch=context.epoch,
        origin=fact.origin,
        code=error.code,
        reason=error.reason,
        client=addressee(id, fact.owner, Kind(kind) is Kind.ADVERTISEMENT, context.config),
    )


def _swept(part: tuple[str, str], messages: Mapping[Key, list[Change]], context: Context) -> dict[Key, Part]:
    """Tell each neighbour once what it must hold: from the leaves of the overlay to its first broker, and back.

        b1 <── b2 <── b3        each says what it and those behind it ask for
        b1 ──> b2 ──> b3        then each has heard all others, and says what is on its other sides

    Guarantee: each link has one message, made when all is known that it depends on. So nothing is told that something
    from farther away covers, and taken back.
    """
    cubes: dict[Key, Part] = {}
    for key, changes in messages.items():
        for change in changes:
            _hear(cubes, key, change, context)
    before = context.config.overlay.outward()
    links = [(broker, previous) for broker, previous in before.items() if previous is not None]
    for source, target in (*reversed(links), *((b, a) for a, b in links)):
        cube = cubes.get(Key(source, *part))
        for to, said in [] if cube is None else cube.said_to(target):
            assert isinstance(said, Change), "nothing is missed here"
            _hear(cubes, Key.parse(to), said, context)
    for cube in cubes.values():
        cube.rest()
    return cubes


def _hear(cubes: dict[Key, Part], key: Key, change: Change, context: Context) -> None:
    if key not in cubes:
        cubes[key] = Part(key, None, context)
    cubes[key].apply(change)


def _in_waves(messages: dict[Key, list[Change]], context: Context) -> dict[Key, Part]:
    """Deliver the messages of one part wave by wave until nothing is left to say.

    So where advertisements are asked for: what a neighbour is told depends on what it says itself.
    """
    cubes: dict[Key, Part] = {}
    while messages:
        wave, messages = messages, defaultdict(list)
        for key in sorted(wave):
            for change in wave[key]:
                _hear(cubes, key, change, context)
            for target, said in cubes[key].advance():
                assert isinstance(said, Change), "nothing is missed here"
                messages[Key.parse(target)].append(said)
    return cubes


def _forget_strangers(cube: Part, context: Context) -> None:
    """What others' brokers said stands in until they say it themselves: their streams begin anew."""
    state = cube.state
    for source in list(state.incoming):
        if Key.parse(source).broker not in context.hosts:
            state.incoming[source] = (0, 0)
    for target in list(state.sequences):
        if Key.parse(target).broker not in context.hosts:
            state.sequences[target] = 0
