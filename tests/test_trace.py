"""The way of an event against the route of the same world, and against filters asked one by one."""

from __future__ import annotations

import random

import msgspec
import pytest

from state.errors import HilcastError
from state.explain import Event
from state.keys import Key, index_keys
from state.trace import traced
from tests import oracle
from tests.simulation.wire import Event as Publication
from tests.test_explain import ATTRIBUTES, REDUCTIONS, Simulated, advertise, random_event, random_filter, subscribe
from tests.test_explain import world_of as world_under


@pytest.mark.parametrize("advertisements", ["false", "true"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_way_is_the_one_that_routing_takes(reduction, advertisements):
    """Links crossed and subscriptions met are those of `route` with the same index, imprecise events included."""
    draw = random.Random(reduction + advertisements)
    world = world_under(reduction, advertisements)
    for broker in range(1, 5):
        advertise(world, f"b{broker}", f"ad{broker}", "x < 6 OR y < 6 OR name IS NOT NULL")
    filters = {}
    for i in range(14):
        filters[f"s{i}"] = (f"b{draw.randint(1, 4)}", random_filter(draw))
        subscribe(world, filters[f"s{i}"][0], f"s{i}", filters[f"s{i}"][1])
    world.settle()
    met = 0
    for n in range(30):
        attributes, entry = random_event(draw), f"b{draw.randint(1, 4)}"
        source = draw.choice([f"ad{entry[1]}-owner", "nobody"])
        found = traced(world.config, Event(entry, "t", source, f"e{n}", attributes), Simulated(world))
        deliveries, links = world.publish(Publication(f"e{n}", "t", entry, msgspec.json.encode(attributes), source))
        got = {id for delivery in deliveries for id in delivery.subscriptions}
        assert {(p.origin, p.target) for p in found.passages if p.carried} == set(links)
        assert {match.id for match in found.matches} == got
        if found.admitted:
            holding = {id for id, (_, text) in filters.items() if oracle.evaluate(text, attributes, ATTRIBUTES)}
            assert {m.id for m in found.matches} == holding
        assert all(filters[m.id][0] == m.broker and m.client == f"{m.id}-owner" for m in found.matches)
        assert found.matching == len(found.matches)
        assert found.admitted == (advertisements == "false" or source != "nobody")
        met += len(got)
    assert met > 10


def test_every_link_out_of_a_reached_broker_is_told():
    """Brokers come in the order in which the event comes to them; each of their other links is told once."""
    world = world_under()
    subscribe(world, "b4", "s", "x = 1")
    world.settle()
    found = traced(world.config, Event("b1", "t", "p", "e", {"x": 1}), Simulated(world))
    assert found.reached == ("b1", "b2", "b4")
    assert [(p.origin, p.target, p.carried, p.asked) for p in found.passages] == [
        ("b1", "b2", True, "x 1"),
        ("b2", "b3", False, None),
        ("b2", "b4", True, "x 1"),
    ]


def test_what_the_index_lacks_is_not_known():
    """A link whose parts are missing is neither carried nor stopped, and the parts are named."""
    world = world_under()
    subscribe(world, "b4", "s", "x = 1")
    world.settle()
    hidden = [key for key in index_keys(world.config, ("b1",)) if key.type == "t"]
    found = traced(world.config, Event("b1", "t", "p", "e", {"x": 1}), Simulated(world, hidden=hidden))
    assert [p.carried for p in found.passages] == [None]
    assert found.unknown
    assert {Key.parse(name).broker for name in found.unknown} == {"b1"}


@pytest.mark.parametrize(("broker", "type_name", "code"), [("b9", "t", "unknown-broker"), ("b1", "x", "unknown-type")])
def test_names_must_be_of_the_configuration(broker, type_name, code):
    """An event of an unknown broker or type is refused with its code."""
    world = world_under()
    with pytest.raises(HilcastError) as refused:
        traced(world.config, Event(broker, type_name, "p", "e", {}), Simulated(world))
    assert refused.value.code == code
