"""A world for `Regrouping`: logs of shared topics, route batches, a driver that dies; told step by step from a seed.

    client      subscribes, opts in and out
    driver      carries out one effect at a time; an effect may happen in part, or wholly without an answer; it dies and
                begins anew, perhaps with another configuration
    routing     batches one after the other, tasks that begin with what is handed over then; replays after a crash
    Kafka       deletes old messages; Redis loses assignments

Whatever a task could write, it may write here: any message that names readers of its assignment.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from producers.client.membership import Spans
from state.config import parse
from state.distribution.assignment import Assignment, shared_topic
from state.distribution.regrouping import Announce, Close, Measure, Prepare, Regrouping, Switch
from state.messages import Record, read_reader, read_spans, write_spans

TEXT = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = { kind = "int", min = 0, max = 3 }
"""
TABLES = {
    "b1": "[distribution.b1]\ngroups = 2\nregroup_s = 1\n",
    "b2": "[distribution.b2]\ngroups = 1\nbroadcast = 0.5\nregroup_s = 3\n",
}
CONFIGS = [parse(TEXT + TABLES["b1"] + TABLES["b2"]), parse(TEXT + TABLES["b1"]), parse(TEXT + TABLES["b2"])]
LANED = [parse(f"[settings]\npartitions = {n}\n{TEXT}{TABLES['b1']}{TABLES['b2']}") for n in (2, 3)]
TOPICS = CONFIGS[0].topics
CLIENTS = ("alice", "bob", "carol")


@dataclass(frozen=True)
class Registered:
    owner: str
    filter: str
    groups: bool
    live: bool = True


@dataclass
class Batch:
    """A route batch: when it began, and the assignments of its tasks that have begun and not ended."""

    began_s: float
    tasks: list[dict[str, Assignment]] = field(default_factory=list)


class Lost(Exception):
    """A client does not read what names it."""


class World:
    def __init__(self, seed, regrouping=Regrouping):
        self.rng, self.regrouping = random.Random(seed), regrouping
        self.now_s = 1000.0
        self.logs: dict[tuple[str, int], list[set[str]]] = {}
        """By partition of a shared topic: whom each message names."""
        self.lows: dict[tuple[str, int], int] = {}
        self.groups: list[Record] = []
        self.redis: dict[str, bytes] = {}
        self.facts: dict[tuple, Registered] = {}
        self.batch: Batch | None = None
        self.reported: list[float] = []
        """Beginnings of ended batches that the driver has not heard of."""
        self.messages = self.closes = 0
        self.begin()

    # ── lives of the driver ─────────────────────────────────────────────────────────────────────────────────────

    def begin(self):
        """A new life: what it knows is in the topics."""
        self.config = self.rng.choice(CONFIGS + LANED) if self.rng.random() < 0.5 else CONFIGS[0]
        told = {read_reader(record): read_spans(record) for record in self.groups}
        self.driver = self.regrouping(self.config, {reader: spans for reader, spans in told.items() if spans})
        for key, fact in self.facts.items():
            self.driver.follow(key, fact)
        self.began_s, self.batch, self.reported = None, None, []

    def drive(self):
        """The driver's tick, or the next effect of it."""
        due = self.driver.due(self.now_s)
        if due and self.rng.random() < 0.8:
            values = (b'{"x": %d}' % self.rng.randint(0, 3) for _ in range(self.rng.randint(0, 5)))
            headers = (("ce_type", b"t"),)
            self.driver.observe([Record(TOPICS.publications, 0, 0, 0, None, value, headers) for value in values])
            self.driver.look(self.now_s, {broker for broker in due if broker not in self.redis})
        if self.reported and self.rng.random() < 0.7:
            self.began_s = self.reported.pop(0)
        effect = self.driver.next(self.began_s)
        if effect is not None:
            self.carry_out(effect)
        self.driver.check()

    def carry_out(self, effect, chance=None):
        """Do it, unless it fails, wholly or in part, or is done without an answer."""
        chance = self.rng.random() if chance is None else chance
        if isinstance(effect, Announce | Close):
            told = list(effect.spans.items())
            whole = chance > 0.2
            for client, spans in told if whole else told[: self.rng.randint(0, len(told))]:
                output = write_spans(TOPICS, effect.broker, client, spans)
                at = len(self.groups)
                self.groups.append(Record(output.topic, 0, at, at, output.key, output.value))
            if whole and chance > 0.3:
                self.closes += isinstance(effect, Close)
                (self.driver.announced if isinstance(effect, Announce) else self.driver.closed)()
        elif isinstance(effect, Switch):
            if chance > 0.1:
                self.redis[effect.broker] = effect.assignment.encode()
            if chance > 0.25:
                self.driver.switched(self.now_s)
        elif isinstance(effect, Prepare):
            places = [(topic, lane) for topic in effect.topics for lane in range(effect.lanes)]
            for place in places:
                self.logs.setdefault(place, [])
                self.lows.setdefault(place, 0)
            if chance > 0.1:
                self.driver.prepared({place: len(self.logs[place]) for place in places})
        else:
            assert isinstance(effect, Measure)
            if chance > 0.1:
                self.driver.measured({place: (self.lows[place], len(self.logs[place])) for place in effect.partitions})

    # ── everybody else ──────────────────────────────────────────────────────────────────────────────────────────

    def tick(self):
        self.now_s += self.rng.random()

    def subscribe(self):
        key = ("subscription", self.rng.choice(["b1", "b2"]), "t", f"s{self.rng.randint(0, 4)}")
        if key in self.facts and self.rng.random() < 0.4:
            del self.facts[key]
        else:
            low = self.rng.randint(0, 3)
            text = f'"x BETWEEN {low} AND {self.rng.randint(low, 3)}"'
            self.facts[key] = Registered(self.rng.choice(CLIENTS), text, self.rng.random() < 0.8)
        self.driver.follow(key, self.facts.get(key))

    def route(self):
        """A batch begins, a task of it begins, a task writes and perhaps ends, or the batch ends."""
        if self.batch is None:
            self.batch = Batch(self.now_s)
            return
        tasks = self.batch.tasks
        chance = self.rng.random()
        if chance < 0.3:
            known = (broker for broker in self.redis if broker in self.config.distribution)
            tasks.append({broker: Assignment.decode(self.redis[broker]) for broker in known})
        elif chance < 0.7 and tasks:
            self.write(self.rng.choice(tasks))
        elif chance < 0.85 and tasks:
            tasks.pop(self.rng.randrange(len(tasks)))
        elif not tasks:
            self.reported.append(self.batch.began_s)
            self.batch = None

    def write(self, assignments):
        for broker, assignment in assignments.items():
            for number, readers in assignment.readers().items():
                if self.rng.random() < 0.3:
                    continue
                named = {client for client in readers if self.rng.random() < 0.7} or {readers[0]}
                place = shared_topic(TOPICS, broker, number), self.rng.randrange(assignment.lanes)
                self.logs[place].append(named)
                self.messages += 1
                self.judge(place, len(self.logs[place]) - 1, self.told())

    def forget(self):
        """Kafka deletes the oldest messages of a topic, or Redis loses an assignment."""
        if self.redis and self.rng.random() < 0.3:
            del self.redis[self.rng.choice(sorted(self.redis))]
        elif self.logs:
            place = self.rng.choice(sorted(self.logs))
            self.lows[place] = self.rng.randint(self.lows[place], len(self.logs[place]))

    def restart(self):
        """The job dies, at whatever step it is; a batch under way is begun again by the next life."""
        self.begin()

    def act(self):
        moves = [self.tick] * 4 + [self.drive] * 8 + [self.subscribe] * 2 + [self.route] * 10 + [self.forget, None]
        move = self.rng.choice(moves)
        if move is not None:
            move()
        elif self.rng.random() < 0.5:
            self.restart()

    # ── judging ─────────────────────────────────────────────────────────────────────────────────────────────────

    def told(self):
        """By client what it is told to read now."""
        found = {client: Spans() for client in CLIENTS}
        for record in self.groups:
            broker, client = read_reader(record)
            found[client].replace(broker, read_spans(record))
        return found

    def judge(self, place, offset, told):
        for client in self.logs[place][offset]:
            if told[client].next(place, offset) != offset:
                raise Lost(f"{client} is named at {place} {offset}, and does not read there")

    def judge_all(self):
        """Whoever reads now, however late, finds all that Kafka still holds of what names it."""
        told = self.told()
        for place, log in self.logs.items():
            for offset in range(self.lows[place], len(log)):
                self.judge(place, offset, told)

    def run(self, steps):
        for _ in range(steps):
            self.act()
        self.judge_all()
        return self

    def rest(self):
        """Nothing changes and nothing fails any more; batches go on, one after the other."""
        for _ in range(5):
            self.now_s += 3.0
            self.driver.look(self.now_s, self.driver.due(self.now_s))
            for began_s in (self.began_s, self.now_s + 1.0):
                while (effect := self.driver.next(began_s)) is not None:
                    self.carry_out(effect, chance=1.0)
            self.began_s, self.now_s = self.now_s + 1.0, self.now_s + 2.0
        self.judge_all()
