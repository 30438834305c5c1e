"""Placement: a filter's geometry, cut up by the parts that it touches.

    x < 20 AND y < 5          ┌──┬──┬──┐
    ──> boxes ──> cubes ──>   │▓▓│▓▓│▓ │  cube:0, cube:1, cube:2, each with its clipping
                              └──┴──┴──┘
    x < 900                   more than 1/8 of the cubes: whole, in the one wide part of its id
    an advertisement          every cube it touches, and every wide part: what it meets may be anywhere

A filter has two forms, and the parts hold the geometry of both (`travelling.py`): as it was *sent*, for clients, and
*travelling*, for neighbours.

Where a type has advertisements and boxes do not decide what a filter overlaps, its travelling form goes along in
words: a filter that is not exact as boxes, or that asks for text, which an inexact one may ask for too. Not so where
events may be intervals: there one event satisfies filters that share no value.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from state.advertisements.queue import size
from state.config import Config
from state.control.facts import Kind, Name
from state.control.overlap import WORDING_BYTES_MAX
from state.filters.geometry import geometry
from state.filters.imprecise import check_decidable, possible_boxes
from state.filters.printing import to_text
from state.filters.tree import Filter, Predicate
from state.keys import Key, is_wide, wide_part
from state.space.boxes import Boxes
from state.space.grid import Grid
from state.space.mapping import read_subscription_mapping


def named(filter: Filter) -> set[str]:
    """The attributes that a filter asks about."""
    if isinstance(filter, Predicate):
        return {filter.attribute}
    return set().union(*map(named, filter.children))


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a filter is, in both its forms. No cycle can go through it, so the collector need not look."""

    wide: bool
    sent: Mapping[str, Boxes]
    """By part, for clients; of an advertisement, which has none, nothing."""
    travelling: Mapping[str, Boxes]
    """By part, for neighbours."""
    residual: str | None
    """The filter as it was sent, where boxes alone cannot decide; of an advertisement always."""
    exact: bool
    """Whether boxes decide for events whose values are points."""
    predicates: int
    """Of the filter as it was sent; 0 if it holds for no event or for every one."""
    wording: str | None = None
    """The travelling form in words, where boxes alone do not decide what it overlaps (`overlap.py`)."""

    @property
    def parts(self) -> list[str]:
        return list(dict.fromkeys([*self.sent, *self.travelling]))


class Placing:
    """Places the filters of one home key."""

    def __init__(self, home: Key, config: Config, grid: Grid) -> None:
        self._home = home
        self._config = config
        self._type = config.types[home.type]
        self._grid = grid
        self._imprecise = any(attribute.imprecise for attribute in self._type.attributes)
        self._texts = {attribute.name for attribute in self._type.attributes if attribute.kind == "text"}

    def __call__(
        self,
        name: Name,
        sent: Filter,
        travelling: Filter | None = None,
        *,
        wide: bool | None = None,
        ranges: str | None = None,
    ) -> Placement:
        """Place a filter; `travelling`: the form neighbours are told, None: as it was sent.

        `wide`: the kind of key that it has already. A replacement stays with the kind its predecessor had: cube and
        wide keys change at different moments, and an event that matches both filters must find one of them at every
        moment. `ranges`: the client's own mapping, which must cover the filter.
        Guarantee: in every part the travelling boxes hold wherever the sent ones do. Raises `filter-limit` for a filter
        that some imprecise event could not be held against.
        """
        if self._imprecise:
            check_decidable(sent, self._type)
        shape = geometry(sent, self._type)
        if ranges is not None:
            read_subscription_mapping(ranges, self._grid, shape.boxes)
        told = shape if travelling is None else geometry(travelling, self._type)
        boxes = told.boxes
        assert travelling is None or not shape.exact or boxes.contains(shape.boxes.lows).all(), "pruning only widens"
        predicates = size(sent) if len(shape.boxes) else 0
        wording = self._wording(sent if travelling is None else travelling, told.exact)
        if name.kind is Kind.ADVERTISEMENT:
            promised = self._everywhere(possible_boxes(boxes, self._type))
            return Placement(True, {}, promised, to_text(sent), True, predicates, wording)
        if wide is None:
            wide = is_wide(self._grid.cubes_touched(shape.boxes), self._type.cubes)
        exactly = self._cut(name.id, shape.boxes, wide)
        return Placement(
            wide,
            exactly,
            exactly if travelling is None else self._cut(name.id, boxes, wide),
            to_text(sent) if self._imprecise or not shape.exact else None,
            shape.exact,
            predicates,
            wording,
        )

    def _wording(self, travelling: Filter, exact: bool) -> str | None:
        """A filter in words, where boxes alone do not decide what it overlaps."""
        if not self._type.advertisements or self._imprecise or (exact and self._texts.isdisjoint(named(travelling))):
            return None
        text = to_text(travelling)
        return text if len(text.encode()) <= WORDING_BYTES_MAX else None

    def touched(self, filter: Filter) -> int:
        """How many cubes a filter touches."""
        return self._grid.cubes_touched(geometry(filter, self._type).boxes)

    def _cut(self, id: str, boxes: Boxes, wide: bool) -> dict[str, Boxes]:
        """The boxes of a subscription by part, for one kind of key."""
        if wide:
            return {wide_part(id, self._config): boxes} if len(boxes) else {}
        return self._clipped(boxes)

    def _everywhere(self, boxes: Boxes) -> dict[str, Boxes]:
        """The boxes of an advertisement by part."""
        shards = range(self._config.settings.wide_shards)
        return self._clipped(boxes) | {f"wide:{i}": boxes for i in shards}

    def _clipped(self, boxes: Boxes) -> dict[str, Boxes]:
        return {f"cube:{cube}": clipped for cube, clipped in self._grid.cut(boxes).items()}
