"""Publications that are boxes, through the whole core against the oracle of one event."""

import random

import msgspec
import pytest

from state.config import parse
from state.filters.evaluate import matches
from state.filters.grammar import parse as parse_filter
from tests.simulation.wire import Event
from tests.simulation.world import World

CONFIG = """
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.t]
reduction = "{reduction}"
parameters = {parameters}
cubes = 16
index = ["x", "y"]
[types.t.attributes]
x = {{ kind = "int", min = 0, max = 100, imprecise = "possible" }}
y = {{ kind = "int", min = 0, max = 100, imprecise = "certain" }}
name = {{ kind = "text" }}
"""


REDUCTIONS = [
    ("covering", "{}"),
    ("merging", "{ budget = 0.5 }"),
    ("mics", "{}"),
    ("mics", '{ merging = "imperfect", gap_cells = 40 }'),
    ("mics", '{ mode = "indexed" }'),
    ("negative-space", "{}"),
    ("negative-space", '{ mode = "approximate", k = 3 }'),
    ("hybrid", "{}"),
]


@pytest.mark.parametrize(("reduction", "parameters"), REDUCTIONS)
def test_imprecise_events_reach_whom_they_concern(reduction, parameters):
    """An event that is a box is delivered once to whom it possibly or certainly concerns, whatever cubes it touches."""
    rng = random.Random(3)
    config = parse(CONFIG.format(reduction=reduction, parameters=parameters))
    event_type = config.types["t"]
    world = World(config)
    filters = {}
    for i in range(40):
        low_x, low_y = rng.randint(0, 90), rng.randint(0, 90)
        text = f"x BETWEEN {low_x} AND {low_x + rng.randint(0, 40)} AND y >= {low_y}"
        if i % 4 == 0:
            text += " OR name LIKE '%z'"
        filters[f"c{i}"] = parse_filter(text, event_type)
        world.send("hilcast.subscriptions", f"b{rng.randint(1, 3)}/t/s{i}", {"client": f"c{i}", "filter": text})
    world.settle()
    some = 0
    for n in range(80):
        event = {name: _value(rng) for name in ("x", "y")} | {"name": rng.choice(["abcdefghz", "abcdefgha"])}
        expected = {client for client, tree in filters.items() if matches(tree, event, event_type)}
        deliveries, _ = world.publish(Event(str(n), "t", f"b{rng.randint(1, 3)}", msgspec.json.encode(event)))
        assert sorted(d.client for d in deliveries) == sorted(expected), event
        some += bool(expected)
    assert some > 20


def _value(rng):
    low = rng.randint(0, 100)
    return low if rng.random() < 0.4 else {"min": low, "max": low + rng.randint(0, 30)}


@pytest.mark.parametrize(("reduction", "parameters"), REDUCTIONS)
def test_imprecise_events_find_subscriptions_that_share_no_value_with_their_advertisement(reduction, parameters):
    """An event may touch both what its publisher advertised and what a subscription asks for, though no value does."""
    rng = random.Random(4)
    text = CONFIG.format(reduction=reduction, parameters=parameters)
    config = parse(text.replace("cubes = 16", "cubes = 16\nadvertisements = true"))
    event_type = config.types["t"]
    world = World(config)
    world.send("hilcast.advertisements", "b3/t/a", {"publisher": "p", "filter": "x > 70 AND y >= 20"})
    filters = {}
    for i in range(30):
        low = rng.randint(0, 60)
        asked = f"x BETWEEN {low} AND {low + 5} AND y >= {rng.randint(0, 60)}"
        filters[f"c{i}"] = parse_filter(asked, event_type)
        world.send("hilcast.subscriptions", f"b{rng.randint(1, 3)}/t/s{i}", {"client": f"c{i}", "filter": asked})
    world.settle()
    some = 0
    for n in range(40):
        event = {"x": {"min": rng.randint(0, 60), "max": rng.randint(71, 100)}, "y": rng.randint(20, 100)}
        expected = {client for client, tree in filters.items() if matches(tree, event, event_type)}
        deliveries, _ = world.publish(Event(str(n), "t", "b3", msgspec.json.encode(event), "p"))
        assert sorted(d.client for d in deliveries) == sorted(expected), event
        some += bool(expected)
    assert some > 20


LISTS = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
a = { kind = "int", imprecise = "possible" }
b = { kind = "int", imprecise = "possible" }
d = { kind = "int", imprecise = "possible" }
"""


def test_an_interval_is_delivered_where_its_one_value_is():
    """Three long lists have too many boxes to write out; an event of intervals is delivered as one of values is."""
    world = World(parse(LISTS))
    odd = " AND ".join(f"{name} NOT IN ({', '.join(str(n) for n in range(0, 200, 2))})" for name in "abd")
    world.send("hilcast.subscriptions", "b1/t/s", {"client": "c", "filter": odd})
    world.settle()
    for n, value in enumerate((1, {"min": 1, "max": 1}, {"min": 0, "max": 9}, 2, {"min": 2, "max": 2})):
        event = Event(str(n), "t", "b2", msgspec.json.encode(dict.fromkeys("abd", value)))
        assert len(world.publish(event)[0]) == (n < 3), value


def test_what_no_event_could_be_held_against_is_refused():
    """A filter whose cases are too many is refused when it is registered, and says what to do."""
    names = [f"a{i}" for i in range(30)]
    attributes = "\n".join(f'{name} = {{ kind = "int", imprecise = "certain" }}' for name in names)
    world = World(parse(LISTS + attributes))
    asked = " OR ".join(f"({a} < 1 AND {b} < 2)" for a, b in zip(names, [*names[1:], names[0]], strict=True))
    world.send("hilcast.subscriptions", "b1/t/s", {"client": "c", "filter": asked})
    world.settle()
    (receipt,) = (msgspec.json.decode(record.value) for record in world.log.topics["hilcast.receipts"])
    assert (receipt["kind"], receipt["code"]) == ("refused", "filter-limit")
