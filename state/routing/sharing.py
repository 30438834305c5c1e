"""Serving several clients with one message: the distribution method at work on the matches of a broker.

    pairs (event, subscription) that hold
        ├── client has not opted in, or reads no shared topic ──> deliver.CLIENT, as ever
        └── the others ── choose ──┬── unicast ────> deliver.CLIENT
                                   ├── group ──────> group.BROKER.N
                                   └── broadcast ──> broadcast.BROKER

Implements [STREE03] §4 in the route query (`state/distribution/method.py` has the rule). A message names the clients it
is for, with the subscriptions that hold for each, so that reading a shared topic is exact without knowing a filter.

Guarantee: whatever the assignment, every interested client is served, by its own topic or by a message that names it.
An assignment that is lost or old therefore costs copies, never a delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from state.arrays import Bools, Ints
from state.distribution.assignment import BROADCAST, Assignment
from state.distribution.cell_grid import CellGrid
from state.distribution.groups import CATCH_ALL, group_of_cells
from state.distribution.method import NEVER, Choice, choose, served_by_group, sizes_of
from state.routing.junction import Junction, Pairs


@dataclass(frozen=True)
class Message:
    """One message for several clients: the ids that hold, by client."""

    row: int
    group: int
    """The number of the group topic, or BROADCAST."""
    matched: Mapping[str, list[str]]
    set: str | None = None
    """Which its clients belong to: of others it says nothing."""


@dataclass
class Shared:
    """What became of the matches of one broker and type."""

    single: Bools
    """By pair of the matches: whether it goes to the client's own topic."""
    messages: list[Message] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)
    """By method: `unicast`, `group`, `broadcast` messages; `_saved`: copies that one message for several clients saved;
    `_discarded`: copies that readers of it throw away; `unicast_spared`: those that a message to the group would
    have had readers throw away."""


@dataclass
class _Compiled:
    grid: CellGrid
    cells: Ints
    labels: Ints
    members: Bools
    first: int


class Sharing:
    """An assignment, ready to be asked."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self._place = {client: i for i, client in enumerate(assignment.clients)}
        self._clients: dict[str, tuple[Junction, int, Ints]] = {}
        """By type: the junction and its version that were asked last, and the clients of its subscriptions."""
        self._types = {
            name: _Compiled(
                CellGrid(tuple(groups.dims), tuple(np.frombuffer(c, "<i8") for c in groups.cuts)),
                np.frombuffer(groups.cells, "<i8"),
                np.frombuffer(groups.labels, "<i8"),
                assignment.members(name),
                groups.first,
            )
            for name, groups in assignment.types.items()
        }

    def share(self, junction: Junction, type_name: str, ranks: Ints, matches: Pairs) -> Shared:
        """Decide for the matches of one broker; `ranks` are those of the whole batch.

        Cost: O(pairs log pairs), vectorised but for the names in the messages.
        """
        shared = Shared(np.ones(len(matches.rows), bool))
        groups = self._types.get(type_name)
        if groups is None or not junction.grouped.any():
            return shared
        client = self._clients_of(junction, type_name)[matches.numbers]
        able = np.flatnonzero(junction.grouped[matches.numbers] & (client >= 0))
        if not len(able):
            return shared
        rows, event = np.unique(matches.rows[able], return_inverse=True)
        width = len(self.assignment.clients)
        pairs, of = np.unique(event * width + client[able], return_inverse=True)
        label = group_of_cells(groups.cells, groups.labels, groups.grid.cells_of(ranks[rows]))
        choice = self._choose(groups, label, pairs // width, pairs % width)
        alone = np.isin(pairs, choice.unicast_rows * width + choice.unicast_clients)
        shared.single[able] = alone[of]
        together = np.flatnonzero(~alone[of])
        group = np.where(choice.broadcast, BROADCAST, choice.group + groups.first)
        shared.messages = self._messages(junction, matches.take(able[together]), group[event[together]])
        shared.figures = self._shared_figures(groups, shared.messages)
        shared.figures |= {"unicast": int(alone.sum()), "unicast_spared": _spared(groups, choice, label, pairs, width)}
        return shared

    def _choose(self, groups: _Compiled, label: Ints, rows: Ints, clients: Ints) -> Choice:
        everybody = np.ones(len(self.assignment.clients), bool)
        broadcast = self.assignment.broadcast
        return choose(
            rows, clients, label, groups.members, self.assignment.threshold,
            everybody if broadcast is not None else None, NEVER if broadcast is None else broadcast,
        )  # fmt: skip

    def _clients_of(self, junction: Junction, type_name: str) -> Ints:
        """By number of a subscription: which client of the assignment has it, -1 if that reads no shared topic."""
        known = self._clients.get(type_name)
        if known is None or known[0] is not junction or known[1] != junction.version:
            self._clients[type_name] = known = (junction, junction.version, junction.roll.places(self._place))
        return known[2]

    def _messages(self, junction: Junction, pairs: Pairs, groups: Ints) -> list[Message]:
        """One message for each event and group of these pairs, and each set of clients."""
        matched: dict[tuple[int, int, str], dict[str, list[str]]] = {}
        for row, group, number in zip(pairs.rows.tolist(), groups.tolist(), pairs.numbers.tolist(), strict=True):
            client = junction.roll.client(number)
            clients = matched.setdefault((row, group, self.assignment.set_of(client) or ""), {})
            clients.setdefault(client, []).append(junction.roll.id(number))
        return [Message(row, group, clients, of or None) for (row, group, of), clients in sorted(matched.items())]

    def _shared_figures(self, groups: _Compiled, messages: list[Message]) -> dict[str, int]:
        """By method: messages, copies that they saved, and copies that clients will throw away."""
        sizes = groups.members.sum(axis=1)
        figures = {f"{method}{what}": 0 for method in ("group", "broadcast") for what in ("", "_saved", "_discarded")}
        for message in messages:
            is_broadcast = message.group == BROADCAST
            readers = len(self.assignment.clients) if is_broadcast else int(sizes[message.group - groups.first])
            method, served = "broadcast" if is_broadcast else "group", len(message.matched)
            figures[method] += 1
            figures[f"{method}_saved"] += served - 1
            figures[f"{method}_discarded"] += readers - served
        return figures


def _spared(groups: _Compiled, choice: Choice, label: Ints, pairs: Ints, width: int) -> int:
    """Copies that readers of groups would have thrown away of the events that went by unicast instead."""
    inside = served_by_group(pairs // width, pairs % width, label, groups.members)
    interested = np.bincount(pairs[inside] // width, minlength=len(label))
    alone = (interested > 0) & ~choice.broadcast & (choice.group == CATCH_ALL)
    return int((sizes_of(label, groups.members) - interested)[alone].sum())
