"""Hybrid: the cheap answers first, exact subtraction within a budget, and guesses only as proofs of "not covered".

Beyond both papers, from both: the conflict table, its corollaries and the minimised cover set of [RSPC06] §4 cost
little and never err; what they leave open is subtracted exactly, as in [NEG08] figure 4, but only inside the new box
and only by the minimised set; where that takes too many pieces, [RSPC06] Algorithm 1 looks for a witness. A point is
a proof, so guesses may say "not covered"; nothing is ever withheld because guesses found nothing.

    corollary 1, corners, corollary 3, empty set ──> subtraction, `budget` pieces at most ──> guesses ──> forward

Differs from the negative space of [NEG08]: nothing is kept between decisions but the active boxes, so there is nothing
to give back when an entry is cancelled, and dimensions are limited by the budget, not by memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from state.reductions.conflict_table import ConflictTable
from state.reductions.group_covering import GroupCovering, counted
from state.reductions.parameters import HybridSettings, read
from state.reductions.rspc import (
    NONE,
    Verdict,
    error_after,
    fast_answer,
    guessed,
    largest_first,
    trials_needed,
    uncovered_share_min,
)
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry
from state.space.subtraction import COVERED, UNCOVERED, covers, subtract

STEPS = ("corollary_1", "corollary_3", "empty_set", "subtraction", "witness", "budget")


class Proving:
    """The judge that says "covered" only when that is certain."""

    def __init__(self, settings: HybridSettings) -> None:
        self.budget, self.error, self.trials_max = settings.budget, settings.error, settings.trials_max

    def __call__(self, low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, seed: int) -> Verdict:
        table = ConflictTable(low, high, lows, highs)
        answer = fast_answer(table)
        if isinstance(answer, Verdict):
            return answer
        rows, rest_lows, rest_highs = largest_first(table, answer.rows)
        point, used = np.empty(len(low), np.int64), np.zeros(len(rows), bool)
        found, _ = subtract(low, high, rest_lows, rest_highs, self.budget, point, used)
        if found == COVERED:
            # The fewer are named, the less often the entry is judged again.
            return Verdict(True, "subtraction", np.sort(rows[used]))
        if found == UNCOVERED:
            return Verdict(False, "subtraction", NONE, tuple(table.grown(answer, point)[0].tolist()))
        share = float(uncovered_share_min(low, high, rest_lows, rest_highs))
        needed = trials_needed(share, self.error)
        trials = int(min(needed, self.trials_max))
        proof = guessed(table, answer, rest_lows, rest_highs, trials, seed)
        if proof is not None:
            return replace(proof, needed=needed)
        return Verdict(False, "budget", NONE, trials=trials, needed=needed, error=error_after(share, trials))


class Hybrid(GroupCovering):
    """Forwards what is not certainly covered by a group of other entries; loses nothing.

    Parameters: `budget`, the pieces that one box may be cut into (20,000); `error` and `trials_max`, the guesses for a
    witness after that: until an uncovered part would be missed with probability `error` (0.001), at most
    `trials_max` (2,000).
    Guarantee: exact: the union of what is forwarded is the union of the live entries. Within the budget an entry is
    withheld iff the active ones cover it together; beyond it, it is forwarded.

    >>> h = Hybrid(Boxes.of([([0, 0], [99, 99])]))
    >>> left, right = Boxes.of([([0, 0], [50, 99])]), Boxes.of([([40, 0], [99, 99])])
    >>> sorted(h.update({"left": left, "right": right, "middle": Boxes.of([([30, 10], [70, 20])])}).added)
    ['left', 'right']
    >>> h.stats()["decided_subtraction"]
    1
    """

    counted = counted(STEPS)

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        self._settings = read(HybridSettings, parameters)
        super().__init__(domain, Proving(self._settings))

    def check(self) -> None:
        """Also: each passive entry is covered by its group (where a hundred budgets suffice to see it)."""
        super().check()
        budget = 100 * self._settings.budget
        for id, boxes in self._passive.entries.items():
            group = [self._active.entries[member] for member in self._group.get(id, ())]
            together = Boxes.concatenated(group, self._domain.d)
            assert all(covers(together, low, high, budget) is not False for low, high in boxes)
