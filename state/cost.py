"""What a filter would cost, before it is sent: `hilcast cost` ([MICS09] §3.3 for ranges and their over-coverage).

    filter ──> boxes (exact, or a superset and why) ──┬─> cubes touched, or a wide key
                                                      ├─> Hilbert ranges under the type's cap
                                                      └─> share of publications: counted on a sample, else of the cells

Everything is computed by what the broker itself would use: `geometry`, the grid, and the look-up of a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from state.compiled_part import CompiledPart, join_ranges
from state.filters.evaluate import compile as compile_filter
from state.filters.geometry import BOXES_MAX, CONJUNCTIONS_MAX, conjunctions, geometry, intervals, region
from state.filters.imprecise import check_decidable
from state.filters.printing import predicate_text, to_text
from state.filters.tree import Filter, predicates
from state.keys import is_wide
from state.reductions.parameters import forwards_ranges, range_cap
from state.routing.junction import Junction
from state.space.decode import Event, rank_events
from state.space.event_type import EventType
from state.space.grid import Grid
from state.space.packing import Geometry, pack

NAMED_MAX = 5
"""Predicates that `why` names."""
_LINK = ""


@dataclass(frozen=True)
class Cost:
    """What one filter of a type would cost every broker that it reaches."""

    type: str
    filter: str
    predicates: int
    conjunctions: int
    """Of its disjunctive normal form."""
    boxes: int
    exact: bool
    """Whether the boxes alone decide; else matches are checked by the filter itself."""
    why: str
    cubes: int
    """Cubes that the boxes touch."""
    cubes_total: int
    wide: bool
    """Whether it would go to a wide key: it touches more than 1/8 of the cubes."""
    dimensions: tuple[str, ...]
    """Attributes of the grid: ranges and shares of cells know no others."""
    ranges: int
    """Hilbert ranges, capped as the type says."""
    ranges_uncapped: int
    over_coverage: float
    """Cells of the capped ranges per cell of the uncapped ones: what the cap costs."""
    cells_share: float
    """The share of the grid's cells that it covers."""
    forwards: str
    """What neighbours get: `boxes` or `ranges`."""


@dataclass(frozen=True)
class Sample:
    """How a filter fared on publications of its type."""

    publications: int
    matching: int
    crossing: int
    """Those that a link would carry if nobody else asked: never fewer than match."""

    @property
    def share(self) -> float:
        """The share that matches; 0 of nothing."""
        return self.matching / self.publications if self.publications else 0.0

    @property
    def crossing_share(self) -> float:
        return self.crossing / self.publications if self.publications else 0.0


def cost(filter: Filter, event_type: EventType, grid: Grid) -> Cost:
    """Return what a filter would cost. Cost: that of placing it once, and of its uncapped ranges.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute
    >>> quote = EventType("quote", (Attribute("price", "float", min=0, max=100), Attribute("volume", "int")), cubes=4)
    >>> found = cost(parse("price < 25 OR price > 75", quote), quote, Grid.of(quote))
    >>> found.boxes, found.exact, found.cubes, found.wide
    (2, True, 4, True)
    """
    check_decidable(filter, event_type)
    shape = geometry(filter, event_type)
    touched = [int(cube) for cube in grid.cubes_of(shape.boxes)]
    wide = is_wide(len(touched), event_type.cubes)
    capped = grid.part_ranges(shape.boxes, touched, wide=wide, cap=range_cap(event_type))
    uncapped = grid.part_ranges(shape.boxes, touched, wide=wide)
    cells = sum(ranges.cells for ranges in uncapped)
    return Cost(
        type=event_type.name,
        filter=to_text(filter),
        predicates=sum(1 for _ in predicates(filter)),
        conjunctions=conjunctions(filter),
        boxes=len(shape.boxes),
        exact=shape.exact,
        why=_why(filter, event_type, shape.exact, len(shape.boxes)),
        cubes=len(touched),
        cubes_total=event_type.cubes,
        wide=wide,
        dimensions=grid.dimensions,
        ranges=sum(map(len, capped)),
        ranges_uncapped=sum(map(len, uncapped)),
        over_coverage=sum(ranges.cells for ranges in capped) / cells if cells else 1.0,
        cells_share=cells / 2**grid.index_bits,
        forwards="ranges" if forwards_ranges(event_type) else "boxes",
    )


def measured(filter: Filter, event_type: EventType, grid: Grid, events: Sequence[Event | None]) -> Sample:
    """Count how many of these events match, and how many a link would carry; None, which is no event, is left out.

    Guarantee: `matching` is exact (docs/filters.md).
    """
    batch = rank_events(event_type, events)
    rows = np.flatnonzero(batch.valid)
    holds = compile_filter(filter, event_type)
    matching = sum(holds(batch.event(int(row))) for row in rows)
    ranks = batch.ranks[rows]
    part = CompiledPart.of(event_type.d, [], {_LINK: [pack(one) for one in _asked(filter, event_type, grid)]}, [])
    link = Junction.join(event_type, grid, [part])
    wanted = link.wanted(_LINK, ranks, grid.index(ranks))
    if batch.highs is not None:
        wanted = wanted | link.wanted_boxes(_LINK, ranks, batch.highs[rows])
    return Sample(len(rows), matching, int(wanted.sum()))


def _asked(filter: Filter, event_type: EventType, grid: Grid) -> list[Geometry]:
    """What a neighbour would be asked for; nothing for a contradiction."""
    boxes = geometry(filter, event_type).boxes
    if len(boxes) == 0:
        return []
    if not forwards_ranges(event_type):
        return [boxes]
    touched = [int(cube) for cube in grid.cubes_of(boxes)]
    wide = is_wide(len(touched), event_type.cubes)
    parts = grid.part_ranges(boxes, touched, wide=wide, cap=range_cap(event_type))
    return [join_ranges(parts)]


def _why(filter: Filter, event_type: EventType, exact: bool, boxes: int) -> str:
    """Why the boxes are exact or not, in words."""
    if boxes == 0:
        return "a contradiction: no event can match"
    if exact:
        return "every predicate is decided by ranks"
    total = conjunctions(filter)
    if total > CONJUNCTIONS_MAX:
        return f"{total:,} conjunctions, more than {CONJUNCTIONS_MAX}: covered by its bounding box"
    if region(filter, event_type, BOXES_MAX) is None:
        return f"more than {BOXES_MAX:,} boxes: covered by its bounding box"
    open_ones = [
        predicate_text(p)
        for p in dict.fromkeys(predicates(filter))
        if not intervals(p, event_type.attribute(p.attribute)).exact
    ]
    named = "; ".join(open_ones[:NAMED_MAX]) + (" ..." if len(open_ones) > NAMED_MAX else "")
    return f"ranks do not decide text beyond 7 bytes, nor LIKE beyond a prefix: {named}"
