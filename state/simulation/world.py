"""A deterministic world around the real core: topics are lists, batches are steps, faults are drawn from a seed.

    client.send ──> topics ──> Deployment.step (handle every key) ──> topics ... ──> quiet
                                     └──> index ──> Deployment.route ──> deliveries, links

The drivers here do what the Spark operators do, no more: group a batch by key, call `handle`, write the outputs. A
crash writes some outputs of a batch and forgets its state, as a killed job would; the batch is then replayed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from state.broker.context import Context
from state.broker.core import handle
from state.broker.home import Fact, decode_fact
from state.broker.index import CompiledPart, Junction, load_part
from state.broker.keys import UNROUTABLE, Key, home_key, index_keys
from state.broker.protocol import encode, seeds
from state.broker.rebuild import rebuild
from state.broker.routing import Tree, route
from state.config import Config
from state.errors import HilcastError
from state.messages import Output, Record, split_key
from state.space.decode import decode
from state.space.grid import Grid


@dataclass
class Log:
    """Topics as lists of records, with a clock that only counts."""

    topics: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    now_ms: int = 0

    def append(self, output: Output) -> Record:
        self.now_ms += 1
        records = self.topics[output.topic]
        record = Record(output.topic, 0, len(records), self.now_ms, output.key, output.value, output.headers)
        records.append(record)
        return record

    def end(self, topic: str) -> int:
        return len(self.topics[topic])


@dataclass(frozen=True)
class Delivery:
    """One copy that a client got."""

    client: str
    destination: str
    event: str
    subscriptions: tuple[str, ...]


class SimulatedDeployment:
    """The job of one deployment: states, positions, and the index that routing uses."""

    def __init__(self, world: World, config: Config) -> None:
        self.world = world
        self.config = config
        self.generation = 0
        self.batch = 0
        self.states: dict[str, bytes] = {}
        self.positions: dict[str, int] = {}
        self.index: dict[Key, CompiledPart] = {}
        self._junctions: dict[tuple[str, str], Junction] = {}
        self.begin()

    @property
    def inputs(self) -> tuple[str, ...]:
        topics = self.config.topics
        return (topics.advertisements, topics.subscriptions, topics.control)

    def begin(self) -> None:
        """Begin a generation from the registry, as after a lost checkpoint or a changed configuration."""
        log, topics = self.world.log, self.config.topics
        self.generation += 1
        self.batch = 0
        self.positions = {
            topics.advertisements: self.positions.get(topics.advertisements, 0),
            topics.subscriptions: self.positions.get(topics.subscriptions, 0),
            topics.control: log.end(topics.control),
        }
        context = Context(self.config, self.generation, 0)
        rebuilt = rebuild(self.world.facts(), context)
        self.states = {}
        for key, blob in rebuilt.states.items():
            for seed in seeds(self.generation, blob):
                log.append(Output(topics.control, key.encode(), encode(seed)))
        for output in rebuilt.outputs:
            log.append(output)
        self.index = {Key.parse(key): load_part(blob) for key, blob in rebuilt.indexes.items()}
        self._junctions = {}

    def behind(self) -> bool:
        return any(self.positions[topic] < self.world.log.end(topic) for topic in self.inputs)

    def step(self, rng: random.Random | None = None, crash: bool = False) -> None:
        """Handle one batch: everything up to the end, or with `rng` up to a random place of the inboxes."""
        ends = {topic: self.world.log.end(topic) for topic in self.inputs}
        if rng is not None:
            for topic in self.inputs[:2]:
                ends[topic] = rng.randint(self.positions[topic], ends[topic])
        groups: dict[str, list[Record]] = defaultdict(list)
        for topic in self.inputs:
            for record in self.world.log.topics[topic][self.positions[topic] : ends[topic]]:
                key = self._owner(record)
                if key is not None:
                    groups[key].append(record)
        context = Context(self.config, self.generation, self.batch)
        context.__dict__["grids"] = self.world.grids(self.config)
        states, outputs, index = {}, [], {}
        for key in sorted(groups):
            result = handle(key, self.states.get(key), groups[key], context)
            states[key] = result.state
            outputs += result.outputs
            if result.index is not None:
                index[Key.parse(key)] = load_part(result.index)
        if crash:
            assert rng is not None
            for output in outputs[: rng.randint(0, len(outputs))]:
                self.world.log.append(output)
            return
        for output in outputs:
            self.world.log.append(output)
        self.states |= {key: blob for key, blob in states.items() if blob is not None}
        self.positions = ends
        self.batch += 1
        self.index |= index
        for changed in index:
            self._junctions.pop((changed.broker, changed.type), None)

    def _owner(self, record: Record) -> str | None:
        """Which key answers a record, if it is one of ours: what the control query's SQL computes."""
        hosts = self.config.deployment.hosts
        if record.topic == self.config.topics.control:
            key = (record.key or b"").decode()
            return key if key.split("/")[0] in hosts else None
        try:
            broker, type_name, id = split_key(record.key)
        except HilcastError:
            broker = ""
        if broker in hosts:
            known = type_name in self.config.types
            return str(home_key(broker, type_name, id, self.config)) if known else UNROUTABLE
        first = self.config.overlay.brokers[0] in hosts
        return UNROUTABLE if first and broker not in self.config.overlay.brokers else None

    def junction(self, broker: str, type_name: str) -> Junction:
        if (broker, type_name) not in self._junctions:
            parts = [self.index[k] for k in index_keys(self.config, (broker,)) if k.type == type_name]
            grid = self.world.grids(self.config)[type_name]
            self._junctions[broker, type_name] = Junction.join(self.config.types[type_name], grid, parts)
        return self._junctions[broker, type_name]

    def route(self, event: Event, broker: str, origin: str | None) -> tuple[list[Delivery], list[tuple[str, str]]]:
        """Route one event that stands at `broker`: deliveries, and links crossed."""
        event_type = self.config.types[event.type]
        batch = decode(event_type, [event.value])
        assert batch.valid[0]
        hosts = frozenset(self.config.deployment.hosts)
        junctions = {b: self.junction(b, event.type) for b in hosts}
        routed = route(self.world.tree, hosts, junctions, batch, {(broker, origin): np.array([0])})
        united: dict[tuple[str, str], set[str]] = defaultdict(set)
        for at, (_, owners) in routed.matches.items():
            for owner in owners:
                junction = junctions[at]
                united[junction.clients[owner], junction.destinations[owner]].add(junction.ids[owner])
        deliveries = [Delivery(c, d, event.id, tuple(sorted(ids))) for (c, d), ids in sorted(united.items())]
        return deliveries, list(routed.links)


@dataclass(frozen=True)
class Event:
    """One publication."""

    id: str
    type: str
    broker: str
    value: bytes


class World:
    """One overlay, its topics, and the deployments that host it."""

    def __init__(self, config: Config, hosting: list[tuple[str, ...]] | None = None) -> None:
        self.log = Log()
        self.config = config
        self.tree = Tree.of(config.overlay)
        self._grids: dict[str, dict[str, Grid]] = {}
        hosting = hosting or [config.overlay.brokers]
        self.deployments = []
        for i, hosts in enumerate(hosting):
            deployment = replace(config.deployment, name=f"d{i}", hosts=hosts)
            self.deployments.append(SimulatedDeployment(self, replace(config, deployment=deployment)))

    def grids(self, config: Config) -> dict[str, Grid]:
        """Grids of a configuration, built once."""
        fingerprint = config.fingerprint()
        if fingerprint not in self._grids:
            self._grids[fingerprint] = Context(config, 0, 0).grids
        return self._grids[fingerprint]

    def facts(self) -> list[tuple[str, str, str, str, Fact]]:
        """The registry after compaction: the last record of each key."""
        last: dict[bytes, bytes | None] = {}
        for record in self.log.topics[self.config.topics.registry]:
            last[record.key or b""] = record.value
        found = []
        for key, value in last.items():
            kind, broker, type_name, id = key.decode().split("/")
            if value is not None:
                found.append((kind, broker, type_name, id, decode_fact(value)))
        return found

    def send(self, topic: str, key: str, value: Mapping[str, object] | None, version: int | None = None) -> Record:
        """A client's control event."""
        headers = () if version is None else (("hilcast_version", str(version).encode()),)
        return self.log.append(
            Output(topic, key.encode(), None if value is None else msgspec.json.encode(value), headers)
        )

    def settle(self, limit: int = 1000) -> int:
        """Step every deployment until nothing is left to read; return how many steps it took."""
        for steps in range(limit):
            late = [d for d in self.deployments if d.behind()]
            if not late:
                return steps
            for deployment in late:
                deployment.step()
        raise AssertionError("the world does not come to rest")

    def publish(self, event: Event) -> tuple[list[Delivery], list[tuple[str, str]]]:
        """Route one event through every deployment it reaches; deliveries of all, links crossed."""
        waiting: list[tuple[str, str | None]] = [(event.broker, None)]
        deliveries: list[Delivery] = []
        crossed: list[tuple[str, str]] = []
        for broker, origin in waiting:
            host = next(d for d in self.deployments if broker in d.config.deployment.hosts)
            found, links = host.route(event, broker, origin)
            deliveries += found
            crossed += links
            hosts = host.config.deployment.hosts
            waiting += [(target, source) for source, target in links if target not in hosts]
        return deliveries, crossed
