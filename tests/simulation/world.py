"""A deterministic world around the real core: topics are lists, batches are steps, faults are drawn from a seed.

    World.send ──> topics ──> SimulatedDeployment.step (`handle` every key) ──> topics ... ──> quiet
                                     └──> index, part by part ──> snapshot
                                                                     ▼
    World.post ──> topics ──> SimulatedDeployment.route (`route` every slice) ──> links, deliveries, letters, routed

The drivers here do what the job and its two queries do, no more: plan a batch, call one of the two doors, write index
and outputs. What real ones do in no order, these do in an order drawn from a seed: keys of a batch, parts of the
index, records of different producers and topics.

    crash          dies anywhere inside a batch of either query: parts of the index and a beginning of each producer's
                   records of each topic are written, the states are not; the next step is the same batch again
    begin          the checkpoint is lost, or the configuration changes: a new generation from the registry; may be cut
                   off in the middle, others may go on meanwhile; the inboxes go on where offsets were last committed
    succeed        a new generation is built beside the one in force, and takes over
    lose_index     Redis forgot parts of the index: routing waits until they are written again
    keeper         groups of clients change, also in the middle of a route batch; its effects may fail (`keeper.py`)

`watch` is told of every part of an index that comes into force, and `slices` of everything that a slice of
publications leads to, so that judges can look between any two writes.
"""

from __future__ import annotations

import copy
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import msgspec

from state.compiled_part import CompiledPart
from state.config import Config
from state.control.agreed import CONFIGURATION
from state.control.context import Context, Result
from state.control.facts import Fact, decode_fact, encode_fact, newer
from state.control.handle import handle, whole_index
from state.control.journal import Kept
from state.control.protocol import Amend, Republish, encode
from state.control.rebuild import Rebuilt, greetings, rebuild
from state.control.samples import SAMPLE_MAX, samples_of
from state.control.streams import seeds
from state.distribution.assignment import Assignment
from state.errors import HilcastError, Quarantined
from state.fitting import misfits
from state.index_delta import decode_delta
from state.keys import UNROUTABLE, Key, home_key, index_keys
from state.lanes import shared_lanes
from state.limits import REPAIR_ROUNDS, fence_rounds
from state.messages import Output, Record, speaker, split_key
from state.names import owned
from state.routing.envelope import input_topics
from state.routing.junction import Junction
from state.routing.route import route
from state.routing.sharing import Sharing
from state.routing.snapshot import Snapshot
from state.signing import Keyring, all_signed, genuine_ones
from state.space.encodings.schemas import NO_SCHEMAS, Schemas
from state.space.grid import Grid
from state.topics import inboxes, published
from tests.simulation.keeper import SimulatedKeeper
from tests.simulation.stored_index import StoredIndex
from tests.simulation.wire import MARK, Delivery, Event, Outcome, batch_of, mark_of, outputs_of

SHARES = (1, 4, 0, 10**9)
"""By generation: when states of parts are sealed (`state/control/journal.py`): seldom, as by default, never, always.
The first generation is 1: whoever measures a world, with `SEALED_MIN`, measures what the job does."""
FOLDED = (0, 4096, 1000)
"""By generation: bytes of deltas that are never folded into a new base (`state/index_delta.py`)."""
WORKERS = 3
"""Processes that keep parts between batches; which of them a key comes to is drawn. The last one always begins anew.

Who measures a world has one, which keeps everything: so does the job, whose workers get the same keys again."""
PRODUCERS = 2
"""Tasks of a batch, each with a producer of its own: what two of them write stands in any order."""
FORBIDDEN = "forbidden"
"""A sink that may not be created."""
VERSIONS_KEPT = 4
"""Versions of a part that a route task may still hold while another part is newer."""


@dataclass
class Log:
    """Topics as lists of records, with a clock that only counts.

    A partition beyond the first is a list of its own, under the name that `lane` gives it.
    """

    topics: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    now_ms: int = 0
    ids: dict[str, str] = field(default_factory=lambda: defaultdict(lambda: "first"))
    """Kafka's ids of topics."""

    def renew(self, topic: str) -> None:
        """Delete a topic and make it again."""
        self.topics[topic] = []
        self.ids[topic] = f"{topic} of {self.now_ms}"

    @staticmethod
    def lane(topic: str, partition: int) -> str:
        """Under which name the records of a partition are kept.

        >>> Log.lane("t", 0), Log.lane("t", 2)
        ('t', 't@2')
        """
        return f"{topic}@{partition}" if partition else topic

    def append(self, output: Output) -> Record:
        self.now_ms += 1
        partition = output.partition or 0
        self.topics[output.topic]  # a topic is there with its first partition
        records = self.topics[self.lane(output.topic, partition)]
        place = (output.topic, partition, len(records))
        record = Record(*place, self.now_ms, output.key, output.value, output.headers)
        records.append(record)
        return record

    def lanes(self, topics: Iterable[str]) -> list[str]:
        """The names of all partitions of these topics; the first one need not exist yet."""
        wanted = set(topics)
        return sorted(wanted | {name for name in self.topics if name.split("@")[0] in wanted})

    def end(self, topic: str) -> int:
        return len(self.topics[topic])

    def lose(self, topic: str, offset: int) -> None:
        """Let a record be gone; its offset stays."""
        lost = self.topics[topic][offset]
        self.topics[topic][offset] = msgspec.structs.replace(lost, key=None, value=None, headers=())

    def compact(self, topic: str) -> None:
        """Keep the last record of each key, and no key whose last record is null."""
        last = {record.key: record for record in self.topics[topic]}
        self.topics[topic] = [record for record in last.values() if record.value is not None]


Judge = Callable[
    ["SimulatedDeployment", Sequence[Record], Sequence[tuple[int | None, Output]], Mapping[str, int]], None
]
"""Of a slice: its records, what each of them leads to (None: the routing log), the figures."""


@dataclass(frozen=True)
class Posted:
    """Publications that were sent, and how long each topic was before."""

    records: list[Record]
    before: Mapping[str, int]


class SimulatedDeployment:
    """The job of one deployment: states, positions, and the index that routing uses."""

    def __init__(self, world: World, config: Config) -> None:
        self.world = world
        self.config = config
        self.grids = world.grids(config)
        self.generation = 0
        self.batch = 0
        self.states: dict[str, bytes] = {}
        self.positions: dict[str, int] = {}
        self.committed: dict[str, int] = {}
        """What others see of the positions; may lie behind."""
        self.planned: dict[str, int] | None = None
        """Where the batch that crashed ends; it is replayed as it was."""
        self.stored: dict[Key, StoredIndex] = {}
        """Base and deltas of each part, as Redis has them."""
        self.index: dict[Key, CompiledPart] = {}
        """The same put together."""
        self.versions: dict[Key, deque[CompiledPart]] = {}
        """Versions of each part that a route task may hold, newest last."""
        self.routed_to: dict[str, int] = defaultdict(int)
        """How far the route query is in its topics."""
        self.route_planned: dict[str, int] | None = None
        """Where the batch of the route query that crashed ends."""
        self.assignments: dict[str, Assignment] = {}
        """By hosted broker: which of its clients are served through shared topics, as Redis has it; a new generation
        begins without."""
        self.route_began_s: float | None = None
        """When the last route batch began that ended in this life."""
        self.quiet = False
        """Whether it is being built beside the one in force: nobody routes by it, so nobody judges it yet."""
        self._seeded_to = 0
        self._junctions: dict[tuple[str, str], Junction] = {}
        """The last junction of each broker and type, whose filters the next one takes over."""
        self.begin()

    @property
    def name(self) -> str:
        return self.config.deployment.name

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.config.deployment.hosts

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*self.inboxes, self.config.topics.control)

    @property
    def inboxes(self) -> tuple[str, ...]:
        """By which registrations come in; clients' own come into being as somebody writes to them."""
        config = self.config.with_topics(self.world.log.topics)
        return tuple(sorted(inboxes(config)))

    @property
    def publications(self) -> list[str]:
        """What the route query reads."""
        config = self.config.with_topics(self.world.log.topics)
        return self.world.log.lanes([*input_topics(config), *published(config)])

    # ── generations ─────────────────────────────────────────────────────────────────────────────────────────────

    def begin(
        self,
        config: Config | None = None,
        rng: random.Random | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin a generation from the registry, as after a lost checkpoint or a changed configuration.

        With `rng` the first attempt may die half way.
        """
        if config is not None:
            self._configure(config)
        if rng is not None and rng.random() < 0.3:
            self._install(meanwhile, lambda outputs: outputs[: rng.randint(0, len(outputs))])
        self._install(meanwhile, lambda outputs: outputs)

    def _configure(self, config: Config) -> None:
        now, then = (
            (c.fingerprint(), c.settings.partitions, c.settings.delivery_partitions) for c in (config, self.config)
        )
        if now != then:
            self.config = replace(config, deployment=replace(config.deployment, name=self.name, hosts=self.hosts))
            self.grids = self.world.grids(config)

    def succeed(self, config: Config, rng: random.Random, meanwhile: Callable[[], None]) -> None:
        """Build a generation beside the one in force, and let it take over, as `streaming/succession.py` does.

        Control of the old one goes on while the new one is built, and may stop anywhere inside a batch; routing goes by
        the old one until the new one has settled.
        """
        heir = copy.copy(self)
        heir._configure(config)
        heir.generation, heir.quiet = self.generation + 1, True
        before, facts = self._said(), self.world.facts()
        start = self.world.log.end(self.config.topics.control)
        meanwhile()
        rebuilt = heir._build(facts, lambda outputs: outputs)
        for _ in range(rng.randint(0, 3)):
            self.step(rng)
            meanwhile()
        if rng.random() < 0.5:
            self.step(rng, crash=True)
        heir._inherit(self.committed, start, rebuilt)
        heir._amend(before)
        for _ in range(fence_rounds(heir.config.overlay.diameter(), True)):
            end = self.world.log.end(self.config.topics.control)
            while heir.positions[self.config.topics.control] < end:
                heir.step(rng)
                meanwhile()
            if self.behind_in_routing() and rng.random() < 0.3:
                self.route(rng)
        kept = {name: getattr(self, name) for name in ("routed_to", "route_planned", "quiet")}
        self.__dict__.update({**heir.__dict__, **kept})
        self.commit()
        self._live()
        self.world.watch(self, None)

    def _said(self) -> dict[tuple[str, str, str, str], bytes]:
        """What the registry says of each registration."""
        return {(kind, b, t, id): encode_fact(fact) for kind, b, t, id, fact in self.world.facts()}

    def _amend(self, before: Mapping[tuple[str, str, str, str], bytes]) -> None:
        """Say what the registry says since the generation was built from it."""
        now = self._said()
        for names in [*now, *(name for name in before if name not in now)]:
            kind, broker, type_name, id = names
            ours = broker in self.hosts and type_name in self.config.types
            if ours and before.get(names) != now.get(names):
                key = str(home_key(broker, type_name, id, self.config)).encode()
                message = Amend(self.generation, kind == "advertisement", id, now.get(names))
                self.world.say(Output(self.config.topics.control, key, encode(message)))
        self._greet()

    def _greet(self) -> None:
        """Begin the streams to and from other deployments anew; the generation before says nothing any more."""
        for key, message in greetings(self.context(0)):
            self.world.say(Output(self.config.topics.control, str(key).encode(), encode(message)))
        self._seeded_to = self.world.log.end(self.config.topics.control)

    def _install(self, meanwhile: Callable[[], None], written: Callable[[list[Output]], list[Output]]) -> None:
        """Read the registry, then note the end of the control topic, then rebuild; others may go on in between."""
        log, topics = self.world.log, self.config.topics
        self.generation += 1
        facts = self.world.facts()
        meanwhile()
        self.positions = defaultdict(int, {topic: self.committed.get(topic, 0) for topic in self.inboxes})
        self.positions[topics.control] = log.end(topics.control)
        meanwhile()
        rebuilt = self._build(facts, written)
        self._inherit(self.committed, self.positions[topics.control], rebuilt)
        self._greet()
        self.commit()
        self._live()
        self.world.watch(self, None)

    def _build(
        self, facts: list[tuple[str, str, str, str, Fact]], written: Callable[[list[Output]], list[Output]]
    ) -> Rebuilt:
        """Rebuild, and write the seeds and the answers to what lies dormant."""
        samples = self.world.samples(self.config)
        self._life = Context(self.config, self.generation, 0, samples=samples, keyring=self.world.keyring)
        self._life.__dict__["grids"] = self.grids
        self._life.sealed_share = SHARES[self.generation % len(SHARES)]
        self._life.sealed_min = self.world.sealed_min
        self.workers = [Kept() for _ in range(self.world.workers)]
        rebuilt = rebuild(facts, self.context(0))
        outputs = [
            Output(self.config.topics.control, key.encode(), encode(seed))
            for key, blob in rebuilt.states.items()
            for seed in seeds(self.generation, blob)
        ]
        for output in written(outputs + rebuilt.outputs):
            self.world.say(output)
        return rebuilt

    def _inherit(self, committed: Mapping[str, int], control: int, rebuilt: Rebuilt) -> None:
        """Begin with nothing but what was rebuilt; the inboxes go on where offsets were last committed."""
        self.positions = defaultdict(int, {topic: committed.get(topic, 0) for topic in self.inboxes})
        self.positions[self.config.topics.control] = control
        self.batch, self.states, self.planned = 0, {}, None
        self.stored, self.index, self.versions, self.assignments, self._junctions = {}, {}, {}, {}, {}
        for text, blob in rebuilt.indexes.items():
            self._put_in_force(Key.parse(text), StoredIndex(blob, ()))

    def _live(self) -> None:
        """Begin a life of the driver."""
        self._junctions, self.route_began_s = {}, None
        self.keeper = SimulatedKeeper(self)

    def context(self, batch: int) -> Context:
        """What the keys of this deployment know in a batch of the present generation."""
        life = self._life.at(self.generation, batch)
        life.topic_ids = {topic: self.world.log.ids[topic] for topic in self.inputs}
        life.quarantined = frozenset(self.world.quarantined)
        life.destinations = lambda topic: "nobody may" if topic == FORBIDDEN else None
        return life

    def restart(self, tables: Sequence[str] | None = None) -> None:
        """Stop and start again on the same checkpoint: only what is in memory is gone.

        With `tables` it has another file: of the brokers with groups, those alone have them now.
        """
        if tables is not None:
            distribution = {b: table for b, table in self.world.config.distribution.items() if b in tables}
            self.config = replace(self.config, distribution=distribution)
        self._live()

    # ── the control query ───────────────────────────────────────────────────────────────────────────────────────

    def behind(self) -> bool:
        return any(self.positions[topic] < self.world.log.end(topic) for topic in self.inputs)

    def step(
        self,
        rng: random.Random | None = None,
        crash: bool = False,
        whole: bool = False,
        until: Mapping[str, int] | None = None,
    ) -> None:
        """Handle one batch: everything up to the end, or with `rng` up to any place (unless `whole`), in any order.

        `until` cuts it there: no further than that.
        """
        assert not crash or rng is not None
        ends = self.planned = self.planned or self._plan(None if whole else rng, until)
        groups = self._groups(ends)
        keys = sorted(groups)
        if rng is not None:
            rng.shuffle(keys)
        if crash:
            assert rng is not None
            keys = keys[: rng.randint(0, len(keys))]
        context = self.context(self.batch)
        states: dict[str, bytes] = {}
        outputs: list[list[Output]] = [[] for _ in range(PRODUCERS)]
        for number, key in enumerate(keys):
            context.parts = self._worker(key)
            result = handle(key, self.states.get(key), groups[key], context)
            assert not misfits(result.outputs, self.config.topics), f"does not fit Kafka: {key}"
            forged = result.figures.get("forged", 0)
            failed = [line for line in result.faults if Quarantined.__name__ not in line]
            assert len(failed) == (forged > 0), f"failed inside: {failed}"
            self.world.forged += forged
            if result.state is not None:
                states[key] = result.state
            outputs[number % PRODUCERS if rng is not None else 0] += result.outputs
            if result.index is not None or result.deltas:
                self._publish(Key.parse(key), result, context)
                if not self.quiet:
                    self.world.watch(self, Key.parse(key))
        self._unwritten = self._write(outputs, rng, crash)
        if crash:
            return
        self.states |= states
        self.positions, self.planned = defaultdict(int, {**self.positions, **ends}), None
        self.batch += 1
        if rng is None or rng.random() < 0.7:
            self.commit()

    def _worker(self, key: str) -> Kept[Any]:
        """The process that a key comes to: any, without a draw of the seed's own."""
        if len(self.workers) > 1:
            self.workers[-1] = Kept()
        return self.workers[crc32(f"{key} {self.world.log.now_ms}".encode()) % len(self.workers)]

    def renewed(self, inboxes: Sequence[str]) -> None:
        """These topics were made again: what was read of them counts for nothing."""
        for offsets in (self.positions, self.committed):
            offsets |= dict.fromkeys(inboxes, 0)
        self.planned = None

    def commit(self) -> None:
        """Let others know how far this deployment is."""
        self.committed = dict(self.positions)

    def _plan(self, rng: random.Random | None, until: Mapping[str, int] | None) -> dict[str, int]:
        ends = dict(until) if until is not None else {topic: self.world.log.end(topic) for topic in self.inputs}
        ends = {topic: max(end, self.positions[topic]) for topic, end in ends.items()}
        if rng is not None:
            ends = {topic: rng.randint(self.positions[topic], end) for topic, end in ends.items()}
        # the control query starts after the seeds of its generation were written, so its first batch has them all
        ends[self.config.topics.control] = max(ends[self.config.topics.control], self._seeded_to)
        return ends

    def _groups(self, ends: Mapping[str, int]) -> dict[str, list[Record]]:
        groups: dict[str, list[Record]] = defaultdict(list)
        for topic in ends:
            for record in self.world.log.topics[topic][self.positions[topic] : ends[topic]]:
                key = self._owner(record)
                if key is not None:
                    groups[key].append(record)
        return groups

    def _write(
        self,
        outputs: list[list[Output]],
        rng: random.Random | None,
        crash: bool,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[Output]:
        """Write what each producer has: each topic in order, topics and producers in any; `meanwhile` others do.

        Return what was not written any more, because of a crash.
        """
        if rng is None:
            for output in outputs[0]:
                self.world.log.append(output)
            return []
        streams: dict[tuple[int, str], deque[Output]] = defaultdict(deque)
        for producer, some in enumerate(outputs):
            for output in some:
                streams[producer, Log.lane(output.topic, output.partition or 0)].append(output)
        left = {name: rng.randint(0, len(some)) if crash else len(some) for name, some in streams.items()}
        waiting = [name for name, n in left.items() if n]
        while waiting:
            name = rng.choice(waiting)
            self.world.log.append(streams[name].popleft())
            meanwhile()
            left[name] -= 1
            if not left[name]:
                waiting.remove(name)
        return [output for some in streams.values() for output in some]

    def haunt(self, follow: Callable[[], None], rng: random.Random) -> None:
        """Die inside a batch, be followed by another generation, and then write what was left: nobody was told.

        Whoever follows the registry sees that older facts came late, and writes the newer ones again.
        """
        self.step(rng, crash=True)
        late = self._unwritten
        follow()
        before = self._said()
        for output in late:
            self.world.log.append(output)
        written = {_names(output) for output in late if output.topic == self.config.topics.registry}
        for names, said in self._said().items():
            if before.get(names) == said and names in written:
                self.world.log.append(Output(self.config.topics.registry, "/".join(names).encode(), said))

    def _owner(self, record: Record) -> str | None:
        """Which key answers a record, if it is one of ours: what the control query's SQL computes."""
        if record.topic == self.config.topics.control:
            key = (record.key or b"").decode()
            broker, _, rest = key.partition("/")
            return key if broker in self.hosts and rest.split("/")[0] in self.config.types else None
        try:
            broker, type_name, id = split_key(record.key)
        except HilcastError:
            broker = ""
        _, client = speaker(record.topic, self.config)
        if broker in self.hosts:
            known = type_name in self.config.types
            id = id if client is None else owned(client, id)
            return str(home_key(broker, type_name, id, self.config)) if known else UNROUTABLE
        first = self.config.overlay.brokers[0] in self.hosts
        return UNROUTABLE if first and broker not in self.config.overlay.brokers else None

    # ── the index ───────────────────────────────────────────────────────────────────────────────────────────────

    def _publish(self, key: Key, result: Result, context: Context) -> None:
        """Write what changed of a part's index, or all of it, as the control query does."""
        stored, index, least = self.stored.get(key), result.index, FOLDED[self.generation % len(FOLDED)]
        if index is None and stored is not None and stored.append(result.deltas, least):
            self._put_in_force(key, stored)
            return
        if index is None or result.deltas:
            assert result.state is not None
            index = whole_index(key, result.state, context)
        self._put_in_force(key, StoredIndex(index, result.deltas if result.index is None else ()))

    def _put_in_force(self, key: Key, stored: StoredIndex) -> None:
        part = stored.part
        self.stored[key], self.index[key] = stored, part
        self.versions.setdefault(key, deque(maxlen=VERSIONS_KEPT)).append(part)

    def forget_versions(self) -> None:
        """Every route task has the newest version of every part."""
        self.versions = {key: deque([part], maxlen=VERSIONS_KEPT) for key, part in self.index.items()}

    def lose_index(self, rng: random.Random) -> None:
        """Let Redis forget some parts or all, and have them written again."""
        share = rng.choice((0.2, 1.0))
        for key in [key for key in self.index if rng.random() < share]:
            del self.index[key], self.stored[key]
        if share == 1.0:
            self.assignments = {}
        self.ask_for_index()

    def ask_for_index(self) -> None:
        """Ask for every part that is missing."""
        for key in self.missing():
            self.world.say(Output(self.config.topics.control, str(key).encode(), encode(Republish())))

    def missing(self) -> list[Key]:
        """Parts that routing waits for."""
        return [key for key in index_keys(self.config, self.hosts) if key not in self.index]

    def junctions(self, type_name: str, rng: random.Random | None = None) -> dict[str, Junction]:
        """The hosted brokers, ready to route; with `rng` each part is one of its last versions."""
        found = {broker: self._junction(broker, type_name) for broker in self.hosts}
        for broker, junction in found.items():
            keys = self._parts(broker, type_name)
            if rng is not None:
                junction.update({key: rng.choice(self.versions[key]) for key in keys})
                continue
            read = {key: self.stored[key].follow(junction.stamp(key)) for key in keys}
            junction.update({key: part for key, (part, _) in read.items() if part is not None})
            led = {key: deltas for key, (part, deltas) in read.items() if part is None}
            junction.change({key: [decode_delta(delta) for delta in deltas] for key, deltas in led.items()})
        return found

    def _junction(self, broker: str, type_name: str) -> Junction:
        """The junction of a route worker: one that lives on and takes in what differs."""
        if (broker, type_name) not in self._junctions:
            made = Junction(self.config.types[type_name], self.grids[type_name])
            self._junctions[broker, type_name] = made
        return self._junctions[broker, type_name]

    def _parts(self, broker: str, type_name: str) -> list[Key]:
        return [key for key in index_keys(self.config, (broker,)) if key.type == type_name]

    # ── the route query ─────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self, rng: random.Random | None = None) -> Snapshot:
        """What a route task that begins now goes by; with `rng` each part of the index is one of its last versions."""
        junctions = {name: self.junctions(name, rng) for name in self.config.types}
        known = self.config.distribution
        sharing = {broker: Sharing(assignment) for broker, assignment in self.assignments.items() if broker in known}
        epoch = f"{self.generation}.{self.batch}"
        return Snapshot(self.config, epoch, junctions, sharing, schemas=self.world.schemas)

    def routed(self, records: Sequence[Record], rng: random.Random | None = None) -> list[Output]:
        """What these records lead to, as one slice: nothing is written yet."""
        routing = route(self.snapshot(rng), batch_of(records))
        outputs = outputs_of(routing)
        assert not misfits((output for _, output in outputs), self.config.topics), "does not fit Kafka: routed"
        assert not routing.faults, f"failed inside: {routing.faults}"
        self.world.slices(self, records, outputs, routing.figures)
        return [output for _, output in outputs]

    def behind_in_routing(self) -> bool:
        return any(self.routed_to[topic] < self.world.log.end(topic) for topic in self.publications)

    @property
    def now_s(self) -> float:
        """The clock of the driver's machine."""
        return float(self.world.log.now_ms)

    def route(
        self,
        rng: random.Random | None = None,
        crash: bool = False,
        mixed: bool = False,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Route one batch: everything up to the end.

        With `rng` it is divided among tasks, whose outputs stand in any order; with `mixed` each task has another
        mixture of versions of the index. `meanwhile` is called before and after each task, and between its writes.
        """
        assert rng is not None or not (crash or mixed)
        log, began_s = self.world.log, self.now_s
        ends = self.route_planned = self.route_planned or {t: log.end(t) for t in self.publications}
        records = [record for topic, end in ends.items() for record in log.topics[topic][self.routed_to[topic] : end]]
        cut = len(records) if rng is None else rng.randint(0, len(records))
        tasks = [task for task in (records[:cut], records[cut:]) if task]
        outputs = []
        for task in tasks:
            meanwhile()
            outputs.append(self.routed(task, rng if mixed else None))
        meanwhile()
        self._write(outputs or [[]], rng, crash, meanwhile)
        if not crash:
            self.route_began_s = began_s
            self.routed_to |= ends
            self.route_planned = None


def _split(key: bytes) -> tuple[str, str, str, str]:
    kind, broker, type_name, id = key.decode().split("/")
    return kind, broker, type_name, id


def _names(output: Output) -> tuple[str, ...]:
    return tuple((output.key or b"").decode("utf-8", "replace").split("/"))


class World:
    """One overlay, its topics, and the deployments that host it."""

    def __init__(
        self,
        config: Config,
        hosting: Sequence[tuple[str, ...]] | None = None,
        keyring: Keyring | None = None,
        sealed_min: int = 0,
        workers: int = WORKERS,
    ) -> None:
        self.log = Log()
        self.config = config
        self.sealed_min = sealed_min
        """Bytes below which states of parts are sealed at every step: none, for there to be steps in small worlds."""
        self.workers = workers
        self.keyring = keyring
        """What the deployments sign with."""
        self.forged = 0
        """Control records that were not genuine, as the deployments counted them."""
        self.watch: Callable[[SimulatedDeployment, Key | None], None] = lambda deployment, key: None
        """Told of each part that comes into force, and with None of a new generation."""
        self.slices: Judge = lambda deployment, records, outputs, figures: None
        """Told of each slice that was routed."""
        self.posted = 0
        self.schemas: Schemas = NO_SCHEMAS
        """The schema registry, as route workers see it."""
        self.quarantined: set[tuple[str, int, int]] = set()
        """Records that no query could be got past."""
        self._grids: dict[str, dict[str, Grid]] = {}
        self.deployments: list[SimulatedDeployment] = []
        for i, hosts in enumerate(hosting or [config.overlay.brokers]):
            deployment = replace(config.deployment, name=f"d{i}", hosts=hosts)
            self.deployments.append(SimulatedDeployment(self, replace(config, deployment=deployment)))

    def host(self, broker: str) -> SimulatedDeployment:
        """The deployment that hosts a broker."""
        return next(d for d in self.deployments if broker in d.hosts)

    def grids(self, config: Config) -> dict[str, Grid]:
        """Grids of a configuration, built once."""
        fingerprint = config.fingerprint()
        if fingerprint not in self._grids:
            self._grids[fingerprint] = Context(config, 0, 0).grids
        return self._grids[fingerprint]

    def samples(self, config: Config) -> dict[str, list[dict[str, object]]]:
        """What a generation that begins now knows of publications, for types that are pruned."""
        topics = self.log.lanes(published(config.with_topics(self.log.topics)))
        return samples_of((r for topic in topics for r in self.log.topics[topic][-2 * SAMPLE_MAX :]), config)

    def facts(self) -> list[tuple[str, str, str, str, Fact]]:
        """What the registry says: of each key the newest fact."""
        last: dict[bytes, Fact] = {}
        for record in genuine_ones(self.log.topics[self.config.topics.registry], self.keyring):
            key = record.key or b""
            if key == CONFIGURATION:
                continue
            if record.value is None:
                last.pop(key, None)
            else:
                last[key] = newer(last.get(key), decode_fact(record.value))
        return [(*_split(key), fact) for key, fact in last.items()]

    def say(self, output: Output) -> None:
        """What a driver writes itself, signed as it signs."""
        self.log.append(*all_signed([output], self.config.topics, self.keyring))

    def send(self, topic: str, key: str, value: Mapping[str, object] | None, version: int | None = None) -> Record:
        """A client's control event."""
        headers = () if version is None else (("hilcast_version", str(version).encode()),)
        return self.log.append(
            Output(topic, key.encode(), None if value is None else msgspec.json.encode(value), headers)
        )

    def settle(self, limit: int = 1000, rng: random.Random | None = None) -> int:
        """Step every deployment until nothing is left to read; return how many rounds it took."""
        for rounds in range(limit):
            late = [d for d in self.deployments if d.behind()]
            if not late:
                return rounds
            for deployment in late:
                deployment.step(rng, whole=True)
        raise AssertionError("the world does not come to rest")

    def fence(self, between: Callable[[SimulatedDeployment, Mapping[str, int]], None]) -> int:
        """Wait as `hilcast wait` does: until everything sent so far is in force; return how many rounds that takes.

        A round notes where the topics end, and is over when every deployment has committed that. `between(deployment,
        ends)` is to bring one nearer. The rounds that `hilcast wait` adds for a repaired gap are left out: here nothing
        is lost between Kafka and a deployment, so that less must do.
        """
        advertised = any(t.advertisements for d in self.deployments for t in d.config.types.values())
        rounds = fence_rounds(self.config.overlay.diameter(), advertised) - REPAIR_ROUNDS
        for _ in range(rounds):
            ends = {topic: self.log.end(topic) for topic in self.deployments[0].inputs}
            for deployment in self.deployments:
                for _ in range(1000):
                    if all(deployment.committed.get(topic, 0) >= end for topic, end in ends.items()):
                        break
                    between(deployment, ends)
                else:
                    raise AssertionError(f"{deployment.name} does not get on")
        return rounds

    # ── publications ────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, event: Event) -> tuple[list[Delivery], list[tuple[str, str]]]:
        """Route one event through every deployment it reaches; deliveries of all, links crossed."""
        outcome = self.publish_all([event])[0]
        return outcome.deliveries, outcome.links

    def publish_all(self, events: Sequence[Event]) -> list[Outcome]:
        """Send events and route until none is on its way."""
        posted = self.post([event.publication(self.config.topics) for event in events])
        self.route()
        return self.outcomes(posted)

    def post(self, publications: Sequence[Output]) -> Posted:
        """Send publications, each with a mark of its own among its headers."""
        before = {topic: len(records) for topic, records in self.log.topics.items()}
        records = []
        for publication in publications:
            self.posted += 1
            headers = (*publication.headers, (MARK, str(self.posted).encode()))
            is_ours = publication.topic.startswith(self.config.topics.publications)
            partition = self.posted % shared_lanes(self.config) if is_ours else 0
            records.append(self.log.append(replace(publication, headers=headers, partition=partition)))
        return Posted(records, before)

    def route(self, between: Callable[[SimulatedDeployment], None] = SimulatedDeployment.route) -> None:
        """Have every deployment route (`between`: a batch of it) until nothing is left to read."""
        for _ in range(1000):
            late = [d for d in self.deployments if d.behind_in_routing()]
            if not late:
                return
            for deployment in late:
                between(deployment)
        raise AssertionError("publications do not get on")

    def outcomes(self, posted: Posted) -> list[Outcome]:
        """What became of publications, read from the topics."""
        outcomes = {mark_of(record.headers): Outcome(record) for record in posted.records}
        inputs = set(published(self.config.with_topics(self.log.topics)))
        for topic, records in self.log.topics.items():
            if topic.split("@")[0] not in inputs:
                for copy in records[posted.before.get(topic, 0) :]:
                    outcome = outcomes.get(mark_of(copy.headers))
                    if outcome is not None:
                        outcome.add(copy, self.config.topics)
        return list(outcomes.values())
