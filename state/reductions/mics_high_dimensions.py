"""MICS in high dimensions ([MICS09] §5, and L433 of §8): three ways, and the false positives that each leaves.

A box of d dimensions has a number of ranges that grows like its surface, so only few dimensions are indexed:

| way | table | a publication is forwarded if | guarantee |
|---|---|---|---|
| content space projection | `mics.Mics` over a grid of some attributes | its cell is in the table | superset |
| subscription indexing | `IndexedMics`: each range lists its subscriptions | an exact phase finds one there | exact |
| attribute subsets | `SubsetTables`: one table per subset of attributes | every table holds its cell | superset |

Projection needs no code of its own: `Grid.ranges` drops what the grid has not. Which attributes to index is
`state.space.grid.choose_dimensions`, the paper's greedy choice by selectivity. `judged` counts false positives.

    subscription indexing      phase 1: ranges on 3 of 7 attributes       phase 2: all 7, on the candidates only
      new subscription ──────> touching ranges ──> candidates ──────────> covered, subsumed, mergeable?
      publication ───────────> ranges that hold its cell ──> candidates ─> does one match?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.reductions.interval_table import closed
from state.reductions.live_ranges import LiveRanges
from state.reductions.mics import Mics
from state.reductions.negative_tree import NegativeTree
from state.reductions.packing import pack_entries, unpack_entries_and
from state.reductions.parameters import MicsSettings, read
from state.reductions.reduction import Decision, Delta
from state.reductions.rspc import decide, seed_of
from state.space.boxes import Boxes, Ranks
from state.space.event_type import EventType
from state.space.grid import Grid
from state.space.packing import Geometry, pack_numbers, unpack_numbers
from state.space.ranges import Ranges
from state.space.ranks import PRESENT_MAX, PRESENT_MIN

FORMAT = 1


# --- false positives ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """Routing compared with the truth: what crossed a link, and how much of it nobody behind it wanted."""

    publications: int
    forwarded: int
    false: int
    lost: int
    """Publications that should have crossed and did not: 0 for everything here."""

    @property
    def share(self) -> float:
        """False positives as a share of what was forwarded ([MICS09] Table 2)."""
        return self.false / self.forwarded if self.forwarded else 0.0


def judged(routed: Bools, wanted: Bools) -> Judged:
    """Compare what was routed with what was wanted, one truth value per publication.

    >>> judged(np.array([True, True, False]), np.array([True, False, False]))
    Judged(publications=3, forwarded=2, false=1, lost=0)
    """
    false, lost = int((routed & ~wanted).sum()), int((wanted & ~routed).sum())
    return Judged(len(routed), int(routed.sum()), false, lost)


# --- exact phases -------------------------------------------------------------------------------------------

ExactPhase = Callable[[Boxes, Boxes], bool]
"""Whether the boxes of the candidates (first) cover an entry (second): any conventional method (§5)."""


def pairwise(candidates: Boxes, entry: Boxes) -> bool:
    """Whether each box of the entry lies inside one box of a candidate: conventional covering."""
    inside = (candidates.lows[:, None, :] <= entry.lows[None, :, :]).all(axis=2)
    inside &= (candidates.highs[:, None, :] >= entry.highs[None, :, :]).all(axis=2)
    return bool(inside.any(axis=0).all())


def negative_space(candidates: Boxes, entry: Boxes) -> bool:
    """Whether the candidates together cover the entry: cut them from it and see if something remains ([NEG08])."""
    rest = NegativeTree(entry)
    for low, high in candidates:
        if len(rest) == 0:
            break
        rest.subtract(low, high)
    return len(rest) == 0


def rspc(error: float, trials_max: int) -> ExactPhase:
    """An exact phase by [RSPC06]: "not covered" is proven or undecided, "covered" wrong with probability <= `error`.

    Not among `EXACT_PHASES`: a phase that may lose publications is for those who hand it over themselves.
    """

    def covered(candidates: Boxes, entry: Boxes) -> bool:
        for low, high in entry:
            met = (candidates.lows <= high).all(axis=1) & (candidates.highs >= low).all(axis=1)
            lows, highs = candidates.lows[met], candidates.highs[met]
            seed = seed_of("", low, high)
            if (
                not len(lows)
                or not decide(low, high, lows, highs, error=error, trials_max=trials_max, seed=seed).covered
            ):
                return False
        return True

    return covered


EXACT_PHASES: dict[str, ExactPhase] = {"pairwise": pairwise, "negative-space": negative_space}
"""What the parameter `exact` may name; any other callable can be handed to `IndexedMics`."""


# --- subscription indexing ----------------------------------------------------------------------------------


class SubscriptionIndex:
    """Numbered entries by the ranges of their projection: phase 1 of subscription indexing.

    Implements [MICS09] §5. A leaf there is a merged range with the subscriptions that it came from; here ranges stay
    apart, sorted by start, and the list of a leaf is the run of ranges that start in it (`leaf`). Differs:
    candidates are those whose own ranges touch, which is never more than what the leaves list.
    """

    def __init__(self, grid: Grid, cap: int | None = None) -> None:
        self.grid = grid
        self.cap = cap
        self._live = LiveRanges()

    def __len__(self) -> int:
        return len(self._live)

    def add(self, number: int, boxes: Boxes) -> None:
        ranges = self.ranges(boxes)
        for start, end in zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True):
            self._live.insert(start, end, number)

    def add_all(self, entries: Mapping[int, Boxes]) -> None:
        """Add many at once. Cost: one sort."""
        starts, ends, owners = self._live.columns()
        parts = {number: self.ranges(boxes) for number, boxes in entries.items()}
        starts = np.concatenate([starts, *(r.starts for r in parts.values())])
        ends = np.concatenate([ends, *(r.ends for r in parts.values())])
        owners = np.concatenate([owners, *(np.full(len(r), number) for number, r in parts.items())])
        order = np.argsort(starts, kind="stable")
        self._live = LiveRanges.of(starts[order], ends[order], owners[order])

    def remove(self, number: int) -> None:
        self._live.extract(number)

    def ranges(self, boxes: Boxes) -> Ranges:
        return self.grid.ranges(boxes, self.cap) if len(boxes) else Ranges.empty()

    def candidates(self, boxes: Boxes) -> Ints:
        """The entries that share a cell with `boxes`, sorted."""
        return self._live.touching(self.ranges(boxes))

    def leaf_candidates(self, boxes: Boxes) -> Ints:
        """The entries listed by the merged ranges that `boxes` meet: what the paper's leaves hold. Cost: O(n)."""
        starts, ends, owners = self._live.columns()
        leaves, asked = closed(starts, ends), self.ranges(boxes)
        if len(leaves) == 0 or len(asked) == 0:
            return np.empty(0, np.int64)
        first = np.searchsorted(leaves.ends, asked.starts)
        last = np.searchsorted(leaves.starts, asked.ends, side="right")
        met = np.unique(np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)]))
        runs = [
            owners[np.searchsorted(starts, leaves.starts[i]) : np.searchsorted(starts, leaves.ends[i], side="right")]
            for i in met.tolist()
        ]
        return np.unique(np.concatenate([np.empty(0, np.int64), *runs]))

    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Starts, ends and numbers of all ranges, by start."""
        return self._live.columns()

    def check(self) -> None:
        self._live.check()


@njit
def _match_any(
    indices: Ints, points: Ranks, starts: Ints, ends: Ints, reach: Ints, owners: Ints,
    first_box: Ints, lows: Ranks, highs: Ranks, matched: Bools, examined: Ints,
) -> None:  # fmt: skip
    """For each point walk back over the ranges that may hold its index, and test their owners exactly."""
    n, d = starts.shape[0], points.shape[1]
    for p in range(indices.shape[0]):
        h = indices[p]
        left, right = 0, n
        while left < right:
            middle = (left + right) >> 1
            if starts[middle] <= h:
                left = middle + 1
            else:
                right = middle
        i = left - 1
        while i >= 0 and reach[i] >= h and not matched[p]:
            if ends[i] >= h:
                examined[p] += 1
                for b in range(first_box[owners[i]], first_box[owners[i] + 1]):
                    inside = True
                    for j in range(d):
                        if points[p, j] < lows[b, j] or points[p, j] > highs[b, j]:
                            inside = False
                            break
                    if inside:
                        matched[p] = True
                        break
            i -= 1


class CompiledIndex:
    """An index for matching: phase 1 by ranges, phase 2 by all attributes.

    Implements [MICS09] §5, content matching in subscription indexing: no false positives by projection.
    Cost: O(log n + candidates * d) a publication, compiled; the walk back ends where no earlier range reaches.
    """

    def __init__(self, grid: Grid, entries: Sequence[Boxes], cap: int | None = None) -> None:
        index = SubscriptionIndex(grid, cap)
        index.add_all(dict(enumerate(entries)))
        self.grid = grid
        self._starts, self._ends, self._owners = index.columns()
        self._reach = np.maximum.accumulate(self._ends) if len(self._ends) else self._ends
        self._first_box = np.cumsum([0, *(len(boxes) for boxes in entries)])
        empty = Boxes.empty(len(grid.attributes))
        self._lows = np.concatenate([empty.lows, *(boxes.lows for boxes in entries)])
        self._highs = np.concatenate([empty.highs, *(boxes.highs for boxes in entries)])

    def __len__(self) -> int:
        return len(self._starts)

    def table(self) -> Ranges:
        """The merged ranges: what content space projection would forward by."""
        return closed(self._starts, self._ends)

    def match(self, ranks: Ranks) -> tuple[Bools, Ints]:
        """For each publication whether an entry matches it, and how many entries were examined to know."""
        matched, examined = np.zeros(len(ranks), bool), np.zeros(len(ranks), np.int64)
        points = np.ascontiguousarray(ranks, np.int64)
        _match_any(
            self.grid.index(points), points, self._starts, self._ends, self._reach, self._owners,
            self._first_box, self._lows, self._highs, matched, examined,
        )  # fmt: skip
        return matched, examined


@dataclass(frozen=True)
class Evaluation:
    """What phase 2 says of a new entry ([MICS09] §5): who is examined, and what was found."""

    candidates: tuple[str, ...]
    covered: bool
    """By one candidate or, if the exact phase can tell, by several together."""
    covers: tuple[str, ...] = ()
    """Candidates that the new entry covers."""
    merges: dict[str, Boxes] = field(default_factory=dict)
    """Candidates that make exactly one box with the new one, and that box (perfect merging)."""


_COUNTS = ("evaluated", "candidates", "covered", "retired", "promoted")


class IndexedMics:
    """Forwards whole entries that an exact phase, asked about the candidates of an index, finds not covered.

    Implements [MICS09] §5, subscription management in subscription indexing. Removal is exact as in `Covering`:
    withheld entries that share a cell with a withdrawn active one are decided anew, in the same step.
    Differs: entries that merge are named by `evaluate` and not joined by `update`: an entry goes out whole under its
    own id, and what two of them became would have to be taken apart when one is withdrawn.
    Guarantee: exact, if the exact phase is never wrong about "covered".
    Cost: the exact phase sees the candidates only; to find them, a number per `CHUNK` ranges for each range asked.
    """

    def __init__(
        self,
        domain: Geometry,
        parameters: Mapping[str, object] | None = None,
        *,
        grid: Grid,
        exact: ExactPhase | None = None,
    ) -> None:
        assert isinstance(domain, Boxes)
        self.domain = domain
        self.parameters = read(MicsSettings, parameters)
        self._exact = exact or EXACT_PHASES[self.parameters.exact]
        self._entries: dict[str, Boxes] = {}
        self._numbers: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._next = 0
        # A wide entry has thousands of ranges; few and wider ones leave hardly more candidates.
        self._cap = self.parameters.cap
        self._active, self._passive = SubscriptionIndex(grid, self._cap), SubscriptionIndex(grid, self._cap)
        self._is_active: dict[str, bool] = {}
        self._counts = dict.fromkeys(_COUNTS, 0)

    # --- deciding

    def evaluate(self, entry: Boxes) -> Evaluation:
        """Ask the exact phase about the candidates; changes nothing."""
        grown = _grown(entry)
        ids = [self._ids[number] for number in self._active.candidates(grown).tolist()]
        near = {id: self._entries[id] for id in ids}
        merges = {id: merged for id, boxes in near.items() if (merged := _merged(boxes, entry)) is not None}
        covers = tuple(id for id, boxes in near.items() if pairwise(entry, boxes))
        candidates = tuple(self._ids[number] for number in self._active.candidates(entry).tolist())
        covered = self._exact(self._joined(candidates), entry) if len(entry) else True
        return Evaluation(candidates, covered, covers, merges)

    def decide(self, entry: Geometry) -> Decision:
        assert isinstance(entry, Boxes)
        candidates = [self._ids[number] for number in self._active.candidates(entry).tolist()]
        covered = len(entry) == 0 or self._exact(self._joined(candidates), entry)
        by = tuple(id for id in candidates if pairwise(self._entries[id], entry))[:1] if len(entry) else ()
        words = "covered" if covered else "not covered"
        return Decision(covered, by, f"{words} by {len(candidates)} candidates of {self._forwarded_count()}")

    def _joined(self, ids: Iterable[str]) -> Boxes:
        parts = [self._entries[id] for id in ids]
        if not parts:
            return Boxes.empty(self.domain.d)
        return Boxes(np.concatenate([b.lows for b in parts]), np.concatenate([b.highs for b in parts]))

    # --- changing

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        before: dict[str, Boxes | None] = {}
        gone = [id for id in dict.fromkeys(removed) if id in self._entries and id not in added]
        orphans: set[int] = set()
        for id in [*gone, *(id for id in added if id in self._entries)]:
            orphans |= self._take_out(id, before)
        for id, boxes in added.items():
            assert isinstance(boxes, Boxes)
            self._number(id, boxes)
            self._put_in(id, before)
        for number in sorted(orphans):
            if number in self._ids and not self._is_active[self._ids[number]]:
                self._reconsider(self._ids[number], before)
        return self._delta(before)

    def _take_out(self, id: str, before: dict[str, Boxes | None]) -> set[int]:
        """Forget an entry; return the withheld ones that may have relied on it."""
        number, boxes = self._numbers.pop(id), self._entries.pop(id)
        del self._ids[number]
        if not self._is_active.pop(id):
            self._passive.remove(number)
            return set()
        before.setdefault(id, boxes)
        self._active.remove(number)
        return set(self._passive.candidates(boxes).tolist())

    def _number(self, id: str, boxes: Boxes) -> None:
        self._entries[id] = boxes
        self._numbers[id], self._ids[self._next] = self._next, id
        self._next += 1

    def _put_in(self, id: str, before: dict[str, Boxes | None]) -> None:
        boxes, number = self._entries[id], self._numbers[id]
        if self._is_covered(boxes):
            self._counts["covered"] += 1
            self._passive.add(number, boxes)
            self._is_active[id] = False
            return
        before.setdefault(id, None)
        self._retire_what_it_covers(boxes, before)
        self._active.add(number, boxes)
        self._is_active[id] = True

    def _is_covered(self, boxes: Boxes) -> bool:
        if len(boxes) == 0:
            return True
        candidates = self._active.candidates(boxes).tolist()
        self._counts["evaluated"] += 1
        self._counts["candidates"] += len(candidates)
        return self._exact(self._joined(self._ids[number] for number in candidates), boxes)

    def _retire_what_it_covers(self, boxes: Boxes, before: dict[str, Boxes | None]) -> None:
        for number in self._active.candidates(boxes).tolist():
            id = self._ids[number]
            if pairwise(boxes, self._entries[id]):
                before.setdefault(id, self._entries[id])
                self._active.remove(number)
                self._passive.add(number, self._entries[id])
                self._is_active[id] = False
                self._counts["retired"] += 1

    def _reconsider(self, id: str, before: dict[str, Boxes | None]) -> None:
        """Decide a withheld entry anew after something that it may have relied on went."""
        boxes, number = self._entries[id], self._numbers[id]
        if self._is_covered(boxes):
            return
        before.setdefault(id, None)
        self._passive.remove(number)
        self._retire_what_it_covers(boxes, before)
        self._active.add(number, boxes)
        self._is_active[id] = True
        self._counts["promoted"] += 1

    def _delta(self, before: dict[str, Boxes | None]) -> Delta:
        added: dict[str, Geometry] = {}
        removed = []
        for id, old in before.items():
            now = self._entries[id] if self._is_active.get(id) else None
            if now is None and old is not None:
                removed.append(id)
            elif now is not None and (old is None or old != now):
                added[id] = now
        return Delta(added, tuple(removed))

    # --- reading

    def _forwarded_count(self) -> int:
        return sum(self._is_active.values())

    def forwarded(self) -> dict[str, Geometry]:
        return {id: boxes for id, boxes in self._entries.items() if self._is_active[id]}

    def compiled(self) -> CompiledIndex:
        """What is forwarded, ready to match batches of publications without false positives."""
        active = [boxes for id, boxes in self._entries.items() if self._is_active[id]]
        return CompiledIndex(self._active.grid, active, self._cap)

    def stats(self) -> dict[str, int | float]:
        forwarded = self._forwarded_count()
        return {
            "entries": len(self._entries),
            "forwarded": forwarded,
            "withheld": len(self._entries) - forwarded,
            "bytes": sum(b.lows.nbytes + b.highs.nbytes for b in self._entries.values()),
            "ranges": len(self._active) + len(self._passive),
            **self._counts,
        }

    def check(self) -> None:
        """Assert: every withheld entry is covered by the forwarded ones, and the indices hold who they should."""
        assert self._entries.keys() == self._numbers.keys() == self._is_active.keys()
        assert {number: id for id, number in self._numbers.items()} == self._ids
        for index, is_active in ((self._active, True), (self._passive, False)):
            index.check()
            listed = set(index.columns()[2].tolist())
            assert listed == {
                self._numbers[id] for id, a in self._is_active.items() if a == is_active and len(self._entries[id])
            }
        for id, is_active in self._is_active.items():
            boxes = self._entries[id]
            if not is_active and len(boxes):
                candidates = self._active.candidates(boxes).tolist()
                assert negative_space(self._joined(self._ids[n] for n in candidates), boxes)

    # --- state

    def encode(self) -> bytes:
        """Pack the entries in the order of their numbers, who is active, and the counts."""
        flags = [int(self._is_active[id]) for id in self._entries]
        return pack_entries(FORMAT, self._entries, pack_numbers([*flags, *self._counts.values()]))

    @classmethod
    def decode(
        cls,
        blob: bytes,
        domain: Geometry,
        parameters: Mapping[str, object] | None = None,
        *,
        grid: Grid,
        exact: ExactPhase | None = None,
    ) -> IndexedMics:
        """The reduction that `encode` packed."""
        self = cls(domain, parameters, grid=grid, exact=exact)
        entries, extra = unpack_entries_and(FORMAT, blob)
        numbers, _ = unpack_numbers(extra, len(entries) + len(_COUNTS))
        self._counts = dict(zip(_COUNTS, numbers[len(entries) :].tolist(), strict=True))
        for (id, boxes), flag in zip(entries.items(), numbers.tolist(), strict=False):
            self._number(id, boxes)
            self._is_active[id] = bool(flag)
        for index, is_active in ((self._active, True), (self._passive, False)):
            index.add_all({n: entries[id] for id, n in self._numbers.items() if self._is_active[id] == is_active})
        return self


def _grown(boxes: Boxes) -> Boxes:
    """The boxes one rank larger on every side, so that neighbours share a cell with them."""
    lows = np.where(boxes.lows > PRESENT_MIN, boxes.lows - 1, boxes.lows)
    highs = np.where(boxes.highs < PRESENT_MAX, boxes.highs + 1, boxes.highs)
    return Boxes(lows, highs)


def _merged(one: Boxes, other: Boxes) -> Boxes | None:
    """The one box that two single boxes make exactly, if they do: equal but for one dimension, where they meet."""
    if len(one) != 1 or len(other) != 1:
        return None
    lows, highs = np.minimum(one.lows, other.lows), np.maximum(one.highs, other.highs)
    for box in (one, other):
        if (box.lows == lows).all() and (box.highs == highs).all():
            return Boxes(lows, highs)
    differ = ((one.lows != other.lows) | (one.highs != other.highs))[0]
    if differ.sum() != 1:
        return None
    j = int(np.argmax(differ))
    first, second = sorted([(int(b.lows[0, j]), int(b.highs[0, j])) for b in (one, other)])
    return Boxes(lows, highs) if second[0] <= first[1] + 1 else None


# --- attribute subsets --------------------------------------------------------------------------------------


def subset_grids(event_type: EventType, subsets: Sequence[Sequence[str]]) -> list[Grid]:
    """One grid for each subset of attributes."""
    return [Grid.of(replace(event_type, index=tuple(names), cubes=1)) for names in subsets]


class SubsetTables:
    """One table for each subset of the attributes; a publication must be in all of them.

    Implements the idea of [MICS09] L433 (after subscription summaries). Each table holds the projections of all
    entries on its attributes, so together they hold the product of the projections.
    Guarantee: superset. It forwards no more than projection on any one of the subsets alone.
    """

    def __init__(self, grids: Sequence[Grid], parameters: Mapping[str, object] | None = None) -> None:
        assert grids, "at least one subset"
        self.grids = list(grids)
        self.tables = [Mics((0, 2**grid.index_bits - 1), parameters) for grid in grids]

    def update(self, added: Mapping[str, Boxes], removed: Iterable[str] = ()) -> list[Delta]:
        """Change every table; one delta each. An entry is withheld only where its projection is covered."""
        gone = list(removed)
        deltas = []
        for grid, table in zip(self.grids, self.tables, strict=True):
            cap = table.parameters.cap
            deltas.append(table.update({id: grid.ranges(boxes, cap) for id, boxes in added.items()}, gone))
        return deltas

    def route(self, ranks: Ranks) -> Bools:
        """For each publication whether every table holds its cell."""
        routed = np.ones(len(ranks), bool)
        for grid, table in zip(self.grids, self.tables, strict=True):
            routed &= table.compiled().lookup(grid.index(ranks))
        return routed

    def stats(self) -> dict[str, int | float]:
        each = [table.stats() for table in self.tables]
        return {name: sum(stats[name] for stats in each) for name in ("forwarded", "withheld", "ranges", "bytes")} | {
            "entries": len(self.tables[0])
        }

    def check(self) -> None:
        for table in self.tables:
            table.check()
