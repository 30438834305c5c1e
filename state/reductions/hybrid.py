"""Hybrid: the cheap answers first, exact subtraction within a budget, and guesses only as proofs of "not covered".

Beyond both papers, from both: the conflict table, its corollaries and the minimised cover set of [RSPC06] §4 cost
little and never err; what they leave open is subtracted exactly, as in [NEG08] figure 4, but only inside the new box
and only by the minimised set; where that takes too many pieces, [RSPC06] Algorithm 1 looks for a witness. A point is
a proof, so guesses may say "not covered"; nothing is ever withheld because guesses found nothing.

    corollary 1, 3, empty set ──> subtraction, at most `budget` pieces ──> guesses ──> forward, undecided

Differs from the negative space of [NEG08]: nothing is kept between decisions but the active boxes, so there is nothing
to give back when an entry is cancelled, and dimensions are limited by the budget, not by memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from state.kernels import njit
from state.reductions.conflict_table import ConflictTable
from state.reductions.group_covering import GroupCovering
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

STEPS = ("corollary_1", "corollary_3", "empty_set", "subtraction", "witness", "budget")

COVERED, UNCOVERED, EXHAUSTED = 0, 1, 2


@njit
def _first_meeting(lows: Ranks, highs: Ranks, low: Ranks, high: Ranks, start: int) -> int:
    """The first row from `start` on that meets the box, or the number of rows."""
    k, m = lows.shape
    for i in range(start, k):
        meets = True
        for j in range(m):
            if lows[i, j] > high[j] or highs[i, j] < low[j]:
                meets = False
                break
        if meets:
            return i
    return k


@njit
def subtract(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, budget: int, point: Ranks) -> tuple[int, int]:
    """Subtract the rows from the box, piece by piece, depth first; stop at the first piece that nothing meets.

    Implements the splitting of [NEG08] figure 4. Differs: depth first, so that a box that is not covered is known at
    its first uncovered piece and no more than 2m pieces a row are held at a time.
    Guarantee: COVERED and UNCOVERED (then `point` is uncovered) are exact; EXHAUSTED: more than `budget` pieces.
    Cost: O(m k) a piece. Returns also the number of pieces looked at.
    """
    k, m = lows.shape
    size = 2 * m * k + 1
    # A piece keeps the first row that may meet it: those before were subtracted from it, or miss it.
    stack_low, stack_high = np.empty((size, m), np.int64), np.empty((size, m), np.int64)
    first = np.empty(size, np.int64)
    stack_low[0], stack_high[0], first[0] = low, high, 0
    depth, pieces = 1, 0
    piece_low, piece_high = np.empty(m, np.int64), np.empty(m, np.int64)
    while depth > 0:
        if pieces == budget:
            return EXHAUSTED, pieces
        pieces += 1
        depth -= 1
        piece_low[:], piece_high[:] = stack_low[depth], stack_high[depth]
        i = _first_meeting(lows, highs, piece_low, piece_high, first[depth])
        if i == k:
            point[:] = piece_low
            return UNCOVERED, pieces
        for j in range(m):
            if piece_low[j] < lows[i, j]:
                stack_low[depth], stack_high[depth], first[depth] = piece_low, piece_high, i + 1
                stack_high[depth, j] = lows[i, j] - 1
                piece_low[j] = lows[i, j]
                depth += 1
            if piece_high[j] > highs[i, j]:
                stack_low[depth], stack_high[depth], first[depth] = piece_low, piece_high, i + 1
                stack_low[depth, j] = highs[i, j] + 1
                piece_high[j] = highs[i, j]
                depth += 1
    return COVERED, pieces


def covers(boxes: Boxes, low: Ranks, high: Ranks, budget: int) -> bool | None:
    """Whether the union of `boxes` covers the box `low..high`; None: not known after `budget` pieces."""
    inside = boxes.clipped(low, high)
    answer, _ = subtract(low, high, inside.lows, inside.highs, budget, np.empty(len(low), np.int64))
    return None if answer == EXHAUSTED else answer == COVERED


class Proving:
    """The judge that says "covered" only when that is certain."""

    steps: tuple[str, ...] = STEPS

    def __init__(self, settings: HybridSettings) -> None:
        self.budget, self.error, self.trials_max = settings.budget, settings.error, settings.trials_max

    def __call__(self, low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, seed: int) -> Verdict:
        table = ConflictTable(low, high, lows, highs)
        answer = fast_answer(table)
        if isinstance(answer, Verdict):
            return answer
        _, rest_lows, rest_highs = largest_first(table, answer.rows)
        point = np.empty(len(low), np.int64)
        found, _ = subtract(low, high, rest_lows, rest_highs, self.budget, point)
        if found == COVERED:
            return Verdict(True, "subtraction", answer.rows)
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

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        super().__init__(domain, Proving(read(HybridSettings, parameters)))

    @classmethod
    def decode(cls, blob: bytes, domain: Geometry, parameters: Mapping[str, object] | None = None) -> Hybrid:
        made = cls(domain, parameters)
        made._restore(blob)
        return made

    def check(self) -> None:
        """Also: each passive entry is covered by its group (where a hundred budgets suffice to see it)."""
        super().check()
        budget = 100 * self._judge.budget  # type: ignore[attr-defined]
        for id, group in self._group.items():
            if not group:
                assert len(self._entries[id]) == 0
                continue
            together = Boxes(
                np.concatenate([self._entries[member].lows for member in group]),
                np.concatenate([self._entries[member].highs for member in group]),
            )
            assert all(covers(together, low, high, budget) is not False for low, high in self._entries[id])
