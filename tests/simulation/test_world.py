"""The whole core in a simulated world against flooding."""

import json
import random
from collections import defaultdict

import msgspec
import pytest

from benchmarks.workloads.mixed import events, filters
from state.config import parse
from tests import oracle
from tests.simulation.wire import Event
from tests.simulation.world import SimulatedDeployment, World

CONFIG = """
[overlay]
brokers = ["b1", "b2", "b3", "b4", "b5", "b6", "b7"]
links = [["b1", "b2"], ["b2", "b3"], ["b2", "b4"], ["b4", "b5"], ["b4", "b6"], ["b1", "b7"]]
[types."stock.quote"]
reduction = "{reduction}"
cubes = {cubes}
advertisements = {advertisements}
[types."stock.quote".attributes]
symbol = {{ kind = "text" }}
price = {{ kind = "float", min = 0, max = 1000 }}
volume = {{ kind = "int", min = 0, max = 1000000 }}
side = {{ kind = "category", values = ["buy", "sell", "none"] }}
at = {{ kind = "timestamp" }}
halted = {{ kind = "boolean" }}
"""
TYPE = "stock.quote"
SUBSCRIPTIONS = "hilcast.subscriptions"
ADVERTISEMENTS = "hilcast.advertisements"


def config_of(reduction="covering", cubes=8, advertisements=False):
    return parse(CONFIG.format(reduction=reduction, cubes=cubes, advertisements=str(advertisements).lower()))


def plain_type(config):
    return {
        a.name: {"kind": a.kind, **({"values": list(a.values)} if a.values else {})}
        for a in config.types[TYPE].attributes
    }


class Drill:
    """Random clients over a world, and what they must get."""

    def __init__(self, seed, config, hosting=None, advertised=False, keyring=None):
        self.rng = random.Random(seed)
        self.config = config
        self.world = World(config, hosting, keyring)
        self.filter = filters(config.types[TYPE], seed)
        self.event = events(config.types[TYPE], seed)
        self.live = {}
        self.plain = plain_type(config)
        if advertised:
            for broker in config.overlay.brokers:
                self.world.send(ADVERTISEMENTS, f"{broker}/{TYPE}/a", {"publisher": broker, "filter": self.filter()})

    def change(self):
        broker = self.rng.choice(self.config.overlay.brokers)
        id = f"s{self.rng.randint(0, 40)}"
        key = f"{broker}/{TYPE}/{id}"
        if self.rng.random() < 0.3:
            self.world.send(SUBSCRIPTIONS, key, None)
            self.live.pop((broker, id), None)
            return
        client, text = f"c{self.rng.randint(0, 9)}", self.filter()
        self.world.send(SUBSCRIPTIONS, key, {"client": client, "filter": text})
        self.live[broker, id] = (client, text)

    def expected(self, event):
        found = defaultdict(set)
        for (_, id), (client, text) in self.live.items():
            if oracle.evaluate(text, event, self.plain):
                found[client].add(id)
        return {client: tuple(sorted(ids)) for client, ids in found.items()}

    def compare(self, n):
        matched = 0
        for i in range(n):
            event = self.event()
            broker = self.rng.choice(self.config.overlay.brokers)
            deliveries, _ = self.world.publish(Event(str(i), TYPE, broker, msgspec.json.encode(event)))
            got = {}
            for delivery in deliveries:
                got[delivery.client] = tuple(sorted({*got.get(delivery.client, ()), *delivery.subscriptions}))
            expected = self.expected(event)
            assert got == expected, (broker, json.dumps(event))
            matched += bool(expected)
        return matched


REDUCTIONS = ["none", "covering", "merging", "mics", "negative-space"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("cubes", [1, 16])
def test_every_delivery_equals_flooding(reduction, cubes):
    """After the overlay has come to rest, each event reaches exactly the clients whose filter holds."""
    drill = Drill(7, config_of(reduction, cubes))
    matched = 0
    for _ in range(2):
        for _ in range(30):
            drill.change()
        drill.world.settle()
        matched += drill.compare(30)
    assert matched > 12


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_two_deployments_make_one_overlay(reduction):
    """An overlay hosted by two deployments delivers as one hosted by one, through the loss of a checkpoint."""
    drill = Drill(8, config_of(reduction), [("b1", "b2", "b7"), ("b3", "b4", "b5", "b6")])
    for round_number in range(2):
        for _ in range(30):
            drill.change()
        drill.world.settle()
        drill.compare(20)
        drill.world.deployments[round_number].begin()
        drill.compare(20)
        drill.world.settle()
        drill.compare(20)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("seed", range(2))
def test_crashes_and_replays_change_nothing(reduction, seed):
    """Batches that crash half written and are replayed, and batches cut anywhere, lead to the same deliveries."""
    drill = Drill(seed, config_of(reduction), [("b1", "b2"), ("b3", "b4", "b5", "b6", "b7")])
    for _ in range(2):
        for _ in range(25):
            drill.change()
            deployment = drill.rng.choice(drill.world.deployments)
            deployment.step(drill.rng, crash=drill.rng.random() < 0.3)
        drill.world.settle()
        drill.compare(25)


@pytest.mark.parametrize("seed", range(4))
def test_the_generation_in_force_is_heard_until_the_next_one_takes_over(monkeypatch, seed):
    """What is registered while a generation is built, and in force by the one before, is known to other deployments at
    once, and still once the new one has taken over."""
    config = parse(TWO)
    world, rng, asked = World(config, [("b1", "b2"), ("b3",)]), random.Random(seed), []
    world.settle()
    world.send("hilcast.subscriptions", "b1/t/first", {"client": "first", "filter": "x < 5"})
    world.settle()

    def delivered(x):
        found, _ = world.publish(Event(f"e{x}", "t", "b3", msgspec.json.encode({"x": x})))
        return {d.client for d in found}

    def meanwhile():
        if not takes_over:
            asked.append(f"c{len(asked)}")
            filter = f"x = {10 * len(asked)}"
            world.send("hilcast.subscriptions", f"b1/t/{asked[-1]}", {"client": asked[-1], "filter": filter})
            world.settle()
            assert delivered(10 * len(asked)) == {asked[-1]}

    def amend(heir, before):
        takes_over.append(heir)
        amended(heir, before)

    takes_over, amended = [], SimulatedDeployment._amend
    monkeypatch.setattr(SimulatedDeployment, "_amend", amend)
    world.deployments[0].succeed(config, rng, meanwhile)
    assert takes_over
    world.settle()
    assert [delivered(10 * (i + 1)) for i in range(len(asked))] == [{client} for client in asked]


TWO = """
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types.t.attributes]
x = { kind = "int", min = 0, max = 100 }
"""
