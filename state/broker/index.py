"""The compiled index: what the route query needs of each part, packed for Redis, and joined per broker and type.

    part blob (Redis, one per cube or wide key)
        local:  boxes, owner of each box, and per owner: id, client, destination, residual filter
        links:  per neighbour, all it asked for as one set of boxes or ranges
        advertisements entered here: publisher and filter

    Junction = all parts of one broker and type, joined: a matcher for local clients, one look-up per link.

Boxes of a cube are clipped to it and a point lies in exactly one cube, so joining the parts changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from state.advertisements.conformance import Promises
from state.broker.protocol import BOXES, LocalEntry, Packed, pack, unpack
from state.filters.evaluate import Compiled
from state.filters.evaluate import compile as compile_filter
from state.filters.grammar import parse
from state.filters.tree import Filter
from state.matchers.bitmap import BitmapMatcher
from state.reductions.interface import Geometry, Ranges
from state.reductions.interval_table import CompiledTable, closed
from state.space.boxes import Boxes
from state.space.decode import RankBatch
from state.space.event_type import EventType
from state.space.grid import Grid

FORMAT = 1
IMPRECISE_RANGES_MAX = 64
"""Ranges that an imprecise event is looked up by; more would be closed gaps, a superset."""


class CompiledPart(msgspec.Struct, kw_only=True):
    """The index of one cube or wide key."""

    d: int
    ids: list[str]
    clients: list[str]
    destinations: list[str]
    residuals: dict[int, str]
    """Filter text by owner, where boxes alone cannot decide."""
    doubtful: list[int]
    """Owners whose boxes are a superset even for points."""
    boxes: Packed
    owners: bytes
    links: dict[str, Packed]
    advertisements: list[tuple[str, str]]
    grouped: list[int] = []
    """Owners whose clients may be served through group and broadcast topics."""

    @classmethod
    def of(
        cls,
        d: int,
        local: list[LocalEntry],
        links: Mapping[str, list[Geometry]],
        advertisements: list[tuple[str, str]],
    ) -> CompiledPart:
        boxes = [unpack(entry.geometry) for entry in local]
        owners = np.repeat(np.arange(len(local)), [len(b) for b in boxes])
        return cls(
            d=d,
            ids=[entry.id for entry in local],
            clients=[entry.client for entry in local],
            destinations=[entry.destination for entry in local],
            residuals={i: entry.residual for i, entry in enumerate(local) if entry.residual is not None},
            doubtful=[i for i, entry in enumerate(local) if not entry.exact],
            boxes=pack(join_boxes([b for b in boxes if isinstance(b, Boxes)], d)),
            owners=owners.astype("<i4").tobytes(),
            links={n: pack(_join(geometry, d)) for n, geometry in sorted(links.items()) if geometry},
            advertisements=sorted(advertisements),
            grouped=[i for i, entry in enumerate(local) if entry.groups],
        )


def compile_part(part: CompiledPart) -> bytes:
    return bytes([FORMAT]) + msgspec.msgpack.encode(part)


def load_part(blob: bytes) -> CompiledPart:
    assert blob[0] == FORMAT, f"index of format {blob[0]}, this is {FORMAT}"
    return msgspec.msgpack.decode(blob[1:], type=CompiledPart)


def join_boxes(boxes: list[Boxes], d: int) -> Boxes:
    """Several sets of boxes as one."""
    if not boxes:
        return Boxes.empty(d)
    return Boxes(np.concatenate([b.lows for b in boxes]), np.concatenate([b.highs for b in boxes]))


def join_ranges(ranges: list[Ranges]) -> Ranges:
    """The union of several sets of ranges, sorted and disjoint."""
    if not ranges:
        return Ranges.empty()
    return closed(np.concatenate([r.starts for r in ranges]), np.concatenate([r.ends for r in ranges]))


def overlap_ranges(a: Ranges, b: Ranges) -> bool:
    """Whether two sorted, disjoint sets of ranges have an index in common."""
    first = np.searchsorted(b.ends, a.starts)
    inside = first < len(b)
    return bool((b.starts[first[inside]] <= a.ends[inside]).any())


def _join(geometry: list[Geometry], d: int) -> Geometry:
    if isinstance(geometry[0], Ranges):
        return join_ranges([g for g in geometry if isinstance(g, Ranges)])
    return join_boxes([g for g in geometry if isinstance(g, Boxes)], d)


@dataclass
class Junction:
    """One broker and type, ready to route: who here is interested, and which links want it."""

    event_type: EventType
    grid: Grid
    ids: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    destinations: list[str] = field(default_factory=list)
    residuals: dict[int, Callable[[Mapping[str, object]], bool]] = field(default_factory=dict)
    doubtful: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Owners whose boxes are a superset even for points."""
    grouped: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))
    """By owner: whether its client may be served through group and broadcast topics."""
    matcher: BitmapMatcher | None = None
    link_boxes: dict[str, BitmapMatcher] = field(default_factory=dict)
    link_ranges: dict[str, CompiledTable] = field(default_factory=dict)
    promises: Promises = field(init=False)
    """The advertisements that entered here."""
    _filters: dict[str, tuple[Filter, Compiled]] = field(default_factory=dict)
    """By text: every filter that is checked here, read and compiled once."""
    _distinct: tuple[list[tuple[str, str]], NDArray[np.int64]] | None = None

    @classmethod
    def join(
        cls,
        event_type: EventType,
        grid: Grid,
        parts: list[CompiledPart],
        before: Junction | None = None,
    ) -> Junction:
        """Join the parts of one broker and type; filters that the junction `before` had read are taken over.

        Cost: O(boxes log boxes), and a parse for each filter that is new.
        """
        self = cls(event_type, grid)
        known = {} if before is None else before._filters
        boxes, owners, doubtful, grouped, base = [], [], [], [], 0
        for part in parts:
            self.ids += part.ids
            self.clients += part.clients
            self.destinations += part.destinations
            for owner, text in part.residuals.items():
                self.residuals[base + owner] = self._read(text, known)[1]
            doubtful += [base + owner for owner in part.doubtful]
            grouped += [base + owner for owner in part.grouped]
            part_boxes = unpack(part.boxes)
            assert isinstance(part_boxes, Boxes)
            boxes.append(part_boxes)
            owners.append(np.frombuffer(part.owners, "<i4").astype(np.int64) + base)
            base += len(part.ids)
        self.doubtful = np.array(doubtful, np.int64)
        self.grouped = np.zeros(base, bool)
        self.grouped[grouped] = True
        joined = join_boxes(boxes, event_type.d)
        if len(joined):
            self.matcher = BitmapMatcher(joined, np.concatenate(owners))
        self._join_links(parts)
        for i, (publisher, text) in enumerate(sorted({ad for part in parts for ad in part.advertisements})):
            self.promises.add(str(i), publisher, *self._read(text, known))
        return self

    def __post_init__(self) -> None:
        self.promises = Promises(self.event_type)

    def _read(self, text: str, known: Mapping[str, tuple[Filter, Compiled]]) -> tuple[Filter, Compiled]:
        if text not in self._filters:
            if text in known:
                self._filters[text] = known[text]
            else:
                # printing may have lengthened an admitted filter beyond the limits of admission
                filter = parse(text, self.event_type, limits=False)
                self._filters[text] = filter, compile_filter(filter, self.event_type)
        return self._filters[text]

    def conforming(self, batch: RankBatch, rows: NDArray[np.int64], publishers: Sequence[str]) -> NDArray[np.bool_]:
        """Tell for some rows of a batch, each of a publisher, whether an advertisement that entered here holds."""

        def text(attribute: str, some: NDArray[np.int64]) -> list[object]:
            return [batch.event(row).get(attribute) for row in rows[some].tolist()]

        held = self.promises.conforms_batch(publishers, batch.ranks[rows], text)
        if batch.highs is not None:
            for i in np.flatnonzero((batch.highs[rows] != batch.ranks[rows]).any(axis=1)).tolist():
                held[i] = self.promises.conforms(publishers[i], batch.event(int(rows[i])))
        return held

    def _join_links(self, parts: list[CompiledPart]) -> None:
        for neighbour in sorted({n for part in parts for n in part.links}):
            packed = [part.links[neighbour] for part in parts if neighbour in part.links]
            geometry = _join([unpack(p) for p in packed], self.event_type.d)
            if packed[0].kind == BOXES:
                assert isinstance(geometry, Boxes)
                self.link_boxes[neighbour] = BitmapMatcher(geometry, np.arange(len(geometry)))
            else:
                assert isinstance(geometry, Ranges)
                self.link_ranges[neighbour] = CompiledTable(geometry)

    @cached_property
    def id_column(self) -> pa.Array:
        """Ids of the owners, for gathering."""
        return pa.array([id.encode() for id in self.ids], pa.binary())

    def target_codes(self, table: dict[tuple[str, str], int]) -> NDArray[np.int64]:
        """The number of each owner's (client, destination) in `table`, which grows as needed."""
        if self._distinct is None:
            own: dict[tuple[str, str], int] = {}
            pairs = zip(self.clients, self.destinations, strict=True)
            codes = [own.setdefault(pair, len(own)) for pair in pairs]
            self._distinct = list(own), np.array(codes, np.int64)
        pairs_here, codes_here = self._distinct
        return np.array([table.setdefault(pair, len(table)) for pair in pairs_here], np.int64)[codes_here]

    def interested(self, ranks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs (event row, owner) whose boxes hold; `doubtful` owners are still to be checked exactly."""
        if self.matcher is None or len(ranks) == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return self.matcher.match(ranks)

    def touched(self, lows: NDArray[np.int64], highs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs (imprecise event, owner) whose boxes meet; every one is still to be checked exactly."""
        if self.matcher is None or len(lows) == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return self.matcher.match_boxes(lows, highs, "possible")

    def wanted(
        self, neighbour: str, ranks: NDArray[np.int64], index: Callable[[], NDArray[np.int64]]
    ) -> NDArray[np.bool_]:
        """For each event whether the link to `neighbour` wants it; may be a superset, never less."""
        if neighbour in self.link_boxes:
            return self.link_boxes[neighbour].match_any(ranks)
        if neighbour in self.link_ranges:
            return self.link_ranges[neighbour].lookup(index())
        return np.zeros(len(ranks), bool)

    def wanted_boxes(self, neighbour: str, lows: NDArray[np.int64], highs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The same for imprecise events: whether anything the link asked for meets the event's box."""
        wanted = np.zeros(len(lows), bool)
        if neighbour in self.link_boxes:
            wanted[self.link_boxes[neighbour].match_boxes(lows, highs, "possible").rows] = True
        elif neighbour in self.link_ranges:
            table = self.link_ranges[neighbour].ranges
            for i, (low, high) in enumerate(zip(lows, highs, strict=True)):
                box = Boxes(low.reshape(1, -1), high.reshape(1, -1))
                wanted[i] = overlap_ranges(self.grid.ranges(box, IMPRECISE_RANGES_MAX), table)
        return wanted
