"""Fitted grids: cells that follow a sample, dimensions that exclude most."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.grid_fitting import choose_dimensions, fit, quantile_starts
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.ranks import ABSENT

SMALL = EventType(
    "small",
    (
        Attribute("ignored", "int"),
        Attribute("x", "int", min=0, max=15),
        Attribute("flag", "boolean"),
        Attribute("y", "float", min=0, max=8),
        Attribute("kind", "category", values=("a", "b", "c")),
    ),
    index=("x", "y"),
    bits=3,
    cubes=4,
)


@given(st.lists(st.integers(-5, 40), min_size=1, max_size=60), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_quantile_cells_hold_equal_shares(values: list[int], k: int) -> None:
    """No cell holds more than its share of the sample plus one, not counting the value it starts with."""
    sample = np.array([*values, ABSENT, ABSENT], np.int64)
    starts = quantile_starts(sample, k)
    assert starts[0] == ABSENT
    assert (starts[1:] >= starts[:-1]).all()
    cells = np.searchsorted(starts, values, side="right") - 1
    for cell in set(cells.tolist()):
        held = [v for v, c in zip(values, cells, strict=True) if c == cell]
        beyond = [v for v in held if v != (min(values) if starts[cell] == ABSENT else starts[cell])]
        assert len(beyond) <= len(values) / 2**k + 1


def test_the_lowest_value_of_a_sample_is_no_border() -> None:
    """A lowest value of more than a cell's share takes its block together with absent."""
    assert quantile_starts(np.array([5, 5, 5, 5, 9, 9]), 2).tolist() == [ABSENT, ABSENT, ABSENT, 9]


def test_quantile_cells_follow_the_sample() -> None:
    """Where the sample is dense cells are narrow."""
    values = np.concatenate([np.arange(100), np.arange(100, 10_000, 99)])
    starts = quantile_starts(values, 3)
    assert starts.tolist()[1:] == [25, 50, 75, 100, 2575, 5050, 7525]


def test_variable_cells_have_fewer_false_positives() -> None:
    """[MICS09] §6.3: as many cells, fitted to Zipf publications, let through fewer false positives."""
    random = np.random.default_rng(5)
    event_type = EventType("z", tuple(Attribute(n, "int", min=0, max=9999) for n in "ab"), index=("a", "b"), bits=5)
    grid = Grid.of(event_type)
    publications = np.minimum(random.zipf(1.4, (6000, 2)) * 3 + random.integers(0, 3, (6000, 2)), 9999)
    fitted = fit(grid, publications[:3000])
    lows = np.minimum(random.zipf(1.4, (40, 2)) * 3, 9000)
    forwarded = {"uniform": 0, "variable": 0}
    matched = 0
    for low in lows:
        box = Boxes(low[None], low[None] + 30)
        matched += int(box.contains(publications[3000:]).sum())
        for name, each in (("uniform", grid), ("variable", fitted)):
            indices = each.index(publications[3000:])
            forwarded[name] += int(each.ranges(box).contains(indices).sum())
    assert matched > 0
    assert matched <= forwarded["variable"]
    assert forwarded["variable"] - matched < (forwarded["uniform"] - matched) / 2


def test_fit_keeps_what_the_sample_does_not_show() -> None:
    """A dimension that is absent in the whole sample keeps its uniform cells."""
    grid = Grid.of(SMALL)
    sample = np.array([[0, v, 0, ABSENT, 0] for v in range(100)])
    fitted = fit(grid, sample)
    assert (fitted.starts[1] == grid.starts[1]).all()
    assert fitted.starts[0].tolist() == [ABSENT, 12, 25, 37, 50, 62, 75, 87]


@given(
    st.lists(st.tuples(*[st.tuples(st.integers(0, 9), st.integers(0, 9))] * 4), min_size=1, max_size=6),
    st.lists(st.tuples(*[st.integers(0, 9)] * 4), min_size=1, max_size=12),
    st.integers(1, 4),
)
@settings(max_examples=100, deadline=None)
def test_choice_of_dimensions_is_by_selectivity(
    subscriptions: list[tuple[tuple[int, int], ...]], sample: list[tuple[int, ...]], count: int
) -> None:
    """[MICS09] §5: the chosen attributes admit the fewest (subscription, event) pairs, counted one by one."""
    event_type = EventType("t", tuple(Attribute(n, "int") for n in "abcd"))
    boxes = Boxes.of([([min(p) for p in s], [max(p) for p in s]) for s in subscriptions])
    chosen = choose_dimensions(event_type, boxes, np.array(sample, np.int64), count)
    admitted = {
        name: sum(min(s[i]) <= event[i] <= max(s[i]) for s in subscriptions for event in sample)
        for i, name in enumerate("abcd")
    }
    everything = len(subscriptions) * len(sample)
    ranking = sorted("abcd", key=lambda name: (admitted[name], name))
    useful = [name for name in ranking[:count] if admitted[name] < everything]
    assert list(chosen) == (useful or ranking[:1])
