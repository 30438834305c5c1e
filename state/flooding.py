"""Flooding: what would be delivered if every publication met every subscription, held against what was.

The oracle of `hilcast verify`. It knows the filter language and the records of the topics, and nothing of the router:
no cubes, no reductions, no matchers, no index. It reads events and evaluates filters by code of its own
(`plain_events.py`, `plain_filters.py`) and recomputes from scratch, so it cannot share the router's errors.

A change of the control plane takes effect little by little, and a publication is routed some time after it was sent:

    change         sent ────────── in force                       before: the old filter   after: the new one
    publication           sent ─────────── routed (the last time)       in between: either of them, or both

So each publication has some *possible* stands of each key. What all of them want must be delivered, what none of them
wants must not be, and what some want is counted as undecided. When a change was in force everywhere is found by doing
in history what `hilcast wait` does: rounds of "where do inboxes and control end now, and when had every broker read
that far".

The same holds of configurations, which change while events are routed. Each is a `Reading` of all that was published
and registered, and a publication is in the readings by which it may have been routed: what any of them wants may be
delivered, what all of them want must be.

Left out: the order of deliveries, and what crossed the links.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from state.arrays import Bools, Floats, Ints
from state.filters.tree import Filter
from state.plain_events import Beside, plain_event
from state.plain_filters import Answer, PlainEvents
from state.space.encodings.schemas import NO_SCHEMAS, Schemas
from state.space.event_type import EventType, Format

NEVER = float("inf")
LARGE_BYTES = 900_000
"""A refusal as `too-large` is believed from here on, the whole record counted."""
EXAMPLES = 20
"""Findings of each kind that are kept in full; all are counted."""

Target = tuple[str, str]
"""Client and destination topic."""
Unread = Callable[[], Filter | None]
"""Reads a filter, once some publication is judged by it: of very many subscriptions trees are too much to be held."""


# --- what is judged -------------------------------------------------------------------------------------------------


class Stand(NamedTuple):
    """What a key asks for from one change on; without an `owner` nothing: it is withdrawn or has expired."""

    since_ms: float
    """Nobody can have acted on it before."""
    in_force_ms: float
    """Everybody acts on it from here on; `NEVER` if that is not known to have happened."""
    owner: str | None = None
    """The client, or the publisher of an advertisement."""
    destination: str = ""
    filter: Filter | Unread | None = None
    """None, with an owner: no longer known. It may then match anything, and must match nothing."""


NOTHING = Stand(-NEVER, -NEVER)


@dataclass(frozen=True, slots=True)
class Claim:
    """The history of one subscription or advertisement: its stands in order of time, `NOTHING` before the first."""

    broker: str
    type: str
    id: str
    stands: tuple[Stand, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """A record of `publications` or of a source, as an independent reader understands it."""

    source: bytes
    id: bytes
    broker: str
    type: str
    value: bytes
    """The JSON object of attributes."""
    content: bytes
    """A digest of key and value, which a delivery repeats byte for byte."""
    sent_ms: float
    routed_ms: float = NEVER
    """When it was last routed; `NEVER` as long as it has not been."""
    complete: bool = False
    """Whether everything that routing it led to has been written."""
    fault: str | None = None
    """The code with which it ought to be refused, whatever is subscribed."""
    refused: str | None = None
    """The code with which it was refused."""
    size: int = 0
    """Bytes of its key, value and headers: what Kafka measures."""
    beside: Beside = field(default_factory=dict)
    """What its headers and key hold of attributes."""
    format: Format | None = None
    """What its value is written in; None: what its type says."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one configuration makes of the topics."""

    types: Mapping[str, EventType]
    publications: Sequence[Publication | None]
    """Row by row the same ones in every reading; None for those that this configuration cannot have routed."""
    subscriptions: Sequence[Claim]
    advertisements: Sequence[Claim] = ()


class Delivered(NamedTuple):
    """One copy that a client got."""

    topic: str
    client: str
    source: bytes
    id: bytes
    delivery: str
    subscriptions: str
    content: bytes
    stale: bool = False


# --- in force -------------------------------------------------------------------------------------------------------


class Progress(NamedTuple):
    """How far the control query of a deployment had come when this was written: the next offset of each topic."""

    time_ms: float
    deployment: str
    hosts: tuple[str, ...]
    offsets: Mapping[str, int]


Times = tuple[int, Sequence[tuple[int, float]] | Floats]
"""Of a topic: the first offset that is held, and offset and time of each record."""


class ControlHistory:
    """When what had been said by a moment was in force at every broker.

    `times`: for each topic of the control plane the first offset that is held, and offset and log-append time of each
    record. Offsets have gaps where a transaction ended or was taken back.
    `mixed`: from when until when deployments went by different configurations; nothing comes into force meanwhile.
    """

    def __init__(
        self,
        brokers: Sequence[str],
        times: Mapping[str, Times],
        progress: Iterable[Progress],
        rounds: int,
        mixed: Iterable[tuple[float, float]] = (),
    ) -> None:
        self._brokers = brokers
        self._rounds = rounds
        self._mixed = sorted(mixed)
        self._topics = list(times)
        pairs = {topic: np.array(records, np.float64).reshape(-1, 2) for topic, (_, records) in times.items()}
        self._ends_after = {
            topic: np.concatenate([[first], pairs[topic][:, 0].astype(np.int64) + 1])
            for topic, (first, _) in times.items()
        }
        # a clock that was set back must not make a later record look earlier
        self._times = {
            topic: np.maximum.accumulate(np.concatenate([[-NEVER], held[:, 1]])) for topic, held in pairs.items()
        }
        groups: dict[tuple[str, tuple[str, ...]], list[Progress]] = defaultdict(list)
        for record in progress:
            groups[record.deployment, record.hosts].append(record)
        self._groups = [_Reached(hosts, records, times) for (_, hosts), records in sorted(groups.items())]

    def in_force(self, said_ms: Floats) -> Floats:
        """For each moment: when all that had been said by then was in force everywhere; `NEVER` if it was not yet.

        Guarantee: monotone; never before a `hilcast wait` begun at that moment could have returned. Progress is known a
        few milliseconds late, when its record was appended, and so is this. Cost: rounds x deployments binary searches,
        vectorised over the moments.
        """
        now = np.asarray(said_ms, np.float64)
        for _ in range(self._rounds):
            reached = self._at_one(np.maximum(now, self._reached(self._ends(now))))
            if np.array_equal(reached, now):
                break
            now = reached
        return now

    def _at_one(self, now: Floats) -> Floats:
        """For each moment the first one from it on at which all deployments went by one configuration."""
        for first, last in self._mixed:
            now = np.where((now >= first) & (now < last), last, now)
        return now

    def _ends(self, now: Floats) -> dict[str, Ints]:
        """The end of each topic at each moment; a record of the very same millisecond counts."""
        return {
            topic: self._ends_after[topic][np.searchsorted(times[1:], now, side="right")]
            for topic, times in self._times.items()
        }

    def _reached(self, ends: Mapping[str, Ints]) -> Floats:
        size = len(next(iter(ends.values()))) if ends else 0
        everywhere = np.full(size, -NEVER)
        each = [group.when(ends) for group in self._groups]
        for broker in self._brokers:
            here = np.full(size, NEVER)
            for group, when in zip(self._groups, each, strict=True):
                if broker in group.hosts:
                    here = np.minimum(here, when)
            everywhere = np.maximum(everywhere, here)
        return everywhere


class _Reached:
    """The progress of one deployment while it hosted these brokers."""

    def __init__(self, hosts: tuple[str, ...], records: list[Progress], times: Mapping[str, Times]) -> None:
        self.hosts = hosts
        self._topics = topics = list(times)
        records = sorted(records, key=lambda record: record.time_ms)
        self._times = np.array([record.time_ms for record in records] + [NEVER])
        # nobody has read a record before it was there: such offsets are of a topic of that name that is gone
        begun = {topic: (first, held[0][1] if len(held) else NEVER) for topic, (first, held) in times.items()}

        def read(line: Progress, topic: str) -> int:
            (first, since_ms), offset = begun[topic], line.offsets.get(topic, 0)
            return min(offset, first) if line.time_ms < since_ms else offset

        rows = [[read(line, topic) for topic in topics] for line in records]
        self._offsets = np.maximum.accumulate(np.array(rows, np.int64).reshape(len(rows), len(topics)), axis=0)

    def when(self, ends: Mapping[str, Ints]) -> Floats:
        """When it had read to all of these ends."""
        first = [np.searchsorted(self._offsets[:, k], ends[topic]) for k, topic in enumerate(self._topics)]
        return self._times[np.max(first, axis=0)] if first else np.empty(0)


# --- the verdict ----------------------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    kind: str
    client: str
    topic: str
    source: str
    id: str
    detail: str

    def __str__(self) -> str:
        who = f"{self.client} ({self.topic})" if self.client else self.topic
        return f"{self.kind}: {self.source}#{self.id} {f'for {who}' if who else ''}: {self.detail}"


@dataclass
class Judgement:
    """What the comparison found; `ok` if nothing is missing and nothing wrong."""

    published: int = 0
    pending: int = 0
    """Publications that are not routed to the end yet; what they lead to is not missing."""
    refused: int = 0
    """Publications with a dead letter."""
    expected: int = 0
    """Deliveries (publication, client, destination) that must be there."""
    delivered: int = 0
    undecided: int = 0
    """Deliveries that may be there or not, because a change was on its way."""
    missing: int = 0
    wrong: int = 0
    repeats: int = 0
    """Copies that add nothing to those before."""
    missing_ids: int = 0
    """Ids that the deliveries that are there ought to name as well."""
    wrong_ids: int = 0
    unanswered: int = 0
    """Publications that cannot be used and have no dead letter."""
    lost: int = 0
    """Missing deliveries of types whose reduction is allowed to lose (`probabilistic`)."""
    set_aside: int = 0
    """Deliveries that are dead letters, because their destination took nothing."""
    stale: int = 0
    """Deliveries routed with an old index while Redis was away, by choice: not judged."""
    unknown: int = 0
    """Deliveries of publications that are no longer held."""
    unjudged: int = 0
    """Publications that may have been routed by a configuration that is no longer held."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.missing or self.wrong or self.missing_ids or self.wrong_ids or self.unanswered)

    def note(self, kind: str, count: int, findings: Iterator[Finding]) -> None:
        """Add to a count, and keep the first findings of each kind."""
        setattr(self, kind, getattr(self, kind) + count)
        kept = sum(1 for finding in self.findings if finding.kind == kind.replace("_", "-"))
        self.findings += [found for _, found in zip(range(max(0, EXAMPLES - kept)), findings, strict=False)]


def judge(
    types: Mapping[str, EventType],
    publications: Sequence[Publication],
    deliveries: Sequence[Delivered],
    subscriptions: Sequence[Claim],
    advertisements: Sequence[Claim] = (),
    *,
    cut_ms: Mapping[str, float] | None = None,
    cut_publications: bool = False,
    schemas: Schemas = NO_SCHEMAS,
    set_aside: Sequence[Delivered] = (),
) -> Judgement:
    """Compare deliveries with flooding, by one configuration: `judge_by` with a single reading."""
    return judge_by(
        [Reading(types, publications, subscriptions, advertisements)],
        deliveries,
        cut_ms=cut_ms,
        cut_publications=cut_publications,
        schemas=schemas,
        set_aside=set_aside,
    )


def judge_by(
    readings: Sequence[Reading],
    deliveries: Sequence[Delivered],
    *,
    cut_ms: Mapping[str, float] | None = None,
    cut_publications: bool = False,
    schemas: Schemas = NO_SCHEMAS,
    set_aside: Sequence[Delivered] = (),
) -> Judgement:
    """Compare deliveries with flooding, each publication by the configurations that may have routed it.

    `cut_ms`: destination topics of which Kafka has deleted the beginning, with the time of the first record that is
    held; `cut_publications`: publications may have been deleted too, so a delivery of an unknown one is no error.
    `set_aside`: deliveries that became dead letters, because their destination took nothing; they need not be there.

    Guarantee: a finding is a proof, given the records and their times. Cost: each publication read once for each
    reading that it is in, in Python; one vectorised evaluation for each filter that ever stood, in each reading; then
    sorting what matched.
    """
    world = _World(readings, deliveries)
    judgement = world.counted()
    may: list[Ints] = [np.empty(0, np.int64)]
    must: list[Ints] = [np.empty(0, np.int64)]
    lossy: set[int] = set()
    unusable: list[dict[int, str]] = []
    for reading in readings:
        by_type = _columns(reading, world, schemas)
        demanded: list[Ints] = [np.empty(0, np.int64)]
        for name, columns in by_type.items():
            for claim, target, possible, certain in _flooded(reading, columns):
                # a filter holds for few of many: numbers of rows are much less to go through than a mask
                here = np.flatnonzero(possible)
                sure = here[certain[here]]
                if cut_ms and target[1] in cut_ms:
                    sure = sure[columns.sent[sure] > cut_ms[target[1]]]
                may.append(world.codes(columns.events[here], target, claim.id))
                demanded.append(world.codes(columns.rows[sure], target, claim.id))
            if reading.types[name].reduction == "probabilistic":
                lossy.update(columns.events.tolist())
        must.append(_unique(np.concatenate(demanded)))
        unusable.append(_unusable(reading, by_type.values()))
    _judge_refusals(world, unusable, judgement)
    kept = world.without(world.by_all(np.concatenate(must)), set_aside)
    judgement.set_aside = len({(d.source, d.id, d.client, d.topic) for d in set_aside})
    _compare(world, _unique(np.concatenate(may)), kept, judgement, lossy)
    _compare_copies(world, judgement, cut_publications)
    return judgement


def _flooded(reading: Reading, columns: _Columns) -> Iterator[tuple[Claim, Target, Bools, Bools]]:
    """For each subscription of a type and each of its targets: rows that may reach it, and rows that must."""
    name = columns.type.name
    columns.admit([claim for claim in reading.advertisements if claim.type == name])
    for claim in reading.subscriptions:
        if claim.type == name:
            for target, possible, certain in _wanted(claim, columns):
                yield claim, target, possible, certain


class _World:
    """Numbers for names: events, targets and ids; and the deliveries in those numbers."""

    def __init__(self, readings: Sequence[Reading], deliveries: Sequence[Delivered]) -> None:
        self.deliveries = deliveries
        self.names: dict[tuple[bytes, bytes], int] = {}
        self.contents: dict[int, set[bytes]] = defaultdict(set)
        size = len(readings[0].publications) if readings else 0
        self.first: list[Publication | None] = [None] * size
        """Row by row, the publication as the first reading has it that it is in."""
        self.events, self.readings = np.zeros(size, np.int64), np.zeros(size, np.int64)
        """Row by row, which event it is, and how many readings it is in."""
        self.is_one, self.is_done, self.is_pending = np.ones(size, bool), np.ones(size, bool), np.ones(size, bool)
        """Whether all readings take it for the same event; whether it is complete in all of them; in none."""
        self.refusals: dict[tuple[bytes, bytes], str] = {}
        for reading in readings:
            for row, publication in enumerate(reading.publications):
                if publication is not None:
                    self._take(row, publication)
        self.targets: dict[Target, int] = {}
        self.ids: dict[str, int] = {}
        for claim in (claim for reading in readings for claim in reading.subscriptions):
            self.ids.setdefault(claim.id, len(self.ids))
            for stand in claim.stands:
                if stand.owner is not None:
                    self.targets.setdefault((stand.owner, stand.destination), len(self.targets))
        self._split: dict[str, tuple[tuple[int, ...], bool]] = {}
        self.events_list = list(self.names)
        for delivery in deliveries:
            self.targets.setdefault((delivery.client, delivery.topic), len(self.targets))
            self.split(delivery.subscriptions)
        self.targets_list, self.ids_list = list(self.targets), list(self.ids)

    def _take(self, row: int, publication: Publication) -> None:
        event = self.names.setdefault((publication.source, publication.id), len(self.names))
        self.contents[event].add(publication.content)
        if self.first[row] is None:
            self.first[row], self.events[row] = publication, event
        self.readings[row] += 1
        self.is_one[row] &= self.events[row] == event
        self.is_done[row] &= publication.complete
        self.is_pending[row] &= not publication.complete
        if publication.refused is not None:
            self.refusals[publication.source, publication.id] = publication.refused

    def counted(self) -> Judgement:
        """The publications, counted; one is pending until some configuration by which it may be routed has done so."""
        return Judgement(
            published=int((self.readings > 0).sum()),
            pending=int(self.is_pending[self.readings > 0].sum()),
            refused=sum(1 for p in self.first if p is not None and p.refused is not None),
        )

    def by_all(self, codes: Ints) -> Ints:
        """What all readings of a row demand, by event; `codes` are by row, and of each reading once."""
        codes, size = np.sort(codes), len(self.targets) * len(self.ids)
        starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]])) if len(codes) else _sorted(set())
        counts, codes = np.diff(np.append(starts, len(codes))), codes[starts]
        rows = codes // max(size, 1)
        codes, rows = (each[counts == self.readings[rows]] for each in (codes, rows))
        return _unique(self.events[rows] * size + codes % max(size, 1))

    def split(self, text: str) -> tuple[tuple[int, ...], bool]:
        """The ids of a header, in numbers, and whether all of them are there."""
        known = self._split.get(text)
        if known is None:
            names = [name for name in text.split(",") if name]
            whole = "…" not in names
            numbers = tuple(self.ids.setdefault(name, len(self.ids)) for name in names if name != "…")
            known = self._split[text] = (numbers, whole)
        return known

    def codes(self, numbers: Ints, target: Target, id: str) -> Ints:
        """One number for (event, target, id), or for (row, target, id)."""
        return (numbers * len(self.targets) + self.targets[target]) * len(self.ids) + self.ids[id]

    def without(self, codes: Ints, set_aside: Sequence[Delivered]) -> Ints:
        """Those of the codes whose delivery was not set aside."""
        known = [d for d in set_aside if (d.source, d.id) in self.names and (d.client, d.topic) in self.targets]
        pairs = [self.names[d.source, d.id] * len(self.targets) + self.targets[d.client, d.topic] for d in known]
        return codes[~np.isin(codes // len(self.ids), np.array(pairs, np.int64))] if pairs else codes

    def finding(self, kind: str, pair: int, detail: str) -> Finding:
        event, target = divmod(int(pair), len(self.targets))
        source, id = self.events_list[event]
        client, topic = self.targets_list[target]
        refused = self.refusals.get((source, id))
        why = f"{detail}; the publication was refused as {refused}" if refused and kind == "missing" else detail
        return Finding(kind, client, topic, source.decode("utf-8", "replace"), id.decode("utf-8", "replace"), why)

    def ids_of(self, codes: Ints, pair: int) -> str:
        """The ids of a pair among sorted codes."""
        low, high = np.searchsorted(codes, [pair * len(self.ids), (pair + 1) * len(self.ids)])
        return ", ".join(sorted(self.ids_list[int(code) % len(self.ids)] for code in codes[low:high]))


# --- one type -------------------------------------------------------------------------------------------------------


class _Columns:
    """The publications of one type, column by column."""

    def __init__(
        self, event_type: EventType, rows: list[int], here: Sequence[Publication], world: _World, schemas: Schemas
    ) -> None:
        self.type = event_type
        self.rows = np.array(rows, np.int64)
        self.batch = _read(event_type, here, schemas)
        self.events = np.array([world.names[p.source, p.id] for p in here], np.int64)
        self.sent = np.array([p.sent_ms for p in here], np.float64)
        self.routed = np.array([p.routed_ms for p in here], np.float64)
        self._first_sent, self._last_sent = self.sent.min(initial=NEVER), self.sent.max(initial=-NEVER)
        self._first_routed, self._last_routed = self.routed.min(initial=NEVER), self.routed.max(initial=-NEVER)
        self.brokers = np.array([p.broker for p in here], dtype=object)
        self.sources = np.array([p.source.decode("utf-8", "replace") for p in here], dtype=object)
        excused = np.array([p.refused == "too-large" and max(p.size, len(p.value)) >= LARGE_BYTES for p in here], bool)
        self.possible = self.batch.valid & ~excused
        """Rows that may be delivered at all."""
        # a schema that can be had now may not have been to be had then
        sure = [p.complete and p.refused != "unknown-schema" for p in here]
        self.certain = self.possible & np.array(sure, bool) & world.is_one[self.rows]
        """Rows whose deliveries must be there, if anybody wants them."""

    def __len__(self) -> int:
        return len(self.rows)

    def admit(self, advertisements: Sequence[Claim]) -> None:
        """Where advertising is a duty: keep what an advertisement of its publisher at its broker holds for."""
        if not self.type.advertisements:
            return
        possible, certain = np.zeros(len(self), bool), np.zeros(len(self), bool)
        for claim in advertisements:
            at_broker = self.brokers == claim.broker
            for (publisher, _), may, must in _wanted(claim, self, restricted=False):
                own = at_broker & (self.sources == publisher)
                possible |= may & own
                certain |= must & own
        self.possible &= possible
        self.certain &= certain

    def window(self, since_ms: float, end_ms: float) -> Bools | None:
        """Usable rows that were routed from a moment on, and sent up to another; None: there are none."""
        if since_ms > self._last_routed or end_ms < self._first_sent:
            return None
        if since_ms <= self._first_routed and end_ms >= self._last_sent:
            return self.batch.valid
        return (self.routed >= since_ms) & (self.sent <= end_ms) & self.batch.valid

    def holding(self, filter: Filter | Unread | None, among: Bools) -> Answer:
        """Those of `among` for which the filter holds; one that is not known any more may hold for all."""
        known = filter() if callable(filter) else filter
        return Answer(among.copy(), np.zeros(len(self), bool)) if known is None else self.batch.holding(known, among)


def _read(event_type: EventType, publications: Sequence[Publication], schemas: Schemas) -> PlainEvents:
    """The publications of a type, by a reader that the router does not have."""
    formats = [p.format or event_type.format for p in publications]
    each = zip(publications, formats, strict=True)
    events = [plain_event(event_type.written_in(format), p.value, p.beside, schemas) for p, format in each]
    return PlainEvents(event_type, events)


def _columns(reading: Reading, world: _World, schemas: Schemas) -> dict[str, _Columns]:
    rows: dict[str, list[tuple[int, Publication]]] = {name: [] for name in reading.types}
    for row, publication in enumerate(reading.publications):
        if publication is not None and publication.fault is None and publication.type in rows:
            rows[publication.type].append((row, publication))
    return {
        name: _Columns(reading.types[name], [row for row, _ in found], [p for _, p in found], world, schemas)
        for name, found in rows.items()
    }


def _wanted(claim: Claim, columns: _Columns, restricted: bool = True) -> Iterator[tuple[Target, Bools, Bools]]:
    """For each target of a claim: rows that may reach it, and rows that every possible stand sends there."""
    stands = (NOTHING, *claim.stands)
    ends = np.minimum.accumulate([NEVER, *(stand.in_force_ms for stand in stands[:0:-1])])[::-1].tolist()
    met = [(stand, columns.window(stand.since_ms, end)) for stand, end in zip(stands, ends, strict=True)]
    possible = [(stand, window) for stand, window in met if window is not None]
    for target in dict.fromkeys((s.owner, s.destination) for s, _ in possible if s.owner is not None):
        may, against = np.zeros(len(columns), bool), np.zeros(len(columns), bool)
        for stand, window in possible:
            if (stand.owner, stand.destination) != target:
                against |= window
                continue
            held = columns.holding(stand.filter, window)
            may |= held.may
            against |= window & ~held.must
        must = may & ~against
        if restricted:
            yield target, may & columns.possible, must & columns.certain
        else:
            yield target, may, must


# --- comparing ------------------------------------------------------------------------------------------------------


def _unusable(reading: Reading, by_type: Iterable[_Columns]) -> dict[int, str]:
    """Rows that cannot be used by this configuration, with the code."""
    found = {row: p.fault for row, p in enumerate(reading.publications) if p is not None and p.fault}
    for columns in by_type:
        for i in np.flatnonzero(~columns.possible).tolist():
            found[int(columns.rows[i])] = "not-advertised" if columns.batch.valid[i] else "bad-event"
    return found


def _judge_refusals(world: _World, unusable: Sequence[dict[int, str]], judgement: Judgement) -> None:
    """Find what cannot be used by any configuration that it may have met, and yet was not refused.

    Who answers for an unknown broker is another one in each: between two of them nobody may have felt concerned.
    """
    counts = Counter(row for found in unusable for row in found)
    codes = {row: code for found in reversed(unusable) for row, code in found.items()}
    strange = {row for found in unusable for row, code in found.items() if code == "unknown-broker"}
    silent = [
        (publication, codes[row])
        for row, publication in enumerate(world.first)
        if publication is not None and counts[row] == world.readings[row]
        if world.is_done[row] and publication.refused is None and (row not in strange or counts[row] == 1)
    ]
    findings = (_unanswered(publication, code) for publication, code in silent)
    judgement.note("unanswered", len(silent), findings)


def _unanswered(publication: Publication, code: str) -> Finding:
    source, id = publication.source.decode("utf-8", "replace"), publication.id.decode("utf-8", "replace")
    return Finding("unanswered", "", "", source, id, f"cannot be used ({code}) and has no dead letter")


def _compare(world: _World, may: Ints, must: Ints, judgement: Judgement, lossy: set[int]) -> None:
    """Compare what was delivered with what may and what must be, by deliveries and by the ids in them."""
    got, pairs, cut, stale = _delivered(world)
    ids = len(world.ids)
    may_pairs, must_pairs = _unique(may // ids), _unique(must // ids)
    judgement.expected = len(must_pairs)
    judgement.delivered = len(pairs)
    judgement.undecided = len(np.setdiff1d(may_pairs, must_pairs, assume_unique=True))
    judgement.stale = len(stale)
    missing = np.setdiff1d(must_pairs, pairs, assume_unique=True)
    losable = np.isin(missing // len(world.targets), np.fromiter(sorted(lossy), np.int64, len(lossy)))
    judgement.lost = int(losable.sum())
    missing = missing[~losable]
    judgement.note(
        "missing",
        len(missing),
        (world.finding("missing", p, f"wanted by {world.ids_of(must, p)}") for p in missing.tolist()),
    )
    wrong = np.setdiff1d(np.setdiff1d(pairs, may_pairs, assume_unique=True), stale)
    judgement.note(
        "wrong",
        len(wrong),
        (world.finding("wrong", p, f"nobody wanted it; it names {world.ids_of(got, p)}") for p in wrong.tolist()),
    )
    absent = np.setdiff1d(must, got, assume_unique=True)
    absent = absent[np.isin(absent // ids, pairs) & ~np.isin(absent // ids, cut)]
    absent = absent[~np.isin(absent // ids // len(world.targets), np.fromiter(sorted(lossy), np.int64, len(lossy)))]
    judgement.note("missing_ids", len(absent), _of_ids(world, "missing-ids", absent, "does not name"))
    extra = np.setdiff1d(got, may, assume_unique=True)
    extra = extra[~np.isin(extra // ids, wrong) & ~np.isin(extra // ids, stale)]
    judgement.note("wrong_ids", len(extra), _of_ids(world, "wrong-ids", extra, "names"))


def _of_ids(world: _World, kind: str, codes: Ints, verb: str) -> Iterator[Finding]:
    for code in codes.tolist():
        pair, id = divmod(code, len(world.ids))
        yield world.finding(kind, pair, f"{verb} {world.ids_list[id]}")


def _delivered(world: _World) -> tuple[Ints, Ints, Ints, Ints]:
    """Ints of all ids delivered; pairs delivered; pairs whose ids were cut; pairs of which all copies are stale."""
    events: list[int] = []
    targets: list[int] = []
    counts: list[int] = []
    flat: list[int] = []
    cut: set[int] = set()
    fresh: set[int] = set()
    stale: set[int] = set()
    for delivery in world.deliveries:
        event = world.names.get((delivery.source, delivery.id))
        if event is None:
            continue
        target = world.targets[delivery.client, delivery.topic]
        numbers, whole = world.split(delivery.subscriptions)
        pair = event * len(world.targets) + target
        if not whole:
            cut.add(pair)
        (stale if delivery.stale else fresh).add(pair)
        events.append(event)
        targets.append(target)
        counts.append(len(numbers))
        flat.extend(numbers)
    pairs = np.array(events, np.int64) * len(world.targets) + np.array(targets, np.int64)
    codes = np.repeat(pairs, counts) * len(world.ids) + np.array(flat, np.int64) if flat else np.empty(0, np.int64)
    return _unique(codes), _unique(pairs), _sorted(cut), _sorted(stale - fresh)


def _unique(codes: Ints) -> Ints:
    """Each number once, in order: by sorting, which is several times faster here than `numpy.unique` with its table."""
    codes = np.sort(codes)
    return codes[np.concatenate([[True], codes[1:] != codes[:-1]])] if len(codes) else codes


def _sorted(numbers: set[int]) -> Ints:
    return np.array(sorted(numbers), np.int64)


def _compare_copies(world: _World, judgement: Judgement, cut_publications: bool) -> None:
    """Look at each copy: a known publication, bytes unchanged, the delivery id of its other copies; count repeats."""
    known_ids: dict[tuple[int, str], str] = {}
    owners: dict[str, tuple[int, str]] = {}
    seen: dict[tuple[int, str, str], set[int]] = {}
    for delivery in world.deliveries:
        event = world.names.get((delivery.source, delivery.id))
        if event is None:
            _unknown(delivery, judgement, cut_publications)
            continue
        who = (event, delivery.client)
        same = known_ids.setdefault(who, delivery.delivery) == delivery.delivery
        if not same or owners.setdefault(delivery.delivery, who) != who:
            judgement.note("wrong", 1, iter([_of_copy(delivery, "its delivery id is another one's")]))
        if delivery.content not in world.contents[event]:
            judgement.note("wrong", 1, iter([_of_copy(delivery, "key or value are not the publication's")]))
        numbers, _ = world.split(delivery.subscriptions)
        before = seen.get((*who, delivery.topic))
        if before is None:
            seen[(*who, delivery.topic)] = set(numbers)
        elif before.issuperset(numbers):
            judgement.repeats += 1
        else:
            before.update(numbers)


def _unknown(delivery: Delivered, judgement: Judgement, cut_publications: bool) -> None:
    if cut_publications:
        judgement.unknown += 1
    else:
        judgement.note("wrong", 1, iter([_of_copy(delivery, "no such publication was ever sent")]))


def _of_copy(delivery: Delivered, detail: str) -> Finding:
    source, id = delivery.source.decode("utf-8", "replace"), delivery.id.decode("utf-8", "replace")
    return Finding("wrong", delivery.client, delivery.topic, source, id, detail)
