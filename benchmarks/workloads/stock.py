"""The network and the stock market of [STREE03] §5: seeded, with every figure that the paper gives.

A network of 600 nodes in the transit-stub manner of GT-ITM: three transit blocks of five transit nodes on average, two
stubs to a transit node, twenty nodes to a stub. A thousand subscriptions on its nodes, over four attributes,
and publications from a mixture of one, four or nine normal distributions.

    transit block ── transit node ── stub: 20 nodes, each with some of the subscriptions
         └──────────── transit node ── stub
                            └───────── stub

The paper leaves open, and we chose: B, S and T are 0, 1 and 2, and a publication's N(1, 1) is rounded to the nearest of
them; "Zipf-like" is 1/rank, for lengths of name intervals over 1 to 20 names; values are kept in hundredths, as
integers. GT-ITM itself is not used: averages are met exactly, sizes vary around them, and edge costs, which
the paper does not print, are 4 between blocks, 2 inside them, 1 to and inside stubs, each times 0.5 to 1.5
(`benchmarks/distribution.py` shows what other ratios do). Of the nine modes the text calls "third and fourth"
dimension what can only be the second and third. "quote" is the price.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from state.arrays import Floats, Ints
from state.space.boxes import Boxes, Ranks
from state.space.event_type import Attribute, EventType
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN

HUNDREDTH = 100
"""Ranks per unit of name, price and volume."""
BST = ("B", "S", "T")
STOCK = EventType(
    "stock.trade",
    (
        Attribute("bst", "category", values=BST),
        Attribute("name", "int", min=0, max=20 * HUNDREDTH),
        Attribute("price", "int", min=0, max=20 * HUNDREDTH),
        Attribute("volume", "int", min=0, max=20 * HUNDREDTH),
    ),
)
NODES, BLOCKS, TRANSIT_PER_BLOCK, STUBS_PER_TRANSIT = 600, 3, 5, 2
COST_OF_KIND = (4.0, 2.0, 1.0, 1.0)

# --- subscriptions: §5, the table at its end of the page ---------------------------------------------------------

SHARE_OF_BLOCK = (0.4, 0.3, 0.3)
SHARE_OF_BST = (0.4, 0.4, 0.2)
NAME_CENTRE, NAME_DEVIATION, NAME_LENGTH_MAX = (3.0, 10.0, 17.0), 4.0, 20


@dataclass(frozen=True)
class Interval:
    """The law of an interval: any with q0, [n, oo) with q1, (-oo, n] with q2, else a centre and a Pareto length."""

    q0: float
    q1: float
    q2: float
    above: tuple[float, float] = (9.0, 1.0)
    below: tuple[float, float] = (9.0, 1.0)
    centre: tuple[float, float] = (9.0, 2.0)
    pareto: tuple[float, float] = (4.0, 1.0)
    """c, alpha: P(length > x) = (c / x)^alpha for x >= c."""


PRICE, VOLUME = Interval(0.15, 0.1, 0.1), Interval(0.35, 0.1, 0.1)

# --- publications: for each number of modes and each dimension a mixture of (probability, mean, deviation) -----

Mixture = tuple[tuple[float, float, float], ...]
MODES: dict[int, tuple[Mixture, Mixture, Mixture, Mixture]] = {
    1: (((1.0, 1, 1),), ((1.0, 10, 6),), ((1.0, 9, 2),), ((1.0, 9, 6),)),
    4: (((1.0, 1, 1),), ((0.5, 12, 3), (0.5, 6, 2)), ((0.5, 4, 2), (0.5, 16, 2)), ((1.0, 9, 6),)),
    9: (
        ((1.0, 1, 1),),
        ((0.3, 4, 3), (0.4, 11, 3), (0.3, 18, 3)),
        ((0.3, 4, 3), (0.4, 9, 3), (0.3, 16, 3)),
        ((1.0, 9, 6),),
    ),
}


@dataclass(frozen=True, eq=False)
class Network:
    """An undirected graph; node i is in `block[i]` and `stub[i]`, which is -1 for a transit node."""

    block: Ints
    stub: Ints
    edges: Ints
    """One row of two nodes per edge."""
    costs: Floats

    def __len__(self) -> int:
        return len(self.block)

    def paths(self, source: int) -> Paths:
        """The shortest-path tree from one node (Dijkstra). Cost: O(E log V)."""
        reached: list[list[tuple[int, float]]] = [[] for _ in range(len(self))]
        for (a, b), cost in zip(self.edges.tolist(), self.costs.tolist(), strict=True):
            reached[a].append((b, cost))
            reached[b].append((a, cost))
        distance = np.full(len(self), np.inf)
        parent = np.full(len(self), -1, np.int64)
        distance[source] = 0.0
        waiting, order, done = [(0.0, source)], [], np.zeros(len(self), dtype=bool)
        while waiting:
            _, node = heapq.heappop(waiting)
            if done[node]:
                continue
            done[node] = True
            order.append(node)
            for other, cost in reached[node]:
                if distance[node] + cost < distance[other]:
                    distance[other], parent[other] = distance[node] + cost, node
                    heapq.heappush(waiting, (float(distance[other]), other))
        return Paths(np.array(order), parent, distance)


@dataclass(frozen=True, eq=False)
class Paths:
    """A shortest-path tree: nodes by distance, each node's parent, and its distance from the source."""

    order: Ints
    parent: Ints
    distance: Floats

    def unicast(self, wanted: NDArray[np.bool_]) -> Floats:
        """Summed edge costs of one message to each wanted node, for each row of (messages, nodes)."""
        return wanted.astype(np.float64) @ self.distance

    def multicast(self, wanted: NDArray[np.bool_]) -> Floats:
        """Summed edge costs of one message along the tree to all wanted nodes ("dense mode"), for each row."""
        carried, total = np.ascontiguousarray(wanted.T), np.zeros(len(wanted))
        for node in self.order[:0:-1]:
            parent = self.parent[node]
            total += carried[node] * (self.distance[node] - self.distance[parent])
            carried[parent] |= carried[node]
        return total


def network(seed: int, cost_of_kind: tuple[float, float, float, float] = COST_OF_KIND) -> Network:
    """A transit-stub network of 600 nodes: 3 blocks, 15 transit nodes, 30 stubs.

    `cost_of_kind`: mean cost of an edge between blocks, inside a block, to a stub, inside a stub; each varies by half.
    """
    rng = np.random.default_rng([seed, 1])
    transit_per_block = _around(rng, BLOCKS * TRANSIT_PER_BLOCK, BLOCKS, 1)
    n_transit = int(transit_per_block.sum())
    stubs_per_transit = _around(rng, n_transit * STUBS_PER_TRANSIT, n_transit, 1)
    n_stubs = int(stubs_per_transit.sum())
    stub_sizes = _around(rng, NODES - n_transit, n_stubs, 6)
    transit_block = np.repeat(np.arange(BLOCKS), transit_per_block)
    stub_transit = np.repeat(np.arange(n_transit), stubs_per_transit)
    stub = np.concatenate([np.full(n_transit, -1), np.repeat(np.arange(n_stubs), stub_sizes)])
    block = np.concatenate([transit_block, transit_block[stub_transit][stub[n_transit:]]])

    edges: list[tuple[int, int]] = []
    kinds: list[int] = []
    inside = [np.flatnonzero((block == b) & (stub < 0)) for b in range(BLOCKS)]
    for a in range(BLOCKS):
        edges.append((int(rng.choice(inside[a])), int(rng.choice(inside[(a + 1) % BLOCKS]))))
        kinds.append(0)
        edges += _connected(rng, inside[a], 0.5)
        kinds += [1] * (len(edges) - len(kinds))
    for s in range(n_stubs):
        nodes = np.flatnonzero(stub == s)
        edges.append((int(stub_transit[s]), int(rng.choice(nodes))))
        kinds.append(2)
        edges += _connected(rng, nodes, 0.05)
        kinds += [3] * (len(edges) - len(kinds))
    costs = np.array(cost_of_kind)[kinds] * rng.uniform(0.5, 1.5, len(kinds))
    return Network(block, stub, np.array(edges, np.int64), costs)


def _around(rng: np.random.Generator, total: int, parts: int, spread: int) -> Ints:
    """Split a total into parts that vary by at most about `spread` around their mean, at least one each."""
    sizes = np.full(parts, total // parts) + rng.integers(-spread, spread + 1, parts)
    sizes = np.maximum(sizes, 1)
    while sizes.sum() != total:
        step = 1 if sizes.sum() < total else -1
        at = int(rng.integers(parts))
        sizes[at] = max(1, sizes[at] + step)
    return sizes


def _connected(rng: np.random.Generator, nodes: Ints, extra: float) -> list[tuple[int, int]]:
    """A random tree over the nodes, and each other pair with probability `extra`."""
    order = rng.permutation(nodes)
    edges = [(int(order[rng.integers(i)]), int(order[i])) for i in range(1, len(order))]
    have = {frozenset(edge) for edge in edges}
    for i, a in enumerate(order.tolist()):
        for b in order[:i].tolist():
            if rng.random() < extra and frozenset((a, b)) not in have:
                edges.append((b, a))
    return edges


@dataclass(frozen=True, eq=False)
class Subscriptions:
    """Subscription i is box i, placed at `nodes[i]`: a subscriber of the paper is a node with its boxes."""

    boxes: Boxes
    nodes: Ints


def subscriptions(where: Network, n: int, seed: int) -> Subscriptions:
    """`n` subscriptions on the nodes of a network: 40, 30 and 30 % by block, Zipf over stubs, Zipf within stubs."""
    rng = np.random.default_rng([seed, 2])
    ends = np.round(n * np.cumsum([0.0, *SHARE_OF_BLOCK])).astype(np.int64)
    counts = ends[1:] - ends[:-1]
    blocks = np.repeat(np.arange(BLOCKS), counts)
    nodes = np.concatenate([_placed(rng, where, b, int(c)) for b, c in enumerate(counts)])
    lows, highs = np.empty((n, 4), np.int64), np.empty((n, 4), np.int64)
    lows[:, 0] = highs[:, 0] = rng.choice(3, size=n, p=SHARE_OF_BST)
    centre = rng.normal(np.array(NAME_CENTRE)[blocks], NAME_DEVIATION)
    length = rng.choice(np.arange(1, NAME_LENGTH_MAX + 1), size=n, p=_zipf(NAME_LENGTH_MAX))
    lows[:, 1], highs[:, 1] = _hundredths(centre - length / 2), _hundredths(centre + length / 2)
    for j, law in ((2, PRICE), (3, VOLUME)):
        lows[:, j], highs[:, j] = _intervals(rng, law, n)
    return Subscriptions(Boxes(lows, highs), nodes)


def _placed(rng: np.random.Generator, where: Network, block: int, n: int) -> Ints:
    stubs = rng.permutation(np.unique(where.stub[(where.block == block) & (where.stub >= 0)]))
    chosen = rng.choice(stubs, size=n, p=_zipf(len(stubs)))
    nodes = np.empty(n, np.int64)
    for s in stubs:
        inside = rng.permutation(np.flatnonzero(where.stub == s))
        at = chosen == s
        nodes[at] = rng.choice(inside, size=int(at.sum()), p=_zipf(len(inside)))
    return nodes


def _zipf(n: int) -> Floats:
    weights = 1.0 / np.arange(1, n + 1)
    return weights / weights.sum()


def _intervals(rng: np.random.Generator, law: Interval, n: int) -> tuple[Ints, Ints]:
    which = rng.choice(4, size=n, p=[law.q0, law.q1, law.q2, 1 - law.q0 - law.q1 - law.q2])
    above, below, centre = (_hundredths(rng.normal(*p, size=n)) for p in (law.above, law.below, law.centre))
    c, alpha = law.pareto
    # A Pareto of alpha = 1 has no mean: a length beyond 2^40 units is cut, far outside of every publication.
    half = _hundredths(np.minimum(c / (1.0 - rng.random(n)) ** (1 / alpha), 2.0**40) / 2)
    low = np.select([which == 0, which == 1, which == 2], [ABSENT, above, PRESENT_MIN], centre - half)
    high = np.select([which == 0, which == 1, which == 2], [PRESENT_MAX, PRESENT_MAX, below], centre + half)
    return low, high


def _hundredths(values: Floats) -> Ints:
    return np.round(values * HUNDREDTH).astype(np.int64)


def publications(n: int, modes: int, seed: int) -> Ranks:
    """`n` publications as ranks of `STOCK`: independent mixtures of normal distributions in each dimension."""
    rng = np.random.default_rng([seed, 3, modes])
    out = np.empty((n, 4), np.int64)
    for j, mixture in enumerate(MODES[modes]):
        share, mean, deviation = (np.array(column) for column in zip(*mixture, strict=True))
        which = rng.choice(len(mixture), size=n, p=share)
        values = rng.normal(mean[which], deviation[which])
        out[:, j] = np.clip(np.round(values), 0, 2) if j == 0 else _hundredths(values)
    return out


def mass(lows: Ranks, highs: Ranks, modes: int) -> Floats:
    """The probability p(x) that a publication falls into each closed box of ranks ([STREE03] §2)."""
    total = np.ones(len(lows))
    for j, mixture in enumerate(MODES[modes]):
        unit = 1 if j == 0 else HUNDREDTH
        low, high = lows[:, j].astype(np.float64), highs[:, j].astype(np.float64)
        begin, end = (low - 0.5) / unit, (high + 0.5) / unit
        if j == 0:  # rounding takes everything below to B and everything above to T
            begin, end = np.where(low <= 0, -np.inf, begin), np.where(high >= 2, np.inf, end)
        total *= sum(share * (_normal(end, mean, dev) - _normal(begin, mean, dev)) for share, mean, dev in mixture)
    return total


def _normal(values: Floats, mean: float, deviation: float) -> Floats:
    scaled = (values - mean) / (deviation * math.sqrt(2))
    return np.array([0.5 * (1 + math.erf(x)) for x in scaled])


def event(point: Ranks) -> dict[str, object]:
    """A publication's ranks as the attributes that a publisher would send."""
    bst, name, price, volume = (int(x) for x in point)
    return {"bst": BST[bst], "name": name, "price": price, "volume": volume}


def filter_text(low: Ranks, high: Ranks) -> str:
    """A subscription's box as the text of its filter.

    >>> filter_text(np.array([1, 250, ABSENT, PRESENT_MIN]), np.array([1, 350, PRESENT_MAX, 900]))
    "bst = 'S' AND name BETWEEN 250 AND 350 AND volume <= 900"
    """
    parts = [f"bst = '{BST[int(low[0])]}'"]
    for j in (1, 2, 3):
        name, a, z = STOCK.attributes[j].name, int(low[j]), int(high[j])
        if a > PRESENT_MIN and z < PRESENT_MAX:
            parts.append(f"{name} BETWEEN {a} AND {z}")
        elif a > PRESENT_MIN:
            parts.append(f"{name} >= {a}")
        elif z < PRESENT_MAX:
            parts.append(f"{name} <= {z}")
    return " AND ".join(parts)
