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
FIT_MIN = 100
"""Events that t is fitted to, or judged by, at the least."""
WORTH = 0.01
"""The share of the cost that another t must save."""


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


def costs(interested: Ints, members: Ints, model: CostModel) -> tuple[Floats, Floats, Floats]:
    """Of events with `interested` of `members` of their group: the share, what unicasts cost, what a message does.

    >>> costs(np.array([2]), np.array([4]), CostModel(write=1.0, discard=0.5))
    (array([0.5]), array([2.]), array([2.]))
    """
    useful = interested.astype(np.float64)
    return useful / members, model.write * useful, model.write + model.discard * (members - useful)


def fitted(interested: Ints, members: Ints, present: float, model: CostModel | None = None) -> float:
    """The t that serves observed events of one size at the least cost; `present` where none is known to be better.

    [STREE03] §5.2 finds t by trying; here `fit_threshold` does, on the events in the order in which they came. Half of
    them, every second one, judge the t that was fitted to the others, once each half has FIT_MIN: it must cost less
    than `present` by WORTH there. Deterministic. Cost: one sort.
    """
    some = (interested > 0) & (members > 0)
    shares, below, above = costs(interested[some], members[some], model or CostModel())
    if len(shares) < FIT_MIN:
        return present
    if len(shares) < 2 * FIT_MIN:
        return fit_threshold(shares, below, above)[0]
    t, _ = fit_threshold(shares[::2], below[::2], above[::2])
    then, now = (np.where(shares[1::2] < at, below[1::2], above[1::2]).sum() for at in (t, present))
    return t if then < (1 - WORTH) * now else present
