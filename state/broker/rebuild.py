"""Rebuild all state from the registry: how a generation begins.

A new generation starts with a new checkpoint or a changed configuration. The facts of every broker, its own and other
deployments', are put through the same core, wave by wave, until nothing is left to say; the result is complete before
anything routes with it. What other deployments' brokers would have said is computed here too, and stands in until their
own snapshots arrive.

    registry facts ──> homes ──> cubes ──> neighbours' cubes ──> ... ──> quiet
                                                                          ├─> states of our keys   (seeds)
                                                                          ├─> compiled indexes     (Redis)
                                                                          └─> greetings to other deployments
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from state.broker.context import Context
from state.broker.core import handle
from state.broker.cube import Cube, decode_state, encode_state
from state.broker.home import Fact, Home
from state.broker.index import compile_part
from state.broker.keys import Key, home_key, index_keys
from state.broker.protocol import Resync, encode
from state.errors import HilcastError
from state.messages import Output, Record, receipt


@dataclass
class Rebuilt:
    """A generation at its birth."""

    states: dict[str, bytes] = field(default_factory=dict)
    indexes: dict[str, bytes] = field(default_factory=dict)
    forwarding: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    """By key and neighbour: what became of each entry, in words."""
    reduced: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """The same in numbers."""
    outputs: list[Output] = field(default_factory=list)
    """Receipts of dormant registrations; snapshots for and requests to other deployments."""
    topics: set[str] = field(default_factory=set)


def rebuild(
    facts: Iterable[tuple[str, str, str, str, Fact]],
    context: Context,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Rebuilt:
    """Fold facts (kind, broker, type, id, fact) into the states, indexes and messages of a new generation.

    Guarantee: complete: every live subscription is in force in the result. Deterministic.
    Cost: that of handling each fact once at each broker it reaches, in bulk.
    """
    everyone = context.of_everyone()
    rebuilt = Rebuilt()
    states, messages = _restore_homes(facts, everyone, frozenset(context.hosts), rebuilt)
    _settle(states, messages, everyone, progress)
    ours = set(context.hosts)
    for key in sorted(states):
        if key.broker in ours:
            rebuilt.states[str(key)] = _ours(key, states[key], context)
    for key in index_keys(context.config, context.hosts):
        cube = Cube(key, rebuilt.states.get(str(key)), context)
        rebuilt.indexes[str(key)] = compile_part(cube.compiled())
        rebuilt.forwarding[str(key)] = cube.forwarding(cube.neighbours)
        rebuilt.reduced[str(key)] = cube.reduced(cube.neighbours)
        _greet(key, cube, context, rebuilt)
    return rebuilt


def _restore_homes(
    facts: Iterable[tuple[str, str, str, str, Fact]],
    everyone: Context,
    ours: frozenset[str],
    rebuilt: Rebuilt,
) -> tuple[dict[Key, bytes], dict[Key, list[Output]]]:
    by_home: dict[Key, list[tuple[str, Fact]]] = defaultdict(list)
    for kind, broker, type_name, id, fact in facts:
        if broker in everyone.config.overlay.brokers and type_name in everyone.config.types:
            home = home_key(broker, type_name, id, everyone.config)
            by_home[home].append((f"{'a' if kind == 'advertisement' else 's'}/{id}", fact))
        elif fact.live and (broker in ours or everyone.config.overlay.brokers[0] in ours):
            rebuilt.outputs.append(_displaced(kind, broker, type_name, id, fact, everyone))
    states: dict[Key, bytes] = {}
    messages: dict[Key, list[Output]] = defaultdict(list)
    for key in sorted(by_home):
        home_state = Home(key, None, everyone)
        for slot, fact in sorted(by_home[key], key=lambda item: (item[1].offset, item[0])):
            home_state.restore(slot, fact)
        result = home_state.finish()
        assert result.state is not None
        states[key] = result.state
        for output in result.outputs:
            if output.topic == everyone.topics.control:
                messages[Key.parse((output.key or b"").decode())].append(output)
            elif key.broker in ours:
                rebuilt.outputs.append(output)
        if key.broker in ours:
            rebuilt.topics |= result.topics
    return states, messages


def _displaced(kind: str, broker: str, type_name: str, id: str, fact: Fact, context: Context) -> Output:
    """The answer to a registration whose broker or type the configuration no longer has: it stays, dormant."""
    known = broker in context.config.overlay.brokers
    code = "unknown-type" if known else "unknown-broker"
    error = HilcastError(code, f"{type_name if known else broker!r} is no longer in the configuration")
    return receipt(
        context.topics,
        kind="refused",
        key=f"{broker}/{type_name}/{id}",
        owner=fact.owner,
        version=fact.version,
        broker=broker if known else None,
        epoch=context.epoch,
        origin=(fact.topic, fact.partition, fact.offset),
        code=error.code,
        reason=error.reason,
    )


def _settle(
    states: dict[Key, bytes],
    messages: dict[Key, list[Output]],
    context: Context,
    progress: Callable[[int, int], None],
) -> None:
    """Deliver messages wave by wave until nothing is left to say."""
    offset, done = 0, 0
    while messages:
        wave, messages = messages, defaultdict(list)
        for key in sorted(wave):
            records = []
            for output in wave[key]:
                offset += 1
                records.append(Record(output.topic, 0, offset, 0, output.key, output.value))
            result = handle(str(key), states.get(key), records, context)
            assert result.state is not None
            states[key] = result.state
            for output in result.outputs:
                messages[Key.parse((output.key or b"").decode())].append(output)
            done += 1
            progress(done, done + len(messages))


def _ours(key: Key, blob: bytes, context: Context) -> bytes:
    """A state as this deployment begins with it: what others' brokers said stands in until they say it themselves."""
    if key.is_home:
        return blob
    state = decode_state(blob)
    for source in list(state.incoming):
        if Key.parse(source).broker not in context.hosts:
            state.incoming[source] = (0, 0)
    for target in list(state.sequences):
        if Key.parse(target).broker not in context.hosts:
            state.sequences[target] = 0
    return encode_state(state)


def _greet(key: Key, cube: Cube, context: Context, rebuilt: Rebuilt) -> None:
    """Open the streams to and from brokers of other deployments: a snapshot out, a request for one back."""
    foreign = [n for n in cube.neighbours if n not in context.hosts]
    if not foreign:
        return
    for neighbour in foreign:
        cube.resync(Resync(str(key.at(neighbour)), cube.dialect))
    result = cube.finish()
    assert result.state is not None
    rebuilt.states[str(key)] = result.state
    rebuilt.outputs += result.outputs
    for neighbour in foreign:
        request = encode(Resync(str(key), cube.dialect))
        rebuilt.outputs.append(Output(context.topics.control, str(key.at(neighbour)).encode(), request))
