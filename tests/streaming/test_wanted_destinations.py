"""Destinations that are counted as facts come and go, against those of all facts."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

from state.config import parse
from streaming.wanted_destinations import WantedDestinations

CONFIG = parse("""
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = { kind = "int" }
""")


def test_what_is_counted_is_what_all_facts_say():
    """After every change, at hosted brokers and at others, by clients' own topics and by sinks."""
    config = replace(CONFIG, deployment=replace(CONFIG.deployment, hosts=("b1",)))
    rng, facts, wanted, seen = random.Random(3), {}, WantedDestinations(config), 0
    for _ in range(2000):
        kind = rng.choice(("subscription", "subscription", "advertisement"))
        key = (kind, rng.choice(("b1", "b2")), "t", f"s{rng.randint(0, 5)}")
        sink, owner = rng.choice((None, None, "x", "y")), rng.choice("abc")
        fact = rng.choice((None, SimpleNamespace(live=rng.random() < 0.7, sink=sink, owner=owner)))
        facts[key] = fact
        wanted.follow(key, fact)
        live = [(k[1], f) for k, f in facts.items() if k[0] == "subscription" and f is not None and f.live]
        assert set(wanted.hosted) == {f.sink or f"hilcast.deliver.{f.owner}" for b, f in live if b == "b1"}
        assert set(wanted.sinks) == {f.sink for _, f in live if f.sink is not None}
        seen += len(wanted.hosted)
    assert seen > 2000
