"""A grid whose cells are fitted to a sample at once: what a generation does step by step (`state/tuning.py`)."""

from __future__ import annotations

from state.space.boxes import Ranks
from state.space.cells import quantile_starts, quantiles
from state.space.grid import Grid


def fit(grid: Grid, sample: Ranks) -> Grid:
    """Return a grid with variable cells, each with an equal share of a sample of publications.

    Implements [MICS09] §6.3: as many cells as before, finer where more publications fall, so fewer of
    them are false positives of a subscription rounded up to cells. A dimension of which the sample has
    no value keeps its cells.
    """
    starts = grid.starts.copy()
    for i, column in enumerate(grid.columns):
        dividing = quantiles(sample[:, column])
        if dividing:
            starts[i] = quantile_starts(dividing, grid.k)
    return Grid(grid.type_name, grid.attributes, grid.dimensions, grid.k, starts, grid.cubes)
