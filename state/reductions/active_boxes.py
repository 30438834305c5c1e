"""The boxes of the active entries in flat arrays that compiled scans read, and the step that a change of them is."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np

from state.arrays import Ints
from state.kernels import njit
from state.reductions.reduction import Delta
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry

DEAD = -1
"""The owner of rows whose entry was removed."""
_ROOM_MIN = 16


@njit
def meeting(lows: Ranks, highs: Ranks, owners: Ints, low: Ranks, high: Ranks) -> Ints:
    """The live rows that meet the box low..high."""
    found, count = np.empty(len(owners), np.int64), 0
    for i in range(len(owners)):
        meets = owners[i] >= 0
        for j in range(len(low)):
            if not meets:
                break
            meets = lows[i, j] <= high[j] and highs[i, j] >= low[j]
        if meets:
            found[count] = i
            count += 1
    return found[:count]


@njit
def containing(lows: Ranks, highs: Ranks, owners: Ints, low: Ranks, high: Ranks, start: int) -> int:
    """The first live row at or after `start` that contains the box low..high, or -1."""
    for i in range(start, len(owners)):
        contains = owners[i] >= 0
        for j in range(len(low)):
            if not contains:
                break
            contains = lows[i, j] <= low[j] and highs[i, j] >= high[j]
        if contains:
            return i
    return -1


@njit
def contained(lows: Ranks, highs: Ranks, owners: Ints, low: Ranks, high: Ranks) -> Ints:
    """The live rows that the box low..high contains."""
    found, count = np.empty(len(owners), np.int64), 0
    for i in range(len(owners)):
        inside = owners[i] >= 0
        for j in range(len(low)):
            if not inside:
                break
            inside = lows[i, j] >= low[j] and highs[i, j] <= high[j]
        if inside:
            found[count] = i
            count += 1
    return found[:count]


class ActiveBoxes:
    """Boxes by the number of their owner; the rows of one owner lie together, in the order of coming.

    A removed owner leaves dead rows until the arrays are full, and then written anew.
    """

    def __init__(self, d: int) -> None:
        self._rows: dict[int, slice] = {}
        self._allocate(_ROOM_MIN, d)

    def _allocate(self, size: int, d: int) -> None:
        self._lows, self._highs = np.empty((size, d), np.int64), np.empty((size, d), np.int64)
        self._owners = np.full(size, DEAD, np.int64)
        self._n = 0

    def add(self, owner: int, boxes: Boxes) -> None:
        if self._n + len(boxes) > len(self._owners):
            self._make_room(len(boxes))
        rows = slice(self._n, self._n + len(boxes))
        self._lows[rows], self._highs[rows], self._owners[rows] = boxes.lows, boxes.highs, owner
        self._rows[owner] = rows
        self._n = rows.stop

    def fill(self, entries: Sequence[Boxes]) -> None:
        """Add the boxes of owners 0, 1, ... at once, to arrays that are empty still."""
        assert not self._rows
        if not entries:
            return
        lows, highs = (np.concatenate(c) for c in zip(*((b.lows, b.highs) for b in entries), strict=True))
        self._allocate(max(_ROOM_MIN, 2 * len(lows)), lows.shape[1])
        counts = [len(boxes) for boxes in entries]
        self._n = len(lows)
        self._lows[: self._n], self._highs[: self._n] = lows, highs
        self._owners[: self._n] = np.repeat(np.arange(len(entries)), counts)
        start = 0
        for owner, count in enumerate(counts):
            self._rows[owner] = slice(start, start + count)
            start += count

    def remove(self, owner: int) -> None:
        self._owners[self._rows.pop(owner)] = DEAD

    def _make_room(self, more: int) -> None:
        live = np.flatnonzero(self._owners[: self._n] >= 0)
        lows, highs, owners = self._lows[live], self._highs[live], self._owners[live]
        self._allocate(max(_ROOM_MIN, 2 * (len(live) + more)), lows.shape[1])
        self._n = len(live)
        self._lows[: self._n], self._highs[: self._n], self._owners[: self._n] = lows, highs, owners
        start = 0
        for owner, rows in self._rows.items():  # in the order of coming, which is that of the rows
            self._rows[owner] = slice(start, start + rows.stop - rows.start)
            start = self._rows[owner].stop

    @property
    def arrays(self) -> tuple[Ranks, Ranks, Ints]:
        """Lows, highs and owners of all rows, dead ones included: what the scans above take."""
        return self._lows[: self._n], self._highs[: self._n], self._owners[: self._n]

    def meeting(self, low: Ranks, high: Ranks) -> tuple[Ranks, Ranks, Ints]:
        """The boxes that meet low..high, and their owners."""
        rows = meeting(*self.arrays, low, high)
        return self._lows[rows], self._highs[rows], self._owners[rows]

    def boxes_of(self, owner: int) -> Boxes:
        rows = self._rows[owner]
        return Boxes(self._lows[rows], self._highs[rows])

    def owner_numbers(self) -> list[int]:
        return list(self._rows)


def delta_of(touched: Mapping[str, Boxes | None], entries: Mapping[str, Boxes], active: Container[str]) -> Delta:
    """The step from what was forwarded of the `touched` ids before (None: nothing) to what is active now."""
    added: dict[str, Geometry] = {}
    removed = []
    for id, before in touched.items():
        now = entries[id] if id in active else None
        if now is None and before is not None:
            removed.append(id)
        elif now is not None and (before is None or before != now):
            added[id] = now
    return Delta(added, tuple(removed))
