"""What the simulator found: each fault as the shortest scenario that shows it."""

from __future__ import annotations

from tests.simulation.scenario import Begin, LoseMessage, Publish, Register, Rest, Step
from tests.simulation.worlds import perform, plane, scenario

NARROW, WIDE = "x BETWEEN 2 AND 5 AND y BETWEEN 2 AND 5", "x BETWEEN 2 AND 90 AND y BETWEEN 2 AND 90"


def test_a_new_generation_keeps_the_kind_of_key():
    """A filter that stayed with its cubes when it was widened is with them still after its broker was rebuilt:
    a neighbour of another deployment, which is told part by part, never loses sight of it."""
    for before, after in ((NARROW, WIDE), (WIDE, NARROW)):
        subscribe = [Register(("a", "t", "s"), "c", text) for text in (before, after)]
        for seed in range(4):
            happens = (*subscribe, Rest(seed, 4), Begin(0, seed), Publish(seed, 2), Rest(seed, 4))
            perform(scenario([plane("a-b", "b-c")], [("a",), ("b", "c")], *happens))


def test_deployments_that_cut_their_state_differently_do_not_mislead_each_other():
    """While one deployment already has another number of wide keys, the other goes on with what it knew."""
    before, after = (plane("a-b", settings=f"home_shards = 1\nwide_shards = {n}") for n in (4, 1))
    subscribe = [Register(("b", "t", f"s{i}"), "c", f"x > {10 + i} AND y < {50 + i}") for i in range(8)]
    for seed in range(4):
        steps = [Step(0, seed + i) for i in range(3)]
        happens = (*subscribe, Rest(seed, 4), Begin(0, seed, 1), Begin(1, seed, 0), *steps, Rest(seed, 4))
        perform(scenario([before, after], [("a",), ("b",)], *happens))


def test_deployments_with_different_reductions_do_not_mislead_each_other():
    """While one deployment already speaks of ranges and the other still of boxes, each goes on with what it knew."""
    before, after = (plane("a-b", "b-c", reduction=reduction) for reduction in ("covering", "mics"))
    subscribe = [Register((broker, "t", f"s{broker}"), "c", NARROW) for broker in "abc"]
    for seed in range(4):
        steps = [Step(1, seed + i) for i in range(3)]
        happens = (*subscribe, Rest(seed, 4), Begin(0, seed, 1), *steps, Publish(seed, 4), Rest(seed, 4))
        perform(scenario([before, after], [("a",), ("b", "c")], *happens))


def test_several_streams_that_lost_their_last_message_recover():
    """Where the last messages of several streams are lost, what the recovery of one says is no gap in another."""
    subscribe = [Register((broker, "t", f"s{broker}"), "c", NARROW) for broker in "abc"]
    for seed in (0, 2, 5):
        steps = [Step(deployment, seed) for deployment in range(3)]
        lost = [LoseMessage(100 * seed + i) for i in range(4)]
        happens = (*subscribe, *steps, *lost, Rest(seed, 4))
        perform(scenario([plane("a-b", "b-c", cubes=2)], [("a",), ("b",), ("c",)], *happens))
