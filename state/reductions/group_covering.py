"""Judging an entry box by box against the active boxes that meet it: what `probabilistic.py` and `hybrid.py` share.

An entry may have several disjoint boxes; it is covered iff each of them is ([RSPC06] §2), by a group of active ones.

    A leaves; p is by {A, B}, q by {B, C}:  q is as it was; of p, B still covers all but what A had shared with it, and
    that part alone is judged: most often p stays withheld, by a mended group

Nobody is in a group who could be left out, as far as that is soon seen: whoever is costs a judgement when it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from state.arrays import Floats, Ints, Words
from state.reductions.arrivals import Arrivals
from state.reductions.cover_links import CoverLinks
from state.reductions.entry_rows import EntryRows
from state.reductions.group_pass import CAP_MAX, CAP_SUM, COUNTS, ONE_OPEN, STEPS_FROM, TRIALS, WORD_WANTED
from state.reductions.judging import Rules
from state.reductions.reduction import Decision
from state.reductions.rspc import CAP, STEP_NAMES, Verdict, verdict_of, words_of
from state.reductions.withholding import Counts, Withholding
from state.space.boxes import Boxes
from state.space.packing import Geometry

AGAIN_MAX = 4096
"""Entries that are judged again in one call, at most; after one that is promoted the next call begins, too."""
NOBODY = np.empty(0, np.int64)
NO_WORDS = np.empty(0, np.uint64)
DECIDED = tuple(f"decided_{name}" for name in STEP_NAMES)


def counted(steps: tuple[str, ...]) -> tuple[str, ...]:
    """The counts of a judge: boxes by the step that decided, guesses made, and what the cap of trials cost.

    `cap_error_max` is the largest error that a "covered" at the cap would have had (it was forwarded instead);
    `cap_error_sum` the expected number of losses that forwarding avoided, at most.
    """
    return ("trials", "cap_error_max", "cap_error_sum", *(f"decided_{step}" for step in ("corner", *steps)))


class _Gone(NamedTuple):
    """Who left that withheld entries had in their groups."""

    left: Boxes
    """All that left."""
    rows: Ints
    """Which of these entries had, one entry after another."""
    spans: Ints
    """Where those of each begin and end."""


class GroupCovering(Withholding):
    """Withholds an entry when a group of active ones covers it, as far as `rules` can tell.

    Cost: for each box of a new entry a few questions to the tree of active boxes; where none contains it and each of
    its corners lies in one, a judgement by those that meet it. A removal judges again what it had been covering: of
    each what the removed one had covered of it, by the active boxes that meet that. So it costs what depends on the
    removed entry: where entries lie alone next to nothing; where they lie upon each other one is in as many groups, on
    average, as a group has members, 3 to 4 in three dimensions. All of it is compiled, and a call takes many
    (`group_pass.py`), as is who is in which group (`cover_links.py`). More entries that lie no denser ask for no more
    judgements: `python -m benchmarks.reductions_flat` shows both.
    """

    counted: ClassVar[tuple[str, ...]]
    again_max: int = AGAIN_MAX

    def __init__(self, domain: Geometry, rules: Rules) -> None:
        super().__init__(domain)
        self._rules = rules
        self._sides = self._domain.sides()[0]
        self._gone: _Gone | None = None
        """In the step under way: who left that covered the withheld entries that `_links` follows."""
        self._grown: dict[str, None] = {}
        """In the step under way: the withheld entries that others' coverers were handed down to."""

    def _judge(self, id: str, boxes: Boxes, counts: Counts) -> Decision:
        group: dict[str, None] = {}
        (word,) = self._words([id])
        verdict = Verdict(True, "", np.empty(0, np.int64))
        for low, high in boxes:
            step, rows, point, figures = self._active.judged(low, high, self._rules, word)
            verdict = verdict_of(step, point, rows, figures)
            _count(counts, verdict)
            if not verdict.covered:
                return Decision(False, reason=verdict.reason, witness=verdict.witness)
            group |= dict.fromkeys(self._active.owners(rows))
        return Decision(True, tuple(group), verdict.reason)

    # --- many at once

    def _put_in_all(self, entries: Arrivals) -> None:
        """New ones first, then those that the step may have uncovered; of both the larger first."""
        if len(entries) < self.many:
            super()._put_in_all(entries)
        else:
            some, taken = entries.filled(), None
            if len(some):
                counts = self._running()
                taken = self._active.take_in_by_groups(some, self._words(some.ids), self._rules, counts)
                self._note(counts)
            self._took_in(entries, taken)
        if self._gone is not None:
            self._judge_again(self._gone)
            self._gone = None
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

    def _hand_down(self, row: int, id: str, group: Ints) -> None:
        self._grown |= dict.fromkeys(self._passive.owners(self._links.heirs(row)))
        self._grown[id] = None
        super()._hand_down(row, id, group)

    def _spare(self) -> None:
        """Let go who is not needed of groups that were handed down."""
        heirs = self._passive.starts([id for id in self._grown if id in self._passive])
        self._grown = {}
        _, ends = self._links.groups_of(heirs)
        heirs = heirs[np.diff(ends, prepend=0) > 1]
        self._links.regroup(heirs, *self._active.needed(self._passive, self._links, heirs))

    # --- removals

    def _take_out(self, ids: Sequence[str]) -> dict[str, Boxes]:
        """Remove entries. The passive ones in whose group one was stay where they are until they are judged."""
        leaving = [id for id in ids if id in self._active]
        for id in ids if len(leaving) < len(ids) else ():
            if id not in self._active:
                self._drop(id)
        heirs: list[Ints] = []
        left: list[Boxes] = []
        for id in leaving:
            theirs = self._links.leave(self._active.row(id))
            boxes = self._deactivate(id)
            if len(theirs):
                heirs.append(theirs)
                left.append(boxes)
        if left:
            self._gone = self._ask_again(heirs, left)
        return {}

    def _ask_again(self, heirs: list[Ints], left: list[Boxes]) -> _Gone:
        """Have the links follow those in whose groups some were that left, the larger first; who these were."""
        begins, gone, spans = _by_heir(heirs, left)
        if len(begins) > 1:
            order = self._passive.by_share(begins, self._sides)
            begins, spans = begins[order], spans[order]
        self._links.followed = begins
        return _Gone(left[0] if len(left) == 1 else Boxes.concatenated(left, self._domain.d), gone, spans)

    def _judge_again(self, gone: _Gone) -> None:
        """Withheld entries whose groups lost members: each gets a group that covers it, or becomes active."""
        links, counts = self._links, self._running()
        # An id's word is made in Python, and most are judged without draws: it is made when it is asked for.
        words = np.zeros(len(links.followed), np.uint64) if self._rules.proving else NO_WORDS
        promoted, at = [], 0
        while at < len(links.followed):
            some = slice(at, at + self.again_max)
            heirs = links.followed[some]
            done, said, by, ends = self._active.judged_again(
                self._passive, links, heirs, gone.left, gone.rows, gone.spans[some], words[some], self._rules, counts
            )
            links.regroup(heirs[: len(ends)], by, ends)
            at += done
            if said == WORD_WANTED:
                words = np.zeros(len(links.followed), np.uint64)
                words[at:] = self._words(self._passive.owners(links.followed[at:]))
            elif said == ONE_OPEN:
                (id,) = self._passive.owners(heirs[done - 1 : done])
                self._activate(id, self._drop(id))
                promoted.append(id)
        links.followed = NOBODY
        self._counts["promoted"] += sum(id in self._active for id in promoted)
        self._note(counts)

    def _words(self, ids: Sequence[str]) -> Words:
        """Where proofs alone count, which points are drawn is nobody's business, and one word will do."""
        return np.zeros(len(ids), np.uint64) if self._rules.proving else words_of(ids)


def _by_heir(heirs: list[Ints], left: list[Boxes]) -> tuple[Ints, Ints, Ints]:
    """In whose groups some were that left, each once; and of all boxes that left, which of them each had, in spans."""
    if len(left) == 1 and len(left[0]) == 1:
        spans = np.zeros((len(heirs[0]), 2), np.int64)
        spans[:, 1] = 1
        return heirs[0], np.zeros(1, np.int64), spans
    sizes = np.array([len(boxes) for boxes in left])
    all_gone = np.split(np.arange(int(sizes.sum())), np.cumsum(sizes)[:-1])
    gone = np.concatenate([np.tile(rows, len(each)) for each, rows in zip(heirs, all_gone, strict=True)])
    asked = np.concatenate([np.repeat(each, size) for each, size in zip(heirs, sizes.tolist(), strict=True)])
    begins, counts = np.unique(asked, return_counts=True)
    ends = np.cumsum(counts)
    return begins, gone[np.argsort(asked, kind="stable")], np.stack([ends - counts, ends], axis=1)


def _count(counts: Counts, verdict: Verdict) -> None:
    counts[f"decided_{verdict.step}"] += 1
    counts["trials"] += verdict.trials
    if verdict.step == "cap":
        counts["cap_error_max"] = max(counts["cap_error_max"], verdict.error)
        counts["cap_error_sum"] += verdict.error


def warm() -> None:
    """Compile or load the kernels that are asked only where coverers are handed down, or several lost one."""
    rows, box = EntryRows(1), Boxes.of([([0], [1])])
    rows.add("a", box)
    links = CoverLinks()
    links.link(0, np.array([0]))
    links.stand_in(0, np.array([0]))
    links.regroup(NOBODY, *rows.needed(rows, links, NOBODY))
    rows.by_share(np.array([0]), np.ones(1))
