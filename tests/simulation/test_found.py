"""What the simulator found: each fault as the shortest scenario that shows it."""

from __future__ import annotations

from state.simulation.scenario import Begin, Publish, Register, Rest
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
