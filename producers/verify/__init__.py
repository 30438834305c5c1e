"""`hilcast verify`: recompute by flooding what the topics say should have been delivered, and compare.

Reads only; may run beside the job. What is read first bounds what can be demanded of what is read later:

    progress ─> deliveries ─> routing log ─> publications, dead letters ─> inboxes, receipts, control
    (done)      (all that     (and when)     (every delivery has           (every delivery has its
                 done led to)                 its publication)              subscription)

Deliveries are those of clients' own topics and sinks, and of the topics that clients share (`sharing.py`), whose spans
are read after them.

The judging is `state/flooding.py`; it is done with the present configuration, so after a change of the event types
or of the overlay judge what was published `since` then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from infra.kafka import Transport, open_transport
from infra.kafka.reading import between, every
from infra.kafka.transport import Partition
from infra.schema_registry import prompt_schemas
from infra.signing_keys import keyring
from producers.verify.history import HistoryReader, read_facts, read_receipts, sinks
from producers.verify.independent_reader import identity, read_delivered, read_publication
from producers.verify.route_log import Asides, RouteLog, control_progress
from producers.verify.shared_deliveries import cut_for_members, opted, read_memberships, served, shared_topics
from state.config import Config
from state.flooding import NEVER, Claim, ControlHistory, Delivered, Judgement, Progress, Publication, judge
from state.messages import Record, speaker
from state.signing import genuine_ones
from state.topics import inboxes, published

__all__ = ["Verification", "verify"]

SOURCE_MARGIN_MS = 10_000.0
"""Topics of existing producers may carry the producers' own clocks: so far they may be off."""


def verify(
    config: Config,
    *,
    since_ms: float = -NEVER,
    margin_ms: float = 0.0,
    say: Callable[[str], None] = lambda line: None,
) -> Judgement:
    """Judge everything that the topics hold.

    `since_ms`: judge only what was published from then on. `margin_ms`: how far the clocks of several Kafka brokers
    may be apart; what lies within it is undecided.
    """
    transport = open_transport(config)
    try:
        return Verification(config, transport, margin_ms=margin_ms, since_ms=since_ms, say=say).run()
    finally:
        transport.close()


class Verification:
    """One reading of all topics."""

    def __init__(
        self,
        config: Config,
        transport: Transport,
        *,
        margin_ms: float = 0.0,
        since_ms: float = -NEVER,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.config = config
        self._topics = config.topics
        self._transport = transport
        self._margin_ms = margin_ms
        self._since_ms = since_ms
        self._say = say
        self.subscriptions: list[Claim] = []
        self.publications: list[Publication] = []
        self.deliveries: list[Delivered] = []
        self.set_aside: list[Delivered] = []
        """Deliveries that their destination did not take: dead letters `sink-refused`."""

    def run(self) -> Judgement:
        """Read everything, in the order that makes it consistent, and judge it."""
        topics = self._topics
        progress = list(self._read(topics.progress))
        log = RouteLog(progress)
        self.config = self.config.with_own(self._transport.topics())
        asked = sinks(self.config, self._read(*self._inboxes(advertisements=False)))
        self.config = self.config.with_topics(self._transport.topics(), asked)
        destinations = self._destinations(asked)
        shared = shared_topics(self.config, self._transport.topics())
        self.deliveries = [d for record in self._read(*destinations) for d in read_delivered(record)]
        self.deliveries += self._shared(shared)
        self._say(f"{len(self.deliveries)} deliveries in {len(destinations) + len(shared)} topics")
        log.add(self._read(topics.routed))
        self.publications = self._publications(log)
        self._say(f"{len(self.publications)} publications")
        control = self._control(control_progress(progress))
        receipts = read_receipts(self._read(*self._receipts()))
        facts = read_facts(genuine_ones(self._read(topics.registry), keyring(self.config)))
        histories: dict[bool, list[Claim]] = {False: [], True: []}
        members: set[str] = set()
        for advertisements in histories:
            for inbox in self._inboxes(advertisements=advertisements):
                records = list(self._read(inbox))
                reader = HistoryReader(self.config, inbox, records, receipts, control, facts)
                histories[advertisements] += reader.claims()
                members |= set() if advertisements else opted(self.config, records, ())
        members |= opted(self.config, (), (fact for _, _, fact in facts))
        self.subscriptions = histories[False]
        self._say(f"{len(self.subscriptions)} subscriptions")
        self._drop_old()
        return judge(
            self.config.types,
            self.publications,
            self.deliveries,
            self.subscriptions,
            histories[True],
            cut_ms=cut_for_members(self.config, self._cut([*destinations, *shared]), shared, members),
            cut_publications=any(self._first(name) > 0 for name in self._inputs()),
            schemas=prompt_schemas(self.config, strict=True),
            set_aside=self.set_aside,
        )

    def _control(self, progress: list[Progress]) -> ControlHistory:
        """When what was said was in force; a client's own inbox that nobody reads yet holds up none."""
        read = {topic for line in progress for topic in line.offsets} if self.config.security.own else None
        found = [inbox for inbox in inboxes(self.config) if read is None or inbox in read]
        times = {name: self._times(name) for name in (*found, self._topics.control)}
        return ControlHistory(self.config.overlay.brokers, times, progress, self.config.fence_rounds())

    def _shared(self, topics: list[str]) -> list[Delivered]:
        """Deliveries through shared topics; a span is announced before what it holds, so spans are read afterwards."""
        copies = [(record.place, d) for record in self._read(*topics) for d in read_delivered(record)]
        memberships = read_memberships(self._read(self._topics.groups))
        held = {(topic, p): self._transport.span(topic, p)[0] for topic in topics for p in self._lanes(topic)}
        return served(self.config, copies, memberships, held)

    # ── publications ────────────────────────────────────────────────────────────────────────────────────────────

    def _inputs(self) -> list[str]:
        return published(self.config)

    def _publications(self, log: RouteLog) -> list[Publication]:
        """Every publication, with when it was routed on each of its passes and whether all of them are done."""
        sources = {source.topic: source for source in self.config.sources}
        first_broker = self.config.overlay.brokers[0]
        read: list[tuple[Record, Publication]] = []
        for record in self._read(*self._inputs()):
            source = sources.get(record.topic)
            read.append((record, read_publication(record, self.config, source)))
        times = {p: log.routed_ms(p, end) for p, end in _ends(record for record, _ in read).items()}
        asides = Asides(log, self._read(*self._under("waiting")), self._read(*self._under("waited")))
        passes = self._passes(log, asides)
        letters = self._dead_letters()
        found = []
        for record, publication in read:
            partition = (record.topic, record.partition)
            broker = publication.broker if publication.broker in self.config.overlay.brokers else first_broker
            later_ms, passed = asides.passed(record.place, broker)
            done = log.done(partition, record.offset, broker) and passed
            routed_ms = max(float(times[partition][record.offset]), later_ms)
            on_links_ms, links_done = passes.get((publication.source, publication.id), (-NEVER, True))
            margin_ms = self._margin_ms + (SOURCE_MARGIN_MS if record.topic in sources else 0.0)
            found.append(
                replace(
                    publication,
                    sent_ms=publication.sent_ms - margin_ms,
                    routed_ms=max(routed_ms, on_links_ms) + self._margin_ms,
                    complete=done and links_done and routed_ms < NEVER,
                    refused=letters.get(record.place),
                )
            )
        return found

    def _passes(self, log: RouteLog, asides: Asides) -> dict[tuple[bytes, bytes], tuple[float, bool]]:
        """What crossed to another deployment: by event, when it was last routed there, and whether that is done."""
        ends = {self._topics.link(a, b): b for pair in self.config.overlay.links for a, b in (pair, pair[::-1])}
        crossed = list(self._read(*sorted(log.topics() & set(ends))))
        times = {p: log.routed_ms(p, end) for p, end in _ends(crossed).items()}
        passes: dict[tuple[bytes, bytes], tuple[float, bool]] = {}
        for record in crossed:
            partition, name = (record.topic, record.partition), identity(record)
            before_ms, before = passes.get(name, (-NEVER, True))
            later_ms, passed = asides.passed(record.place, ends[record.topic])
            routed_ms = max(float(times[partition][record.offset]), later_ms)
            done = log.done(partition, record.offset, ends[record.topic]) and passed and routed_ms < NEVER
            passes[name] = (max(before_ms, routed_ms), before and done)
        return passes

    def _dead_letters(self) -> dict[tuple[str, int, int], str]:
        letters = {}
        for record in self._read(self._topics.deadletter):
            last = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
            try:
                place = (last["hilcast_topic"], int(last["hilcast_partition"]), int(last["hilcast_offset"]))
            except (KeyError, ValueError):
                continue  # not written by the router
            if last.get("hilcast_code") == "sink-refused" and "hilcast_destination" in last:
                self.set_aside += [d._replace(topic=last["hilcast_destination"]) for d in read_delivered(record)]
            else:
                letters[place] = last.get("hilcast_code", "")
        return letters

    def _drop_old(self) -> None:
        """Leave out what was published before `since_ms`, with its deliveries."""
        if self._since_ms == -NEVER:
            return
        kept = [p for p in self.publications if p.sent_ms >= self._since_ms]
        names = {(p.source, p.id) for p in kept}
        old = {(p.source, p.id) for p in self.publications} - names
        self.publications = kept
        self.deliveries = [d for d in self.deliveries if (d.source, d.id) not in old]

    # ── topics ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _inboxes(self, *, advertisements: bool) -> list[str]:
        """Those of one kind, everybody's or each client's own."""
        return [topic for topic in inboxes(self.config) if speaker(topic, self.config)[0] == advertisements]

    def _under(self, kind: str) -> list[str]:
        """The topics of all deployments for events that wait for a schema, or have waited."""
        head = f"{self.config.deployment.prefix}.{kind}."
        return sorted(topic for topic in self._transport.topics() if topic.startswith(head))

    def _receipts(self) -> list[str]:
        """Where answers are."""
        own = [topic for topic in self._transport.topics() if topic.startswith(self._topics.receipts_of(""))]
        return [self._topics.receipts, *(sorted(own) if self.config.security.own else [])]

    def _destinations(self, sinks: set[str]) -> list[str]:
        existing = self._transport.topics()
        own = {name for name in existing if name.startswith(self._topics.deliver(""))}
        return sorted(own | (sinks & existing))

    def _first(self, topic: str) -> int:
        """The first offset that Kafka holds of any partition."""
        return max((self._transport.span(topic, p)[0] for p in self._lanes(topic)), default=0)

    def _lanes(self, topic: str) -> tuple[int, ...]:
        return self._transport.partitions(topic)

    def _times(self, topic: str) -> tuple[int, list[float]]:
        """The first offset that is held, and the time of each record."""
        records = list(self._read(topic))
        first = records[0].offset if records else self._first(topic)
        return first, [float(record.timestamp_ms) for record in records]

    def _cut(self, destinations: Iterable[str]) -> dict[str, float]:
        """Destinations whose beginning is deleted, with the time of the first record that is held."""
        cut: dict[str, float] = {}
        for place in [(topic, p) for topic in destinations for p in self._lanes(topic)]:
            low, high = self._transport.span(*place)
            if low > 0:
                found = between(self._transport, {place: (low, high)})
                first = next(iter(found), None) if low < high else None
                since = NEVER if first is None else float(first.timestamp_ms)
                cut[place[0]] = max(cut.get(place[0], -NEVER), since)
        return cut

    def _read(self, *topics: str) -> Iterator[Record]:
        """Every record of these topics up to their ends now, of each partition in order."""
        return every(self._transport, *topics)


def _ends(records: Iterable[Record]) -> dict[Partition, int]:
    ends: dict[Partition, int] = {}
    for record in records:
        partition = (record.topic, record.partition)
        ends[partition] = max(ends.get(partition, 0), record.offset + 1)
    return ends
