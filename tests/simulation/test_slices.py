"""The simulated world routes by the real door: with faults, by groups; and a door that is broken is found out."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from state.config import Distribution, parse
from state.distribution.broker_groups import BrokerGroups
from state.routing import delivery, route
from state.space.boxes import Boxes
from tests.simulation.slices import Slices
from tests.simulation.wire import Event
from tests.simulation.world import World

CONFIG = """
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.t]
cubes = 4
[types.t.attributes]
x = { kind = "int", min = 0, max = 100 }
[[sources]]
topic = "legacy"
broker = "b2"
type = "t"
"""
HOSTING = [("b1", "b3"), ("b2",)]


def world_of(grouped=False):
    """Two deployments, one of which has both ends of the overlay; four clients at three brokers."""
    world = World(parse(CONFIG + ("[distribution.b1]\ngroups = 1\nthreshold = 0.0\n" if grouped else "")), HOSTING)
    world.slices = Slices()
    for i, client in enumerate(["ann", "bob", "cy", "ann"]):
        value = {"client": client, "filter": f"x < {20 * (i + 1)}", "groups": grouped}
        world.send("hilcast.subscriptions", f"b{i % 3 + 1}/t/s{i}", value)
    world.settle()
    return world


def wanted(x):
    clients = [("ann", "s0", 20), ("bob", "s1", 40), ("cy", "s2", 60), ("ann", "s3", 80)]
    return {(client, id) for client, id, limit in clients if x < limit}


def publications(world, xs):
    """In turn: binary, structured, plain JSON of a source topic, something bad."""
    topics, made = world.config.topics, []
    for i, x in enumerate(xs):
        event = Event(str(i), "t", f"b{i % 3 + 1}", b'{"x": %d}' % x)
        plain = replace(event.publication(topics), topic="legacy", headers=())
        bad = replace(event, type="u").publication(topics)
        made.append((event.publication(topics), event.structured(topics), plain, bad)[i % 4])
    return made


def reached(outcome):
    return {(delivery.client, id) for delivery in outcome.deliveries for id in delivery.subscriptions}


@pytest.mark.parametrize("seed", range(4))
def test_batches_that_crash_are_replayed_and_lose_nothing(seed):
    """Whatever of a route batch was written when it died, the replay writes the rest; repeats have equal ids."""
    rng, world = random.Random(seed), world_of()
    xs = [rng.randint(0, 99) for _ in range(24)]
    posted = world.post(publications(world, xs))

    def batch(deployment):
        for _ in range(rng.randint(1, 3)):
            deployment.route(rng, crash=True)
        deployment.route(rng)

    world.route(batch)
    repeats = 0
    for i, (x, outcome) in enumerate(zip(xs, world.outcomes(posted), strict=True)):
        assert reached(outcome) == (set() if i % 4 == 3 else wanted(x))
        assert set(outcome.letters) == ({"unknown-type"} if i % 4 == 3 else set())
        by_client = {}
        for one in outcome.deliveries:
            by_client.setdefault(one.client, set()).add(one.id)
        assert all(len(ids) == 1 for ids in by_client.values())
        repeats += len(outcome.deliveries) - len({(d.client, d.subscriptions) for d in outcome.deliveries})
    assert repeats > 0
    assert not any(deployment.behind_in_routing() for deployment in world.deployments)


def test_clients_are_served_together_by_an_assignment():
    """An assignment of a broker goes into its snapshot: what it shares reaches the same clients, in fewer copies."""
    world = world_of(grouped=True)
    grouping = BrokerGroups(Distribution(1, threshold=0.0), world.config.types)
    for id, client in (("s0", "ann"), ("s3", "ann")):
        grouping.put("t", id, client, Boxes.everything(1))
    grouping.settle()
    world.deployments[0].assignments["b1"] = grouping.assignment()
    xs = list(range(0, 100, 5))
    posted = world.post([Event(str(x), "t", "b2", b'{"x": %d}' % x).publication(world.config.topics) for x in xs])
    world.route()
    through = set()
    for x, outcome in zip(xs, world.outcomes(posted), strict=True):
        assert reached(outcome) == wanted(x)
        through |= {(one.client, one.through) for one in outcome.deliveries}
    assert ("ann", "hilcast.group.b1.0") in through
    assert ("cy", "hilcast.deliver.cy") in through
    assert world.slices.seen["shared messages"] > 0
    world.deployments[0].begin()
    assert not world.deployments[0].snapshot().sharing, "a new generation serves everybody alone"


def _lose_letters(right):
    return lambda table, refused, topics: right(table, dict([*refused.items()][1:]), topics)


def _mix_up_ids(right):
    return lambda digests, event, clients, recipients: right(digests, np.zeros_like(event), clients, recipients)


def _write_twice(right):
    return lambda *given: [right(*given), right(*given)]


def _count_none(right):
    return lambda *given: right(*given[:-2], np.zeros_like(given[-2]), given[-1])


def _write_nothing(right):
    return lambda *given: delivery.Written(0, 0)


def _stamp_another_epoch(right):
    return lambda outgoing, envelopes, snapshot, *given: right(
        outgoing, envelopes, replace(snapshot, epoch="9.9"), *given
    )


@pytest.mark.parametrize(
    ("module", "name", "broken", "why"),
    [
        (route, "dead_letters", _lose_letters, "routing log"),
        (delivery, "delivery_ids", _mix_up_ids, "delivery id"),
        (route, "_write_links", _write_twice, "more than once"),
        (route, "_log", _count_none, "routing log"),
        (route, "write_deliveries", _write_nothing, "routing log"),
        (route, "write_deliveries", _stamp_another_epoch, "epoch"),
    ],
)
def test_a_broken_door_is_found_out(monkeypatch, module, name, broken, why):
    """The judge of slices sees what a door that does one thing wrong wrote."""
    world = world_of()
    world.post(publications(world, range(0, 99, 4)))
    monkeypatch.setattr(module, name, broken(getattr(module, name)))
    with pytest.raises(AssertionError, match=why):
        world.route()
