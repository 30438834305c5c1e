"""One box of cells and its ranges: how many to expect as [MICS09] eq. 1-3 are printed, and how much a cap adds."""

from __future__ import annotations

import math

from state.arrays import Ints
from state.space.ranges import Ranges, boxes_ranges, expected_total


def box_ranges(low: Ints, high: Ints, k: int, cap: int | None = None) -> Ranges:
    """Return the ranges of one box of cells: `boxes_ranges`."""
    return boxes_ranges(low[None, :], high[None, :], k, cap)


def expected_ranges(low: Ints, high: Ints, k: int | None = None) -> float:
    """Return the number of ranges that a box of cells has on average over its positions.

    Implements [MICS09] eq. 1-3: surface / 2d, the limit of a grid without borders; with `k` given, as the router
    counts (`expected_total`).

    >>> expected_ranges(np.array([4, 2]), np.array([6, 5]))
    3.5
    >>> expected_ranges(np.array([0, 0]), np.array([7, 7]), k=3)
    1.0
    """
    if k is not None:
        return float(expected_total(low[None, :], high[None, :], k))
    sides = (high - low).astype(float) + 1
    return float((sides.prod() / sides).sum() / len(low))


def over_coverage(ranges: Ranges, lows: Ints, highs: Ints) -> float:
    """Return the cells that `ranges` covers per cell of the disjoint boxes it was made for: 1.0 is exact."""
    cells = sum(math.prod(int(span) + 1 for span in high - low) for low, high in zip(lows, highs, strict=True))
    return ranges.cells / cells if cells else 1.0
