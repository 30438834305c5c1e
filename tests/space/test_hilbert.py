"""The Hilbert curve against the `hilbertcurve` package, which is the reference by value."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from hilbertcurve.hilbertcurve import HilbertCurve
from hypothesis import given, settings
from hypothesis import strategies as st

from state.limits import DIMENSIONS_MAX, INDEX_BITS_MAX
from state.space.hilbert import curve, decode, encode

EVERY_CURVE = [(d, k) for d in range(2, DIMENSIONS_MAX + 1) for k in range(1, INDEX_BITS_MAX // d + 1)]


def by_package(points: np.ndarray, k: int) -> list[int]:
    package = HilbertCurve(k, points.shape[1])
    return [package.distance_from_point([int(x) for x in point]) for point in points]


def every_cell(d: int, k: int) -> np.ndarray:
    return np.stack(np.meshgrid(*[np.arange(2**k)] * d, indexing="ij"), axis=-1).reshape(-1, d)


@pytest.mark.parametrize("d", range(2, DIMENSIONS_MAX + 1))
def test_equals_the_package_for_every_k(d: int) -> None:
    """Corners, random cells and low cells have the package's index for every k with d·k <= 63, and back."""
    random = np.random.default_rng(d)
    for k in range(1, INDEX_BITS_MAX // d + 1):
        corners = ((np.arange(2**d)[:, None] >> np.arange(d)) & 1) * (2**k - 1)
        cells = np.concatenate([corners, random.integers(0, 2**k, (40, d)), random.integers(0, min(2**k, 4), (10, d))])
        indices = encode(cells, k)
        assert indices.tolist() == by_package(cells, k), (d, k)
        assert (decode(indices, d, k) == cells).all(), (d, k)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_equals_the_package_anywhere(data: st.DataObject) -> None:
    """Hypothesis finds no cell of any curve whose index differs from the package's."""
    d, k = data.draw(st.sampled_from(EVERY_CURVE))
    point = data.draw(st.lists(st.integers(0, 2**k - 1), min_size=d, max_size=d))
    cell = np.array([point], np.int64)
    assert encode(cell, k).tolist() == by_package(cell, k)
    assert decode(encode(cell, k), d, k).tolist() == [point]


@pytest.mark.parametrize(("d", "k"), [(2, 1), (2, 5), (2, 7), (3, 1), (3, 4), (4, 3), (5, 2), (6, 2)])
def test_is_a_hilbert_curve(d: int, k: int) -> None:
    """Every index has one cell, and each step along the curve goes to a neighbouring cell."""
    cells = decode(np.arange(2 ** (d * k)), d, k)
    assert len(np.unique(cells, axis=0)) == 2 ** (d * k)
    assert (np.abs(np.diff(cells, axis=0)).sum(axis=1) == 1).all()
    assert (encode(every_cell(d, k), k) == np.array(by_package(every_cell(d, k), k))).all()


@pytest.mark.parametrize("d", range(1, DIMENSIONS_MAX + 1))
def test_begins_and_ends_on_the_first_axis(d: int) -> None:
    """The curve begins in cell (0, .., 0) and ends in (2^k - 1, 0, .., 0); `expected_ranges` builds on it."""
    for k in range(1, INDEX_BITS_MAX // d + 1):
        ends = decode(np.array([0, 2 ** (d * k) - 1]), d, k)
        assert ends.tolist() == [[0] * d, [2**k - 1] + [0] * (d - 1)]


@given(st.integers(1, 63), st.data())
@settings(max_examples=50, deadline=None)
def test_one_dimension_is_the_identity(k: int, data: st.DataObject) -> None:
    """In one dimension a cell is its own index."""
    cells = np.array(data.draw(st.lists(st.integers(0, 2**k - 1), max_size=5)), np.int64)
    assert (encode(cells[:, None], k) == cells).all()
    assert (decode(cells, 1, k)[:, 0] == cells).all()


@pytest.mark.parametrize("d", range(2, DIMENSIONS_MAX + 1))
def test_prefix_is_the_index_of_the_coarser_cell(d: int) -> None:
    """Dropping the last bit of every coordinate drops the last d bits of the index: cubes build on it."""
    k = INDEX_BITS_MAX // d
    cells = np.random.default_rng(d).integers(0, 2**k, (200, d))
    for dropped in range(1, k):
        assert (encode(cells >> dropped, k - dropped) == encode(cells, k) >> (d * dropped)).all()


@pytest.mark.parametrize("d", range(2, DIMENSIONS_MAX + 1))
def test_has_as_many_orientations_as_proved(d: int) -> None:
    """From the first orientation d!·2^(d-1) are reached, all of even sign."""
    child = curve(d).child.reshape(-1, 2**d).astype(int)
    reached = {(0, 0)}
    border = [(0, 0)]
    while border:
        row, signs = border.pop()
        for entry in child[row]:
            after = (int(entry) >> (2 * d), signs ^ ((int(entry) >> d) & (2**d - 1)))
            if after not in reached:
                reached.add(after)
                border.append(after)
    assert len(reached) == factorial(d) * 2 ** (d - 1)
    assert all(signs.bit_count() % 2 == 0 for _, signs in reached)


def test_figure_3() -> None:
    """p1, p2 and p3 of [MICS09] figure 3 have the printed indices 28, 52 and 50."""
    assert encode(np.array([[3, 5], [5, 3], [6, 2]]), 3).tolist() == [28, 52, 50]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64, np.int64])
def test_takes_any_integers(dtype: type) -> None:
    """Cells of any integer type, contiguous or not, have the same index."""
    cells = np.random.default_rng(0).integers(0, 16, (50, 3))
    assert (encode(np.asfortranarray(cells.astype(dtype)), 4) == encode(cells, 4)).all()


@pytest.mark.parametrize("cell", [[16, 0], [0, -1]])
def test_cells_outside_the_grid_are_our_bug(cell: list[int]) -> None:
    """A coordinate outside [0, 2^k) fails an assertion instead of giving some index."""
    with pytest.raises(AssertionError):
        encode(np.array([[0, 0], cell]), 4)


@pytest.mark.parametrize("index", [-1, 256])
def test_indices_outside_the_curve_are_our_bug(index: int) -> None:
    """An index outside [0, 2^(d·k)) fails an assertion."""
    with pytest.raises(AssertionError):
        decode(np.array([index]), 2, 4)


def test_no_points() -> None:
    """An empty batch gives an empty batch."""
    assert encode(np.empty((0, 4), np.int64), 8).shape == (0,)
    assert decode(np.empty(0, np.int64), 4, 8).shape == (0, 4)
