"""Where brokers stand on the page: the overlay as a tree around its middle.

Each subtree gets a wedge as wide as it has leaves; then brokers push each other apart a little, as long as no two
links cross.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from state.arrays import Floats, Ints
from state.overlay import Overlay

ROUNDS = 240
"""Steps in which brokers push each other apart; fewer leave long arms unevenly spread."""
WEDGE_MAX = math.pi * 0.9
"""A subtree's wedge stays below a half turn, so that a link to a child never runs through another wedge."""


def layout(overlay: Overlay) -> dict[str, tuple[float, float]]:
    """Return where each broker stands, within the unit square.

    Guarantee: deterministic; no two links cross, no two brokers stand in one place.
    Cost: O(rounds * brokers^2), vectorised.

    >>> layout(Overlay(("a", "b"), (("a", "b"),)))
    {'a': (0.0, 0.5), 'b': (1.0, 0.5)}
    """
    brokers = list(overlay.brokers)
    number = {broker: i for i, broker in enumerate(brokers)}
    links = np.array([[number[a], number[b]] for a, b in overlay.links], np.int64).reshape(-1, 2)
    fan = _fan(overlay, number)
    spread = _spread(fan, links)
    return dict(zip(brokers, map(_pair, _fitted(fan if crossings(spread, links) else spread)), strict=True))


def _middle(overlay: Overlay) -> str:
    """The broker in the middle of the longest path."""
    first = overlay.brokers[0]
    end = max(overlay.brokers, key=lambda b: (len(overlay.path(first, b)), b))
    other = max(overlay.brokers, key=lambda b: (len(overlay.path(end, b)), b))
    path = overlay.path(end, other)
    return path[len(path) // 2]


def _fan(overlay: Overlay, number: dict[str, int]) -> Floats:
    """A tree around its middle: a ring for each hop, a wedge for each subtree."""
    root = _middle(overlay)
    order, before = [root], {root: ""}
    for broker in order:
        for neighbour in overlay.neighbours(broker):
            if neighbour not in before:
                before[neighbour] = broker
                order.append(neighbour)
    leaves = dict.fromkeys(order, 0)
    for broker in reversed(order):
        leaves[broker] = max(1, leaves[broker])
        if before[broker]:
            leaves[before[broker]] += leaves[broker]
    places = np.zeros((len(order), 2))
    wedge = {root: (0.0, 2 * math.pi)}
    depth = {root: 0}
    for broker in order:
        first, width = wedge[broker]
        below = [b for b in overlay.neighbours(broker) if before[b] == broker]
        total = sum(leaves[b] for b in below)
        for child in below:
            share = width * leaves[child] / total
            inner = min(share, WEDGE_MAX)
            wedge[child] = (first + (share - inner) / 2, inner)
            depth[child] = depth[broker] + 1
            angle = first + share / 2
            places[number[child]] = (depth[child] * math.cos(angle), depth[child] * math.sin(angle))
            first += share
    return places


def _spread(places: Floats, links: Ints) -> Floats:
    """Let brokers push each other apart while links hold them together."""
    at = places.copy()
    n = len(at)
    for round in range(ROUNDS if n > 2 else 0):
        apart = at[:, None] - at[None]
        squared = (apart**2).sum(axis=2) + np.eye(n)
        push = (apart / (squared**1.5)[..., None]).sum(axis=1) * 0.35
        along = at[links[:, 1]] - at[links[:, 0]]
        length = np.sqrt((along**2).sum(axis=1, keepdims=True)) + 1e-9
        pull = along * (length - 1.0) / length * 0.5
        np.add.at(push, links[:, 0], pull)
        np.subtract.at(push, links[:, 1], pull)
        step = np.sqrt((push**2).sum(axis=1, keepdims=True)) + 1e-9
        at += push * np.minimum(1.0, 0.12 * (1 - round / ROUNDS) / step)
    return at


def crossings(places: Floats, links: Ints) -> int:
    """How many pairs of links cross, those that meet in a broker left out. Cost: O(links^2), vectorised."""
    a, b = places[links[:, 0]], places[links[:, 1]]

    def side(p: Floats, q: Floats, r: Floats) -> Floats:
        sides: Floats = np.sign((q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1])
                                - (q[..., 1] - p[..., 1]) * (r[..., 0] - p[..., 0]))  # fmt: skip
        return sides

    one, two = (a[:, None], b[:, None]), (a[None], b[None])
    cross = (side(*one, two[0]) * side(*one, two[1]) < 0) & (side(*two, one[0]) * side(*two, one[1]) < 0)
    shared = (links[:, None, :, None] == links[None, :, None, :]).any(axis=(2, 3))
    return int((cross & ~shared).sum()) // 2


def _fitted(places: Floats) -> Floats:
    """The same, turned so that it is widest from left to right, and scaled into the unit square."""
    centred = places - places.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred + np.eye(2) * 1e-12)
    turned = centred @ axes[:, ::-1]
    # the first broker of the configuration stands in the upper left: the same whatever the axes' signs
    turned *= np.where(turned[0] > 0, -1.0, 1.0)
    low, high = turned.min(axis=0), turned.max(axis=0)
    size = np.maximum(high - low, 1e-9)
    flat = high - low < 1e-6
    fitted: Floats = np.where(flat, 0.5, (turned - low) / size)
    return fitted


def _pair(place: Sequence[float]) -> tuple[float, float]:
    return round(float(place[0]), 4), round(float(place[1]), 4)
