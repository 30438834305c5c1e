"""Worlds in which every client has inboxes of its own: equal ids, forged names, limits, faults of all kinds."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.workloads import mixed
from tests.simulation.scenario import Size, draw
from tests.simulation.worlds import perform

SEEDS = range(12)
SIZE = 6


@pytest.mark.parametrize("seed", SEEDS)
def test_every_delivery_equals_flooding_with_own_inboxes(seed):
    """Whatever clients forge, withdraw of each other or ask for beyond their limits, everybody gets what he asked for.

    The answer to each record is in the receipts of the client whose inbox it is in, and nowhere else.
    """
    report = perform(draw(seed, mixed, Size(brokers=2 + seed % SIZE), own=True)).figures
    assert min(report["events compared at rest"], report["batches"], report["deliveries judged"]) > 0


def test_the_seeds_have_rivals_forgers_and_limits():
    """Among the worlds are equal ids of several clients, forged names, sinks that are not granted, quotas reached."""
    figures = Counter()
    for seed in SEEDS:
        scenario = draw(seed, mixed, Size(brokers=2 + seed % SIZE), own=True)
        assert all(config.security.own for config in scenario.configs())
        figures["limited"] += scenario.configs()[0].limits.any
        owners = {}
        for action in scenario.actions:
            if type(action).__name__ == "Register":
                owners.setdefault(action.name, set()).add(action.owner)
        figures["rivals"] += sum(len(some) > 1 for some in owners.values())
        figures += perform(scenario).figures if seed in (0, 1) else Counter()
        figures.update(getattr(action, "code", "") for action in scenario.actions)
    assert min(figures["limited"], figures["rivals"], figures["not-yours"], figures["sink-refused"]) > 0
