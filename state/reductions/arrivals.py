"""Entries that come in one step, side by side: ids, the boxes of each, and all of these in flat arrays.

    ids     a       b     c               each   Boxes of a, of b, of c: what is kept and told, as it came
    sizes   1       2     0               boxes  a's one and b's two in one run of memory: what kernels read

Many that come together must not be asked one by one for what can be asked of all: flat arrays are made once, and what
takes some of them, or has them in another order, takes them out of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress

import numpy as np

from state.arrays import Bools, Floats, Ints
from state.kernels import njit
from state.space.boxes import Boxes, Ranks
from state.space.packing import Geometry


@njit
def _disjoint(lows: Ranks, highs: Ranks) -> bool:
    """Whether no two rows meet; rows that begin after another ends in the first dimension are passed over by a sort."""
    order = np.argsort(lows[:, 0])
    for a in range(len(order)):
        i = order[a]
        for b in range(a + 1, len(order)):
            k = order[b]
            if lows[k, 0] > highs[i, 0]:
                break
            meets = True
            for j in range(1, lows.shape[1]):
                if lows[i, j] > highs[k, j] or highs[i, j] < lows[k, j]:
                    meets = False
                    break
            if meets:
                return False
    return True


def entry_boxes(entry: Geometry) -> Boxes:
    """The boxes of one entry, in memory that kernels can take. Asserts what `reduction.py` says of entries."""
    assert isinstance(entry, Boxes)
    lows = entry.lows
    if len(lows) == 1 and lows.flags.carray and entry.highs.flags.carray:
        return entry
    boxes = entry.owned()
    assert len(lows) < 2 or _disjoint(boxes.lows, boxes.highs), "the boxes of one entry overlap"
    return boxes


def by_share(shares: Floats, ids: Callable[[list[int]], list[str]]) -> Ints:
    """The order of entries by their shares, the larger first, equally large ones by id: `ids` of some is asked for."""
    order = np.argsort(-shares)
    alike = np.diff(shares[order]) == 0
    if alike.any():
        at = np.flatnonzero(np.append(alike, False) | np.append(False, alike))
        some = order[at].tolist()
        order[at] = [i for _, _, i in sorted(zip((-shares[some]).tolist(), ids(some), some, strict=True))]
    return order


class Arrivals:
    """Entries in some order; the flat arrays are made when they are first asked for.

    Cost, n entries: a few passes over them, of which one reads the arrays of each; what follows is numpy's.

    >>> a, b = Boxes.of([([0], [1])]), Boxes.of([([0], [3]), ([7], [9])])
    >>> both = Arrivals(["a", "b"], [a, b], 1)
    >>> both.largest_first(Boxes.of([([0], [9])])).ids, both.sizes.tolist(), both.boxes.highs[:, 0].tolist()
    (['b', 'a'], [1, 2], [1, 3, 9])
    """

    def __init__(self, ids: Sequence[str], each: Sequence[Boxes], d: int) -> None:
        self.ids, self.each, self._d = ids, each, d
        self._sizes: Ints | None = None
        self._ends: Ints | None = None
        self._boxes: Boxes | None = None

    @classmethod
    def of(cls, entries: Mapping[str, Geometry], d: int) -> Arrivals:
        """Entries as they are given, each in memory that kernels can take."""
        return cls(list(entries), [entry_boxes(entry) for entry in entries.values()], d)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[str, Boxes]]:
        return iter(zip(self.ids, self.each, strict=True))

    @property
    def sizes(self) -> Ints:
        """How many boxes each has."""
        if self._sizes is None:
            self._sizes = np.array([len(boxes.lows) for boxes in self.each], np.int64)
        return self._sizes

    @property
    def boxes(self) -> Boxes:
        """All boxes, in the order of their entries."""
        if self._boxes is None:
            self._boxes = Boxes(*(self._flat([getattr(b, side) for b in self.each]) for side in ("lows", "highs")))
        return self._boxes

    def _flat(self, some: list[Ranks]) -> Ranks:
        # numpy's `concatenate` takes four times as long for so small ones. Arrays are buffers: mypy does not know.
        joined = bytearray().join(some)  # type: ignore[arg-type]
        return np.frombuffer(joined, np.int64).reshape(-1, self._d)

    def and_also(self, more: Mapping[str, Boxes]) -> Arrivals:
        """These, then others."""
        return Arrivals([*self.ids, *more], [*self.each, *more.values()], self._d) if more else self

    def where(self, mask: Bools) -> Arrivals:
        """Some of these."""
        if mask.all():
            return self
        kept = mask.tolist()
        some = Arrivals(list(compress(self.ids, kept)), list(compress(self.each, kept)), self._d)
        if self._boxes is not None:
            some._sizes, some._boxes = self.sizes[mask], self._boxes.take(np.repeat(mask, self.sizes))
        return some

    def span(self, begin: int, end: int) -> Arrivals:
        """Those from one place to another."""
        some = Arrivals(self.ids[begin:end], self.each[begin:end], self._d)
        if self._boxes is not None:
            if self._ends is None:
                self._ends = np.append(0, np.cumsum(self.sizes))
            rows = slice(int(self._ends[begin]), int(self._ends[min(end, len(self))]))
            some._sizes, some._boxes = self.sizes[begin:end], Boxes(self._boxes.lows[rows], self._boxes.highs[rows])
        return some

    def filled(self) -> Arrivals:
        """Those that have boxes."""
        return self.where(self.sizes > 0)

    def largest_first(self, domain: Boxes) -> Arrivals:
        """By their share of the domain, the larger first, equally large ones by id."""
        if len(self) < 2:
            return self
        sides = self.boxes.sides() / domain.sides()
        owners = np.repeat(np.arange(len(self)), self.sizes)
        shares = np.bincount(owners, sides.prod(axis=1), len(self)).astype(float)
        return self._in_order(by_share(shares, lambda some: [self.ids[i] for i in some]))

    def _in_order(self, order: Ints) -> Arrivals:
        places, sizes = order.tolist(), self.sizes[order]
        found = Arrivals([self.ids[i] for i in places], [self.each[i] for i in places], self._d)
        # The rows of an entry follow its first one.
        starts = np.cumsum(self.sizes) - self.sizes
        rows = np.repeat(starts[order] - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
        found._sizes, found._boxes = sizes, self.boxes.take(rows)
        return found
