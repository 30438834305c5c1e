"""The distribution method: for each publication by unicast, to its group, or by broadcast; with the cost in the open.

Implements [STREE03] §4 and A.1:

    in the catch-all                                unicast
    nobody interested                               nothing
    share of interested members |s| / |M_q| < t     unicast
    else                                            one message to the group

Differs: clients opt in to groups, so interested clients outside the group get messages of their own beside it. The
paper has no rule for broadcast; ours is the same rule with all listeners of the broadcast as one group and a
threshold of its own, asked before the group. The paper leaves t to be found by hand; here it also follows from a
cost model, or is fitted to observed traffic.

    cost = write * bytes written to delivery topics + discard * bytes that clients read and throw away
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from state.arrays import Bools, Floats, Ints
from state.distribution.groups import CATCH_ALL

NEVER = 2.0
"""A threshold that no share reaches: t of a method that is not to be used."""


@dataclass(frozen=True, eq=False)
class Choice:
    """How each publication of a batch goes out.

    Guarantee: each interested client is served once: in a unicast pair, as a member of the event's group, or as a
    listener of the broadcast.
    """

    unicast_rows: Ints
    unicast_clients: Ints
    """Pairs (row of the batch, client), in the order in which they were given."""
    group: Ints
    """Group that gets the event, CATCH_ALL for none."""
    broadcast: Bools
    """Whether the event is broadcast; then it goes to no group."""


def choose(
    rows: Ints,
    clients: Ints,
    groups: Ints,
    members: Bools,
    threshold: float,
    listeners: Bools | None = None,
    broadcast_threshold: float = NEVER,
) -> Choice:
    """Decide for a batch: pair (rows[i], clients[i]) is an interested client, `groups[e]` the group of event e.

    `members` is bool (groups, clients) of those that read the group's topic, `listeners` bool (clients,) of those
    that read the broadcast. Cost: O(pairs + events), vectorised.

    >>> choice = choose(np.array([0, 0, 1]), np.array([0, 1, 2]), np.array([0, 0]), np.array([[True, True, True]]), 0.5)
    >>> choice.group.tolist(), choice.unicast_rows.tolist(), choice.unicast_clients.tolist()
    ([0, -1], [1], [2])
    """
    n = len(groups)
    heard = np.zeros(len(rows), dtype=bool) if listeners is None else listeners[clients]
    audience = 0 if listeners is None else int(listeners.sum())
    interested = np.bincount(rows[heard], minlength=n)
    broadcast = (interested > 0) & (interested / max(audience, 1) >= broadcast_threshold)

    inside = served_by_group(rows, clients, groups, members)
    interested = np.bincount(rows[inside], minlength=n)
    share = interested / np.maximum(sizes_of(groups, members), 1)
    send = ~broadcast & (interested > 0) & (share >= threshold)
    rest = ~(inside & send[rows]) & ~(heard & broadcast[rows])
    return Choice(rows[rest], clients[rest], np.where(send, groups, CATCH_ALL), broadcast)


def choose_dense(interested: Bools, groups: Ints, members: Bools, threshold: float) -> Choice:
    """`choose` for bool (events, clients)."""
    rows, clients = np.nonzero(interested)
    return choose(rows, clients, groups, members, threshold)


def served_by_group(rows: Ints, clients: Ints, groups: Ints, members: Bools) -> Bools:
    """Tell for each pair whether the client is a member of the event's group."""
    group = groups[rows]
    inside = group != CATCH_ALL
    inside[inside] = members[group[inside], clients[inside]]
    return inside


def sizes_of(groups: Ints, members: Bools) -> Ints:
    """|M_q| for the group of each event, 0 in the catch-all."""
    sizes = np.append(members.sum(axis=1), 0)
    return sizes[np.where(groups == CATCH_ALL, len(members), groups)]


@dataclass(frozen=True)
class CostModel:
    """What a byte costs: written to a delivery topic, and read and thrown away by a client."""

    write: float = 1.0
    discard: float = 0.15

    def threshold(self, size: int) -> float:
        """The t from which a message to a group of `size` costs no more than unicasts.

        With the share r interested, unicasts cost write * r * size, the group write + discard * (1 - r) * size.

        >>> CostModel(write=1.0, discard=1.0).threshold(10)
        0.55
        """
        return (self.discard + self.write / size) / (self.discard + self.write)


@dataclass(frozen=True)
class Ledger:
    """What a batch of choices costs, in copies and bytes."""

    copies_written: int
    bytes_written: int
    copies_useful: int
    copies_discarded: int
    bytes_discarded: int

    def cost(self, model: CostModel) -> float:
        return model.write * self.bytes_written + model.discard * self.bytes_discarded


def account(
    choice: Choice, rows: Ints, clients: Ints, members: Bools, sizes: Ints, listeners: Bools | None = None
) -> Ledger:
    """Count what a choice for the interested pairs writes and wastes; `sizes` are the bytes of each event."""
    n = len(choice.group)
    unicasts = np.bincount(choice.unicast_rows, minlength=n)
    to_group = choice.group != CATCH_ALL
    written = unicasts + to_group + choice.broadcast
    audience = 0 if listeners is None else int(listeners.sum())
    read = unicasts + sizes_of(choice.group, members) + choice.broadcast * audience
    useful = np.bincount(rows, minlength=n)
    discarded = read - useful
    return Ledger(
        int(written.sum()),
        int((written * sizes).sum()),
        int(useful.sum()),
        int(discarded.sum()),
        int((discarded * sizes).sum()),
    )


def fit_threshold(shares: Floats, below: Floats, above: Floats) -> tuple[float, float]:
    """Return (t, cost): the t with the least total cost, if event i costs below[i] when shares[i] < t, else above[i].

    Candidates are 0, every share, and NEVER; of equals the least. Cost: one sort.

    >>> fit_threshold(np.array([0.1, 0.2, 0.9]), np.array([1.0, 2.0, 9.0]), np.array([5.0, 4.0, 3.0]))
    (0.9, 6.0)
    """
    order = np.argsort(shares, kind="stable")
    ranked = shares[order]
    first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if len(ranked) else np.empty(0, np.int64)
    unicast = np.concatenate([[0.0], np.cumsum(below[order])])
    grouped = np.concatenate([[0.0], np.cumsum(above[order])])
    cut = np.append(first, len(ranked))
    costs = unicast[cut] + grouped[-1] - grouped[cut]
    best = int(np.argmin(costs))
    if best == len(cut) - 1:
        return NEVER, float(costs[best])
    return (0.0 if cut[best] == 0 else float(ranked[cut[best]])), float(costs[best])


class Observed:
    """Traffic by share of interested members, from which t is fitted: a histogram that adds up over tasks.

    >>> seen = Observed()
    >>> seen.add(np.array([1, 9]), np.array([10, 10]), np.array([100, 100]))
    >>> seen.fit(CostModel(write=1.0, discard=0.5))
    0.11
    """

    BINS = 100

    def __init__(self) -> None:
        self.messages = np.zeros(self.BINS + 1)
        """Bytes of events, by the share of interested members in hundredths, rounded down."""
        self.unicasts = np.zeros(self.BINS + 1)
        """Bytes of the messages to single members instead."""
        self.discards = np.zeros(self.BINS + 1)
        """Bytes of copies that members would throw away."""

    def add(self, interested: Ints, members: Ints, sizes: Ints) -> None:
        """Count events of `sizes` bytes with `interested` of `members` of their group; the catch-all has none."""
        some = (members > 0) & (interested > 0)
        interested, members, sizes = interested[some], members[some], sizes[some]
        at = self.BINS * interested // members
        for total, values in (
            (self.messages, sizes),
            (self.unicasts, sizes * interested),
            (self.discards, sizes * (members - interested)),
        ):
            total += np.bincount(at, weights=values, minlength=self.BINS + 1)

    def merge(self, other: Observed) -> None:
        """Add what another task saw."""
        self.messages += other.messages
        self.unicasts += other.unicasts
        self.discards += other.discards

    def costs(self, model: CostModel) -> Floats:
        """Total cost for t = 0, 0.01, .. 1, and for NEVER."""
        below = np.concatenate([[0.0], np.cumsum(model.write * self.unicasts)])
        above = np.concatenate([[0.0], np.cumsum(model.write * self.messages + model.discard * self.discards)])
        return below + above[-1] - above

    def fit(self, model: CostModel) -> float:
        """The t, in hundredths, with the least cost for what was seen; of equals the least."""
        best = int(np.argmin(self.costs(model)))
        return best / self.BINS if best <= self.BINS else NEVER
