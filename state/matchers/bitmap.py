"""The bitmap matcher: one bit per box for each cell of each dimension, and one summary bit per 64 boxes.

Our own, beside the trees of [STREE03] §3 and behind the same interface.

    dimension 0, cell of the event   0110 0000 0100 ...      boxes in spatial order, so that
    dimension 1, cell of the event   0010 0111 0100 ...      words are empty in runs
    AND                              0010 0000 0100 ...   -> boxes 1 and 9: candidates, compared with their corners
    summary of each (word not 0)     1    1    1             AND-ed first; only surviving words are read

A dimension that no box constrains has no bitmap and costs nothing; one with few distinct corners needs no comparison.
Changes go into *segments*: an insert makes a segment of its own and unites it with those that are not much larger; a
removal clears the bits of its boxes in the segment's `alive`. `resort` makes one segment of all.

On a shelf (`state/shelf.py`) a segment is kept once, for as long as it lives; what changes of it is `alive` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from state.arrays import Bools, Ints, Words
from state.matchers.matcher import Matches, as_points, owned
from state.matchers.order import BLOCK, CURVE_DIMENSIONS
from state.matchers.scan import Found, bury, collect_few, scan_boxes, united
from state.matchers.scan_ahead import collect, mark
from state.matchers.segment import ADDRESS, CELLS_MAX, Rows, Segment, build_segments, by_cells, check, locate, unpacked
from state.shelf import Array, Shelf
from state.space.boxes import Boxes, Ranks
from state.space.hilbert import encode
from state.space.ranks import ABSENT, PRESENT_MAX

FEW = 16
"""Points up to which one call does it all: of a small batch, calls cost most."""
FEW_FOUND = 256
"""Pairs for which there is room at once; where a small batch has more, it is asked again."""
CACHE_BYTES = 4 << 20
"""Bitmaps beyond this do not stay in a core's own cache."""
ORDER_DIMENSIONS = 3
"""Dimensions of a segment by which points are put in order."""

_INT = np.dtype(np.int64)


class _Kept(msgspec.Struct, array_like=True, frozen=True):
    """How a segment is found on a shelf: names of its arrays but for the last, `alive`, and of that."""

    segment: str
    alive: str
    by_owner: str | None
    live: int
    id_min: int
    id_max: int


@dataclass(slots=True, eq=False)
class _Held:
    """A segment and what is known about it outside the kernels."""

    segment: Segment
    live: int
    id_min: int
    id_max: int
    by_owner: NDArray[np.int32] | None = None
    """Rows sorted by owner, made by the first removal."""
    kept: _Kept | None = None
    """Where it is kept, as far as that is still so: an empty name is of what has changed since."""

    @classmethod
    def of(cls, segment: Segment) -> _Held:
        return cls(segment, segment.size(), int(segment.owners.min()), int(segment.owners.max()))

    def visit(self, points: Ranks, near: bool) -> tuple[Rows, Ints]:
        """Find the cells of each point, and the order in which to take the points.

        Where the bitmaps are larger than a core's cache, neighbours after each other (`near`: they are already): 1.4
        times as fast.
        """
        segment = self.segment
        rows = locate(points, segment.dims, segment.trees, segment.first_node, segment.first_row)
        if near or segment.bits.nbytes < CACHE_BYTES or len(points) < 64:
            return rows, np.arange(len(points))
        m = min(len(segment.dims), CURVE_DIMENSIONS)
        cells = rows[:, :m] - segment.first_row[:m]
        return rows, np.argsort(encode(cells, CELLS_MAX.bit_length() - 1), kind="stable")

    def collect(self, points: Ranks, near: bool, alone: bool) -> Found:
        return collect(self.segment, points, *self.visit(points, near), self.id_min, self.id_max, alone)

    def live_rows(self) -> Ints:
        return np.flatnonzero(unpacked(self.segment.alive, self.segment.size()))

    def corners(self, rows: Ints, d: int) -> tuple[Ranks, Ranks]:
        """Corners in all dimensions: those that the segment leaves out are unconstrained."""
        lows, highs = np.full((len(rows), d), ABSENT), np.full((len(rows), d), PRESENT_MAX)
        corners = self.segment.corners[rows]
        lows[:, self.segment.dims], highs[:, self.segment.dims] = corners[:, 0::2], corners[:, 1::2]
        return lows, highs

    def _of(self, owners: Ints) -> tuple[NDArray[np.int32], Ints, Ints]:
        """Rows sorted by owner, and where those of each of these begin and end."""
        if self.by_owner is None:
            self.by_owner = np.argsort(self.segment.owners, kind="stable").astype(np.int32)
        first = np.searchsorted(self.segment.owners, owners, side="left", sorter=self.by_owner)
        return self.by_owner, first, np.searchsorted(self.segment.owners, owners, side="right", sorter=self.by_owner)

    def remove(self, owners: Ints) -> None:
        buried = bury(self.segment.alive, *self._of(owners))
        self.live -= buried
        if buried and self.kept is not None:
            self.kept = msgspec.structs.replace(self.kept, alive="")

    def rows_of(self, owners: Ints) -> Ints:
        """The live rows of these owners, each given once."""
        by_owner, first, end = self._of(owners)
        counts = end - first
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = by_owner[np.repeat(first, counts) + steps].astype(np.int64)
        return rows[(self.segment.alive[rows >> 6] >> (rows & 63).astype(np.uint64)) & np.uint64(1) == 1]

    def keep(self, shelf: Shelf) -> _Kept:
        """Write down what the shelf has not got, and go on with its arrays."""
        *arrays, alive = self.segment
        kept = self.kept or _Kept(shelf.keep(arrays), "", None, 0, self.id_min, self.id_max)
        if not kept.alive:
            kept = msgspec.structs.replace(kept, alive=shelf.keep([alive]), live=self.live)
        if kept.by_owner is None and self.by_owner is not None:
            kept = msgspec.structs.replace(kept, by_owner=shelf.keep([self.by_owner]))
        if self.kept is None:
            self.segment = _segment(shelf.read(kept.segment), alive)
        if kept.by_owner is not None and (self.kept is None or self.kept.by_owner is None):
            self.by_owner = shelf.read(kept.by_owner)[0]
        self.kept = kept
        return kept

    @classmethod
    def opened(cls, kept: _Kept, shelf: Shelf) -> _Held:
        segment = _segment(shelf.read(kept.segment), shelf.read(kept.alive)[0].copy())
        by_owner = None if kept.by_owner is None else shelf.read(kept.by_owner)[0]
        return cls(segment, kept.live, kept.id_min, kept.id_max, by_owner, kept)


def warm() -> None:
    """Compile all that builds and asks, or load it from the cache: few points and many, one segment and several."""
    lows = np.arange(2 * BLOCK)[:, None]
    matcher = BitmapMatcher(Boxes(lows, lows + 1), np.arange(len(lows)))
    for _ in range(2):
        for points in (lows[:FEW], lows):
            matcher.match(points)
            matcher.match_any(points)
            matcher.order(points)
        matcher.insert(Boxes(lows[:1], lows[:1]), np.zeros(1, np.int64))


def _segment(arrays: list[Array], alive: Words) -> Segment:
    return Segment._make([*arrays, alive])


class BitmapMatcher:
    """Cell bitmaps over spatially ordered boxes, in segments; the matcher of the route query.

    Guarantee: exact. Cost, per event: d binary searches among at most 1023 cuts, d ANDs over n / 4096 summary
    words, d ANDs for each word that survives, one comparison of corners for each candidate. An insert of m boxes
    builds O(m log n) rows, amortised; a removal clears one bit per box, after one sort per segment.

    >>> m = BitmapMatcher(Boxes.of([([0, 0], [3, 3]), ([2, 2], [9, 9])]), np.array([7, 5]))
    >>> m.match(np.array([[1, 1], [2, 3], [8, 0]]))
    Matches(rows=array([0, 1, 1]), ids=array([7, 5, 7]))
    >>> m.remove(np.array([7]))
    >>> m.match_any(np.array([[1, 1], [2, 3], [8, 0]]))
    array([False,  True, False])
    """

    def __init__(self, boxes: Boxes, owners: Ints) -> None:
        self._d = boxes.d
        self._levels: list[list[_Held]] = []
        self._places: Ints | None = None
        """Where the segments lie, for a few points; None: not known since they changed."""
        self.insert(boxes, owners)

    @property
    def _held(self) -> list[_Held]:
        return [held for level in self._levels for held in level]

    def _live(self, level: int) -> int:
        return sum(held.live for held in self._levels[level])

    @property
    def d(self) -> int:
        return self._d

    def __len__(self) -> int:
        return sum(held.live for held in self._held)

    def match(self, points: Ranks, near: bool = False) -> Matches:
        """`near`: points that follow each other are near each other, so that they need not be ordered here."""
        points = as_points(points, self._d)
        if not self._levels:
            return Matches.none()
        if len(points) <= FEW:
            return self._match_few(points)
        every = self._held
        alone = len(every) == 1
        return united([held.collect(points, near, alone) for held in every], alone)

    def places(self) -> Ints:
        """Where the segments lie, for `collect_few`. Whoever keeps it keeps this too, and asks again after a change."""
        if self._places is None:
            every = [held.segment.address() for held in self._held]
            self._places = np.array(every, np.int64).reshape(len(every), ADDRESS)
        return self._places

    def _match_few(self, points: Ranks) -> Matches:
        places = self.places()
        found = np.empty((2, FEW_FOUND), _INT)
        n = collect_few(places, points, found)
        if n > FEW_FOUND:
            found = np.empty((2, n), _INT)
            collect_few(places, points, found)
        return Matches(found[0, :n], found[1, :n])

    def match_any(self, points: Ranks, near: bool = False) -> Bools:
        points = as_points(points, self._d)
        found = np.zeros(len(points), dtype=bool)
        for held in self._held:
            mark(held.segment, points, *held.visit(points, near), found)
        return found

    def match_boxes(self, lows: Ranks, highs: Ranks) -> Matches:
        lows, highs = as_points(lows, self._d), as_points(highs, self._d)
        found = [scan_boxes(held.segment, lows, highs) for held in self._held]
        if not found:
            return Matches.none()
        events = np.concatenate([event for event, _ in found])
        owners = [held.segment.owners[rows] for held, (_, rows) in zip(self._held, found, strict=True)]
        return Matches.of(events, np.concatenate(owners))

    def order(self, points: Ranks) -> Ints | None:
        """By the cells of the largest segment, the most selective dimension first: its rows and corners are read in
        the order in which they lie.

        At 100,000 subscriptions that are points in one dimension, matching took 0.84 of what it takes along the curve
        of the grid, which need not know that dimension. Cost: a look-up of each and a counting sort.
        """
        if not self._levels:
            return None
        segment = max((held.segment for held in self._held), key=Segment.size)
        dims = segment.dims[:ORDER_DIMENSIONS]
        rows = locate(as_points(points, self._d), dims, segment.trees, segment.first_node, segment.first_row)
        return by_cells(rows, segment.first_row)

    def insert(self, boxes: Boxes, owners: Ints) -> None:
        assert boxes.d == self._d
        owners = owned(boxes, owners)
        # A level has more than twice the boxes of the next when it is made: n boxes are in O(log n) levels.
        size, kept = len(boxes), len(self._levels)
        while size and kept and self._live(kept - 1) <= 2 * size:
            kept -= 1
            size += self._live(kept)
        if size:
            if kept < len(self._levels):
                old, old_owners = self._gathered([held for level in self._levels[kept:] for held in level])
                boxes, owners = old.joined(boxes), np.concatenate([old_owners, owners])
            segments = build_segments(boxes.lows, boxes.highs, owners)
            self._levels[kept:] = [[_Held.of(segment) for segment in segments]]
            self._places = None

    def remove(self, owners: Ints) -> None:
        gone = np.unique(np.asarray(owners, dtype=np.int64))
        for held in self._held:
            held.remove(gone)
        self._levels = [level for level in ([held for held in level if held.live] for level in self._levels) if level]
        self._places = None

    def widen(self, d: int) -> None:
        assert d >= self._d
        self._d = d  # segments name the dimensions that their boxes constrain, and know of no others

    def resort(self) -> None:
        """Make one segment of all live boxes, in fresh order and with fresh cells. Cost: that of a build."""
        boxes, owners = self.boxes()
        self._levels, self._places = [], None
        self.insert(boxes, owners)

    def boxes(self) -> tuple[Boxes, Ints]:
        """The live boxes and their owners, in the order of storage."""
        return self._gathered(self._held)

    def _gathered(self, some: list[_Held]) -> tuple[Boxes, Ints]:
        return self._taken([(held, held.live_rows()) for held in some])

    def _taken(self, some: list[tuple[_Held, Ints]]) -> tuple[Boxes, Ints]:
        """Boxes and owners of some rows of each segment."""
        corners = [held.corners(rows, self._d) for held, rows in some]
        empty = Boxes.empty(self._d)
        lows = np.concatenate([empty.lows, *(low for low, _ in corners)])
        highs = np.concatenate([empty.highs, *(high for _, high in corners)])
        owners = [held.segment.owners[rows] for held, rows in some]
        return Boxes(lows, highs), np.concatenate([np.empty(0, np.int64), *owners])

    def boxes_of(self, owners: Ints) -> tuple[Boxes, Ints]:
        some = np.unique(np.asarray(owners, dtype=np.int64))
        return self._taken([(held, held.rows_of(some)) for held in self._held])

    def keep(self, shelf: Shelf) -> Any:
        self._places = None
        return [[msgspec.to_builtins(held.keep(shelf)) for held in level] for level in self._levels]

    def open(self, kept: Any, shelf: Shelf) -> None:
        levels = msgspec.convert(kept, list[list[_Kept]])
        self._levels = [[_Held.opened(one, shelf) for one in level] for level in levels]
        self._places = None

    def memory(self) -> int:
        indices = sum(held.by_owner.nbytes for held in self._held if held.by_owner is not None)
        return indices + sum(array.nbytes for held in self._held for array in held.segment)

    def check(self) -> None:
        for held in self._held:
            check(held.segment)
            assert 0 < held.live == len(held.live_rows())
            assert held.id_min <= held.segment.owners.min() <= held.segment.owners.max() <= held.id_max
