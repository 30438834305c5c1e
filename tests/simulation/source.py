"""The simulated world as the console reads it: the same core, its topics and its index, and no Kafka or Redis."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict

from producers.commands.inspecting import Part
from producers.console.poller import Standing, Tail
from state.control.context import Context
from state.control.part import Part as ControlPart
from state.keys import Key
from state.messages import Output
from state.redis_index import Version
from state.space.encodings.schemas import NO_SCHEMAS
from state.space.packing import unpack
from tests.simulation.wire import Event
from tests.simulation.world import World

RUN = "simulated"


def shown_part(key, compiled, version, reduced, valid=True):
    """A part as `inspect` reads it."""
    meta = {"generation": "1", "epoch": version.epoch, "built": "", "subscriptions": str(len(compiled.ids))}
    meta |= {"boxes": str(len(compiled.owners) // 4), "residual": str(len(compiled.residuals))}
    meta |= {"links": str(len(compiled.links)), "advertisements": str(len(compiled.advertisements))}
    links = {n: f"{len(unpack(g))} {'ranges' if g.kind else 'boxes'}" for n, g in compiled.links.items()}
    return Part(key, version, valid, meta, {}, links, reduced, 0, frozenset())


class SimulatedSource:
    """A source of the console; `lost` parts are missing in its Redis, a deployment in `stopped` has no driver."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.config = world.deployments[0].config
        self.index = self
        self.lost: set[Key] = set()
        self.stopped: set[str] = set()
        self.figures: dict[str, Counter[str]] = defaultdict(Counter)
        self.asked: Counter[str] = Counter()
        self._versions: dict[Key, tuple[object, Version]] = {}
        self._read: dict[str, int] = defaultdict(int)
        world.slices = self._count
        world.log.now_ms = int(time.time() * 1000)

    def _count(self, deployment, records, outputs, figures):
        self.figures[deployment.name].update(figures)

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, broker, type_name, id, client, text, topic="subscriptions", owner="client"):
        key = f"{broker}/{type_name}/{id}"
        self.world.send(f"{self.config.deployment.prefix}.{topic}", key, {owner: client, "filter": text})

    def settle(self):
        """Handle everything that was sent, and say so in the progress topic."""
        began = time.monotonic()
        self.world.settle()
        self._progress("control", time.monotonic() - began, 1)

    def publish(self, events):
        """Route events: id, type, broker, attributes, publisher."""
        log, began = self.world.log, time.monotonic()
        log.now_ms = max(log.now_ms, int(time.time() * 1000))
        made = [Event(id, type, broker, json.dumps(a).encode(), source) for id, type, broker, a, source in events]
        self.world.post([event.publication(self.config.topics) for event in made])
        self.world.route()
        self._progress("route", time.monotonic() - began, len(made))

    def _progress(self, query, seconds, rows):
        for d in self.world.deployments:
            line = {"deployment": d.name, "query": query, "hosts": list(d.hosts), "rows": rows, "lag": 0}
            line |= {"epoch": f"{d.generation}.{d.batch}", "batch_ms": round(seconds * 1000)}
            self.world.log.append(Output(self.config.topics.progress, query.encode(), json.dumps(line).encode()))

    # ── the protocol ────────────────────────────────────────────────────────────────────────────────────────────

    def deployment(self, broker):
        return self.world.host(broker)

    def part(self, key):
        self.asked["part"] += 1
        return None if key in self.lost else self.deployment(key.broker).index.get(key)

    def fates(self, key, neighbour, entries):
        blob = self.deployment(key.broker).states.get(str(key))
        if blob is None:
            return [None] * len(entries)
        d = self.deployment(key.broker)
        told = ControlPart(key, blob, Context(d.config, 1, 1)).forwarding([neighbour])[neighbour]
        return [told.get(entry) for entry in entries]

    def _version(self, key, compiled):
        known = self._versions.get(key)
        if known is None or known[0] is not compiled:
            batch = 1 if known is None else known[1].batch + 1
            self._versions[key] = known = (compiled, Version(1, batch, RUN))
        return known[1]

    def configuration(self):
        return self.world.deployments[0].config

    def standings(self, deployments):
        self.asked["standings"] += 1
        found = {}
        for d in self.world.deployments:
            if d.name in deployments:
                held = {k: c for k, c in d.index.items() if k not in self.lost}
                versions = {str(key): self._version(key, compiled) for key, compiled in held.items()}
                figures = {name: str(n) for name, n in self.figures[d.name].items()}
                found[d.name] = Standing(RUN, d.generation, versions, None, figures)
        return found

    def parts(self, keys, standing):
        self.asked["parts"] += len(keys)
        found = {}
        for key in keys:
            d = self.deployment(key.broker)
            blob = d.states.get(str(key))
            near = d.config.overlay.neighbours(key.broker)
            reduced = {n: {} for n in near}
            if blob is not None:
                reduced = ControlPart(key, blob, Context(d.config, 1, 1)).reduced(near)
            found[key] = shown_part(key, d.index[key], standing.versions[str(key)], reduced)
        return found

    def _new(self, topics):
        records = []
        for topic in topics:
            log = self.world.log.topics[topic]
            records += log[self._read[topic] :]
            self._read[topic] = len(log)
        return sorted(records, key=lambda record: record.timestamp_ms)

    def registry(self):
        self.asked["registry"] += 1
        return self._new([self.config.topics.registry])

    def tail(self):
        self.asked["tail"] += 1
        topics = self.config.topics
        destinations = sorted(t for t in self.world.log.topics if t.startswith(topics.deliver("")))
        inputs = [topics.publications, *(source.topic for source in self.config.sources)]
        wanted = [topics.progress, topics.deadletter, topics.receipts, *inputs, *destinations]
        ends = {(topic, 0): self.world.log.end(topic) for topic in wanted}
        return Tail(self._new(wanted), ends, 0, (len(destinations), len(destinations)), self.config)

    def groups(self):
        self.asked["groups"] += 1
        names = [d.name for d in self.world.deployments]
        lag = {(name, query): 0 for name in names for query in ("control", "route")}
        return lag, {name: name not in self.stopped for name in names}

    def schemas(self):
        return NO_SCHEMAS

    def close(self):
        self.asked["close"] += 1
