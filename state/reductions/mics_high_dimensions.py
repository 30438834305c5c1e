"""MICS in high dimensions: subscription indexing ([MICS09] §5).

A box of d dimensions has a number of ranges that grows like its surface, so only few dimensions are indexed. Content
space projection, which drops the others, needs no code of its own (`mics.py`: `Grid.ranges` drops what the grid has
not). Subscription indexing checks them exactly, on candidates:

      new subscription ──> phase 1: ranges on 3 of 7 attributes ──> candidates ──> phase 2: all 7: covered?

Left out: matching by the same index, and attribute subsets (`benchmarks/peers/high_dimensions.py`); merging of two
subscriptions into one box, which is `rectangle_merging.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from state.arrays import Bools, Ints
from state.reductions.arrivals import Arrivals
from state.reductions.hybrid import proving
from state.reductions.judging import Rules, verdict
from state.reductions.live_ranges import LiveRanges, meetings
from state.reductions.negative_tree import NegativeTree
from state.reductions.parameters import HybridSettings, MicsSettings, read
from state.reductions.reduction import Decision
from state.reductions.rspc import seed_of
from state.reductions.withholding import Counts, Withholding
from state.space.boxes import Boxes
from state.space.grid import Grid
from state.space.packing import Geometry
from state.space.ranges import RANGES_MAX, Ranges
from state.space.subtraction import covers

PIECES_MAX = 1_000
"""Boxes that may be left of an entry while candidates are cut from it; where there would be more, it is forwarded."""
PART = 8
"""Entries that come together are taken in by one pass, which looks at all ranges, where they are this part of all."""
CHECKED_MAX = 1_000_000
"""Pieces up to which `check` sees for itself that an entry is covered."""

# --- exact phases -------------------------------------------------------------------------------------------

ExactPhase = Callable[[Boxes, Boxes], Ints | None]
"""Rows of the candidates (first) that cover an entry (second) together, or None: any conventional method (§5)."""


def pairwise(candidates: Boxes, entry: Boxes) -> Ints | None:
    """For each box of the entry the first candidate box that contains it: conventional covering."""
    inside = (candidates.lows[:, None, :] <= entry.lows[None, :, :]).all(axis=2)
    inside &= (candidates.highs[:, None, :] >= entry.highs[None, :, :]).all(axis=2)
    return inside.argmax(axis=0) if inside.any(axis=0).all() else None


def negative_space(candidates: Boxes, entry: Boxes) -> Ints | None:
    """Cut the candidates from the entry, one by one, until nothing remains ([NEG08]): all that met it until then.

    Differs: within a budget. In 7-D, among a hundred that meet it, an entry falls into so many pieces that one
    decision took seconds; beyond `PIECES_MAX` of them it counts as not covered, which loses nothing.
    """
    rest, used = NegativeTree(entry), []
    for row, (low, high) in enumerate(candidates):
        if not rest.covered(low, high):
            used.append(row)
            if not rest.subtract(low, high, PIECES_MAX):
                return None
        if len(rest) == 0:
            return np.array(used, np.int64)
    return None


def hybrid(candidates: Boxes, entry: Boxes, rules: Rules) -> Ints | None:
    """What `hybrid.py` asks of each box: cheap answers, subtraction within a budget; beyond it, not covered."""
    rows: list[Ints] = []
    for low, high in entry:
        met = np.flatnonzero((candidates.lows <= high).all(axis=1) & (candidates.highs >= low).all(axis=1))
        found = verdict(rules, low, high, candidates.lows[met], candidates.highs[met], seed_of("", low, high))
        if not found.covered:
            return None
        rows.append(met[found.by])
    return np.unique(np.concatenate(rows))


EXACT_PHASES: dict[str, ExactPhase] = {
    "pairwise": pairwise,
    "negative-space": negative_space,
    "hybrid": partial(hybrid, rules=proving(HybridSettings())),
}
"""What the parameter `exact` may name."""


# --- subscription indexing ----------------------------------------------------------------------------------


class RangeIndex:
    """Numbered entries by the ranges of their projection: phase 1 of subscription indexing.

    Implements [MICS09] §5. A leaf there is a merged range with the subscriptions that it came from; here ranges stay
    apart, sorted by start. Differs: candidates are those whose own ranges touch, which is never more than what the
    leaves list.
    """

    def __init__(self, grid: Grid, cap: int | None = None) -> None:
        self.grid = grid
        self.cap = cap
        self._live = LiveRanges()

    def __len__(self) -> int:
        return len(self._live)

    def add(self, number: int, boxes: Boxes) -> None:
        ranges = self.ranges(boxes)
        self._live.insert_all(ranges.starts, ranges.ends, np.full(len(ranges), number))

    def add_all(self, entries: Mapping[int, Boxes]) -> None:
        """Add many at once. Cost: that of their ranges, compiled, and one sort."""
        if entries:
            each = list(entries.values())
            some = Arrivals([""] * len(each), [boxes.owned() for boxes in each], each[0].d)
            self._live = LiveRanges.of(*self._with(np.array(list(entries), np.int64), some))

    def _with(self, numbers: Ints, entries: Arrivals) -> tuple[Ints, Ints, Ints]:
        """The columns that there are once entries have come."""
        single = (entries.sizes == 1) if self.cap is not None else np.zeros(len(entries), bool)
        ones = entries.where(single)
        starts, ends, sizes = self.grid.ranges_of_each(ones.boxes, self.cap or 1)
        parts = [(*self._live.columns(),), (starts, ends, np.repeat(numbers[single], sizes))]
        for number, (_, boxes) in zip(numbers[~single].tolist(), entries.where(~single), strict=True):
            ranges = self.ranges(boxes)
            parts.append((ranges.starts, ranges.ends, np.full(len(ranges), number)))
        starts, ends, owners = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(starts, kind="stable")
        return starts[order], ends[order], owners[order]

    def take_in(self, number: int, news: Arrivals, covered: Bools, retired: Ints) -> int:
        """Follow a pass that took in entries, the first under this number: those covered are not here, and others left.

        `retired`: who left, and the position of whom it left for. Returns how many candidates (`holders`) all of them
        had, each when it came. Cost: that of the ranges of those that came in, a sort, and what holds a cell of each.
        """
        came = np.flatnonzero(~covered)
        old = np.unique(self._live.columns()[2])
        starts, ends, owners = self._with(number + came, news.where(~covered))
        # Entries by their place among `old` and then all that came, whether they are here or not.
        places, is_old = owners + (len(old) - number), owners < number
        places[is_old] = np.searchsorted(old, owners[is_old])
        since = np.append(np.full(len(old), -1), np.arange(len(news)))
        until, who = np.full(len(since), len(news)), retired[:, 0]
        gone = np.where(who < number, np.searchsorted(old, who), who + (len(old) - number))
        until[gone] = retired[:, 1]
        lows = news.boxes.lows
        first_starts, first_ends, sizes = self.grid.ranges_of_each(Boxes(lows, lows), RANGES_MAX)
        questions = np.repeat(np.repeat(np.arange(len(news)), news.sizes), sizes)
        order = np.argsort(first_starts, kind="stable")
        asked = first_starts[order], first_ends[order], questions[order]
        met = meetings(starts, ends, places, *asked, since, until)
        if len(gone):
            stay = (until == len(news))[places]
            starts, ends, owners = starts[stay], ends[stay], owners[stay]
        self._live = LiveRanges.of(starts, ends, owners)
        return len(np.unique(met))

    def remove(self, number: int, boxes: Boxes) -> None:
        """Take an entry out, whose boxes are what they were when it came."""
        self._live.remove(self.ranges(boxes), number)

    def ranges(self, boxes: Boxes) -> Ranges:
        return self.grid.ranges(boxes, self.cap) if len(boxes) else Ranges.empty()

    def candidates(self, boxes: Boxes) -> Ints:
        """The entries that share a cell with `boxes`, sorted."""
        return self._live.touching(self.ranges(boxes))

    def holders(self, boxes: Boxes) -> Ints:
        """The entries that hold the first cell of a box, sorted: what contains a box is among them."""
        cells = [self.grid.ranges(Boxes(low[None], low[None])) for low in boxes.lows]
        return np.unique(np.concatenate([self._live.touching(cell) for cell in cells]))

    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Starts, ends and numbers of all ranges, by start."""
        return self._live.columns()

    def check(self) -> None:
        self._live.check()


class IndexedMics(Withholding):
    """Forwards whole entries that an exact phase, asked about the candidates of an index, finds not covered.

    Implements [MICS09] §5, subscription management in subscription indexing. Differs: entries that would merge are not
    joined: an entry goes out whole under its own id.
    Guarantee: exact: the union of what is forwarded is the union of the live entries. Within their budgets the exact
    phases `negative-space` and `hybrid` withhold all that the active ones cover together; `pairwise` what one covers.
    Cost: `pairwise` looks one cell up and asks the tree of active boxes, O(log n + those that hold the cell); the
    others look each range of the entry up, and see what shares a cell with it, which in a dense space are many. Either
    way the ranges of an entry that is forwarded are made and kept: of a wide one up to the cap, which is most of the
    cost. Many at once by `pairwise`: the same, compiled, and a sort of all ranges; the first change after that lays
    them out.
    """

    counted = ("evaluated", "candidates", "covered")
    part: int = PART

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None, *, grid: Grid) -> None:
        super().__init__(domain)
        settings = read(MicsSettings, parameters)
        self._exact = EXACT_PHASES[settings.exact]
        # A wide entry has thousands of ranges; few and wider ones leave hardly more candidates.
        self._index = RangeIndex(grid, settings.cap)

    def _judge(self, id: str, boxes: Boxes, counts: Counts) -> Decision:
        if self._exact is pairwise:
            return self._judge_pairwise(boxes, counts)
        numbers = self._index.candidates(boxes).tolist()
        ids = [self._active.id(number) for number in numbers]
        parts = [self._active.entries[candidate] for candidate in ids]
        rows = self._exact(Boxes.concatenated(parts, self._domain.d), boxes)
        counts["evaluated"] += 1
        counts["candidates"] += len(ids)
        counts["covered"] += rows is not None
        words = f"{'not ' if rows is None else ''}covered by {len(ids)} candidates of {len(self._active)}"
        if rows is None:
            return Decision(False, reason=words)
        owners = np.repeat(np.arange(len(ids)), [len(part) for part in parts])
        return Decision(True, tuple(ids[owner] for owner in np.unique(owners[rows]).tolist()), words)

    def _judge_pairwise(self, boxes: Boxes, counts: Counts) -> Decision:
        """Phase 2 asks the tree of the active boxes who, of all candidates, contains each box: the first is named.

        One that contains a box holds its first cell; so where nobody does, there is nothing to ask.
        """
        candidates = len(self._index.holders(boxes))
        rows = [self._active.containing(low, high) for low, high in boxes] if candidates else [-1]
        covered = min(rows) >= 0
        counts["evaluated"] += 1
        counts["candidates"] += candidates
        counts["covered"] += covered
        words = f"{'' if covered else 'not '}covered by {candidates} candidates of {len(self._active)}"
        return Decision(covered, tuple(self._active.ids(np.array(rows))) if covered else (), words)

    def _put_in_all(self, entries: Arrivals) -> None:
        """`pairwise` in one compiled pass, where there are many, and not few beside those that are held."""
        if self._exact is not pairwise or len(entries) < max(self.many, len(self._active) // self.part):
            super()._put_in_all(entries)
            return
        some, number = entries.filled(), self._active.next_number
        if not len(some):
            self._took_in(entries, None)
            return
        taken, retired = self._active.take_in_by_boxes(some)
        self._counts["evaluated"] += len(some)
        self._counts["candidates"] += self._index.take_in(number, some, taken.covered, retired)
        self._counts["covered"] += int(taken.covered.sum())
        self._took_in(entries, taken)

    def _activate(self, id: str, boxes: Boxes) -> None:
        super()._activate(id, boxes)
        self._index.add(self._active.number(id), boxes)

    def _deactivate(self, id: str) -> Boxes:
        self._index.remove(self._active.number(id), self._active.entries[id])
        return super()._deactivate(id)

    def stats(self) -> dict[str, int | float]:
        return super().stats() | {"ranges": len(self._index)}

    def check(self) -> None:
        """Also: every withheld entry is covered by its group, and the index holds who is active."""
        super().check()
        self._index.check()
        assert set(self._index.columns()[2].tolist()) == {self._active.number(id) for id in self._active.entries}
        for id, boxes in self._passive.entries.items():
            group = [self._active.entries[member] for member in self._group(id)]
            together = Boxes.concatenated(group, self._domain.d)
            assert all(covers(together, low, high, CHECKED_MAX) is not False for low, high in boxes)

    def _restore_own(self, blob: bytes) -> None:
        self._index.add_all({self._active.number(id): boxes for id, boxes in self._active.entries.items()})
