"""The negative space as a tree whose leaves are the negative boxes.

Implements the data structure of [NEG08] §3: disjoint boxes that together are the part of a cube that nothing
covers, found by a tree (§3.1 proposes an R-tree or a KD-tree), and the rectangle splitting of figure 4. The
reductions that use it are in `negative_space.py`.

    cube   ┌────────┬───┐        node 0: bounds of everything negative
           │ a      │ b │        ├── a                 a leaf is a negative box
           ├──┬─────┤   │        └── node 2: bounds of b, c, d, not of the hole
           │c │  s  │   │            ├── b
           ├──┴─────┴───┤            └── node 4
           │ d          │                ├── c
           └────────────┘                └── d

A subscription `s` cuts the leaves it meets; each becomes a subtree of at most 2d pieces, in place. Every
inner node keeps the tight bounds of what is negative below it, so what is covered is passed over at once.
When as much was cut as there are leaves, the tree is built anew by median splits of the same boxes.

Differs from a BSP, where a cut is an inner node: here the boxes do not depend on the tree, so building anew
splits nothing, space is given back as it is, and equal histories hold equal boxes whatever the tree's shape.
"""

from __future__ import annotations

from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from state import formats
from state.arrays import Floats, Ints
from state.kernels import njit
from state.space.boxes import Boxes, Ranks, owned
from state.space.packing import pack_boxes, unpack_boxes

LEAF = -1
"""First child of a negative box."""
DEAD = -2
"""First child of a node below which nothing is negative any more."""
FORMAT = 3
REBALANCE_MIN = 64
"""Cuts below which building anew is not worth a call."""
MERGE_MIN = 64
"""Boxes below which merging is not worth a sort."""
BENEFIT_COST, BENEFIT, COST = 0, 1, 2
"""Selection metrics of `subtract_best`: volume taken out per new box; volume; 1 / new boxes."""

Nodes = NDArray[np.int32]


# --- kernels: a node is a row of `bounds` (d lows, then d highs) and a row of `child` -----------------------


@njit
def _meets(box: Ranks, low: Ranks, high: Ranks) -> bool:
    d = low.shape[0]
    for j in range(d):  # noqa: SIM110  numba compiles no generator inside all()
        if box[j] > high[j] or box[d + j] < low[j]:
            return False
    return True


@njit
def meets_any(bounds: Ranks, child: Nodes, low: Ranks, high: Ranks, stack: Nodes) -> bool:
    """Tell whether some leaf meets the box; stops at the first."""
    if child[0, 0] == DEAD:
        return False
    stack[0] = 0
    depth = 1
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if not _meets(bounds[node], low, high):
            continue
        if child[node, 0] == LEAF:
            return True
        stack[depth], stack[depth + 1] = child[node, 1], child[node, 0]
        depth += 2
    return False


@njit
def collect(
    bounds: Ranks, child: Nodes, low: Ranks, high: Ranks, hits: Nodes, trail: Nodes, stack: Nodes
) -> tuple[int, int]:
    """Write the leaves that meet the box to `hits`, the inner nodes that do to `trail`, parents first."""
    n_hits = n_trail = 0
    if child[0, 0] == DEAD:
        return n_hits, n_trail
    stack[0] = 0
    depth = 1
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if not _meets(bounds[node], low, high):
            continue
        if child[node, 0] == LEAF:
            hits[n_hits] = node
            n_hits += 1
        else:
            trail[n_trail] = node
            n_trail += 1
            stack[depth], stack[depth + 1] = child[node, 1], child[node, 0]
            depth += 2
    return n_hits, n_trail


@njit
def _side(low: int, high: int) -> float:
    """The side of a closed interval as a share of all ranks: a product of sides cannot overflow."""
    # Unsigned subtraction wraps to the true width even where the signed one would overflow.
    return (np.float64(np.uint64(high) - np.uint64(low)) + 1.0) * 2.0**-64


@njit
def _faces(box: Ranks, low: Ranks, high: Ranks) -> int:
    """The number of faces of [low, high] inside `box`: the pieces that a cut leaves."""
    d = low.shape[0]
    count = 0
    for j in range(d):
        if box[j] < low[j]:
            count += 1
        if box[d + j] > high[j]:
            count += 1
    return count


@njit
def _overlap(box: Ranks, low: Ranks, high: Ranks) -> float:
    """The volume of the intersection of two boxes that meet."""
    d = low.shape[0]
    volume = 1.0
    for j in range(d):
        volume *= _side(max(box[j], low[j]), min(box[d + j], high[j]))
    return volume


@njit
def new_boxes(bounds: Ranks, hits: Nodes, low: Ranks, high: Ranks) -> tuple[int, int]:
    """How many boxes more cutting all of `hits` makes (negative: fewer), and how many nodes it takes."""
    new = nodes = 0
    for i in range(hits.shape[0]):
        more = _faces(bounds[hits[i]], low, high) - 1
        new += more
        nodes += 2 * max(more, 0)
    return new, nodes


@njit
def _next_slab(rest: Ranks, low: Ranks, high: Ranks, largest_first: bool) -> tuple[int, bool]:
    """The dimension whose lower or upper end the next piece is cut from; -1: nothing is left over."""
    d = low.shape[0]
    best, best_j, best_upper = -1.0, -1, False
    for j in range(d):
        side = _side(rest[j], rest[d + j])
        if rest[j] < low[j]:
            share = _side(rest[j], low[j] - 1) / side
            if share > best:
                best, best_j, best_upper = share, j, False
        if rest[d + j] > high[j]:
            share = _side(high[j] + 1, rest[d + j]) / side
            if share > best:
                best, best_j, best_upper = share, j, True
        if best_j >= 0 and not largest_first:
            # Figure 4 goes through the dimensions in order, the lower slab first.
            return j, rest[j] >= low[j]
    return best_j, best_upper


@njit
def _pieces(box: Ranks, low: Ranks, high: Ranks, largest_first: bool, pieces: Ranks, rest: Ranks) -> int:
    """Write what is left of `box` outside [low, high] to the rows of `pieces`; return their number."""
    d = low.shape[0]
    count = 0
    rest[:] = box
    while True:
        j, upper = _next_slab(rest, low, high, largest_first)
        if j < 0:
            return count
        pieces[count] = rest
        if upper:
            pieces[count, j] = high[j] + 1
            rest[d + j] = high[j]
        else:
            pieces[count, d + j] = low[j] - 1
            rest[j] = low[j]
        count += 1


@njit
def _unite(bounds: Ranks, node: int, a: int, b: int) -> None:
    d = bounds.shape[1] // 2
    for j in range(d):
        bounds[node, j] = min(bounds[a, j], bounds[b, j])
        bounds[node, d + j] = max(bounds[a, d + j], bounds[b, d + j])


@njit
def cut_leaves(
    bounds: Ranks,
    child: Nodes,
    free: Nodes,
    n_free: int,
    chosen: Nodes,
    trail: Nodes,
    low: Ranks,
    high: Ranks,
    largest_first: bool,
) -> tuple[int, int]:
    """Subtract [low, high] from the leaves `chosen`, then repair the inner nodes of `trail`.

    Returns the number of boxes that it made more, and of free nodes left.
    """
    d = low.shape[0]
    pieces, rest = np.empty((2 * d, 2 * d), np.int64), np.empty(2 * d, np.int64)
    new = 0
    for i in range(chosen.shape[0]):
        node = chosen[i]
        count = _pieces(bounds[node], low, high, largest_first, pieces, rest)
        new += count - 1
        if count == 0:
            child[node, 0] = DEAD
            continue
        n_free = _hang(bounds, child, free, n_free, node, pieces, count)
    return new, _repair(bounds, child, free, n_free, trail)


@njit
def _hang(bounds: Ranks, child: Nodes, free: Nodes, n_free: int, node: int, pieces: Ranks, count: int) -> int:
    """Put a chain of `count` pieces in the place of the leaf `node`; return the number of free nodes left."""
    first = node
    for i in range(count - 1):
        a, b = free[n_free - 1], free[n_free - 2]
        n_free -= 2
        child[node, 0], child[node, 1] = a, b
        bounds[a] = pieces[i]
        child[a, 0] = LEAF
        node = b
    bounds[node] = pieces[count - 1]
    child[node, 0] = LEAF
    # Tight bounds from the bottom of the chain upwards; a chain has at most 2d - 1 links.
    for links in range(count - 2, -1, -1):
        inner = first
        for _ in range(links):
            inner = child[inner, 1]
        _unite(bounds, inner, child[inner, 0], child[inner, 1])
    return n_free


@njit
def _repair(bounds: Ranks, child: Nodes, free: Nodes, n_free: int, trail: Nodes) -> int:
    """Tighten the bounds of `trail` from below and splice out what died; return the number of free nodes."""
    for i in range(trail.shape[0] - 1, -1, -1):
        node = trail[i]
        a, b = child[node, 0], child[node, 1]
        if child[a, 0] != DEAD and child[b, 0] != DEAD:
            _unite(bounds, node, a, b)
            continue
        heir = b if child[a, 0] == DEAD else a
        bounds[node] = bounds[heir]
        child[node, 0], child[node, 1] = child[heir, 0], child[heir, 1]
        free[n_free], free[n_free + 1] = a, b
        n_free += 2
    return n_free


@njit
def _before(metric: Floats, boxes: Ranks, a: int, b: int) -> bool:
    """Whether a comes before b: by metric, ties by the low corner, which no two disjoint boxes share."""
    if metric[a] != metric[b]:
        return metric[a] > metric[b]
    for j in range(boxes.shape[1] // 2):
        if boxes[a, j] != boxes[b, j]:
            return boxes[a, j] < boxes[b, j]
    return False


@njit
def _sift(heap: Ints, size: int, i: int, metric: Floats, boxes: Ranks) -> None:
    while True:
        best = i
        for c in (2 * i + 1, 2 * i + 2):
            if c < size and _before(metric, boxes, heap[c], heap[best]):
                best = c
        if best == i:
            return
        heap[i], heap[best] = heap[best], heap[i]
        i = best


@njit
def _metrics(boxes: Ranks, low: Ranks, high: Ranks, choice: int) -> tuple[Ints, Floats]:
    """For each box the cost of cutting it, in new boxes, and its selection metric for the `choice` made."""
    cost, metric = np.empty(len(boxes), np.int64), np.empty(len(boxes), np.float64)
    for i in range(len(boxes)):
        cost[i] = _faces(boxes[i], low, high) - 1
        if cost[i] <= 0:
            metric[i] = np.inf
            continue
        metric[i] = 1.0 if choice == COST else _overlap(boxes[i], low, high)
        if choice != BENEFIT:
            metric[i] /= cost[i]
    return cost, metric


@njit
def _choose(boxes: Ranks, low: Ranks, high: Ranks, limit: int, choice: int) -> tuple[Ints, int]:
    """Choose among boxes that meet [low, high]: all free ones, then the best that fit into `limit` new boxes.

    Returns their positions and how much of the limit is spent.
    """
    cost, metric = _metrics(boxes, low, high, choice)
    chosen, n_chosen = np.empty(len(boxes), np.int64), 0
    heap, size = np.empty(len(boxes), np.int64), 0
    spent = 0
    for i in range(len(boxes)):
        if cost[i] <= 0:
            chosen[n_chosen] = i
            n_chosen += 1
        else:
            heap[size] = i
            size += 1
    for i in range(size // 2 - 1, -1, -1):
        _sift(heap, size, i, metric, boxes)
    while size > 0 and spent < limit:
        best = heap[0]
        size -= 1
        heap[0] = heap[size]
        _sift(heap, size, 0, metric, boxes)
        if spent + cost[best] <= limit:
            spent += cost[best]
            chosen[n_chosen] = best
            n_chosen += 1
    return chosen[:n_chosen], spent


@njit
def _growth(box: Ranks, new: Ranks) -> tuple[float, float]:
    """The volume that the bounds `box` gain by taking in `new`, and their volume."""
    d = box.shape[0] // 2
    before, after = 1.0, 1.0
    for j in range(d):
        before *= _side(box[j], box[d + j])
        after *= _side(min(box[j], new[j]), max(box[d + j], new[d + j]))
    return after - before, before


@njit
def _insert(bounds: Ranks, child: Nodes, free: Nodes, n_free: int, boxes: Ranks) -> int:
    """Hang each box beside the leaf whose ancestors grow least; return the number of free nodes left."""
    d = bounds.shape[1] // 2
    for i in range(boxes.shape[0]):
        new = boxes[i]
        node = 0
        while child[node, 0] >= 0:
            for j in range(d):
                bounds[node, j] = min(bounds[node, j], new[j])
                bounds[node, d + j] = max(bounds[node, d + j], new[d + j])
            a, b = child[node, 0], child[node, 1]
            node = a if _growth(bounds[a], new) <= _growth(bounds[b], new) else b
        a, b = free[n_free - 1], free[n_free - 2]
        n_free -= 2
        bounds[a], bounds[b] = bounds[node], new
        child[a, 0] = child[b, 0] = LEAF
        child[node, 0], child[node, 1] = a, b
        _unite(bounds, node, a, b)
    return n_free


@njit
def _leaves(bounds: Ranks, child: Nodes, count: int, stack: Nodes) -> Ranks:
    """The rows of all leaves."""
    rows = np.empty((count, bounds.shape[1]), np.int64)
    found = 0
    if child[0, 0] == DEAD:
        return rows
    stack[0] = 0
    depth = 1
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if child[node, 0] == LEAF:
            rows[found] = bounds[node]
            found += 1
        else:
            stack[depth], stack[depth + 1] = child[node, 1], child[node, 0]
            depth += 2
    return rows


@njit
def _select(keys: Floats, index: Ints, first: int, last: int, middle: int) -> None:
    """Partition index[first:last] by its keys around position `middle` (quickselect)."""
    while last - first > 1:
        pivot = keys[index[(first + last) // 2]]
        i, j = first, last - 1
        while i <= j:
            while keys[index[i]] < pivot:
                i += 1
            while keys[index[j]] > pivot:
                j -= 1
            if i <= j:
                index[i], index[j] = index[j], index[i]
                i += 1
                j -= 1
        if middle <= j:
            last = j + 1
        elif middle >= i:
            first = i
        else:
            return


@njit
def _widest(rows: Ranks, index: Ints, scale: Floats) -> int:
    """The dimension in which the centres of the indexed boxes spread most, as a share of the cube."""
    d = scale.shape[0]
    widest, spread_max = 0, -1.0
    for j in range(d):
        least, most = np.inf, -np.inf
        for i in index:
            centre = 0.5 * rows[i, j] + 0.5 * rows[i, d + j]
            least, most = min(least, centre), max(most, centre)
        spread = (most - least) / scale[j]
        if spread > spread_max:
            widest, spread_max = j, spread
    return widest


@njit
def _build(rows: Ranks, bounds: Ranks, child: Nodes, scale: Floats) -> int:
    """Build the tree of `rows` (at least one) by median splits of the centres; return the nodes used."""
    d = scale.shape[0]
    index = np.arange(len(rows))
    keys = np.empty(len(rows), np.float64)
    todo = np.empty((128, 3), np.int64)
    todo[0] = np.array([0, 0, len(rows)])
    depth, used = 1, 1
    while depth > 0:
        depth -= 1
        node, first, last = todo[depth]
        bounds[node] = rows[index[first]]
        for i in index[first + 1 : last]:
            for j in range(d):
                bounds[node, j] = min(bounds[node, j], rows[i, j])
                bounds[node, d + j] = max(bounds[node, d + j], rows[i, d + j])
        if last - first == 1:
            child[node, 0] = LEAF
            continue
        j = _widest(rows, index[first:last], scale)
        for i in index[first:last]:
            keys[i] = 0.5 * rows[i, j] + 0.5 * rows[i, d + j]
        middle = (first + last) // 2
        _select(keys, index, first, last, middle)
        child[node, 0], child[node, 1] = used, used + 1
        todo[depth, 0], todo[depth, 1], todo[depth, 2] = used, first, middle
        todo[depth + 1, 0], todo[depth + 1, 1], todo[depth + 1, 2] = used + 1, middle, last
        depth, used = depth + 2, used + 2
    return used


_MIX = np.uint64(0x9E3779B97F4A7C15)


@njit
def _place(lows: Ranks, highs: Ranks, i: int, j: int, start: int, mask: np.uint64) -> np.uint64:
    """Where a hash table has the box that is as row i in all dimensions but j, in which it begins at `start`."""
    place = np.uint64(start) * _MIX
    for k in range(lows.shape[1]):
        if k != j:
            place = (place ^ (place >> np.uint64(29)) ^ np.uint64(lows[i, k])) * _MIX
            place = (place ^ (place >> np.uint64(29)) ^ np.uint64(highs[i, k])) * _MIX
    return (place ^ (place >> np.uint64(32))) & mask


@njit
def _joined(lows: Ranks, highs: Ranks, j: int) -> tuple[Ranks, Ranks]:
    """Disjoint boxes, those joined that touch along dimension j and are equal in all others. Cost: O(n d), expected."""
    n, d = lows.shape
    size = 16
    while size < 2 * n:
        size *= 2
    mask, table = np.uint64(size - 1), np.full(size, -1)
    for i in range(n):
        place = _place(lows, highs, i, j, lows[i, j], mask)
        while table[place] >= 0:
            place = (place + np.uint64(1)) & mask
        table[place] = i
    after, is_first = np.full(n, -1), np.ones(n, np.bool_)
    for i in range(n):
        if highs[i, j] == np.iinfo(np.int64).max:
            continue
        place = _place(lows, highs, i, j, highs[i, j] + 1, mask)
        while table[place] >= 0 and after[i] < 0:
            other = table[place]
            alike = lows[other, j] == highs[i, j] + 1
            for k in range(d):
                alike &= k == j or (lows[other, k] == lows[i, k] and highs[other, k] == highs[i, k])
            if alike:
                after[i], is_first[other] = other, False
            place = (place + np.uint64(1)) & mask
    firsts = np.flatnonzero(is_first)
    joined = highs[firsts]
    for at in range(len(firsts)):
        last = firsts[at]
        while after[last] >= 0:
            last = after[last]
        joined[at, j] = highs[last, j]
    return lows[firsts], joined


def warm() -> None:
    """Compile or load every kernel of the tree."""
    tree = NegativeTree(Boxes.of([([0], [99])]))
    for i in range(2, 90, 3):
        tree.subtract(np.array([i]), np.array([i]))
    tree.subtract_best(np.array([20]), np.array([40]), 1)
    tree.add(Boxes.of([([30], [35])]))
    tree.covered(np.array([2]), np.array([2]))
    NegativeTree.decode(tree.encode())
    tree.merge(1)


# --- the tree -----------------------------------------------------------------------------------------------


class _Packed(msgspec.Struct, array_like=True):
    largest_first: bool
    merged_at: int
    boxes: bytes


class NegativeTree:
    """Disjoint negative boxes and the tree that finds them.

    Invariant: the leaves are disjoint; an inner node's bounds are the tight bounds of its leaves; every node
    is in the tree or free. The set of boxes depends on the calls alone, never on the tree's shape, so a
    decoded tree goes on exactly like the one that was encoded.

    The example of [NEG08] figures 2 and 5, on [0, 1000]²:

    >>> tree = NegativeTree(Boxes.of([([0, 0], [1000, 1000])]), largest_first=False)
    >>> low = np.array([[175, 180], [405, 110], [380, 230]])
    >>> high = np.array([[510, 680], [840, 540], [720, 495]])
    >>> tree.covered(low[0], high[0]), tree.subtract(low[0], high[0]), len(tree)
    (False, True, 4)
    >>> tree.covered(low[1], high[1]), tree.subtract(low[1], high[1]), len(tree)
    (False, True, 7)
    >>> tree.covered(low[2], high[2])
    True
    """

    _n_free: int

    def __init__(self, negative: Boxes, largest_first: bool = True) -> None:
        """Start with the disjoint boxes `negative`: at first the cube, which is empty beyond an attribute's few values.

        `largest_first` cuts the largest slab of a leaf first. Differs: figure 4 cuts dimension by dimension
        (`largest_first=False`); fat pieces are cut again less often, which leaves fewer of them
        (`python -m benchmarks.negative_space merging` prints both).
        """
        self.d = negative.d
        self.largest_first = largest_first
        self._merged_at = 0
        negative = negative.take(np.flatnonzero((negative.lows <= negative.highs).all(axis=1)))
        self._build_from(np.hstack([negative.lows, negative.highs]))

    def __len__(self) -> int:
        """The number of negative boxes."""
        return self._count

    # --- questions

    def covered(self, low: Ranks, high: Ranks) -> bool:
        """Tell whether nothing of the box [low, high] is negative ([NEG08] proposition 1).

        Cost: a walk to the first negative box that meets it, or past all that do not.
        """
        return not meets_any(self._bounds, self._child, owned(low), owned(high), self._stack)

    def meeting(self, low: Ranks, high: Ranks) -> Boxes:
        """The parts of the negative boxes inside [low, high], in the order of their low corners."""
        n_hits, _ = self._find(owned(low), owned(high))
        rows = self._bounds[self._hits[:n_hits]]
        return in_order(Boxes(np.maximum(rows[:, : self.d], low), np.minimum(rows[:, self.d :], high)))

    def boxes(self) -> Boxes:
        """The negative boxes, in the order of their low corners."""
        return in_order(self._split(_leaves(self._bounds, self._child, self._count, self._stack)))

    def volume(self) -> int:
        """The number of points that are negative, exactly. Cost: O(n * d) on Python integers."""
        return volume(self.boxes())

    # --- changes

    def subtract(self, low: Ranks, high: Ranks, budget: int | None = None) -> bool:
        """Take [low, high] out of the negative space ([NEG08] figures 4 and 6, lines 8 to 14).

        With a `budget`, a cut that would leave more boxes than that is not made and the answer is False.
        Differs: figure 4 line 10 keeps s(d) where s(d) ∩ r(d) is meant; as printed, pieces leave their box.
        Guarantee: at most 2d - 1 boxes more per box hit (proposition 2).
        Cost: O(hits * d²) after the walk; now and then O(n log n) to build anew, paid by as many cuts.
        """
        low, high = owned(low), owned(high)
        n_hits, n_trail = self._find(low, high)
        if n_hits == 0:
            return True
        hits = self._hits[:n_hits]
        new, nodes = new_boxes(self._bounds, hits, low, high)
        if budget is not None and new > 0 and self._count + new > budget:
            return False
        self._cut(hits, n_trail, low, high, nodes)
        return True

    def subtract_best(self, low: Ranks, high: Ranks, limit: int, choice: int = BENEFIT_COST) -> tuple[Boxes, int]:
        """Cut every free trim, then the best boxes within `limit` new ones ([NEG08] figure 8, lines 8 to 29).

        Returns what was taken out, its CoveredBy, in no order, and how much of the limit was spent; `choice`
        is the selection metric. Differs: the limit is on *net* new boxes, never overshot
        (a box that does not fit is passed over), and an emptied box is free; figure 8 counts pieces, goes a
        step beyond k, never takes the chosen box off its list, and does not ask whether the list is empty.
        """
        low, high = owned(low), owned(high)
        n_hits, n_trail = self._find(low, high)
        if n_hits == 0:
            return Boxes.empty(self.d), 0
        rows = self._bounds[self._hits[:n_hits]]
        chosen, spent = _choose(rows, low, high, limit, choice)
        nodes, rows = self._hits[chosen], rows[chosen]
        taken = Boxes(np.maximum(rows[:, : self.d], low), np.minimum(rows[:, self.d :], high))
        self._cut(nodes, n_trail, low, high, 2 * spent)
        return taken, int(spent)

    def add(self, boxes: Boxes) -> None:
        """Give space back: `boxes`, disjoint and from what is negative too, become negative."""
        rows = np.hstack([boxes.lows, boxes.highs])
        if len(rows) >= self._count:
            self._build_from(np.concatenate([_leaves(self._bounds, self._child, self._count, self._stack), rows]))
            return
        self._reserve(2 * len(rows))
        self._n_free = _insert(self._bounds, self._child, self._free, self._n_free, rows)
        self._count += len(rows)
        self._changed(len(rows))

    def merge(self, sweeps: int) -> tuple[int, int]:
        """Join neighbours that form a box, in at most `sweeps` sweeps; return the boxes before and after.

        The future work of [NEG08] §7. Cost: O(n) per sweep and a sort; ends early once no dimension joins anything.
        """
        before = self._count
        merged = merged_boxes(self._split(_leaves(self._bounds, self._child, self._count, self._stack)), sweeps)
        if len(merged) < before:
            self._build_from(np.hstack([merged.lows, merged.highs]))
        self._merged_at = self._count
        return before, self._count

    def merges_above(self, sweeps: int) -> int:
        """How many boxes there may be until they are merged."""
        return 2 * max(MERGE_MIN, self._merged_at) if sweeps else int(np.iinfo(np.int64).max)

    def merge_if_grown(self, sweeps: int) -> int:
        """Merge once the boxes have doubled since the last time; return how many fewer they are."""
        if self._count <= self.merges_above(sweeps):
            return 0
        before, after = self.merge(sweeps)
        return before - after

    # --- state

    def encode(self) -> bytes:
        """Pack the boxes, the order of cuts and when they were merged; the first byte is the format number."""
        return formats.write(FORMAT, _Packed(self.largest_first, self._merged_at, pack_boxes(self.boxes())))

    @classmethod
    def decode(cls, blob: bytes) -> Self:
        """The tree of the boxes that `encode` packed."""
        packed = formats.read("a negative tree", FORMAT, blob, _Packed)
        tree = cls(unpack_boxes(packed.boxes), packed.largest_first)
        tree._merged_at = packed.merged_at
        return tree

    def check(self) -> None:
        """Assert every invariant. Cost: O(n log n) for boxes that are no long slabs."""
        seen, leaves = np.zeros(len(self._child), np.int64), 0
        todo = [0] if self._child[0, 0] != DEAD else []
        seen[0] = not todo
        while todo:
            node = todo.pop()
            seen[node] += 1
            a, b = self._child[node]
            if a == LEAF:
                leaves += 1
                assert _meets_once(self, node), "two negative boxes overlap"
                continue
            assert a >= 0, "a dead node hangs in the tree"
            d = self.d
            assert (self._bounds[node, :d] == np.minimum(self._bounds[a, :d], self._bounds[b, :d])).all()
            assert (self._bounds[node, d:] == np.maximum(self._bounds[a, d:], self._bounds[b, d:])).all()
            todo += [int(a), int(b)]
        assert leaves == self._count
        seen[self._free[: self._n_free]] += 1
        assert (seen == 1).all(), "a node is lost or used twice"
        self.boxes().check()

    # --- inside

    def _find(self, low: Ranks, high: Ranks) -> tuple[int, int]:
        return collect(self._bounds, self._child, low, high, self._hits, self._trail, self._stack)

    def _cut(self, leaves: Nodes, n_trail: int, low: Ranks, high: Ranks, nodes: int) -> None:
        trail = self._trail[:n_trail]
        self._reserve(nodes)
        new, self._n_free = cut_leaves(
            self._bounds, self._child, self._free, self._n_free, leaves, trail, low, high, self.largest_first
        )
        self._count += new
        self._changed(len(leaves))

    def _changed(self, boxes: int) -> None:
        self._changes += boxes
        if self._changes > self._count + REBALANCE_MIN:
            self._build_from(_leaves(self._bounds, self._child, self._count, self._stack))

    def _build_from(self, rows: Ranks) -> None:
        capacity = max(64, 3 * len(rows))
        self._bounds = np.empty((capacity, 2 * self.d), np.int64)
        self._child = np.full((capacity, 2), LEAF, np.int32)
        self._count = len(rows)
        self._changes = 0
        used = 1
        if len(rows):
            scale = (rows[:, self.d :].max(axis=0).astype(float) - rows[:, : self.d].min(axis=0).astype(float)) + 1.0
            used = _build(np.ascontiguousarray(rows), self._bounds, self._child, scale)
        else:
            self._child[0, 0] = DEAD
        self._free = np.empty(capacity, np.int32)
        self._n_free = capacity - used
        self._free[: self._n_free] = np.arange(capacity - 1, used - 1, -1)
        self._scratch(capacity)

    def _reserve(self, nodes: int) -> None:
        if self._n_free >= nodes:
            return
        old = len(self._child)
        capacity = 2 * old + nodes
        self._bounds = np.concatenate([self._bounds, np.empty((capacity - old, 2 * self.d), np.int64)])
        self._child = np.concatenate([self._child, np.full((capacity - old, 2), LEAF, np.int32)])
        fresh = np.arange(capacity - 1, old - 1, -1, dtype=np.int32)
        self._free = np.concatenate([fresh, self._free[: self._n_free], np.empty(old - self._n_free, np.int32)])
        self._n_free += capacity - old
        self._scratch(capacity)

    def _scratch(self, capacity: int) -> None:
        self._hits = np.empty(capacity, np.int32)
        self._trail = np.empty(capacity, np.int32)
        self._stack = np.empty(capacity + 2, np.int32)

    def _split(self, rows: Ranks) -> Boxes:
        return Boxes(np.ascontiguousarray(rows[:, : self.d]), np.ascontiguousarray(rows[:, self.d :]))


def _meets_once(tree: NegativeTree, node: int) -> bool:
    row = tree._bounds[node]
    return tree._find(row[: tree.d].copy(), row[tree.d :].copy())[0] == 1


# --- boxes --------------------------------------------------------------------------------------------------


def in_order(boxes: Boxes) -> Boxes:
    """Disjoint boxes in the order of their low corners: the same for the same set."""
    order = np.lexsort(boxes.lows.T[::-1])
    return boxes.take(order)


def volume(boxes: Boxes) -> int:
    """The sum of the boxes' numbers of points, exactly."""
    total = 0
    for low, high in zip(boxes.lows.tolist(), boxes.highs.tolist(), strict=True):
        points = 1
        for a, b in zip(low, high, strict=True):
            points *= b - a + 1
        total += points
    return total


def merged_boxes(boxes: Boxes, sweeps: int) -> Boxes:
    """Join disjoint boxes that differ in one dimension only and touch there, within `sweeps` sweeps.

    >>> row = Boxes.of([([0, 0], [0, 4]), ([1, 0], [3, 4]), ([4, 0], [9, 3]), ([4, 4], [9, 4])])
    >>> len(merged_boxes(row, 1)), len(merged_boxes(row, 4))
    (3, 1)
    """
    idle = 0
    for sweep in range(sweeps):
        before = len(boxes)
        boxes = _joined_along(boxes, sweep % boxes.d)
        idle = idle + 1 if len(boxes) == before else 0
        if idle == boxes.d or len(boxes) < 2:
            break
    return in_order(boxes)


def _joined_along(boxes: Boxes, j: int) -> Boxes:
    """Join every run of boxes that touch along dimension j and are equal in all others."""
    lows, highs = _joined(boxes.lows, boxes.highs, j)
    return boxes if len(lows) == len(boxes) else Boxes(lows, highs)
