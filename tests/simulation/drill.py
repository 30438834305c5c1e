"""Perform a scenario and judge everything: the simulator's one entry.

    report = run(draw(seed, workload), workload, holds)       or Failure, which says where and prints what to replay

Between any two writes the watch looks at every part that comes into force. In the middle of everything events are
published, good and bad, routed by the real door while route batches crash and are replayed, and judged by all states a
key may be in; what each slice leads to is judged on its own (`slices.py`). At each rest deliveries equal flooding,
every input has its answer, and the insides agree (`invariants.py`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import msgspec

from state.config import Config, Topics
from state.control import protocol, streams
from state.control.protocol import Change, Expire, Forget, Message, Resync, encode
from state.keys import Key, home_key
from state.messages import Output, Record
from state.plain_events import beside_of, plain_event
from state.space.event_type import EventType
from state.space.places import placed
from state.space.points import rank_spans, ranks
from tests.simulation.avro_events import encoded
from tests.simulation.invariants import Inside, Stream, examined
from tests.simulation.keeper import judge_spans
from tests.simulation.ledger import Answer, Expected, Holds, Ledger, Live, Name
from tests.simulation.scenario import (
    LOSSY,
    Action,
    Begin,
    Compact,
    Fence,
    Lapse,
    LapseAll,
    LoseIndex,
    LoseMessage,
    Nonsense,
    Publish,
    Register,
    Regroup,
    Renew,
    Rest,
    Restart,
    Scenario,
    Step,
    Withdraw,
    Workload,
    Zombie,
)
from tests.simulation.slices import Slices
from tests.simulation.watch import Probe, Watch
from tests.simulation.wire import NOBODY, Event, Outcome
from tests.simulation.witness import boxes_of, witness
from tests.simulation.world import SimulatedDeployment, World

PROBES_MAX = 12
PARTS_MIXED_MAX = 200
"""Worlds of more parts are not routed with mixtures of versions: the watch looks at those for all sizes."""
BLURRED_SHARE = 0.3
BAD_SHARE, STRUCTURED_SHARE, SOURCE_SHARE = 0.08, 0.15, 0.15
"""Of publications: those that cannot be used, those in structured mode, those of a producer that knows no events."""


class Failure(AssertionError):
    """Something was missing, wrong or inconsistent; `number` is the place of the action in the scenario."""

    def __init__(self, scenario: Scenario, number: int, why: str) -> None:
        super().__init__(f"seed {scenario.seed}, action {number}: {why}")
        self.scenario = scenario
        self.number = number
        self.why = why

    @property
    def kind(self) -> str:
        """What went wrong, without the particulars: the same for a shorter scenario with the same fault."""
        return self.why.partition(":")[0]


@dataclass
class Report:
    """What a run did, in figures."""

    figures: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return ", ".join(f"{n:,} {name}" for name, n in sorted(self.figures.items()))


def run(scenario: Scenario, workload: Workload, holds: Holds) -> Report:
    """Perform a scenario; `holds(type, filter, event)` is the judge's own reading of filters.

    Guarantee: the same scenario does the same in every process. Raises Failure.
    """
    with _messages_of(scenario.message_bytes):
        drill = Drill(scenario, workload, holds)
        for number, action in enumerate(scenario.actions):
            try:
                drill.do(action)
            except AssertionError as error:
                raise Failure(scenario, number, str(error)) from error
            except Exception as error:
                raise Failure(scenario, number, f"{type(error).__name__}: {error}") from error
    return drill.report


def shortened(scenario: Scenario, fails: Callable[[Scenario], bool], runs: int = 400) -> Scenario:
    """Leave out what a failing scenario does not need: halves first, then smaller pieces, at most `runs` tries."""
    actions = list(scenario.actions)
    piece = max(1, len(actions) // 2)
    while piece and runs > 0:
        start, found = 0, False
        while start < len(actions) and runs > 0:
            fewer = actions[:start] + actions[start + piece :]
            runs -= 1
            if fails(scenario.with_actions(tuple(fewer))):
                actions, found = fewer, True
            else:
                start += piece
        piece = piece if found and piece == 1 else piece // 2
    return scenario.with_actions(tuple(actions))


@contextmanager
def _messages_of(size: int) -> Iterator[None]:
    """Cut control messages at this length, so that small worlds have messages of several pieces."""
    before = streams.MESSAGE_BYTES_MAX
    streams.MESSAGE_BYTES_MAX = size
    try:
        yield
    finally:
        streams.MESSAGE_BYTES_MAX = before


class Drill:
    """A scenario under way."""

    def __init__(self, scenario: Scenario, workload: Workload, holds: Holds) -> None:
        self.scenario = scenario
        self.configs = scenario.configs()
        self.variant = 0
        self.world = World(self.configs[0], scenario.hosting)
        self.ledger = Ledger(holds)
        self.watch = Watch(self.world)
        self.world.watch = self.watch
        self.slices = Slices()
        self.world.slices = self.slices
        self.report = Report()
        self.answers: dict[tuple[str, int], Answer] = {}
        self.overtaken: set[tuple[str, int]] = set()
        self.letters: dict[tuple[str, int, int], str] = {}
        self.due: dict[tuple[bool, Name], int] = {}
        """Versions whose time to live has passed."""
        self.lost: dict[tuple[str, str], int] = {}
        """Streams of which a message was lost since the last rest, and its offset."""
        self.sources = {name: workload.events(t, scenario.seed) for name, t in self.types.items()}
        self.published = 0
        self.spans_judged: dict[str, int] = {}
        """How far each topic has been looked at for whom it names."""

    @property
    def config(self) -> Config:
        return self.configs[self.variant]

    @property
    def types(self) -> dict[str, EventType]:
        return self.config.types

    def do(self, action: Action) -> None:
        """Perform one action."""
        self.report.figures["actions"] += 1
        match action:
            case Register():
                self._register(action)
            case Withdraw():
                self._withdraw(action)
            case Lapse():
                self._lapse(action)
            case LapseAll():
                self._lapse_all()
            case Renew():
                self._renew(random.Random(action.seed))
            case Zombie():
                self._haunt(self._deployment(action.deployment), random.Random(action.seed))
            case Nonsense():
                self._nonsense(action)
            case Step():
                rng = random.Random(action.seed)
                self._deployment(action.deployment).step(rng, action.crash, whole=rng.random() < 0.3)
                self.report.figures["crashes" if action.crash else "batches"] += 1
            case Begin():
                self._begin(action)
            case Restart():
                self._deployment(action.deployment).restart(action.tables)
            case Regroup():
                rng = random.Random(action.seed)
                for _ in range(rng.randint(1, 6)):
                    self._regroup(self._deployment(action.deployment), rng)
            case LoseIndex():
                self._deployment(action.deployment).lose_index(random.Random(action.seed))
            case LoseMessage():
                self._lose_message(random.Random(action.seed))
            case Compact():
                self.world.log.compact(self.config.topics.registry)
                self.world.log.compact(self.config.topics.groups)
            case Publish():
                self._publish(random.Random(action.seed), action.n)
            case Fence():
                self._fence(action)
            case Rest():
                self._rest(action)

    def _deployment(self, number: int) -> SimulatedDeployment:
        return self.world.deployments[number]

    # ── clients ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _inbox(self, advertisement: bool, client: str) -> str:
        topics = self.config.topics
        if self.config.security.own:
            return topics.inbox("advertisements" if advertisement else "subscriptions", client)
        return topics.advertisements if advertisement else topics.subscriptions

    def _kept(self, name: Name, client: str) -> Name:
        """A name as the core keeps it: with inboxes of their own, clients have namespaces of their own."""
        broker, type_name, id = name
        return (broker, type_name, f"{client}:{id}") if self.config.security.own else name

    def _register(self, action: Register) -> None:
        given = {"ttl_ms": action.ttl_ms, "sink": action.sink, "version": action.version}
        owner = {"publisher" if action.advertisement else "client": action.owner} if action.named else {}
        value: dict[str, object] = {
            **owner,
            "filter": action.filter,
            **{name: what for name, what in given.items() if what is not None},
            **({"groups": True} if action.groups else {}),
        }
        record = self.world.send(self._inbox(action.advertisement, action.owner), "/".join(action.name), value)
        live = Live(action.owner, action.filter, action.sink, action.ttl_ms)
        name, most = self._kept(action.name, action.owner), self.config.limits.every.subscriptions
        if action.sink is not None and not self.config.grants(action.sink, action.owner):
            answer = Answer(frozenset({"refused"}), None, "sink-refused")
        else:
            answer = self.ledger.take(action.advertisement, name, live, action.version, most)
        self._answered(record, answer)

    def _answered(self, record: Record, answer: Answer) -> None:
        self.answers[record.topic, record.offset] = answer
        if answer.code is not None and answer.code != "stale-version":
            self.letters[record.place] = answer.code
            self.report.figures[f"refused {answer.code}"] += 1
        self._keep_probes()

    def _withdraw(self, action: Withdraw) -> None:
        topic, key = self._inbox(action.advertisement, action.owner), "/".join(action.name)
        record = self.world.send(topic, key, None, action.version)
        name = self._kept(action.name, action.owner)
        self._answered(record, self.ledger.take(action.advertisement, name, None, action.version))

    def _lapse(self, action: Lapse) -> None:
        name = self._kept(action.name, action.owner)
        version = self.ledger.expire(action.advertisement, name)
        if version is not None:
            self.due[action.advertisement, name] = version
            self._fire()
            self._keep_probes()

    def _lapse_all(self) -> None:
        """Every lease there is ends at the same moment."""
        for advertisement in (False, True):
            for name in list(self.ledger.accounts(advertisement)):
                version = self.ledger.expire(advertisement, name)
                if version is not None:
                    self.due[advertisement, name] = version
                    self.report.figures["leases lapsed together"] += 1
        self._fire()
        self._keep_probes()

    def _fire(self) -> int:
        """Tell homes what is due and, by the registry, still alive; the timers of the job do the same."""
        kinds = {False: "subscription", True: "advertisement"}
        alive = {(kind, *name): fact.version for kind, *name, fact in self.world.facts() if fact.live}
        late = [(ad, name) for (ad, name), version in self.due.items() if alive.get((kinds[ad], *name)) == version]
        for advertisement, name in late:
            self._tell_home(name, Expire(advertisement, name[2], self.due[advertisement, name]))
        return len(late)

    def _tell_home(self, name: Name, message: Message) -> None:
        broker, type_name, id = name
        key = home_key(broker, type_name, id, self.world.host(broker).config)
        self.world.log.append(Output(self.config.topics.control, str(key).encode(), encode(message)))

    def _nonsense(self, action: Nonsense) -> None:
        key = None if action.key is None else action.key.encode()
        topic = self._inbox(action.advertisement, action.owner)
        record = self.world.log.append(Output(topic, key, action.value.encode()))
        if action.code == "internal":
            self.world.quarantined.add(record.place)
        self._answered(record, Answer(frozenset({"refused"}), None, action.code))

    def _keep_probes(self) -> None:
        """Watch no longer over what was withdrawn, or replaced by something the event does not match."""
        self.watch.drop([probe for probe in self.watch.probes if self._stands(probe)])

    def _stands(self, probe: Probe) -> bool:
        asked = [self.ledger.subscriptions[probe.name]]
        if probe.advertisement is not None:
            asked.append(self.ledger.advertisements[probe.advertisement])
        states = [state for account in asked for state in account.states]
        owners = {state.owner for state in asked[-1].states if state is not None}
        same = probe.advertisement is None or len(owners) == 1
        return same and all(
            state is not None and self.ledger.holds(probe.name[1], state.filter, probe.event) for state in states
        )

    # ── faults ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, action: Begin) -> None:
        if action.variant is not None and action.variant < len(self.configs):
            self.variant = action.variant
        self._generation(self._deployment(action.deployment), random.Random(action.seed))

    def _generation(self, deployment: SimulatedDeployment, rng: random.Random) -> None:
        """Begin a generation with the newest configuration, while others go on."""
        on = {name for name, t in self.types.items() if t.advertisements}
        probes = [p for p in self.watch.probes if p.advertisement is not None or p.name[1] not in on]
        self.watch.drop(probes if self.config.overlay == deployment.config.overlay else [])
        others = [d for d in self.world.deployments if d is not deployment]

        def meanwhile() -> None:
            if others and rng.random() < 0.4:
                rng.choice(others).step(rng)

        if rng.random() < 0.5:
            deployment.succeed(self.config, rng, meanwhile)
            self.report.figures["successions"] += 1
        else:
            deployment.begin(self.config, rng, meanwhile)
        self._note_overtaken(deployment)
        self.report.figures["generations"] += 1

    def _haunt(self, deployment: SimulatedDeployment, rng: random.Random) -> None:
        """A driver that was followed and has not noticed: what it still writes must change nothing."""
        deployment.haunt(lambda: self._generation(deployment, rng), rng)
        self._note_overtaken(deployment)
        self.report.figures["zombies"] += 1

    def _renew(self, rng: random.Random) -> None:
        """The inboxes are made again, once all in them is answered; everybody begins a generation there."""
        if self.lost or self.config.security.own or len({d.config.fingerprint() for d in self.world.deployments}) > 1:
            return  # a message that is lost may be one that an answer waits for
        self._settle(rng)
        self._check_answers()
        topics, log = self.config.topics, self.world.log
        inboxes = (topics.subscriptions, topics.advertisements)
        for topic in inboxes:
            log.renew(topic)
        log.topics[topics.receipts], log.topics[topics.deadletter] = [], []
        self.answers, self.letters, self.overtaken, self.world.quarantined = {}, {}, set(), set()
        for deployment in self.world.deployments:
            deployment.renewed(inboxes)
            self._generation(deployment, rng)
        self.report.figures["inboxes made again"] += 1

    def _note_overtaken(self, deployment: SimulatedDeployment) -> None:
        """Inputs that are read again after a newer one of their key was registered: their answer may be lost."""
        ids = self.world.log.ids
        facts = [(name, fact) for _, *name, fact in self.world.facts() if fact.topic_id == ids[fact.topic]]
        newest = {(f.topic, f"{b}/{t}/{id.split(':')[-1]}"): f.offset for (b, t, id), f in facts}
        for topic in deployment.inboxes:
            for record in self.world.log.topics[topic][deployment.positions[topic] :]:
                if record.offset < newest.get((topic, (record.key or b"").decode()), -1):
                    self.overtaken.add((topic, record.offset))

    def _lose_message(self, rng: random.Random) -> None:
        """Lose a change or a request that its receiver has not read."""
        topic = self.config.topics.control
        candidates = []
        for deployment in self.world.deployments:
            first = (deployment.planned or deployment.positions)[topic]
            for record in self.world.log.topics[topic][first:]:
                broker = (record.key or b"").decode().split("/")[0]
                if broker in deployment.hosts and isinstance(protocol.decode(record.value or b""), Change | Resync):
                    candidates.append(record)
        if not candidates:
            return
        record = rng.choice(candidates)
        message, target = protocol.decode(record.value or b""), (record.key or b"").decode()
        assert isinstance(message, Change | Resync)
        stream = (message.source, target) if isinstance(message, Change) else (target, message.source)
        self.lost[stream] = record.offset
        self.world.log.lose(topic, record.offset)
        self.report.figures["lost messages"] += 1

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _event(
        self, rng: random.Random, type_name: str, broker: str | None = None, source: str | None = None
    ) -> tuple[Event, dict[str, object]]:
        """An event that somebody is likely to want, at any broker unless one is given."""
        event_type, base = self.types[type_name], self.sources[type_name]()
        wanted = [
            (name, state)
            for name, account in self.ledger.subscriptions.items()
            for state in account.states
            if name[1] == type_name and state is not None
        ]
        announced = [(name, live) for name, live in self.ledger.standing(advertisement=True) if name[1] == type_name]
        texts = [rng.choice(wanted)[1].filter] if wanted and rng.random() < 0.8 else []
        if broker is None or source is None:
            broker, source = rng.choice(self.config.overlay.brokers), f"p{rng.randint(0, 1)}"
            if announced and rng.random() < 0.8:
                (broker, _, _), live = rng.choice(announced)
                source = live.owner
                texts.append(live.filter)
        content = witness(boxes_of(texts, event_type), event_type, base, rng) or base
        if rng.random() < BLURRED_SHARE:
            content = _blurred(content, event_type, rng)
        self.published += 1
        event = Event(str(self.published), type_name, broker, msgspec.json.encode(content), source)
        plain = event_type.is_flat and event_type.format == "json"
        return (event, content) if plain else _put_in_place(event, content, event_type)

    def _publication(self, rng: random.Random) -> _Publication:
        """Something that is published: an event in any form, or something that looks like one."""
        topics, chance = self.config.topics, rng.random()
        if self.config.sources and chance < SOURCE_SHARE:
            plain = rng.choice(self.config.sources)
            event, content = self._event(rng, plain.type, plain.broker, f"kafka:{plain.topic}")
            return _Publication(event.plain(plain.topic), event, content)
        event, content = self._event(rng, rng.choice(list(self.types)))
        if chance > 1 - BAD_SHARE:
            return self._entering(_Publication(*_spoiled(event, topics, rng)), rng)
        structured = chance > 1 - BAD_SHARE - STRUCTURED_SHARE
        output = event.structured(topics) if structured else event.publication(topics)
        return self._entering(_Publication(output, event, content), rng)

    def _entering(self, publication: _Publication, rng: random.Random) -> _Publication:
        """The publication in its publisher's own topic, where there are such; or in another's, which is refused."""
        if not self.config.security.own:
            return publication
        source, output = publication.event.source or NOBODY, publication.output
        whose = "mallory" if publication.code is None and rng.random() < BAD_SHARE else source
        code = publication.code if whose == source else "not-yours"
        plain = publication.code is None and whose == source and dict(output.headers).get("ce_source")
        if plain and rng.random() < 0.3:
            output = replace(output, headers=tuple(h for h in output.headers if h[0] != "ce_source"))
        unsaid = dict(output.headers).get("ce_source", b"") == b"" and publication.code == "bad-event"
        if unsaid and "ce_specversion" in dict(output.headers):
            # a publisher that is known by its topic need not say its name: the event is as good as its value
            output, code = replace(output, value=b"{"), "bad-event"
        topic = self.config.topics.inbox("publications", whose)
        return replace(publication, output=replace(output, topic=topic), code=code)

    def _publish(self, rng: random.Random, n: int, at_rest: bool = False, fenced: bool = False) -> None:
        waiting = [d for d in self.world.deployments if d.missing()]
        if waiting and not at_rest:
            return  # routing waits for the index
        publications = [self._publication(rng) for _ in range(n)]
        parts = sum(len(d.index) for d in self.world.deployments)
        newest = at_rest or fenced or parts > PARTS_MIXED_MAX or rng.random() < 0.5
        posted = self.world.post([publication.output for publication in publications])
        repeated = self._route(rng, mixed=not newest, at_rest=at_rest)
        self._judge_spans()
        for publication, outcome in zip(publications, self.world.outcomes(posted), strict=True):
            self._judge_copies(outcome)
            if publication.code is not None:
                self._judge_bad(publication.code, outcome)
            else:
                self._judge(publication.event, publication.content, outcome, at_rest, repeated)

    def _route(self, rng: random.Random, mixed: bool, at_rest: bool) -> bool:
        """Route until nothing is on its way; batches may crash, and the index may change before they are replayed.

        Return whether any did.
        """
        faults, crashes = rng.random() < 0.3, 0
        sharing = random.Random(rng.getrandbits(32)) if self.config.distribution else None

        def batch(deployment: SimulatedDeployment) -> None:
            nonlocal crashes

            def meanwhile() -> None:
                if sharing is None:
                    return
                self._judge_spans()
                if not at_rest:
                    for _ in range(sharing.choice((0, 0, 0, 1, 2, 8))):
                        self._regroup(deployment, sharing)

            if faults and rng.random() < 0.4:
                deployment.route(rng, crash=True, mixed=mixed, meanwhile=meanwhile)
                crashes += 1
                if not at_rest and rng.random() < 0.3:
                    rng.choice(self.world.deployments).step(rng)
            deployment.route(rng, mixed=mixed, meanwhile=meanwhile)

        self.world.route(batch)
        self.report.figures["crashes of routing"] += crashes
        return crashes > 0

    def _judge_spans(self) -> None:
        """Whoever has been named since the last time reads there already: a driver that died now would not tell it."""
        log = self.world.log
        self.report.figures["copies by shared topics"] += judge_spans(log, self.config, self.spans_judged)
        self.spans_judged = {topic: log.end(topic) for topic in log.topics}

    def _regroup(self, deployment: SimulatedDeployment, rng: random.Random) -> None:
        deployment.keeper.tick(rng)
        self.report.figures["steps of regrouping"] += 1

    def _judge_copies(self, outcome: Outcome) -> None:
        """Whatever was repeated has the same id, and nobody has two."""
        ids = {(d.client, d.through, d.id) for d in outcome.deliveries}
        assert len(ids) == len({(client, through) for client, through, _ in ids}), f"delivery ids differ: {ids}"
        assert len(set(outcome.letters)) <= 1, f"refused in several ways: {outcome}"

    def _judge_bad(self, code: str, outcome: Outcome) -> None:
        shown = f"{outcome.record}"
        assert set(outcome.letters) == {code}, f"bad and not refused with {code}: {outcome.letters} for {shown}"
        assert not outcome.deliveries, f"bad and delivered: {shown}"
        assert not outcome.links, f"bad and forwarded: {shown}"
        self.letters[outcome.record.place] = code
        self.report.figures["bad events refused"] += 1

    def _judge(
        self, event: Event, content: Mapping[str, object], outcome: Outcome, at_rest: bool, repeated: bool
    ) -> None:
        expected = self.ledger.expected(event.type, event.broker, event.source, content, self._advertised(event.type))
        own = self.config.topics.deliver("")
        got = {
            (d.client, "" if d.destination.startswith(own) else d.destination, self._kept(("", "", id), d.client)[2])
            for d in outcome.deliveries
            for id in d.subscriptions
        }
        shown = f"{dict(content)} from {event.source} at {event.broker} ({event.type})"
        assert got <= expected.may, f"wrong: {shown} reached {sorted(got - expected.may)}"
        if outcome.refused:
            assert set(outcome.letters) == {"not-advertised"}, f"refused with {outcome.letters}: {shown}"
            self.letters[outcome.record.place] = "not-advertised"
            assert expected.admitted is not True, f"refused although advertised: {shown}"
            # a replay may find an advertisement that its first attempt did not
            undecided = repeated and expected.admitted is None
            assert not got or undecided, f"refused and delivered: {shown}"
        assert outcome.refused or expected.admitted is not False, f"not advertised and let in: {shown}"
        missing = [] if outcome.refused else [sorted(copies) for copies in expected.must if not copies & got]
        self._count(expected, len(got), len(missing), at_rest)
        if self._lossy(event.type):
            self.report.figures["copies lost by a lossy reduction"] += len(missing)
        else:
            assert not missing, f"missing: {shown} did not reach {missing}"

    def _count(self, expected: Expected, got: int, missing: int, at_rest: bool) -> None:
        self.report.figures["events compared at rest" if at_rest else "events compared in between"] += 1
        self.report.figures["copies"] += got
        self.report.figures["copies that had to come"] += len(expected.must) - missing

    def _advertised(self, type_name: str) -> bool | None:
        on = {d.config.types[type_name].advertisements for d in self.world.deployments}
        return on.pop() if len(on) == 1 else None

    def _lossy(self, type_name: str) -> bool:
        return any(d.config.types[type_name].reduction in LOSSY for d in self.world.deployments)

    # ── fence ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _fence(self, action: Fence) -> None:
        """Wait until what was sent is in force: from then on only what was sent later may be on its way."""
        alike = len({d.config.fingerprint() for d in self.world.deployments}) == 1
        if self.lost or not alike:
            return  # Kafka loses nothing, and a fence is for one configuration
        rng = random.Random(action.seed)
        sent = {key: n for key, n in self.ledger.mark().items() if key not in self.due}
        faults = rng.random() < 0.5

        def between(deployment: SimulatedDeployment, ends: Mapping[str, int]) -> None:
            chance = rng.random() if faults else 1.0
            if chance < 0.02:
                self._generation(deployment, rng)
            elif chance < 0.2:
                deployment.step(rng, crash=True)
            elif chance < 0.3:
                rng.choice(self.world.deployments).step(rng)
            else:
                deployment.step(rng, whole=True, until=ends)

        self.report.figures["rounds of fences"] += self.world.fence(between)
        self.ledger.fence(sent)
        for deployment in self.world.deployments:
            deployment.forget_versions()
        self.report.figures["fences"] += 1
        self._publish(rng, action.n, fenced=True)

    # ── rest ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _rest(self, action: Rest) -> None:
        rng = random.Random(action.seed)
        fingerprint = self.config.fingerprint()
        for deployment in self.world.deployments:
            if deployment.config.fingerprint() != fingerprint:
                self._generation(deployment, rng)
        self._settle(rng)
        self._recover(rng)
        inside = examined(self.world)
        self.report.figures["parts checked"] += len(inside.cubes)
        self.report.figures["filters told pruned"] += inside.pruned()
        self._check_answers()
        self.ledger.rest()
        self.due = {}
        for deployment in self.world.deployments:
            deployment.forget_versions()
        for deployment in self.world.deployments:
            deployment.keeper.tick()
        self._publish(rng, action.n, at_rest=True)
        self._check_spans()
        if action.forget:
            self._forget(rng)
        self.watch.stand(list(self._draw_probes(rng)))
        self.report.figures["rests"] += 1
        self.report.figures["looks between writes"] = self.watch.looks
        for what, n in self.slices.seen.items():
            self.report.figures[f"{what} judged"] = n

    def _check_spans(self) -> None:
        """After a batch spans that nobody needs are closed; whoever reads now finds all that ever named it."""
        for deployment in self.world.deployments:
            deployment.keeper.tick()
        self.world.log.now_ms += 1
        for deployment in self.world.deployments:
            deployment.route()
            deployment.keeper.tick()
            deployment.keeper.check_rest()
        judge_spans(self.world.log, self.config, {})

    def _settle(self, rng: random.Random) -> None:
        for deployment in self.world.deployments:
            deployment.ask_for_index()
        self.report.figures["rounds to rest"] += self.world.settle(rng=rng)
        while self._fire():
            self.report.figures["rounds to rest"] += self.world.settle(rng=rng)

    def _recover(self, rng: random.Random) -> None:
        """Where the very last message of a stream was lost nobody can know; a new generation brings everything."""
        if not self.lost:
            return
        inside = Inside(self.world)
        cut = [s for s in inside.streams() if s.sent != s.received and (s.source, s.target) in self.lost]
        for stream in cut:  # all of them before any recovers: that writes to others, who have not read it yet
            late = self._came_later(stream, self.lost[stream.source, stream.target])
            assert not late, f"gap: a message was lost, later ones came, and nobody asked for it: {stream}"
        for stream in cut:
            host = self.world.host(Key.parse(stream.target).broker)
            if host.generation == inside.contexts[host.name].generation:
                self._generation(host, rng)
        self._settle(rng)
        self.lost = {}

    def _came_later(self, stream: Stream, offset: int) -> bool:
        """Whether something that the receiver does not have came after a lost message, so that it saw the gap."""
        for record in self.world.log.topics[self.config.topics.control][offset + 1 :]:
            if record.key != stream.target.encode():
                continue
            message = protocol.decode(record.value or b"")
            if not isinstance(message, Change) or message.source != stream.source:
                continue
            if (message.generation, message.sequence) > stream.received:
                return True
        return False

    def _check_answers(self) -> None:
        """Every input has its receipt; what was refused for good has its dead letter, and nothing else has one."""
        log, topics = self.world.log, self.config.topics
        answered = set()
        receipts = [r for topic in list(log.topics) if topic.startswith(topics.receipts) for r in log.topics[topic]]
        for record in receipts:
            said = msgspec.json.decode(record.value or b"")
            place = (said["topic"], said["offset"])
            if said["kind"] == "expired" and self.report.figures["inboxes made again"]:
                continue  # it may tell of the end of something whose place was in an inbox that is gone
            answer = self.answers[place]
            to = record.topic.removeprefix(f"{topics.receipts}.") if self.config.security.own else None
            assert to is None or said["topic"].endswith(f".{to}"), f"answered to another: {said} in {record.topic}"
            if said["kind"] == "expired" and answer.kinds == {"accepted", "replaced"}:
                continue  # tells of its end, and answers nothing
            shown = f"answered wrongly: {place} with {said}, not {answer}"
            kinds = answer.kinds | ({"withdrawn", "accepted", "expired"} if place in self.overtaken else set())
            assert said["kind"] in kinds, shown
            assert said["code"] == answer.code, shown
            assert said["version"] == answer.version, shown
            answered.add(place)
        silent = sorted(set(self.answers) - answered - self.overtaken)
        assert not silent, f"not answered: {silent[:5]}"
        letters = {}
        for record in log.topics[topics.deadletter]:
            headers = dict(record.headers)
            topic, *numbers = (headers[f"hilcast_{name}"] or b"" for name in ("topic", "partition", "offset"))
            place = (topic.decode(), *map(int, numbers))
            letters[place] = (headers["hilcast_code"] or b"").decode()
        assert letters == self.letters, f"dead letters: {letters}, not {self.letters}"
        self.report.figures["inputs answered"] += len(answered)

    def _forget(self, rng: random.Random) -> None:
        """Drop some tombstones, as after their stated time."""
        for advertisement in (False, True):
            for name in list(self.ledger.accounts(advertisement)):
                version = self.ledger.forget(advertisement, name) if rng.random() < 0.3 else None
                if version is not None:
                    self._tell_home(name, Forget(advertisement, name[2], version))
        self._settle(rng)
        for deployment in self.world.deployments:
            deployment.commit()  # tombstones live for days

    def _draw_probes(self, rng: random.Random) -> Iterator[Probe]:
        standing = [(name, live) for name, live in self.ledger.standing() if not self._lossy(name[1])]
        rng.shuffle(standing)
        announced = list(self.ledger.standing(advertisement=True))
        for name, live in standing[:PROBES_MAX]:
            event_type = self.types[name[1]]
            needs = event_type.advertisements
            choices = [(n, ad) for n, ad in announced if n[1] == name[1]] if needs else [(None, None)]
            if not choices:
                continue
            ad_name, ad = rng.choice(choices)
            texts = [live.filter] if ad is None else [live.filter, ad.filter]
            event = witness(boxes_of(texts, event_type), event_type, self.sources[name[1]](), rng)
            if event is None or not all(self.ledger.holds(name[1], text, event) for text in texts):
                continue
            yield Probe(name, ad_name, event, ranks(event_type, event).reshape(1, -1), self._way(name[0], ad_name))

    def _way(self, home: str, advertisement: Name | None) -> dict[str, str | None]:
        """Where an event goes next on its way home, from every broker or from those on the way of its publisher."""
        overlay = self.config.overlay
        starts = overlay.brokers if advertisement is None else overlay.path(advertisement[0], home)
        return {b: None if b == home else overlay.path(b, home)[1] for b in starts}


@dataclass(frozen=True)
class _Publication:
    """What is sent, what it says, and the code that it must be refused with, if any."""

    output: Output
    event: Event
    content: Mapping[str, object]
    code: str | None = None


def _spoiled(event: Event, topics: Topics, rng: random.Random) -> tuple[Output, Event, dict[str, object], str]:
    """A publication that must be refused, and the code for it."""
    good, structured = event.publication(topics), event.structured(topics)
    dropped = rng.choice(good.headers[: len(event.attributes)])
    spoiled = (
        (replace(good, headers=tuple(h for h in good.headers if h != dropped)), "bad-event"),
        (replace(good, headers=tuple((n, b"" if n == dropped[0] else v) for n, v in good.headers)), "bad-event"),
        (replace(event, broker="nobody").publication(topics), "unknown-broker"),
        (replace(event, type="nothing").publication(topics), "unknown-type"),
        (replace(good, value=rng.choice((b"{", b"[]", b"", None, b"null", b'"text"'))), "bad-event"),
        (replace(structured, value=rng.choice((b"{", b"[]", b"", None, b"{}"))), "bad-event"),
        (replace(event, value=b"[]").structured(topics), "bad-event"),
        (replace(event, broker="nobody").structured(topics), "unknown-broker"),
    )
    output, code = rng.choice(spoiled)
    return output, event, {}, code


def _put_in_place(
    event: Event, content: Mapping[str, object], event_type: EventType
) -> tuple[Event, dict[str, object]]:
    """The event with its attributes where the type has them, and what an independent reader finds there."""
    put = placed(event_type, content)
    value, beside = msgspec.json.encode(put.document), beside_of(event_type, put.headers, put.key)
    found = plain_event(event_type.written_in("json"), value, beside)
    assert found is not None, f"no event: {value!r}"
    other = None
    if event_type.own_schema is not None:
        other = encoded(event_type.own_schema.text, put.document)
        again = plain_event(event_type, other, beside)
        # a number that no integer of Avro holds is a double there, and no attribute holds either
        assert again is not None, f"no event: {other!r}"
        spans = [[part.tolist() for part in rank_spans(event_type, said)] for said in (found, again)]
        assert spans[0] == spans[1], f"in another format {found} is {again}"
    return replace(event, value=value, beside=None if event_type.is_flat else put, encoded=other), found


def _blurred(event: Mapping[str, object], event_type: EventType, rng: random.Random) -> dict[str, object]:
    """The event with some values as intervals, where the type allows it."""
    blurred = dict(event)
    for attribute in event_type.attributes:
        value = blurred.get(attribute.name)
        if attribute.imprecise and isinstance(value, int | float) and not isinstance(value, bool):
            blurred[attribute.name] = {"min": value, "max": value + rng.choice((0, 1, 3, 10))}
    return blurred
