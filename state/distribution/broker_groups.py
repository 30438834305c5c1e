"""The groups of one broker as they live: fed with the subscriptions that opt in and with publications seen.

    put, drop ──> boxes and clients per type ──┐
    observe ────> points per type ─────────────┴── settle ──> form, change or form anew the groups of each type
                                                                └──> assignment: who reads which topic

[STREE03] §4 and A.2 through `groups.py`; this adds that a broker has several types, that clients have names, and that
groups of a type are numbered from `type number * groups` on, so that no two types share a topic. With
`threshold = "fit"` it also finds t, as far as the boxes of filters tell who is interested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from state.arrays import Ints
from state.config import THRESHOLD, Distribution
from state.distribution.assignment import Assignment, TypeGroups
from state.distribution.cell_grid import CellGrid
from state.distribution.groups import CATCH_ALL, Groups
from state.distribution.method import FIT_MIN, fitted
from state.space.boxes import Boxes, Ranks
from state.space.event_type import EventType
from state.space.grid import Grid

INTERVALS = {1: 64, 2: 16, 3: 8}
"""Cells of each dimension, by the number of dimensions: at most 512 cells in all."""
POINTS_MIN = 100
"""Publications that must have been seen before cells are cut at their quantiles."""
POINTS_MAX = 4096
FIT_MAX = 1000
"""Publications of a type from which t is fitted."""


@dataclass
class _TypeState:
    """One type: its subscriptions, what was seen of its publications, and its groups if they are formed."""

    boxes: dict[str, tuple[str, Boxes]] = field(default_factory=dict)
    """By id: client and boxes."""
    points: Ranks | None = None
    groups: Groups | None = None
    owners: dict[str, int] = field(default_factory=dict)
    """The number under which each id is in the groups."""


class BrokerGroups:
    """Groups of one broker over all types."""

    def __init__(
        self, distribution: Distribution, types: Mapping[str, EventType], sets: Mapping[str, str] | None = None
    ) -> None:
        """`sets`: by client the set that it belongs to, where it does to one."""
        self.distribution = distribution
        self._sets = sets or {}
        self.types = types
        self._states = {name: _TypeState() for name in sorted(types)}
        self._clients: dict[str, int] = {}
        self._next = 0
        self.changed = False
        """Whether the assignment may be another one than before."""
        self.threshold = THRESHOLD if distribution.threshold == "fit" else distribution.threshold
        """The share of interested members from which a group is used."""
        self._news = 0
        """Publications seen since t was fitted."""

    def put(self, type_name: str, id: str, client: str, boxes: Boxes) -> None:
        """Add a subscription that opts in, or replace it."""
        state = self._states[type_name]
        if id in state.boxes:
            self.drop(type_name, id)
        state.boxes[id] = (client, boxes)
        self.changed = True
        if state.groups is not None:
            self._next += 1
            state.owners[id] = self._next
            n = len(boxes)
            number = self._clients.setdefault(client, len(self._clients))
            state.groups.add(boxes, np.full(n, self._next), np.full(n, number))

    def drop(self, type_name: str, id: str) -> None:
        """Take a subscription out; an unknown one is ignored."""
        state = self._states[type_name]
        if state.boxes.pop(id, None) is None:
            return
        self.changed = True
        owner = state.owners.pop(id, None)
        if state.groups is not None and owner is not None:
            state.groups.remove(np.array([owner]))

    def observe(self, type_name: str, points: Ranks) -> None:
        """Take notice of publications; the latest POINTS_MAX are kept."""
        state = self._states[type_name]
        if len(points) == 0:
            return
        kept = points if state.points is None else np.concatenate([state.points, points])
        state.points = kept[-POINTS_MAX:]
        self._news += len(points)
        if state.groups is not None:
            state.groups.observe(points)

    def settle(self) -> bool:
        """Form groups where there are none and should be, or where they have drifted; tell whether anything changed."""
        formed = False
        for name, state in self._states.items():
            if not state.boxes:
                state.groups, state.owners = None, {}
            elif state.groups is None or state.groups.drifted():
                self._form(name, state)
                self.changed = formed = True
        if self.distribution.threshold == "fit" and (formed or self._news >= 2 * FIT_MIN):
            self._fit()
        changed, self.changed = self.changed, False
        return changed

    def _form(self, type_name: str, state: _TypeState) -> None:
        points = np.empty((0, self.types[type_name].d), np.int64) if state.points is None else state.points
        grid = cell_grid(self.types[type_name], points)
        state.owners = {id: i for i, id in enumerate(state.boxes)}
        self._next = max(self._next, len(state.owners))
        sizes = [len(boxes) for _, boxes in state.boxes.values()]
        clients = [self._clients.setdefault(client, len(self._clients)) for client, _ in state.boxes.values()]
        joined = Boxes.concatenated([boxes for _, boxes in state.boxes.values()], self.types[type_name].d)
        state.groups = Groups.form(
            grid,
            joined,
            np.repeat(np.arange(len(sizes)), sizes),
            np.repeat(np.array(clients, np.int64), sizes),
            grid.histogram(points),
            self.distribution.groups,
            self.distribution.clustering,
        )

    def _fit(self) -> None:
        """Find t anew from the latest publications of all types.

        Cost: O(FIT_MAX * boxes * dimensions) for each type.
        """
        counts: list[tuple[Ints, Ints]] = []
        for state in self._states.values():
            if state.groups is not None and state.points is not None:
                points = state.points[-FIT_MAX:]
                label = state.groups.group_of(points)
                points, label = points[label != CATCH_ALL], label[label != CATCH_ALL]
                counts.append((state.groups.interested(points), state.groups.members().sum(axis=1)[label]))
        self._news = 0
        if counts:
            interested, members = (np.concatenate(part) for part in zip(*counts, strict=True))
            before, self.threshold = self.threshold, fitted(interested, members, self.threshold)
            self.changed |= self.threshold != before

    def assignment(self) -> Assignment:
        """Who reads what, as `settle` left it."""
        live = sorted({client for state in self._states.values() for client, _ in state.boxes.values()})
        numbers = np.array([self._clients.get(client, -1) for client in live], np.int64)
        types = {
            name: _packed(state.groups, i * self.distribution.groups, numbers)
            for i, (name, state) in enumerate(self._states.items())
            if state.groups is not None
        }
        return Assignment(
            clients=live,
            threshold=self.threshold,
            broadcast=self.distribution.broadcast,
            types=types,
            sets={client: self._sets[client] for client in live if client in self._sets} or msgspec.UNSET,
        )


def _packed(groups: Groups, first: int, clients: Ints) -> TypeGroups:
    members = groups.members()
    known = np.zeros((groups.n, len(clients)), bool)
    here = (clients >= 0) & (clients < members.shape[1])
    known[:, here] = members[:, clients[here]]
    return TypeGroups(
        first=first,
        n=groups.n,
        dims=list(groups.grid.dims),
        cuts=[c.astype("<i8").tobytes() for c in groups.grid.cuts],
        cells=groups.cells.astype("<i8").tobytes(),
        labels=groups.labels.astype("<i8").tobytes(),
        members=known.tobytes(),
    )


def cell_grid(event_type: EventType, points: Ranks) -> CellGrid:
    """The grid over which clients of a type are grouped: its index attributes, cut where publications are.

    Before enough were seen, the attributes whose domain is known are cut evenly.
    """
    grid = Grid.of(event_type)
    chosen = tuple(grid.columns.tolist()[: max(INTERVALS)])
    most = INTERVALS[len(chosen)]
    if len(points) >= POINTS_MIN:
        return CellGrid.quantile(points, most, chosen)
    cuts = (starts[:: max(1, len(starts) // most)][1:] for starts in grid.starts[: len(chosen)])
    return CellGrid(chosen, tuple(np.unique(c) for c in cuts))
