"""Judging an entry box by box against the active boxes that meet it: what `probabilistic.py` and `hybrid.py` share.

An entry may have several disjoint boxes; it is covered iff each of them is ([RSPC06] §2), by a group of active ones.

    A leaves; p is by {A, B}, q by {B, C}:  q is as it was; of p, B still covers all but what A had shared with it, and
    that part alone is judged: most often p stays withheld, by a mended group

Nobody is in a group who could be left out, as far as that is soon seen: whoever is costs a judgement when it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from state.arrays import Floats, Words
from state.reductions.arrivals import Arrivals
from state.reductions.entry_rows import EntryRows
from state.reductions.group_pass import CAP_MAX, CAP_SUM, COUNTS, STEPS_FROM, TRIALS
from state.reductions.judging import Rules
from state.reductions.reduction import Decision
from state.reductions.rspc import CAP, STEP_NAMES, Verdict, seed_of, seeds_of, verdict_of
from state.reductions.withholding import Counts, Withholding
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry

AGAIN_MIN = 16
"""Entries that are judged again in one call, at least: after one that is promoted the next call begins."""
DECIDED = tuple(f"decided_{name}" for name in STEP_NAMES)


def counted(steps: tuple[str, ...]) -> tuple[str, ...]:
    """The counts of a judge: boxes by the step that decided, guesses made, and what the cap of trials cost.

    `cap_error_max` is the largest error that a "covered" at the cap would have had (it was forwarded instead);
    `cap_error_sum` the expected number of losses that forwarding avoided, at most.
    """
    return ("trials", "cap_error_max", "cap_error_sum", *(f"decided_{step}" for step in ("corner", *steps)))


class GroupCovering(Withholding):
    """Withholds an entry when a group of active ones covers it, as far as `rules` can tell.

    Cost: for each box of a new entry a few questions to the tree of active boxes; where none contains it and each of
    its corners lies in one, a judgement by those that meet it. A removal judges again what it had been covering: of
    each what the removed one had covered of it, by the active boxes that meet that. So it costs what depends on the
    removed entry: where entries lie alone next to nothing; where they lie upon each other one is in as many groups, on
    average, as a group has members, 3 to 4 in three dimensions. All of it is compiled, and a call takes many
    (`group_pass.py`); who is in which group is noted in Python, some microseconds for each entry judged. More entries
    that lie no denser ask for no more judgements: `python -m benchmarks.reductions_flat` shows both.
    """

    counted: ClassVar[tuple[str, ...]]
    again_min = AGAIN_MIN

    def __init__(self, domain: Geometry, rules: Rules) -> None:
        super().__init__(domain)
        self._rules = rules
        self._gone: dict[str, list[int]] = {}
        """In the step under way: the withheld entries that are to be judged again, and who of `_left` covered them."""
        self._left = Boxes.empty(self._domain.d)
        self._grown: dict[str, None] = {}
        """In the step under way: the withheld entries that others' coverers were handed down to."""

    def _judge(self, id: str, boxes: Boxes, counts: Counts) -> Decision:
        group: dict[str, None] = {}
        verdict = Verdict(True, "", np.empty(0, np.int64))
        for low, high in boxes:
            step, rows, point, figures = self._active.judged(low, high, self._rules, self._seed(id, low, high))
            verdict = verdict_of(step, point, rows, figures)
            _count(counts, verdict)
            if not verdict.covered:
                return Decision(False, reason=verdict.reason, witness=verdict.witness)
            group |= dict.fromkeys(self._active.owners(rows))
        return Decision(True, tuple(group), verdict.reason)

    # --- many at once

    def _put_in_all(self, entries: Arrivals) -> None:
        """New ones first, then those that the step may have uncovered; of both the larger first."""
        gone, news = self._gone, entries
        if gone:
            again = np.fromiter(map(gone.__contains__, entries.ids), bool, len(entries))
            news = entries.where(~again)
        if len(news) < self.many:
            super()._put_in_all(news)
        else:
            some = news.filled()
            if len(some):
                counts = self._running()
                taken = self._active.take_in_by_groups(some, self._seeds(some), self._rules, counts)
                self._took_in(news, *taken)
                self._note(counts)
            else:
                self._took_in(news, {}, {})
        if gone:
            self._judge_again(entries.where(again))
            self._gone = {}
        if self._grown:
            self._spare()

    def _running(self) -> Floats:
        """Counts for compiled code: what is added up goes on from what there is, so that sums round alike."""
        counts = np.zeros(COUNTS)
        counts[CAP_MAX], counts[CAP_SUM] = self._counts["cap_error_max"], self._counts["cap_error_sum"]
        return counts

    def _note(self, counts: Floats) -> None:
        self._counts["trials"] += int(counts[TRIALS])
        steps = counts[STEPS_FROM:]
        for step in np.flatnonzero(steps).tolist():
            self._counts[DECIDED[step]] += int(steps[step])
        if steps[CAP]:
            self._counts["cap_error_max"], self._counts["cap_error_sum"] = (
                float(counts[CAP_MAX]),
                float(counts[CAP_SUM]),
            )

    def _hand_down(self, id: str, group: tuple[str, ...]) -> None:
        self._grown |= self._covers.get(id, {})
        self._grown[id] = None
        super()._hand_down(id, group)

    def _spare(self) -> None:
        """Let go who is not needed of groups that were handed down."""
        some = {id: self._passive.entries[id] for id in self._grown if len(self._group.get(id, ())) > 1}
        self._grown = {}
        if not some:
            return
        groups = self._active.needed(Arrivals.of(some, self._domain.d), [self._group[id] for id in some])
        for id, group in zip(some, groups, strict=True):
            self._mend(id, group)

    # --- removals

    def _take_out(self, ids: Sequence[str]) -> dict[str, Boxes]:
        """Remove entries; return the passive ones in whose group one was, which stay where they are until judged."""
        gone: dict[str, list[int]] = {}
        left: list[Boxes] = []
        rows = 0
        for id in ids:
            if id not in self._active:
                self._passive.remove(id)
                self._let_go(id)
                gone.pop(id, None)
                continue
            boxes = self._deactivate(id)
            heirs = self._covers.pop(id, None)
            if not heirs:
                continue
            theirs = range(rows, rows := rows + len(boxes.lows))
            left.append(boxes)
            for heir in heirs:
                gone.setdefault(heir, []).extend(theirs)
                group = self._group[heir]
                at = group.index(id)
                self._group[heir] = group[:at] + group[at + 1 :]
        self._gone, self._left = gone, Boxes.concatenated(left, self._domain.d)
        return {id: self._passive.entries[id] for id in gone}

    def _judge_again(self, entries: Arrivals) -> None:
        """Withheld entries whose groups lost members: each gets a group that covers it, or becomes active."""
        at, chunk, counts = 0, self.again_min, self._running()
        while at < len(entries):
            some = entries.span(at, at + chunk)
            groups, gone = [self._group[id] for id in some.ids], [self._gone[id] for id in some.ids]
            seeds = self._seeds(some)
            done, whole, by = self._active.judged_again(some, groups, self._left, gone, seeds, self._rules, counts)
            for id, group in zip(some.ids, by, strict=False):
                self._mend(id, group)
            if not whole:
                id, boxes = some.ids[done - 1], some.each[done - 1]
                self._passive.remove(id)
                self._let_go(id)
                self._activate(id, boxes)
            at, chunk = at + done, 2 * chunk if whole else max(self.again_min, done)
        self._note(counts)

    def _mend(self, id: str, group: tuple[str, ...]) -> None:
        """From now on a passive entry is covered by another group."""
        before, self._group[id] = self._group[id], group
        if group == before:
            return
        for member in before:
            if member not in group:
                del self._covers[member][id]
        for member in group:
            if member not in before:
                self._covers.setdefault(member, {})[id] = None

    def _seed(self, id: str, low: Ranks, high: Ranks) -> int:
        """Where proofs alone count, which points are drawn is nobody's business, and one seed will do."""
        return 0 if self._rules.proving else seed_of(id, low, high)

    def _seeds(self, entries: Arrivals) -> Words:
        """The seed of each box."""
        boxes = entries.boxes
        if self._rules.proving:
            return np.zeros(len(boxes), np.uint64)
        ids = np.repeat(np.arange(len(entries)), entries.sizes).tolist()
        return seeds_of([entries.ids[i] for i in ids], boxes.lows, boxes.highs)


def _count(counts: Counts, verdict: Verdict) -> None:
    counts[f"decided_{verdict.step}"] += 1
    counts["trials"] += verdict.trials
    if verdict.step == "cap":
        counts["cap_error_max"] = max(counts["cap_error_max"], verdict.error)
        counts["cap_error_sum"] += verdict.error


def warm() -> None:
    """Compile or load the kernel that is asked only where coverers are handed down."""
    rows, box = EntryRows(1), Boxes.of([([0], [1])])
    rows.add("a", box)
    rows.needed(Arrivals.of({"b": box}, 1), [("a",)])
