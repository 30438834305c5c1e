"""The three ways of §5 against plain containment of points in boxes, in more dimensions than are indexed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.grid_fitting import choose_dimensions
from state.errors import HilcastError
from state.reductions.mics import Mics
from state.reductions.mics_high_dimensions import (
    CompiledIndex,
    IndexedMics,
    SubscriptionIndex,
    SubsetTables,
    judged,
    negative_space,
    pairwise,
    rspc,
    subset_grids,
)
from state.reductions.reduction import Reduction
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from tests.reductions.contract import BoxSpace, Contract, assert_same_in_any_process, machine

SIDE, D = 4, 3
TYPE = EventType(
    "t", tuple(Attribute(name, "int", min=0, max=SIDE - 1) for name in "xyz"), index=("x", "y"), bits=1, cubes=1
)
GRID = Grid.of(TYPE)
"""Two of three dimensions, two cells each: every box shares cells with most others, and z is projected away."""
POINTS = np.array(list(itertools.product(range(SIDE), repeat=D)), np.int64)
SPACE = BoxSpace((0,) * D, (SIDE - 1,) * D)
CUBE = Boxes.of([([0] * D, [SIDE - 1] * D)])


def contract(name, exact=None, **more) -> Contract:
    parameters = {"mode": "indexed", "exact": name}
    return Contract(
        make=lambda: IndexedMics(CUBE, parameters, grid=GRID, exact=exact),
        decode=lambda blob: IndexedMics.decode(blob, CUBE, parameters, grid=GRID, exact=exact),
        space=SPACE,
        guarantee="exact",
        **more,
    )


CONTRACT = contract("pairwise")
NEGATIVE = contract("negative-space", complete=True)
RSPC = contract("rspc", rspc(1e-12, 10**6), complete=True, examples=20)
TestRspc = machine(RSPC).TestCase
TestPairwise = machine(CONTRACT).TestCase
TestNegativeSpace = machine(NEGATIVE).TestCase

some_entries = st.lists(SPACE.entries(), max_size=6)


def test_the_same_in_any_process() -> None:
    """Deltas and bytes do not depend on string hashes."""
    assert_same_in_any_process("tests.reductions.test_mics_high_dimensions")


def wanted(entries) -> np.ndarray:
    return np.array([any(tuple(p) in SPACE.points(e) for e in entries) for p in POINTS.tolist()], bool)


def entry_numbers(entries, boxes, shares) -> set[int]:
    return {i for i, entry in enumerate(entries) if shares(SPACE.points(entry), SPACE.points(boxes))}


def cells(points) -> set[tuple[int, int]]:
    """The cells of the grid that points fall in, by hand: halves of x and y."""
    return {(p[0] * 2 // SIDE, p[1] * 2 // SIDE) for p in points}


@given(some_entries, SPACE.entries())
@settings(deadline=None, max_examples=60)
def test_candidates_are_those_that_share_a_cell(entries, boxes) -> None:
    """Phase 1 finds exactly the entries with a common cell; the leaves of the paper list those and more."""
    index = SubscriptionIndex(GRID)
    index.add_all(dict(enumerate(entries)))
    index.check()
    single = SubscriptionIndex(GRID)
    for number, entry in enumerate(entries):
        single.add(number, entry)
    expected = entry_numbers(entries, boxes, lambda a, b: bool(cells(a) & cells(b)))
    assert set(index.candidates(boxes).tolist()) == expected
    assert set(single.candidates(boxes).tolist()) == expected
    assert expected <= set(index.leaf_candidates(boxes).tolist())


def test_leaves_list_what_their_merged_range_came_from() -> None:
    """§5: a leaf is a merged range with every subscription it came from, also those that do not touch the new one."""
    grid = Grid.of(EventType("u", TYPE.attributes, index=("x",), bits=2, cubes=1))
    index = SubscriptionIndex(grid)
    spans = [(0, 0), (1, 2), (3, 3)]
    index.add_all({i: Boxes.of([([a, 0, 0], [b, 3, 3])]) for i, (a, b) in enumerate(spans)})
    first = Boxes.of([([0, 0, 0], [0, 3, 3])])
    assert index.candidates(first).tolist() == [0]
    assert index.leaf_candidates(first).tolist() == [0, 1, 2]


@given(some_entries)
@settings(deadline=None, max_examples=60)
def test_matching_by_the_index_is_exact(entries) -> None:
    """Subscription indexing leaves no false positive and loses nothing; it examines candidates, not everything."""
    matched, examined = CompiledIndex(GRID, entries).match(POINTS)
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
    by_projection = judged(projected.compiled().lookup(GRID.index(POINTS)), wanted(entries))
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


@given(SPACE.entries(), SPACE.entries())
@settings(deadline=None, max_examples=100)
def test_exact_phases(candidates, entry) -> None:
    """Negative space and RSPC answer for the union; pairwise says yes only where the union covers."""
    covered = SPACE.points(entry) <= SPACE.points(candidates)
    assert negative_space(candidates, entry) == covered
    assert rspc(1e-12, 10**6)(candidates, entry) == covered
    assert covered or not pairwise(candidates, entry)
    assert len(entry) == 0 or pairwise(entry, entry)


single_boxes = (
    SPACE.entries().filter(lambda entry: len(entry) >= 1).map(lambda entry: Boxes(entry.lows[:1], entry.highs[:1]))
)


@given(st.lists(single_boxes, max_size=5), single_boxes)
@settings(deadline=None, max_examples=100)
def test_evaluation_finds_what_covers_and_what_merges(entries, boxes) -> None:
    """Of the active entries it names those that the new one covers, and all that make exactly one box with it."""
    indexed = IndexedMics(CUBE, {"mode": "indexed"}, grid=GRID)
    indexed.update({str(i): entry for i, entry in enumerate(entries)})
    active = {id: SPACE.points(entry) for id, entry in indexed.forwarded().items()}
    found, new = indexed.evaluate(boxes), SPACE.points(boxes)
    assert set(found.covers) == {id for id, points in active.items() if points <= new}
    assert found.covered == any(new <= points for points in active.values())

    def bounding(points):
        return set(itertools.product(*(range(min(x), max(x) + 1) for x in zip(*points, strict=True))))

    merges = {id for id, points in active.items() if bounding(points | new) == points | new}
    assert set(found.merges) == merges
    for id, merged in found.merges.items():
        assert SPACE.points(merged) == active[id] | new


def test_candidates_are_counted() -> None:
    """Decisions of updates count the candidates they examined; far entries are not among them."""
    indexed = IndexedMics(CUBE, {"mode": "indexed"}, grid=GRID)
    far, near = Boxes.of([([3, 3, 0], [3, 3, 3])]), Boxes.of([([0, 0, 0], [1, 1, 1])])
    indexed.update({"far": far, "near": near})
    assert indexed.stats()["candidates"] == 0
    indexed.update({"in": Boxes.of([([0, 0, 0], [0, 0, 0])])})
    assert indexed.stats()["candidates"] == 1
    assert indexed.stats()["evaluated"] == 3
    assert indexed.stats()["covered"] == 1
    assert indexed.decide(near).by == ("near",)


def test_what_a_new_entry_covers_is_taken_back() -> None:
    """A wider entry retires the active ones inside it, and its withdrawal promotes them, each in one step."""
    indexed = IndexedMics(CUBE, {"mode": "indexed"}, grid=GRID)
    inner, wide = Boxes.of([([0, 0, 0], [1, 1, 1])]), Boxes.of([([0, 0, 0], [2, 2, 2])])
    indexed.update({"inner": inner})
    delta = indexed.update({"wide": wide})
    assert (list(delta.added), delta.removed) == (["wide"], ("inner",))
    delta = indexed.update({}, ["wide"])
    assert (list(delta.added), delta.removed) == (["inner"], ("wide",))
    assert indexed.stats()["retired"] == indexed.stats()["promoted"] == 1


def test_any_exact_phase_plugs_in() -> None:
    """A callable of one's own is asked, with the boxes of the candidates and the entry."""
    asked = []

    def never(candidates: Boxes, entry: Boxes) -> bool:
        asked.append((len(candidates), len(entry)))
        return False

    indexed = IndexedMics(CUBE, {"mode": "indexed"}, grid=GRID, exact=never)
    assert isinstance(indexed, Reduction)
    indexed.update({"a": CUBE})
    indexed.update({"b": Boxes.of([([0, 0, 0], [0, 0, 0])])})
    assert asked == [(0, 1), (1, 1)]
    assert list(indexed.forwarded()) == ["a", "b"]


def test_a_wide_entry_is_indexed_by_few_ranges() -> None:
    """Also where no cap is set an entry has at most 256 ranges, as in the projected mode; a cap of one's own holds."""
    fine = EventType("f", tuple(Attribute(n, "int", min=0, max=255) for n in "xyz"), bits=8, cubes=1)
    wide = Boxes.of([([3, 5, 7], [201, 230, 190])])
    assert len(Grid.of(fine).ranges(wide)) > 1000
    for parameters, cap in (({"mode": "indexed"}, 256), ({"mode": "indexed", "cap": 300}, 300)):
        indexed = IndexedMics(Boxes.of([([0] * 3, [255] * 3)]), parameters, grid=Grid.of(fine))
        indexed.update({"wide": wide})
        assert indexed.stats()["ranges"] == len(indexed.compiled()) == len(Grid.of(fine).ranges(wide, cap)) <= cap
        assert indexed.decide(Boxes.of([([3, 5, 7], [3, 5, 7])])).by == ("wide",)


@pytest.mark.parametrize("blob", [b"", b"\x07abc"])
def test_another_format_is_refused(blob) -> None:
    """Bytes of another format, or none, raise instead of being read."""
    with pytest.raises(HilcastError, match="state-format"):
        IndexedMics.decode(blob, CUBE, {"mode": "indexed"}, grid=GRID)


def test_greedy_dimensions_lower_the_candidates() -> None:
    """§5: indexing the most selective attributes leaves fewer candidates than indexing the least selective."""
    random = np.random.default_rng(5)
    names = "abcd"
    many = EventType("m", tuple(Attribute(n, "int", min=0, max=255) for n in names), bits=4, cubes=1)
    widths = np.array([200, 4, 150, 8])
    lows = (random.random((300, 4)) * (256 - widths)).astype(np.int64)
    boxes = Boxes(lows, lows + widths - 1)
    sample = random.integers(0, 256, (500, 4))
    chosen = choose_dimensions(many, boxes, sample, 2)
    assert set(chosen) == {"b", "d"}
    counts = []
    for index in (chosen, ("a", "c")):
        listing = SubscriptionIndex(Grid.of(EventType("m", many.attributes, index=index, bits=4, cubes=1)))
        listing.add_all({i: Boxes(boxes.lows[i : i + 1], boxes.highs[i : i + 1]) for i in range(300)})
        counts.append(
            sum(len(listing.candidates(Boxes(boxes.lows[i : i + 1], boxes.highs[i : i + 1]))) for i in range(50))
        )
    assert counts[0] < counts[1] / 4
