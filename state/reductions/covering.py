"""Pairwise covering, the baseline of SIENA and of every paper here: one entry contains one entry.

An entry is *active* (forwarded) or *passive* (withheld, because one active entry covers it whole). Each passive entry
knows its coverer, so that removing an active one re-tests just what it had been covering.

    active   A ──covers──> p, q         remove A:  p finds B, stays passive
             B                                     q finds nobody, is promoted, in the step that removes A
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from state.reductions.active_boxes import ActiveBoxes, contained, containing, delta_of
from state.reductions.packing import pack_entries, unpack_entries_and
from state.reductions.parameters import NoSettings, read
from state.reductions.reduction import Decision, Delta
from state.space.boxes import Boxes
from state.space.packing import Geometry


class Covering:
    """Forwards what no single other entry covers.

    Guarantee: exact: the union of what is forwarded is the union of the live entries.
    Cost: O(active boxes * d) an entry, compiled; a removal re-tests just what the entry had been covering.

    >>> c = Covering(Boxes.everything(1))
    >>> wide, narrow = Boxes.of([([0], [9])]), Boxes.of([([2], [3])])
    >>> sorted(c.update({"wide": wide, "narrow": narrow}).added)
    ['wide']
    >>> delta = c.update({}, ["wide"])
    >>> sorted(delta.added), delta.removed
    (['narrow'], ('wide',))
    """

    def __init__(self, domain: Geometry, parameters: Mapping[str, object] | None = None) -> None:
        assert isinstance(domain, Boxes)
        read(NoSettings, parameters)
        self._domain = domain
        self._entries: dict[str, Boxes] = {}
        self._numbers: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._next = 0
        self._active = ActiveBoxes(domain.d)
        self._coverer: dict[str, str] = {}
        self._covers: dict[str, dict[str, None]] = {}

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        touched: dict[str, Boxes | None] = {}
        orphans: dict[str, None] = {}
        news: dict[str, Boxes] = {}
        for id, boxes in added.items():
            assert isinstance(boxes, Boxes)
            if self._entries.get(id) != boxes:
                news[id] = boxes
        gone = [id for id in removed if id not in added and id in self._entries]
        for id in [*gone, *(id for id in news if id in self._entries)]:
            orphans |= self._take_out(id, touched)
        for id in gone:
            orphans.pop(id, None)
        for id, boxes in news.items():
            orphans.pop(id, None)
            self._put_in(id, boxes, touched)
        for id in orphans:
            self._put_in(id, self._entries[id], touched)
        return delta_of(touched, self._entries, self._numbers)

    def _take_out(self, id: str, touched: dict[str, Boxes | None]) -> dict[str, None]:
        """Remove an entry; return the ids that it had been covering."""
        if id not in self._numbers:
            coverer = self._coverer.pop(id, None)
            if coverer is not None:  # else its coverer was taken out in this same step
                self._covers[coverer].pop(id, None)
            del self._entries[id]
            return {}
        touched.setdefault(id, self._entries[id])
        del self._entries[id]
        number = self._numbers.pop(id)
        del self._ids[number]
        self._active.remove(number)
        orphans = self._covers.pop(id, {})
        for orphan in orphans:
            del self._coverer[orphan]
        return orphans

    def _put_in(self, id: str, boxes: Boxes, touched: dict[str, Boxes | None]) -> None:
        self._entries[id] = boxes
        coverer = self._find_coverer(boxes)
        if coverer is not None:
            self._withhold(id, coverer)
            return
        for covered in self._find_covered(boxes):
            self._retire(covered, id, touched)
        number = self._next
        self._next += 1
        self._numbers[id], self._ids[number] = number, id
        self._active.add(number, boxes)
        touched.setdefault(id, None)

    def _withhold(self, id: str, coverer: str) -> None:
        self._coverer.pop(id, None)  # heirs go last here too, so that `decode` finds the order of `_covers`
        self._coverer[id] = coverer
        self._covers.setdefault(coverer, {})[id] = None

    def _retire(self, id: str, coverer: str, touched: dict[str, Boxes | None]) -> None:
        """An active entry becomes passive, and what it covered goes to its own coverer."""
        touched.setdefault(id, self._entries[id])
        number = self._numbers.pop(id)
        del self._ids[number]
        self._active.remove(number)
        for heir in self._covers.pop(id, {}):
            self._withhold(heir, coverer)
        self._withhold(id, coverer)

    def _find_coverer(self, boxes: Boxes) -> str | None:
        lows, highs, owners = self._active.arrays
        start = 0
        while True:
            row = int(containing(lows, highs, owners, boxes.lows[0], boxes.highs[0], start))
            if row < 0:
                return None
            owner = int(owners[row])
            if len(boxes) == 1 or _covers(self._entries[self._ids[owner]], boxes):
                return self._ids[owner]
            start = row + 1

    def _find_covered(self, boxes: Boxes) -> list[str]:
        lows, highs, owners = self._active.arrays
        found: set[int] = set()
        for low, high in boxes:
            found.update(owners[contained(lows, highs, owners, low, high)].tolist())
        ids = [self._ids[owner] for owner in sorted(found)]
        return [id for id in ids if _covers(boxes, self._entries[id])]

    def decide(self, entry: Geometry) -> Decision:
        assert isinstance(entry, Boxes)
        coverer = self._find_coverer(entry) if len(entry) else None
        if coverer is None:
            return Decision(False, reason="no single active entry covers it")
        return Decision(True, (coverer,), reason=f"covered by {coverer}")

    def forwarded(self) -> dict[str, Geometry]:
        return {id: self._entries[id] for id in self._numbers}

    def coverer(self, id: str) -> str | None:
        """Who covers a passive entry."""
        return self._coverer.get(id)

    def stats(self) -> dict[str, int | float]:
        size = sum(b.lows.nbytes + b.highs.nbytes for b in self._entries.values())
        return {
            "entries": len(self._entries),
            "forwarded": len(self._numbers),
            "withheld": len(self._coverer),
            "bytes": size,
        }

    def check(self) -> None:
        """Every entry is active or has an active coverer that covers it; no active one covers another."""
        assert set(self._numbers) | set(self._coverer) == set(self._entries)
        assert not set(self._numbers) & set(self._coverer)
        for id, coverer in self._coverer.items():
            assert coverer in self._numbers
            assert id in self._covers[coverer]
            assert _covers(self._entries[coverer], self._entries[id])
        for coverer, ids in self._covers.items():
            assert all(self._coverer[id] == coverer for id in ids)
        for id in self._numbers:
            for other in self._numbers:
                assert id == other or not _covers(self._entries[id], self._entries[other])

    def encode(self) -> bytes:
        active = {id: self._entries[id] for id in self._numbers}
        passive = {id: self._entries[id] for id in self._coverer}
        position = {id: i for i, id in enumerate(active)}
        coverers = np.array([position[self._coverer[id]] for id in passive], "<i4")
        extra = msgspec.msgpack.encode([len(active), coverers.tobytes()])
        return pack_entries(1, active | passive, extra)

    @classmethod
    def decode(cls, blob: bytes, domain: Geometry, parameters: Mapping[str, object] | None = None) -> Covering:
        self = cls(domain, parameters)
        self._entries, extra = unpack_entries_and(1, blob)
        n_active, packed = msgspec.msgpack.decode(extra, type=tuple[int, bytes])
        ids = list(self._entries)
        for number, id in enumerate(ids[:n_active]):
            self._numbers[id], self._ids[number] = number, id
        self._active.fill([self._entries[id] for id in ids[:n_active]])
        self._next = n_active
        for id, position in zip(ids[n_active:], np.frombuffer(packed, "<i4").tolist(), strict=True):
            self._withhold(id, ids[position])
        return self


def _covers(outer: Boxes, inner: Boxes) -> bool:
    """Whether each box of `inner` lies inside one box of `outer`."""
    inside = (outer.lows[:, None, :] <= inner.lows[None, :, :]) & (outer.highs[:, None, :] >= inner.highs[None, :, :])
    return bool(inside.all(axis=2).any(axis=0).all())
