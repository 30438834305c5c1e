"""What must be true of a world at rest, seen from inside: both ends of every stream agree, and the index is the state.

home                           what travels is within its budget, or can be pruned no further
home ──stream──> part          the part holds what home's facts say, clipped to it
part ──stream──> neighbour     the neighbour holds what the reduction says is forwarded
state ──> index                the index in force is the state, compiled
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from state.advertisements.queue import size
from state.compiled_part import CompiledPart, LocalEntry
from state.config import Config
from state.control.context import Context
from state.control.facts import Kind, Name
from state.control.home import Home
from state.control.journal import Kept
from state.control.part import Part
from state.control.protocol import Advertised
from state.index_delta import box_rows
from state.keys import Key, index_keys
from state.space.packing import BOXES, pack
from tests.simulation.world import World


def home_keys(config: Config, brokers: tuple[str, ...]) -> list[Key]:
    """Every home key of these brokers, in a fixed order."""
    shards = range(config.settings.home_shards)
    return [Key(b, t, f"home:{i}") for b in brokers for t in config.types for i in shards]


@dataclass(frozen=True)
class Stream:
    """One pair of keys, and how far each end is: generation and sequence."""

    source: str
    target: str
    sent: tuple[int, int]
    received: tuple[int, int]


def check(world: World) -> int:
    """Assert everything about a world at rest; return how many parts were looked at."""
    return len(examined(world).cubes)


def examined(world: World) -> Inside:
    """The inside of a world at rest, with everything about it asserted."""
    inside = Inside(world)
    late = [stream for stream in inside.streams() if stream.sent != stream.received]
    assert not late, f"streams whose ends disagree: {late[:3]}"
    for home in inside.homes.values():
        inside.check_travelling(home)
    for key, cube in inside.cubes.items():
        inside.check_local(key, cube)
        inside.check_links(key, cube)
        inside.check_index(key, cube)
    return inside


class Inside:
    """The keys of all deployments, unpacked."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.contexts = {d.name: d.context(d.batch) for d in world.deployments}
        self.cubes: dict[Key, Part] = {}
        self.homes: dict[Key, Home] = {}
        for deployment in world.deployments:
            context = self.contexts[deployment.name]
            for key in index_keys(deployment.config, deployment.hosts):
                self.cubes[key] = Part(key, deployment.states.get(str(key)), context)
                for worker in deployment.workers:
                    self._check_kept(worker, key, context)
            for key in home_keys(deployment.config, deployment.hosts):
                self.homes[key] = Home(key, deployment.states.get(str(key)), context)

    def _check_kept(self, worker: Kept[Part], key: Key, context: Context) -> None:
        """A part that a process keeps is the one that its bytes are."""
        blob, part = worker._kept.get(str(key), (None, None))
        if part is not None:
            again = Part(key, blob, context)
            assert part.encoded() == again.encoded(), f"kept otherwise than unpacked: {key}"

    def streams(self) -> Iterator[Stream]:
        """Every stream that was opened, with both its ends."""
        sequences = {key: home.state.sequences for key, home in self.homes.items()}
        sequences |= {key: cube.state.sequences for key, cube in self.cubes.items()}
        for key, by_target in sequences.items():
            generation = self.world.host(key.broker).generation
            for target, sequence in by_target.items():
                if sequence:
                    received = self.cubes[Key.parse(target)].state.incoming.get(str(key), (generation, 0))
                    yield Stream(str(key), target, (generation, sequence), received)

    def check_travelling(self, home: Home) -> None:
        """What neighbours are told is of live filters, counted right, and within the budgets of the type."""
        budgets = home.type.pruning
        for kind, budget in zip(Kind, (budgets.advertisements, budgets.subscriptions), strict=True):
            facts, held = home.state.facts[kind], home.state.travelling.pruned[kind]
            assert not held or budget is not None, f"pruned without a budget: {home.key}"
            assert all(facts[id].live for id in held), f"something that is gone travels: {home.key}"
            forms = {id: home.travelling.form(Name(kind, id)) or home.filters.sent(facts[id].sent) for id in held}
            counted = {id: size(form) for id, form in forms.items()}
            assert counted == {id: one.predicates for id, one in held.items()}, f"counted wrong: {home.key}"
            met = budget is None or sum(counted.values()) <= budget
            assert met or all(one.spent for one in held.values()), f"above the budget of {budget}: {home.key}"

    def pruned(self) -> int:
        """How many filters travel pruned."""
        kinds = [kind for home in self.homes.values() for kind in home.state.travelling.pruned.values()]
        return sum(bool(one.steps) for filters in kinds for one in filters.values())

    def check_local(self, key: Key, cube: Part) -> None:
        """The part holds exactly what the facts of its homes say."""
        said: dict[Name, LocalEntry | Advertised] = {}
        for home_key, home in self.homes.items():
            if (home_key.broker, home_key.type) == (key.broker, key.type):
                said |= home.everything(key.part)
        local = {name.id: entry for name, entry in said.items() if name.kind is Kind.SUBSCRIPTION}
        assert cube.state.local == local, f"not what home says: {key}: {_differing(cube.state.local, local)}"
        advertised = {
            f"{key.broker}/{name.id}": entry for name, entry in said.items() if name.kind is Kind.ADVERTISEMENT
        }
        held = cube.state.advertised.get("", {})
        assert held == advertised, f"not what home says: {key}: {_differing(held, advertised)}"

    def check_links(self, key: Key, cube: Part) -> None:
        """Each neighbour holds exactly what was forwarded to it, and every reduction is sound."""
        for neighbour in cube.neighbours:
            reduction = cube.reduction(neighbour)
            if cube.state.reductions.get(neighbour) and self._has_points(key):
                reduction.check()
            there = self.cubes[key.at(neighbour)].state
            forwarded = {id: pack(geometry) for id, geometry in reduction.forwarded().items()}
            held = {id: entry.geometry for id, entry in there.received.get(key.broker, {}).items()}
            assert held == forwarded, f"not what was forwarded: {key} -> {neighbour}: {_differing(held, forwarded)}"
            said: dict[str, Advertised] = {}
            for interface, advertised in cube.state.advertised.items():
                said |= {id: a.travelling for id, a in advertised.items()} if interface != neighbour else {}
            known = there.advertised.get(key.broker, {})
            assert known == said, f"not what was forwarded: {key} -> {neighbour}: {_differing(known, said)}"

    def _has_points(self, key: Key) -> bool:
        """Whether any event can lie in a part: an attribute of few values leaves some cubes without any."""
        if key.is_wide:
            return True
        low, high = self.world.host(key.broker).grids[key.type].cube_box(key.number)
        return bool((low <= high).all())

    def check_index(self, key: Key, cube: Part) -> None:
        """What routing uses is the state, compiled."""
        index = self.world.host(key.broker).index[key]
        assert comparable(index) == comparable(cube.compiled()), f"the index is not the state: {key}"


def comparable(part: CompiledPart) -> tuple[object, ...]:
    """What a part says, in whatever order it came."""
    links = {n: sorted(box_rows(p)) if p.kind == BOXES else p for n, p in part.links.items() if p.size}
    return {entry.id: entry for entry in part.entries()}, links, part.advertisements, part.stamp


def _differing(held: Mapping[str, object], right: Mapping[str, object]) -> str:
    missing = sorted(set(right) - set(held))
    extra = sorted(set(held) - set(right))
    other = sorted(id for id in set(held) & set(right) if held[id] != right[id])
    return f"missing {missing[:3]}, not to be there {extra[:3]}, different {other[:3]}"
