"""Which delivery topics are removed: never one that somebody may still read or be served by, whatever comes between.

The world of `Kafka` below is as naive as can be: topics that are lists, a fence that refuses. Everybody acts between
any two steps of everybody else; the oracle looks at what a removed topic held.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

from state.config import parse
from state.control.facts import Fact
from state.idle_topics import FENCED_MAX_MS, FOREIGN_MS, HOUR_MS, SETTLE_MS, Delivery, IdleTopics

TEXT = """
[settings]
idle_topic_hours = 200
tombstone_hours = 300
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = { kind = "int" }
"""
CONFIG = parse(TEXT)
SECOND = parse(f'[deployment]\nname = "second"\nhosts = ["b2"]\n{TEXT}')
NOW = 1000 * HOUR_MS


def fact(owner, live, at_h, expires_h=None, ended=None):
    return Fact(
        version=1, owner=owner, filter=None, ttl_ms=None, expires_ms=None if expires_h is None else expires_h * HOUR_MS,
        sink=None, content=b"", topic="t", partition=0, offset=0, timestamp_ms=at_h * HOUR_MS, live=live, ended=ended,
    )  # fmt: skip


def name(topic):
    return topic.removeprefix("hilcast.deliver.")


def test_only_what_nobody_can_need_is_due():
    """Live, dormant or ended a short time ago keeps a topic, whatever else its client had; only deliveries are ours."""
    facts = [
        fact("live", True, 1),
        fact("live", False, 1, ended="withdrawn"),
        fact("late", False, 801, ended="withdrawn"),
        fact("gone", False, 799, ended="withdrawn"),
        fact("lapsed", False, 1, expires_h=900, ended="expired"),
        fact("lapsed-long-ago", False, 1, expires_h=700, ended="expired"),
        fact("withdrawn-before-its-time", False, 1, expires_h=900, ended="withdrawn"),
    ]
    existing = {f"hilcast.deliver.{f.owner}" for f in facts} | {"hilcast.receipts.gone", "hilcast.subscriptions.gone"}
    due = IdleTopics().follow(CONFIG, existing, facts, NOW)
    assert {name(topic) for topic in due} == {"gone", "lapsed-long-ago", "withdrawn-before-its-time"}


def test_against_every_moment():
    """By Kafka's clock alone: a topic is due exactly when the stated hours have passed since the last end."""
    for ended, now in product(range(0, 500, 50), range(0, 1000, 50)):
        facts = [fact("c", False, ended, ended="withdrawn")]
        found = IdleTopics().follow(CONFIG, ["hilcast.deliver.c"], facts, now * HOUR_MS)
        assert bool(found) == (now - ended >= 200)


def test_of_whom_nothing_is_known_the_time_counts_from_when_he_was_seen_first():
    """A client that was only just added has its topic for the stated time, over restarts and lost notes, too."""
    topic = "hilcast.deliver.new"
    first = IdleTopics()
    assert first.follow(CONFIG, [topic], [], NOW) == []
    later = IdleTopics(first.since)
    assert later.follow(CONFIG, [topic], [], NOW + 199 * HOUR_MS) == []
    assert later.follow(CONFIG, [topic], [fact("new", True, 1)], NOW + 200 * HOUR_MS) == []
    assert later.follow(CONFIG, [topic], [], NOW + 201 * HOUR_MS) == [], "it held something: the time counts anew"
    assert IdleTopics(first.since).follow(CONFIG, [topic], [], NOW + 200 * HOUR_MS) == [topic]
    assert IdleTopics().follow(CONFIG, [topic], [], NOW + 200 * HOUR_MS) == []


def test_only_one_deployment_removes():
    """The one that hosts the first broker of the overlay, where it is told to at all."""
    topic, facts = "hilcast.deliver.c", [fact("c", False, 1, ended="withdrawn")]
    assert IdleTopics().follow(CONFIG, [topic], facts, NOW) == [topic]
    assert IdleTopics().follow(SECOND, [topic], facts, NOW) == []
    assert IdleTopics().follow(parse(TEXT.replace("idle_topic_hours = 200", "")), [topic], facts, NOW) == []


# ── what comes between ──────────────────────────────────────────────────────────────────────────────────────────────


class Kafka:
    """Topics, by name: their messages as (time, number), and whether they are fenced."""

    def __init__(self):
        self.now_ms = NOW
        self.topics: dict[str, list[tuple[int, int]]] = {}
        self.fenced: set[str] = set()
        self.taken = 0

    def expire(self, retention_ms):
        for messages in self.topics.values():
            messages[:] = [(at, n) for at, n in messages if self.now_ms - at < retention_ms]

    def write(self, topic):
        """True if it was taken; a writer that is refused tries again."""
        if topic not in self.topics or topic in self.fenced:
            return False
        self.taken += 1
        self.topics[topic].append((self.now_ms, self.taken))
        return True

    def remove(self, topic):
        lost = self.topics.pop(topic)
        self.fenced.discard(topic)
        assert not lost, "the oracle: a message was there that nobody had time to read"


class Driver:
    """Looks in steps, between which anything may happen; may stop for good between any two."""

    def __init__(self, kafka, registry, config, since=None):
        self.kafka, self.registry, self.config = kafka, registry, config
        self.idle = IdleTopics(since)
        self.first = True

    def look(self):
        kafka, idle = self.kafka, self.idle
        facts, now, existing = list(self.registry.values()), kafka.now_ms, set(kafka.topics)
        yield
        if self.first:
            idle.found(set(kafka.fenced), now)
            self.first = False
        due = idle.follow(self.config, existing, facts, now)
        fenced = {topic for topic in due if topic in kafka.fenced}
        yield
        seen = {t: Delivery(not kafka.topics.get(t), t in fenced) for t in due}
        steps = idle.steps(self.config, seen, now)
        yield
        for topic in steps.lift:
            kafka.fenced.discard(topic)
        if kafka.now_ms - now < FENCED_MAX_MS:
            for topic in steps.remove:
                if topic in kafka.topics:
                    kafka.remove(topic)
        yield
        kafka.fenced |= {topic for topic in steps.fence if topic in kafka.topics}
        idle.made(steps.fence, kafka.now_ms)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_that_was_taken_in_is_ever_removed(seed):
    """Clients subscribe, are served late or early, and leave; drivers look, stand still, end and begin anew; another
    deployment delivers without having heard of anything. No message goes before its retention, and all topics that
    nobody uses go in the end.
    """
    draw = random.Random(seed)
    kafka, registry, retention = Kafka(), {}, 30 * HOUR_MS
    clients = [f"c{i}" for i in range(4)]
    drivers = [Driver(kafka, registry, CONFIG), Driver(kafka, registry, SECOND)]
    looks = [iter(()), iter(())]
    waiting: list[str] = []
    removed = fenced = 0
    for _ in range(4000):
        kafka.now_ms += draw.choice([1, 1_000, 5_000, 5_000, 5_000, 40_000, 70_000, 20 * HOUR_MS])
        kafka.expire(retention)
        topic = f"hilcast.deliver.{draw.choice(clients)}"
        action = draw.random()
        if action < 0.02:  # subscribed: the fact may come later than the first delivery
            kafka.topics.setdefault(topic, [])
            waiting.append(topic)
            if draw.random() < 0.8:
                registry[topic] = fact(name(topic), True, kafka.now_ms / HOUR_MS)
        elif action < 0.07 and topic in registry:
            registry[topic] = fact(name(topic), False, kafka.now_ms / HOUR_MS, ended="withdrawn")
            if draw.random() < 0.3:
                del registry[topic]
        elif action < 0.10:
            waiting.append(topic)
        elif action < 0.12:
            which = draw.randrange(2)
            kept = drivers[which].idle.since if draw.random() < 0.8 else None
            drivers[which] = Driver(kafka, registry, drivers[which].config, kept)
            looks[which] = iter(())
        for topic in draw.sample(waiting, len(waiting)):
            for known, one in registry.items():  # whoever holds something has his topic made again
                if one.live:
                    kafka.topics.setdefault(known, [])
            if kafka.write(topic) or topic not in kafka.topics:
                waiting.remove(topic)
        before, fences = set(kafka.topics), set(kafka.fenced)
        for which in draw.sample([0, 1], 2):
            for _ in range(draw.randrange(6)):
                if next(looks[which], "done") == "done":
                    looks[which] = drivers[which].look()
        removed += len(before - set(kafka.topics))
        fenced += len(kafka.fenced - fences)
    for topic in list(registry):
        registry[topic] = fact(name(topic), False, kafka.now_ms / HOUR_MS, ended="withdrawn")
    for _ in range(4 * 100):
        kafka.now_ms += HOUR_MS if kafka.fenced == set() else 2 * SETTLE_MS
        kafka.expire(retention)
        for _ in drivers[0].look():
            pass
    assert kafka.topics == {}
    assert removed
    assert fenced > removed, "some fences were lifted again"


def test_a_fence_is_lifted_for_who_comes_back_and_for_what_came_before_it():
    """Both by the next look of its maker; who finds one that is not his waits, for its maker may be about to remove."""
    topic, gone = "hilcast.deliver.c", [fact("c", False, 1, ended="withdrawn")]

    def looked(idle, facts, delivery, now_ms, config=CONFIG):
        idle.follow(config, [topic], facts, now_ms)
        return idle.steps(config, {topic: delivery}, now_ms)

    idle = IdleTopics()
    assert looked(idle, gone, Delivery(True, False), NOW).fence == [topic]
    idle.made([topic], NOW + 1)
    assert looked(idle, gone, Delivery(True, True), NOW + SETTLE_MS) == ([], [], []), "not every node may know"
    assert looked(idle, gone, Delivery(True, True), NOW + 1 + SETTLE_MS).remove == [topic]
    assert looked(idle, gone, Delivery(False, True), NOW + 1 + SETTLE_MS).lift == [topic]
    assert looked(idle, [fact("c", True, 1)], Delivery(True, True), NOW + 1 + SETTLE_MS).lift == [topic]
    assert looked(idle, gone, Delivery(True, True), NOW + 2 + FENCED_MAX_MS).lift == [topic], "too late to be sure"
    other = IdleTopics()
    held = [fact("c", True, 1)]
    assert looked(other, held, Delivery(True, True), NOW, SECOND) == ([], [], [])
    assert looked(other, held, Delivery(True, True), NOW + FOREIGN_MS, SECOND).lift == [topic]
