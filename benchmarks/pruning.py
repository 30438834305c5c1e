"""What pruning within budgets saves of the control traffic, and what it costs on links: the auction of [BADV06] §6.1.

    python -m benchmarks.pruning                    600 subscriptions and 120 advertisements, in about two minutes
    python -m benchmarks.pruning --subscriptions N --advertisements N --events N
    python -m benchmarks.pruning --reduction none

Seven brokers in one simulated overlay, through the real core (`tests/simulation/world.py`): advertisements and
subscriptions come in batches, a fifth of either leaves again, then events are published. Events before that are the
sample. Budgets are shares of the predicates that all filters of a kind use; each row of a table is one run:

    predicates    of all filters of the pruned kind, as neighbours are told them in the end
    pruned        filters that lost some
    entries       subscriptions (each in a cube) that brokers told each other or took back
    advertised    the same of advertisements
    KB            length of these messages
    held, boxes   entries that brokers hold for their neighbours in the end, and their boxes
    crossings     publications on links; extra: those beyond what is needed without pruning

Every run must deliver what evaluating every filter on every event says. Neighbours are told boxes, not trees, so that a
predicate less is a box less only where it stood in a disjunction; a pruning, and undoing it, are changes of their own.
The paper measures memory by predicates and the time of one broker (`benchmarks/advertisements.py`).
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from benchmarks.control import BROKERS, OVERLAY
from benchmarks.report import plot, show
from benchmarks.workloads.auction import AUCTION, Auction
from state.config import Config, parse
from state.control.protocol import Change, decode
from state.filters.evaluate import compile
from state.filters.printing import to_text
from state.filters.tree import Filter
from state.keys import Key
from state.space.event_type import Pruning
from state.space.packing import unpack
from tests.simulation.invariants import examined
from tests.simulation.wire import Event
from tests.simulation.world import World

ONE_HOME = """
[settings]
home_shards = 1
"""
SHARES = (0.9, 0.75, 0.6, 0.5, 0.4)
BATCH = 50
LEAVE = 0.2
Values = Mapping[str, object]


@dataclass(frozen=True)
class Market:
    """What is asked for, announced and published; every publisher stays with one broker."""

    subscriptions: dict[str, tuple[str, Filter]]
    """By id: where it enters, and what it asks for."""
    advertisements: dict[str, tuple[str, Filter]]
    leaving: frozenset[str]
    sample: list[Values]
    events: list[tuple[str, str, Values]]
    """Broker, publisher and values; every one is advertised."""
    wanted: list[frozenset[str]]
    """By event: the subscriptions that must get it."""


def market(subscriptions: int, advertisements: int, events: int) -> Market:
    """Draw everything; the same numbers give the same market."""
    auction, rng = Auction(seed=7), random.Random(7)
    asked = {f"s{i}": (rng.choice(BROKERS), f) for i, f in enumerate(auction.subscriptions(subscriptions))}
    announced = {f"a{i}": (rng.choice(BROKERS), f) for i, f in enumerate(auction.advertisements(advertisements))}
    ids = [*asked, *announced]
    leaving = frozenset(rng.sample(ids, int(LEAVE * len(ids))))
    kept = {id: (broker, compile(f, AUCTION)) for id, (broker, f) in announced.items() if id not in leaving}
    offers: list[Values] = list(auction.publications(500))
    published: list[tuple[str, str, Values]] = []
    while len(published) < events:
        offer = next(auction.publications(1))
        conforming = [(broker, f"p-{id}") for id, (broker, holds) in kept.items() if holds(offer)]
        if conforming:
            published.append((*rng.choice(conforming), offer))
    staying = {id: compile(f, AUCTION) for id, (_, f) in asked.items() if id not in leaving}
    wanted = [frozenset(id for id, holds in staying.items() if holds(offer)) for _, _, offer in published]
    return Market(asked, announced, leaving, offers, published, wanted)


@dataclass
class Run:
    """One run, counted."""

    predicates: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    held: int = 0
    boxes: int = 0
    crossings: int = 0
    pruned: int = 0


def run(config: Config, given: Market) -> Run:
    """Put a market through the core, and compare deliveries."""
    world, found = World(config), Run()
    for number, offer in enumerate(given.sample):
        world.publish(Event(f"sample-{number}", AUCTION.name, BROKERS[number % 7], msgspec.json.encode(offer)))
    world.deployments[0].begin()
    for _ in batches(world, given):
        world.settle()
    inside = examined(world)
    for home in inside.homes.values():
        for kind, filters in home.state.travelling.pruned.items():
            found.predicates[kind[0]] += sum(one.predicates for one in filters.values())
            found.pruned += sum(bool(one.steps) for one in filters.values())
    for cube in inside.cubes.values():
        for held in cube.state.received.values():
            found.held += len(held)
            found.boxes += sum(len(unpack(entry.geometry)) for entry in held.values())
    found.told = said(world)
    deliver(world, given, found)
    return found


def batches(world: World, given: Market) -> Iterator[None]:
    """Send everything in batches, then let some leave."""
    topics = world.config.topics
    kinds = (
        (topics.advertisements, "publisher", given.advertisements),
        (topics.subscriptions, "client", given.subscriptions),
    )
    for leave in (False, True):
        sent = 0
        for topic, owner, filters in kinds:
            for id, (broker, filter) in filters.items():
                if leave and id not in given.leaving:
                    continue
                client = f"p-{id}" if owner == "publisher" else id
                value = None if leave else {owner: client, "filter": to_text(filter)}
                world.send(topic, f"{broker}/{AUCTION.name}/{id}", value)
                sent += 1
                if sent % BATCH == 0:
                    yield
        yield


def said(world: World) -> Counter[str]:
    """What brokers told each other."""
    found: Counter[str] = Counter()
    for record in world.log.topics[world.config.topics.control]:
        message = decode(record.value or b"")
        target = Key.parse((record.key or b"").decode())
        if isinstance(message, Change) and Key.parse(message.source).broker != target.broker:
            found["entries"] += len(message.entries) + len(message.removed)
            found["advertised"] += len(message.advertised) + len(message.unadvertised)
            found["bytes"] += len(record.value or b"")
    return found


def deliver(world: World, given: Market, found: Run) -> None:
    events = [
        Event(str(i), AUCTION.name, broker, msgspec.json.encode(offer), publisher)
        for i, (broker, publisher, offer) in enumerate(given.events)
    ]
    for outcome, wanted in zip(world.publish_all(events), given.wanted, strict=True):
        assert not outcome.refused
        got = {id for delivery in outcome.deliveries for id in delivery.subscriptions}
        assert got == wanted, f"delivered to {sorted(got ^ wanted)} otherwise than flooding"
        found.crossings += len(outcome.links)


def config_of(reduction: str, pruning: Pruning) -> Config:
    event_type = replace(AUCTION, reduction=reduction, pruning=pruning, cubes=16)
    return replace(parse(ONE_HOME + OVERLAY), types={AUCTION.name: event_type})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pruning", description=__doc__.splitlines()[0])
    parser.add_argument("--subscriptions", type=int, default=600, help="how many come (600)")
    parser.add_argument("--advertisements", type=int, default=120, help="how many come (120)")
    parser.add_argument("--events", type=int, default=1000, help="publications (1000)")
    parser.add_argument("--reduction", default="covering", help="of the type (covering)")
    given = parser.parse_args()
    drawn = market(given.subscriptions, given.advertisements, given.events)
    # a budget nobody exceeds counts the predicates and prunes nothing
    loose = run(config_of(given.reduction, Pruning(10**9, 10**9)), drawn)
    plain = run(config_of(given.reduction, Pruning()), drawn)
    assert (loose.told, loose.crossings, loose.pruned) == (plain.told, plain.crossings, 0)
    lines: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for kind, name in (("s", "subscriptions"), ("a", "advertisements")):
        rows, xs, ys = [row("none", loose, plain, kind)], [1.0], [1.0]
        for share in SHARES:
            budget = max(1, int(share * loose.predicates[kind] / len(BROKERS)))
            pruning = Pruning(subscriptions=budget) if kind == "s" else Pruning(advertisements=budget)
            pruned = run(config_of(given.reduction, pruning), drawn)
            rows.append(row(f"{share:.0%}", pruned, plain, kind))
            xs.append(pruned.predicates[kind] / loose.predicates[kind])
            ys.append(pruned.crossings / plain.crossings)
        head = ("budget", "predicates", "pruned", "entries", "advertised", "KB", "held", "boxes", "crossings", "extra")
        show(f"{name} pruned, {given.reduction}: {len(drawn.events):,} events delivered as by flooding", head, rows)
        lines[name] = xs, ys
    plot("pruning", lines, "share of predicates left", "publications on links, against no pruning")


def row(label: str, one: Run, plain: Run, kind: str) -> tuple[object, ...]:
    told = one.told
    extra = f"{one.crossings / plain.crossings - 1:+.1%}"
    counted = (told["entries"], told["advertised"], told["bytes"] // 1024)
    return (label, one.predicates[kind], one.pruned, *counted, one.held, one.boxes, one.crossings, extra)


if __name__ == "__main__":
    main()
