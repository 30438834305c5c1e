"""The grid over which clients are grouped: a few cells per dimension, and who is interested in each.

[STREE03] appendix A.2, step 0: at most C intervals of equal length in each dimension; l(g) is the set of clients with a
box that meets cell g; of all cells the T with the largest p(g) * |l(g)| are kept.

Differs: the paper's grid covers all interest rectangles; half-infinite and very long ones would make its cells
useless, so the grid covers a given domain, and its first and last cells reach to the ends of the rank space. Only
some dimensions may be used, and cells may be cut at quantiles instead: ranks of floats and text are not
evenly spread. The number of cells is the product over the dimensions; `CELLS_MAX` bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from state.arrays import Bools, Floats, Ints
from state.space.boxes import Boxes, Ranks
from state.space.ranks import ABSENT, PRESENT_MAX

CELLS_MAX = 1 << 20
"""Cells of one grid."""


@dataclass(frozen=True, eq=False)
class CellGrid:
    """Cells as products of intervals: interval i of dimension `dims[j]` begins at `cuts[j][i - 1]`, the first at the
    lowest rank.

    >>> grid = CellGrid.equal(np.array([0, 0]), np.array([9, 3]), cells=2)
    >>> grid.shape, grid.cells_of(np.array([[0, 0], [4, 2], [5, 2], [99, -7]])).tolist()
    ((2, 2), [0, 1, 3, 2])
    """

    dims: tuple[int, ...]
    cuts: tuple[Ranks, ...]

    def __post_init__(self) -> None:
        assert len(self) <= CELLS_MAX, f"{len(self)} cells are more than {CELLS_MAX}: fewer intervals or dimensions"

    @classmethod
    def equal(cls, lows: Ranks, highs: Ranks, cells: int, dims: tuple[int, ...] | None = None) -> CellGrid:
        """Cut the domain `lows .. highs` into at most `cells` equal intervals per dimension, as the paper does."""
        chosen = tuple(range(len(lows))) if dims is None else dims
        cuts = []
        for j in chosen:
            low, high = int(lows[j]), int(highs[j])
            places = [low + (high - low + 1) * i // cells for i in range(1, cells)]
            cuts.append(np.unique(np.array([p for p in places if low < p <= high], np.int64)))
        return cls(chosen, tuple(cuts))

    @classmethod
    def quantile(cls, points: Ranks, cells: int, dims: tuple[int, ...] | None = None) -> CellGrid:
        """Cut where publications are: at most `cells` intervals with about as many of `points` in each."""
        chosen = tuple(range(points.shape[1])) if dims is None else dims
        cuts = []
        for j in chosen:
            ranked = np.sort(points[:, j])
            places = ranked[len(ranked) * np.arange(1, cells) // cells] if len(ranked) else ranked
            cuts.append(np.unique(places[places > ABSENT]))
        return cls(chosen, tuple(cuts))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(c) + 1 for c in self.cuts)

    def __len__(self) -> int:
        size = 1
        for c in self.cuts:
            size *= len(c) + 1
        return size

    def cells_of(self, points: Ranks) -> Ints:
        """Return the number of the cell of each point. Cost: O(n * dimensions * log cells)."""
        cells = np.zeros(len(points), np.int64)
        for j, cuts in zip(self.dims, self.cuts, strict=True):
            cells = cells * (len(cuts) + 1) + np.searchsorted(cuts, points[:, j], side="right")
        return cells

    def boxes_of(self, cells: Ints, d: int) -> Boxes:
        """Return the box of each cell in a space of d dimensions; dimensions that the grid leaves out are free."""
        lows, highs = np.full((len(cells), d), ABSENT), np.full((len(cells), d), PRESENT_MAX)
        for j, cuts, i in zip(self.dims, self.cuts, np.unravel_index(cells, self.shape), strict=True):
            lows[:, j] = np.concatenate([[ABSENT], cuts])[i]
            highs[:, j] = np.concatenate([cuts - 1, [PRESENT_MAX]])[i]
        return Boxes(lows, highs)

    def touched(self, boxes: Boxes) -> tuple[Ints, Ints]:
        """First and last interval of each box in each of the grid's dimensions."""
        first, last = np.empty((len(boxes), len(self.dims)), np.int64), np.empty((len(boxes), len(self.dims)), np.int64)
        for k, (j, cuts) in enumerate(zip(self.dims, self.cuts, strict=True)):
            first[:, k] = np.searchsorted(cuts, boxes.lows[:, j], side="right")
            last[:, k] = np.searchsorted(cuts, boxes.highs[:, j], side="right")
        return first, last

    def interest(self, boxes: Boxes, clients: Ints) -> Ints:
        """Return |l(g)| for every cell: how many clients have a box that meets it.

        Cost: O(boxes touched cells), in slices, and O(cells) per client.
        """
        counts = np.zeros(self.shape, np.int64)
        first, last = self.touched(boxes)
        order = np.argsort(clients, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(clients[order])) + 1):
            own = np.zeros(self.shape, dtype=bool)
            for i in rows:
                own[tuple(slice(a, z + 1) for a, z in zip(first[i], last[i], strict=True))] = True
            counts += own
        return counts.ravel()

    def meets(self, cells: Ints, boxes: Boxes) -> Bools:
        """Tell for each of some cells and each box whether they meet: bool (cells, boxes)."""
        first, last = self.touched(boxes)
        out = np.ones((len(cells), len(boxes)), dtype=bool)
        for k, i in enumerate(np.unravel_index(cells, self.shape)):
            out &= (first[:, k] <= i[:, None]) & (i[:, None] <= last[:, k])
        return out

    def histogram(self, points: Ranks) -> Floats:
        """Share of the points in each cell: p as observed. Nothing observed: every cell alike."""
        if len(points) == 0:
            return np.full(len(self), 1.0 / len(self))
        return np.bincount(self.cells_of(points), minlength=len(self)) / len(points)


def best_cells(weights: Floats, interest: Ints, most: int) -> Ints:
    """Return the T = `most` cells with the largest p(g) * |l(g)|, largest first; cells without interest never.

    Implements [STREE03] A.2, step 0.
    """
    value = weights * interest
    order = np.argsort(-value, kind="stable")[:most]
    return order[value[order] > 0]
