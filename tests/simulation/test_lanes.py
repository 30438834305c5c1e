"""Lanes in the simulated world: topics of several partitions, hop by hop, and more of them while events pass."""

from __future__ import annotations

import json
from collections import defaultdict

from state.config import parse
from tests.simulation.wire import Event, mark_of
from tests.simulation.world import World
from tests.simulation.worlds import plane

HOSTING = [("a",), ("b",), ("c",), ("d",)]
LINKS = [("a", "b"), ("b", "c"), ("c", "d")]


def world_of(settings: str) -> World:
    world = World(parse(plane("a-b", "b-c", "c-d", cubes=1, settings=settings)), HOSTING)
    for broker, client in (("d", "far"), ("b", "near")):
        world.send("hilcast.subscriptions", f"{broker}/t/s", {"client": client, "filter": "x <= 60"})
    world.settle()
    return world


def publish(world: World, n: int):
    """Events at the far end; what each client must get of them, by mark."""
    events = [Event(f"e{world.posted + i}", "t", "a", json.dumps({"x": i % 100, "y": 1}).encode()) for i in range(n)]
    posted = world.post([event.publication(world.config.topics) for event in events])
    world.route()
    right = {mark_of(r.headers) for r in posted.records if json.loads(r.value)["x"] <= 60}
    return posted, right


def marks(world: World, topic: str):
    """By partition: the marks of its records, in order."""
    return {
        world.log.topics[name][0].partition: [mark_of(r.headers) for r in world.log.topics[name]]
        for name in world.log.lanes([topic])
        if world.log.topics[name]
    }


def test_what_stands_in_one_partition_goes_on_in_one_in_order():
    """Over three hops between four deployments: each lane of a link is in the order of its input, and all are used."""
    world = world_of("partitions = 3")
    posted, right = publish(world, 200)
    entered = {mark_of(r.headers): r.partition for r in posted.records}
    assert set(entered.values()) == {0, 1, 2}
    for a, b in LINKS:
        lanes = marks(world, world.config.topics.link(a, b))
        assert set(lanes) == {0, 1, 2}, "every lane is used"
        assert {mark for lane in lanes.values() for mark in lane} == right
        goes_on = defaultdict(set)
        for lane, some in lanes.items():
            assert some == sorted(some), f"out of order on {a}-{b}/{lane}"
            for mark in some:
                goes_on[entered[mark]].add(lane)
        assert all(len(where) == 1 for where in goes_on.values()), goes_on
    for client in ("far", "near"):
        (lane,) = marks(world, world.config.topics.deliver(client)).values()
        assert set(lane) == right
        for partition in range(3):
            some = [mark for mark in lane if entered[mark] == partition]
            assert some == sorted(some), "a delivery topic has one partition, and keeps the order of each input"


def test_deliveries_may_have_lanes_of_their_own():
    """As many as are set, whatever links have: each input partition goes on in one, in order, and all are used."""
    world = world_of("partitions = 4\ndelivery_partitions = 3")
    posted, right = publish(world, 200)
    entered = {mark_of(r.headers): r.partition for r in posted.records}
    for client in ("far", "near"):
        lanes = marks(world, world.config.topics.deliver(client))
        assert set(lanes) == {0, 1, 2}
        assert sorted(mark for lane in lanes.values() for mark in lane) == sorted(right), "once each"
        goes_on = defaultdict(set)
        for lane, some in lanes.items():
            for mark in some:
                goes_on[entered[mark]].add(lane)
            for partition in range(4):
                same = [mark for mark in some if entered[mark] == partition]
                assert same == sorted(same), f"out of order for {client} in {lane}"
        assert all(len(where) == 1 for where in goes_on.values()), goes_on


def test_a_route_batch_has_a_slice_of_every_lane():
    """As many lines in the routing log as input partitions, at every deployment on the way."""
    world = world_of("partitions = 3")
    publish(world, 60)
    lines = [json.loads(r.value) for r in world.log.topics[world.config.topics.routed]]
    seen = defaultdict(set)
    for line in lines:
        seen[line["deployment"], line["topic"]].add(line["partition"])
    links = [(f"d{i + 1}", f"hilcast.link.{a}.{b}") for i, (a, b) in enumerate(LINKS)]
    inputs = [("d0", "hilcast.publications"), *links]
    assert {place: seen[place] for place in inputs} == {place: {0, 1, 2} for place in inputs}


def test_topics_grow_while_events_are_on_their_way():
    """What stands in the lanes that there were, and what comes in those that are new, is delivered; fewer, too."""
    world = world_of("")
    total = set()
    own = "delivery_partitions = {}\n".format
    for settings in ("", "partitions = 2", own(4), f"{own(4)}partitions = 5", "", own(2), "partitions = 3"):
        config = parse(plane("a-b", "b-c", "c-d", cubes=1, settings=settings))
        world.config = config
        for deployment in world.deployments:
            events = [Event(f"g{world.posted + i}", "t", "a", b'{"x": 1, "y": 1}') for i in range(7)]
            posted = world.post([event.publication(config.topics) for event in events])
            world.deployments[0].route()  # some is on its way while the others change
            deployment.begin(config)
            total |= {mark_of(r.headers) for r in posted.records}
            world.settle()
        world.route()
    for client in ("far", "near"):
        lanes = marks(world, config.topics.deliver(client))
        assert len(lanes) > 1, "some came while there were several"
        assert sorted(mark for lane in lanes.values() for mark in lane) == sorted(total), "once each: nothing crashed"
