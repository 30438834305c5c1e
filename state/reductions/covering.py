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
from numpy.typing import NDArray

from state.kernels import njit
from state.reductions.interface import Decision, Delta, Geometry
from state.reductions.packing import pack_entries, unpack_entries_and
from state.space.boxes import Boxes

Ints = NDArray[np.int64]


@njit
def _containing(lows: Ints, highs: Ints, owners: Ints, n: int, low: Ints, high: Ints, start: int) -> int:
    """The first stored box at or after `start` that holds the box low..high, or -1; dead rows have owner -1."""
    d = low.shape[0]
    for i in range(start, n):
        if owners[i] < 0:
            continue
        inside = True
        for j in range(d):
            if lows[i, j] > low[j] or highs[i, j] < high[j]:
                inside = False
                break
        if inside:
            return i
    return -1


@njit
def _contained(lows: Ints, highs: Ints, owners: Ints, n: int, low: Ints, high: Ints, hits: Ints) -> int:
    """Write the rows of stored boxes inside the box low..high to `hits`; return how many."""
    d = low.shape[0]
    count = 0
    for i in range(n):
        if owners[i] < 0:
            continue
        inside = True
        for j in range(d):
            if lows[i, j] < low[j] or highs[i, j] > high[j]:
                inside = False
                break
        if inside:
            hits[count] = i
            count += 1
    return count


class _Rows:
    """The boxes of the active entries in flat arrays; a removed entry leaves dead rows until the next compaction."""

    def __init__(self, d: int) -> None:
        self.lows = np.empty((16, d), np.int64)
        self.highs = np.empty((16, d), np.int64)
        self.owners = np.empty(16, np.int64)
        self.n = 0
        self.dead = 0
        self.rows: dict[int, NDArray[np.int64]] = {}

    def add(self, owner: int, boxes: Boxes) -> None:
        m = len(boxes)
        if self.n + m > len(self.owners):
            self._make_room(m)
        rows = np.arange(self.n, self.n + m)
        self.lows[rows], self.highs[rows], self.owners[rows] = boxes.lows, boxes.highs, owner
        self.rows[owner] = rows
        self.n += m

    def remove(self, owner: int) -> None:
        rows = self.rows.pop(owner)
        self.owners[rows] = -1
        self.dead += len(rows)

    def _make_room(self, m: int) -> None:
        keep = np.flatnonzero(self.owners[: self.n] >= 0)
        size = max(16, 2 * (len(keep) + m))
        lows, highs, owners = self.lows[keep], self.highs[keep], self.owners[keep]
        d = lows.shape[1]
        self.lows, self.highs = np.empty((size, d), np.int64), np.empty((size, d), np.int64)
        self.owners = np.full(size, -1, np.int64)
        self.n, self.dead = len(keep), 0
        self.lows[: self.n], self.highs[: self.n], self.owners[: self.n] = lows, highs, owners
        order = np.argsort(owners, kind="stable")
        cuts = np.flatnonzero(np.diff(owners[order])) + 1
        self.rows = {int(owners[rows[0]]): rows for rows in np.split(order, cuts) if len(rows)}


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
        self._domain = domain
        self._entries: dict[str, Boxes] = {}
        self._numbers: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._next = 0
        self._active = _Rows(domain.d)
        self._coverer: dict[str, str] = {}
        self._covers: dict[str, dict[str, None]] = {}

    @staticmethod
    def check_parameters(parameters: Mapping[str, object]) -> list[str]:
        return [f"parameter {name!r} is unknown: 'covering' has no parameters" for name in parameters]

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
        return self._delta(touched)

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
        rows = self._active
        start = 0
        while True:
            row = int(_containing(rows.lows, rows.highs, rows.owners, rows.n, boxes.lows[0], boxes.highs[0], start))
            if row < 0:
                return None
            owner = int(rows.owners[row])
            if len(boxes) == 1 or _covers(self._entries[self._ids[owner]], boxes):
                return self._ids[owner]
            start = row + 1

    def _find_covered(self, boxes: Boxes) -> list[str]:
        rows = self._active
        hits = np.empty(rows.n, np.int64)
        owners: set[int] = set()
        for low, high in boxes:
            count = int(_contained(rows.lows, rows.highs, rows.owners, rows.n, low, high, hits))
            owners.update(int(o) for o in rows.owners[hits[:count]])
        ids = [self._ids[owner] for owner in sorted(owners)]
        return [id for id in ids if _covers(boxes, self._entries[id])]

    def _delta(self, touched: dict[str, Boxes | None]) -> Delta:
        added: dict[str, Geometry] = {}
        removed = []
        for id, before in touched.items():
            now = self._entries[id] if id in self._numbers else None
            if now is None and before is not None:
                removed.append(id)
            elif now is not None and (before is None or before != now):
                added[id] = now
        return Delta(added, tuple(removed))

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
            self._active.add(number, self._entries[id])
        self._next = n_active
        for id, position in zip(ids[n_active:], np.frombuffer(packed, "<i4").tolist(), strict=True):
            self._withhold(id, ids[position])
        return self


def _covers(outer: Boxes, inner: Boxes) -> bool:
    """Whether each box of `inner` lies inside one box of `outer`."""
    inside = (outer.lows[:, None, :] <= inner.lows[None, :, :]) & (outer.highs[:, None, :] >= inner.highs[None, :, :])
    return bool(inside.all(axis=2).any(axis=0).all())
