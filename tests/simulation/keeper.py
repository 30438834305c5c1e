"""Groups in the simulated world: a driver for `Regrouping` on topics that are lists, and the judge of spans.

`SimulatedKeeper` does what `streaming/group_keeper.py` does, an effect at a time: each may fail, happen in part, or
happen and go unanswered. It lives as long as its job does; what a new one knows is in the topics.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from producers.client.membership import Spans
from state.config import Config
from state.control.facts import Fact
from state.distribution.regrouping import Announce, Close, Effect, Measure, Prepare, Regrouping, Switch
from state.messages import Record, Span, read_members, read_reader, read_spans, write_spans
from state.topics import published

if TYPE_CHECKING:
    from tests.simulation.world import Log, SimulatedDeployment

RECORDS_S = 4
"""Records that are written in a second, by the clock of the world."""
FailureShares = tuple[float, float]
"""How often an effect fails, and how often it is done without an answer."""
NEVER: FailureShares = (0.0, 0.0)
OFTEN: FailureShares = (0.1, 0.1)


class SimulatedKeeper:
    """One life of the driver's half of groups."""

    def __init__(self, deployment: SimulatedDeployment) -> None:
        self.deployment = deployment
        self.log = deployment.world.log
        self.regrouping = Regrouping(deployment.config, told(self.log, deployment.config))
        self._facts: dict[tuple[str, str, str, str], Fact] = {}
        self._seen: dict[str, int] = {}

    def tick(self, rng: random.Random | None = None) -> None:
        """Look and do everything; with `rng` do one effect at most, which may fail."""
        self._follow()
        now_s = self.log.now_ms / RECORDS_S
        due = self.regrouping.due(now_s)
        if due:
            self.regrouping.observe(self._newest())
            self.regrouping.look(now_s, set(due) - set(self.deployment.assignments))
        while (effect := self.regrouping.next(self.deployment.route_began_s)) is not None:
            self._carry_out(effect, rng or random.Random(0), NEVER if rng is None else OFTEN)
            if rng is not None:
                return

    def _follow(self) -> None:
        """Take notice of what changed in the registry."""
        facts = {(kind, b, t, id): fact for kind, b, t, id, fact in self.deployment.world.facts()}
        for key in {**self._facts, **facts}:
            if facts.get(key) != self._facts.get(key):
                self.regrouping.follow(key, facts.get(key))
        self._facts = facts

    def _newest(self) -> Iterator[Record]:
        for topic in self.log.lanes(published(self.deployment.config.with_topics(self.log.topics))):
            yield from self.log.topics[topic][self._seen.get(topic, 0) :]
            self._seen[topic] = self.log.end(topic)

    def _carry_out(self, effect: Effect, rng: random.Random, shares: FailureShares) -> None:
        regrouping, chance = self.regrouping, rng.random()
        fails, silent = chance < shares[0], chance < sum(shares)
        match effect:
            case Announce(broker, spans) | Close(broker, spans):
                written = list(spans.items())
                for client, of in written[: rng.randint(0, len(written))] if fails else written:
                    self.log.append(write_spans(self.deployment.config.topics, broker, client, of))
                if not silent:
                    (regrouping.announced if isinstance(effect, Announce) else regrouping.closed)()
            case Switch(broker, assignment, _):
                if not fails:
                    self.deployment.assignments[broker] = assignment
                if not silent:
                    regrouping.switched(self.deployment.now_s)
            case Prepare(_, topics, lanes) if not fails:
                places = [(topic, p) for topic in topics for p in range(lanes)]
                regrouping.prepared({place: self._end(place) for place in places})
            case Measure(_, partitions) if not fails:
                regrouping.measured({place: (0, self._end(place)) for place in partitions})

    def _end(self, place: tuple[str, int]) -> int:
        return self.log.end(self.log.lane(*place))

    def check_rest(self) -> None:
        """At rest exactly the readers of what routing was handed have open spans."""
        self.regrouping.check()
        config, hosts = self.deployment.config, self.deployment.hosts
        found = {
            (broker, client, span.topic, span.partition)
            for (broker, client), spans in told(self.log, config).items()
            for span in spans
            if span.end is None and broker in hosts
        }
        needed = {
            (broker, client, topic, lane)
            for broker, assignment in self.deployment.assignments.items()
            for topic, clients in assignment.topics(config.topics, broker).items()
            for client in clients
            for lane in range(assignment.lanes)
        }
        assert found == needed, f"spans at rest: {sorted(found ^ needed)}"


def told(log: Log, config: Config) -> dict[tuple[str, str], list[Span]]:
    """By broker and client: the spans that the topic `groups` tells."""
    spans = {read_reader(record): read_spans(record) for record in log.topics[config.topics.groups]}
    return {reader: of for reader, of in spans.items() if of}


def judge_spans(log: Log, config: Config, before: Mapping[str, int]) -> int:
    """Whoever is named in a shared topic, from these places on, reads it there; return how often anybody is."""
    reading: dict[str, Spans] = {}
    for (broker, client), spans in told(log, config).items():
        reading.setdefault(client, Spans()).replace(broker, spans)
    named = 0
    shared = tuple(f"{config.topics.prefix}.{kind}." for kind in ("group", "broadcast", "set"))
    for topic in [topic for topic in log.topics if topic.startswith(shared)]:
        for offset in range(before.get(topic, 0), log.end(topic)):
            record = log.topics[topic][offset]
            header = dict(record.headers)["hilcast_members"]
            sets = {config.security.sets.get(client) for client in read_members(header or b"")}
            assert len(sets) == 1, f"clients of several sets are named at {topic} {offset}: {sets}"
            for client in read_members(header or b""):
                place = (record.topic, record.partition)
                reads = client in reading and reading[client].next(place, offset) == offset
                assert reads, f"outside its spans: {client} is named at {topic} {offset}"
                named += 1
    return named
