"""The order of announce, switch and close: nothing is lost by any crash, and every step of it is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import Source
from state.distribution.assignment import Assignment, shared_topic
from state.distribution.regrouping import Announce, Close, Measure, Prepare, Regrouping, Switch, _by_client
from state.messages import Record, Span
from tests.distribution.regroupings import CONFIGS, TOPICS, Lost, Registered, World

SEEDS = 100
"""Within so many seeds every mutant must have been found out."""


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 400))
def test_a_message_that_names_a_client_lies_in_its_spans(seed, steps):
    """When it is written and whenever it is read later: through regroupings, crashes between and within effects,
    answers that were lost, replays, another configuration, deleted messages and an emptied Redis.
    """
    World(seed).run(steps)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 300))
def test_at_rest_nobody_reads_what_it_need_not(seed, steps):
    """Once nothing changes, open are exactly the spans of the readers of what routing was handed."""
    world = World(seed).run(steps)
    world.rest()
    for broker in world.redis:
        assignment = Assignment.decode(world.redis[broker])
        needed = {
            (client, shared_topic(TOPICS, broker, number), lane)
            for number, clients in assignment.readers().items()
            for client in clients
            for lane in range(assignment.lanes)
        }
        spans = {(c, span) for (b, c), of in world.driver.spans.items() if b == broker for span in of}
        assert {(client, span.topic, span.partition) for client, span in spans if span.end is None} == needed
        assert broker in world.config.distribution or not needed


def test_the_world_reaches_everything():
    """The drive writes messages, closes spans and ends some of them: it does not pass by doing nothing."""
    worlds = [World(seed).run(400) for seed in range(20)]
    assert sum(world.messages for world in worlds) > 500
    assert sum(world.closes for world in worlds) > 20


# ── what if ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class SwitchFirst(Regrouping):
    """Hands the assignment over before its spans are announced."""

    def prepared(self, ends):
        super().prepared(ends)
        if isinstance(self._effect, Announce):
            self._later, self._effect = self._effect, self._brokers[self._effect.broker].coming

    def switched(self, at_s):
        later, self._later = getattr(self, "_later", None), None
        if later is not None:
            self._effect, self._switch = later, self._effect
            self._at = at_s
        else:
            super().switched(at_s)

    def announced(self):
        self._keep(self._answered(Announce))
        self._effect = self._switch
        super().switched(self._at)


class CloseAtOnce(Regrouping):
    """Waits for no batch."""

    def next(self, route_began_s):
        return super().next(float("inf"))


class CloseAfterAnyBatch(Regrouping):
    """Takes the end of any batch for the end of one that began after the switch."""

    def next(self, route_began_s):
        return super().next(None if route_began_s is None else float("inf"))


class ForgetSpans(Regrouping):
    """A new life that does not know what clients were told."""

    def __init__(self, config, spans):
        super().__init__(config, {})


class LeaveWithoutSwitch(Regrouping):
    """Closes the spans of a broker that has groups no more, and leaves its assignment where routing finds it."""

    def __init__(self, config, spans):
        super().__init__(config, spans)
        for state in self._brokers.values():
            if state.groups is None:
                state.outdated, state.switched_s = False, 0.0


class BeginLate(Regrouping):
    """Begins spans behind the next message."""

    def prepared(self, ends):
        super().prepared({topic: end + 1 for topic, end in ends.items()})


class EndEarly(Regrouping):
    """Ends spans before the last message."""

    def measured(self, offsets):
        super().measured({topic: (low, max(low, end - 1)) for topic, (low, end) in offsets.items()})


class CloseWhatIsServed(Regrouping):
    """Takes the readers of the switch before for those of now."""

    def switched(self, at_s):
        state = self._brokers[self._effect.broker]
        before = state.served
        super().switched(at_s)
        state.served = before


@pytest.mark.parametrize(
    "mutant",
    [
        SwitchFirst, CloseAtOnce, CloseAfterAnyBatch, ForgetSpans, LeaveWithoutSwitch, BeginLate, EndEarly,
        CloseWhatIsServed,
    ],
)  # fmt: skip
def test_every_step_is_needed(mutant):
    """Without it a client is named where it does not read, in some world."""

    def loses(seed):
        try:
            World(seed, mutant).run(400)
        except Lost:
            return True
        return False

    assert any(loses(seed) for seed in range(SEEDS))


# ── the steps, one by one ───────────────────────────────────────────────────────────────────────────────────────────

B1 = TOPICS.group("b1", 0)
KEY = ("subscription", "b1", "t", "s1")


def changed(spans=None, client="alice", config=CONFIGS[1]):
    """A life of b1 in which a client opts in."""
    regrouping = Regrouping(config, spans or {})
    regrouping.follow(KEY, Registered(client, '"x <= 3"', True))
    regrouping.look(0.0, ())
    return regrouping


def test_the_effects_come_in_their_order():
    """Topics, spans that begin at their ends, lane by lane; the switch; later ends, after a batch that began behind the
    switch."""
    regrouping = changed(config=replace(CONFIGS[1], settings=replace(CONFIGS[1].settings, partitions=2)))
    effect = regrouping.next(None)
    assert effect == Prepare("b1", tuple(sorted(regrouping.topics())), 2)
    assert regrouping.next(None) is effect, "the same until it is answered"
    places = [(topic, lane) for topic in effect.topics for lane in range(2)]
    ends = {place: 7 + i for i, place in enumerate(places)}
    regrouping.prepared(ends)
    spans = tuple(Span(topic, end, partition=lane) for (topic, lane), end in ends.items())
    assert regrouping.next(None) == Announce("b1", {"alice": spans})
    regrouping.announced()
    effect = regrouping.next(None)
    assert isinstance(effect, Switch)
    assert _by_client(effect) == {"alice": frozenset(ends)}
    regrouping.switched(50.0)
    assert regrouping.next(99.0) is None, "nothing to close"
    regrouping.follow(KEY, None)
    regrouping.look(1.0, ())
    effect = regrouping.next(99.0)
    assert effect == Switch("b1", effect.assignment, {})
    regrouping.switched(100.0)
    for began_s in (None, 99.0, 100.0):
        assert regrouping.next(began_s) is None, "it may have begun before the switch"
    assert regrouping.next(100.1) == Measure("b1", tuple(sorted(ends)))
    regrouping.measured({place: (0, end + 2) for place, end in ends.items()})
    ended = tuple(Span(topic, end, end + 2, lane) for (topic, lane), end in ends.items())
    assert regrouping.next(100.1) == Close("b1", {"alice": ended})
    regrouping.closed()
    assert regrouping.next(100.1) is None
    assert regrouping.spans == {("b1", "alice"): ended}


def test_a_life_begins_with_a_switch_of_every_broker():
    """Of brokers with groups, though nobody opted in; of brokers that have none any more, to nobody; not of others."""
    spans = {("b1", "bob"): [Span(B1, 3)], ("b2", "bob"): [Span(TOPICS.group("b2", 0), 1)], ("b9", "x"): [Span("g", 0)]}
    regrouping = Regrouping(CONFIGS[1], spans)
    assert regrouping.due(0.0) == ["b1"]
    regrouping.look(0.0, ())
    found = []
    while (effect := regrouping.next(None)) is not None:
        assert isinstance(effect, Switch)
        assert effect.assignment.readers() == {}
        found.append(effect.broker)
        regrouping.switched(1.0)
    assert found == ["b1", "b2"]
    assert regrouping.next(2.0) == Measure("b1", ((B1, 0),))


def test_held_spans_are_not_announced_again():
    """A client that has an open span gets none beside it, and a closed one is kept for as long as it holds messages."""
    held = {("b1", "alice"): [Span(B1, 1, 4), Span(B1, 9), Span(TOPICS.group("b1", 1), 2)]}
    regrouping = changed(held)
    effect = regrouping.next(None)
    regrouping.prepared({(topic, 0): 20 for topic in effect.topics})
    assert isinstance(regrouping.next(None), Switch)
    regrouping.switched(1.0)
    assert regrouping.next(2.0).partitions[0] == (B1, 0)
    regrouping.measured({(B1, 0): (4, 20), (TOPICS.group("b1", 1), 0): (0, 20)})
    assert regrouping.next(2.0).spans["alice"][0] == Span(B1, 9)


def test_an_effect_without_answer_comes_again_before_anything_else():
    """A switch that may have happened is neither given up nor overtaken: not by facts, not by a close that was due."""
    regrouping = changed()
    regrouping.prepared({(topic, 0): 0 for topic in regrouping.next(None).topics})
    regrouping.announced()
    regrouping.next(None)
    regrouping.switched(10.0)
    regrouping.follow(KEY, Registered("bob", '"x <= 3"', True))
    regrouping.look(1.0, ())
    regrouping.prepared({(topic, 0): 5 for topic in regrouping.next(20.0).topics})
    announce = regrouping.next(20.0)
    regrouping.follow(KEY, None)
    regrouping.look(2.0, ())
    assert regrouping.next(20.0) is announce
    regrouping.announced()
    switch = regrouping.next(20.0)
    assert set(_by_client(switch)) == {"bob"}
    assert regrouping.next(30.0) is switch
    with pytest.raises(AssertionError):
        regrouping.closed()


def test_spans_of_a_topic_that_does_not_exist_stay():
    """What Kafka says nothing of is not judged: a span may be too long, and never too short."""
    held = {("b1", "bob"): [Span(B1, 1, 4), Span(B1, 9)]}
    regrouping = Regrouping(CONFIGS[1], held)
    regrouping.look(0.0, ())
    regrouping.next(None)
    regrouping.switched(1.0)
    assert isinstance(regrouping.next(2.0), Measure)
    regrouping.measured({})
    assert regrouping.next(2.0) is None
    assert regrouping.spans == {("b1", "bob"): tuple(held["b1", "bob"])}


def test_looking_has_its_pace_and_what_is_lost_is_handed_over_again():
    """A broker is due every `regroup_s`; without a change only one whose assignment is lost is switched."""
    regrouping = changed()
    while (effect := regrouping.next(None)) is not None:
        if isinstance(effect, Prepare):
            regrouping.prepared({(topic, 0): 0 for topic in effect.topics})
        elif isinstance(effect, Announce):
            regrouping.announced()
        else:
            regrouping.switched(1.0)
    assert regrouping.due(0.9) == []
    assert regrouping.due(1.0) == ["b1"]
    regrouping.look(1.0, ())
    assert regrouping.next(None) is None
    regrouping.look(2.0, {"b1"})
    assert isinstance(regrouping.next(None), Prepare)


@pytest.mark.parametrize(
    ("topic", "headers", "value"),
    [
        (TOPICS.publications, (("ce_type", b"t"),), b'{"x": 2}'),
        (TOPICS.publications, (("content-type", b"application/cloudevents+json"),), b'{"type": "t", "data": {"x": 2}}'),
        ("orders", (), b'{"x": 2}'),
    ],
)
def test_publications_are_seen_however_they_were_written(topic, headers, value):
    """In binary and structured mode, and in topics of other producers; what is none of these changes nothing."""
    config = replace(CONFIGS[1], sources=(Source("orders", "b1", "t"),))
    regrouping = Regrouping(config, {})
    regrouping.observe([Record("elsewhere", 0, 0, 0, None, value), Record(topic, 0, 0, 0, None, b"no json", headers)])
    seen = regrouping._brokers["b1"].groups._states["t"]
    assert seen.points is None
    regrouping.observe([Record(topic, 0, 0, 0, None, value, headers)] * 3)
    assert len(seen.points) == 3
