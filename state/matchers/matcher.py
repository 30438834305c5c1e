"""What every exact matcher owes its caller: which subscriptions hold an event, for a batch of events at once.

A matcher stores closed boxes, each with an *owner*: the number of the subscription that it belongs to (a subscription
with alternatives has several boxes). It answers for points, and for boxes, which are imprecise publications.

    points (n, d) ──match──────────> Matches(rows, ids)       who: pairs, sorted, without repeats
                  ──match_any──────> bool (n,)                does anybody care

Exact means exact for the boxes. What a box cannot say (LIKE, text beyond its first seven bytes, trees that
were kept whole) the caller evaluates on the pairs that come out.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from state.arrays import Bools, Ints
from state.shelf import Shelf
from state.space.boxes import Boxes, Ranks


class Matches(NamedTuple):
    """Pairs of (row of the batch, owner that matches it), sorted by both, without repeats."""

    rows: Ints
    ids: Ints

    @classmethod
    def none(cls) -> Matches:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def of(cls, rows: Ints, ids: Ints) -> Matches:
        """Sort pairs that come in any order and drop repeats. Cost: O(pairs log pairs)."""
        if len(rows) == 0:
            return cls.none()
        order = np.lexsort((ids, rows))
        rows, ids = rows[order], ids[order]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = (rows[1:] != rows[:-1]) | (ids[1:] != ids[:-1])
        return cls(rows[first], ids[first])


@runtime_checkable
class Matcher(Protocol):
    """A set of owned boxes that can be asked and changed; built as `SomeMatcher(boxes, owners)`.

    Guarantee: after any sequence of insert, remove and resort every answer equals that of a scan over the live
    boxes. Deterministic: the same calls give the same answers, bit for bit.
    """

    @property
    def d(self) -> int:
        """Dimensions of every box and point."""
        ...

    def __len__(self) -> int:
        """Number of live boxes."""
        ...

    def match(self, points: Ranks, near: bool = False) -> Matches:
        """Return the owners of the boxes that hold each row of `points`.

        `near`: points that follow each other are near each other. It changes no answer, only what it costs.
        """
        ...

    def match_any(self, points: Ranks, near: bool = False) -> Bools:
        """Tell for each row of `points` whether some box holds it."""
        ...

    def match_boxes(self, lows: Ranks, highs: Ranks) -> Matches:
        """Return the owners a box of whom meets an imprecise publication, the closed box `lows[i] .. highs[i]`."""
        ...

    def insert(self, boxes: Boxes, owners: Ints) -> None:
        """Add boxes; an owner that is there already gets them in addition."""
        ...

    def remove(self, owners: Ints) -> None:
        """Drop every box of these owners; unknown ones are ignored."""
        ...

    def resort(self) -> None:
        """Rebuild for speed after many changes; answers stay the same. The caller decides when."""
        ...

    def memory(self) -> int:
        """Bytes held."""
        ...

    def check(self) -> None:
        """Assert every invariant."""
        ...


@runtime_checkable
class SharedMatcher(Matcher, Protocol):
    """A matcher of junctions: it can be read out, and be kept where several processes read it."""

    def widen(self, d: int) -> None:
        """Have boxes and points of d dimensions, not fewer than now; the boxes that are here span the further ones."""
        ...

    def order(self, points: Ranks) -> Ints | None:
        """The places of points in an order in which they are near each other here; None: any other is as good."""
        ...

    def boxes_of(self, owners: Ints) -> tuple[Boxes, Ints]:
        """The live boxes of these owners, and whose each is, in any order. Cost: that of the owners, once indexed."""
        ...

    def boxes(self) -> tuple[Boxes, Ints]:
        """All live boxes and their owners, in the order of storage."""
        ...

    def keep(self, shelf: Shelf) -> Any:
        """Write down what a shelf has not got, and go on with its arrays; return how to `open` it, as plain data.

        Cost: that of what changed since the last time, and one bit for each box of what a removal touched.
        """
        ...

    def open(self, kept: Any, shelf: Shelf) -> None:
        """Be what was kept; what is here is forgotten. What is changed afterwards, the shelf does not see."""
        ...


def owned(boxes: Boxes, owners: Ints) -> Ints:
    """Return `owners` as int64, one per box."""
    owners = np.ascontiguousarray(owners, dtype=np.int64)
    assert owners.shape == (len(boxes),), "one owner per box"
    return owners


def as_points(points: Ranks, d: int) -> Ranks:
    """Return `points` as the kernels read them: int64, row by row, of the matcher's dimensions."""
    points = np.ascontiguousarray(points, dtype=np.int64)
    assert points.ndim == 2, "a batch of points has two axes"
    assert points.shape[1] == d, f"points of {points.shape[1]} dimensions, boxes of {d}"
    return points
