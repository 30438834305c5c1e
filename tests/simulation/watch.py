"""The watch over what stands: at every moment, in any mixture of old and new parts, each hop must carry its events.

A route task may hold one part of the index in an old version and another in a new one, and parts come into force one by
one. So it is not enough that the newest parts together let an event through: at each broker on its way there must be a
part that has carried it in *every* version since the generation began.

    probe    a subscription that stands, an event it matches, and the brokers the event comes by
    steady   for each probe and broker: the parts that have carried it all the time; never empty
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from state.compiled_part import CompiledPart
from state.keys import Key
from state.space.boxes import Boxes, Ranks
from state.space.grid import Grid
from state.space.packing import unpack
from state.space.ranges import Ranges
from tests.simulation.ledger import Name
from tests.simulation.world import SimulatedDeployment, World


@dataclass(frozen=True, eq=False)
class Probe:
    """An event that a standing subscription must get, wherever on `brokers` it is."""

    name: Name
    advertisement: Name | None
    """The one that lets the event in, where one is needed."""
    event: Mapping[str, object]
    ranks: Ranks
    next_hop: Mapping[str, str | None]
    """By broker: the neighbour on the way to the subscription's broker; None: it is there."""
    _places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def place(self, grid: Grid) -> tuple[int, int]:
        """The cube and the Hilbert index of the event."""
        if grid.hash not in self._places:
            index = int(grid.index(self.ranks)[0])
            self._places[grid.hash] = index * grid.cubes >> grid.index_bits, index
        return self._places[grid.hash]


@dataclass
class Watch:
    """Follows every part that comes into force."""

    world: World
    probes: list[Probe] = field(default_factory=list)
    looks: int = 0
    _steady: dict[tuple[int, str], set[str]] = field(default_factory=dict)
    """By number of the probe and broker."""

    def stand(self, probes: Sequence[Probe]) -> None:
        """Watch over these from now on."""
        self.probes = list(probes)
        self._steady = {}
        for number in range(len(self.probes)):
            for deployment in self.world.deployments:
                self._begin(number, deployment)

    def drop(self, keep: Sequence[Probe]) -> None:
        """Watch over these only; what they have seen stays."""
        kept = {id(probe) for probe in keep}
        numbers = [i for i, probe in enumerate(self.probes) if id(probe) in kept]
        self._steady = {
            (numbers.index(i), broker): parts for (i, broker), parts in self._steady.items() if i in numbers
        }
        self.probes = [self.probes[i] for i in numbers]

    def __call__(self, deployment: SimulatedDeployment, key: Key | None) -> None:
        """A part came into force, or (None) a whole generation."""
        for number, probe in enumerate(self.probes):
            if key is None:
                self._begin(number, deployment)
            elif probe.name[1] == key.type and key.broker in probe.next_hop:
                self._look(number, deployment, key)

    def _begin(self, number: int, deployment: SimulatedDeployment) -> None:
        probe = self.probes[number]
        for broker, neighbour in probe.next_hop.items():
            if broker not in deployment.hosts:
                continue
            steady = {
                key.part
                for key, part in deployment.index.items()
                if (key.broker, key.type) == (broker, probe.name[1])
                and self._carries(probe, part, neighbour, key, deployment)
            }
            assert steady, self._missed(probe, broker, "a new generation does not carry it")
            self._steady[number, broker] = steady

    def _look(self, number: int, deployment: SimulatedDeployment, key: Key) -> None:
        probe = self.probes[number]
        steady = self._steady[number, key.broker]
        if key.part not in steady:
            return
        part = deployment.index[key]
        if not self._carries(probe, part, probe.next_hop[key.broker], key, deployment):
            steady.discard(key.part)
            assert steady, self._missed(probe, key.broker, f"no part has carried it all the time, {key.part} neither")

    def _carries(
        self, probe: Probe, part: CompiledPart, neighbour: str | None, key: Key, deployment: SimulatedDeployment
    ) -> bool:
        self.looks += 1
        cube, index = probe.place(deployment.grids[key.type])
        if not key.is_wide and cube != key.number:
            return False
        if neighbour is None:
            return _delivers(part, probe.name[2], probe.ranks)
        return neighbour in part.links and _holds(part, neighbour, probe.ranks, index)

    def _missed(self, probe: Probe, broker: str, why: str) -> str:
        target = probe.next_hop[broker] or "its client"
        return f"a gap: {probe.name} may miss {dict(probe.event)} at {broker} on the way to {target}: {why}"


def _delivers(part: CompiledPart, id: str, ranks: Ranks) -> bool:
    boxes = unpack(part.boxes)
    assert isinstance(boxes, Boxes)
    owners = np.frombuffer(part.owners, "<i4")
    mine = np.isin(owners, [i for i, other in enumerate(part.ids) if other == id])
    return bool(boxes.take(mine).contains(ranks)[0])


def _holds(part: CompiledPart, neighbour: str, ranks: Ranks, index: int) -> bool:
    geometry = unpack(part.links[neighbour])
    if isinstance(geometry, Ranges):
        return bool(geometry.contains(np.array([index]))[0])
    return bool(geometry.contains(ranks)[0])
