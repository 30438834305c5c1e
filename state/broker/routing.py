"""Routing a batch of publications through every hosted broker in one pass.

The overlay is a tree. Seen from a root, every publication first climbs, then descends, so two sweeps over the brokers
visit each directed link exactly once for the whole batch:

    up    (leaves first)   entered here + came from children ──wanted by the link?──> parent
    down  (root first)     everything here ─────────────────────────wanted?──────────> each child it did not come from

Each hop is decided by the index of its own link, as if the broker stood alone; links to brokers of another deployment
are written and not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from state.broker.junction import Junction
from state.config import Overlay
from state.space.decode import RankBatch

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """The overlay hung up at its first broker: parents and a root-first order."""

    order: tuple[str, ...]
    parent: dict[str, str]
    children: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, overlay: Overlay) -> Tree:
        order = [overlay.brokers[0]]
        parent: dict[str, str] = {}
        for broker in order:
            for neighbour in overlay.neighbours(broker):
                if neighbour != parent.get(broker):
                    parent[neighbour] = broker
                    order.append(neighbour)
        children = {b: tuple(c for c in order if parent.get(c) == b) for b in order}
        return cls(tuple(order), parent, children)


@dataclass
class Routed:
    """Where the publications of one type went: rows by crossed link, and matches by broker."""

    links: dict[tuple[str, str], Rows] = field(default_factory=dict)
    matches: dict[str, tuple[Rows, Rows]] = field(default_factory=dict)
    """By broker: event rows and the owners (subscriptions of that junction) whose filter holds."""
    wasted: dict[tuple[str, str], int] = field(default_factory=dict)
    """By crossed link: events that nobody at its far end wanted and no further link did either."""


def route(
    tree: Tree,
    hosts: frozenset[str],
    junctions: Mapping[str, Junction],
    batch: RankBatch,
    entered: Mapping[tuple[str, str | None], Rows],
) -> Routed:
    """Route one batch of one type.

    `entered`: rows by (broker, neighbour they came from; None for a publisher). Imprecise events (`batch.highs`) are
    boxes: they take every link that asked for a part of theirs, and the filter itself decides at the edge.
    Guarantee: links may carry more than needed, matches are exact.
    Cost: one look-up per directed link and one match per hosted broker for the whole batch.
    """
    routed = Routed()
    ranks = batch.ranks
    spread = np.zeros(len(ranks), bool) if batch.highs is None else (batch.highs != ranks).any(axis=1)
    arrived: dict[str, dict[str | None, Rows]] = {b: {} for b in tree.order}
    for (broker, origin), rows in entered.items():
        arrived[broker][origin] = rows
    index_of = _lazy_index(junctions, ranks)

    def send(broker: str, neighbour: str) -> None:
        origins = [rows for origin, rows in arrived[broker].items() if origin != neighbour and len(rows)]
        if not origins:
            return
        rows = origins[0] if len(origins) == 1 else np.sort(np.concatenate(origins))
        wanted = junctions[broker].wanted(neighbour, ranks[rows], lambda: index_of()[rows])
        if batch.highs is not None and spread[rows].any():
            boxes = np.flatnonzero(spread[rows])
            wanted = wanted.copy()
            at = rows[boxes]
            wanted[boxes] = junctions[broker].wanted_boxes(neighbour, ranks[at], batch.highs[at])
        crossing = rows[wanted]
        if len(crossing):
            routed.links[broker, neighbour] = crossing
            if neighbour in hosts:
                arrived[neighbour][broker] = crossing

    for broker in reversed(tree.order):
        if broker in hosts and broker in tree.parent:
            send(broker, tree.parent[broker])
    for broker in tree.order:
        if broker in hosts:
            for child in tree.children[broker]:
                send(broker, child)
            routed.matches[broker] = _match(junctions[broker], batch, spread, arrived[broker])
    _count_wasted(routed, hosts, len(ranks))
    return routed


def _count_wasted(routed: Routed, hosts: frozenset[str], n: int) -> None:
    """Count what crossed a link for nothing: the price of a superset."""
    useful: dict[str, NDArray[np.bool_]] = {}
    for broker, (found, _) in routed.matches.items():
        useful[broker] = np.zeros(n, bool)
        useful[broker][found] = True
    for (origin, _), crossing in routed.links.items():
        useful[origin][crossing] = True
    for (origin, target), crossing in routed.links.items():
        if target in hosts:
            routed.wasted[origin, target] = int((~useful[target][crossing]).sum())


def _lazy_index(junctions: Mapping[str, Junction], ranks: NDArray[np.int64]) -> Callable[[], Rows]:
    """Hilbert indices of the whole batch, computed once and only if some link is kept as ranges."""
    cache: list[Rows] = []

    def index() -> Rows:
        if not cache:
            cache.append(next(iter(junctions.values())).grid.index(ranks))
        return cache[0]

    return index


def _match(
    junction: Junction, batch: RankBatch, spread: NDArray[np.bool_], arrived: Mapping[str | None, Rows]
) -> tuple[Rows, Rows]:
    here = [rows for rows in arrived.values() if len(rows)]
    if not here:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows = here[0] if len(here) == 1 else np.sort(np.concatenate(here))
    points, boxes = rows[~spread[rows]], rows[spread[rows]]
    found, owners = junction.interested(batch.ranks[points])
    found = points[found]
    if len(junction.doubtful) and len(found):
        keep = np.ones(len(found), bool)
        doubtful = np.flatnonzero(np.isin(owners, junction.doubtful))
        keep[doubtful] = _holds(junction, found[doubtful], owners[doubtful], batch)
        found, owners = found[keep], owners[keep]
    if batch.highs is not None and len(boxes):
        met, of = junction.touched(batch.ranks[boxes], batch.highs[boxes])
        met = boxes[met]
        keep = _holds(junction, met, of, batch)
        found, owners = np.concatenate([found, met[keep]]), np.concatenate([owners, of[keep]])
    return found, owners


def _holds(junction: Junction, rows: Rows, owners: Rows, batch: RankBatch) -> NDArray[np.bool_]:
    """Decide exactly, by the filter itself, where boxes cannot: the edge is where delivery becomes exact."""
    pairs = zip(rows.tolist(), owners.tolist(), strict=True)
    return np.array([junction.residuals[owner](batch.event(row)) for row, owner in pairs], bool)
