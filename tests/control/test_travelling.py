"""What neighbours are told of filters is pruned within its budget, only ever widens, and costs nobody a delivery."""

from __future__ import annotations

import itertools
import json
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from state.advertisements.queue import DegradationQueue, Pruned, prunings, size
from state.compiled_part import LocalEntry
from state.config import parse
from state.control import handle as core
from state.control.facts import Kind
from state.control.home import HomeState, decode_state
from state.control.overlap import Asked, Side, Wordings
from state.control.protocol import Advertised, Change, decode
from state.control.samples import SAMPLE_MAX, TEXT_MAX, observed, samples_of, uniform
from state.control.streams import Outbox
from state.filters import grammar
from state.filters.printing import to_text
from state.keys import Key, is_wide
from state.messages import Record
from state.space.boxes import Boxes
from state.space.packing import Packed, pack, unpack
from state.space.points import ranks
from state.space.ranges import Ranges
from tests import oracle
from tests.simulation.invariants import check, examined
from tests.simulation.watch import Probe, Watch
from tests.simulation.wire import Event
from tests.simulation.world import World

CONFIG = """
[settings]
home_shards = {shards}
wide_shards = 1
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.t]
reduction = "{reduction}"
cubes = {cubes}
index = ["x", "y"]
advertisements = {advertised}
[types.t.pruning]
{budgets}
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 63 }}
y = {{ kind = "int", min = 0, max = 63 }}
z = {{ kind = "int", min = 0, max = 63 }}
"""
PLAIN = {name: {"kind": "int"} for name in "xyz"}
S, A = Kind.SUBSCRIPTION, Kind.ADVERTISEMENT
SUBSCRIPTIONS, ADVERTISEMENTS = "hilcast.subscriptions", "hilcast.advertisements"


def config_of(subscriptions=None, advertisements=None, cubes=64, shards=1, reduction="covering"):
    named = {"subscriptions": subscriptions, "advertisements": advertisements}
    budgets = "\n".join(f"{name} = {n}" for name, n in named.items() if n is not None)
    advertised = str(advertisements is not None).lower()
    return parse(CONFIG.format(budgets=budgets, advertised=advertised, cubes=cubes, shards=shards, reduction=reduction))


def subscribe(world, id, text, broker="b1"):
    world.send(SUBSCRIPTIONS, f"{broker}/t/{id}", text and {"client": f"c-{id}", "filter": text})


def advertise(world, id, text, broker="b1"):
    world.send(ADVERTISEMENTS, f"{broker}/t/{id}", text and {"publisher": f"p-{id}", "filter": text})


def home(world, broker="b1", number=0) -> HomeState:
    return decode_state(world.host(broker).states[f"{broker}/t/home:{number}"])


def pruned(world, kind, broker="b1", number=0):
    """By id how far each filter of one kind is pruned."""
    return home(world, broker, number).travelling.pruned[kind]


def travelling(world, kind=S, broker="b1"):
    """The travelling form of each filter of one kind, as text; None: as it was sent."""
    return {id: one.text for id, one in pruned(world, kind, broker).items()}


def predicates(world, kind=S, broker="b1"):
    return sum(one.predicates for one in pruned(world, kind, broker).values())


def event(x, y, z, broker="b3", source=""):
    return Event("e", "t", broker, json.dumps({"x": x, "y": y, "z": z}).encode(), source)


def got(world, x, y, z, broker="b3"):
    return {d.client for d in world.publish(event(x, y, z, broker))[0]}


def box(rng, names="xyz"):
    parts = []
    for name in names:
        low = rng.randint(0, 55)
        parts.append(f"{name} BETWEEN {low} AND {low + rng.choice((1, 4, 8))}")
    return " AND ".join(parts)


# --- settling -----------------------------------------------------------------------------------------------------

TYPE = config_of().types["t"]
HARM = {name: 10.0**i for i, name in enumerate("xyz")}
"""By attribute: what removing a predicate does; easy to foresee."""


def harm_of(filter) -> float:
    return sum(HARM[p] for p in to_text(filter) if p in HARM)


class PlainFilters:
    """Filters as text, judged by which attributes they name; those that name `z` last may not be pruned to `x`."""

    def __init__(self, texts):
        self.texts = texts

    def read(self, id, text):
        return grammar.parse(text or self.texts[id], TYPE, limits=False)

    def admits(self, id, pruned):
        return not to_text(pruned).startswith("x <")

    def settle(self, held, budget):
        """Bring what is held within a budget, as home does; return what changed, with what it was."""
        queue = DegradationQueue(
            lambda before: lambda after: harm_of(before) - harm_of(after),
            admits=self.admits,
            held=held,
            read=self.read,
        )
        queue.shrink(budget)
        queue.grow(budget)
        queue.check()
        return queue.changed()


LEAVES = st.builds("{} {} {}".format, st.sampled_from("xyz"), st.sampled_from(["<", ">"]), st.integers(1, 62))
TEXTS = st.one_of(
    LEAVES,
    st.lists(LEAVES, min_size=2, max_size=4).map(" AND ".join),
    st.tuples(LEAVES, LEAVES, LEAVES, LEAVES).map(lambda t: f"{t[0]} AND ({t[1]} OR {t[2]} AND {t[3]})"),
)
POINTS = [dict(zip("xyz", p, strict=True)) for p in itertools.product((0, 7, 20, 33, 48, 63), repeat=3)]


class SettlingFilters(RuleBasedStateMachine):
    """Filters come and go; after each settling the budget is met, or nothing is left to prune."""

    def __init__(self):
        super().__init__()
        self.texts, self.held, self.budget = {}, {}, 6

    @rule(id=st.integers(0, 5), text=TEXTS)
    def put(self, id, text):
        self.texts[id] = text
        self.held.pop(id, None)
        self.held[id] = Pruned(size(grammar.parse(text, TYPE)))
        self.settle()

    @rule(id=st.integers(0, 5))
    def remove(self, id):
        self.held.pop(id, None)
        self.settle()

    @rule(budget=st.integers(1, 12))
    def change(self, budget):
        self.budget = budget
        self.settle()

    def settle(self):
        before = {id: one.text for id, one in self.held.items()}
        changed = PlainFilters(self.texts).settle(self.held, self.budget)
        assert changed == {id: text for id, text in before.items() if self.held[id].text != text}

    @invariant()
    def within_the_budget(self):
        filters = PlainFilters(self.texts)
        total = 0
        for id, one in self.held.items():
            current = filters.read(id, one.text)
            assert size(current) == one.predicates
            total += one.predicates
            original, now = oracle.tree_of(self.texts[id]), oracle.tree_of(to_text(current))
            for point in POINTS:
                assert oracle.evaluate(now, point, PLAIN) or not oracle.evaluate(original, point, PLAIN)
        if total > self.budget:
            for id, one in self.held.items():
                options = prunings(filters.read(id, one.text))
                assert not any(filters.admits(id, pruned) for pruned in options)
        last = [(one.steps[-1].harm, one.steps[-1].before - one.predicates) for one in self.held.values() if one.steps]
        if last:
            costliest = max(harm for harm, _ in last)
            assert any(harm == costliest and total + gain > self.budget for harm, gain in last)


TestSettling = SettlingFilters.TestCase
TestSettling.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)


def test_the_least_harm_goes_first():
    """Of all filters the predicate goes whose loss is the least; on a tie the one that was there first."""
    texts = {"1": "y < 5 AND z < 5", "2": "x < 9 AND z < 9", "3": "x < 7 AND y < 7"}
    held, filters = {id: Pruned(2) for id in texts}, PlainFilters(texts)
    assert filters.settle(held, 5) == {"2": None}
    assert held["2"].text == "z < 9"
    assert filters.settle(held, 4) == {"3": None}
    assert held["3"].text == "y < 7"
    assert filters.settle(held, 5) in ({"2": "z < 9"}, {"3": "y < 7"})


# --- in the world -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "covering", "merging", "mics", "negative-space", "hybrid"])
def test_the_budget_is_met_and_deliveries_are_those_of_flooding(reduction):
    """Within a tight budget everybody gets exactly what matches the filter as it was sent."""
    world = World(config_of(subscriptions=14, advertisements=5, shards=2, reduction=reduction))
    rng = random.Random(reduction)
    asked = {f"s{i}": box(rng) for i in range(12)}
    for number, (id, text) in enumerate(asked.items()):
        subscribe(world, id, text, f"b{number % 3 + 1}")
        advertise(world, f"a{number}", box(rng, "xz"), f"b{number % 3 + 1}")
    advertise(world, "all", "TRUE", "b1")
    world.settle()
    check(world)
    for broker, number in itertools.product(("b1", "b2", "b3"), range(2)):
        assert sum(one.predicates for one in pruned(world, A, broker, number).values()) <= 5
    for text in asked.values():
        x, y, z = (int(part.split("AND")[0]) for part in text.split("BETWEEN")[1:])
        point = {"x": x, "y": y, "z": z}
        right = {f"c-{id}" for id, filter in asked.items() if oracle.evaluate(filter, point, PLAIN)}
        deliveries, _ = world.publish(event(x, y, z, "b1", "p-all"))
        assert right
        assert {d.client for d in deliveries} == right


def test_local_clients_get_what_they_asked_for():
    """A link carries what only the pruned filter holds; the client gets what its own filter holds."""
    world = World(config_of(subscriptions=2))
    subscribe(world, "s", "x BETWEEN 1 AND 5 AND y BETWEEN 1 AND 5 AND z < 50")
    world.settle()
    assert travelling(world)["s"] == "x BETWEEN 1 AND 5 AND y BETWEEN 1 AND 5"
    deliveries, links = world.publish(event(3, 3, 60))
    assert (deliveries, sorted(links)) == ([], [("b2", "b1"), ("b3", "b2")])
    assert got(world, 3, 3, 8) == {"c-s"}
    assert world.publish(event(6, 3, 8)) == ([], [])


def test_parts_that_only_the_pruned_form_touches_hold_nothing_local():
    """Where the exact filter is not, the part has an entry for neighbours and none for clients, and loses it again."""
    world = World(config_of(subscriptions=2))
    subscribe(world, "s", "x BETWEEN 1 AND 9 AND y BETWEEN 1 AND 2 AND y BETWEEN 0 AND 2")
    subscribe(world, "t", "y BETWEEN 1 AND 2")
    world.settle()
    deployment, parts = world.deployments[0], []
    for key in (k for k in deployment.index if k.broker == "b1"):
        entry = inside_of(world, key).state.local.get("s")
        if entry is not None and not entry.geometry.size:
            parts.append(key)
            assert entry.travelling.size
            assert "s" not in deployment.index[key].ids
    assert parts
    subscribe(world, "s", None)
    world.settle()
    assert not any("s" in inside_of(world, key).state.local for key in parts)
    check(world)


def inside_of(world, key):
    return examined(world).cubes[key]


def test_conformance_is_asked_of_the_advertisement_as_it_was_sent():
    """A publication outside the advertisement is refused, though the pruned one holds; pruned ones draw more."""
    world = World(config_of(advertisements=1))
    advertise(world, "a", "x < 9 AND z < 9")
    subscribe(world, "s", "x BETWEEN 1 AND 5 AND y < 5 AND z > 50", "b3")
    world.settle()
    assert travelling(world, A)["a"] in ("x < 9", "z < 9")
    assert world.publish_all([event(3, 3, 60, "b1", "p-a")])[0].refused
    assert not world.publish_all([event(3, 3, 3, "b1", "p-a")])[0].refused


def test_a_neighbour_is_told_the_pruned_geometry_and_no_text():
    """Abroad an advertisement is what its pruned form holds; its text stays where it entered."""
    world = World(config_of(advertisements=1))
    advertise(world, "a", "x BETWEEN 1 AND 5 AND y BETWEEN 1 AND 5")
    world.settle()
    text = travelling(world, A)["a"]
    name = text[0]
    key = Key("b2", "t", "wide:0")
    held = examined(world).cubes[key].state.advertised["b1"]["b1/a"]
    assert held.filter == ""
    geometry = unpack(held.geometry)
    dimension = "xyz".index(name)
    assert (geometry.lows[0, dimension], geometry.highs[0, dimension]) == (1, 5)
    assert (geometry.highs[0, [i for i in range(3) if i != dimension]] > 5).all()


def test_a_pruning_is_undone_when_there_is_room_again():
    """When a filter goes, what the others had lost comes back, costliest first, and only their parts are written to."""
    world = World(config_of(subscriptions=5, advertisements=4))
    for kind in (subscribe, advertise):
        for i in range(3):
            kind(world, f"f{i}", f"x BETWEEN {i} AND {i + 3} AND y BETWEEN {i} AND {i + 3}")
    world.settle()
    assert (predicates(world, S), predicates(world, A)) == (5, 4)
    for kind in (subscribe, advertise):
        kind(world, "f0", None)
    world.settle()
    assert {*travelling(world, S).values(), *travelling(world, A).values()} == {None}
    check(world)


def test_only_what_changed_is_sent_again():
    """A change of one filter that lets another be unpruned sends each part one message, with the concerned alone."""
    world = World(config_of(subscriptions=5))
    for i, x in enumerate((1, 20, 40)):
        subscribe(world, f"s{i}", f"x BETWEEN {x} AND {x + 1} AND y BETWEEN {x} AND {x + 1}")
    world.settle()
    shorter = [id for id, text in travelling(world).items() if text is not None]
    assert len(shorter) == 1
    gone = next(f"s{i}" for i in range(3) if f"s{i}" not in shorter)
    subscribe(world, gone, None)
    start = world.log.end("hilcast.control")
    world.deployments[0].step()
    sent = [decode(r.value) for r in world.log.topics["hilcast.control"][start:]]
    assert all(isinstance(message, Change) for message in sent)
    assert {entry.id for message in sent for entry in message.local} <= set(shorter)
    targets = [r.key for r in world.log.topics["hilcast.control"][start:]]
    assert len(set(targets)) == len(targets)


def test_there_is_no_gap_while_prunings_come_and_go():
    """Whatever mixture of old and new parts is in force, an event that stands gets through, pruned and unpruned."""
    forms = set()
    for seed in range(4):
        world = World(config_of(subscriptions=9, advertisements=6))
        rng = random.Random(seed)
        for broker in ("b1", "b3"):
            for i in range(3):
                subscribe(world, f"s{i}", box(rng), broker)
        subscribe(world, "kept", "x BETWEEN 1 AND 30 AND y BETWEEN 1 AND 4 AND z BETWEEN 1 AND 30")
        advertise(world, "kept", "x < 40 AND y < 40 AND z < 40", "b3")
        world.settle()
        watch = Watch(world)
        world.watch = watch
        point = {"x": 3, "y": 3, "z": 3}
        hops = {"b1": None, "b2": "b1", "b3": "b2"}
        place = np.array([ranks(TYPE, point)], np.int64)
        watch.stand([Probe(("b1", "t", "kept"), ("b3", "t", "kept"), point, place, hops)])
        for i in range(30):
            kind = rng.choice((subscribe, advertise))
            kind(world, f"s{rng.randint(0, 5)}", rng.choice((None, box(rng))), rng.choice(("b1", "b3")))
            world.deployments[0].step(rng)
            forms |= {travelling(world)["kept"], travelling(world, A, "b3")["kept"]}
            if i == 15:
                world.deployments[0].begin()
        world.settle()
        check(world)
        assert watch.looks > 100
    assert len(forms) > 3, "little was pruned and undone"


def test_a_filter_stays_with_its_kind_of_key():
    """What would touch more than an eighth of the cubes is not pruned to that, whatever the budget."""
    world = World(config_of(subscriptions=1))
    for i in range(6):
        subscribe(world, f"s{i}", f"x BETWEEN {i} AND {i + 1} AND y BETWEEN {i} AND {i + 1} AND z > {i}")
    world.settle()
    assert predicates(world) > 1
    for id, fact in home(world).facts[S].items():
        assert travelling(world)[id] is not None
        assert not fact.wide
        assert not is_wide(len(fact.parts), 64)


def test_a_wide_filter_may_be_pruned_to_anything():
    """A filter of a wide key stays there, and loses what its budget asks for."""
    world = World(config_of(subscriptions=1))
    subscribe(world, "s", "x > 3 AND y > 3 AND z > 60")
    world.settle()
    assert home(world).facts[S]["s"].parts == ["wide:0"]
    assert travelling(world)["s"] in ("x > 3", "y > 3", "z > 60")
    assert got(world, 9, 9, 9) == set()
    assert got(world, 9, 9, 62) == {"c-s"}


def test_what_holds_for_nothing_is_told_nobody():
    """A contradiction is not pruned into something that holds, and uses no budget."""
    world = World(config_of(subscriptions=2, advertisements=2))
    subscribe(world, "s", "x < 5 AND x > 9 AND y = 1")
    advertise(world, "a", "x < 5 AND x > 9 AND y = 1")
    subscribe(world, "all", "TRUE")
    world.settle()
    assert travelling(world, S) == travelling(world, A) == {}
    check(world)


# --- samples ------------------------------------------------------------------------------------------------------


def test_the_sample_decides_which_predicate_goes():
    """The pruning that adds the fewest of the last publications is chosen; without any, as if they were uniform."""
    rng = random.Random(3)
    for _ in range(5):
        world = World(config_of(subscriptions=2, cubes=1))
        points = [{n: rng.choice((rng.randint(0, 63), rng.randint(0, 9))) for n in "xyz"} for _ in range(200)]
        world.publish_all([event(**point) for point in points])
        world.deployments[0].begin()
        text = box(rng)
        leaves = [f"{part.strip()}" for part in text.replace("BETWEEN ", "BETWEEN_").split(" AND ")]
        leaves = [f"{a.replace('_', ' ')} AND {b}" for a, b in zip(leaves[::2], leaves[1::2], strict=True)]
        pruned = [" AND ".join(leaves[:i] + leaves[i + 1 :]) for i in range(3)]
        matched = [sum(oracle.evaluate(p, point, PLAIN) for point in points) for p in pruned]
        subscribe(world, "s", text)
        world.settle()
        assert travelling(world)["s"] == pruned[matched.index(min(matched))]


def test_a_sample_never_changes_within_its_generation():
    """What is published later changes no decision until the next generation begins."""
    text = "x < 9 AND y < 9"
    world = World(config_of(subscriptions=1, cubes=1))
    world.publish_all([event(x, 50, 0) for x in range(60)] + [event(50, 3, 0)] * 3)
    world.deployments[0].begin()  # y < 9 holds of 3, x < 9 of 9
    subscribe(world, "s", text)
    world.settle()
    assert travelling(world)["s"] == "y < 9"
    world.publish_all([event(50, y % 9, 0) for y in range(SAMPLE_MAX)])
    subscribe(world, "s", None)
    subscribe(world, "again", text)
    world.settle()
    assert travelling(world)["again"] == "y < 9"
    world.deployments[0].begin()
    world.settle()
    assert travelling(world)["again"] == "x < 9"


def test_advertisements_keep_what_keeps_subscriptions_away():
    """The predicate goes that violates the fewest predicates of subscriptions."""
    world = World(config_of(advertisements=1))
    for i in range(4):
        subscribe(world, f"s{i}", f"x > {40 + i}")
    subscribe(world, "s4", "y > 40")
    world.settle()
    advertise(world, "a", "y < 9 AND x < 9")
    world.settle()
    assert travelling(world, A)["a"] == "x < 9"
    for i in range(4):
        subscribe(world, f"s{i}", f"y > {40 + i}")
    subscribe(world, "s4", "x > 40")
    world.settle()
    advertise(world, "a", None)
    advertise(world, "b", "y < 9 AND x < 9")
    world.settle()
    assert travelling(world, A)["b"] == "y < 9"


def test_samples_are_the_last_publications_abridged():
    """Binary, structured and source records of pruned types count, the last 500 of them; nothing else is kept."""
    sources = '[[sources]]\ntopic = "old"\nbroker = "b1"\ntype = "t"\n'
    text = CONFIG.format(budgets="subscriptions = 1", advertised="false", cubes=8, shards=1, reduction="none")
    config = parse(sources + text.replace('z = { kind = "int", min = 0, max = 63 }', 'z = { kind = "text" }'))
    topic = config.topics.publications
    kind, structured = (("ce_type", b"t"),), (("Content-Type", b"application/cloudevents+json"),)
    values = [
        (topic, b'{"x": 1, "secret": 5}', kind),
        (topic, json.dumps({"type": "t", "data": {"x": 2}}).encode(), structured),
        ("old", b'{"x": 3, "y": {"min": 1, "max": 2}, "z": "' + b"a" * 900 + b'"}', ()),
        (topic, b"not JSON", kind),
        (topic, b"[1]", kind),
        (topic, None, kind),
        (topic, b'{"x": 4}', (("ce_type", b"other"),)),
    ]
    records = [Record(topic, 0, i, 0, None, value, headers) for i, (topic, value, headers) in enumerate(values)]
    assert samples_of(records, config) == {"t": [{"x": 1}, {"x": 2}, {"x": 3, "z": "a" * TEXT_MAX}]}
    many = [Record(topic, 0, i, 0, None, b'{"x": %d}' % i, kind) for i in range(2 * SAMPLE_MAX)]
    assert [e["x"] for e in samples_of(many, config)["t"]] == list(range(SAMPLE_MAX, 2 * SAMPLE_MAX))
    assert samples_of(many, config_of()) == {}


def test_without_publications_every_value_of_the_domain_is_as_likely():
    """The uniform sample lies evenly in the domains and is the same in every process; every kind has one."""
    attributes = """x = { kind = "int", min = 10, max = 20 }
f = { kind = "float", min = -1, max = 1 }
g = { kind = "float" }
b = { kind = "boolean" }
c = { kind = "category", values = ["u", "v"] }
at = { kind = "timestamp" }
name = { kind = "text" }"""
    base = CONFIG.partition("[types.t]")[0].format(shards=1)
    event_type = parse(f"{base}[types.t.attributes]\n{attributes}").types["t"]
    drawn = uniform(event_type)
    assert drawn == uniform(event_type)
    assert len(drawn) == SAMPLE_MAX == len(observed(event_type, []))
    assert {e["x"] for e in drawn} == set(range(10, 21))
    assert all(-1 <= e["f"] <= 1 for e in drawn)
    for name, low in (("x", lambda x: x <= 15), ("f", lambda f: f < 0), ("g", lambda g: g < 0), ("c", "u".__eq__)):
        assert abs(sum(low(e[name]) for e in drawn if e[name] is not None) / SAMPLE_MAX - 0.5) < 0.06
    for attribute in event_type.attributes:  # the least number of all has no finite value, the least text none
        assert sum(e[attribute.name] is None for e in drawn) <= 1


# --- replay and generations ---------------------------------------------------------------------------------------


def test_a_replay_prunes_the_same():
    """The same records on the same state give the same bytes, pruned, undone or ranked anew."""
    world = World(config_of(subscriptions=6, advertisements=4))
    rng = random.Random(5)
    deployment, states = world.deployments[0], {}
    for round in range(6):
        for i in range(4):
            subscribe(world, f"s{rng.randint(0, 6)}", rng.choice((None, box(rng), box(rng))))
            advertise(world, f"a{i}", rng.choice((None, box(rng))))
        records = [r for topic in (SUBSCRIPTIONS, ADVERTISEMENTS) for r in world.log.topics[topic][-4:]]
        key = "b1/t/home:0"
        first = core.handle(key, states.get(key), records, deployment.context(round))
        again = core.handle(key, states.get(key), records[::-1], World(world.config).deployments[0].context(round))
        assert (first.state, first.outputs, first.figures) == (again.state, again.outputs, again.figures)
        states[key] = first.state
    kept = decode_state(states["b1/t/home:0"]).travelling.pruned
    assert any(one.steps for filters in kept.values() for one in filters.values())


def test_a_restart_and_a_new_generation_keep_the_budget():
    """After a lost checkpoint, and with another budget or none, every key agrees and the budget is that of the file."""
    world = World(config_of(subscriptions=7, advertisements=5), [("b1",), ("b2", "b3")])
    rng = random.Random(8)
    for i in range(9):
        subscribe(world, f"s{i}", box(rng), f"b{i % 2 + 1}")
        advertise(world, f"a{i}", box(rng), f"b{i % 2 + 1}")
    world.settle()
    check(world)
    for budgets in ((7, 5), (3, 9), (None, 6), (9, None), (None, None)):
        config = config_of(*budgets)
        for deployment in world.deployments:
            deployment.restart()
            deployment.begin(config)
        world.settle()
        check(world)
        kinds = {kind for kind, filters in home(world).travelling.pruned.items() if filters}
        assert kinds == {k for k, n in zip((S, A), budgets, strict=True) if n is not None}


def test_a_changed_budget_is_a_new_generation():
    """Every budget has a fingerprint of its own; none has that of a file without the table."""
    prints = [config_of(s, a).fingerprint() for s, a in ((None, 1), (1, 1), (2, 1), (1, 2))]
    assert len(set(prints)) == 4


def test_figures_count_prunings():
    """Each pruning counts once, by kind; a batch without one counts none."""
    world = World(config_of(subscriptions=2, advertisements=1))
    subscribe(world, "s", "x > 3 AND y > 3 AND z > 60")
    advertise(world, "a", "x < 9 AND y < 9 AND z < 9")
    records = [*world.log.topics[SUBSCRIPTIONS], *world.log.topics[ADVERTISEMENTS]]
    result = core.handle("b1/t/home:0", None, records, world.deployments[0].context(1))
    assert result.figures == {"pruned:subscriptions": 1, "pruned:advertisements": 2}
    assert core.handle("b1/t/home:0", result.state, [], world.deployments[0].context(2)).figures == {}


def test_a_pruned_entry_is_cut_by_all_it_holds():
    """The length at which a message is cut counts both geometries of an entry."""
    big = Packed(0, 3, b"\0" * 240_000, b"\0" * 240_000)
    entries = [LocalEntry(str(i), "c", "t", None, Packed(0, 3, b"", b""), wider=big) for i in range(2)]
    assert len(Outbox(Key("b1", "t", "home:0"), 1, "g", {}).change("b1/t/cube:0", local=entries)) == 2


# --- meeting ------------------------------------------------------------------------------------------------------

SPANS = st.tuples(st.integers(0, 12), st.integers(0, 3)).map(lambda s: (s[0], s[0] + s[1]))
FLAT = st.lists(st.tuples(SPANS, SPANS), max_size=3)


def boxes_of(corners):
    return Boxes.of([([a[0], b[0]], [a[1], b[1]]) for a, b in corners], 2)


def cells_of(corners):
    return {(x, y) for a, b in corners for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)}


def met(asked, space, d):
    """Which of these geometries meet any of the others, as a side says."""
    side = Side(TYPE, Wordings(TYPE), d)
    for number, one in enumerate(space):
        side.put(str(number), Asked(one))
    return [side.first(Asked(one)) for one in asked]


@settings(max_examples=200, deadline=None)
@given(st.lists(FLAT, max_size=5), st.lists(FLAT, max_size=4))
def test_boxes_meet_where_they_share_a_point(asked, space):
    """A side finds what comparing cell by cell finds."""
    everywhere = set().union(*map(cells_of, space)) if space else set()
    assert met(map(boxes_of, asked), map(boxes_of, space), 2) == [bool(cells_of(one) & everywhere) for one in asked]


NUMBERS = st.sets(st.integers(0, 15))


def ranges_of(numbers):
    found = oracle.as_ranges(sorted(numbers))
    return Ranges(np.array([a for a, _ in found], np.int64), np.array([b for _, b in found], np.int64))


@settings(max_examples=200, deadline=None)
@given(st.lists(NUMBERS, max_size=5), st.lists(NUMBERS, max_size=4))
def test_ranges_meet_where_they_share_an_index(asked, space):
    """A side of ranges finds what sets of numbers find."""
    assert met(map(ranges_of, asked), map(ranges_of, space), 1) == [bool(one & set().union(*space)) for one in asked]


def test_an_advertisement_keeps_its_text_at_home():
    """Told a neighbour it has none, and nothing else changes."""
    here = Advertised("b1/a", "p", "x < 5", pack(Boxes.of([([1], [2])])))
    assert msgspec.structs.asdict(here.travelling) == {**msgspec.structs.asdict(here), "filter": ""}
    assert here.travelling.travelling == here.travelling
