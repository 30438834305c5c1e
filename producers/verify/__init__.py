"""`hilcast verify`: recompute by flooding what the topics say should have been delivered, and compare.

Reads only; may run beside the job. What is read first bounds what can be demanded of what is read later:

    progress ─> deliveries ─> routing log ─> publications, dead letters ─> inboxes, receipts, control
    (done)      (all that     (and when)     (every delivery has           (every delivery has its
                 done led to)                 its publication)              subscription)

Deliveries are those of clients' own topics and sinks, and of the topics that clients share (`sharing.py`), whose spans
are read after them.

The judging is `state/flooding.py`. Each publication is judged by the configuration that was in force when it was
routed (`eras.py`), or by all of those that may have been; what may have been routed by one that the registry no longer
holds is left out, and counted. The registry is read twice: early for the topics of its configurations, and late for
what was announced meanwhile. Nothing is held of it but what is no fact, and facts whose inbox record is gone; of other
topics with a record for each registration what is judged by, packed (`held.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from infra.kafka import Transport, open_transport
from infra.kafka.reading import between, every
from infra.kafka.transport import Partition
from infra.schema_registry import prompt_schemas
from infra.signing_keys import keyring
from producers.verify.eras import Configurations, Era
from producers.verify.held import Held, held_times, read_receipts
from producers.verify.histories import Histories, inboxes_of
from producers.verify.history import read_fact, sinks
from producers.verify.independent_reader import identity, read_delivered, read_publication
from producers.verify.route_log import Asides, RouteLog, control_progress
from producers.verify.shared_deliveries import cut_for_members, read_memberships, served, shared_topics
from state.config import Config
from state.flooding import NEVER, Delivered, Judgement, Publication, Reading, Times, judge_by
from state.messages import Record
from state.signing import genuine_ones
from state.topics import published

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


@dataclass(frozen=True, slots=True)
class Sent:
    """A publication, and when it was routed: what does not depend on the configuration."""

    record: Record
    config: Config
    """The newest one that reads its topic."""
    first: Publication
    """As that one sees it."""
    sent_ms: float
    routed_ms: float
    passed: bool
    """Whether it was routed, and all that crossed to other deployments is done."""
    refused: str | None

    @property
    def name(self) -> tuple[bytes, bytes]:
        return self.first.source, self.first.id

    def may_be_of(self, era: Era) -> bool:
        return era.may_have_routed(self.sent_ms, self.routed_ms)


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
        self.eras: list[Era] = []
        self.deliveries: list[Delivered] = []
        self.set_aside: list[Delivered] = []
        """Deliveries that their destination did not take: dead letters `sink-refused`."""

    def run(self) -> Judgement:
        """Read everything, in the order that makes it consistent, and judge it."""
        topics = self._topics
        progress = list(self._read(topics.progress))
        log = RouteLog(progress)
        early, asked = self._early()
        known = Configurations(self.config, early, progress)
        self.eras = known.eras()
        asked = self._find_topics(asked)
        destinations = self._destinations(asked)
        shared = shared_topics(self.config, self._transport.topics())
        self.deliveries = [d for record in self._read(*destinations) for d in read_delivered(record)]
        self.deliveries += self._shared(shared)
        self._say(f"{len(self.deliveries)} deliveries in {len(destinations) + len(shared)} topics")
        log.add(self._read(topics.routed))
        inputs = list(self._read(*self._inputs()))
        asides = Asides(log, self._read(*self._under("waiting")), self._read(*self._under("waited")))
        sent = self._sent(inputs, log, asides)
        self._say(f"{len(sent)} publications")
        histories = Histories(self._configs(), control_progress(progress), known.mixed(), self._times)
        histories.receipts = read_receipts(self._read(*self._receipts()))
        histories.records = {inbox: Held(self._read(inbox)) for inbox in histories.inboxes()}
        self.eras += known.unread(histories.keep_facts(self._registry()))
        histories.read_on(self._read_from)
        sent, unjudged = self._judgeable(sent)
        readings = [self._reading(era, sent, histories, log, asides) for era in self.eras if era.config is not None]
        self._say(f"{max((len(reading.subscriptions) for reading in readings), default=0)} subscriptions")
        judgement = judge_by(
            readings,
            self.deliveries,
            cut_ms=cut_for_members(self.config, self._cut([*destinations, *shared]), shared, histories.members()),
            cut_publications=any(self._first(name) > 0 for name in self._inputs()),
            schemas=prompt_schemas(self.config, strict=True),
            set_aside=self.set_aside,
        )
        judgement.unjudged = unjudged
        return judgement

    # ── configurations ──────────────────────────────────────────────────────────────────────────────────────────

    def _registry(self) -> Iterator[Record]:
        return genuine_ones(self._read(self._topics.registry), keyring(self.config))

    def _early(self) -> tuple[list[Record], set[str]]:
        """What the registry holds but facts, and the sinks that these name."""
        others, asked = [], set()
        for record in self._registry():
            found = read_fact(record)
            if found is None:
                others.append(record)
            elif found[2].sink is not None:
                asked.add(found[2].sink)
        return others, asked

    def _configs(self) -> list[Config]:
        """Every configuration that is judged by."""
        return [era.config for era in self.eras if era.config is not None]

    def _find_topics(self, by_facts: set[str]) -> set[str]:
        """Have each configuration know the topics that it reads; return the sinks that were ever asked for.

        Those that facts name are among them: what Kafka has deleted of an inbox is known by these alone.
        """
        existing = self._transport.topics()
        own = [(era, None if era.config is None else era.config.with_own(existing)) for era in self.eras]
        inboxes = [(config, inboxes_of(config, advertisements=False)) for _, config in own if config is not None]
        asked = by_facts | {sink for config, topics in inboxes for sink in sinks(config, self._read(*topics))}
        self.eras = [
            replace(era, config=None if config is None else config.with_topics(existing, asked)) for era, config in own
        ]
        return asked

    def _judgeable(self, sent: Sequence[Sent]) -> tuple[list[Sent], int]:
        """Leave out what was published before `since_ms`, and, counted, what an unknown configuration may have routed.

        With them go their deliveries, and publications of the same name as the latter, which may be what these are of.
        """
        unknown = [era for era in self.eras if era.config is None]
        recent = [one for one in sent if one.sent_ms >= self._since_ms]
        lost = {one.name for one in recent if any(one.may_be_of(era) for era in unknown)}
        kept = [one for one in recent if one.name not in lost]
        left_out = {one.name for one in sent} - {one.name for one in kept}
        self.deliveries = [d for d in self.deliveries if (d.source, d.id) not in left_out]
        return kept, len(recent) - len(kept)

    def _reading(self, era: Era, sent: Sequence[Sent], histories: Histories, log: RouteLog, asides: Asides) -> Reading:
        """What the configuration of an era makes of everything."""
        config = era.config
        assert config is not None
        seen = self._seen(era, config, sent, log, asides)
        claims = histories.claims(era, config) if any(seen) else ([], [])
        return Reading(config.types, seen, *claims)

    def _seen(
        self, era: Era, config: Config, sent: Sequence[Sent], log: RouteLog, asides: Asides
    ) -> list[Publication | None]:
        """What the configuration makes of each publication that it may have routed."""
        sources, inputs = {source.topic: source for source in config.sources}, set(published(config))
        brokers, seen = config.overlay.brokers, list[Publication | None]()
        for one in sent:
            record = one.record
            if not one.may_be_of(era):
                seen.append(None)
                continue
            if record.topic not in inputs:  # nobody looks at it: nothing is wanted, nothing is answered
                seen.append(replace(one.first, type="", fault=None, refused=one.refused))
                continue
            is_first = one.config is config
            publication = one.first if is_first else read_publication(record, config, sources.get(record.topic))
            broker = publication.broker if publication.broker in brokers else brokers[0]
            done = log.done((record.topic, record.partition), record.offset, broker)
            seen.append(
                replace(
                    publication,
                    sent_ms=one.sent_ms,
                    routed_ms=one.routed_ms,
                    complete=done and one.passed and asides.passed(record.place, broker)[1],
                    refused=one.refused,
                )
            )
        return seen

    def _shared(self, topics: list[str]) -> list[Delivered]:
        """Deliveries through shared topics; a span is announced before what it holds, so spans are read afterwards."""
        copies = [(record.place, d) for record in self._read(*topics) for d in read_delivered(record)]
        memberships = read_memberships(self._read(self._topics.groups))
        held = {(topic, p): self._transport.span(topic, p)[0] for topic in topics for p in self._lanes(topic)}
        return served(self.config, copies, memberships, held)

    # ── publications ────────────────────────────────────────────────────────────────────────────────────────────

    def _inputs(self) -> list[str]:
        """The topics by which publications entered, by whichever configuration."""
        return list(dict.fromkeys(topic for config in self._configs() for topic in published(config)))

    def _sent(self, records: Sequence[Record], log: RouteLog, asides: Asides) -> list[Sent]:
        """Every publication, with when it was last routed on any of its passes."""
        readers = {
            topic: (config, next((source for source in config.sources if source.topic == topic), None))
            for config in self._configs()
            for topic in published(config)
        }
        sources = {source.topic for config in self._configs() for source in config.sources}
        times = {p: log.routed_ms(p, end) for p, end in _ends(records).items()}
        passes = self._passes(log, asides)
        letters = self._dead_letters()
        found = []
        for record in records:
            config, source = readers[record.topic]
            first = read_publication(record, config, source)
            later_ms = asides.passed(record.place, first.broker)[0]
            routed_ms = max(float(times[record.topic, record.partition][record.offset]), later_ms)
            on_links_ms, links_done = passes.get((first.source, first.id), (-NEVER, True))
            margin_ms = self._margin_ms + (SOURCE_MARGIN_MS if record.topic in sources else 0.0)
            found.append(
                Sent(
                    record,
                    config,
                    first,
                    sent_ms=first.sent_ms - margin_ms,
                    routed_ms=max(routed_ms, on_links_ms) + self._margin_ms,
                    passed=links_done and routed_ms < NEVER,
                    refused=letters.get(record.place),
                )
            )
        return found

    def _passes(self, log: RouteLog, asides: Asides) -> dict[tuple[bytes, bytes], tuple[float, bool]]:
        """What crossed to another deployment: by event, when it was last routed there, and whether that is done."""
        links = {link for config in self._configs() for link in config.overlay.links}
        ends = {self._topics.link(a, b): b for pair in links for a, b in (pair, pair[::-1])}
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

    # ── topics ──────────────────────────────────────────────────────────────────────────────────────────────────

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

    def _times(self, topic: str) -> Times:
        """The first offset that is held, and offset and time of each record."""
        times = held_times(self._read(topic))
        return (int(times[0][0]) if len(times) else self._first(topic)), times

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

    def _read_from(self, topic: str, offset: int | None) -> Iterator[Record]:
        """Every record of a topic from an offset on, or from its beginning, up to its end now."""
        spans = {(topic, p): self._transport.span(topic, p) for p in self._lanes(topic)}
        rest = {p: (low if offset is None else offset, end) for p, (low, end) in spans.items()}
        return between(self._transport, rest)


def _ends(records: Iterable[Record]) -> dict[Partition, int]:
    ends: dict[Partition, int] = {}
    for record in records:
        partition = (record.topic, record.partition)
        ends[partition] = max(ends.get(partition, 0), record.offset + 1)
    return ends
