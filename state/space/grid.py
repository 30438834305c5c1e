"""The Hilbert grid of an event type: ranks and boxes to indices, ranges and cubes ([MICS09] §3, §5, §6.3).

    ranks (n, attributes) ──cells──> cells (n, d) ──curve──> index ──prefix──> cube
    boxes of ranks        ──cells──> boxes of cells ──walk──> ranges
                          ──────────────────────────────────> cubes that they touch

A grid has at most 6 of the type's attributes as dimensions (content space projection, §5), 2^k cells in
each (`cells.py`) and, along the curve, a power of two of *cubes*: blocks of equally many cells. A cube is
always a box:

    2 cubes       4 cubes       8 cubes
    ┌───┬───┐     ┌───┬───┐     ┌─┬─┬─┬─┐     2^j consecutive children of a sub-cube, from a
    │   │   │     │ 1 │ 2 │     │2│3│4│5│     multiple of 2^j on, have the upper bits of their
    │ 0 │ 1 │     ├───┼───┤     ├─┴─┼─┴─┤     Gray codes in common and all of the lower ones:
    │   │   │     │   │   │     │ 1 │ 6 │     their corners make a box
    │   │   │     │ 0 │ 3 │     ├───┼───┤
    │   │   │     │   │   │     │ 0 │ 7 │
    └───┴───┘     └───┴───┘     └───┴───┘

Everything that crosses the wire names its grid by `hash`, which changes whenever any rank could map to
another index or cube.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from state.arrays import Bools, Ints
from state.errors import ConfigError, HilcastError
from state.kernels import njit
from state.limits import CELL_BITS_MAX, CUBES_MAX, DIMENSIONS_MAX, INDEX_BITS_MAX
from state.space.boxes import Boxes, Ranks
from state.space.cells import quantile_starts, uniform_starts
from state.space.event_type import DIMENSIONS_DEFAULT, Attribute, EventType
from state.space.hilbert import Table, decode, index_of_morton, machine_of
from state.space.ranges import RANGES_MAX, Ranges, boxes_ranges, each_ranges, expected_total
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN

DESCRIPTION_FORMAT = 1
_BITS_DEFAULT_MAX = 10
_HALF_BOX_RANGES = 2**11


@dataclass(frozen=True, eq=False)
class Grid:
    """The grid of one event type.

    Invariant: `starts` is (d, 2^k) as in `cells.py`; d·k <= 63; `cubes` is a power of two, at most 2^(d·k).

    >>> price, halted = Attribute("price", "float", min=0, max=100), Attribute("halted", "boolean")
    >>> grid = Grid.of(EventType("quote", (price, halted), cubes=4))
    >>> grid.dimensions, grid.k, grid.cubes
    (('price', 'halted'), 10, 4)
    >>> everything_halted = Boxes.of([([ABSENT, 1], [PRESENT_MAX, 1])])
    >>> grid.cubes_of(everything_halted), grid.ranges(everything_halted)
    (array([1, 2]), Ranges.of([(262144, 786431)]))
    """

    type_name: str
    attributes: tuple[Attribute, ...]
    """Names, kinds and categories of the type, which say what a rank means; no `min` and `max`."""
    dimensions: tuple[str, ...]
    """Attributes of the grid, in the order of the curve's components."""
    k: int
    starts: Ranks
    cubes: int

    @classmethod
    def of(cls, event_type: EventType) -> Grid:
        """Return the grid of an event type.

        Cells are uniform, or by the quantiles of what was published where the type has these ([MICS09] §6.3).
        Dimensions are the type's `index` or else the first three attributes, in declared order, of those
        that tell most events apart: first bounded numbers, categories of 4 and more, and text; then numbers
        without bounds; then the rest. Bits are the type's `bits` or else as many that a box of half of
        every dimension has about 2,000 ranges ([MICS09] eq. 3), 10 at most. Raises ConfigError where the
        type asks for the impossible.
        """
        dimensions = event_type.index or default_dimensions(event_type)
        k = event_type.bits or default_bits(len(dimensions), event_type.cubes)
        faults = grid_faults(event_type, dimensions, k)
        if faults:
            raise ConfigError(faults)
        starts = np.stack([_starts(event_type, name, k) for name in dimensions])
        attributes = tuple(Attribute(a.name, a.kind, values=a.values) for a in event_type.attributes)
        return cls(event_type.name, attributes, dimensions, k, starts, event_type.cubes)

    @property
    def d(self) -> int:
        return len(self.dimensions)

    @property
    def index_bits(self) -> int:
        return self.d * self.k

    @cached_property
    def columns(self) -> Ints:
        """The column of each dimension in rank vectors and boxes."""
        names = [attribute.name for attribute in self.attributes]
        return np.array([names.index(name) for name in self.dimensions], np.int64)

    # --- points ---------------------------------------------------------------------------------------------

    def cells(self, ranks: Ranks) -> Ints:
        """Return the cell of each rank vector, (n, d). Cost: O(d * k) each, compiled."""
        out = np.empty((len(ranks), self.d), np.int64)
        _cells(np.ascontiguousarray(ranks), self.columns, self.starts, self.k, out)
        return out

    def index(self, ranks: Ranks) -> Ints:
        """Return the Hilbert index of each rank vector ([MICS09] §3.3). Cost: O(d * k) each, compiled.

        Guarantee: `encode(self.cells(ranks), self.k)`.
        """
        curve, row, steps = machine_of(self.d, self.k)
        bits = curve.levels * self.d
        out = np.empty(len(ranks), np.int64)
        points = np.ascontiguousarray(ranks)
        _indices(points, self.columns, self.starts, self.k, curve.forward, row, steps, bits, out)
        return out

    # --- boxes ----------------------------------------------------------------------------------------------

    def cell_boxes(self, boxes: Boxes) -> tuple[Ints, Ints]:
        """Return the first and the last cell of each box, (n, d) each: its augmentation ([MICS09] §3.3).

        A block of cells with one start is taken whole: its empty cells cost nothing and save ranges.
        """
        lows = self.cells(boxes.lows)
        return self._block_starts[np.arange(self.d), lows], self.cells(boxes.highs)

    def ranges(self, boxes: Boxes, cap: int | None = None) -> Ranges:
        """Return the Hilbert ranges of boxes of the whole type, projected on the grid ([MICS09] §3.3, §5).

        Guarantee: the index of every point in a box lies in a range; more points may, by projection, by
        rounding to cells and by the cap. Cost: `boxes_ranges`, bounded for every box.
        """
        lows, highs = self.cell_boxes(boxes)
        return boxes_ranges(lows, highs, self.k, cap)

    def ranges_of_each(self, boxes: Boxes, cap: int) -> tuple[Ints, Ints, Ints]:
        """`ranges` of each box by itself, side by side: starts, ends, and how many each has. Cost: `each_ranges`."""
        return each_ranges(*self.cell_boxes(boxes), self.k, cap)

    def part_ranges(self, boxes: Boxes, touched: Sequence[int], *, wide: bool, cap: int | None = None) -> list[Ranges]:
        """The ranges of each part that a filter goes to, a wide one or the cubes it touches; the cap is of each."""
        if wide or not touched:
            return [self.ranges(boxes, cap)] if len(boxes) else []
        clipped = ((cube, boxes.clipped(*self.cube_box(cube))) for cube in touched)
        return [self.ranges(inside, cap).clipped(*self.cube_range(cube)) for cube, inside in clipped]

    def share(self, boxes: Boxes, touched: Sequence[int], *, wide: bool) -> float:
        """The share of the grid's cells that a filter covers."""
        cells = sum(ranges.cells for ranges in self.part_ranges(boxes, touched, wide=wide))
        return float(cells / 2**self.index_bits)

    def is_exact(self, boxes: Boxes) -> bool:
        """Tell whether `ranges(boxes)` covers no cell that no box touches: up to `RANGES_MAX` are
        expected."""
        lows, highs = self.cell_boxes(boxes)
        return expected_total(lows, highs, self.k) <= RANGES_MAX

    @cached_property
    def _block_starts(self) -> Ints:
        """First cell of the block of each cell: the first with the same start."""
        return np.stack([np.searchsorted(row, row, side="left") for row in self.starts]).astype(np.int64)

    # --- cubes ----------------------------------------------------------------------------------------------

    def cubes_of(self, boxes: Boxes) -> Ints:
        """Return the cubes that the boxes touch, sorted. Cost: O(cubes * boxes * d), compiled."""
        lows, highs = self._cube_boxes
        return _touched(boxes.lows, boxes.highs, lows, highs, self.columns).nonzero()[0]

    def cubes_touched(self, boxes: Boxes) -> int:
        """Return how many cubes the boxes touch. Cost: that of `cubes_of`, and no array of them."""
        lows, highs = self._cube_boxes
        return int(_touched_count(boxes.lows, boxes.highs, lows, highs, self.columns))

    def cut(self, boxes: Boxes) -> dict[int, Boxes]:
        """Return what lies of the boxes in each cube that they touch, by cube. Cost: O(cubes * boxes * d), compiled.

        >>> grid = Grid.of(EventType("t", (Attribute("a", "int", min=0, max=99),), cubes=2))
        >>> [(cube, *part.lows[0], *part.highs[0]) for cube, part in grid.cut(Boxes.of([([9], [60])])).items()] == [
        ...     (0, 9, 49), (1, 50, 60)]
        True
        """
        cubes, ends, lows, highs = _cut(boxes.lows, boxes.highs, *self._cube_boxes, self.columns)
        parts, start = {}, 0
        for cube, end in zip(cubes.tolist(), ends.tolist(), strict=True):
            parts[cube] = Boxes(lows[start:end], highs[start:end])
            start = end
        return parts

    def cube_box(self, cube: int) -> tuple[Ranks, Ranks]:
        """Return the corners of a cube's box, in all attributes of the type; those not in the grid it spans.

        Guarantee: the cubes' boxes are disjoint and together hold every rank vector. A cube of empty cells
        only (more cubes than values) holds nothing: there a low corner exceeds the high one.
        """
        lows, highs = self._cube_boxes
        return lows[cube].copy(), highs[cube].copy()

    def cube_range(self, cube: int) -> tuple[int, int]:
        """Return the first and the last Hilbert index of a cube."""
        assert 0 <= cube < self.cubes, cube
        bits = self.index_bits - self._cube_bits
        return cube << bits, ((cube + 1) << bits) - 1

    @property
    def _cube_bits(self) -> int:
        return self.cubes.bit_length() - 1

    @property
    def _cube_levels(self) -> int:
        """Levels of the curve that decide the cube."""
        return max(1, -(-self._cube_bits // self.d))

    @cached_property
    def _cube_boxes(self) -> tuple[Ranks, Ranks]:
        """Low and high corner of every cube in all dimensions of the type."""
        levels, d = self._cube_levels, self.d
        corners = decode(np.arange(1 << (levels * d)), d, levels).reshape(self.cubes, -1, d)
        first = corners.min(axis=1) << (self.k - levels)
        last = ((corners.max(axis=1) + 1) << (self.k - levels)) - 1
        everything = Boxes.everything(len(self.attributes))
        lows, highs = (np.repeat(corner, self.cubes, axis=0) for corner in (everything.lows, everything.highs))
        for i, column in enumerate(self.columns):
            low = self.starts[i, first[:, i]]
            after = self.starts[i, np.minimum(last[:, i] + 1, 2**self.k - 1)]
            final = last[:, i] == 2**self.k - 1
            empty = ~final & (low == after)
            lows[:, column] = np.where(empty, PRESENT_MIN, low)
            highs[:, column] = np.where(empty, ABSENT, np.where(final, PRESENT_MAX, after - 1))
        return lows, highs

    # --- description ----------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return all that a client needs to map events and subscriptions itself, as JSON ([MICS09] §6.1).

        `starts` lists per dimension the lowest rank of each cell; ranks are those of `ranks.py`, the curve
        that of the `hilbertcurve` package, component 0 the first of `index`.
        """
        description = self._description
        return {**description, "hash": _hash(description)}

    @cached_property
    def _description(self) -> dict[str, Any]:
        return {
            "format": DESCRIPTION_FORMAT,
            "type": self.type_name,
            "attributes": [
                {"name": a.name, "kind": a.kind, **({"values": list(a.values)} if a.values else {})}
                for a in self.attributes
            ],
            "curve": "hilbertcurve",
            "index": list(self.dimensions),
            "bits": self.k,
            "cubes": self.cubes,
            "starts": self.starts.tolist(),
        }

    @cached_property
    def hash(self) -> str:
        """16 hexadecimal digits that name this grid: equal where all of the description is."""
        return _hash(self._description)

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Grid:
        """Return the grid that `describe` described. Raises HilcastError `bad-value` where it is none."""
        try:
            grid = _read_description(description)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise HilcastError("bad-value", f"not the description of a grid: {error!r}") from error
        if description.get("hash", grid.hash) != grid.hash:
            raise HilcastError("bad-value", f"the grid's hash is {grid.hash}, not {description['hash']!r}")
        return grid

    def check(self) -> None:
        """Assert the invariant."""
        assert 1 <= self.d <= DIMENSIONS_MAX
        assert self.index_bits <= INDEX_BITS_MAX
        assert len(set(self.dimensions)) == self.d
        assert self.starts.shape == (self.d, 2**self.k)
        assert self.starts.dtype == np.int64
        assert self.starts.flags.c_contiguous
        assert (self.starts[:, 0] == ABSENT).all()
        assert (self.starts[:, 1:] >= self.starts[:, :-1]).all()
        assert self.cubes.bit_count() == 1
        assert self._cube_bits <= self.index_bits


def _hash(description: Mapping[str, Any]) -> str:
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _read_description(description: Mapping[str, Any]) -> Grid:
    if description["format"] != DESCRIPTION_FORMAT or description["curve"] != "hilbertcurve":
        raise ValueError("unknown format or curve")
    attributes = tuple(
        Attribute(str(a["name"]), a["kind"], values=tuple(a.get("values", ()))) for a in description["attributes"]
    )
    dimensions = tuple(description["index"])
    event_type = EventType(description["type"], attributes, cubes=description["cubes"])
    faults = grid_faults(event_type, dimensions, description["bits"])
    if faults:
        raise ValueError("; ".join(faults))
    starts = np.array(description["starts"], np.int64)
    k = int(description["bits"])
    if starts.shape != (len(dimensions), 2**k):
        raise ValueError(f"starts must be {len(dimensions)} lists of {2**k}")
    if (starts[:, 0] != ABSENT).any() or (starts[:, 1:] < starts[:, :-1]).any():
        raise ValueError("starts must be sorted and begin with the absent rank")
    return Grid(event_type.name, attributes, dimensions, k, starts, event_type.cubes)


def _starts(event_type: EventType, name: str, k: int) -> Ranks:
    dividing = event_type.quantiles.get(name)
    return quantile_starts(dividing, k) if dividing else uniform_starts(event_type.attribute(name), k)


# --- choices ------------------------------------------------------------------------------------------------


def grid_faults(event_type: EventType, dimensions: tuple[str, ...], k: int) -> list[str]:
    """Return all that is impossible about a grid of these dimensions and k bits each, with its place."""
    place = f'types."{event_type.name}"'
    faults = []
    if not 1 <= len(dimensions) <= DIMENSIONS_MAX:
        faults.append(f"{place}.index: {len(dimensions)} dimensions; a grid has 1 to {DIMENSIONS_MAX}")
    for i, name in enumerate(dimensions):
        if name not in event_type.dimension:
            faults.append(f"{place}.index: {name!r} is no attribute of this type")
        if name in dimensions[:i]:
            faults.append(f"{place}.index: {name!r} occurs twice")
    if not 1 <= k <= CELL_BITS_MAX:
        faults.append(f"{place}.bits: {k}; a dimension has 1 to {CELL_BITS_MAX}")
    elif len(dimensions) * k > INDEX_BITS_MAX:
        faults.append(f"{place}.bits: {len(dimensions)} dimensions of {k} bits exceed {INDEX_BITS_MAX}")
    elif not 1 <= event_type.cubes <= min(CUBES_MAX, 2 ** (len(dimensions) * k)):
        faults.append(f"{place}.cubes: {event_type.cubes}; at most {CUBES_MAX} and the number of cells")
    if event_type.cubes.bit_count() != 1:
        faults.append(f"{place}.cubes: {event_type.cubes} is no power of two")
    return faults


def default_dimensions(event_type: EventType) -> tuple[str, ...]:
    """Return the dimensions of a type that names none."""

    def tier(attribute: Attribute) -> int:
        bounded = attribute.min is not None and attribute.max is not None
        if attribute.kind == "text" or (bounded and attribute.kind in ("int", "float", "timestamp")):
            return 0
        if attribute.kind == "category" and len(attribute.values) >= 4:
            return 0
        return 1 if attribute.kind in ("int", "float") else 2

    best = sorted(event_type.attributes, key=tier)[:DIMENSIONS_DEFAULT]
    return tuple(a.name for a in event_type.attributes if a in best)


def default_bits(d: int, cubes: int = 1) -> int:
    """Return the bits per dimension where the type names none: 10, 10, 7, 5, 4, 3 for d = 1 .. 6.

    A box of the lower half of every dimension, side 2^(k-1), has about side^(d-1) / 2 ranges
    (`expected_total`); k is the largest for which that is at most 2,048, or more if the cubes need it.
    """
    k = _BITS_DEFAULT_MAX
    while d > 1 and k > 1 and 2 ** ((k - 1) * (d - 1)) > 2 * _HALF_BOX_RANGES:
        k -= 1
    return max(k, -(-(cubes.bit_length() - 1) // max(d, 1)))


def warm() -> None:
    """Compile every kernel of the grid, the walk within a budget included, on a little data."""
    attributes = (Attribute("a", "int", min=0, max=65535), Attribute("b", "int", min=0, max=65535))
    grid = Grid.of(EventType("warm", attributes, bits=16, cubes=2))
    boxes = Boxes.of([([3, 3], [65_000, 65_000]), ([0, 0], [1, 1])])
    grid.ranges(boxes)
    grid.ranges(boxes, cap=1)
    grid.cubes_of(boxes)
    grid.cubes_touched(boxes)
    grid.cut(boxes)
    grid.index(boxes.lows)


# --- kernels ------------------------------------------------------------------------------------------------


@njit
def _cells(ranks: Ranks, columns: Ints, starts: Ranks, k: int, out: Ints) -> None:
    """Binary search of exactly k steps, a bit of every dimension at a time: their look-ups overlap."""
    d = len(columns)
    cell = np.zeros(d, np.int64)
    for n in range(len(ranks)):
        cell[:] = 0
        for shift in range(k - 1, -1, -1):
            for i in range(d):
                upper = int(starts[i, cell[i] | (1 << shift)] <= ranks[n, columns[i]])
                cell[i] |= upper << shift
        out[n] = cell


@njit
def _indices(
    ranks: Ranks,
    columns: Ints,
    starts: Ranks,
    k: int,
    table: Table,
    row: int,
    steps: int,
    bits: int,
    out: Ints,
) -> None:
    """The Hilbert index of each rank vector: the steps of `_cells` spell the Morton code."""
    d = len(columns)
    cell = np.zeros(d, np.int64)
    for n in range(len(ranks)):
        cell[:] = 0
        morton = 0
        step = 1 << k
        for _ in range(k):
            step >>= 1
            for i in range(d):
                upper = int(starts[i, cell[i] + step] <= ranks[n, columns[i]])
                cell[i] += step * upper
                morton = (morton << 1) | upper
        out[n] = index_of_morton(morton, table, row, steps, bits)


@njit
def _meets(lows: Ranks, highs: Ranks, b: int, cube_lows: Ranks, cube_highs: Ranks, cube: int, columns: Ints) -> bool:
    """Tell whether a box meets a cube; only the grid's columns can keep them apart."""
    for i in columns:  # noqa: SIM110 - compiled code has no generators
        if max(lows[b, i], cube_lows[cube, i]) > min(highs[b, i], cube_highs[cube, i]):
            return False
    return True


@njit
def _cut(
    lows: Ranks, highs: Ranks, cube_lows: Ranks, cube_highs: Ranks, columns: Ints
) -> tuple[Ints, Ints, Ranks, Ranks]:
    """The cubes that boxes touch, where the part in each ends, and the parts one after another."""
    n, room = 0, 0
    cubes, ends = np.empty(len(cube_lows), np.int64), np.empty(len(cube_lows), np.int64)
    for cube in range(len(cube_lows)):
        before = room
        for b in range(len(lows)):
            room += _meets(lows, highs, b, cube_lows, cube_highs, cube, columns)
        if room > before:
            cubes[n], ends[n] = cube, room
            n += 1
    out_lows, out_highs = np.empty((room, lows.shape[1]), np.int64), np.empty((room, lows.shape[1]), np.int64)
    row = 0
    for cube in cubes[:n]:
        for b in range(len(lows)):
            if _meets(lows, highs, b, cube_lows, cube_highs, cube, columns):
                for k in range(lows.shape[1]):
                    out_lows[row, k] = max(lows[b, k], cube_lows[cube, k])
                    out_highs[row, k] = min(highs[b, k], cube_highs[cube, k])
                row += 1
    return cubes[:n], ends[:n], out_lows, out_highs


@njit
def _touched(lows: Ranks, highs: Ranks, cube_lows: Ranks, cube_highs: Ranks, columns: Ints) -> Bools:
    """Tell for each cube whether a box meets it."""
    touched = np.zeros(len(cube_lows), np.bool_)
    for cube in range(len(cube_lows)):
        for b in range(len(lows)):
            if _meets(lows, highs, b, cube_lows, cube_highs, cube, columns):
                touched[cube] = True
                break
    return touched


@njit
def _touched_count(lows: Ranks, highs: Ranks, cube_lows: Ranks, cube_highs: Ranks, columns: Ints) -> int:
    return int(_touched(lows, highs, cube_lows, cube_highs, columns).sum())
