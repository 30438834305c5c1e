"""Rebuild all state from the registry: how a generation begins.

A new generation starts with a new checkpoint or a changed configuration. The facts of every broker, its own and other
deployments', are put through the same core, wave by wave, until nothing is left to say; the result is complete before
anything routes with it. What other deployments' brokers would have said is computed here too, and stands in until their
own snapshots arrive.

    registry facts ──> homes ──> cubes ──> neighbours' cubes ──> ... ──> quiet, part by part
                                                                          ├─> states of our keys   (seeds)
                                                                          ├─> compiled indexes     (Redis)
                                                                          └─> greetings to other deployments
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from state.compiled_part import FORMAT as INDEX_FORMAT
from state.compiled_part import compile_part
from state.control.context import Context
from state.control.facts import Fact, Kind, Name
from state.control.home import FORMAT as HOME_FORMAT
from state.control.home import Home
from state.control.part import FORMAT as PART_FORMAT
from state.control.part import Part
from state.control.protocol import FORMAT as MESSAGE_FORMAT
from state.control.protocol import Change, Resync, decode, encode
from state.errors import HilcastError
from state.fitting import misfits
from state.keys import Key, home_key, index_keys
from state.messages import Output, addressee, own_receipts, receipt
from state.names import parted
from state.reductions.reduction import Fate

FORMATS = f"{HOME_FORMAT}.{PART_FORMAT}.{MESSAGE_FORMAT}.{INDEX_FORMAT}"
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
    """Receipts of dormant registrations; snapshots for and requests to other deployments."""
    topics: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    """Lines for the log: registrations that failed inside, and lie dormant (code `internal`)."""


def rebuild(
    facts: Iterable[tuple[str, str, str, str, Fact]],
    context: Context,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Rebuilt:
    """Fold facts (kind, broker, type, id, fact) into the states, indexes and messages of a new generation.

    Guarantee: complete: every live subscription is in force in the result. Deterministic.
    Cost: that of handling each fact once at each broker it reaches, in bulk.
    """
    everyone = context.of_everyone()
    rebuilt = Rebuilt()
    by_part = _restore_homes(facts, everyone, frozenset(context.hosts), rebuilt, progress)
    keys: dict[tuple[str, str], list[Key]] = defaultdict(list)
    for key in index_keys(context.config, context.hosts):
        keys[key.type, key.part].append(key)
    for done, part in enumerate(sorted(keys)):
        cubes = _settle(by_part.pop(part, {}), everyone)
        for key in keys[part]:
            _finish(key, cubes.get(key), context, rebuilt)
        progress("parts", done + 1, len(keys))
    rebuilt.topics |= own_receipts(rebuilt.outputs, context.topics)
    assert not misfits(rebuilt.outputs, context.topics), "what would not fit is cut or split where it is made"
    assert not by_part, "every part is somewhere of ours, for every broker has every part"
    return rebuilt


def _finish(key: Key, settled: Part | None, context: Context, rebuilt: Rebuilt) -> None:
    """Take one part of ours over into the new generation."""
    cube = settled or Part(key, None, context)
    if settled is not None:
        _forget_strangers(cube, context)
        rebuilt.states[str(key)] = cube.encoded()
    rebuilt.indexes[str(key)] = compile_part(cube.compiled())
    rebuilt.forwarding[str(key)] = cube.forwarding(cube.neighbours)
    rebuilt.reduced[str(key)] = cube.reduced(cube.neighbours)
    _greet(key, cube, context, rebuilt)


def _restore_homes(
    facts: Iterable[tuple[str, str, str, str, Fact]],
    everyone: Context,
    ours: frozenset[str],
    rebuilt: Rebuilt,
    progress: Callable[[str, int, int], None],
) -> dict[tuple[str, str], dict[Key, list[Change]]]:
    """Put the facts into homes; return what these tell cubes, by type and part."""
    by_home: dict[Key, list[tuple[Name, Fact]]] = defaultdict(list)
    for kind, broker, type_name, id, fact in facts:
        if broker in everyone.config.overlay.brokers and type_name in everyone.config.types:
            by_home[home_key(broker, type_name, id, everyone.config)].append((Name(Kind(kind), id), fact))
        elif fact.live and (broker in ours or everyone.config.overlay.brokers[0] in ours):
            rebuilt.outputs.append(_displaced(kind, broker, type_name, id, fact, everyone))
    by_part: dict[tuple[str, str], dict[Key, list[Change]]] = defaultdict(dict)
    done, total = 0, sum(map(len, by_home.values()))
    for key in sorted(by_home):
        home = Home(key, None, everyone)
        for name, fact in sorted(by_home[key], key=lambda item: (item[1].offset, item[0])):
            home.restore(name, fact)
            done += 1
            progress("registrations", done, total)
        result = home.finish()
        for output in result.outputs:
            if output.topic == everyone.topics.control:
                target, change = _addressed(output)
                by_part[target.type, target.part].setdefault(target, []).append(change)
            elif key.broker in ours:
                rebuilt.outputs.append(output)
        if key.broker in ours:
            assert result.state is not None
            rebuilt.states[str(key)] = result.state
            rebuilt.topics |= result.topics
            rebuilt.faults += result.faults
    return by_part


def _addressed(output: Output) -> tuple[Key, Change]:
    message = decode(output.value or b"")
    assert isinstance(message, Change)
    return Key.parse((output.key or b"").decode()), message


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


def _settle(messages: dict[Key, list[Change]], context: Context) -> dict[Key, Part]:
    """Deliver the messages of one part wave by wave until nothing is left to say."""
    cubes: dict[Key, Part] = {}
    while messages:
        wave, messages = messages, defaultdict(list)
        for key in sorted(wave):
            cube = cubes.setdefault(key, Part(key, None, context))
            for change in wave[key]:
                cube.apply(change)
            for output in cube.advance():
                target, change = _addressed(output)
                messages[target].append(change)
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


def _greet(key: Key, cube: Part, context: Context, rebuilt: Rebuilt) -> None:
    """Open the streams to and from brokers of other deployments: a snapshot out, a request for one back."""
    foreign = [n for n in cube.neighbours if n not in context.hosts]
    if not foreign:
        return
    for neighbour in foreign:
        cube.resync(Resync(str(key.at(neighbour)), cube.dialect))
    rebuilt.outputs += cube.advance()
    rebuilt.states[str(key)] = cube.encoded()
    for neighbour in foreign:
        request = encode(Resync(str(key), cube.dialect))
        rebuilt.outputs.append(Output(context.topics.control, str(key.at(neighbour)).encode(), request))
