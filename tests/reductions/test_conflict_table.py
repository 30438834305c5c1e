"""The conflict table: the paper's tables, and everything read off it against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from state.reductions.conflict_table import ConflictTable
from state.space.ranks import ABSENT, PRESENT_MAX

Box = tuple[tuple[int, int], ...]
"""A side (low, high) for each attribute."""


def table_of(s: Box, rows: list[Box]) -> ConflictTable:
    low, high = np.array(s, np.int64).T.copy()
    ends = np.array(rows, np.int64).reshape(len(rows), len(s), 2)
    return ConflictTable(low, high, ends[:, :, 0].copy(), ends[:, :, 1].copy())


# --- the paper's examples -----------------------------------------------------------------------------------

COVERED: Box = ((830, 870), (1003, 1006))


def test_table_4() -> None:
    """The conflict table of Table 2's subscriptions is Table 4; no fast answer, and both rows are needed."""
    table = table_of(COVERED, [((820, 850), (1001, 1007)), ((840, 880), (1002, 1009))])
    assert table.cells(0) == ["-", "x1 > 850", "-", "-"]
    assert table.cells(1) == ["x1 < 840", "-", "-", "-"]
    assert table.covering() == -1
    assert table.polyhedron() is None
    assert table.minimised().rows.tolist() == [0, 1]


def test_table_5() -> None:
    """Table 5 and figure 2: not covered, and the polyhedron witness is x1 > 870."""
    table = table_of(((830, 890), (1003, 1006)), [((820, 850), (1002, 1009)), ((840, 870), (1001, 1007))])
    minimised = table.minimised()
    assert not minimised.alive.any()
    low, high = table.grown(minimised)
    assert (low.tolist(), high.tolist()) == ([871, 1003], [890, 1006])


def test_table_7() -> None:
    """Table 6's subscriptions give Table 7: s3's two cells are free of conflict, S' is {s1, s2}."""
    rows: list[Box] = [
        ((820, 850), (1001, 1007)),
        ((840, 880), (1002, 1009)),
        ((810, 890), (1004, 1005)),
    ]
    table = table_of(COVERED, rows)
    assert table.cells(0) == ["-", "x1 > 850", "-", "-"]
    assert table.cells(1) == ["x1 < 840", "-", "-", "-"]
    assert table.cells(2) == ["-", "-", "x2 < 1004", "x2 > 1005"]
    assert table.t.tolist() == [1, 1, 2]
    assert table.conflict_free().tolist() == [0, 0, 2]
    assert table.minimised().rows.tolist() == [0, 1]
    assert table.minimised().order.tolist() == [2]


def test_scenario_2a_is_seen_at_once() -> None:
    """§6, scenario 2.a: rows that do not meet s all have free cells, and Algorithm 2 removes them in one round."""
    table = table_of(((10, 20), (10, 20)), [((0, 5), (0, 90)), ((30, 40), (12, 15)), ((12, 15), (25, 30))])
    assert (table.conflict_free() >= 1).all()
    assert not table.minimised().alive.any()


# --- against enumeration ------------------------------------------------------------------------------------

HIGHEST = 4


@st.composite
def cases(draw: st.DrawFn) -> tuple[Box, list[Box]]:
    m = draw(st.integers(1, 3))
    side = st.tuples(st.integers(0, HIGHEST), st.integers(0, HIGHEST)).map(lambda ends: (min(ends), max(ends)))
    box = st.tuples(*[side] * m)
    return draw(box), draw(st.lists(box, min_size=1, max_size=7))


def points_of(box: Box) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(low, high + 1) for low, high in box)))


def union(rows: list[Box]) -> set[tuple[int, ...]]:
    return set().union(*(points_of(row) for row in rows))


def naive_cells(s: Box, row: Box) -> list[set[tuple[int, ...]]]:
    """The points of s that satisfy each negated predicate of `row`."""
    inside = points_of(s)
    cells = []
    for j, (low, high) in enumerate(row):
        cells.append({p for p in inside if p[j] < low})
        cells.append({p for p in inside if p[j] > high})
    return cells


@given(cases())
@settings(max_examples=250, deadline=None)
def test_cells_and_conflicts_are_what_the_definitions_say(case: tuple[Box, list[Box]]) -> None:
    """Definitions 2 and 5: a cell is defined iff satisfiable in s; free iff it meets each of the others."""
    s, rows = case
    table = table_of(s, rows)
    cells = [naive_cells(s, row) for row in rows]
    assert table.defined.tolist() == [[bool(cell) for cell in row] for row in cells]
    others = [[c for k, row in enumerate(cells) if k != i for c in row if c] for i in range(len(rows))]
    free = [sum(all(cell & other for other in others[i]) for cell in row if cell) for i, row in enumerate(cells)]
    assert table.conflict_free().tolist() == free


@given(cases())
@settings(max_examples=300, deadline=None)
def test_fast_answers_are_true(case: tuple[Box, list[Box]]) -> None:
    """Corollaries 1, 2 and 3 as enumeration sees them; corollary 3's box is inside s and outside every row."""
    s, rows = case
    table = table_of(s, rows)
    around = [i for i, row in enumerate(rows) if points_of(s) <= points_of(row)]
    assert table.covering() == (around[0] if around else -1)
    assert table.covered().tolist() == [i for i, row in enumerate(rows) if points_of(row) <= points_of(s)]
    witness = table.polyhedron()
    if witness is not None:
        box = tuple(zip(witness[0].tolist(), witness[1].tolist(), strict=True))
        assert points_of(box)
        assert points_of(box) <= points_of(s) - union(rows)


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=500, deadline=None)
def test_the_minimised_set_decides_as_the_whole_and_its_witness_grows(case: tuple[Box, list[Box]], random) -> None:  # type: ignore[no-untyped-def]
    """Algorithm 2: S' covers s iff S does; a point outside S' grows into a box outside S; no row is in another."""
    s, rows = case
    table = table_of(s, rows)
    minimised = table.minimised()
    kept = [rows[i] for i in minimised.rows]
    outside, truly = points_of(s) - union(kept), points_of(s) - union(rows)
    assert bool(outside) == bool(truly)
    for i, j in itertools.permutations(range(len(kept)), 2):
        assert not points_of(kept[i]) & points_of(s) < points_of(kept[j]) & points_of(s)
    if outside:
        point = None if not kept else np.array(random.choice(sorted(outside)), np.int64)
        low, high = table.grown(minimised, point)
        box = tuple(zip(low.tolist(), high.tolist(), strict=True))
        assert points_of(box)
        assert points_of(box) <= truly


def test_the_ends_of_the_ranks() -> None:
    """Cells next to the lowest and the highest rank do not wrap round."""
    s: Box = ((ABSENT, PRESENT_MAX), (ABSENT, PRESENT_MAX))
    rows: list[Box] = [
        ((ABSENT + 1, PRESENT_MAX), (ABSENT, PRESENT_MAX)),
        ((ABSENT, PRESENT_MAX), (ABSENT, PRESENT_MAX - 1)),
    ]
    table = table_of(s, rows)
    low, high = table.grown(table.minimised())
    assert (low.tolist(), high.tolist()) == ([ABSENT, PRESENT_MAX], [ABSENT, PRESENT_MAX])
