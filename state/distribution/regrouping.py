"""The life of shared topics: when groups change, and the order in which clients and routing come to know of it.

    facts, publications ──> BrokerGroups ──look──> who reads what has changed
                                                     │
      Prepare ──────> Announce ──────> Switch ── … ──────────────> Measure ──────> Close
      the topics      a new reader's   route tasks     a route     where old       spans that nobody
      exist; where    span begins      that begin      batch that  messages end    needs get an end
      do they end?    at that end      now use it      began after
                                                       it has ended

[STREE03] §4 takes groups as given; that they change under messages on their way is ours. Pure: facts, publications,
offsets and times come in, effects go out as values, one at a time, and each is answered when it was carried out.
Whoever carries them out (`streaming/group_keeper.py`, the simulated world) adds nothing but the doing.

Guarantee: a message that names a client lies in one of the spans that the client is told, however late it reads.

    before it     a task names only readers of the assignment that it began with. Their spans were written before that
                  assignment was handed over, and begin where the topic ended before.
    after it      a span ends where its topic ended after the last task had ended that began with an older assignment:
                  route batches follow each other, so one that began after the switch begins after all of those.
    a crash       between any two effects leaves spans that are longer than needed: they open before the switch and are
                  closed after it, and a new life knows of them from the topic `groups`. It begins with a switch, too.
    no answer     an effect that failed may have happened, wholly or in part. It is given again, the same, before
                  anything else is: neither may a switch be forgotten that routing has seen, nor an end that clients
                  have.

Times: `look` is paced by any clock that only goes forward. The time of a switch is compared with the beginning of route
batches, and with nothing else: both are of one clock that is never set back. The driver counts batches instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from state.config import Config
from state.distribution.assignment import Assignment
from state.distribution.broker_groups import BrokerGroups
from state.errors import HilcastError
from state.filters.cloudevents import read_filter
from state.filters.geometry import geometry
from state.lanes import shared_lanes
from state.messages import Record, Span
from state.publications import beside_columns, format_of, read_publication, types_of_sources
from state.space.decode import decode
from state.space.encodings.schemas import NO_SCHEMAS, Schemas
from state.space.event_type import Format

# ── effects ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Prepare:
    """Create those of these topics that do not exist, and the lanes that they lack; then answer `prepared` with where
    each partition ends, all lanes of every topic among them.
    """

    broker: str
    topics: tuple[str, ...]
    lanes: int


@dataclass(frozen=True)
class Announce:
    """Write these spans to the topic `groups`; answer `announced` when Kafka has all of them."""

    broker: str
    spans: Mapping[str, tuple[Span, ...]]
    """By client: all that it has at this broker."""


@dataclass(frozen=True)
class Switch:
    """Hand the assignment to routing; answer `switched` with the time, taken after it was handed over."""

    broker: str
    assignment: Assignment
    readers: Mapping[str, Sequence[str]]
    """By topic: who reads it."""


@dataclass(frozen=True)
class Measure:
    """Answer `measured` with the first offset that each of these partitions holds, and the one after its last.

    One that does not exist is left out.
    """

    broker: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Close:
    """Write these spans to the topic `groups`, those of which nothing is left as null; answer `closed`."""

    broker: str
    spans: Mapping[str, tuple[Span, ...]]
    """By client: all that it has at this broker."""


Partition = tuple[str, int]
"""Of a topic; a span is of one."""
Effect = Prepare | Announce | Switch | Measure | Close
T = TypeVar("T", Prepare, Announce, Switch, Measure, Close)


class Registered(Protocol):
    """What is read of a fact of the registry (`state/control/home.py`)."""

    @property
    def live(self) -> bool: ...
    @property
    def groups(self) -> bool: ...
    @property
    def owner(self) -> str | None: ...
    @property
    def filter(self) -> str | None: ...


# ── the protocol ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _Broker:
    """What is known of one broker."""

    groups: BrokerGroups | None
    """None: it has groups no more."""
    looked_s: float | None = None
    """When it was last looked whether groups should change."""
    outdated: bool = False
    """Whether routing must be handed an assignment."""
    coming: Switch | None = None
    """The switch whose effects are under way."""
    served: Mapping[str, frozenset[Partition]] = field(default_factory=dict)
    """By client: the partitions through which it may be served since the last switch."""
    switched_s: float | None = None
    """When that was, while there may be spans to close because of it."""


class Regrouping:
    """Groups of the hosted brokers. Deterministic: the same calls give the same effects.

    `next` gives the effect that is due, and the same again until it is answered.
    """

    def __init__(self, config: Config, spans: Mapping[tuple[str, str], Sequence[Span]]) -> None:
        """Begin a life; `spans` by (broker, client), as the topic `groups` tells them."""
        hosts = config.deployment.hosts
        self.config = config
        self.spans = {reader: tuple(of) for reader, of in sorted(spans.items()) if reader[0] in hosts}
        """By (broker, client), as Kafka has them for certain."""
        self._brokers = {
            broker: _Broker(BrokerGroups(config.distribution[broker], config.types, config.security.sets))
            for broker in sorted(hosts)
            if broker in config.distribution
        }
        for (broker, _), of in self.spans.items():
            if any(span.end is None for span in of):
                self._brokers.setdefault(broker, _Broker(None, outdated=True))
        self._effect: Effect | None = None

    # ── what comes in ───────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, key: tuple[str, str, str, str], fact: Registered | None) -> None:
        """Take notice of a fact of the registry; `key` is kind, broker, type and id."""
        kind, broker, type_name, id = key
        groups = self._brokers[broker].groups if broker in self._brokers else None
        if kind != "subscription" or groups is None or type_name not in self.config.types:
            return
        if fact is None or not fact.live or not fact.groups:
            groups.drop(type_name, id)
            return
        event_type = self.config.types[type_name]
        try:
            boxes = geometry(read_filter(msgspec.json.decode(fact.filter or "null"), event_type), event_type).boxes
        except HilcastError:  # dormant: the present configuration cannot use it, and home has said so
            groups.drop(type_name, id)
            return
        groups.put(type_name, id, fact.owner or "", boxes)

    def observe(self, records: Iterable[Record], schemas: Schemas = NO_SCHEMAS, read_by: Config | None = None) -> None:
        """Take notice of publications, to know where they fall; what cannot be read is left out.

        `read_by`: the configuration with the sources that there are now; None: those of the beginning.
        """
        seen: dict[tuple[str, Format], list[tuple[bytes, Record]]] = {}
        config = read_by or self.config
        sources = types_of_sources(config)
        for record in records:
            name, value = read_publication(record, sources)
            if name in self.config.types:
                format = format_of(record, config) or config.types[name].format
                seen.setdefault((name, format), []).append((value, record))
        for (name, format), some in sorted(seen.items(), key=lambda one: one[0]):
            event_type = self.config.types[name].written_in(format)
            beside = beside_columns(event_type, [record for _, record in some])
            batch = decode(event_type, [value for value, _ in some], beside, schemas)
            points = np.ascontiguousarray(batch.ranks[batch.valid])
            for state in self._brokers.values():
                if state.groups is not None:
                    state.groups.observe(name, points)

    def due(self, now_s: float) -> list[str]:
        """Brokers at which it is time to look whether groups should change."""
        return [
            broker
            for broker, state in self._brokers.items()
            if state.groups is not None
            if state.looked_s is None or now_s - state.looked_s >= self.config.distribution[broker].regroup_s
        ]

    def look(self, now_s: float, lost: Collection[str]) -> None:
        """Settle the groups of the brokers that are due; those whose assignment routing has lost are handed it again.

        At the first look of a life every assignment is handed over: what routing has may be of another one.
        """
        for broker in self.due(now_s):
            state = self._brokers[broker]
            assert state.groups is not None, "due are brokers with groups"
            changed = state.groups.settle()
            state.outdated |= changed or broker in lost or state.looked_s is None
            state.looked_s = now_s

    # ── what is to be done ──────────────────────────────────────────────────────────────────────────────────────

    def next(self, route_began_s: float | None) -> Effect | None:
        """What to do now, None for nothing; `route_began_s` is when the last route batch began that has ended."""
        if self._effect is None:
            self._effect = next(self._changes(), None) or next(self._leftovers(route_began_s), None)
        return self._effect

    def topics(self) -> set[str]:
        """Shared topics that must exist."""
        served = {topic for state in self._brokers.values() for some in state.served.values() for topic, _ in some}
        return served.union(*(state.coming.readers for state in self._brokers.values() if state.coming is not None))

    def _changes(self) -> Iterator[Effect]:
        for broker, state in self._brokers.items():
            if state.outdated:
                state.outdated = False
                assignment = Assignment.nobody() if state.groups is None else state.groups.assignment()
                assignment.lanes = shared_lanes(self.config)
                readers = assignment.topics(self.config.topics, broker)
                state.coming = Switch(broker, assignment, readers)
                yield Prepare(broker, tuple(readers), assignment.lanes) if readers else state.coming

    def _leftovers(self, route_began_s: float | None) -> Iterator[Effect]:
        for broker, state in self._brokers.items():
            since = state.switched_s
            if since is not None and route_began_s is not None and route_began_s > since:
                state.switched_s = None
                ended = {
                    _place(s) for client, spans in self._here(broker) for s in spans if self._ends(broker, client, s)
                }
                if ended:
                    yield Measure(broker, tuple(sorted(ended)))

    # ── what has been done ──────────────────────────────────────────────────────────────────────────────────────

    def prepared(self, ends: Mapping[Partition, int]) -> None:
        """The partitions exist and end there, or did a moment ago."""
        broker = self._answered(Prepare).broker
        coming = self._brokers[broker].coming
        assert coming is not None, "topics are prepared for a switch"
        fresh: dict[str, tuple[Span, ...]] = {}
        for client, places in _by_client(coming).items():
            held = self.spans.get((broker, client), ())
            new = places - {_place(span) for span in held if span.end is None}
            if new:
                fresh[client] = (*held, *(Span(topic, ends[topic, p], partition=p) for topic, p in sorted(new)))
        self._effect = Announce(broker, fresh) if fresh else coming

    def announced(self) -> None:
        """Kafka has the spans: only now may anybody be served by them."""
        done = self._answered(Announce)
        self._keep(done)
        self._effect = self._brokers[done.broker].coming

    def switched(self, at_s: float) -> None:
        """Tasks that begin after `at_s` use the assignment."""
        done = self._answered(Switch)
        state = self._brokers[done.broker]
        state.served, state.switched_s, state.coming = _by_client(done), at_s, None
        self.check()

    def measured(self, offsets: Mapping[Partition, tuple[int, int]]) -> None:
        """Each partition holds what is from its first to before its second offset; spans of one not told stay."""
        broker = self._answered(Measure).broker
        shorter: dict[str, tuple[Span, ...]] = {}
        for client, held in self._here(broker):
            kept = []
            for span in held:
                if self._ends(broker, client, span) and _place(span) in offsets:
                    low, end = offsets[_place(span)]
                    span = Span(span.topic, span.first, end if span.end is None else span.end, span.partition)
                    if span.end is not None and span.end <= max(low, span.first):
                        continue  # it holds nothing, or Kafka keeps nothing of it
                kept.append(span)
            if tuple(kept) != held:
                shorter[client] = tuple(kept)
        self._effect = Close(broker, shorter) if shorter else None

    def closed(self) -> None:
        """Kafka has the ends."""
        self._keep(self._answered(Close))
        self.check()

    def _answered(self, kind: type[T]) -> T:
        effect, self._effect = self._effect, None
        assert isinstance(effect, kind), f"{effect} was to be done, not {kind.__name__}"
        return effect

    def _keep(self, done: Announce | Close) -> None:
        for client, spans in done.spans.items():
            if spans:
                self.spans[done.broker, client] = spans
            else:
                self.spans.pop((done.broker, client), None)

    def _here(self, broker: str) -> list[tuple[str, tuple[Span, ...]]]:
        """Clients with spans at a broker."""
        return [(client, spans) for (at, client), spans in self.spans.items() if at == broker]

    def _ends(self, broker: str, client: str, span: Span) -> bool:
        """Whether a span has an end, or is to get one."""
        return span.end is not None or _place(span) not in self._brokers[broker].served.get(client, ())

    def check(self) -> None:
        """Assert that whoever may be served through a partition has an open span there, and never two."""
        for broker, state in self._brokers.items():
            for client, places in state.served.items():
                held = [_place(span) for span in self.spans.get((broker, client), ()) if span.end is None]
                assert len(set(held)) == len(held), f"{client} has two open spans at {broker}: {held}"
                assert places <= set(held), f"{client} may be served at {broker} through {places}, reads {held}"


def _by_client(switch: Switch) -> dict[str, frozenset[Partition]]:
    """By client: the partitions that it reads, all lanes of each of its topics."""
    found: dict[str, set[Partition]] = {}
    for topic, clients in switch.readers.items():
        for client in clients:
            found.setdefault(client, set()).update((topic, lane) for lane in range(switch.assignment.lanes))
    return {client: frozenset(places) for client, places in sorted(found.items())}


def _place(span: Span) -> Partition:
    return span.topic, span.partition
