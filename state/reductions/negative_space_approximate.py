"""The approximate negative space: at most k new boxes a subscription, and who took what out.

Implements [NEG08] §4: the subsumption checking heuristic and top-k selection (figure 8), the dynamic
threshold, and the approximate unsubscription (figure 9). Every point of the cube is negative or in CoveredBy
of one active subscription, the one that first cut it out:

    cube = R  ⊎  CoveredBy(s1)  ⊎  CoveredBy(s2)  ⊎ ...        CoveredBy(s) ⊆ s, ⊎ disjoint

so what a cancelled subscription gives back is at hand, and nothing is computed. R may hold what is covered
(it was not worth a cut, or another subscription covers it too): a subscription is then forwarded although it
is redundant. It is never withheld wrongly, because R holds all that is not covered.

Differs: the paper calls CoveredBy "covered only by s"; what is meant, and kept here, is *first cut by* s.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec
import numpy as np

from state import formats
from state.reductions.entry_rows import EntryRows
from state.reductions.negative_tree import (
    BENEFIT,
    BENEFIT_COST,
    COST,
    NegativeTree,
    in_order,
    merged_boxes,
    volume,
)
from state.space.boxes import Boxes
from state.space.packing import PackedEntries, pack_boxes, pack_numbers, unpack_entries

FORMAT = 2

CHOICES = {"benefit-cost": BENEFIT_COST, "benefit": BENEFIT, "cost": COST}
"""The selection metrics of §5: the volume cut out per new box, the volume, 1 / new boxes."""


BOXES_MIN, BOXES_EACH = 20_000, 24
"""Negative boxes that are always allowed, and for each entry. Packed: some 20 bytes each."""
FEW_EACH, FEW_MAX = 96, 64_000
"""More for each while entries are few, but not more than so many. With these the exact mode withholds no less than the
approximate one, of 250 to 2,500 random boxes in 4-D; without, up to a fifth less."""


def boxes_allowed(max_boxes: int | None, live: int) -> int | None:
    """How many negative boxes there may be while so many entries live, the one rule of both modes; None: no limit.

    `max_boxes`: that many, 0: no limit; None, the default: as many as entries need, at least `BOXES_MIN`.

    >>> boxes_allowed(None, 100), boxes_allowed(None, 4000), boxes_allowed(9, 4000), boxes_allowed(0, 4000)
    (20000, 96000, 9, None)
    """
    if max_boxes is None:
        return max(BOXES_MIN, BOXES_EACH * live, min(FEW_EACH * live, FEW_MAX))
    return max_boxes or None


class _Packed(msgspec.Struct, array_like=True):
    tree: bytes
    covered_by: PackedEntries


class ApproximateSpace:
    """R and CoveredBy of figures 8 and 9."""

    def __init__(
        self,
        domain: Boxes,
        largest_first: bool = True,
        max_boxes: int | None = None,
        merge_sweeps: int = 0,
        k: int = 50,
        choice: str = "benefit-cost",
        dynamic: bool = False,
    ) -> None:
        self.tree = NegativeTree(domain, largest_first)
        self.covered_by: dict[str, Boxes] = {}
        self.taken = 0
        """The number of CoveredBy boxes."""
        self.joined = 0
        """How many boxes merging has saved so far. CoveredBy is merged only when it is given back: at every
        turn, that made a quarter fewer of them and took twice the time."""
        self._k, self._choice, self._dynamic = k, CHOICES[choice], dynamic
        self._max_boxes, self._merge_sweeps = max_boxes, merge_sweeps

    def threshold(self, order: int) -> int:
        """How many boxes more the subscription number `order` may make.

        k, or with `dynamic` ζ(i) = k·i - m, m boxes being there now ([NEG08] §4); 0 leaves the free trims.
        Differs: i counts the subscriptions that live, so that withdrawals lower the allowance too; and the cap on
        the boxes of R, the same as in the exact mode, may lower it further.
        """
        limit = self._k * order - len(self.tree) if self._dynamic else self._k
        cap = boxes_allowed(self._max_boxes, order)
        return max(min(limit, sys.maxsize if cap is None else cap - len(self.tree)), 0)

    def _is_full(self, order: int) -> bool:
        """Whether nothing is cut any more, not even for free: each cut is a box of CoveredBy.

        Where there is a cap, that has as many as R may have, or k for each subscription if these are more: what
        figure 8 lets each of them make.
        """
        cap = boxes_allowed(self._max_boxes, order)
        return cap is not None and self.taken >= max(cap, self._k * order)

    def subscribe(self, id: str, boxes: Boxes, order: int) -> None:
        """Cut an active subscription out where it pays (figure 8, lines 8 to 29).

        Differs: a subscription of several boxes spends one threshold on all of them.
        Cost: O(hits) for the metrics and O(k log hits) for the choice, after the walks.
        """
        limit = self.threshold(order)
        taken = Boxes.empty(self.tree.d)
        for low, high in () if self._is_full(order) else boxes:
            part, spent = self.tree.subtract_best(low, high, limit, self._choice)
            limit -= spent
            taken = part if len(taken) == 0 else taken.joined(part)
        self.covered_by[id] = taken
        self.taken += len(taken)
        self.joined += self.tree.merge_if_grown(self._merge_sweeps)

    def give_back(self, ids: list[str], active: EntryRows) -> Boxes:
        """Make CoveredBy of cancelled subscriptions negative again (figure 9, line 6), neighbours joined.

        Returns what became negative. Differs: a box that another subscription contains goes over to the first such:
        it is still covered, and nobody needs to be asked again. Cost: a question a box.
        """
        given = [Boxes.empty(self.tree.d)]
        for id in ids:
            boxes = self.covered_by.pop(id)
            self.taken -= len(boxes)
            merged = merged_boxes(boxes, self._merge_sweeps)
            self.joined += len(boxes) - len(merged)
            heirs = np.array([active.containing(low, high) for low, high in merged], np.int64)
            kept = np.flatnonzero(heirs >= 0)
            for i, heir in enumerate(active.owners(heirs[kept])):
                self.covered_by[heir] = self.covered_by[heir].joined(merged.take(kept[i : i + 1]))
            self.taken += int((heirs >= 0).sum())
            free = merged.take(heirs < 0)
            self.tree.add(free)
            given.append(free)
        self.joined += self.tree.merge_if_grown(self._merge_sweeps)
        return Boxes.concatenated(given, self.tree.d)

    def hand_over(self, old: str, new: str) -> None:
        """Let `new`, which contains `old`, own what `old` took out."""
        self.covered_by[new] = self.covered_by[new].joined(self.covered_by.pop(old))

    def __len__(self) -> int:
        """The number of boxes of R and of CoveredBy."""
        return len(self.tree) + self.taken

    def uncut(self, active: Mapping[str, Boxes]) -> int:
        """The number of active boxes of which nothing is cut out."""
        return sum(len(active[id]) for id, taken in self.covered_by.items() if len(taken) == 0)

    def _owned(self) -> Boxes:
        """All CoveredBy boxes, the position of their owner as the first dimension."""
        taken = Boxes.concatenated(list(self.covered_by.values()), self.tree.d)
        counts = [len(boxes) for boxes in self.covered_by.values()]
        owner = np.repeat(np.arange(len(counts)), counts)[:, None]
        return Boxes(np.hstack([owner, taken.lows]), np.hstack([owner, taken.highs]))

    def check(self, domain: Boxes, active: Mapping[str, Boxes]) -> None:
        """Assert that R and CoveredBy are disjoint, fill the cube, and lie where they should."""
        assert set(self.covered_by) == set(active)
        assert self.taken == sum(len(boxes) for boxes in self.covered_by.values())
        everything = self.tree.boxes()
        for id, taken in self.covered_by.items():
            everything = everything.joined(taken)
            outside = NegativeTree(taken)
            for low, high in active[id]:
                outside.subtract(low, high)
            assert len(outside) == 0, f"CoveredBy of {id} leaves it"
        # The check of a tree of all of them is that they are disjoint; disjoint and as large as the cube,
        # they fill it.
        NegativeTree(everything).check()
        assert volume(everything) == volume(domain), "R and CoveredBy do not fill the cube"

    def encode(self) -> bytes:
        # In a fixed order, because what `subtract_best` returns follows the tree's shape.
        taken = in_order(self._owned())
        sizes = np.bincount(taken.lows[:, 0], minlength=len(self.covered_by))
        boxes = pack_boxes(Boxes(taken.lows[:, 1:], taken.highs[:, 1:]))
        covered_by = PackedEntries(list(self.covered_by), pack_numbers(sizes), boxes)
        return formats.write(FORMAT, _Packed(self.tree.encode(), covered_by))

    def restore(self, blob: bytes) -> None:
        """Take over the state that `encode` packed."""
        packed = formats.read("an approximate space", FORMAT, blob, _Packed)
        self.tree = NegativeTree.decode(packed.tree)
        self.covered_by, boxes = unpack_entries(packed.covered_by, self.tree.d)
        self.taken = len(boxes)
