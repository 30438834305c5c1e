"""The grid against plain references: cells by linear search, the curve by the `hilbertcurve` package."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import product

import numpy as np
import pytest
from hilbertcurve.hilbertcurve import HilbertCurve
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.grid_fitting import fit
from state.errors import ConfigError, HilcastError
from state.space import grid as grid_module
from state.space import ranges as ranges_module
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid, default_bits, default_dimensions, warm
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN, rank

SMALL = EventType(
    "small",
    (
        Attribute("ignored", "int"),
        Attribute("x", "int", min=0, max=15),
        Attribute("flag", "boolean"),
        Attribute("y", "float", min=0, max=8),
        Attribute("kind", "category", values=("a", "b", "c")),
    ),
)
SAMPLES = [ABSENT, PRESENT_MIN, -3, -1, 0, 1, 2, 3, 7, 8, 15, 16, 99, PRESENT_MAX]


def grid_of(index: tuple[str, ...], bits: int, cubes: int) -> Grid:
    return Grid.of(EventType("small", SMALL.attributes, index=index, bits=bits, cubes=cubes))


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    """A small grid of 1 to 4 dimensions in any order, uniform or fitted."""
    names = draw(st.permutations(["x", "flag", "y", "kind"]))
    index = tuple(names[: draw(st.integers(1, 4))])
    bits = draw(st.integers(1, 3 if len(index) > 2 else 4))
    grid = grid_of(index, bits, 2 ** draw(st.integers(0, min(len(index) * bits, 6))))
    if draw(st.booleans()):
        grid = fit(grid, np.array(draw(st.lists(points(), min_size=1, max_size=30))))
    grid.check()
    return grid


def cubes_at(grid: Grid, ranks: np.ndarray) -> np.ndarray:
    """The cube of each rank vector: the first bits of its Hilbert index."""
    return grid.index(ranks) >> (grid.index_bits - (grid.cubes.bit_length() - 1))


def points() -> st.SearchStrategy[list[int]]:
    some_rank = st.one_of(st.sampled_from(SAMPLES), st.integers(-2, 20), st.integers(ABSENT, PRESENT_MAX))
    price = st.floats(-1, 9).map(lambda v: rank(SMALL.attributes[3], v))
    return st.tuples(some_rank, some_rank, some_rank, st.one_of(some_rank, price), some_rank).map(list)


@st.composite
def some_boxes(draw: st.DrawFn) -> Boxes:
    pairs = draw(st.lists(st.tuples(points(), points()), max_size=4))
    return Boxes.of(
        [([min(a, b) for a, b in zip(*p, strict=True)], [max(a, b) for a, b in zip(*p, strict=True)]) for p in pairs],
        d=5,
    )


def cell_by_search(grid: Grid, i: int, value: int) -> int:
    return max(c for c, start in enumerate(grid.starts[i].tolist()) if start <= value)


def index_by_package(grid: Grid, point: list[int]) -> int:
    columns = [SMALL.dimension[name] for name in grid.dimensions]
    cells = [cell_by_search(grid, i, point[column]) for i, column in enumerate(columns)]
    return HilbertCurve(grid.k, len(cells)).distance_from_point(cells)


@given(grids(), st.lists(points(), min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_index_is_the_packages_index_of_the_cell(grid: Grid, batch: list[list[int]]) -> None:
    """A batch of rank vectors gets the package's index of the cells found by looking at every start."""
    ranks = np.array(batch, np.int64)
    expected = [index_by_package(grid, point) for point in batch]
    assert grid.index(ranks).tolist() == expected
    assert (grid.index(np.asfortranarray(ranks)) == grid.index(ranks)).all()


@given(grids(), some_boxes(), st.lists(points(), min_size=1, max_size=20), st.sampled_from([None, 1, 3]))
@settings(max_examples=100, deadline=None)
def test_ranges_hold_every_point_of_the_boxes(
    grid: Grid, boxes: Boxes, batch: list[list[int]], cap: int | None
) -> None:
    """Ranges are a superset: whatever lies in a box has its index in a range, cap or not."""
    ranges = grid.ranges(boxes, cap)
    ranges.check()
    assert cap is None or len(ranges) <= cap
    ranks = np.concatenate([np.array(batch, np.int64), boxes.lows, boxes.highs])
    assert ranges.contains(grid.index(ranks))[boxes.contains(ranks)].all()


@given(grids(), some_boxes(), st.lists(points(), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_ranges_hold_nothing_but_touched_cells(grid: Grid, boxes: Boxes, batch: list[list[int]]) -> None:
    """Without a cap a point is in a range only if its cell, in the grid's dimensions, touches a box."""
    ranges = grid.ranges(boxes)
    assert grid.is_exact(boxes)
    for point, inside in zip(batch, ranges.contains(grid.index(np.array(batch, np.int64))), strict=True):
        touches = False
        for low, high in boxes:
            meets = []
            for i, name in enumerate(grid.dimensions):
                column = SMALL.dimension[name]
                cell = cell_by_search(grid, i, point[column])
                last = [s - 1 for s in grid.starts[i].tolist() if s > grid.starts[i, cell]] or [PRESENT_MAX]
                meets.append(low[column] <= last[0] and high[column] >= grid.starts[i, cell])
            touches |= all(meets)
        assert inside == touches


@given(grids(), some_boxes(), st.lists(points(), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_cubes_tile_the_rank_space(grid: Grid, boxes: Boxes, batch: list[list[int]]) -> None:
    """Every rank vector lies in the box of its own cube and in no other; boxes touch the cubes they meet."""
    ranks = np.concatenate([np.array(batch, np.int64), boxes.lows, boxes.highs])
    corners = [grid.cube_box(cube) for cube in range(grid.cubes)]
    inside = np.array([((ranks >= low) & (ranks <= high)).all(axis=1) for low, high in corners])
    assert (inside.sum(axis=0) == 1).all()
    assert (inside.argmax(axis=0) == cubes_at(grid, ranks)).all()
    meets = [cube for cube, (low, high) in enumerate(corners) if len(boxes.clipped(low, high))]
    assert grid.cubes_of(boxes).tolist() == meets
    assert grid.cubes_touched(boxes) == len(meets)
    assert grid.cut(boxes) == {cube: boxes.clipped(*corners[cube]) for cube in meets}
    for cube in range(grid.cubes):
        start, end = grid.cube_range(cube)
        assert [start * grid.cubes >> grid.index_bits, end * grid.cubes >> grid.index_bits] == [cube, cube]
        assert end - start + 1 == 2 ** (grid.d * grid.k) // grid.cubes


@pytest.mark.parametrize(("d", "k"), [(1, 4), (2, 3), (3, 2), (4, 2), (5, 1), (6, 1)])
def test_every_prefix_block_is_a_box(d: int, k: int) -> None:
    """For every power of two of cubes, also in the middle of a level, the cells of a cube fill a box."""
    package = HilbertCurve(k, d)
    cells = {package.distance_from_point(list(cell)): cell for cell in product(range(2**k), repeat=d)}
    attributes = tuple(Attribute(f"a{i}", "int", min=0, max=2**k - 1) for i in range(d))
    index = tuple(a.name for a in attributes)
    for b in range(d * k + 1):
        grid = Grid.of(EventType("t", attributes, index=index, bits=k, cubes=2**b))
        blocks = defaultdict(list)
        for place, cell in cells.items():
            blocks[place >> (d * k - b)].append(cell)
        for cube, block in blocks.items():
            low, high = np.min(block, axis=0), np.max(block, axis=0)
            assert np.prod(high - low + 1) == len(block)
            # the outermost cells hold also what lies outside min and max
            expected = np.where(low == 0, ABSENT, low), np.where(high == 2**k - 1, PRESENT_MAX, high)
            assert [c.tolist() for c in grid.cube_box(cube)] == [c.tolist() for c in expected]


def test_cubes_span_what_the_grid_has_not() -> None:
    """Attributes outside the grid are whole in every cube; one cube is everything."""
    low, high = grid_of(("y",), 4, 4).cube_box(2)
    assert (low[[0, 1, 2, 4]] == ABSENT).all()
    assert (high[[0, 1, 2, 4]] == PRESENT_MAX).all()
    only = grid_of(("y", "x"), 2, 1)
    assert Boxes(*(corner[None] for corner in only.cube_box(0))) == Boxes.everything(5)
    assert cubes_at(only, np.zeros((3, 5), np.int64)).tolist() == [0, 0, 0]
    assert only.cube_range(0) == (0, 15)


def test_more_cubes_than_values_leaves_cubes_empty() -> None:
    """A boolean has two cubes that hold anything; the others' boxes hold nothing and nothing touches them."""
    grid = grid_of(("flag",), 3, 8)
    held = {int(c) for c in cubes_at(grid, np.array([[0, 0, f, 0, 0] for f in (ABSENT, 0, 1, 9)]))}
    assert len(held) == 2
    assert set(grid.cubes_of(Boxes.everything(5)).tolist()) == held
    for cube in set(range(8)) - held:
        low, high = grid.cube_box(cube)
        assert (low > high).any()
        assert len(Boxes.everything(5).clipped(low, high)) == 0


def test_one_sided_predicates_are_one_face() -> None:
    """`x < 8`, `x >= 0` and `flag = false` begin at the border of the grid, where no range is cut off."""
    grid = grid_of(("x", "flag"), 4, 1)

    def cells(column: int, low: int, high: int) -> list[int]:
        lows, highs = np.full(5, ABSENT), np.full(5, PRESENT_MAX)
        lows[column], highs[column] = low, high
        first, last = grid.cell_boxes(Boxes(lows[None], highs[None]))
        return [int(first[0, [1, 2].index(column)]), int(last[0, [1, 2].index(column)])]

    assert cells(1, PRESENT_MIN, 7) == [0, 7]
    assert cells(1, 0, PRESENT_MAX) == [0, 15]
    assert cells(1, 8, PRESENT_MAX) == [8, 15]
    assert cells(2, 0, 0) == [0, 7]
    assert cells(2, 1, 1) == [8, 15]
    assert cells(2, 0, 1) == [0, 15]


@given(grids())
@settings(max_examples=50, deadline=None)
def test_description_goes_through_json(grid: Grid) -> None:
    """A client that reads the description has the same grid: same hash, same indices, same cubes."""
    read = Grid.from_description(json.loads(json.dumps(grid.describe())))
    read.check()
    assert read.hash == grid.hash == grid.describe()["hash"]
    ranks = np.array([[v] * 5 for v in SAMPLES], np.int64)
    assert (read.index(ranks) == grid.index(ranks)).all()
    assert [read.cube_range(cube) for cube in range(read.cubes)] == [grid.cube_range(c) for c in range(grid.cubes)]


def test_hash_names_the_grid() -> None:
    """What could map a rank elsewhere changes the hash; the same description has it in every process."""
    base = grid_of(("x", "y"), 3, 4)
    others = [
        grid_of(("y", "x"), 3, 4),
        grid_of(("x", "y"), 4, 4),
        grid_of(("x", "y"), 3, 8),
        fit(base, np.array([[1, 2, 3, 4, 5]])),
        Grid.of(EventType("other", SMALL.attributes, index=("x", "y"), bits=3, cubes=4)),
        Grid.of(EventType("small", SMALL.attributes[::-1], index=("x", "y"), bits=3, cubes=4)),
    ]
    hashes = [grid.hash for grid in [base, *others]]
    assert len(set(hashes)) == len(hashes)
    assert grid_of(("x", "y"), 3, 4).hash == base.hash == "596fc5efefd154e5"


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"curve": "z-order"},
        {"bits": 99},
        {"bits": "3"},
        {"bits": 2},
        {"cubes": 3},
        {"cubes": None},
        {"index": ["x", "nobody"]},
        {"index": []},
        {"attributes": None},
        {"starts": [[0] * 8, [0] * 8]},
        {"starts": [[ABSENT, 5, 4, 5, 6, 7, 8, 9]] * 2},
        {"starts": [[2**70] * 8] * 2},
        {"starts": "text"},
        {"hash": "0" * 16},
    ],
)
def test_bad_descriptions_are_refused(change: dict[str, object]) -> None:
    """What is not the description of a grid is `bad-value`, never another exception or a wrong grid."""
    description = {**grid_of(("x", "y"), 3, 4).describe(), **change}
    with pytest.raises(HilcastError) as caught:
        Grid.from_description(description)
    assert caught.value.code == "bad-value"


def test_missing_members_are_refused() -> None:
    """Every member of a description but the hash is needed."""
    description = grid_of(("x", "y"), 3, 4).describe()
    for member in description:
        rest = {name: value for name, value in description.items() if name != member}
        if member == "hash":
            assert Grid.from_description(rest).hash == description["hash"]
        else:
            with pytest.raises(HilcastError):
                Grid.from_description(rest)


@pytest.mark.parametrize(
    ("settings_of_type", "words"),
    [
        ({"index": ("x", "nobody", "x")}, ["'nobody' is no attribute", "'x' occurs twice"]),
        ({"index": tuple("abcdefg")}, ["7 dimensions"]),
        ({"index": ("x", "y"), "bits": 17}, ["17"]),
        ({"index": ("x", "y", "flag", "kind"), "bits": 16}, ["exceed 63"]),
        ({"index": ("x",), "bits": 2, "cubes": 8}, ["8"]),
        ({"cubes": 12}, ["no power of two"]),
        ({"cubes": 2**17}, ["at most 4096"]),
    ],
)
def test_impossible_grids_are_refused(settings_of_type: dict[str, object], words: list[str]) -> None:
    """All faults of a type's grid come at once, each with its place."""
    with pytest.raises(ConfigError) as caught:
        Grid.of(EventType("small", SMALL.attributes, **settings_of_type))  # type: ignore[arg-type]
    for word in words:
        assert any(word in fault and fault.startswith('types."small".') for fault in caught.value.faults)


def test_default_dimensions_tell_most_apart() -> None:
    """Bounded numbers, larger categories and text come first, then free numbers, then the rest; in order."""
    text, free, flag = Attribute("t", "text"), Attribute("n", "int"), Attribute("b", "boolean")
    time, price = Attribute("at", "timestamp"), Attribute("p", "float", min=0, max=1)
    large = Attribute("c", "category", values=tuple("abcd"))
    assert default_dimensions(EventType("t", (flag, free, time, text, price, large))) == ("t", "p", "c")
    assert default_dimensions(EventType("t", (flag, free, time, text))) == ("b", "n", "t")
    assert default_dimensions(EventType("t", (flag,))) == ("b",)


def test_default_bits_bound_the_ranges() -> None:
    """With the default bits boxes of up to half of every dimension have 2,048 ranges at most on average."""
    random = np.random.default_rng(0)
    assert [default_bits(d) for d in range(1, 7)] == [10, 10, 7, 5, 4, 3]
    assert default_bits(1, cubes=2**16) == 16
    for d in range(1, 7):
        attributes = tuple(Attribute(f"a{i}", "int", min=0, max=2**16) for i in range(d))
        grid = Grid.of(EventType("t", attributes, index=tuple(a.name for a in attributes)))
        highs = random.integers(2**14, 2**15, (60, 1, d))
        counts = [len(grid.ranges(Boxes(np.full((1, d), ABSENT), high))) for high in highs]
        assert np.mean(counts) < 2048


def test_nothing_is_compiled_after_warming() -> None:
    """`warm` compiles every kernel for the types that real grids pass, whatever d, k, cubes and cap."""
    kernels = [grid_module._cells, grid_module._indices, grid_module._touched]
    kernels += [ranges_module._walk_all, ranges_module._cover_all, ranges_module.expected_total]
    warm()
    before = [len(kernel.signatures) for kernel in kernels]
    assert min(before) >= 1
    grid = grid_of(("x", "flag", "y", "kind"), 9, 64)
    for boxes in (Boxes.everything(5), Boxes.of([([0] * 5, [1] * 5)] * 3), Boxes.empty(5)):
        for cap in (None, 1, 100):
            grid.ranges(boxes, cap)
        grid.cubes_of(boxes)
        grid.index(boxes.lows)
    assert [len(kernel.signatures) for kernel in kernels] == before
