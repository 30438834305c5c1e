"""Closed integer boxes on the rank space: the geometry that everything else is written in.

Every attribute maps to an order-preserving int64 rank (`ranks.py`), so a conjunction of predicates is a closed
box of integers, and subtracting one box from another is a matter of +-1: no epsilon, no open ends.

    rank  ABSENT            PRESENT_MIN ........................ PRESENT_MAX
          (not there)       every value that an event can carry
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from state.arrays import Bools, Floats, Ints
from state.space.ranks import ABSENT, PRESENT_MAX

Ranks = Ints
"""Points or corners: (n, d), a column for each attribute."""


class Boxes(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A set of closed boxes: row i is the box `lows[i] <= x <= highs[i]` in every dimension.

    Invariant: both arrays are int64 of one shape (n, d), C-contiguous, and `lows <= highs` everywhere.
    The boxes of one subscription are disjoint; `Boxes` itself does not ask for that.
    A `Struct`, which is made in a tenth of the time of a frozen dataclass: every entry at every broker has one.

    >>> b = Boxes.of([([0, 0], [3, 3]), ([5, 0], [9, 9])])
    >>> len(b), b.d
    (2, 2)
    >>> b.contains(np.array([[1, 1], [4, 4], [9, 0]]))
    array([ True, False,  True])
    """

    lows: Ranks
    highs: Ranks

    @classmethod
    def of(cls, boxes: list[tuple[list[int], list[int]]], d: int | None = None) -> Boxes:
        """Build from a list of (low corner, high corner); `d` is needed only for an empty list."""
        if not boxes:
            assert d is not None, "an empty set of boxes needs its number of dimensions"
            return cls.empty(d)
        lows = np.array([low for low, _ in boxes], dtype=np.int64)
        highs = np.array([high for _, high in boxes], dtype=np.int64)
        return cls(lows, highs)

    @classmethod
    def empty(cls, d: int) -> Boxes:
        return cls(np.empty((0, d), np.int64), np.empty((0, d), np.int64))

    @classmethod
    def everything(cls, d: int) -> Boxes:
        """The one box that spans every rank of `d` attributes, absent included."""
        return cls(np.full((1, d), ABSENT, np.int64), np.full((1, d), PRESENT_MAX, np.int64))

    @property
    def d(self) -> int:
        return int(self.lows.shape[1])

    def __len__(self) -> int:
        return len(self.lows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Boxes):
            return NotImplemented
        if self is other:
            return True
        return np.array_equal(self.lows, other.lows) and np.array_equal(self.highs, other.highs)

    def __ne__(self, other: object) -> bool:
        # msgspec brings one of its own, which asks for the same object
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[tuple[Ranks, Ranks]]:
        return iter(zip(self.lows, self.highs, strict=True))

    def take(self, which: Ints | Bools) -> Boxes:
        """Some of these boxes, by position or by a mask."""
        return Boxes(self.lows[which], self.highs[which])

    def contains(self, points: Ranks) -> Bools:
        """Tell for each row of `points` whether some box holds it. Cost: O(n * d * points), vectorised."""
        inside = np.zeros(len(points), dtype=bool)
        for low, high in self:
            inside |= ((points >= low) & (points <= high)).all(axis=1)
        return inside

    def clipped(self, low: Ranks, high: Ranks) -> Boxes:
        """The parts of these boxes inside one box, the empty ones dropped."""
        lows, highs = np.maximum(self.lows, low), np.minimum(self.highs, high)
        keep = (lows <= highs).all(axis=1)
        return Boxes(np.ascontiguousarray(lows[keep]), np.ascontiguousarray(highs[keep]))

    def bounding(self) -> Boxes:
        """The smallest single box around all of them (none stays none)."""
        if len(self) == 0:
            return self
        return Boxes(self.lows.min(axis=0, keepdims=True), self.highs.max(axis=0, keepdims=True))

    def joined(self, other: Boxes) -> Boxes:
        """These boxes, then the others."""
        return Boxes.concatenated([self, other], self.d)

    @classmethod
    def concatenated(cls, parts: Sequence[Boxes], d: int) -> Boxes:
        """The boxes of all parts, in their order."""
        if not parts:
            return cls.empty(d)
        return cls(np.concatenate([b.lows for b in parts]), np.concatenate([b.highs for b in parts]))

    def widened(self, d: int) -> Boxes:
        """The boxes in d dimensions; the further ones they span."""
        more = len(self), d - self.d
        lows, highs = np.full(more, ABSENT, np.int64), np.full(more, PRESENT_MAX, np.int64)
        return Boxes(np.hstack([self.lows, lows]), np.hstack([self.highs, highs])) if more[1] else self

    def owned(self) -> Boxes:
        """The boxes in memory of their own where theirs is read-only or no plain run.

        numba compiles a kernel anew, for seconds, for each kind of array; arrays out of a message are read-only.
        """
        lows, highs = owned(self.lows), owned(self.highs)
        return self if lows is self.lows and highs is self.highs else Boxes(lows, highs)

    def sides(self) -> Floats:
        """How many ranks each box spans in each dimension."""
        # Unsigned subtraction wraps to the true width: a side may be wider than int64, or narrower than a float's step.
        return (self.highs.view(np.uint64) - self.lows.view(np.uint64)).astype(np.float64) + 1.0

    def check(self) -> None:
        """Assert the invariant."""
        assert self.lows.dtype == np.int64
        assert self.highs.dtype == np.int64
        assert self.lows.shape == self.highs.shape
        assert (self.lows <= self.highs).all()


def owned(ranks: Ranks) -> Ranks:
    """The array itself, or a copy where it is read-only or no plain run of memory: see `Boxes.owned`."""
    return ranks if ranks.flags.carray else np.array(ranks, order="C")
