"""What the console knows: one poller, however many look, each step of it bounded.

    every second   figures and versions from Redis; parts whose version changed; the newest records of Kafka
    every fifth    lag, and who has the lease

Where more came than is read, the newest are read and the number that was passed over is kept: the page says it.
The registry is read whole, in pieces, since it is the truth about who registered what.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from infra.kafka.transport import Partition
from producers.commands.inspecting import Part
from producers.console.plane import axes_of
from producers.progress_lines import progress_lines
from producers.verify.independent_reader import read_delivered, read_publication
from state.arrays import Floats
from state.config import Config
from state.control.facts import Fact, decode_fact, newer
from state.errors import HilcastError
from state.explain import Index, Registered
from state.formats import UNREADABLE
from state.keys import Key
from state.messages import Record
from state.plain_events import plain_event
from state.redis_index import Version
from state.space.boxes import Ranks
from state.space.encodings.schemas import NO_SCHEMAS, Schemas
from state.space.points import rank_spans
from state.topics import published

INTERVAL_S = 1.0
SLOW_EVERY = 5
"""Polls between two looks at consumer groups."""
KEPT = 256
"""Deliveries, dead letters and receipts that are kept, the newest of each."""
EVENTS_KEPT = 512
"""Publications that are kept."""
SAMPLES = 300
"""Polls that lines are drawn of: five minutes."""
PARTS_PER_POLL = 500
BATCHES_KEPT = 300
RATE_S = 10.0
"""What a rate is taken over."""
TEXT_MAX = 2000
"""Characters of a value that are shown."""


class Standing(NamedTuple):
    """What Redis says of one deployment."""

    run: str
    generation: int | None
    """The one in force; None: Redis has lost that, or nothing ran yet."""
    versions: Mapping[str, Version]
    building: tuple[int, int] | None
    """A generation that is built beside it, and how many of its parts are written."""
    figures: Mapping[str, str]


class Tail(NamedTuple):
    """What came to the end of topics since the last look."""

    records: list[Record]
    ends: Mapping[Partition, int]
    passed_over: int
    """Records that came and were not read, because there were too many."""
    followed: tuple[int, int]
    """Delivery topics that are followed, and how many there are."""
    config: Config
    """With the sources that patterns match now."""


class Source(Protocol):
    """Kafka and Redis, or something in their place."""

    @property
    def index(self) -> Index:
        """The compiled parts, for whoever asks; may be asked in any thread."""

    def configuration(self) -> Config:
        """The configuration, with what it leaves to the router as that chose it."""

    def standings(self, deployments: Sequence[str]) -> dict[str, Standing]:
        """Redis, by deployment."""

    def parts(self, keys: Sequence[Key], standing: Standing) -> dict[Key, Part]:
        """The readable half of parts, without who subscribed."""

    def registry(self) -> list[Record]:
        """What the registry said since it was last asked, from its beginning on, some at a time."""

    def tail(self) -> Tail:
        """The newest of everything else."""

    def groups(self) -> tuple[dict[tuple[str, str], int], dict[str, bool]]:
        """Lag by deployment and query; by deployment whether a driver has its lease."""

    def schemas(self) -> Schemas:
        """What reads events that are not JSON."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class SeenEvent:
    """A publication that came by."""

    name: str
    type: str
    broker: str
    source: str
    id: str
    attributes: Mapping[str, object]
    low: Ranks
    high: Ranks


@dataclass
class Known:
    """Everything that was read; the poller writes it, views read it under its lock."""

    config: Config
    standings: dict[str, Standing] = field(default_factory=dict)
    parts: dict[Key, Part] = field(default_factory=dict)
    facts: dict[bytes, bytes] = field(default_factory=dict)
    """The registry: the last value of each key."""
    live: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Live subscriptions by broker and type."""
    clients: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By broker: live subscriptions by client."""
    items: dict[str, deque[dict[str, Any]]] = field(
        default_factory=lambda: {
            "publications": deque(maxlen=EVENTS_KEPT),
            **{kind: deque(maxlen=KEPT) for kind in ("deliveries", "letters", "receipts")},
        }
    )
    events: OrderedDict[str, SeenEvent] = field(default_factory=OrderedDict)
    counts: Counter[str] = field(default_factory=Counter)
    """Items of each kind that were ever read here, and `passed_over`."""
    letters_by_broker: Counter[str] = field(default_factory=Counter)
    batches: dict[tuple[str, str], deque[dict[str, Any]]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=BATCHES_KEPT))
    )
    lag: dict[tuple[str, str], int] = field(default_factory=dict)
    drivers: dict[str, bool] = field(default_factory=dict)
    followed: tuple[int, int] = (0, 0)
    faults: dict[str, str] = field(default_factory=dict)
    """What does not answer, with what it said: `redis`, `kafka`."""
    history: deque[Moment] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    seq: int = 0
    polls: int = 0

    def event(self, name: str) -> SeenEvent:
        found = self.events.get(name)
        if found is None:
            raise HilcastError("unknown-event", f"{name!r} is not among the newest {len(self.events)} publications")
        return found

    def registered(self, kind: str, broker: str, type_name: str, id: str) -> Registered:
        stored = self.facts.get(f"{kind}/{broker}/{type_name}/{id}".encode())
        if stored is None:
            raise HilcastError("unknown-subscription", f"{broker}/{type_name}/{id} is not in the registry")
        return Registered(broker, type_name, id, decode_fact(stored))

    def registrations(self, kind: str, broker: str | None = None, type_name: str | None = None) -> Iterator[Registered]:
        """All of a kind, of a broker and type if they are given."""
        for key, stored in self.facts.items():
            found, at, of, id = key.decode().split("/")
            if found == kind and broker in (None, at) and type_name in (None, of):
                yield Registered(at, of, id, decode_fact(stored))


class Moment(NamedTuple):
    """Counts at one time."""

    t_ms: float
    totals: Mapping[str, float]
    links: Floats
    """(directed links, 2): crossed, and for nothing."""
    reduced: Floats
    """(directed links, types, 3): received, forwarded, withheld."""


class Poller:
    """Reads a source again and again while somebody looks."""

    def __init__(self, source: Source, config: Config, now: Callable[[], float] = time.time) -> None:
        self.known = Known(config)
        self.lock = threading.RLock()
        self.links = [pair for link in config.overlay.links for pair in (link, link[::-1])]
        self.source = source
        self._now = now
        self._axes = {name: axes_of(event_type) for name, event_type in config.types.items()}
        self._ends: Mapping[Partition, int] = {}
        self._inputs: dict[str, Any] = {}
        self._published: set[str] = set()
        """Where publications enter."""
        self._generation: int | None = None
        self._seen: dict[str, Version] = {}
        """The version in which each part was read."""
        self._parts_read = 0
        self._parts_summed = -1
        self._viewers = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    # ── rhythm ──────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Poll at least as long as this lasts."""
        with self.lock:
            self._viewers += 1
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="console", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self.lock:
                self._viewers -= 1
                if self._viewers == 0:
                    self._wake.clear()

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._wake.wait(INTERVAL_S):
                began = time.monotonic()
                self.poll()
                # after a slow poll not at once again: rates of a moment would leap
                self._closing.wait(max(INTERVAL_S / 2, INTERVAL_S - (time.monotonic() - began)))

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=15.0)
        self.source.close()

    # ── one poll ────────────────────────────────────────────────────────────────────────────────────────────────

    def poll(self) -> None:
        """Look once at everything."""
        slow = self.known.polls % SLOW_EVERY == 0
        self._tried("kafka", [self._tail, self._registry, *([self._groups] if slow else [])])
        self._tried("redis", [self._redis])
        with self.lock:
            self._remember()
            self.known.polls += 1
            self.known.seq += 1

    def _tried(self, what: str, steps: Sequence[Callable[[], None]]) -> None:
        try:
            for step in steps:
                step()
        except HilcastError as error:
            with self.lock:
                self.known.faults[what] = str(error)
        else:
            with self.lock:
                self.known.faults.pop(what, None)

    def _redis(self) -> None:
        known = self.known
        names = sorted({known.config.deployment.name, *(name for name, _ in known.batches), *known.drivers})
        standings = self.source.standings(names)
        self._adopt(standings.get(known.config.deployment.name))
        for name, standing in standings.items():
            changed = [
                key
                for text, version in standing.versions.items()
                if "//" not in text and version != self._seen.get(text)
                for key in [Key.parse(text)]
                if key.broker in known.config.overlay.brokers and key.type in known.config.types
            ][:PARTS_PER_POLL]
            read = self.source.parts(changed, standing) if changed else {}
            self._seen |= {str(key): standing.versions[str(key)] for key in changed}
            with self.lock:
                known.parts |= read
                self._parts_read += len(read)
                known.standings[name] = standing
        held = {text for standing in standings.values() for text in standing.versions}
        with self.lock:
            known.parts = {key: part for key, part in known.parts.items() if str(key) in held}
        self._seen = {text: version for text, version in self._seen.items() if text in held}

    def _adopt(self, standing: Standing | None) -> None:
        """Go by the configuration of another generation, once one is in force: the router may have chosen anew."""
        generation = None if standing is None else standing.generation
        if generation is None or generation == self._generation:
            return
        config = self.source.configuration()
        axes = {name: axes_of(event_type) for name, event_type in config.types.items()}
        with self.lock:
            self._generation, self.known.config, self._axes = generation, config, axes

    def _groups(self) -> None:
        lag, drivers = self.source.groups()
        with self.lock:
            self.known.lag, self.known.drivers = lag, drivers

    # ── Kafka ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _registry(self) -> None:
        records = self.source.registry()
        with self.lock:
            for record in records:
                self._take_fact(record)

    def _take_fact(self, record: Record) -> None:
        key = record.key or b""
        if key.count(b"/") != 3:
            return  # generations, configurations
        stored = self.known.facts.get(key)
        before = None if stored is None else decode_fact(stored)
        fact = None if record.value is None else newer(before, decode_fact(record.value))
        kind, broker, type_name, _ = key.decode().split("/")
        if kind == "subscription":
            self._count(broker, type_name, before, -1)
            self._count(broker, type_name, fact, +1)
        if fact is None:
            self.known.facts.pop(key, None)
        elif record.value is not None and fact is not before:
            self.known.facts[key] = record.value

    def _count(self, broker: str, type_name: str, fact: Fact | None, by: int) -> None:
        if fact is not None and fact.live:
            self.known.live[broker, type_name] += by
            clients = self.known.clients[broker]
            clients[fact.owner or ""] += by
            if not clients[fact.owner or ""]:
                del clients[fact.owner or ""]

    def _tail(self) -> None:
        tail = self.source.tail()
        topics = self.known.config.topics
        with self.lock:
            self.known.followed = tail.followed
            self.known.counts["passed_over"] += tail.passed_over
            self._ends = tail.ends
            self._inputs = {source.topic: source for source in tail.config.sources}
            self._published = set(published(tail.config))
            for record in tail.records:
                if record.topic == topics.progress:
                    self._take_batch(record)
                elif record.topic == topics.deadletter:
                    self._take_letter(record)
                elif record.topic == topics.receipts or record.topic.startswith(topics.receipts_of("")):
                    self._take_receipt(record)
                elif record.topic in self._published:
                    self._take_publication(record)
                else:
                    self._take_delivery(record)

    def _add(self, kind: str, record: Record, item: dict[str, Any]) -> None:
        self.known.counts[kind] += 1
        self.known.items[kind].append({"n": self.known.counts[kind], "t": record.timestamp_ms, **item})

    def _take_batch(self, record: Record) -> None:
        for _, line in progress_lines([record]):
            self.known.batches[line.deployment, line.query].append(line.plain(record))

    def _take_letter(self, record: Record) -> None:
        said = {name: _text(value) for name, value in record.headers}
        broker = said.get("ce_broker", "")
        self.known.letters_by_broker[broker] += 1
        self._add(
            "letters", record,
            {
                "code": said.get("hilcast_code", ""), "reason": said.get("hilcast_reason", ""),
                "place": " ".join(said.get(f"hilcast_{n}", "?") for n in ("topic", "partition", "offset")),
                "broker": broker, "key": _text(record.key), "value": _text(record.value),
                "name": f"{said.get('ce_source', '')}#{said.get('ce_id', '')}" if "ce_id" in said else "",
            },
        )  # fmt: skip

    def _take_receipt(self, record: Record) -> None:
        try:
            said = msgspec.json.decode(record.value or b"", type=dict[str, Any])
        except UNREADABLE:
            return  # not written by a control query of ours
        names = ("kind", "key", "version", "epoch", "code", "reason")
        self._add("receipts", record, {"owner": _text(record.key), **{name: said.get(name) for name in names}})

    def _take_delivery(self, record: Record) -> None:
        for delivered in read_delivered(record):
            name = f"{_text(delivered.source)}#{_text(delivered.id)}"
            self._add(
                "deliveries", record,
                {
                    "client": delivered.client, "topic": record.topic, "name": name,
                    "subscriptions": delivered.subscriptions[:TEXT_MAX], "stale": delivered.stale,
                    "value": _text(record.value),
                },
            )  # fmt: skip

    def _take_publication(self, record: Record) -> None:
        config = self.known.config
        found = read_publication(record, config, self._inputs.get(record.topic))
        name = f"{_text(found.source)}#{_text(found.id)}"
        item: dict[str, Any] = {"name": name, "type": found.type, "broker": found.broker, "fault": found.fault}
        item["value"] = _text(found.value)
        event_type = config.types.get(found.type)
        if found.fault is None and event_type is not None:
            written = event_type.written_in(found.format)
            attributes = plain_event(written, found.value, found.beside, self._schemas())
            if attributes is not None:
                low, high = rank_spans(event_type, attributes)
                seen = SeenEvent(
                    name, found.type, found.broker, _text(found.source), _text(found.id), attributes, low, high
                )
                self.known.events[name] = seen
                while len(self.known.events) > EVENTS_KEPT:
                    self.known.events.popitem(last=False)
                item["at"] = {
                    axis.attribute.name: None if at is None else round(at, 4)
                    for axis, rank in zip(self._axes[found.type].values(), low.tolist(), strict=True)
                    for at in [axis.middle(rank)]
                }
        self._add("publications", record, item)

    def _schemas(self) -> Schemas:
        formats = {t.format for t in self.known.config.types.values()}
        return NO_SCHEMAS if formats == {"json"} else self.source.schemas()

    # ── lines ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _remember(self) -> None:
        """Note the counts of now."""
        known = self.known
        totals: Counter[str] = Counter()
        for standing in known.standings.values():
            totals.update({name: float(value) for name, value in standing.figures.items() if _is_count(name)})
        topics = self._published
        totals["published"] = sum(end for (topic, _), end in self._ends.items() if topic in topics)
        links = np.array([[totals[f"link:{a}>{b}"], totals[f"link_wasted:{a}>{b}"]] for a, b in self.links])
        kept = {name: value for name, value in totals.items() if ":" not in name}
        moment = Moment(self._now() * 1000, kept, links.reshape(-1, 2).astype(np.float64), self._reduced())
        known.history.append(moment)

    def _reduced(self) -> Floats:
        types = list(self.known.config.types)
        if self.known.history and self._parts_summed == self._parts_read:
            return self.known.history[-1].reduced
        self._parts_summed = self._parts_read
        found = np.zeros((len(self.links), len(types), 3))
        number = {link: i for i, link in enumerate(self.links)}
        for key, part in self.known.parts.items():
            for neighbour, figures in part.reduced.items():
                row = found[number[key.broker, neighbour], types.index(key.type)]
                row += [figures.get(name, 0) for name in ("received", "forwarded", "withheld")]
        return found


def _is_count(name: str) -> bool:
    return not name.startswith(("batch_seconds:", "lag:"))


def _text(value: bytes | None) -> str:
    """Bytes as a page shows them, cut."""
    return (value or b"")[: 4 * TEXT_MAX].decode("utf-8", "replace")[:TEXT_MAX]
