"""A tree over numbered boxes, updated in place: which of them meet, contain, or lie inside a box.

A box of d dimensions is one point of 2d numbers, its lows and then its highs, and the three questions are one: which
points lie between a floor and a ceiling?

                     floor            ceiling                 node   least and greatest of each number below it
    meets q          -inf .. q.low    q.high .. +inf          ├── numbers[dimension] <= value
    contains q       -inf .. q.high   q.low  .. +inf          └── the others
    lies inside q    q.low .. -inf    +inf   .. q.high        leaf   a list of up to `LEAF_MAX` rows

So wide boxes and narrow ones part by themselves, and a node is passed over by what all its boxes have in common, be it
where they begin or where they end. Rows that are equal stay in one leaf. Bounds only grow: when as many rows came and
went as there are, the tree is built anew.

Answers come in the order of the rows, whatever the tree's shape: nothing of it is ever packed or told.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from state.arrays import Floats, Ints
from state.kernels import njit
from state.space.boxes import Ranks

LEAF_MAX = 16
"""Rows of a leaf, unless they are equal."""
CHANGES_MIN = 256
"""Rows that come and go before a tree is built anew, at least."""
NONE = -1
CORNER_BITS = 4
"""Dimensions whose both ends are tried as corners; of the others the lower one."""
SAMPLE = 32
"""Rows of a node that choose where to part it."""
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

Links = NDArray[np.int32]


# --- kernels: node k has bounds[k] = 2d least then 2d greatest numbers, parts[k] = dimension and value,
# --- links[k] = its two children, or NONE, head of its list and size


@njit
def between(points: Ranks, row: int, floor: Ranks, ceiling: Ranks) -> bool:
    """Whether a row lies between."""
    for j in range(len(floor)):  # noqa: SIM110  numba compiles no generator inside all()
        if points[row, j] < floor[j] or points[row, j] > ceiling[j]:
            return False
    return True


@njit
def _may_hold(bounds: Ranks, node: int, floor: Ranks, ceiling: Ranks) -> bool:
    n = len(floor)
    for j in range(n):  # noqa: SIM110
        if bounds[node, n + j] < floor[j] or bounds[node, j] > ceiling[j]:
            return False
    return True


@njit
def search(
    points: Ranks, bounds: Ranks, links: Links, chain: Links, stack: Links, floor: Ranks, ceiling: Ranks, found: Ints
) -> int:
    """Write the rows between to `found`, in no order; return how many."""
    count, depth = 0, 1
    stack[0] = 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if not _may_hold(bounds, node, floor, ceiling):
            continue
        if links[node, 0] == NONE:
            row = links[node, 2]
            while row != NONE:
                if between(points, row, floor, ceiling):
                    found[count] = row
                    count += 1
                row = chain[row, 0]
        else:
            stack[depth], stack[depth + 1] = links[node, 0], links[node, 1]
            depth += 2
    return count


@njit
def search_first(
    points: Ranks, bounds: Ranks, links: Links, chain: Links, stack: Links, floor: Ranks, ceiling: Ranks
) -> int:
    """The lowest row between, or -1."""
    best, depth = NONE, 1
    stack[0] = 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if not _may_hold(bounds, node, floor, ceiling):
            continue
        if links[node, 0] == NONE:
            row = links[node, 2]
            while row != NONE:
                if (best == NONE or row < best) and between(points, row, floor, ceiling):
                    best = row
                row = chain[row, 0]
        else:
            stack[depth], stack[depth + 1] = links[node, 0], links[node, 1]
            depth += 2
    return best


@njit
def search_any(
    points: Ranks, bounds: Ranks, links: Links, chain: Links, stack: Links, floor: Ranks, ceiling: Ranks
) -> bool:
    """Whether any row lies between."""
    depth = 1
    stack[0] = 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if not _may_hold(bounds, node, floor, ceiling):
            continue
        if links[node, 0] == NONE:
            row = links[node, 2]
            while row != NONE:
                if between(points, row, floor, ceiling):
                    return True
                row = chain[row, 0]
        else:
            stack[depth], stack[depth + 1] = links[node, 0], links[node, 1]
            depth += 2
    return False


@njit
def ask_corner(low: Ranks, high: Ranks, corner: int, floor: Ranks, ceiling: Ranks) -> None:
    """Ask for what holds a corner of a box: bit j of `corner` says which end of dimension j."""
    d = len(low)
    for j in range(d):
        value = high[j] if j < CORNER_BITS and corner >> j & 1 else low[j]
        floor[j], floor[d + j] = LEAST, value
        ceiling[j], ceiling[d + j] = value, MOST


@njit
def open_corner(
    points: Ranks,
    bounds: Ranks,
    links: Links,
    chain: Links,
    stack: Links,
    low: Ranks,
    high: Ranks,
    floor: Ranks,
    ceiling: Ranks,
) -> int:
    """The first corner of a box that no row holds, or -1; `floor` and `ceiling` are written over."""
    for corner in range(1 << min(len(low), CORNER_BITS)):
        ask_corner(low, high, corner, floor, ceiling)
        if not search_any(points, bounds, links, chain, stack, floor, ceiling):
            return corner
    return NONE


@njit
def _widen(bounds: Ranks, node: int, points: Ranks, row: int) -> None:
    n = points.shape[1]
    for j in range(n):
        bounds[node, j] = min(bounds[node, j], points[row, j])
        bounds[node, n + j] = max(bounds[node, n + j], points[row, j])


@njit
def _leaf(bounds: Ranks, links: Links, node: int) -> None:
    """Make a node an empty leaf."""
    n = bounds.shape[1] // 2
    bounds[node, :n], bounds[node, n:] = MOST, LEAST
    links[node, 0] = links[node, 1] = links[node, 2] = NONE
    links[node, 3] = 0


@njit
def _push(bounds: Ranks, links: Links, chain: Links, node: int, points: Ranks, row: int) -> None:
    """Put a row at the head of a leaf's list."""
    _widen(bounds, node, points, row)
    head = links[node, 2]
    chain[row, 0], chain[row, 1] = head, NONE
    if head != NONE:
        chain[head, 1] = row
    links[node, 2] = row
    links[node, 3] += 1


@njit
def _spread(bounds: Ranks, node: int, scale: Floats) -> int:
    """The dimension in which a node's rows differ most, as a share of all; -1 if they are equal."""
    n = len(scale)
    widest, most = NONE, 0.0
    for j in range(n):
        low, high = bounds[node, j], bounds[node, n + j]
        # Unsigned subtraction wraps to the true width.
        share = np.float64(np.uint64(high) - np.uint64(low)) * scale[j] if high > low else 0.0
        if share > most:
            widest, most = j, share
    return widest


@njit
def _value(points: Ranks, rows: Ints, dimension: int, high: int) -> int:
    """A value of `dimension` near the median, below `high`, the greatest there is."""
    step = max(1, len(rows) // SAMPLE)
    sample = np.sort(points[rows[::step], dimension])
    value = sample[(len(sample) - 1) // 2]
    if value < high:
        return value
    value = LEAST
    for row in rows:
        if points[row, dimension] < high:
            value = max(value, points[row, dimension])
    return value


@njit
def _part(bounds: Ranks, parts: Ranks, links: Links, chain: Links, points: Ranks, node: int, used: int) -> None:
    """Make a leaf of rows that differ an inner node with two leaves, numbered `used` and `used` + 1."""
    dimension, value = parts[node]
    row = links[node, 2]
    links[node, 0], links[node, 1], links[node, 2] = used, used + 1, NONE
    _leaf(bounds, links, used)
    _leaf(bounds, links, used + 1)
    while row != NONE:
        following = chain[row, 0]
        _push(bounds, links, chain, used if points[row, dimension] <= value else used + 1, points, row)
        row = following


@njit
def insert(
    bounds: Ranks, parts: Ranks, links: Links, chain: Links, points: Ranks, row: int, used: int, scale: Floats
) -> int:
    """Take a row in; return the number of nodes (there must be room for two more)."""
    node = 0
    while links[node, 0] != NONE:
        _widen(bounds, node, points, row)
        node = links[node, 0] if points[row, parts[node, 0]] <= parts[node, 1] else links[node, 1]
    _push(bounds, links, chain, node, points, row)
    if links[node, 3] <= LEAF_MAX:
        return used
    # What went has left the bounds wider than what is there.
    n = len(scale)
    bounds[node, :n], bounds[node, n:] = MOST, LEAST
    rows = np.empty(links[node, 3], np.int64)
    at = links[node, 2]
    for i in range(len(rows)):
        rows[i] = at
        _widen(bounds, node, points, at)
        at = chain[at, 0]
    dimension = _spread(bounds, node, scale)
    if dimension == NONE:
        return used
    parts[node, 0], parts[node, 1] = dimension, _value(points, rows, dimension, bounds[node, n + dimension])
    _part(bounds, parts, links, chain, points, node, used)
    return used + 2


@njit
def insert_all(
    bounds: Ranks,
    parts: Ranks,
    links: Links,
    chain: Links,
    points: Ranks,
    first: int,
    end: int,
    used: int,
    scale: Floats,
) -> int:
    """Take the rows first..end - 1 in; return the number of nodes (there must be room for two more each)."""
    for row in range(first, end):
        used = insert(bounds, parts, links, chain, points, row, used, scale)
    return used


@njit
def remove(parts: Ranks, links: Links, chain: Links, points: Ranks, row: int) -> None:
    """Take a row out; its numbers are what they were when it came."""
    node = 0
    while links[node, 0] != NONE:
        node = links[node, 0] if points[row, parts[node, 0]] <= parts[node, 1] else links[node, 1]
    before, after = chain[row, 1], chain[row, 0]
    if before == NONE:
        links[node, 2] = after
    else:
        chain[before, 0] = after
    if after != NONE:
        chain[after, 1] = before
    links[node, 3] -= 1


@njit
def _arrange(rows: Ints, first: int, last: int, points: Ranks, dimension: int, value: int) -> int:
    """Bring the rows up to `value` to the front of first..last; return where the others begin."""
    i, j = first, last - 1
    while i <= j:
        if points[rows[i], dimension] <= value:
            i += 1
        else:
            rows[i], rows[j] = rows[j], rows[i]
            j -= 1
    return i


@njit
def build(bounds: Ranks, parts: Ranks, links: Links, chain: Links, points: Ranks, rows: Ints, scale: Floats) -> int:
    """Build the tree of `rows`, which it puts in another order; return the number of nodes."""
    n = points.shape[1]
    todo = np.empty((len(links) + 1, 3), np.int64)
    todo[0, 0], todo[0, 1], todo[0, 2] = 0, 0, len(rows)
    depth, used = 1, 1
    while depth > 0:
        depth -= 1
        node, first, last = todo[depth]
        _leaf(bounds, links, node)
        for i in range(first, last):
            _widen(bounds, node, points, rows[i])
        if node == 0:
            for j in range(n):
                scale[j] = 1.0 / (np.float64(np.uint64(bounds[0, n + j]) - np.uint64(bounds[0, j])) + 1.0)
        dimension = _spread(bounds, node, scale) if last - first > LEAF_MAX else NONE
        if dimension == NONE:
            for i in range(first, last):
                _push(bounds, links, chain, node, points, rows[i])
            continue
        value = _value(points, rows[first:last], dimension, bounds[node, n + dimension])
        middle = _arrange(rows, first, last, points, dimension, value)
        parts[node, 0], parts[node, 1] = dimension, value
        links[node, 0], links[node, 1] = used, used + 1
        todo[depth, 0], todo[depth, 1], todo[depth, 2] = used, first, middle
        todo[depth + 1, 0], todo[depth + 1, 1], todo[depth + 1, 2] = used + 1, middle, last
        depth, used = depth + 2, used + 2
    return used


# --- the tree -----------------------------------------------------------------------------------------------


class RowTree:
    """The tree of some rows of `points`, which stay where they are until it is told.

    Cost, n rows: built in O(n log n); a row comes or goes in O(log n), amortised; a question costs the nodes that may
    hold an answer and their rows.
    """

    def __init__(self, points: Ranks, rows: Ints) -> None:
        self._points = points
        self._chain = np.empty((len(points), 2), np.int32)
        self._found = np.empty(len(points), np.int64)
        self._build(rows)

    def _build(self, rows: Ints) -> None:
        # Each inner node parts rows that differ, so there are fewer than twice as many nodes as rows.
        self._allocate(2 * len(rows) + 64)
        self._scale = np.ones(self._points.shape[1])
        self._used = int(
            build(self._bounds, self._parts, self._links, self._chain, self._points, rows.copy(), self._scale)
        )
        self._count, self._changes = len(rows), 0

    def _allocate(self, nodes: int) -> None:
        self._bounds = np.empty((nodes, 2 * self._points.shape[1]), np.int64)
        self._parts = np.zeros((nodes, 2), np.int64)
        self._links = np.empty((nodes, 4), np.int32)
        self._stack = np.empty(nodes + 2, np.int32)

    # --- changes

    def add(self, row: int) -> None:
        """Take in a row of `points`."""
        self.make_room(1)
        self._used = int(
            insert(self._bounds, self._parts, self._links, self._chain, self._points, row, self._used, self._scale)
        )
        self._count += 1
        self._changed()

    def add_all(self, first: int, end: int) -> None:
        """Take in the rows first..end - 1 of `points`: one by one, or where they are most of them all anew."""
        if end - first > self._count:
            self._build(np.concatenate([self.rows(), np.arange(first, end)]))
            return
        self.make_room(end - first)
        self._used = int(
            insert_all(
                self._bounds, self._parts, self._links, self._chain, self._points, first, end, self._used, self._scale
            )
        )
        self._count += end - first
        self._changed(end - first)

    def remove(self, row: int) -> None:
        """Take out a row, whose numbers are still what they were."""
        remove(self._parts, self._links, self._chain, self._points, row)
        self._count -= 1
        self._changed()

    def _changed(self, rows: int = 1) -> None:
        self._changes += rows
        if self._changes > self._count + CHANGES_MIN:
            self._build(self.rows())

    def make_room(self, rows: int) -> None:
        """Room for the nodes that so many rows may need."""
        if self._used + 2 * rows <= len(self._links):
            return
        bounds, parts, links = self._bounds, self._parts, self._links
        self._allocate(2 * len(links) + 2 * rows)
        self._bounds[: len(links)], self._parts[: len(links)], self._links[: len(links)] = bounds, parts, links

    # --- for passes that take rows in

    @property
    def arrays(self) -> tuple[Ranks, Ranks, Ranks, Links, Links, Links, Floats, int]:
        """The points, the nodes, the chain, room for a walk, the scale, and how many nodes there are."""
        nodes = (self._bounds, self._parts, self._links, self._chain, self._stack, self._scale)
        return self._points, *nodes, self._used

    def took_in(self, used: int, rows: int) -> None:
        """Go on from so many nodes, so many rows more."""
        self._used = used
        self._count += rows
        self._changed(rows)

    # --- questions

    def between(self, floor: Ranks, ceiling: Ranks) -> Ints:
        """The rows between, in their order."""
        count = search(self._points, self._bounds, self._links, self._chain, self._stack, floor, ceiling, self._found)
        return np.sort(self._found[:count])

    def first_between(self, floor: Ranks, ceiling: Ranks) -> int:
        """The lowest row between, or -1."""
        return int(search_first(self._points, self._bounds, self._links, self._chain, self._stack, floor, ceiling))

    def rows(self) -> Ints:
        """All rows, in their order."""
        n = self._points.shape[1]
        return self.between(np.full(n, LEAST), np.full(n, MOST))

    def check(self) -> None:
        """Assert: every row is in the leaf that it leads to, and within the bounds of all nodes above it."""
        todo: list[tuple[int, list[tuple[int, int, bool]]]] = [(0, [])]
        seen = 0
        while todo:
            node, above = todo.pop()
            left, right, row, size = self._links[node].tolist()
            if left != NONE:
                dimension, value = self._parts[node].tolist()
                todo += [(left, [*above, (dimension, value, True)]), (right, [*above, (dimension, value, False)])]
                for child in (left, right):
                    self._check_bounds(node, self._bounds[child])
                continue
            before = NONE
            while row != NONE:
                assert self._chain[row, 1] == before
                self._check_bounds(node, np.tile(self._points[row], 2))
                assert all((self._points[row, j] <= value) == is_left for j, value, is_left in above)
                before, row, size, seen = row, int(self._chain[row, 0]), size - 1, seen + 1
            assert size == 0
        assert seen == self._count

    def _check_bounds(self, node: int, inner: Ranks) -> None:
        n = self._points.shape[1]
        empty = inner[0] > inner[n]
        assert empty or (self._bounds[node, :n] <= inner[:n]).all()
        assert empty or (self._bounds[node, n:] >= inner[n:]).all()
