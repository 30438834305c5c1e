"""The contract of every reduction, as a Hypothesis state machine against a naive oracle.

A test of a reduction supplies a factory and a guarantee; everything else is here:

    from tests.reductions.contract import BoxSpace, Contract, machine

    SPACE = BoxSpace((0, 0), (4, 4))
    CONTRACT = Contract(make=make, decode=decode, space=SPACE, guarantee="exact")
    TestCovering = machine(CONTRACT).TestCase

The machine adds, removes, replaces, takes out an entry together with what it covers, and routes, on a space so small
that everything collides, and after every step asserts

- the guarantee: *exact*: the neighbour's union is the live entries' union; *superset*: it contains it, the
  excess is counted; *one-sided*: it is inside it, what is lost is counted (`Contract.tally`; the test that
  owns the bound asserts it), and every "not covered" is true;
- the deltas: applied one by one at a simulated neighbour they give `forwarded()`; at no point in between does
  an entry that stands before and after have a gap; nothing the neighbour already holds is sent again;
- `decide` says what `update` then does, and changes nothing; its witness, if it gives one, is a proof;
- an entry that overlaps itself is refused by an assertion, and nothing of its step is done; an id removed twice, or
  never added, and an entry without a box or range are no error;
- the fate of each entry: who is named is held by the neighbour, and holds the entry;
- `check()` and `stats()`; equal histories give equal deltas and bytes; `decode(encode())` is the same
  reduction and goes on like it (the machine goes on with the decoded one); state that was cut short, or is of another
  format, is refused.

The oracle is a dictionary of sets of points. It shares no code with what is tested: it reads the arrays of
`Boxes` and `Ranges` and enumerates.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from state.errors import HilcastError
from state.reductions.reduction import Decision, Delta, Reduction
from state.space.boxes import Boxes
from state.space.packing import Geometry
from state.space.ranges import Ranges

Guarantee = Literal["exact", "superset", "one-sided"]
Point = tuple[int, ...]
Points = frozenset[Point]
Named = tuple[str, str]
"""Where a contract is: the name of its module among the tests of reductions, and its own."""

IDS = tuple("abcdefgh")
"""Few ids, so that most additions replace."""


# --- spaces: what entries look like, and which points they hold ---------------------------------------------


@dataclass(frozen=True)
class BoxSpace:
    """Every point of one small closed box of ranks, and entries of up to `boxes_max` disjoint boxes in it."""

    low: Point
    high: Point
    boxes_max: int = 3
    empty: bool = True
    """Whether entries without a box occur: a filter clipped to a cube that it does not meet."""

    def all_points(self) -> Points:
        sides = [range(low, high + 1) for low, high in zip(self.low, self.high, strict=True)]
        return frozenset(itertools.product(*sides))

    def points(self, entry: Geometry) -> Points:
        held: set[Point] = set()
        for low, high in zip(entry.lows.tolist(), entry.highs.tolist(), strict=True):  # type: ignore[union-attr]
            assert all(a <= b for a, b in zip(low, high, strict=True)), "a box is upside down"
            assert all(a >= b for a, b in zip(low, self.low, strict=True)), "a box leaves the space"
            assert all(a <= b for a, b in zip(high, self.high, strict=True)), "a box leaves the space"
            held.update(itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True))))
        return frozenset(held)

    def entries(self) -> st.SearchStrategy[Geometry]:
        sides = [
            st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)
            for low, high in zip(self.low, self.high, strict=True)
        ]
        boxes = st.lists(st.tuples(*sides), min_size=0 if self.empty else 1, max_size=self.boxes_max)
        return boxes.map(self._disjoint)

    def twice(self, entry: Geometry, row: int) -> Boxes:
        """An entry that is none: one of its boxes stands in it a second time, as large as its lowest point."""
        assert isinstance(entry, Boxes)
        corner = entry.lows[row : row + 1]
        return entry.joined(Boxes(corner, corner))

    def _disjoint(self, boxes: list[tuple[list[int], ...]]) -> Boxes:
        kept: list[tuple[list[int], ...]] = []
        for box in boxes:
            if not any(all(a[0] <= b[1] and b[0] <= a[1] for a, b in zip(box, k, strict=True)) for k in kept):
                kept.append(box)
        return Boxes.of([([s[0] for s in box], [s[1] for s in box]) for box in kept], d=len(self.low))


@dataclass(frozen=True)
class RangeSpace:
    """Every Hilbert index of a small domain, and entries of up to `ranges_max` disjoint ranges in it."""

    first: int
    last: int
    ranges_max: int = 4
    empty: bool = True

    def all_points(self) -> Points:
        return frozenset((h,) for h in range(self.first, self.last + 1))

    def points(self, entry: Geometry) -> Points:
        held: set[Point] = set()
        previous = None
        for start, end in zip(entry.starts.tolist(), entry.ends.tolist(), strict=True):  # type: ignore[union-attr]
            assert start <= end, "a range is upside down"
            assert previous is None or previous < start, "ranges are not sorted and disjoint"
            previous = end
            held |= {(h,) for h in range(start, end + 1)}
        return frozenset(held)

    def entries(self) -> st.SearchStrategy[Geometry]:
        ends = st.integers(self.first, self.last)
        cuts = st.sets(ends, min_size=0 if self.empty else 1, max_size=2 * self.ranges_max)
        return cuts.map(sorted).map(self._paired)

    def twice(self, entry: Geometry, row: int) -> Ranges:
        """An entry that is none: the first cell of one of its ranges stands in it a second time."""
        assert isinstance(entry, Ranges)
        first = entry.starts[row]
        return Ranges(np.insert(entry.starts, row + 1, first), np.insert(entry.ends, row + 1, first))

    def _paired(self, cuts: list[int]) -> Ranges:
        # A last odd end stands for a range of one cell; ranges that would touch become one.
        ends = [*cuts, *cuts[-1:]] if len(cuts) % 2 else cuts
        pairs: list[tuple[int, int]] = []
        for start, end in zip(ends[::2], ends[1::2], strict=True):
            if pairs and start <= pairs[-1][1] + 1:
                start = pairs.pop()[0]
            pairs.append((start, end))
        return Ranges(np.array([s for s, _ in pairs], np.int64), np.array([e for _, e in pairs], np.int64))


Space = BoxSpace | RangeSpace


# --- the contract -------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What was seen over all runs of a machine: the measure of supersets and of one-sided errors."""

    states: int = 0
    states_lost: int = 0
    """States in which the neighbour's union missed a live point."""
    points_live: int = 0
    points_lost: int = 0
    points_excess: int = 0


def _naive_route(space: Space, held: Mapping[str, Geometry], point: Point) -> bool:
    return any(point in space.points(entry) for entry in held.values())


@dataclass(frozen=True)
class Contract:
    """What one reduction claims."""

    make: Callable[[], Reduction]
    decode: Callable[[bytes], Reduction]
    space: Space
    guarantee: Guarantee = "exact"
    complete: bool = False
    """Whether `decide` says "covered" for all that the forwarded entries cover together (subsumption)."""
    whole: bool = True
    """Whether an entry goes whole under its own id (the box family)."""
    route: Callable[[Mapping[str, Geometry], Point], bool] | None = None
    """How a neighbour would look a publication up in what it holds; None: by plain containment."""
    examples: int = 40
    steps: int = 25
    tally: Tally = field(default_factory=Tally)


def machine(contract: Contract) -> type[RuleBasedStateMachine]:
    """The state machine of `contract`; its `.TestCase` is what pytest collects."""
    space = contract.space
    ids, entries = st.sampled_from(IDS), space.entries()
    points = st.sampled_from(sorted(space.all_points()))

    class ReductionMachine(_Machine):
        def __init__(self) -> None:
            super().__init__(contract)

        @rule(id=ids, entry=entries)
        def add_or_replace(self, id: str, entry: Geometry) -> None:
            self.add_one(id, entry)

        @rule(id=ids, times=st.integers(1, 2))
        def remove(self, id: str, times: int) -> None:
            self.change({}, [id] * times)

        @rule(added=st.dictionaries(ids, entries, max_size=5), removed=st.lists(ids, max_size=3))
        def change_many(self, added: dict[str, Geometry], removed: list[str]) -> None:
            self.change(added, removed)

        @precondition(lambda self: self.live)
        @rule(
            rank=st.integers(0, 2),
            order=st.permutations(IDS),
            stay=st.lists(ids, max_size=2, unique=True),
            replaced=st.dictionaries(ids, entries, max_size=2),
        )
        def take_out_with_what_it_covers(
            self, rank: int, order: list[str], stay: list[str], replaced: dict[str, Geometry]
        ) -> None:
            self.take_out(rank, order, stay, replaced)

        @rule(id=ids, entry=entries, again=st.integers(0, 9), removed=st.lists(ids, max_size=2))
        def refuse_what_overlaps_itself(self, id: str, entry: Geometry, again: int, removed: list[str]) -> None:
            self.refuse_overlapping(id, entry, again, removed)

        @rule(entry=entries)
        def decide(self, entry: Geometry) -> None:
            self.decide_only(entry)

        @rule(point=points)
        def route(self, point: Point) -> None:
            self.route_one(point)

        @rule()
        def go_on_with_the_decoded(self) -> None:
            self.swap()

        @rule(share=st.floats(0, 1))
        def refuse_what_is_cut(self, share: float) -> None:
            self.refuse(share)

        @invariant()
        def keeps_its_guarantee(self) -> None:
            self.check_guarantee()

        @invariant()
        def is_sound(self) -> None:
            self.check_structure()

    ReductionMachine.__doc__ = machine.__doc__
    case = ReductionMachine.TestCase
    case.settings = settings(
        max_examples=contract.examples,
        stateful_step_count=contract.steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    return ReductionMachine


class _Machine(RuleBasedStateMachine):
    """The steps, apart from Hypothesis' rules: also driven by `replay`."""

    def __init__(self, contract: Contract) -> None:
        super().__init__()
        self.contract = contract
        self.space = contract.space
        self.reduction = contract.make()
        self.shadow = contract.make()
        """Gets the same updates and is never encoded: determinism, and that decoding changes nothing."""
        self.live: dict[str, Points] = {}
        self.held: dict[str, Geometry] = {}
        """The simulated neighbour."""
        self.held_sets: dict[str, Points] = {}

    # --- steps

    def add_one(self, id: str, entry: Geometry) -> None:
        fresh = id not in self.live
        decision = self.decide_only(entry)
        delta = self.change({id: entry}, [])
        if fresh and self.space.points(entry) and self.contract.guarantee != "one-sided":
            assert decision.covered == (not delta.added), f"decide said {decision}, update did {delta}"

    def change(self, added: dict[str, Geometry], removed: list[str]) -> Delta:
        before = self.live
        self.live = {id: points for id, points in before.items() if id not in removed or id in added}
        self.live |= {id: self.space.points(entry) for id, entry in added.items()}
        delta = self.reduction.update(added, removed)
        twin = self.shadow.update(added, removed)
        assert list(delta.added.items()) == list(twin.added.items()), "equal histories, different additions"
        assert delta.removed == twin.removed, "equal histories, different removals"
        standing = frozenset().union(*(before[id] & self.live[id] for id in before if id in self.live))
        self.apply(delta, standing)
        return delta

    def refuse_overlapping(self, id: str, entry: Geometry, again: int, removed: list[str]) -> None:
        """An entry that holds a part of itself twice is our bug: nothing of the step is done."""
        if len(entry):
            overlapping = self.space.twice(entry, again % len(entry))
            before = self.reduction.encode()
            with pytest.raises(AssertionError, match="of one entry overlap"):
                self.reduction.update({id: overlapping}, removed)
            assert self.reduction.encode() == before, "a refused step changed something"

    def take_out(self, rank: int, order: list[str], stay: list[str], replaced: dict[str, Geometry]) -> None:
        """Remove one of the widest entries and, in the same step and any order, what lies inside it.

        Some of that may stay, to be promoted, and some may be replaced: what a coverer's removal touches, three ways.
        """
        widest = sorted(self.live, key=lambda id: (-len(self.live[id]), id))
        wide = widest[rank % len(widest)]
        inside = [id for id in order if id in self.live and self.live[id] <= self.live[wide]]
        added = {id: entry for id, entry in replaced.items() if id in inside and id != wide}
        self.change(added, [id for id in inside if id == wide or (id not in added and id not in stay)])

    def apply(self, delta: Delta, standing: Points) -> None:
        """Bring the neighbour up to date piece by piece; no piece may uncover a point that stands."""
        assert not set(delta.added) & set(delta.removed), "an id is both added and removed"
        assert len(set(delta.removed)) == len(delta.removed), "an id is removed twice"
        assert set(delta.removed) <= set(self.held), "the neighbour never held what it shall remove"
        for id, entry in delta.added.items():
            assert self.held.get(id) != entry, f"{id} is sent again although the neighbour holds it"
        for now in self.pieces(delta):
            if self.contract.guarantee != "one-sided":
                assert standing <= now, f"a standing entry has a gap at {sorted(standing - now)}"

    def pieces(self, delta: Delta) -> Iterator[Points]:
        """The neighbour's union after each piece: additions, then removals; what is replaced goes last."""
        old = {id: self.held_sets[id] for id in self.held if id in delta.added}
        for id, entry in delta.added.items():
            self.held[id], self.held_sets[id] = entry, self.space.points(entry)
            yield self.held_points().union(*old.values())
        for id in delta.removed:
            del self.held[id], self.held_sets[id]
            yield self.held_points().union(*old.values())
        for id in list(old):
            del old[id]
            yield self.held_points().union(*old.values())

    def decide_only(self, entry: Geometry) -> Decision:
        before = self.reduction.encode()
        decision = self.reduction.decide(entry)
        assert self.reduction.encode() == before, "decide changed something"
        assert self.shadow.decide(entry) == decision, "equal histories, different decisions"
        asked, held = self.space.points(entry), self.held_points()
        guarantee = self.contract.guarantee
        if decision.covered and guarantee != "one-sided":
            assert asked <= held, f"{decision}, but not {sorted(asked - held)}"
        if not decision.covered and (guarantee == "one-sided" or self.contract.complete) and asked:
            assert asked - held, f"{decision}, but all of it is covered"
        if decision.witness is not None:
            assert not decision.covered
            assert tuple(decision.witness) in asked - held, f"{decision.witness} is no witness"
        known = set(self.held) | set(self.live)
        assert set(decision.by) <= known, f"covered by strangers: {decision.by}"
        return decision

    def route_one(self, point: Point) -> None:
        if self.contract.route is None:
            answer = _naive_route(self.space, self.reduction.forwarded(), point)
        else:
            answer = self.contract.route(self.reduction.forwarded(), point)
        assert answer == (point in self.held_points()), f"routing {point} answered {answer}"

    def swap(self) -> None:
        blob = self.reduction.encode()
        decoded = self.contract.decode(blob)
        assert decoded.encode() == blob, "encode(decode(blob)) is another blob"
        self.reduction = decoded

    def refuse(self, share: float) -> None:
        """State without its end, or of another format, is an error of one code."""
        blob = self.reduction.encode()
        for damaged in (blob[: min(int(share * len(blob)), len(blob) - 1)], bytes([blob[0] ^ 0x80]) + blob[1:]):
            with pytest.raises(HilcastError, match=r"^state-format: "):
                self.contract.decode(damaged)

    # --- assertions after every step

    def held_points(self) -> Points:
        return frozenset().union(*self.held_sets.values())

    def check_guarantee(self) -> None:
        live, held = frozenset().union(*self.live.values()), self.held_points()
        lost, excess, tally = live - held, held - live, self.contract.tally
        tally.states += 1
        tally.states_lost += bool(lost)
        tally.points_live += len(live)
        tally.points_lost += len(lost)
        tally.points_excess += len(excess)
        if self.contract.guarantee != "one-sided":
            assert not lost, f"lost: {sorted(lost)}"
        if self.contract.guarantee != "superset":
            assert not excess, f"nobody asked for: {sorted(excess)}"

    def check_structure(self) -> None:
        self.reduction.check()
        forwarded = self.reduction.forwarded()
        assert forwarded == self.held, "the deltas do not lead to forwarded()"
        if self.contract.whole:
            assert set(forwarded) <= set(self.live), "an id nobody owns is forwarded"
        assert self.reduction.encode() == self.shadow.encode(), "equal histories, different bytes"
        stats = self.reduction.stats()
        assert stats["entries"] == len(self.live)
        assert stats["forwarded"] == len(forwarded)
        assert stats["withheld"] >= 0
        assert stats["bytes"] >= 0
        self.check_fates()

    def check_fates(self) -> None:
        """Whoever is said to carry an entry is held, and holds it; nothing else is said of what is there."""
        fates = self.reduction.fates(list(self.live))
        assert fates.keys() == self.live.keys()
        for id, fate in fates.items():
            assert self.reduction.fate(id).how == fate.how
            named = fate.carriers(id) if self.live[id] else ()
            assert set(named) <= set(self.held), f"{fate} of {id} names strangers"
            held = frozenset().union(*(self.held_sets[name] for name in named))
            if fate.how == "forwarded":
                assert held == self.live[id], f"{id} is not what is held of it"
            elif named and not fate.more and self.contract.guarantee != "one-sided":
                assert self.live[id] <= held, f"{fate} of {id}: not all of it is held"


# --- the same in any process --------------------------------------------------------------------------------


def replay(contract: Contract, seed: int, changes: int = 60) -> str:
    """A digest of everything a fixed pseudo-random history makes a reduction say: deltas and bytes."""
    random = Random(seed)
    reduction, digest = contract.make(), sha256()
    for _ in range(changes):
        if random.random() < 0.7:
            delta = reduction.update({random.choice(IDS): _drawn(contract.space, random)})
        else:
            delta = reduction.update({}, random.sample(IDS, random.choice((1, 1, 3))))
        for id, entry in delta.added.items():
            digest.update(id.encode() + repr(sorted(contract.space.points(entry))).encode())
        digest.update(repr(delta.removed).encode() + reduction.encode())
    return digest.hexdigest()


def _drawn(space: Space, random: Random) -> Geometry:
    if isinstance(space, RangeSpace):
        ends = random.sample(range(space.first, space.last + 1), 2 * random.randint(1, 3))
        return space._paired(sorted(ends))
    sides = list(zip(space.low, space.high, strict=True))
    boxes = [tuple(sorted([random.randint(*s), random.randint(*s)]) for s in sides) for _ in range(2)]
    return space._disjoint(boxes)


def replays(contracts: Iterable[Named], seeds: tuple[int, ...] = (1, 2)) -> dict[str, list[str]]:
    """The digests of some contracts in this process, by module and name."""
    found = {}
    for module, name in contracts:
        contract = getattr(import_module(f"tests.reductions.{module}"), name)
        found[f"{module}.{name}"] = [replay(contract, seed) for seed in seeds]
    return found


def replays_elsewhere(contracts: Sequence[Named], hash_seed: str) -> dict[str, list[str]]:
    """The same in a new process, whose hashes of strings begin with this seed."""
    code = (
        f"from json import dumps; from tests.reductions.contract import replays; print(dumps(replays({contracts!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found
