"""Clients served together in the simulated world: through both doors, with crashes between and within the effects."""

from __future__ import annotations

import random

import pytest

from tests.distribution import test_regrouping as mutants
from tests.simulation import keeper
from tests.simulation.drill import Failure
from tests.simulation.scenario import Begin, LoseIndex, Publish, Register, Regroup, Rest, Restart, Step, Withdraw
from tests.simulation.worlds import perform, scenario

CONFIG = """
[settings]
home_shards = 1
wide_shards = 1
[overlay]
brokers = ["a", "b"]
links = [["a", "b"]]
[types.t]
cubes = 1
[types.t.attributes]
x = { kind = "int", min = 0, max = 7 }
[distribution.a]
groups = 2
threshold = 0.0
regroup_s = 1
[distribution.b]
groups = 1
threshold = "fit"
broadcast = 0.3
regroup_s = 1
"""
SEEDS = range(12)
MUTANT_SEEDS = range(20)


def dense(seed: int):
    """A small world in which little else happens than that clients come and go between publications."""
    rng = random.Random(seed)
    actions = []
    for _ in range(60):
        name = (rng.choice("ab"), "t", f"s{rng.randint(0, 5)}")
        low = rng.randint(0, 6)
        text = f"x BETWEEN {low} AND {rng.randint(low, 7)}"
        subscribe = Register(name, f"c{rng.randint(0, 3)}", text, groups=rng.random() < 0.9)
        actions.append(subscribe if rng.random() < 0.7 else Withdraw(name))
        actions += [Step(0, rng.getrandbits(32), crash=rng.random() < 0.1) for _ in range(2)]
        if rng.random() < 0.5:
            actions.append(Regroup(0, rng.getrandbits(32)))
        actions.append(Publish(rng.getrandbits(32), 4))
        if rng.random() < 0.06:
            actions.append(Restart(0, rng.choice([None, ("a",), ("b",), ("a", "b")])))
        if rng.random() < 0.02:
            actions.append(rng.choice([Begin(0, seed), LoseIndex(0, seed)]))
    lanes = CONFIG.replace("wide_shards = 1", "wide_shards = 1\npartitions = 3")
    return scenario([lanes if seed % 2 else CONFIG], [("a", "b")], *actions, Rest(seed, 8))


def test_clients_that_read_their_spans_get_what_flooding_says():
    """Whatever changes, fails and dies while they are served through shared topics; and these are really used."""
    shared = 0
    for seed in SEEDS:
        shared += perform(dense(seed)).figures["copies by shared topics"]
    assert shared > 500


@pytest.mark.parametrize(
    "mutant", [mutants.SwitchFirst, mutants.CloseAtOnce, mutants.ForgetSpans, mutants.LeaveWithoutSwitch]
)
def test_another_order_loses(monkeypatch, mutant):
    """With the steps in another order, or one of them left out, some client does not read what names it, or would not
    if it were named."""
    monkeypatch.setattr(keeper, "Regrouping", mutant)

    def loses(seed):
        try:
            perform(dense(seed))
        except Failure as failure:
            return failure.kind in ("outside its spans", "spans at rest")
        return False

    assert any(loses(seed) for seed in MUTANT_SEEDS)
