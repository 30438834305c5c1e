"""Clustering of grid cells into groups: Forgy k-means, k-means, pairwise grouping, minimum spanning tree.

[STREE03] appendix A.2 and A.3. A *cell* has a weight p(g), the share of the publications that fall into it, and l(g),
the clients that are interested in something inside it. A *group* of cells has the union of their clients: a
publication in one of its cells goes to all of them, and is wasted on those that the cell does not interest.

    waste of a group G   W(G) = sum over its cells g of p(g) * |l(G) \\ l(g)|      wasted messages per publication
    EW(G) = W(G) / p(G)                                                        the paper's expected waste

Differs: the paper's recursion for EW is misprinted: `EW_old * p(G) * [1 + ..]` must be p(G) * [EW_old + ..], with
which it equals the sums above. The distance of a cell from a group is the increase of W, not of EW: a quotient
would make it cheap to add rare cells to bad groups. Every method is deterministic: the first of equals wins.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from state.arrays import Bools, Floats, Ints, Offsets

Clustering = Callable[[Floats, Bools, int], Ints]
"""(p of each cell, who is interested in each cell, groups) -> group of each cell."""

ITERATIONS_MAX = 100
"""Passes of k-means: no polynomial bound is known, so the paper caps them, too."""


def wastes(weights: Floats, interested: Bools, labels: Ints, n: int) -> Floats:
    """Return W of each of n groups: wasted messages per publication, were every publication sent to its group."""
    union = unions(interested, labels, n)
    extra = (union[labels] & ~interested).sum(axis=1)
    return _summed(weights * extra, labels, n)


def waste(weights: Floats, interested: Bools, labels: Ints, n: int) -> float:
    """Return the waste of a clustering: the sum over its groups."""
    return float(wastes(weights, interested, labels, n).sum())


def expected_waste(weights: Floats, interested: Bools, labels: Ints, n: int) -> Floats:
    """Return EW of each group: wasted messages per publication that falls into it. [STREE03] A.2, corrected."""
    share = _summed(weights, labels, n)
    total = wastes(weights, interested, labels, n)
    return np.divide(total, share, out=np.zeros(n), where=share > 0)


def _summed(values: Floats, labels: Ints, n: int) -> Floats:
    return np.bincount(labels, weights=values, minlength=n).astype(np.float64)


def unions(interested: Bools, labels: Ints, n: int) -> Bools:
    """Return l(G) of each group: the union over its cells."""
    union = np.zeros((n, interested.shape[1]), dtype=bool)
    np.logical_or.at(union, labels, interested)
    return union


def _distances(weights: Floats, interested: Bools, group_weights: Floats, groups: Bools) -> Floats:
    """Increase of W by adding each row to each group: p(G) |l(g) \\ l(G)| + p(g) |l(G) \\ l(g)|."""
    both = interested.astype(np.float32) @ groups.T.astype(np.float32)
    only_row = interested.sum(axis=1)[:, None] - both
    only_group = groups.sum(axis=1)[None, :] - both
    return group_weights[None, :] * only_row + weights[:, None] * only_group


def _seeded(weights: Floats, interested: Bools, n: int) -> Ints:
    """Step 1: the first n cells are the groups, each other cell joins the nearest of them, which grows with it."""
    labels = np.full(len(weights), -1, np.int64)
    labels[:n] = np.arange(n)
    share, union = weights[:n].copy(), interested[:n].copy()
    for cell in range(n, len(weights)):
        nearest = int(np.argmin(_distances(weights[cell : cell + 1], interested[cell : cell + 1], share, union)[0]))
        labels[cell] = nearest
        share[nearest] += weights[cell]
        union[nearest] |= interested[cell]
    return labels


def forgy(weights: Floats, interested: Bools, n: int) -> Ints:
    """Group cells by Forgy k-means: in each pass every cell moves to the group that it is nearest to.

    Implements [STREE03] A.2: seeds are the first n cells, a cell that is alone stays, groups are renewed after each
    pass (this is what makes k-means Forgy's), passes are capped. Differs: as a pass may make things worse, the best
    clustering seen is returned. Guarantee: n groups, none empty, if there are n cells.
    Cost: O(passes * cells * groups * clients).
    """
    return _passes(weights, interested, n, at_once=True)


def k_means(weights: Floats, interested: Bools, n: int) -> Ints:
    """Group cells by k-means, a group renewed with each cell that joins or leaves it: the waste never grows.

    The plain k-means of [STREE03] §4 beside Forgy's. Guarantee and cost as `forgy`.
    """
    return _passes(weights, interested, n, at_once=False)


def _passes(weights: Floats, interested: Bools, n: int, at_once: bool) -> Ints:
    n = min(n, len(weights))
    labels = _seeded(weights, interested, n)
    best, least = labels, waste(weights, interested, labels, n)
    seen = {labels.tobytes()}
    for _ in range(ITERATIONS_MAX):
        labels = (_pass_at_once if at_once else _pass)(weights, interested, labels, n)
        # Stable, or going round in a circle, which Forgy's k-means can.
        if labels.tobytes() in seen:
            break
        seen.add(labels.tobytes())
        now = waste(weights, interested, labels, n)
        if now < least:
            best, least = labels, now
    return best


def _held(interested: Bools, labels: Ints, n: int) -> Offsets:
    """How many cells of each group want each client: a client leaves the union with the last of them."""
    holding = np.zeros((n, interested.shape[1]), np.int32)
    np.add.at(holding, labels, interested)
    return holding


def _pass_at_once(weights: Floats, interested: Bools, labels: Ints, n: int) -> Ints:
    """Step 2, groups renewed after all cells: each cell, unless it is alone, goes where it was nearest to."""
    share, holding = _summed(weights, labels, n), _held(interested, labels, n)
    distance = _distances(weights, interested, share, holding > 0)
    # From its own group, without the cell itself.
    without = holding[labels] > interested
    alone_costs = (share[labels] - weights) * (interested & ~without).sum(axis=1)
    own = alone_costs + weights * (without & ~interested).sum(axis=1)
    every = np.arange(len(weights))
    distance[every, labels] = own
    nearest = np.argmin(distance, axis=1)
    nearest = np.where(distance[every, nearest] < own, nearest, labels)
    size, moved = np.bincount(labels, minlength=n), labels.copy()
    for cell in np.flatnonzero(nearest != labels):
        if size[moved[cell]] > 1:
            size[moved[cell]] -= 1
            size[nearest[cell]] += 1
            moved[cell] = nearest[cell]
    return moved


def _pass(weights: Floats, interested: Bools, labels: Ints, n: int) -> Ints:
    """Step 2, groups renewed after each cell: the waste never grows."""
    labels = labels.copy()
    size = np.bincount(labels, minlength=n)
    share, holding = _summed(weights, labels, n), _held(interested, labels, n)
    union = holding > 0
    for cell in range(len(weights)):
        own = labels[cell]
        if size[own] == 1:
            continue
        row_weight, row = weights[cell : cell + 1], interested[cell : cell + 1]
        size[own], share[own] = size[own] - 1, share[own] - weights[cell]
        holding[own] -= interested[cell]
        union[own] = holding[own] > 0
        distance = _distances(row_weight, row, share, union)[0]
        nearest = int(np.argmin(distance))
        if distance[nearest] >= distance[own]:
            nearest = own
        labels[cell] = nearest
        size[nearest], share[nearest] = size[nearest] + 1, share[nearest] + weights[cell]
        holding[nearest] += interested[cell]
        union[nearest] = holding[nearest] > 0
    return labels


def pairwise(weights: Floats, interested: Bools, n: int) -> Ints:
    """Group cells by uniting the two nearest groups until n are left.

    Implements [STREE03] A.3, pairwise grouping. Cost: O(cells^2 * clients), most of it before the first union.
    """
    share, union = weights.copy(), interested.copy()
    labels = np.arange(len(weights))
    distance = _distances(weights, interested, share, union)
    np.fill_diagonal(distance, np.inf)
    for _ in range(len(weights) - n):
        one, other = sorted(divmod(int(np.argmin(distance)), len(weights)))
        share[one] += share[other]
        union[one] |= union[other]
        labels[labels == other] = one
        distance[other, :] = distance[:, other] = np.inf
        gone = np.isinf(distance[one])
        renewed = _distances(share[one : one + 1], union[one : one + 1], share, union)[0]
        renewed[gone] = np.inf
        distance[one, :] = distance[:, one] = renewed
    return _renumbered(labels)


def spanning_tree(weights: Floats, interested: Bools, n: int) -> Ints:
    """Group cells by the shortest distances between cells, computed once, until n groups are connected.

    Implements [STREE03] A.3, minimum spanning tree (Kruskal). Cost: O(cells^2 * (clients + log cells)).
    """
    distance = _distances(weights, interested, weights, interested)
    one, other = np.triu_indices(len(weights), k=1)
    labels = np.arange(len(weights))
    left = len(weights)
    for edge in np.argsort(distance[one, other], kind="stable"):
        if left <= n:
            break
        a, b = labels[one[edge]], labels[other[edge]]
        if a != b:
            labels[labels == max(a, b)] = min(a, b)
            left -= 1
    return _renumbered(labels)


def _renumbered(labels: Ints) -> Ints:
    """Number groups 0 .. n-1 in the order of their first cells."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


CLUSTERINGS: dict[str, Clustering] = {
    "forgy": forgy,
    "k-means": k_means,
    "pairwise": pairwise,
    "spanning-tree": spanning_tree,
}
