"""The baseline that reduces nothing: every entry goes to the neighbour as it is."""

from __future__ import annotations

from collections.abc import Mapping

from state.reductions.arrivals import Arrivals
from state.reductions.parameters import NoSettings, read
from state.reductions.reduction import Decision
from state.reductions.withholding import Counts, Withholding
from state.space.boxes import Boxes
from state.space.packing import Geometry

FORWARD = Decision(False, reason="nothing is reduced")


class Unreduced(Withholding):
    """Forwards every entry that is not empty. Guarantee: exact. Cost: O(1) an entry."""

    retires = False
    names_coverers = True

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        super().__init__(domain)
        read(NoSettings, parameters)

    def _judge(self, id: str, boxes: Boxes, counts: Counts) -> Decision:
        return FORWARD

    def _put_in_all(self, entries: Arrivals) -> None:
        some = entries.filled()
        self._before = dict.fromkeys(some.ids) | self._before
        self._active.extend(some)
        self._passive.extend(entries.where(entries.sizes == 0))
