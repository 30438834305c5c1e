"""Judging an entry box by box against the active boxes that meet it: what `probabilistic.py` and `hybrid.py` share.

An entry may have several disjoint boxes; it is covered iff each of them is ([RSPC06] §2), by a group of active ones.
"""

from __future__ import annotations

from itertools import takewhile
from typing import ClassVar, Protocol

import numpy as np

from state.arrays import Ints
from state.reductions.reduction import Decision
from state.reductions.rspc import NONE, Verdict, seed_of
from state.reductions.withholding import Counts, Withholding
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry

PASS_MIN = 8
"""Entries that a compiled pass takes in, at least, if it is worth its while."""


class Judge(Protocol):
    """How the question is answered: do the rows `lows..highs` cover the box `low..high`?"""

    def __call__(self, low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, seed: int) -> Verdict: ...


def counted(steps: tuple[str, ...]) -> tuple[str, ...]:
    """The counts of a judge: boxes by the step that decided, guesses made, and what the cap of trials cost.

    `cap_error_max` is the largest error that a "covered" at the cap would have had (it was forwarded instead);
    `cap_error_sum` the expected number of losses that forwarding avoided, at most.
    """
    return ("trials", "cap_error_max", "cap_error_sum", *(f"decided_{step}" for step in ("corner", *steps)))


class GroupCovering(Withholding):
    """Withholds an entry when a group of active ones covers it, as far as `judge` can tell.

    Cost: for each box of a new entry a few questions to the tree of active boxes; where none contains it and each of
    its corners lies in one, a judgement of those that meet it, which in a dense space are a share of all; a removal
    judges again what it covered. Of many that come at once the questions are one compiled pass from judgement to
    judgement (`pairwise.py`): `python -m benchmarks.reductions_flat --bulk`.
    """

    counted: ClassVar[tuple[str, ...]]

    def __init__(self, domain: Geometry, judge: Judge) -> None:
        super().__init__(domain)
        self._verdict = judge

    def _judge(self, id: str, boxes: Boxes, counts: Counts) -> Decision:
        group: dict[str, None] = {}
        for low, high in boxes:
            rows, verdict = self._judged(id, low, high)
            _count(counts, verdict)
            if not verdict.covered:
                return Decision(False, reason=verdict.reason, witness=verdict.witness)
            group |= dict.fromkeys(self._active.owners(rows[verdict.by]))
        return Decision(True, tuple(group), verdict.reason)

    def _put_in_all(self, entries: dict[str, Boxes]) -> None:
        """The same; of many, those that need no judgement are taken in together, as far as the next that does."""
        if len(entries) < self.many:
            super()._put_in_all(entries)
            return
        waiting, at, chunk = list(entries.items()), 0, self.many
        while at < len(waiting):
            some = dict(takewhile(_has_boxes, waiting[at : at + chunk]))
            done, coverers, left = self._active.take_in(some, open_only=True) if some else (0, {}, {})
            self._took_in(dict(waiting[at : at + done]), coverers, left)
            self._counts["decided_corollary_1"] += len(coverers)
            self._counts["decided_corner"] += done - len(coverers)
            at += done
            if done == len(some) > 0:
                chunk *= 2
                continue
            # Each pass writes the rows of its chunk first: where judgements come thick, one by one costs less.
            ones = waiting[at : at + (1 if done >= PASS_MIN else self.many)]
            for id, boxes in ones:
                self._put_in(id, boxes)
            at, chunk = at + len(ones), max(self.many, done)

    def _judged(self, id: str, low: Ranks, high: Ranks) -> tuple[Ints, Verdict]:
        """What is known of one box, and the rows that `by` of it speaks of."""
        one = self._active.containing(low, high)  # as corollary 1 would say, without a look at all that meet it
        if one >= 0:
            return np.array([one]), Verdict(True, "corollary_1", np.zeros(1, np.int64))
        corner = self._active.open_corner(low, high)
        if corner is not None:
            return NONE, Verdict(False, "corner", NONE, corner)
        rows = self._active.meeting(low, high)
        met = self._active.boxes(rows)
        return rows, self._verdict(low, high, met.lows, met.highs, seed_of(id, low, high))


def _has_boxes(item: tuple[str, Boxes]) -> bool:
    return len(item[1]) > 0


def _count(counts: Counts, verdict: Verdict) -> None:
    counts[f"decided_{verdict.step}"] += 1
    counts["trials"] += verdict.trials
    if verdict.step == "cap":
        counts["cap_error_max"] = max(counts["cap_error_max"], verdict.error)
        counts["cap_error_sum"] += verdict.error
