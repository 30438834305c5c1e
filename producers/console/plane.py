"""A type's content space seen on two of its attributes: axes, the curve, boxes, ranges and what nothing covers.

Positions are shares of an axis, 0 to 1, in cells of the grid, which need not be even: cell c of 2^k lies from c / 2^k
to (c + 1) / 2^k. Boxes are seen as their shadows, or cut by a *pin*: the plane through one event, where all other
attributes are the event's.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from itertools import pairwise
from typing import Any

import numpy as np

from state.arrays import Bools, Floats, Ints
from state.compiled_part import CompiledPart
from state.space.boxes import Boxes, Ranks
from state.space.cells import uniform_starts
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.hilbert import decode
from state.space.packing import unpack
from state.space.ranges import Ranges
from state.space.ranks import ABSENT, PRESENT_MAX, grid_span, unrank

AXIS_BITS = 8
CELLS_MAX = 4096
"""Cells of the curve that are drawn at most; a finer grid is drawn by its upper levels."""
LEVELS_MAX = 6
CURVE_LEVELS_MAX = 5
"""Levels of the curve itself: finer it would be a carpet."""
OWNERS_MAX = 256
"""Subscriptions that are drawn."""
BOXES_MAX = 512
"""Boxes of a link that are drawn, and of negative space."""
NEGATIVE_FROM_MAX = 1000
"""Boxes of a link from which negative space is computed; of more it is only counted."""

Rectangle = tuple[float, float, float, float]
"""x0, y0, x1, y1."""


@dataclass(frozen=True, eq=False)
class Axis:
    """One attribute as a line from 0 to 1, in cells (`state/space/cells.py`); within a cell values are linear."""

    attribute: Attribute
    starts: Ranks
    """Where each of its cells begins."""

    def start(self, rank: int) -> float:
        """Where a rank begins. Guarantee: monotone; cell c of n begins at c / n.

        >>> volume = Attribute("volume", "int", min=0, max=999)
        >>> axis = Axis(volume, uniform_starts(volume, 4))
        >>> axis.start(250), axis.start(500), axis.start(ABSENT), axis.start(10**12)
        (0.25, 0.5, 0.0, 1.0)
        """
        starts, n = self.starts, len(self.starts)
        cell = int(np.searchsorted(starts, rank, side="right")) - 1
        first = int(np.searchsorted(starts, starts[cell], side="left"))
        low, high = self._edge(first), self._edge(cell + 1)
        if low is None or high is None or low >= high:
            # without a bound there is no scale: what lies in the cell stands in its middle
            inside = cell + 1 if rank >= PRESENT_MAX else (first + cell + 1) / 2
            return (first if rank <= starts[first] else inside) / n
        value = self._number(min(max(rank, starts[first]), starts[cell + 1] if cell + 1 < n else rank))
        # beyond every finite number
        share = float(rank > 0) if value is None else min(max((value - low) / (high - low), 0.0), 1.0)
        return (first + share * (cell + 1 - first)) / n

    def end(self, rank: int) -> float:
        """Where a rank ends: of whole numbers, categories and the like where the next one begins."""
        if rank >= 2**63 - 1:
            return 1.0
        return self.start(rank) if self.attribute.kind in ("float", "text") else self.start(rank + 1)

    def middle(self, rank: int) -> float | None:
        """Where an event is drawn; None: the attribute is absent."""
        return None if rank == ABSENT else (self.start(rank) + self.end(rank)) / 2

    def span(self, low: int, high: int) -> tuple[float, float]:
        """The shadow of an interval of ranks."""
        return self.start(low), self.end(high)

    def _edge(self, cell: int) -> float | None:
        """The value at the border before a cell; None beyond what is bounded."""
        if 0 < cell < len(self.starts):
            return self._number(int(self.starts[cell]))
        bound = self.attribute.min if cell <= 0 else self.attribute.max
        if self.attribute.kind not in ("category", "boolean") and bound is None:
            return None
        if self.attribute.kind == "float":
            return float(bound)  # type: ignore[arg-type]
        # a whole number has a place of its own: the last one ends where the next would begin
        low, high = grid_span(self.attribute)
        return float(low) if cell <= 0 else float(high) + 1.0

    def _number(self, rank: int) -> float | None:
        kind = self.attribute.kind
        if kind == "float":
            value = unrank(self.attribute, int(rank))
            return float(value) if isinstance(value, float) else None
        return float(rank)

    def ticks(self) -> list[tuple[float, str]]:
        """Some values with their places, for the reader."""
        values = {"category": self.attribute.values, "boolean": ("false", "true")}.get(self.attribute.kind)
        if values is not None:
            step = -(-len(values) // 8)
            return [((self.start(i) + self.end(i)) / 2, str(values[i])) for i in range(0, len(values), step)]
        n = len(self.starts)
        found = [(c / 4, self._tick(c * n // 4)) for c in range(5) if c * n % 4 == 0]
        return [(at, text) for at, text in found if text is not None]

    def _tick(self, cell: int) -> str | None:
        if cell in (0, len(self.starts)):
            bound = self.attribute.min if cell == 0 else self.attribute.max
            return None if bound is None else _short(bound)
        value = unrank(self.attribute, int(self.starts[cell]))
        return None if value is None else _short(value)


def axes_of(event_type: EventType) -> dict[str, Axis]:
    """The axis of each attribute: in the cells of the grid where it is one of its dimensions, else in even ones."""
    grid = Grid.of(event_type)
    rows = dict(zip(grid.dimensions, grid.starts, strict=True))
    return {
        a.name: Axis(a, rows[a.name] if a.name in rows else uniform_starts(a, AXIS_BITS)) for a in event_type.attributes
    }


def _short(value: object) -> str:
    """A value as an axis says it.

    >>> _short(250.0), _short(500000), _short("2030-01-01T00:00:00.000000Z"), _short("IBM")
    ('250', '500k', '2030-01-01', 'IBM')
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
            if abs(value) >= size:
                return f"{value / size:.4g}{letter}"
        return f"{value:.4g}"
    return str(value)[:10]


# ── the plane ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Plane:
    """Two attributes of a type, and perhaps the event that the plane goes through."""

    event_type: EventType
    x: str
    y: str
    pin: tuple[Ranks, Ranks] | None = None
    """Lowest and highest rank of every attribute of the event."""

    @cached_property
    def grid(self) -> Grid:
        return Grid.of(self.event_type)

    @cached_property
    def axes(self) -> tuple[Axis, Axis]:
        axes = axes_of(self.event_type)
        return axes[self.x], axes[self.y]

    @property
    def columns(self) -> tuple[int, int]:
        return self.event_type.dimension[self.x], self.event_type.dimension[self.y]

    def met(self, boxes: Boxes) -> Bools:
        """Which boxes the plane meets; without a pin all."""
        if self.pin is None:
            return np.ones(len(boxes), bool)
        others = [i for i in range(self.event_type.d) if i not in self.columns]
        low, high = self.pin
        inside: Bools = np.asarray(((boxes.lows <= high) & (boxes.highs >= low))[:, others].all(axis=1))
        return inside

    def shadow(self, low: Ranks, high: Ranks) -> Rectangle:
        """A box on the plane."""
        (x, y), (i, j) = self.axes, self.columns
        (x0, x1), (y0, y1) = x.span(int(low[i]), int(high[i])), y.span(int(low[j]), int(high[j]))
        return _tidy(x0), _tidy(y0), _tidy(x1), _tidy(y1)

    def describe(self) -> dict[str, Any]:
        """The axes, for the page."""
        return {
            name: {"name": axis.attribute.name, "kind": axis.attribute.kind, "ticks": axis.ticks(),
                   "in_grid": axis.attribute.name in self.grid.dimensions}
            for name, axis in zip("xy", self.axes, strict=True)
        }  # fmt: skip

    # ── the curve ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def level(self) -> int:
        """Levels of the grid that are drawn."""
        return max(1, min(LEVELS_MAX, self.grid.k, (CELLS_MAX.bit_length() - 1) // self.grid.d))

    def _cells(self, level: int) -> tuple[Ints, Ints, Bools]:
        """Of every drawn cell along the curve: its column and row in the plane, and whether the cut goes through it."""
        grid = self.grid
        corners = decode(np.arange(1 << (grid.d * level)), grid.d, level)
        across, up = (grid.dimensions.index(name) if name in grid.dimensions else None for name in (self.x, self.y))
        nowhere = np.full(len(corners), -1, np.int64)
        cut = np.ones(len(corners), bool)
        if self.pin is not None:
            first, last = (grid.cells(end[None])[0] >> (grid.k - level) for end in self.pin)
            for i, name in enumerate(grid.dimensions):
                if name not in (self.x, self.y):
                    cut &= (corners[:, i] >= first[i]) & (corners[:, i] <= last[i])
        return (
            nowhere if across is None else corners[:, across],
            nowhere if up is None else corners[:, up],
            cut,
        )

    def curve(self) -> dict[str, Any] | None:
        """The curve as runs of cells (column, row); None where the plane is not one of the grid.

        A grid of more than two dimensions shows the part of the curve that lies in one layer: the pinned event's, or
        the middle one.
        """
        if self.x == self.y or not {self.x, self.y} <= set(self.grid.dimensions):
            return None
        grid, level = self.grid, min(self.level, CURVE_LEVELS_MAX)
        across, up, cut = self._cells(level)
        if self.pin is None and grid.d > 2:
            corners = decode(np.arange(1 << (grid.d * level)), grid.d, level)
            others = [i for i, name in enumerate(grid.dimensions) if name not in (self.x, self.y)]
            cut = (corners[:, others] == 1 << (level - 1)).all(axis=1)
        along = np.flatnonzero(cut)
        runs = np.split(along, np.flatnonzero(np.diff(along) > 1) + 1)
        return {
            "level": level,
            "side": 1 << level,
            "runs": [np.column_stack([across[run], up[run]]).tolist() for run in runs if len(run)],
            "levels": grid.k,
            "layer": grid.d > 2,
        }

    def cubes(self) -> list[tuple[int, Rectangle]]:
        """The shadows of the cubes that the plane meets; equal ones once, by the first."""
        found: dict[Rectangle, int] = {}
        for cube in range(self.grid.cubes):
            low, high = self.grid.cube_box(cube)
            if (low <= high).all() and self.met(Boxes(low[None], high[None]))[0]:
                found.setdefault(self.shadow(low, high), cube)
        return [(cube, shadow) for shadow, cube in found.items()]

    # ── what is asked for ───────────────────────────────────────────────────────────────────────────────────────

    def subscriptions(self, parts: Mapping[str, Sequence[CompiledPart]]) -> dict[str, Any]:
        """Subscriptions of brokers' parts as shadows, the same ones each time; some of them where there are many."""
        owners = {(broker, id) for broker, held in parts.items() for part in held for id in part.ids}
        chosen = nsmallest(OWNERS_MAX, owners, key=lambda owner: (zlib.crc32("/".join(owner).encode()), owner))
        number = {owner: i for i, owner in enumerate(chosen)}
        pieces: list[list[Boxes]] = [[] for _ in chosen]
        clients = [""] * len(chosen)
        for broker, held in parts.items():
            for part in held:
                boxes, of = unpack(part.boxes), np.frombuffer(part.owners, "<i4")
                assert isinstance(boxes, Boxes)
                for place, id in enumerate(part.ids):
                    n = number.get((broker, id))
                    if n is not None:
                        clients[n] = part.clients[place]
                        pieces[n].append(boxes.take(np.flatnonzero(of == place)))
        drawn = []
        for (broker, id), client, some in zip(chosen, clients, pieces, strict=True):
            whole = joined(Boxes.concatenated(some, self.event_type.d))
            rectangles = self._shadows(whole)
            if rectangles:
                drawn.append({"broker": broker, "id": id, "client": client, "boxes": rectangles})
        return {"drawn": drawn, "sampled": len(chosen), "total": len(owners)}

    def _shadows(self, boxes: Boxes) -> list[Rectangle]:
        return list(dict.fromkeys(self.shadow(low, high) for low, high in boxes.take(self.met(boxes))))

    def travelling(self, parts: Iterable[CompiledPart], origin: str) -> dict[str, Any]:
        """What these parts of a neighbour hold from a broker: boxes, or the share of each cell that ranges cover."""
        held = [unpack(part.links[origin]) for part in parts if origin in part.links]
        boxes = Boxes.concatenated([one for one in held if isinstance(one, Boxes)], self.event_type.d)
        ranges = [one for one in held if isinstance(one, Ranges) and len(one)]
        if ranges:
            return self._covered(ranges)
        shadows = self._shadows(boxes)
        return {
            "kind": "boxes", "total": len(boxes), "boxes": shadows[:BOXES_MAX], "shadows": len(shadows),
            "negative": self.negative(boxes),
        }  # fmt: skip

    def _covered(self, tables: Sequence[Ranges]) -> dict[str, Any]:
        """The share of each drawn cell of the plane that ranges cover."""
        grid, level = self.grid, self.level
        across, up, cut = self._cells(level)
        size = 1 << (grid.index_bits - grid.d * level)
        edges = np.arange(len(across) + 1, dtype=np.int64) * size
        covered = np.zeros(len(across))
        for ranges in tables:
            covered += np.diff(_before(ranges, edges)) / size
        covered = np.minimum(covered, 1.0)
        side = 1 << level
        sums, counts = np.zeros((side + 1, side + 1)), np.zeros((side + 1, side + 1))
        np.add.at(sums, (across[cut], up[cut]), covered[cut])
        np.add.at(counts, (across[cut], up[cut]), 1)
        share = sums / np.maximum(counts, 1)
        cells = [(int(i), int(j), round(float(share[i, j]), 3)) for i, j in np.argwhere(share > 0)]
        total = sum(map(len, tables))
        whole = sum(one.cells for one in tables) / 2**grid.index_bits
        # -1, an attribute that is not in the grid, is the last row or column: it spans the axis
        spread = [(-1 if i == side else i, -1 if j == side else j, s) for i, j, s in cells]
        return {"kind": "ranges", "total": total, "cells": spread, "side": side, "share": min(whole, 1.0)}

    def negative(self, boxes: Boxes) -> dict[str, Any]:
        """The part of the plane on which none of these boxes casts a shadow (or that none cuts, with a pin)."""
        met = boxes.take(self.met(boxes))
        if len(met) > NEGATIVE_FROM_MAX:
            return {"boxes": [], "total": None, "from": len(met)}
        free = uncovered([self.shadow(low, high) for low, high in met])
        return {"boxes": free[:BOXES_MAX], "total": len(free), "from": len(met)}


def _before(ranges: Ranges, edges: np.ndarray) -> Floats:
    """How many indices of the ranges lie before each edge."""
    sizes = np.concatenate([[0], np.cumsum(ranges.ends - ranges.starts + 1)])
    at = np.searchsorted(ranges.starts, edges, side="right")
    inside = np.where(at > 0, np.minimum(edges, ranges.ends[np.maximum(at, 1) - 1] + 1), 0)
    started = np.where(at > 0, inside - ranges.starts[np.maximum(at, 1) - 1], 0)
    before: Floats = sizes[np.maximum(at - 1, 0)] + np.maximum(started, 0)
    return before


def joined(boxes: Boxes) -> Boxes:
    """The same space with pieces joined that cubes had cut: two that agree in all attributes but one, and touch there.

    >>> joined(Boxes.of([([0, 0], [3, 3]), ([4, 0], [9, 3]), ([0, 7], [9, 9])])).lows.tolist()
    [[0, 0], [0, 7]]
    """
    left = [(tuple(low), tuple(high)) for low, high in zip(boxes.lows.tolist(), boxes.highs.tolist(), strict=True)]
    for column in range(boxes.d):
        rows: dict[tuple[Any, ...], list[list[int]]] = {}
        for low, high in sorted(left):
            others = (low[:column], low[column + 1 :], high[:column], high[column + 1 :])
            spans = rows.setdefault(others, [])
            if spans and low[column] <= spans[-1][1] + 1:
                spans[-1][1] = max(spans[-1][1], high[column])
            else:
                spans.append([low[column], high[column]])
        left = [
            ((*before, a, *after), (*top, b, *rest))
            for (before, after, top, rest), spans in rows.items()
            for a, b in spans
        ]
    return Boxes.of([(list(low), list(high)) for low, high in sorted(left)], boxes.d)


def uncovered(rectangles: Sequence[Rectangle]) -> list[Rectangle]:
    """The unit square without some rectangles, as rectangles. Cost: O(n^2 log n).

    >>> uncovered([(0.0, 0.0, 0.5, 1.0)])
    [(0.5, 0.0, 1.0, 1.0)]
    """
    cuts = sorted({0.0, 1.0, *(x for r in rectangles for x in (r[0], r[2]) if 0 < x < 1)})
    found: list[Rectangle] = []
    growing: dict[tuple[float, float], float] = {}
    for x0, x1 in pairwise(cuts):
        free = _gaps(sorted((r[1], r[3]) for r in rectangles if r[0] <= x0 and r[2] >= x1))
        found += [(begun, *_corner(span, x0)) for span, begun in growing.items() if span not in free]
        growing = {span: growing.get(span, x0) for span in free}
    found += [(begun, *_corner(span, 1.0)) for span, begun in growing.items()]
    return sorted(found)


def _corner(span: tuple[float, float], x1: float) -> tuple[float, float, float]:
    return span[0], x1, span[1]


def _gaps(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """What sorted intervals leave of 0 to 1."""
    found, at = [], 0.0
    for low, high in spans:
        if low > at:
            found.append((at, low))
        at = max(at, high)
    return [*found, (at, 1.0)] if at < 1 else found


def _tidy(share: float) -> float:
    return round(share, 5)
