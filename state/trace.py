"""Where an event goes from its entry, link by link, and whom it meets: all of what the index of now would do with it.

`explain` follows one subscription; this follows the event. Pure: the index is handed in; what it lacks is not known.
Not part of it: clients that are served together, and what a subscription delivers to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from state.compiled_part import IMPRECISE_RANGES_MAX, CompiledPart, overlap_ranges
from state.config import Config
from state.errors import HilcastError
from state.explain import Event, Index, box_text
from state.filters.evaluate import compile as compile_filter
from state.filters.grammar import parse
from state.keys import Key
from state.space.boxes import Boxes
from state.space.event_type import EventType
from state.space.grid import Grid
from state.space.packing import unpack
from state.space.points import rank_spans
from state.space.ranges import Ranges

MATCHES_MAX = 10_000
"""Subscriptions that are named; all are counted."""


@dataclass(frozen=True)
class Passage:
    """One link out of a broker that the event came to."""

    origin: str
    target: str
    carried: bool | None
    """Whether the link carries it; None where the index is not known."""
    asked: str | None
    """What of the neighbour's wishes holds it: a box in values, or `a Hilbert range`."""


@dataclass(frozen=True)
class Match:
    """A subscription that the event meets."""

    broker: str
    id: str
    client: str
    checked: bool
    """Whether the filter itself was asked, because boxes do not decide."""


@dataclass(frozen=True)
class Trace:
    """The whole way."""

    event: Event
    admitted: bool | None
    """Whether the entry broker lets it in: types with advertisements want one of the publisher's to hold."""
    reached: tuple[str, ...]
    """Brokers in the order in which it comes to them."""
    passages: tuple[Passage, ...]
    matches: tuple[Match, ...]
    matching: int
    """How many match, also where not all are named."""
    unknown: tuple[str, ...]
    """Parts that the index lacks: BROKER/TYPE/PART."""


def traced(config: Config, event: Event, index: Index) -> Trace:
    """Follow an event through the overlay.

    Raises HilcastError where its broker or type is not in the configuration.
    Guarantee: links and subscriptions are those that `route` decides on with the same index.
    Cost: reads the parts of the event's cubes at each broker that it comes to; O(boxes) each, vectorised.
    """
    if event.broker not in config.overlay.brokers:
        raise HilcastError("unknown-broker", f"{event.broker!r} is not a broker of this overlay")
    if event.type not in config.types:
        raise HilcastError("unknown-type", f"{event.type!r} is not a configured event type")
    return _Walk(config, event, index).trace()


class _Walk:
    """One event on its way."""

    def __init__(self, config: Config, event: Event, index: Index) -> None:
        self.config, self.event, self.index = config, event, index
        self.type: EventType = config.types[event.type]
        self.grid = Grid.of(self.type)
        self.low, self.high = rank_spans(self.type, event.attributes)
        cubes = self.grid.cubes_of(Boxes(self.low[None], self.high[None]))
        wide = [f"wide:{i}" for i in range(config.settings.wide_shards)]
        self.parts = [*(f"cube:{int(cube)}" for cube in cubes), *wide]
        self.unknown: list[str] = []
        self._filters: dict[str, bool] = {}

    def trace(self) -> Trace:
        reached: list[str] = []
        passages: list[Passage] = []
        matches: list[Match] = []
        matching = 0
        entry = self._known(self.event.broker)
        admitted = self._admitted(entry)
        waiting: deque[tuple[str, str | None]] = deque() if admitted is False else deque([(self.event.broker, None)])
        while waiting:
            broker, before = waiting.popleft()
            reached.append(broker)
            known = self._known(broker)
            found = list(self._matches(broker, known))
            matching += len(found)
            matches += found[: max(0, MATCHES_MAX - len(matches))]
            for target in self.config.overlay.neighbours(broker):
                if target != before:
                    passages.append(self._passage(broker, target, known))
                    if passages[-1].carried:
                        waiting.append((target, broker))
        unknown = tuple(dict.fromkeys(self.unknown))
        return Trace(self.event, admitted, tuple(reached), tuple(passages), tuple(matches), matching, unknown)

    def _known(self, broker: str) -> dict[str, CompiledPart | None]:
        keys = {part: Key(broker, self.type.name, part) for part in self.parts}
        found = {part: self.index.part(key) for part, key in keys.items()}
        self.unknown += [str(keys[part]) for part, compiled in found.items() if compiled is None]
        return found

    def _admitted(self, entry: Mapping[str, CompiledPart | None]) -> bool | None:
        if not self.type.advertisements:
            return True
        theirs = {
            text
            for compiled in entry.values()
            if compiled is not None
            for publisher, text in compiled.advertisements
            if publisher == self.event.source
        }
        if any(self._holds(text) for text in sorted(theirs)):
            return True
        return None if None in entry.values() else False

    def _holds(self, text: str) -> bool:
        """Whether a filter, as text, holds; each is asked once."""
        if text not in self._filters:
            self._filters[text] = compile_filter(parse(text, self.type, limits=False), self.type)(self.event.attributes)
        return self._filters[text]

    def _matches(self, broker: str, known: Mapping[str, CompiledPart | None]) -> Iterator[Match]:
        """Subscriptions entered at a broker; one that lies in several parts is told once."""
        told: set[str] = set()
        for compiled in known.values():
            if compiled is None or compiled.boxes.size == 0:
                continue
            boxes = unpack(compiled.boxes)
            assert isinstance(boxes, Boxes)
            rows = np.flatnonzero(((boxes.lows <= self.high) & (boxes.highs >= self.low)).all(axis=1))
            for owner in np.unique(np.frombuffer(compiled.owners, "<i4")[rows]).tolist():
                id, residual = compiled.ids[owner], compiled.residuals.get(owner)
                if id not in told and (residual is None or self._holds(residual)):
                    told.add(id)
                    yield Match(broker, id, compiled.clients[owner], residual is not None)

    def _passage(self, origin: str, target: str, known: Mapping[str, CompiledPart | None]) -> Passage:
        for compiled in known.values():
            if compiled is not None and target in compiled.links:
                asked = self._asked(compiled, target)
                if asked is not None:
                    return Passage(origin, target, True, asked)
        return Passage(origin, target, None if None in known.values() else False, None)

    def _asked(self, compiled: CompiledPart, target: str) -> str | None:
        """What of a neighbour's wishes in a part holds the event."""
        held = unpack(compiled.links[target])
        if isinstance(held, Ranges):
            return "a Hilbert range" if len(held) and overlap_ranges(self._ranges(), held) else None
        rows = np.flatnonzero(((held.lows <= self.high) & (held.highs >= self.low)).all(axis=1))
        return box_text(self.type, held.lows[rows[0]], held.highs[rows[0]]) if len(rows) else None

    def _ranges(self) -> Ranges:
        if (self.low == self.high).all():
            at = self.grid.index(self.low[None])
            return Ranges(at, at)
        return self.grid.ranges(Boxes(self.low[None], self.high[None]), IMPRECISE_RANGES_MAX)
