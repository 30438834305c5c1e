"""Cells of an attribute, uniform in value."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.space.cells import moved, quantile_starts, quantiles, uniform_starts
from state.space.event_type import Attribute
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN, rank, unrank

ATTRIBUTES = [
    Attribute("a", "int"),
    Attribute("a", "int", min=-5),
    Attribute("a", "int", max=7),
    Attribute("a", "int", min=-3, max=9),
    Attribute("a", "int", min=PRESENT_MIN, max=PRESENT_MAX),
    Attribute("a", "int", min=PRESENT_MAX - 2),
    Attribute("a", "float"),
    Attribute("a", "float", min=0.25),
    Attribute("a", "float", max=-1e300),
    Attribute("a", "float", min=-1.5, max=1e6),
    Attribute("a", "float", min=-1.7e308, max=1.7e308),
    Attribute("a", "boolean"),
    Attribute("a", "category", values=("x",)),
    Attribute("a", "category", values=tuple("abcdefg")),
    Attribute("a", "timestamp"),
    Attribute("a", "timestamp", min="2024-02-29T00:00:00Z"),
    Attribute("a", "timestamp", max="2024-02-29T00:00:00Z"),
    Attribute("a", "timestamp", min="2024-01-01T00:00:00Z", max="2024-12-31T23:59:59Z"),
    Attribute("a", "text"),
    Attribute("a", "text", min="a", max="zz"),
]


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=lambda a: f"{a.kind}-{a.min}-{a.max}-{len(a.values)}")
@pytest.mark.parametrize("k", [1, 4, 10])
def test_starts_are_sorted_and_begin_with_absent(attribute: Attribute, k: int) -> None:
    """Whatever is bounded or not: 2^k starts, the first of them absent, none before the one before."""
    starts = uniform_starts(attribute, k)
    assert starts.shape == (2**k,)
    assert starts.dtype == np.int64
    assert starts[0] == ABSENT
    assert (starts[1:] >= starts[:-1]).all()


def test_bounded_floats_are_uniform_in_value() -> None:
    """Cells of a float between min and max are equally wide in value, not in bits."""
    attribute = Attribute("price", "float", min=-1.0, max=3)
    values = [unrank(attribute, int(start)) for start in uniform_starts(attribute, 3)[1:]]
    assert values == [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


def test_bounded_integers_share_the_cells_evenly() -> None:
    """No two cells differ by more than one value."""
    starts = uniform_starts(Attribute("n", "int", min=0, max=999), 4).tolist()
    widths = np.diff([0, *starts[1:], 1000])
    assert widths.max() - widths.min() <= 1


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_few_values_get_blocks(n: int) -> None:
    """Fewer values than cells: each has a block, of equal size or one more; absent shares the first."""
    attribute = Attribute("c", "category", values=tuple("abcdefgh"[:n]))
    starts = uniform_starts(attribute, 3).tolist()
    blocks = [starts.count(ABSENT if i == 0 else i) for i in range(n)]
    assert sum(blocks) == 8
    assert max(blocks) - min(blocks) <= 1


def test_unbounded_numbers_are_uniform_in_octaves() -> None:
    """Without bounds cells double away from zero, with one bound away from that bound."""
    both = Attribute("x", "float")
    assert [unrank(both, int(s)) for s in uniform_starts(both, 3)[1:]] == [
        -(2.0**30) + 1, -(2.0**20) + 1, -(2.0**10) + 1, 0.0, 2.0**10 - 1, 2.0**20 - 1, 2.0**30 - 1,
    ]  # fmt: skip
    low = Attribute("x", "int", min=100)
    assert uniform_starts(low, 2).tolist()[1:] == [100 + 2**10 - 1, 100 + 2**20 - 1, 100 + 2**30 - 1]
    high = Attribute("x", "int", max=100)
    assert uniform_starts(high, 2).tolist()[1:] == [100 - 2**30 + 1, 100 - 2**20 + 1, 100 - 2**10 + 1]


def test_octaves_are_linear_inside() -> None:
    """Inside an octave cells are equally wide: 2^10 (1 + f) - 1."""
    attribute = Attribute("x", "float", min=0)
    starts = uniform_starts(attribute, 10)
    place = Fraction(40 * 300, 1024)  # octave 11, 23/32 of the way
    assert unrank(attribute, int(starts[300])) == float(2**11 * (1 + place - 11) - 1)


def test_text_follows_letters_and_digits() -> None:
    """Free text is cut by its first characters, in code point order."""
    attribute = Attribute("s", "text")
    assert [unrank(attribute, int(s)) for s in uniform_starts(attribute, 2)[1:]] == ["FV", "V", "kV"]


def test_unbounded_time_is_this_half_century() -> None:
    """Timestamps without bounds are cut between 2000 and 2050, with one bound 50 years from it."""
    free = Attribute("at", "timestamp")
    assert unrank(free, int(uniform_starts(free, 1)[1])) == "2024-12-31T12:00:00Z"
    late = Attribute("at", "timestamp", max="2050-01-01T00:00:00Z")
    assert abs(int(uniform_starts(late, 1)[1]) - rank(late, "2024-12-31T12:00:00Z")) <= 1


def test_the_declared_minimum_is_no_border() -> None:
    """`x >= min` begins in cell 0: values from `min` on share their cells with what lies below."""
    for attribute in (Attribute("x", "int", min=100), Attribute("x", "int", min=100, max=103)):
        starts = uniform_starts(attribute, 6)
        assert (starts != 100).all()
        assert starts[np.searchsorted(starts, 100, side="right") - 1] == ABSENT


@given(st.lists(st.integers(-5, 40), min_size=1, max_size=60), st.integers(1, 4))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_quantile_cells_hold_equal_shares(values: list[int], k: int) -> None:
    """No cell holds more than its share of the sample plus one, not counting the value it starts with."""
    sample = np.array([*values, ABSENT, ABSENT], np.int64)
    starts = quantile_starts(quantiles(sample), k)
    assert starts[0] == ABSENT
    assert (starts[1:] >= starts[:-1]).all()
    cells = np.searchsorted(starts, values, side="right") - 1
    for cell in set(cells.tolist()):
        held = [v for v, c in zip(values, cells, strict=True) if c == cell]
        beyond = [v for v in held if v != (min(values) if starts[cell] == ABSENT else starts[cell])]
        assert len(beyond) <= len(values) / 2**k + 1


def test_the_lowest_value_of_a_sample_is_no_border() -> None:
    """A lowest value of more than a cell's share takes its block together with absent."""
    assert quantile_starts(quantiles(np.array([5, 5, 5, 5, 9, 9])), 2).tolist() == [ABSENT, ABSENT, ABSENT, 9]


def test_quantile_cells_follow_the_sample() -> None:
    """Where the sample is dense cells are narrow."""
    values = np.concatenate([np.arange(100), np.arange(100, 10_000, 99)])
    starts = quantile_starts(quantiles(values), 3)
    assert starts.tolist()[1:] == [25, 50, 75, 100, 2575, 5050, 7525]


@given(st.lists(st.integers(-5, 40), min_size=1, max_size=60), st.integers(9, 11))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_more_cells_than_quantiles_only_divide_them_further(values: list[int], k: int) -> None:
    """Every border of 2^8 cells is one of 2^k cells, and these are sorted."""
    dividing = quantiles(np.array(values, np.int64))
    coarse, fine = quantile_starts(dividing, 8), quantile_starts(dividing, k)
    assert set(coarse.tolist()) <= set(fine.tolist())
    assert (fine[1:] >= fine[:-1]).all()


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.lists(st.integers(-9, 9), min_size=1, max_size=40))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_how_far_values_moved_is_the_distance_of_the_shares(before: list[int], now: list[int]) -> None:
    """`moved` is what counting, border by border, gives; and next to nothing for the very values that were divided."""
    dividing = quantiles(np.array(before, np.int64))
    naive = 0.0
    for border in set(dividing) - {ABSENT}:
        share = (dividing.index(border) + 1) / (len(dividing) + 1)
        below, upto = sum(v < border for v in now) / len(now), sum(v <= border for v in now) / len(now)
        naive = max(naive, below - share, share - upto)
    assert moved(dividing, np.array(now, np.int64)) == pytest.approx(naive)
    assert moved(dividing, np.array(before, np.int64)) <= 1 / (len(dividing) + 1) + 1e-9
