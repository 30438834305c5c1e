"""The cells of the grid divide the space, and know who is interested in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.distribution.cell_grid import CellGrid, best_cells
from state.space.boxes import Boxes
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN


def grids():
    return st.builds(
        lambda high, cells, dims: CellGrid.equal(np.zeros(3, np.int64), np.full(3, high), cells, dims),
        st.integers(0, 9),
        st.integers(1, 4),
        st.sampled_from([None, (0,), (2, 0), (1, 2)]),
    )


@given(grid=grids(), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_point_is_in_exactly_one_cell(grid, seed):
    """The box of a point's cell holds the point, and the boxes of all other cells do not."""
    rng = np.random.default_rng(seed)
    points = rng.choice([ABSENT, PRESENT_MIN, -3, *range(10), 50, PRESENT_MAX], (20, 3))
    boxes = grid.boxes_of(np.arange(len(grid)), 3)
    boxes.check()
    for point, cell in zip(points, grid.cells_of(points), strict=True):
        holding = [k for k, (low, high) in enumerate(boxes) if (low <= point).all() and (point <= high).all()]
        assert holding == [cell]


def test_equal_intervals_have_equal_lengths():
    """Ten ranks in five intervals are two each, whatever lies outside."""
    grid = CellGrid.equal(np.array([0]), np.array([9]), cells=5)
    assert grid.cells_of(np.arange(-1, 11)[:, None]).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4]


def test_a_category_gets_a_cell_per_value():
    """More cells than values are not made."""
    assert CellGrid.equal(np.array([0]), np.array([2]), cells=10).shape == (3,)


def test_quantiles_hold_equal_shares():
    """Cells cut at quantiles of skewed publications hold about as many each."""
    points = (np.random.default_rng(1).pareto(1.0, (10_000, 1)) * 1000).astype(np.int64)
    counts = np.bincount(CellGrid.quantile(points, 8).cells_of(points))
    assert len(counts) == 8
    assert counts.min() > 1100
    assert counts.max() < 1400


@given(grid=grids(), seed=st.integers(0, 2**32), n=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_interest_counts_clients_with_a_box_in_the_cell(grid, seed, n):
    """|l(g)| and the cells that a box meets are those of comparing every cell with every box."""
    rng = np.random.default_rng(seed)
    lows = rng.integers(-2, 11, (n, 3))
    highs = np.where(rng.random((n, 3)) < 0.2, PRESENT_MAX, lows + rng.integers(0, 5, (n, 3)))
    boxes, clients = Boxes(lows, highs), rng.integers(0, 4, n)
    cells = np.arange(len(grid))
    cell_boxes = list(grid.boxes_of(cells, 3))
    meets = [[bool((a <= high).all() and (low <= z).all()) for low, high in boxes] for a, z in cell_boxes]
    assert grid.meets(cells, boxes).tolist() == meets
    expected = [len({int(c) for c, met in zip(clients, row, strict=True) if met}) for row in meets]
    assert grid.interest(boxes, clients).tolist() == expected


def test_the_best_cells_have_the_largest_product():
    """p(g) |l(g)| decides, largest first, and a cell that interests nobody is never kept."""
    weights, interest = np.array([0.1, 0.5, 0.2, 0.2]), np.array([9, 0, 5, 4])
    assert best_cells(weights, interest, 2).tolist() == [2, 0]
    assert best_cells(weights, interest, 9).tolist() == [2, 0, 3]


def test_histogram_is_the_share_of_each_cell():
    """Observed shares add up to one; of nothing observed every cell has the same."""
    grid = CellGrid.equal(np.array([0]), np.array([3]), cells=4)
    assert grid.histogram(np.array([[0], [1], [1], [9]])).tolist() == [0.25, 0.5, 0.0, 0.25]
    assert grid.histogram(np.empty((0, 1), np.int64)).tolist() == [0.25] * 4


def test_too_many_cells_are_refused():
    """A grid beyond the limit says so instead of filling the memory."""
    with pytest.raises(AssertionError, match="fewer intervals or dimensions"):
        CellGrid.equal(np.zeros(8, np.int64), np.full(8, 1000), cells=10)
