"""The baseline that reduces nothing: every entry goes to the neighbour as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from state.reductions.packing import pack_entries, unpack_entries
from state.reductions.parameters import NoSettings, read
from state.reductions.reduction import Decision, Delta
from state.space.boxes import Boxes
from state.space.packing import Geometry


class Unreduced:
    """Forwards every entry. Guarantee: exact. Cost: O(1) an entry."""

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        assert isinstance(domain, Boxes)
        read(NoSettings, parameters)
        self._domain = domain
        self._entries: dict[str, Boxes] = {}

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        gone = [id for id in removed if id not in added and self._entries.pop(id, None) is not None]
        news: dict[str, Geometry] = {}
        for id, boxes in added.items():
            assert isinstance(boxes, Boxes)
            if self._entries.get(id) != boxes:
                self._entries[id] = boxes
                news[id] = boxes
        return Delta(news, tuple(gone))

    def decide(self, entry: Geometry) -> Decision:
        return Decision(False, reason="nothing is reduced")

    def forwarded(self) -> dict[str, Geometry]:
        return dict(self._entries)

    def stats(self) -> dict[str, int | float]:
        size = sum(b.lows.nbytes + b.highs.nbytes for b in self._entries.values())
        return {"entries": len(self._entries), "forwarded": len(self._entries), "withheld": 0, "bytes": size}

    def check(self) -> None:
        for boxes in self._entries.values():
            boxes.check()
            assert len(boxes)

    def encode(self) -> bytes:
        return pack_entries(1, self._entries)

    @classmethod
    def decode(cls, blob: bytes, domain: Geometry, parameters: Mapping[str, object] | None = None) -> Unreduced:
        self = cls(domain, parameters)
        self._entries = unpack_entries(1, blob)
        return self
