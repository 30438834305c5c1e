"""`explain` against the core itself, driven by the simulator, and against the oracle; the words on small examples."""

from __future__ import annotations

import random

import msgspec
import pytest

from state.broker.context import Context
from state.broker.cube import Cube, decode_state
from state.broker.forwarding import NOT_ADVERTISED, carriers
from state.broker.keys import Key
from state.config import parse
from state.errors import HilcastError
from state.explain import COVERED_BY_LARGER, EQUAL_HELD, NEVER_CAME, NOT_HELD, Event, Registered, explained
from state.simulation.world import Event as Publication
from state.simulation.world import World
from tests import oracle

CONFIG = """
[overlay]
brokers = ["b1", "b2", "b3", "b4"]
links = [["b1", "b2"], ["b2", "b3"], ["b2", "b4"]]
[types.t]
reduction = "{reduction}"
advertisements = {advertisements}
cubes = 16
bits = 3
index = ["x", "y"]
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 7, imprecise = "possible" }}
y = {{ kind = "int", min = 0, max = 7 }}
name = {{ kind = "text" }}
[types.other.attributes]
z = {{ kind = "boolean" }}
"""
ATTRIBUTES = {
    "x": {"kind": "int", "min": 0, "max": 7, "imprecise": "possible"},
    "y": {"kind": "int", "min": 0, "max": 7},
    "name": {"kind": "text"},
}
REDUCTIONS = ["none", "covering", "mics", "negative-space", "probabilistic", "hybrid"]


def world_of(reduction="covering", advertisements="false"):
    return World(parse(CONFIG.format(reduction=reduction, advertisements=advertisements)))


def subscribe(world, broker, id, text, topic="subscriptions", owner="client", type="t"):
    value = None if text is None else {owner: f"{id}-owner", "filter": text}
    world.send(f"hilcast.{topic}", f"{broker}/{type}/{id}", value)


def advertise(world, broker, id, text):
    subscribe(world, broker, id, text, "advertisements", "publisher")


class Simulated:
    """The index and the words of a simulated world; `hidden` keys are not known."""

    def __init__(self, world, hidden=(), mute=False):
        self.deployment, self.hidden, self.mute = world.deployments[0], set(hidden), mute

    def part(self, key):
        return None if key in self.hidden else self.deployment.index.get(key)

    def state(self, key):
        blob = self.deployment.states.get(str(key))
        return None if blob is None else decode_state(blob)

    def words(self, key, neighbour, entries):
        blob = self.deployment.states.get(str(key))
        if blob is None or self.mute:
            return [None] * len(entries)
        cube = Cube(key, blob, Context(self.deployment.config, 1, 1))
        told = cube.forwarding([neighbour])[neighbour]
        return [told.get(entry) for entry in entries]


def registered(world, kind="subscription"):
    return [Registered(broker, type, id, fact) for k, broker, type, id, fact in world.facts() if k == kind]


def ask(world, attributes, id, broker="b1", index=None, source="p", type="t"):
    wanted = next(r for r in registered(world) if r.id == id)
    event = Event(broker, type, source, "e", attributes)
    return explained(world.config, event, wanted, registered(world, "advertisement"), index or Simulated(world))


# ── against the core and the oracle ─────────────────────────────────────────────────────────────────────────────


def random_filter(draw):
    low = draw.randrange(7)
    x = f"x BETWEEN {low} AND {min(7, low + draw.randrange(4))}"
    y = f"y >= {draw.randrange(6)} AND y <= {draw.randrange(2, 8)}"
    return draw.choice([x, y, f"{x} AND {y}", f"{x} OR {y}", f"{x} AND name LIKE '%o%'", "TRUE", "x IS NULL"])


def random_event(draw):
    event = {"x": draw.randrange(8), "y": draw.randrange(8), "name": draw.choice(["foo", "bar", "a long name of o"])}
    if draw.random() < 0.2:
        event["x"] = {"min": min(event["x"], 5), "max": event["x"] + 1}
    if draw.random() < 0.1:
        del event["x"]
    return event


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_what_is_explained_is_what_happens(reduction):
    """`matches` is the oracle's answer, `reaches` the delivery, each hop the link that the router took or did not."""
    draw = random.Random(11)
    world = world_of(reduction)
    filters = {}
    for i in range(24):
        broker = f"b{draw.randint(1, 4)}"
        filters[f"s{i}"] = broker, random_filter(draw)
        subscribe(world, broker, f"s{i}", filters[f"s{i}"][1])
    world.settle()
    reached = 0
    for n in range(40):
        attributes, entry = random_event(draw), f"b{draw.randint(1, 4)}"
        publication = Publication(f"e{n}", "t", entry, msgspec.json.encode(attributes))
        deliveries, links = world.publish(publication)
        got = {id for delivery in deliveries for id in delivery.subscriptions}
        for id in draw.sample(sorted(filters), 5):
            found = ask(world, attributes, id, entry)
            assert found.matches == oracle.evaluate(filters[id][1], attributes, ATTRIBUTES), (id, attributes)
            assert found.reaches == (id in got)
            taken = True
            for hop in found.hops:
                # behind a link that stopped it the router has nothing to say
                taken = taken and hop.carried
                assert not taken or (hop.origin, hop.target) in links
                assert taken or (hop.origin, hop.target) not in links or hop.carried
            reached += found.matches
    assert reached > 20


@pytest.mark.parametrize("mute", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_who_is_named_holds_the_place(reduction, mute):
    """Whoever is named as standing for the subscription is what the next broker holds from there; words or none."""
    draw = random.Random(3)
    world = world_of(reduction)
    for i in range(16):
        subscribe(world, f"b{draw.randint(1, 4)}", f"s{i}", random_filter(draw))
    world.settle()
    index = Simulated(world, mute=mute)
    named = known = 0
    for i in range(16):
        entry, attributes = f"b{draw.randint(1, 4)}", random_event(draw)
        found = ask(world, attributes, f"s{i}", entry, index)
        brokers = found.path[::-1]
        expected = [
            (part, broker, n)
            for part in found.parts
            for k, broker in enumerate(brokers)
            for n in world.config.overlay.neighbours(broker)
            if k == 0 or n != brokers[k - 1]
        ]
        assert list(dict.fromkeys((s.part, s.broker, s.towards) for s in found.forwarding)) == expected
        for stand in found.forwarding:
            known += stand.how is not None
            for name in carriers(stand.entry or "", stand.how or ""):
                held = index.state(Key(stand.towards, "t", stand.part)).received[stand.broker]
                assert name in held, stand
                named += 1
    assert known > 16
    assert named or (mute and reduction != "mics")


# ── in words ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_predicate_by_predicate():
    """Each predicate is told with the value that it saw; an absent one saw none; what fails is the reason."""
    world = world_of()
    subscribe(world, "b3", "s", "x < 5 AND name = 'foo' AND y IS NULL")
    world.settle()
    found = ask(world, {"x": 3, "name": 7, "y": 2}, "s")
    assert [(p.predicate, p.holds, p.value) for p in found.predicates] == [
        ("x < 5", True, 3),
        ("name = 'foo'", False, None),
        ("y IS NULL", False, 2),
    ]
    assert (found.matches, found.reaches) == (False, False)
    assert found.because == "the filter does not hold: name = 'foo', y IS NULL"
    assert (found.client, found.state, found.filter) == ("s-owner", "live", "x < 5 AND name = 'foo' AND y IS NULL")


def test_carried_because_of_a_box():
    """A hop names the box that holds the event in the values of its attributes, and knows the subscription's own."""
    world = world_of()
    subscribe(world, "b3", "s", "x BETWEEN 2 AND 3 AND y = 1")
    world.settle()
    found = ask(world, {"x": 2, "y": 1}, "s")
    assert found.path == ("b1", "b2", "b3")
    assert [(h.origin, h.target, h.carried) for h in found.hops] == [("b1", "b2", True), ("b2", "b3", True)]
    assert found.hops[0].asked == "x 2 to 3, y 1"
    assert "this very subscription" in found.hops[0].why
    stopped = ask(world, {"x": 2, "y": 2}, "s")
    assert [h.carried for h in stopped.hops] == [False, False]
    assert stopped.hops[1].why == "stopped: nothing that b3 asked for holds it"


def test_covered_on_the_way():
    """At its own broker a subscription is forwarded; further on it is covered, and who covers it takes its place."""
    world = world_of()
    subscribe(world, "b3", "s", "x = 2 AND y = 1")
    subscribe(world, "b2", "larger", "x BETWEEN 2 AND 3 AND y = 1")
    world.settle()
    found = ask(world, {"x": 2, "y": 1}, "s")
    assert [(s.broker, s.towards, s.entry, s.how) for s in found.forwarding] == [
        ("b3", "b2", "b3/s", "forwarded"),
        ("b2", "b1", "b3/s", "covered by b2/larger"),
        ("b2", "b4", "b3/s", "covered by b2/larger"),
    ]
    assert found.hops[0].asked == "x 2 to 3, y 1"
    assert "very" not in found.hops[0].why
    quiet = ask(world, {"x": 2, "y": 1}, "s", index=Simulated(world, mute=True))
    assert [s.how for s in quiet.forwarding] == [EQUAL_HELD, None, None]
    subscribe(world, "b3", "small", "x = 3 AND y = 1")
    world.settle()
    quiet = ask(world, {"x": 3, "y": 1}, "small", "b2", Simulated(world, mute=True))
    assert [s.how for s in quiet.forwarding][:1] == [EQUAL_HELD]


def test_covered_at_home_by_what_is_larger():
    """Without words, what the neighbour holds still shows that something larger covers it."""
    world = world_of()
    subscribe(world, "b3", "s", "x = 2 AND y = 1")
    subscribe(world, "b3", "larger", "x BETWEEN 2 AND 3 AND y = 1")
    world.settle()
    assert ask(world, {"x": 2, "y": 1}, "s").forwarding[0].how == "covered by b3/larger"
    quiet = ask(world, {"x": 2, "y": 1}, "s", index=Simulated(world, mute=True))
    assert quiet.forwarding[0].how == COVERED_BY_LARGER
    assert {(s.broker, s.entry, s.how) for s in quiet.forwarding[1:]} == {("b2", None, None)}


def test_merged_into_ranges():
    """Under mics a subscription travels as ranges: its own, or merged with others'; the one with the event is named."""
    world = world_of("mics")
    subscribe(world, "b3", "s", "x = 0 AND y = 0")
    world.settle()
    found = ask(world, {"x": 0, "y": 0}, "s")
    first = found.forwarding[0].how
    assert first.startswith("forwarded as ")
    range = first.removeprefix("forwarded as ")
    assert found.hops[0].asked == f"range {range}"
    assert found.forwarding[1].entry == f"b3>{range}"
    subscribe(world, "b3", "all", "x IN (0, 1) AND y IN (0, 1)")
    world.settle()
    merged = ask(world, {"x": 0, "y": 0}, "s").forwarding[0].how
    assert merged.startswith("merged into ")


def test_held_back_without_advertisements():
    """Where nothing is advertised a subscription does not leave its broker, and the event is refused at its entry."""
    world = world_of("covering", "true")
    subscribe(world, "b3", "s", "x = 2")
    subscribe(world, "b3", "high", "x = 7")
    advertise(world, "b4", "ad", "x < 4")
    advertise(world, "b1", "elsewhere", "x IN (2, 7)")
    world.settle()
    found = ask(world, {"x": 2, "y": 1}, "s", source="ad-owner")
    assert found.conformance.conforms is False
    assert found.conformance.advertisements == ()
    assert found.reaches is False
    there = ask(world, {"x": 2, "y": 1}, "s", "b4", source="ad-owner")
    assert (there.conformance.conforms, there.reaches) == (True, True)
    assert [(a.id, a.filter, a.holds) for a in there.conformance.advertisements] == [("ad", "x < 4", True)]
    outside = ask(world, {"x": 5, "y": 1}, "s", "b4", source="ad-owner")
    assert outside.conformance.conforms is False
    assert {(s.broker, s.towards): s.how for s in found.forwarding} == {
        ("b3", "b2"): "forwarded",
        ("b2", "b1"): "forwarded",
        ("b2", "b4"): "forwarded",
    }
    assert {(s.broker, s.towards): s.how for s in ask(world, {"x": 7, "y": 1}, "high").forwarding} == {
        ("b3", "b2"): "forwarded",
        ("b2", "b1"): "forwarded",
        ("b2", "b4"): NOT_ADVERTISED,
    }


def test_it_never_came():
    """Behind the broker that held it back, nothing stands for the subscription."""
    world = world_of("covering", "true")
    subscribe(world, "b3", "s", "x = 2")
    world.settle()
    found = ask(world, {"x": 2, "y": 1}, "s")
    assert {(s.broker, s.entry, s.how) for s in found.forwarding} == {
        ("b3", "b3/s", NOT_ADVERTISED),
        ("b2", None, NEVER_CAME),
    }
    ranged = world_of("mics", "true")
    subscribe(ranged, "b3", "s", "x = 2")
    ranged.settle()
    how = [s.how for s in ask(ranged, {"x": 2, "y": 1}, "s", index=Simulated(ranged, mute=True)).forwarding]
    assert how == [NOT_HELD, NEVER_CAME, NEVER_CAME]


def test_what_redis_does_not_hold_is_not_known():
    """Without the part of the event at a broker, the hop is not known, and neither is whether it reaches."""
    world = world_of()
    subscribe(world, "b3", "s", "x = 2 AND y = 1")
    world.settle()
    part = ask(world, {"x": 2, "y": 1}, "s").hops[0].part
    found = ask(world, {"x": 2, "y": 1}, "s", index=Simulated(world, hidden=[Key("b2", "t", part)]))
    assert [h.carried for h in found.hops] == [True, None]
    assert found.hops[1].why == f"not known: Redis does not hold {part} of b2"
    assert found.reaches is None
    home = ask(world, {"x": 2, "y": 1}, "s", index=Simulated(world, hidden=[Key("b3", "t", part)]))
    assert (home.reaches, home.parts, home.forwarding) == (None, (), ())


def test_not_in_force_yet():
    """A subscription that is registered and stands in no index yet does not get the event, and that is said."""
    world = world_of()
    subscribe(world, "b3", "s", "x = 2 AND y = 1")
    world.settle()
    fact = next(r for r in registered(world) if r.id == "s").fact
    found = explained(
        world.config,
        Event("b3", "t", "p", "e", {"x": 2, "y": 1}),
        Registered("b3", "t", "late", fact),
        [],
        Simulated(world),
    )
    assert (found.matches, found.parts, found.reaches) == (True, (), False)


def test_what_is_not_live_does_not_match():
    """What is withdrawn, of another type, or unusable under the configuration matches nothing; why is said."""
    world = world_of()
    subscribe(world, "b3", "s", "TRUE")
    subscribe(world, "b3", "z", "z = true", type="other")
    world.settle()
    subscribe(world, "b3", "s", None)
    world.settle()
    gone = ask(world, {"x": 1}, "s")
    assert (gone.matches, gone.state, gone.because) == (False, "withdrawn", "the subscription is withdrawn")
    other = ask(world, {"x": 1}, "z")
    assert (other.matches, other.because) == (False, "the event is of type t, the subscription of other")
    assert (other.hops, other.forwarding, other.reaches) == ((), (), False)
    fact = next(r for r in registered(world) if r.id == "z").fact
    strange = Registered("b3", "t", "z", fact)
    found = explained(world.config, Event("b1", "t", "p", "e", {"x": 1}), strange, [], Simulated(world))
    assert (found.matches, found.state) == (False, "dormant")
    assert "filter-attribute" in found.because


def test_unknown_names_are_refused():
    """A broker or type that the configuration has not is an error with its code."""
    world = world_of()
    subscribe(world, "b3", "s", "TRUE")
    world.settle()
    with pytest.raises(HilcastError, match="unknown-broker"):
        ask(world, {}, "s", "b9")
    with pytest.raises(HilcastError, match="unknown-type"):
        ask(world, {}, "s", type="quote")
