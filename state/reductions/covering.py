"""Pairwise covering, the baseline of SIENA and of every paper here: one entry contains one entry."""

from __future__ import annotations

from collections.abc import Mapping

from state.reductions.arrivals import Arrivals
from state.reductions.entry_rows import covers
from state.reductions.parameters import NoSettings, read
from state.reductions.reduction import Decision
from state.reductions.withholding import Counts, Withholding
from state.space.boxes import Boxes
from state.space.packing import Geometry

FORWARD = Decision(False, reason="no single active entry covers it")


class Covering(Withholding):
    """Forwards what no single other entry covers.

    Guarantee: exact: the union of what is forwarded is the union of the live entries.
    Cost: two questions to a tree of the active boxes an entry; many at once are one compiled pass (`pairwise.py`). A
    removal re-tests just what the entry had been covering.

    >>> c = Covering(Boxes.everything(1))
    >>> wide, narrow = Boxes.of([([0], [9])]), Boxes.of([([2], [3])])
    >>> sorted(c.update({"wide": wide, "narrow": narrow}).added)
    ['wide']
    >>> delta = c.update({}, ["wide"])
    >>> sorted(delta.added), delta.removed
    (['narrow'], ('wide',))
    """

    names_coverers = True

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        super().__init__(domain)
        read(NoSettings, parameters)

    def _judge(self, id: str, boxes: Boxes, counts: Counts) -> Decision:
        coverer = self._active.coverer(boxes)
        return FORWARD if coverer is None else Decision(True, (coverer,), "one active entry contains it")

    def _put_in_all(self, entries: Arrivals) -> None:
        """The same in one compiled pass, where there are many."""
        if len(entries) < self.many:
            super()._put_in_all(entries)
            return
        some = entries.filled()
        self._took_in(entries, self._active.take_in(some) if len(some) else None)

    def check(self) -> None:
        """Also: each passive entry has one coverer, which contains it; no active one contains another."""
        super().check()
        for id, boxes in self._passive.entries.items():
            group = self._group(id)
            assert len(group) == (len(boxes) > 0)
            assert all(covers(self._active.entries[coverer], boxes) for coverer in group)
        for id, boxes in self._active.entries.items():
            assert self._active.inside(boxes) == [id]
