"""The ways of [MICS09] §5 that no configuration chooses, against plain containment of points in boxes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from benchmarks.peers.high_dimensions import IndexedMatcher, SubsetTables, judged, leaf_candidates, subset_grids
from state.reductions.interval_table import CompiledTable
from state.reductions.mics import Mics
from state.reductions.mics_high_dimensions import RangeIndex
from state.space.boxes import Boxes
from state.space.event_type import EventType
from state.space.grid import Grid
from tests.reductions.test_mics_high_dimensions import GRID, POINTS, SIDE, SPACE, TYPE, cells, some_entries


def wanted(entries) -> np.ndarray:
    return np.array([any(tuple(p) in SPACE.points(e) for e in entries) for p in POINTS.tolist()], bool)


@given(some_entries, SPACE.entries())
@settings(deadline=None, max_examples=60)
def test_leaves_list_those_that_share_a_cell_and_more(entries, boxes) -> None:
    """Whoever phase 1 finds stands in a leaf that the new one meets."""
    index = RangeIndex(GRID)
    index.add_all(dict(enumerate(entries)))
    assert set(index.candidates(boxes).tolist()) <= set(leaf_candidates(index, boxes).tolist())


def test_leaves_list_what_their_merged_range_came_from() -> None:
    """§5: a leaf is a merged range with every subscription it came from, also those that do not touch the new one."""
    grid = Grid.of(EventType("u", TYPE.attributes, index=("x",), bits=2, cubes=1))
    index = RangeIndex(grid)
    spans = [(0, 0), (1, 2), (3, 3)]
    index.add_all({i: Boxes.of([([a, 0, 0], [b, 3, 3])]) for i, (a, b) in enumerate(spans)})
    first = Boxes.of([([0, 0, 0], [0, 3, 3])])
    assert index.candidates(first).tolist() == [0]
    assert leaf_candidates(index, first).tolist() == [0, 1, 2]


@given(some_entries)
@settings(deadline=None, max_examples=60)
def test_matching_by_the_index_is_exact(entries) -> None:
    """Subscription indexing leaves no false positive and loses nothing; it examines candidates, not everything."""
    matched, examined = IndexedMatcher(GRID, entries).match(POINTS)
    assert matched.tolist() == wanted(entries).tolist()
    sharing = [sum((p[0] * 2 // SIDE, p[1] * 2 // SIDE) in cells(SPACE.points(e)) for e in entries) for p in POINTS]
    assert (examined <= np.array(sharing)).all()
    assert (examined[~matched] == np.array(sharing)[~matched]).all()


@given(some_entries)
@settings(deadline=None, max_examples=60)
def test_projection_and_subsets_lose_nothing(entries) -> None:
    """Projection and attribute subsets forward all that is wanted; more subsets never forward more."""
    named = {str(i): entry for i, entry in enumerate(entries) if len(entry)}
    projected = Mics((0, 2**GRID.index_bits - 1))
    projected.update({id: GRID.ranges(boxes) for id, boxes in named.items()})
    by_projection = judged(CompiledTable(projected.table()).lookup(GRID.index(POINTS)), wanted(entries))
    subsets = SubsetTables(subset_grids(TYPE, [("x", "y"), ("z",)]))
    subsets.update(named)
    subsets.check()
    by_subsets = judged(subsets.route(POINTS), wanted(entries))
    assert by_projection.lost == by_subsets.lost == 0
    assert by_subsets.false <= by_projection.false
    gone = sorted(named)[::2]
    subsets.update({}, gone)
    rest = [boxes for id, boxes in named.items() if id not in gone]
    assert judged(subsets.route(POINTS), wanted(rest)).lost == 0
