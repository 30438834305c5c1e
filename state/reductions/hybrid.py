"""Hybrid: exact subtraction within a budget, and guesses only as proofs of "not covered".

Beyond both papers, from both: what no single active box contains, and no corner proves open, is subtracted exactly, as
in [NEG08] figure 4, but only inside the new box and the largest parts first; where that takes too many pieces, the
conflict table of [RSPC06] §4, its corollaries and the minimised cover set are asked, and then Algorithm 1 looks for a
witness. A point is a proof, so guesses may say "not covered"; nothing is ever withheld because guesses found nothing.

    corollary 1, corners ──> subtraction, `budget` pieces at most ──> corollary 3, empty set ──> guesses ──> forward

Differs from the negative space of [NEG08]: nothing is kept between decisions but the active boxes, so there is nothing
to give back when an entry is cancelled, and dimensions are limited by the budget, not by memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from state.reductions.group_covering import GroupCovering, counted
from state.reductions.judging import Rules
from state.reductions.parameters import HybridSettings, read
from state.space.boxes import Boxes
from state.space.packing import Geometry
from state.space.subtraction import covers

STEPS = ("corollary_1", "corollary_3", "empty_set", "subtraction", "witness", "budget")


def proving(settings: HybridSettings) -> Rules:
    """The judge that says "covered" only when that is certain."""
    return Rules(True, settings.budget, float(settings.error), settings.trials_max, 0)


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
        super().__init__(domain, proving(self._settings))

    def check(self) -> None:
        """Also: each passive entry is covered by its group (where a hundred budgets suffice to see it)."""
        super().check()
        budget = 100 * self._settings.budget
        for id, boxes in self._passive.entries.items():
            group = [self._active.entries[member] for member in self._group(id)]
            together = Boxes.concatenated(group, self._domain.d)
            assert all(covers(together, low, high, budget) is not False for low, high in boxes)
