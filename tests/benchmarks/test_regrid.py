"""Tables on a new grid: nothing is lost, whatever the old cells and the new ones are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.grid_fitting import fit
from benchmarks.peers.high_dimensions import judged
from benchmarks.peers.regrid import boxes_of, rebuilt, remapped
from state.errors import HilcastError
from state.reductions.interval_table import CompiledTable, range_id
from state.reductions.mics import Mics
from state.reductions.reduction import add
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.ranges import Ranges

SIDE = 16
TYPE = EventType(
    "t", (Attribute("x", "int", min=0, max=SIDE - 1), Attribute("y", "int", min=0, max=SIDE - 1)), bits=3, cubes=1
)
GRID = Grid.of(TYPE)
POINTS = np.array(list(itertools.product(range(SIDE), repeat=2)), np.int64)
DOMAIN = (0, 63)

samples = st.lists(st.tuples(st.integers(0, SIDE - 1), st.integers(0, SIDE - 1)), min_size=1, max_size=20)
sides = st.tuples(st.integers(0, SIDE - 1), st.integers(0, SIDE - 1)).map(sorted)
some_boxes = st.lists(st.tuples(sides, sides), min_size=1, max_size=4).map(
    lambda boxes: Boxes.of([([x[0], y[0]], [x[1], y[1]]) for x, y in boxes])
)


def fitted(sample) -> Grid:
    return fit(GRID, np.array(sample, np.int64))


@given(samples, some_boxes)
@settings(deadline=None)
def test_a_rebuild_loses_no_publication(sample, boxes) -> None:
    """Before and after a rebuild on fitted cells, every publication that an entry wants is held."""
    new_grid = fitted(sample)
    entries = {str(i): Boxes(boxes.lows[i : i + 1], boxes.highs[i : i + 1]) for i in range(len(boxes))}
    old = Mics(DOMAIN, {"merging": "imperfect", "gap_cells": 2})
    old.update({id: GRID.ranges(b) for id, b in entries.items()})
    new, delta = rebuilt(old, DOMAIN, {id: new_grid.ranges(b) for id, b in entries.items()})
    new.check()
    assert new.parameters == old.parameters
    wanted = boxes.contains(POINTS)
    for mics, grid in ((old, GRID), (new, new_grid)):
        assert judged(CompiledTable(mics.table()).lookup(grid.index(POINTS)), wanted).lost == 0
    held = {id: None for id in old.forwarded() if id not in delta.removed} | dict.fromkeys(delta.added)
    assert set(held) == set(new.forwarded())


@given(samples, samples, some_boxes)
@settings(deadline=None)
def test_remapped_ranges_lose_no_publication(first, second, boxes) -> None:
    """Ranges without boxes, carried from one grid to another, still hold every publication they held."""
    old, new = fitted(first), fitted(second)
    ranges = old.ranges(boxes)
    carried = remapped(ranges, old, new)
    assert not (ranges.contains(old.index(POINTS)) & ~carried.contains(new.index(POINTS))).any()


@given(samples, some_boxes)
@settings(deadline=None)
def test_the_boxes_of_ranges_are_their_cells(sample, boxes) -> None:
    """`boxes_of` holds the publications whose index is in a range, no more and no fewer."""
    grid = fitted(sample)
    ranges = grid.ranges(boxes)
    assert (boxes_of(ranges, grid).contains(POINTS) == ranges.contains(grid.index(POINTS))).all()


def test_on_the_same_grid_ranges_stay() -> None:
    """Remapping to the grid they are of changes nothing."""
    ranges = Ranges.of([(3, 17), (40, 41), (50, 63)])
    assert remapped(ranges, GRID, GRID) == ranges


def test_a_rebuild_sends_every_new_range() -> None:
    """A range whose ends are those of an old one is sent all the same: on the new grid it means other cells."""
    old = Mics((0, 63))
    old.update({"a": Ranges.of([(0, 3)]), "b": Ranges.of([(2, 9), (20, 21)])})
    new, delta = rebuilt(old, (0, 255), {"a": Ranges.of([(0, 9)]), "b": Ranges.of([(40, 80)])})
    assert list(delta.added) == [range_id(0, 9), range_id(40, 80)]
    assert delta.removed == (range_id(20, 21),)
    assert new.forwarded() == delta.added


def test_a_rebuild_that_would_lose_is_refused() -> None:
    """An entry without ranges on the new grid is an error."""
    old = Mics((0, 63))
    add(old, "a", Ranges.of([(0, 3)]))
    with pytest.raises(HilcastError, match=r"^stale-grid: 1 live entries not on the new grid, first 'a'"):
        rebuilt(old, (0, 255), {})


def test_ranges_of_another_type_are_refused() -> None:
    """Cells of another event type cannot be carried over."""
    other = Grid.of(EventType("u", TYPE.attributes, bits=3, cubes=1))
    with pytest.raises(HilcastError, match=r"^stale-grid: "):
        remapped(Ranges.of([(0, 3)]), GRID, other)


def test_variable_cells_have_fewer_false_positives() -> None:
    """§6.3: at the same number of cells, cells fitted to skewed publications route fewer of them wrongly."""
    random = np.random.default_rng(11)
    big = EventType("b", tuple(Attribute(n, "int", min=0, max=9999) for n in "xy"), bits=4, cubes=1)
    equal = Grid.of(big)
    events = np.minimum((random.pareto(1.5, (20_000, 2)) * 100).astype(np.int64), 9999)
    lows = np.minimum((random.pareto(1.5, (50, 2)) * 100).astype(np.int64), 9900)
    boxes = Boxes(lows, lows + 40)
    variable = fit(equal, events[:5_000])
    wanted = boxes.contains(events[5_000:])
    results = []
    for grid in (equal, variable):
        mics = Mics((0, 255))
        mics.update({"s": grid.ranges(boxes)})
        results.append(judged(CompiledTable(mics.table()).lookup(grid.index(events[5_000:])), wanted))
    assert all(result.lost == 0 for result in results)
    assert results[1].false < 0.7 * results[0].false
