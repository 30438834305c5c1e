"""A grid that is fitted: cells by the quantiles of a sample ([MICS09] §6.3), dimensions by selectivity (§5).

The router has uniform cells, and the dimensions that a type names or the first that tell most events apart.
"""

from __future__ import annotations

import numpy as np

from state.limits import CELL_BITS_MAX, DIMENSIONS_MAX
from state.space.boxes import Boxes, Ranks
from state.space.event_type import DIMENSIONS_DEFAULT, EventType
from state.space.grid import Grid
from state.space.ranks import ABSENT


def fit(grid: Grid, sample: Ranks) -> Grid:
    """Return a grid with variable cells, each with an equal share of a sample of publications.

    Implements [MICS09] §6.3: as many cells as before, finer where more publications fall, so fewer of
    them are false positives of a subscription rounded up to cells. A dimension of which the sample has
    no value keeps its cells.
    """
    starts = grid.starts.copy()
    for i, column in enumerate(grid.columns):
        if (sample[:, column] != ABSENT).any():
            starts[i] = quantile_starts(sample[:, column], grid.k)
    return Grid(grid.type_name, grid.attributes, grid.dimensions, grid.k, starts, grid.cubes)


def quantile_starts(values: Ranks, k: int) -> Ranks:
    """Return cells that hold equally many of `values`, as far as equal values allow: finer where more is
    expected.

    Implements [MICS09] §6.3, which says what variable cells are for, not how to choose them: here each
    attribute by itself, at the quantiles of a sample. A value of more than a cell's share gets a block of
    cells. Absent values do not count.

    >>> quantile_starts(np.array([1, 2, 3, 4, 5, 6, 100, 1000]), 2).tolist()[1:]
    [3, 5, 100]
    """
    assert 1 <= k <= CELL_BITS_MAX, k
    present = np.sort(values[values != ABSENT])
    assert len(present) > 0, "cells cannot be fitted to no value"
    starts = present[(np.arange(2**k) * len(present)) >> k]
    starts[starts == present[0]] = ABSENT
    return starts


def choose_dimensions(
    event_type: EventType, subscriptions: Boxes, sample: Ranks, count: int = DIMENSIONS_DEFAULT
) -> tuple[str, ...]:
    """Return the `count` attributes most selective for these subscriptions, the most selective first.

    Implements [MICS09] §5: the greedy choice of index dimensions. The selectivity of an attribute is the
    share of a sample of publications (rank vectors) that a subscription's interval admits, averaged over
    the subscriptions: the smaller, the more selective. Attributes that exclude nothing are left out, unless
    all do. Ties go by declared order. Cost: O((n + m) log m) per attribute.
    """
    assert 1 <= count <= DIMENSIONS_MAX, count
    assert len(subscriptions) > 0, "selectivity needs subscriptions"
    assert len(sample) > 0, "selectivity needs a sample of publications"
    admitted = []
    for column in range(event_type.d):
        values = np.sort(sample[:, column])
        below = np.searchsorted(values, subscriptions.lows[:, column], side="left")
        upto = np.searchsorted(values, subscriptions.highs[:, column], side="right")
        admitted.append(int((upto - below).sum()))
    everything = len(sample) * len(subscriptions)
    best = sorted(range(event_type.d), key=lambda column: admitted[column])[:count]
    selective = [column for column in best if admitted[column] < everything] or best[:1]
    return tuple(event_type.attributes[column].name for column in selective)
