"""The linear matcher: every event against every box, in plain numpy. The baseline.

One column at a time, so that each step is one comparison over contiguous memory; what is left is memory bandwidth.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Bools, Ints
from state.matchers.matcher import Matches, as_points, owned
from state.space.boxes import Boxes, Ranks


class LinearMatcher:
    """Boxes as columns, scanned for each event.

    Guarantee: exact. Cost: O(n * d) per event; insert and remove O(n).

    >>> m = LinearMatcher(Boxes.of([([0, 0], [3, 3]), ([2, 2], [9, 9])]), np.array([7, 5]))
    >>> m.match(np.array([[1, 1], [2, 3], [8, 0]]))
    Matches(rows=array([0, 1, 1]), ids=array([7, 5, 7]))
    """

    def __init__(self, boxes: Boxes, owners: Ints) -> None:
        self._hold(boxes, owned(boxes, owners))

    def _hold(self, boxes: Boxes, owners: Ints) -> None:
        # In the order of the owners, so that what is found is sorted as it should be.
        order = np.argsort(owners, kind="stable")
        self._owners = owners[order]
        self._lows = np.ascontiguousarray(boxes.lows[order].T)
        self._highs = np.ascontiguousarray(boxes.highs[order].T)

    @property
    def d(self) -> int:
        return len(self._lows)

    def __len__(self) -> int:
        return len(self._owners)

    def _scan(self, low: Ranks, high: Ranks) -> Ints:
        """Rows of the boxes that meet one box (a point is the box with equal corners).

        Whole columns while most boxes are still in; then only the rows that are left.
        """
        inside, j = np.ones(len(self), dtype=bool), -1
        for j in range(self.d):
            inside &= self._highs[j] >= low[j]
            inside &= self._lows[j] <= high[j]
            if 8 * np.count_nonzero(inside) < len(self):
                break
        rows = np.flatnonzero(inside)
        for k in range(j + 1, self.d):
            rows = rows[(self._highs[k][rows] >= low[k]) & (self._lows[k][rows] <= high[k])]
        return rows

    def match(self, points: Ranks, near: bool = False) -> Matches:
        return self.match_boxes(points, points)

    def match_any(self, points: Ranks, near: bool = False) -> Bools:
        return np.array([len(self._scan(p, p)) > 0 for p in as_points(points, self.d)], dtype=bool)

    def match_boxes(self, lows: Ranks, highs: Ranks) -> Matches:
        lows, highs = as_points(lows, self.d), as_points(highs, self.d)
        found = [self._scan(low, high) for low, high in zip(lows, highs, strict=True)]
        events = np.repeat(np.arange(len(found)), [len(rows) for rows in found])
        ids = self._owners[np.concatenate([*found, np.empty(0, np.int64)])]
        first = np.ones(len(ids), dtype=bool)
        first[1:] = (ids[1:] != ids[:-1]) | (events[1:] != events[:-1])
        return Matches(events[first], ids[first])

    def insert(self, boxes: Boxes, owners: Ints) -> None:
        held, held_owners = self.boxes()
        self._hold(held.joined(boxes), np.concatenate([held_owners, owned(boxes, owners)]))

    def remove(self, owners: Ints) -> None:
        keep = ~np.isin(self._owners, owners)
        self._owners = self._owners[keep]
        self._lows = np.ascontiguousarray(self._lows[:, keep])
        self._highs = np.ascontiguousarray(self._highs[:, keep])

    def resort(self) -> None:
        """Nothing to do: a scan has no order."""

    def boxes(self) -> tuple[Boxes, Ints]:
        """The live boxes and their owners, in the order of the owners."""
        return Boxes(np.ascontiguousarray(self._lows.T), np.ascontiguousarray(self._highs.T)), self._owners

    def memory(self) -> int:
        return self._lows.nbytes + self._highs.nbytes + self._owners.nbytes

    def check(self) -> None:
        self.boxes()[0].check()
        assert (self._owners[1:] >= self._owners[:-1]).all()
        assert self._lows.flags.c_contiguous
        assert self._highs.flags.c_contiguous
        assert self._lows.shape == self._highs.shape == (self.d, len(self._owners))
