"""`explain` against the core itself, driven by the simulator, and against the oracle; the words on small examples."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path

import msgspec
import pytest

from hilcast import Publisher
from infra.kafka import open_transport
from infra.kafka.reading import newest
from infra.kafka.topic_keeper import TopicKeeper
from infra.local.ports import free_port
from producers import cli
from producers.commands.explain import words
from state.compiled_part import compile_part
from state.config import parse
from state.control.context import Context
from state.control.fates import HELD_BACK
from state.control.part import Part
from state.errors import HilcastError
from state.explain import NOT_REACHED, Event, Registered, Seen, explained
from state.keys import Key
from state.messages import Output
from state.redis_index import RedisIndex
from state.reductions.reduction import Fate
from state.space.packing import unpack
from tests import oracle
from tests.producers import worlds
from tests.simulation.wire import Event as Publication
from tests.simulation.world import World

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
REDUCTIONS = ["none", "covering", "merging", "mics", "negative-space", "probabilistic", "hybrid"]


def world_of(reduction="covering", advertisements="false", more=""):
    return World(parse(CONFIG.format(reduction=reduction, advertisements=advertisements) + more))


def subscribe(world, broker, id, text, topic="subscriptions", owner="client", type="t"):
    value = None if text is None else {owner: f"{id}-owner", "filter": text}
    world.send(f"hilcast.{topic}", f"{broker}/{type}/{id}", value)


def advertise(world, broker, id, text):
    subscribe(world, broker, id, text, "advertisements", "publisher")


class Simulated:
    """The index and the fates of a simulated world; `hidden` keys are not known."""

    def __init__(self, world, hidden=(), mute=False):
        self.deployment, self.hidden, self.mute = world.deployments[0], set(hidden), mute
        self.told = {}
        """What was said of a part, by its key, its state and the neighbour: a state is asked many times."""

    def part(self, key):
        return None if key in self.hidden else self.deployment.index.get(key)

    def state(self, key):
        blob = self.deployment.states.get(str(key))
        return None if blob is None else Part(key, blob, Context(self.deployment.config, 1, 1)).state

    def fates(self, key, neighbour, entries):
        blob = self.deployment.states.get(str(key))
        if blob is None or self.mute:
            return [None] * len(entries)
        asked = (key, blob, neighbour)
        if asked not in self.told:
            cube = Part(key, blob, Context(self.deployment.config, 1, 1))
            self.told[asked] = cube.forwarding([neighbour])[neighbour]
        return [self.told[asked].get(entry) for entry in entries]


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


PRUNED = """
[types.t.pruning]
subscriptions = 12
{advertisements}
[settings]
home_shards = 1
"""


@pytest.mark.parametrize("pruned", [False, True], ids=["", "pruned"])
@pytest.mark.parametrize("advertisements", ["false", "true"], ids=["", "advertised"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_what_is_explained_is_what_happens(reduction, advertisements, pruned):
    """`matches` is the oracle's answer, `reaches` the delivery, each hop the link that the router took or did not, and
    the entry that it names is one that the origin holds from there.
    """
    draw = random.Random(11)
    budget = "advertisements = 6" if advertisements == "true" else ""
    world = world_of(reduction, advertisements, PRUNED.format(advertisements=budget) if pruned else "")
    for i in range(1, 5 if advertisements == "true" else 1):
        advertise(world, f"b{i}", f"ad{i}", random_filter(draw))
    filters = {}
    for i in range(24):
        broker = f"b{draw.randint(1, 4)}"
        filters[f"s{i}"] = broker, random_filter(draw)
        subscribe(world, broker, f"s{i}", filters[f"s{i}"][1])
    world.settle()
    index = Simulated(world)
    reached = named = 0
    for n in range(40):
        attributes, entry = random_event(draw), f"b{draw.randint(1, 4)}"
        source = f"ad{entry[1]}-owner"
        publication = Publication(f"e{n}", "t", entry, msgspec.json.encode(attributes), source)
        deliveries, links = world.publish(publication)
        got = {id for delivery in deliveries for id in delivery.subscriptions}
        for id in draw.sample(sorted(filters), 5):
            found = ask(world, attributes, id, entry, index, source)
            assert found.matches == oracle.evaluate(filters[id][1], attributes, ATTRIBUTES), (id, attributes)
            assert found.reaches == (id in got)
            for hop in found.hops:
                assert hop.carried == ((hop.origin, hop.target) in links)
                named += hop.entry is not None
                assert hop.entry is None or is_held(index, hop, filters)
            reached += found.matches
    assert min(reached, named) > 20


def is_held(index, hop, filters):
    """Whether the entry of a hop, or one of equal geometry, came to the origin by that link."""
    held = index.state(Key(hop.origin, "t", hop.part)).received[hop.target]
    if hop.entry in held:
        return True
    broker, id = hop.entry.split("/")
    assert filters[id][0] == broker
    own = index.state(Key(broker, "t", hop.part)).local[id]
    return any(unpack(entry.geometry) == unpack(own.travelling) for entry in held.values())


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
        told = list(dict.fromkeys((s.part, s.broker, s.towards) for s in found.forwarding))
        # every link, away from the subscription; at the brokers of the path first
        away = [pair for link in LINKS for pair in (link, link[::-1]) if is_away(pair, brokers[0])]
        assert sorted(told) == sorted((part, *pair) for part in found.parts for pair in away)
        for part in found.parts:
            visited = list(dict.fromkeys(broker for p, broker, _ in told if p == part))
            assert [b for b in visited if b in brokers] == [b for b in brokers if b in visited]
            assert set(visited[: len(brokers)]) >= {b for b in brokers if b in visited}
        for stand in found.forwarding:
            known += stand.how is not None
            for name in stand.how.carriers(stand.entry) if isinstance(stand.how, Fate) else ():
                held = index.state(Key(stand.towards, "t", stand.part)).received[stand.broker]
                assert name in held, stand
                named += 1
    assert known > 16
    assert named or (mute and reduction != "mics")


LINKS = [("b1", "b2"), ("b2", "b3"), ("b2", "b4")]


def is_away(pair, home):
    """Whether one goes away from home by this link of the overlay, whose middle is b2."""
    origin, target = pair
    return origin == home or (origin == "b2" and target != home)


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
    assert [h.why for h in stopped.hops] == ["stopped: nothing that b2 asked for holds it", NOT_REACHED]
    assert {h.entry for h in found.hops} == {"b3/s"}


def test_covered_on_the_way():
    """At its own broker a subscription is forwarded; further on it is covered, and who covers it takes its place."""
    world = world_of()
    subscribe(world, "b3", "s", "x = 2 AND y = 1")
    subscribe(world, "b2", "larger", "x BETWEEN 2 AND 3 AND y = 1")
    world.settle()
    found = ask(world, {"x": 2, "y": 1}, "s")
    assert [(s.broker, s.towards, s.entry, words(s.how)) for s in found.forwarding] == [
        ("b3", "b2", "b3/s", "forwarded"),
        ("b2", "b1", "b3/s", "covered by b2/larger"),
        ("b2", "b4", "b3/s", "covered by b2/larger"),
    ]
    assert [h.entry for h in found.hops] == ["b2/larger", "b3/s"]
    assert found.hops[0].asked == "x 2 to 3, y 1"
    assert "very" not in found.hops[0].why
    quiet = ask(world, {"x": 2, "y": 1}, "s", index=Simulated(world, mute=True))
    assert [s.how for s in quiet.forwarding] == [Seen.EQUAL_HELD, None, None]
    subscribe(world, "b3", "small", "x = 3 AND y = 1")
    world.settle()
    quiet = ask(world, {"x": 3, "y": 1}, "small", "b2", Simulated(world, mute=True))
    assert [s.how for s in quiet.forwarding][:1] == [Seen.EQUAL_HELD]


def test_covered_at_home_by_what_is_larger():
    """Without words, what the neighbour holds still shows that something larger covers it."""
    world = world_of()
    subscribe(world, "b3", "s", "x = 2 AND y = 1")
    subscribe(world, "b3", "larger", "x BETWEEN 2 AND 3 AND y = 1")
    world.settle()
    assert ask(world, {"x": 2, "y": 1}, "s").forwarding[0].how == Fate("covered", ("b3/larger",))
    quiet = ask(world, {"x": 2, "y": 1}, "s", index=Simulated(world, mute=True))
    assert quiet.forwarding[0].how == Seen.COVERED_BY_LARGER
    assert {(s.broker, s.entry, s.how) for s in quiet.forwarding[1:]} == {("b2", None, None)}


def test_what_stands_for_the_subscription_carries_the_event():
    """Of all that holds the event, the hop names what the subscription has a share in."""
    world = world_of("covering")
    cover, other = "x BETWEEN 2 AND 3 AND y <= 1 AND y >= 0 AND name < 'm'", "x = 2 AND y = 1"
    for broker, id, text in (("b4", "other", other), ("b4", "cover", cover), ("b4", "s", f"{cover} AND y = 1")):
        subscribe(world, broker, id, text)
        world.settle()
    found = ask(world, {"x": 2, "y": 1, "name": "a"}, "s")
    assert [(h.entry, h.asked) for h in found.hops] == [("b4/cover", "x 2 to 3, y 0 to 1, name below 'm'")] * 2
    ranged = world_of("mics")
    for id, x in (("low", 0), ("s", 3)):
        subscribe(ranged, "b3", id, f"x = {x} AND y = 0")
    ranged.settle()
    found = ask(ranged, {"x": {"min": 0, "max": 7}, "y": 0}, "s")
    (stand, *_) = found.forwarding
    assert {h.entry for h in found.hops} == set(stand.how.carriers("b3/s"))


def test_merged_into_ranges():
    """Under mics a subscription travels as ranges: its own, or merged with others'; the one with the event is named."""
    world = world_of("mics")
    subscribe(world, "b3", "s", "x = 0 AND y = 0")
    world.settle()
    found = ask(world, {"x": 0, "y": 0}, "s")
    first = found.forwarding[0].how
    (range,) = first.by
    assert words(first) == f"forwarded as {range}"
    assert found.hops[0].asked == f"range {range}"
    assert found.forwarding[1].entry == f"b3>{range}"
    subscribe(world, "b3", "all", "x IN (0, 1) AND y IN (0, 1)")
    world.settle()
    merged = ask(world, {"x": 0, "y": 0}, "s").forwarding[0].how
    assert words(merged).startswith("merged into ")


def test_held_back_without_advertisements():
    """Where nothing is advertised a subscription does not leave its broker, and the event is refused at its entry."""
    world = world_of("covering", "true")
    subscribe(world, "b3", "s", "x = 2")
    subscribe(world, "b3", "high", "x = 7 AND y = 5")
    advertise(world, "b4", "ad", "x < 4 AND y <= 3")
    advertise(world, "b1", "elsewhere", "x IN (2, 7)")
    world.settle()
    found = ask(world, {"x": 2, "y": 1}, "s", source="ad-owner")
    assert found.conformance.conforms is False
    assert found.conformance.advertisements == ()
    assert found.reaches is False
    there = ask(world, {"x": 2, "y": 1}, "s", "b4", source="ad-owner")
    assert (there.conformance.conforms, there.reaches) == (True, True)
    assert [(a.id, a.filter, a.holds) for a in there.conformance.advertisements] == [("ad", "x < 4 AND y <= 3", True)]
    outside = ask(world, {"x": 5, "y": 1}, "s", "b4", source="ad-owner")
    assert outside.conformance.conforms is False
    assert {(h.carried, h.why) for h in outside.hops} == {(False, NOT_REACHED)}
    assert {(s.broker, s.towards): words(s.how) for s in found.forwarding} == {
        ("b3", "b2"): "forwarded",
        ("b2", "b1"): "forwarded",
        ("b2", "b4"): "forwarded",
    }
    assert {(s.broker, s.towards): words(s.how) for s in ask(world, {"x": 7, "y": 5}, "high").forwarding} == {
        ("b3", "b2"): "forwarded",
        ("b2", "b1"): "forwarded",
        ("b2", "b4"): "held back: no advertisement from there meets it",
    }


def test_it_never_came():
    """Behind the broker that held it back, nothing stands for the subscription."""
    world = world_of("covering", "true")
    subscribe(world, "b3", "s", "x = 2")
    world.settle()
    found = ask(world, {"x": 2, "y": 1}, "s")
    assert {(s.broker, s.entry, s.how) for s in found.forwarding} == {
        ("b3", "b3/s", HELD_BACK),
        ("b2", None, Seen.NEVER_CAME),
    }
    ranged = world_of("mics", "true")
    subscribe(ranged, "b3", "s", "x = 2")
    ranged.settle()
    how = [s.how for s in ask(ranged, {"x": 2, "y": 1}, "s", index=Simulated(ranged, mute=True)).forwarding]
    assert how == [Seen.NOT_HELD, Seen.NEVER_CAME, Seen.NEVER_CAME]


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


# ── the command, on real Kafka and Redis ────────────────────────────────────────────────────────────────────────

REAL = """
[types.reading]
advertisements = true
cubes = 1
[types.reading.attributes]
celsius = {{ kind = "int" }}
[[sources]]
topic = "{prefix}-legacy"
broker = "b2"
type = "quote"
"""


def real(services, prefix):
    return worlds.text(services, prefix) + REAL.format(prefix=prefix)


@pytest.fixture(scope="module")
def prepared(services):
    """A settled overlay: its registry in Kafka, its index and fates in Redis, as the job would have left them."""
    prefix = f"t{uuid.uuid4().hex[:12]}"
    config = parse(real(services, prefix))
    TopicKeeper(config).ensure_needed()
    world = World(config)
    for broker, id, text in (("b3", "s", "price < 100"), ("b3", "small", "price < 50 AND symbol = 'IBM'")):
        world.send(config.topics.subscriptions, f"{broker}/quote/{id}", {"client": "alice", "filter": text})
    world.send(config.topics.subscriptions, "b3/reading/r", {"client": "bob", "filter": "celsius > 30"})
    world.send(config.topics.subscriptions, "b3/quote/gone", {"client": "alice", "filter": "TRUE"})
    world.send(config.topics.advertisements, "b1/reading/ad", {"publisher": "sensor", "filter": "celsius < 40"})
    world.settle()
    world.send(config.topics.subscriptions, "b3/quote/gone", None)
    world.settle()
    deployment = world.deployments[0]
    transport = open_transport(config)
    for record in world.log.topics[config.topics.registry]:
        transport.send(Output(record.topic, record.key, record.value))
    transport.send(Output(f"{prefix}-legacy", None, b'{"price": 10, "symbol": "IBM"}'))
    transport.flush()
    transport.close()
    index = RedisIndex(config)
    fates = {key: _fates(deployment, key) for key in deployment.index}
    index.publish({key: compile_part(part) for key, part in deployment.index.items()}, 1, 1, fates)
    index.point(1, config.shared)
    index.close()
    return config


def _fates(deployment, key):
    cube = Part(key, deployment.states.get(str(key)), Context(deployment.config, 1, 1))
    return cube.forwarding(cube.neighbours)


@pytest.fixture
def here(prepared, services, tmp_path, monkeypatch):
    """A folder with the configuration of the prepared overlay."""
    prefix = prepared.deployment.prefix
    (tmp_path / "hilcast.toml").write_text(real(services, prefix))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HILCAST_CONFIG", raising=False)
    return prepared


def command(capsys, *arguments):
    code = cli.main(["explain", *arguments])
    return code, capsys.readouterr()


def answered(capsys, *arguments):
    code, shown = command(capsys, *arguments, "--json")
    assert code == 0, shown.err
    return json.loads(shown.out)


def test_a_publication_is_found_by_source_and_id(here, capsys):
    """SOURCE#ID names the newest publication of that name; it is explained from its entry broker, hop by hop."""
    with Publisher(here, broker="b2", type="quote", source="a#b") as publisher:
        publisher.publish({"price": 500}, id="e#1", key="k")
        publisher.publish({"price": 20.5, "symbol": "IBM"}, id="e#1", broker="b1", key="k")
    found = answered(capsys, "a#b#e#1", "b3/quote/small")
    assert (found["matches"], found["reaches"], found["redis"]) == (True, True, "ok")
    assert found["event"]["attributes"] == {"price": 20.5, "symbol": "IBM"}
    assert found["predicates"][0] == {"predicate": "price < 50", "holds": True, "value": 20.5}
    assert found["path"] == ["b1", "b2", "b3"]
    assert [hop["carried"] for hop in found["hops"]] == [True, True]
    assert found["hops"][0]["asked"].startswith("price ")
    steps = [(s["broker"], s["towards"], s["entry"], s["how"]) for s in found["forwarding"]]
    assert ("b3", "b2", "b3/small", "covered by b3/s") in steps
    assert ("b2", "b1", "b3/s", "forwarded") in steps
    code, shown = command(capsys, "a#b#e#1", "b3/quote/small")
    assert code == 0
    for line in ("matches       yes", "reaches       yes", "b1 -> b2", "covered by b3/s", "price < 50"):
        assert line in shown.out


def test_an_event_of_a_source_topic_is_found(here, capsys):
    """Events of other producers have the names that the router gives them."""
    found = answered(capsys, f"kafka:{here.deployment.prefix}-legacy#0/0", "b3/quote/s")
    assert (found["event"]["broker"], found["matches"], found["path"]) == ("b2", True, ["b2", "b3"])


def test_an_event_as_json(here, capsys):
    """JSON is explained without being published: by the options, as a structured CloudEvent, or at the subscription."""
    found = answered(capsys, '{"price": 200}', "b3/quote/s")
    assert (found["matches"], found["reaches"], found["path"]) == (False, False, ["b3"])
    assert found["because"] == "the filter does not hold: price < 100"
    found = answered(capsys, '{"price": 20}', "b3/quote/s", "-b", "b1", "-t", "quote")
    assert (found["reaches"], found["path"]) == (True, ["b1", "b2", "b3"])
    structured = {"specversion": "1.0", "id": "7", "source": "x", "type": "quote", "broker": "b2"}
    text = json.dumps({**structured, "data": {"price": "huge", "symbol": "SAP"}}).replace('"huge"', "1e400")
    found = answered(capsys, text, "b3/quote/s")
    assert (found["event"]["id"], found["path"], found["matches"]) == ("7", ["b2", "b3"], False)
    found = answered(capsys, '{"price": 1, "symbol": "\\ud800", "x": ' + "9" * 5000 + "}", "b3/quote/s")
    assert found["matches"] is True
    assert command(capsys, '{"price": 1, "symbol": "\\ud800"}', "b3/quote/small")[0] == 0
    gone = answered(capsys, '{"price": 1}', "b3/quote/gone")
    assert (gone["state"], gone["matches"]) == ("withdrawn", False)


def test_advertisements_at_the_entry(here, capsys):
    """The publisher's advertisements at the entry broker are told with whether they hold."""
    found = answered(capsys, '{"celsius": 35}', "b3/reading/r", "-b", "b1", "--source", "sensor")
    assert found["conformance"]["advertisements"] == [{"id": "ad", "filter": "celsius < 40", "holds": True}]
    assert (found["conformance"]["conforms"], found["reaches"]) == (True, True)
    found = answered(capsys, '{"celsius": 45}', "b3/reading/r", "-b", "b1", "--source", "sensor")
    assert (found["matches"], found["conformance"]["conforms"], found["reaches"]) == (True, False, False)
    _, shown = command(capsys, '{"celsius": 45}', "b3/reading/r", "-b", "b1", "--source", "sensor")
    assert "refused at b1 (not-advertised)" in shown.out


def test_what_is_unknown_is_one(here, capsys):
    """An event, subscription, broker or type that nobody knows ends with 1 and its code."""
    for arguments, code in (
        (("x#nothing", "b3/quote/s"), "unknown-event"),
        (('{"price": 1}', "b3/quote/nobody"), "unknown-subscription"),
        (('{"price": 1}', "b3/quote/s", "-b", "b9"), "unknown-broker"),
        (('{"price": 1}', "b3/quote/s", "-t", "nothing"), "unknown-type"),
        (('{"price": NaN}', "b3/quote/s"), "bad-event"),
        (('{"specversion": "1.0", "data": 5}', "b3/quote/s"), "bad-event"),
    ):
        ended, shown = command(capsys, *arguments)
        assert (ended, shown.err.startswith(f"hilcast: {code}: ")) == (1, True), shown.err


@pytest.mark.parametrize("arguments", [["{}"], ["[]", "b1/t/s"], ["{}", "b1/t"], ["{}", "b1/t/s", "--source"]])
def test_usage_of_explain(arguments, capsys):
    """What is no event or no key of a subscription is wrong usage."""
    with pytest.raises(SystemExit) as ended:
        command(capsys, *arguments)
    assert ended.value.code == 2


def test_without_redis_the_filter_is_still_explained(here, services, capsys):
    """When Redis is away the predicates are told all the same, and the hops are not known."""
    away = f"redis://127.0.0.1:{free_port()}/0"
    text = real(services, here.deployment.prefix).replace(services.redis, away)
    Path("hilcast.toml").write_text(text)
    found = answered(capsys, '{"price": 20}', "b3/quote/s", "-b", "b1")
    assert (found["matches"], found["reaches"]) == (True, None)
    assert {hop["carried"] for hop in found["hops"]} == {None}
    assert "Redis does not answer" in found["redis"]
    _, shown = command(capsys, '{"price": 20}', "b3/quote/s", "-b", "b1")
    assert "reaches       not known" in shown.out
    assert "Redis does not answer" in shown.out


def test_the_newest_come_first(services, unique):
    """Records are read from the newest back, in windows of any size, each once, none left out."""
    config = parse(real(services, unique))
    TopicKeeper(config).ensure_needed()
    transport = open_transport(config)
    for i in range(25):
        transport.send(Output(config.topics.publications, str(i).encode(), str(i).encode())).place()
    for chunk in (1, 7, 100):
        found = list(newest(transport, [config.topics.publications], chunk))
        assert sorted(int(record.value) for record in found) == list(range(25))
        for partition in transport.partitions(config.topics.publications):
            offsets = [record.offset for record in found if record.partition == partition]
            assert offsets == sorted(offsets, reverse=True)
    times = [record.timestamp_ms for record in found]
    assert times == sorted(times, reverse=True)
    assert list(newest(transport, ["no-such-topic"])) == []
    transport.close()
