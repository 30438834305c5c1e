"""MICS: covering, subsumption and merging on Hilbert ranges ([MICS09] §3 and §4).

Entries come as ranges (`state.space` makes them), a neighbour gets a table of disjoint ranges, and one
look-up per range says what a new entry changes in it:

    inside a range of the table      covered (one live range holds it) or subsumed (several do): withheld
    overlaps or touches some         merged: the grown range goes out, those it replaces are taken back
    apart from all                   goes out as it is

An entry of several ranges may be covered in part: only the rest is forwarded (§3.5 to §3.7).

**Unsubscription**, which the paper only hints at, is exact. Every live range stays in a sorted multiset
(`live_ranges.py`), so that what a withdrawn range leaves uncovered is known, and just that is cut from the
table; what remains of a cut range is promoted (added) in the same delta that takes the old range back,
additions first. With perfect merging the table is therefore always the union of the live entries, whatever
came before.

**Imperfect merging** joins ranges across gaps of up to `gap_cells` cells, or, with a `budget`, of the widest
gap that keeps the extra cells within that share of the covered cells. A gap that a removal opens is cut only
if it is wider than that. The budget's gap is chosen anew when the extra cells exceed the budget, or when the
covered cells have doubled or halved since; in between it stays, so that one change does not move ranges
everywhere.

**Two ways to one table.** Few changes are edits of the sorted structures, flat in the size of the table; many
are one pass over sorted arrays. Both lead to the same deltas and bytes (tested against each other).

Left out here: §5's high dimensions (`mics_high_dimensions.py`) and the mapping to cells (`state.space`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from state.arrays import Bools, Ints
from state.formats import opened, unreadable
from state.reductions.interval_table import (
    Edit,
    IntervalTable,
    Journal,
    cells_of,
    closed,
    closed_in_order,
    difference,
    inside,
    near,
    range_id,
    range_ids,
)
from state.reductions.live_ranges import NOWHERE, LiveRanges
from state.reductions.parameters import MicsSettings, read
from state.reductions.reduction import NAMED_MAX, Decision, Delta, Fate
from state.space.packing import Geometry, pack_numbers, unpack_numbers
from state.space.ranges import Ranges

FORMAT = 1
"""First byte of `encode()`."""
EDIT_COST = 100
"""What one edited range costs, in units of one live range of a rebuild (25 us against about 0.25 us)."""
SMALL = 1000
"""Live ranges below which a rebuild is not cheaper than for so many."""
PASSES_MAX = 4
"""Removals that look for an entry's ranges among all before those of every entry are kept: that costs a few of them."""
REBUILDS_BEFORE_EDITS = 4
"""Rebuilds in a row before the table that can be edited is made: it costs as much as a few of them."""

COUNTS = (
    "ranges_covered",
    "ranges_subsumed",
    "ranges_merged",
    "ranges_apart",
    "entries_covered_whole",
    "entries_covered_in_part",
    "entries_forwarded_whole",
)
"""What was decided about each added range and entry, by the table as it was before its update."""


# --- the reduction ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _News:
    """The ranges of the added entries, one row each, and how many each entry has."""

    starts: Ints
    ends: Ints
    owners: Ints
    sizes: Ints
    first: int
    """The number of the first entry; the others follow."""

    @property
    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Starts, ends and owners."""
        return self.starts, self.ends, self.owners

    def by_number(self, numbers: Ints | None = None) -> dict[int, Ranges]:
        """The ranges of each entry, by its number: the next ones, or these."""
        each = range(self.first, self.first + len(self.sizes)) if numbers is None else numbers.tolist()
        ends = np.cumsum(self.sizes)
        spans = zip(each, (ends - self.sizes).tolist(), ends.tolist(), strict=True)
        return {number: Ranges(self.starts[a:b], self.ends[a:b]) for number, a, b in spans}


class Mics:
    """Forwards the union of the live entries as disjoint ranges, each under the id of its ends.

    Implements [MICS09] §4.2. `domain` is the first and last Hilbert index of the cube.
    Guarantee: perfect merging: exact on cells; imperfect: a superset within the gap or budget set.
    Cost: a small update O(log n) per range, added or removed, flat up to millions of ranges, but for the first few
    after a large one or a restart, which look at all; a large one a sort of all of them.

    >>> mics = Mics((0, 63))
    >>> delta = mics.update({"s2": Ranges.of([(32, 35), (45, 46), (50, 55)])})  # figure 3
    >>> list(delta.added)[0]
    '0000000000000020-0000000000000023'
    >>> mics.update({"s3": Ranges.of([(33, 34)])})  # inside: nothing to forward
    Delta(added={}, removed=())
    >>> delta = mics.update({}, ["s2"])  # promotes what s3 still asks for, then takes the rest back
    >>> list(delta.added), len(delta.removed)
    (['0000000000000021-0000000000000022'], 3)
    """

    edit_cost = EDIT_COST

    def __init__(self, domain: tuple[int, int] | Geometry, parameters: Mapping[str, object] | None = None) -> None:
        self.domain = _ends_of(domain)
        self.parameters = read(MicsSettings, parameters)
        assert self.parameters.mode == "projected", "mode 'indexed' is `IndexedMics`"
        self._owners: dict[str, int] = {}
        """Live ids, and the number under which their ranges stand in `_live`."""
        self._kept: dict[int, Ranges] = {}
        """The ranges of some entries by number, so that a removal need not look for them."""
        self._passes = 0
        """How often an entry's ranges were looked for among all."""
        self._next = 0
        self._counts = dict.fromkeys(COUNTS, 0)
        self._gap = self.parameters.gap_cells or 0
        self._tuned_at = 0
        """Covered cells when the budget's gap was last chosen."""
        self._set(LiveRanges(), Ranges.empty(), 0)
        # An empty table is made at once.
        self._rebuilds = REBUILDS_BEFORE_EDITS

    def _set(self, live: LiveRanges, table: Ranges, covered: int) -> None:
        """Take over a new state made aside."""
        self._live = live
        self._arrays: Ranges | None = table
        """The table as arrays; None while only the editable one is up to date."""
        self._table: IntervalTable | None = None
        self._covered = covered
        """Cells of the live entries' union."""
        self._held = cells_of(table)
        """Cells of the table: as many, or more where gaps were joined."""

    # --- reading

    def table(self) -> Ranges:
        """What is forwarded, as arrays."""
        if self._arrays is None:
            assert self._table is not None
            self._arrays = self._table.ranges()
        return self._arrays

    def entries(self) -> dict[str, Ranges]:
        """The live entries. Cost: O(n log n)."""
        return self.ranges_of(self._owners)

    def ranges_of(self, ids: Iterable[str]) -> dict[str, Ranges]:
        """Those of `ids` that are live, with their ranges. Cost: one pass over all ranges and a sort of theirs."""
        wanted = {id: self._owners[id] for id in ids if id in self._owners}
        numbers = np.array(list(wanted.values()), np.int64)
        starts, ends, owners = self._live.columns()
        if len(numbers) < len(self._owners):
            theirs = np.isin(owners, numbers)
            starts, ends, owners = starts[theirs], ends[theirs], owners[theirs]
        order = np.argsort(owners, kind="stable")
        starts, ends, owners = starts[order], ends[order], owners[order]
        lefts, rights = np.searchsorted(owners, numbers), np.searchsorted(owners, numbers, side="right")
        spans = zip(wanted, lefts.tolist(), rights.tolist(), strict=True)
        return {id: Ranges(starts[left:right], ends[left:right]) for id, left, right in spans}

    def forwarded(self) -> dict[str, Geometry]:
        """Everything the neighbour holds: one range per id."""
        return _by_id(self.table())

    @property
    def excess(self) -> int:
        """Cells that are forwarded and that nobody asked for: the price of imperfect merging."""
        return self._held - self._covered

    def fate(self, id: str) -> Fate:
        return self.fates([id])[id]

    def fates(self, ids: Sequence[str]) -> dict[str, Fate]:
        """All entries side by side: where each range lies in the table, and which of an entry's rows to name.

        An entry is forwarded if the table has each of its ranges as it is, else merged. Cost: that of `ranges_of`.
        """
        table, entries = self.table(), self.ranges_of(ids)
        if not entries:
            return {}
        ranges = _side_by_side(list(entries.values()), 0)
        owners, sizes = ranges.owners, ranges.sizes
        at = np.searchsorted(table.starts, ranges.starts, side="right") - 1
        alone = np.bincount(
            owners[(table.starts[at] == ranges.starts) & (table.ends[at] == ranges.ends)], minlength=len(sizes)
        )
        # ranges of an entry are sorted, so those in one range of the table stand together
        first = np.ones(len(at), bool)
        first[1:] = (at[1:] != at[:-1]) | (owners[1:] != owners[:-1])
        at, owners = at[first], owners[first]
        counts = np.bincount(owners, minlength=len(sizes))
        shown = np.arange(len(at)) - (np.cumsum(counts) - counts)[owners] < NAMED_MAX
        names = iter(range_ids(Ranges(table.starts[at[shown]], table.ends[at[shown]])))
        fates = {}
        for id, count, whole in zip(entries, counts.tolist(), (alone == sizes).tolist(), strict=True):
            named = tuple(islice(names, min(count, NAMED_MAX)))
            fates[id] = Fate("forwarded" if whole else "merged", named, max(0, count - NAMED_MAX))
        return fates

    def stats(self) -> dict[str, int | float]:
        """Figures for people; ranges rather than entries are what is forwarded and withheld."""
        forwarded = len(self._arrays) if self._arrays is not None else len(self._table or ())
        ranges = len(self._live)
        return {
            "entries": len(self._owners),
            "forwarded": forwarded,
            "withheld": ranges - forwarded,
            "bytes": 24 * ranges + 16 * forwarded + sum(map(len, self._owners)),
            "ranges": ranges,
            "cells_covered": self._covered,
            "cells_excess": self.excess,
            "gap_cells": self._gap,
            **self._counts,
        }

    def decide(self, entry: Geometry) -> Decision:
        """Say which part of an entry the table already holds.

        `by` names the forwarded ranges that hold some of it; the witness is its first cell that none holds.
        """
        assert isinstance(entry, Ranges)
        table = self.table()
        held = inside(table, entry.starts, entry.ends)
        at = np.unique(np.searchsorted(table.starts, entry.starts[held], side="right") - 1)
        by = tuple(range_id(s, e) for s, e in zip(table.starts[at].tolist(), table.ends[at].tolist(), strict=True))
        one = int(self._held_by_one(entry.starts, entry.ends).sum())
        several = int(held.sum()) - one
        reason = f"{one + several} of {len(entry)} ranges covered: {one} by one live range, {several} by several"
        if held.all():
            return Decision(True, by, reason)
        return Decision(False, by, reason, (self._first_outside(entry, int(np.argmin(held))),))

    def _first_outside(self, entry: Ranges, row: int) -> int:
        """The first cell of a range that the table does not hold."""
        start, table = int(entry.starts[row]), self.table()
        at = int(np.searchsorted(table.starts, start, side="right")) - 1
        return start if at < 0 or table.ends[at] < start else int(table.ends[at]) + 1

    def _held_by_one(self, starts: Ints, ends: Ints) -> Bools:
        """Tell for each range whether a single live range contains it (covering; the rest is subsumption)."""
        live_starts, live_ends, _ = self._live.columns()
        if len(live_starts) == 0:
            return np.zeros(len(starts), bool)
        at = np.searchsorted(live_starts, starts, side="right") - 1
        return (at >= 0) & (np.maximum.accumulate(live_ends)[at] >= ends)

    # --- changing

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        """Add, replace and remove entries in one step: Algorithm 1 for each range, and its undoing.

        Guarantee: additions come before the removals that they make possible, so that no cell of a standing
        entry is uncovered in between.
        """
        gone = [id for id in dict.fromkeys(removed) if id in self._owners and id not in added]
        gone += [id for id in added if id in self._owners]
        if not added and not gone:
            return Delta()
        news = self._checked([_ranges_of(entry) for entry in added.values()])
        mean = len(self._live) // max(1, len(self._owners))
        changes = len(news.starts) + len(gone) * (1 + mean)
        old = [self._owners.pop(id) for id in gone]
        for id in added:
            assert "\x00" not in id, "ids are packed with zero bytes between them"
            self._owners[id] = self._next
            self._next += 1
        return self._edit(news, old) if self._edits(changes) else self._rebuild(news, old)

    def _checked(self, entries: Sequence[Ranges]) -> _News:
        """The entries side by side. Asserts what `reduction.py` says of them, and that they stay in the domain."""
        news = _side_by_side(entries, self._next)
        assert (news.starts >= self.domain[0]).all(), "a range leaves the domain"
        assert (news.ends <= self.domain[1]).all(), "a range leaves the domain"
        assert (news.starts <= news.ends).all(), "a range is upside down"
        others = news.owners[1:] != news.owners[:-1]
        assert ((news.starts[1:] > news.ends[:-1]) | others).all(), "the ranges of one entry overlap"
        return news

    def _edits(self, changes: int) -> bool:
        """Whether to edit range by range rather than to rebuild; if so, makes the table that can be."""
        if changes * self.edit_cost > len(self._live) + SMALL:
            return False
        if self._table is None:
            self._rebuilds += 1
            if self._rebuilds <= REBUILDS_BEFORE_EDITS and self.edit_cost:
                return False
            self._table = IntervalTable(self.table(), self._gap)
        return True

    def _edit(self, news: _News, old: list[int]) -> Delta:
        """Change range by range: add the news, then take out the `old` numbers."""
        table, journal = self._table, Journal()
        assert table is not None
        self._arrays, self._rebuilds = None, 0
        rows = list(zip(news.starts.tolist(), news.ends.tolist(), news.owners.tolist(), strict=True))
        outside = self._judge(table, rows, news)
        if self._gap:
            for start, end, number in rows:
                self._covered += cells_of(self._live.uncovered(start, end))
                self._live.insert(start, end, number)
        else:
            self._live.insert_all(news.starts, news.ends, news.owners)
        self._kept |= news.by_number()
        for start, end in outside:
            self._note(journal, table.insert(start, end))
        for number in old:
            taken = self._ranges_known(number)
            self._live.remove(taken, number)
            self._uncover(table, journal, taken)
        if not self._gap:
            self._covered = self._held
        if self._is_tuning_due(bool(journal)):
            before = self.table()
            self._tune()
            journal.note(Edit(*(_pairs(changed) for changed in difference(before, self.table()))))
        net = journal.net()
        added = {range_id(s, e): Ranges(np.array([s]), np.array([e])) for s, e in net.added}
        return Delta(added, tuple(range_id(*ends) for ends in net.removed))  # type: ignore[arg-type]

    def _ranges_known(self, number: int) -> Ranges:
        """The ranges of an entry that goes: kept, or looked for; once that has been often, all are kept."""
        if number not in self._kept:
            self._passes += 1
            if self._passes <= PASSES_MAX:
                return self._live.ranges_of(number)
            starts, ends, owners = self._live.columns()
            order = np.argsort(owners, kind="stable")
            numbers, sizes = np.unique(owners, return_counts=True)
            self._kept = _News(starts[order], ends[order], owners[order], sizes, 0).by_number(numbers)
            self._passes = 0
        return self._kept.pop(number, Ranges.empty())

    def _judge(self, table: IntervalTable, rows: list[tuple[int, int, int]], news: _News) -> list[tuple[int, int]]:
        """Count what the table says of each new range and entry; return the ranges that it does not hold."""
        outside, counts = [], self._counts
        # What one live range holds, the table holds: only of the others it is asked.
        by_one = self._live.furthest_of_all(news.starts) >= news.ends
        counts["ranges_covered"] += int(by_one.sum())
        held = np.bincount(news.owners[by_one] - news.first, minlength=len(news.sizes)).tolist()
        for row in np.flatnonzero(~by_one).tolist():
            start, end, number = rows[row]
            if table.find(start, end) is not None:
                held[number - news.first] += 1
                counts["ranges_subsumed"] += 1
            else:
                counts["ranges_merged" if table.touches(start, end) else "ranges_apart"] += 1
                outside.append((start, end))
        for count, size in zip(held, news.sizes.tolist(), strict=True):
            if size:
                counts[_outcome(count, size)] += 1
        return outside

    def _note(self, journal: Journal, edit: Edit) -> None:
        journal.note(edit)
        self._held += sum(end - start + 1 for start, end in edit.added)
        self._held -= sum(end - start + 1 for start, end in edit.removed)

    def _uncover(self, table: IntervalTable, journal: Journal, taken: Ranges) -> None:
        """Cut from the table what ranges that were taken out leave uncovered."""
        pieces = self._live.uncovered_of_all(taken.starts, taken.ends)
        for first, last in zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True):
            if not self._gap:
                self._note(journal, table.cut(first, last))
                continue
            self._covered -= last - first + 1
            # The piece grows by the gaps beside it; the whole is cut unless narrow enough to stay joined.
            before, following = self._live.furthest(first), self._live.next_start(last)
            if before == NOWHERE or following is None or following - before - 1 > self._gap:
                left = self.domain[0] if before == NOWHERE else before + 1
                right = self.domain[1] if following is None else following - 1
                self._note(journal, table.cut(left, right))

    def _rebuild(self, news: _News, old: list[int]) -> Delta:
        """Change everything at once, from the live ranges: what `_edit` does, in a few passes over arrays."""
        before = self.table()
        self._judge_all(before, news)
        starts, ends, owners = self._live.columns()
        if old:
            for number in old:
                self._kept.pop(number, None)
            keep = ~np.isin(owners, old)
            starts, ends, owners = starts[keep], ends[keep], owners[keep]
        if len(starts):
            starts, ends, owners = map(np.concatenate, zip((starts, ends, owners), news.columns, strict=True))
        else:
            starts, ends, owners = news.columns
        order = np.argsort(starts, kind="stable")
        starts, ends, owners = starts[order], ends[order], owners[order]
        union = closed_in_order(starts, ends)
        table = closed_in_order(union.starts, union.ends, self._gap) if self._gap else union
        self._set(LiveRanges.of(starts, ends, owners), table, cells_of(union))
        self._rebuilds = min(self._rebuilds, REBUILDS_BEFORE_EDITS)
        if self._is_tuning_due(table != before):
            self._tune()
        added, removed = difference(before, self.table())
        return Delta(_by_id(added), tuple(range_ids(removed)))

    def _judge_all(self, table: Ranges, news: _News) -> None:
        """`_judge` for arrays."""
        ends, some = np.cumsum(news.sizes), news.sizes > 0
        if not len(table):  # as where everything is built anew
            self._counts["ranges_apart"] += len(news.starts)
            self._counts["entries_forwarded_whole"] += int(some.sum())
            return
        held = inside(table, news.starts, news.ends)
        one = held & self._held_by_one(news.starts, news.ends)
        merged = ~held & near(table, news.starts, news.ends, self._gap)
        self._counts["ranges_covered"] += int(one.sum())
        self._counts["ranges_subsumed"] += int((held & ~one).sum())
        self._counts["ranges_merged"] += int(merged.sum())
        self._counts["ranges_apart"] += int((~held & ~merged).sum())
        sums = np.concatenate([[0], np.cumsum(held)])
        counts = sums[ends] - sums[ends - news.sizes]
        self._counts["entries_covered_whole"] += int((some & (counts == news.sizes)).sum())
        self._counts["entries_covered_in_part"] += int(((counts > 0) & (counts < news.sizes)).sum())
        self._counts["entries_forwarded_whole"] += int((some & (counts == 0)).sum())

    def _excess_max(self, budget: float) -> int:
        """How many extra cells a budget allows; a generous one, as many as there are."""
        return int(min(budget * self._covered, 2.0**63))

    def _is_tuning_due(self, changed: bool) -> bool:
        """Whether the budget is exceeded, or the table changed and its gap was chosen for another size."""
        budget = self.parameters.budget
        if budget is None:
            return False
        drifted = not self._tuned_at / 2 <= self._covered <= 2 * self._tuned_at
        return self.excess > self._excess_max(budget) or (changed and drifted)

    def _tune(self) -> None:
        """Choose the budget's gap anew, and bring the table to it."""
        assert self.parameters.budget is not None
        starts, ends, _ = self._live.columns()
        union = closed_in_order(starts, ends)
        self._gap = widest_gap_within(union, self._excess_max(self.parameters.budget))
        self._tuned_at = self._covered
        self._set(self._live, closed_in_order(union.starts, union.ends, self._gap), self._covered)

    # --- state

    def encode(self) -> bytes:
        """Pack the state: format, gap, counts, ids in order, then starts, lengths and owners as columns.

        The table is not packed: it is the union of what is. Guarantee: a function of the live entries, the
        gap in force and the counts, not of the way there. Cost: about 4 bytes a range, beside the ids.
        """
        ids = sorted(self._owners)
        numbers = np.fromiter((self._owners[id] for id in ids), np.int64, len(ids))
        starts, ends, owners = self._live.columns()
        ends, ranks = _ties_in_order(starts, ends, _ranks_of(owners, numbers))
        names = "\x00".join(ids).encode()
        gap, tuned_at = self._gap, min(self._tuned_at, 2**63 - 1)
        head = [gap, tuned_at, *self._counts.values(), len(ids), len(names), len(starts)]
        steps = np.diff(starts, prepend=0)
        return bytes([FORMAT]) + pack_numbers(head) + names + b"".join(map(pack_numbers, (steps, ends - starts, ranks)))

    @classmethod
    def decode(
        cls, blob: bytes, domain: tuple[int, int] | Geometry, parameters: Mapping[str, object] | None = None
    ) -> Mics:
        """The reduction that `encode` packed. Cost: O(n)."""
        opened("mics state", FORMAT, blob)
        self = cls(domain, parameters)
        head, at = unpack_numbers(blob, 2 + len(COUNTS) + 3, 1)
        self._gap, self._tuned_at, *counts, n_ids, n_names, n = head.tolist()
        self._counts = dict(zip(COUNTS, counts, strict=True))
        ids = blob[at : at + n_names].decode(errors="replace").split("\x00") if n_ids else []
        steps, at = unpack_numbers(blob, n, at + n_names)
        lengths, at = unpack_numbers(blob, n, at)
        owners, at = unpack_numbers(blob, n, at)
        self._owners = {id: number for number, id in enumerate(ids)}
        self._next = n_ids
        starts = np.cumsum(steps)
        ends = starts + lengths
        first, last = self.domain
        known = owners.max(initial=-1) < n_ids and starts.min(initial=first) >= first and ends.max(initial=last) <= last
        upright = not (starts > ends).any() and not (np.diff(starts) < 0).any()
        if len(self._owners) != n_ids or at != len(blob) or not known or not upright:
            raise unreadable("mics state", f"{len(blob)} bytes do not add up")
        union = closed_in_order(starts, ends)
        table = closed_in_order(union.starts, union.ends, self._gap) if self._gap else union
        self._set(LiveRanges.of(starts, ends, owners), table, cells_of(union))
        self._rebuilds = 0
        return self

    def check(self) -> None:
        """Assert: the table is the union of the live entries, joined across gaps, within the budget."""
        self._live.check()
        if self._table is not None:
            self._table.check()
            assert self._table.gap == self._gap
            assert self._arrays is None or self._table.ranges() == self._arrays
        starts, ends, owners = self._live.columns()
        assert set(owners.tolist()) <= set(self._owners.values())
        assert self._kept.keys() <= set(self._owners.values())
        for number, ranges in self._kept.items():
            assert ranges == self._live.ranges_of(number)
        union, table = closed(starts, ends), self.table()
        assert closed(starts, ends, self._gap) == table
        assert self._covered == cells_of(union)
        assert self._held == cells_of(table)
        assert len(table) == 0 or (self.domain[0] <= table.starts[0] and table.ends[-1] <= self.domain[1])
        if self.parameters.budget is not None:
            assert self.excess <= self._excess_max(self.parameters.budget)
        elif self.parameters.gap_cells is None:
            assert self.excess == 0
        for ranges in self.entries().values():
            assert (ranges.starts[1:] > ranges.ends[:-1]).all()


def widest_gap_within(union: Ranges, cells: int) -> int:
    """The widest gap so that all gaps up to it hold at most `cells` cells together; 0 if there is none.

    >>> widest_gap_within(Ranges.of([(0, 1), (3, 4), (6, 7), (20, 29)]), 5)
    1
    """
    gaps, numbers = np.unique(union.starts[1:] - union.ends[:-1] - 1, return_counts=True)
    fits = np.cumsum(gaps.astype(np.uint64) * numbers.astype(np.uint64)) <= np.uint64(cells)
    return int(gaps[fits][-1]) if fits.any() else 0


def _ends_of(domain: tuple[int, int] | Geometry) -> tuple[int, int]:
    if isinstance(domain, tuple):
        first, last = domain
    else:
        assert isinstance(domain, Ranges)
        assert len(domain) == 1, "a cube is one range"
        first, last = int(domain.starts[0]), int(domain.ends[0])
    assert 0 <= first <= last < 2**63, f"no domain of Hilbert indices: {first}, {last}"
    return first, last


def _side_by_side(entries: Sequence[Ranges], first: int) -> _News:
    """The ranges of all entries, entry i under the number first + i."""
    sizes = np.array([len(entry.starts) for entry in entries], np.int64)
    empty = [np.empty(0, np.int64)]
    starts = np.concatenate([entry.starts for entry in entries] or empty)
    ends = np.concatenate([entry.ends for entry in entries] or empty)
    return _News(starts, ends, np.repeat(np.arange(first, first + len(entries)), sizes), sizes, first)


def _ranges_of(entry: Geometry) -> Ranges:
    assert isinstance(entry, Ranges)
    return entry


def _outcome(held: int, size: int) -> str:
    """What is counted for an entry of which `held` of `size` ranges were in the table."""
    if held == size:
        return "entries_covered_whole"
    return "entries_covered_in_part" if held else "entries_forwarded_whole"


def _by_id(ranges: Ranges) -> dict[str, Geometry]:
    """Each range by itself, under its id."""
    each = map(Ranges, ranges.starts.reshape(-1, 1), ranges.ends.reshape(-1, 1))
    return dict(zip(range_ids(ranges), each, strict=True))


def _pairs(ranges: Ranges) -> tuple[tuple[int, int], ...]:
    return tuple(zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True))


def _ranks_of(owners: Ints, numbers: Ints) -> Ints:
    """The position of each owner in `numbers`."""
    top = int(numbers.max(initial=0))
    if top <= 4 * len(numbers) + 1024:
        ranks = np.zeros(top + 1, np.int64)
        ranks[numbers] = np.arange(len(numbers))
        return ranks[owners]
    # Numbers are never used twice, so after a long life they are sparse.
    order = np.argsort(numbers)
    return order[np.searchsorted(numbers[order], owners)]


def _ties_in_order(starts: Ints, ends: Ints, ranks: Ints) -> tuple[Ints, Ints]:
    """Sort what starts together by end and rank, so that equal states have equal bytes."""
    same = starts[1:] == starts[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same)) if len(starts) else np.empty(0, np.int64)
    if len(tied) == 0:
        return ends, ranks
    order = tied[np.lexsort((ranks[tied], ends[tied], starts[tied]))]
    ends, ranks = ends.copy(), ranks.copy()
    ends[tied], ranks[tied] = ends[order], ranks[order]
    return ends, ranks
