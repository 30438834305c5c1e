"""The conflict table of one box against a set of boxes, and what can be read off it at once.

Implements [RSPC06] definitions 2, 3 and 5, corollaries 1 to 3, proposition 3 and the minimised cover set (§4.2,
Algorithm 2). Row i has two cells for each attribute x: `x < low_i` and `x > high_i`, the negated predicates of s_i;
a cell is *defined* if some point of the new box s satisfies it, that is, if s_i leaves something of s on that side.

            s                      row s1:  -        x > 850  -        -
      ┌───────────┐                row s2:  x < 840  -        -        -
    ┌─┼──────┐    │
    │s1   ┌──┼────┼─┐              the two defined cells *conflict*: no x is both > 850 and < 840,
    └─┼───┼──┘ s2 │ │              so no corner of s escapes both: s is covered
      └───┼───────┘ │
          └─────────┘

A choice of one defined cell from each row, no two in conflict, is a box inside s and outside every s_i: the
*polyhedron witness*. Cells of one attribute are intervals, and intervals that meet in pairs meet in a point, so
pairs are all that has to be looked at.

Differs: Algorithm 2 line 8 prints `f_c >= 0` for `>= 1` and starts from S in every round; conflict-free cells are found
from the two extreme cells of each attribute, O(m k) a round where the paper has O(m² k²); what §4.2 says of duplicates
(rows that cover the same part of s) and the algorithm omits is done too: a row inside another row goes. The removals
are remembered, so that a witness against the minimised set grows into one against the whole set (`grown`).
Left out: predicates on finite sets (technical report [15] of the paper); here every attribute is a rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from state.arrays import Bools, Ints
from state.kernels import njit
from state.space.boxes import Ranks

# --- kernels: s is low..high, s_i is row i of lows..highs ---------------------------------------------------


@njit
def defined(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks) -> Bools:
    """The table: column 2j is `x_j < low_i`, column 2j + 1 is `x_j > high_i`."""
    k, m = lows.shape
    table = np.empty((k, 2 * m), np.bool_)
    for i in range(k):
        for j in range(m):
            table[i, 2 * j] = lows[i, j] > low[j]
            table[i, 2 * j + 1] = highs[i, j] < high[j]
    return table


@njit
def _covering(table: Bools) -> int:
    """The first row without a defined cell, or -1."""
    for i in range(table.shape[0]):
        if not table[i].any():
            return i
    return -1


@njit
def _ascending(table: Bools) -> Ints:
    """The rows by their number t of defined cells, if the j-th of them has at least j (corollary 3); else none."""
    k = table.shape[0]
    t = np.empty(k, np.int64)
    for i in range(k):
        t[i] = table[i].sum()
    order = np.argsort(t, kind="mergesort")
    for j in range(k):
        if t[order[j]] < j + 1:
            return order[:0]
    return order


@njit
def _extremes(
    low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, table: Bools, alive: Bools, ends: Ranks, holders: Ranks
) -> None:
    """For each attribute the two highest lower ends (of `x > high_i`) and the two lowest upper ends, and who has them.

    `ends[j]` is (highest lower, second, lowest upper, second), clipped to s; `holders[j]` the rows of the first ones.
    """
    k, m = lows.shape
    for j in range(m):
        ends[j, 0] = ends[j, 1] = low[j]
        ends[j, 2] = ends[j, 3] = high[j]
        holders[j, 0] = holders[j, 1] = -1
        for i in range(k):
            if not alive[i]:
                continue
            if table[i, 2 * j + 1]:
                end = max(highs[i, j] + 1, low[j])
                if end > ends[j, 0]:
                    ends[j, 1], ends[j, 0], holders[j, 0] = ends[j, 0], end, i
                elif end > ends[j, 1]:
                    ends[j, 1] = end
            if table[i, 2 * j]:
                end = min(lows[i, j] - 1, high[j])
                if end < ends[j, 2]:
                    ends[j, 3], ends[j, 2], holders[j, 1] = ends[j, 2], end, i
                elif end < ends[j, 3]:
                    ends[j, 3] = end


@njit
def _conflict_free(
    low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, table: Bools, i: int, ends: Ranks, holders: Ranks
) -> int:
    """f_c of row i: its defined cells that conflict with no cell of another row (definition 5)."""
    count = 0
    for j in range(lows.shape[1]):
        if table[i, 2 * j]:
            rival = ends[j, 1] if holders[j, 0] == i else ends[j, 0]
            if min(lows[i, j] - 1, high[j]) >= rival:
                count += 1
        if table[i, 2 * j + 1]:
            rival = ends[j, 3] if holders[j, 1] == i else ends[j, 2]
            if max(highs[i, j] + 1, low[j]) <= rival:
                count += 1
    return count


@njit
def _row_inside(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, inner: int, outer: int) -> bool:
    """Whether, within s, row `inner` lies inside row `outer`."""
    for j in range(lows.shape[1]):
        if max(lows[inner, j], low[j]) < lows[outer, j] or min(highs[inner, j], high[j]) > highs[outer, j]:
            return False
    return True


@njit
def _absorb(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, alive: Bools) -> int:
    """Drop each row that lies, within s, inside another one (of equal rows the first stays); how many went.

    The larger come first, so that each is held against those that stay, and most find one that holds them soon.
    """
    rows = np.flatnonzero(alive)
    smaller = np.empty(len(rows))
    for r in range(len(rows)):
        volume = 1.0
        for j in range(lows.shape[1]):
            first, last = max(lows[rows[r], j], low[j]), min(highs[rows[r], j], high[j])
            volume *= np.float64(np.uint64(last) - np.uint64(first)) + 1.0
        smaller[r] = -volume
    stay = np.empty(len(rows), np.int64)
    n = dropped = 0
    for r in np.argsort(smaller, kind="mergesort"):
        i = rows[r]
        for at in range(n):
            if _row_inside(low, high, lows, highs, i, rows[stay[at]]):
                alive[i] = False
                dropped += 1
                break
        if not alive[i]:
            continue
        # Volumes are rounded: of one that is as large, by that, as this, this may still be around it.
        for at in range(n - 1, -1, -1):
            other = stay[at]
            if smaller[other] != smaller[r]:
                break
            if alive[rows[other]] and _row_inside(low, high, lows, highs, rows[other], i):
                alive[rows[other]] = False
                dropped += 1
        stay[n] = r
        n += 1
    return dropped


@njit
def _minimise(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, table: Bools, alive: Bools, order: Ints) -> int:
    """Algorithm 2: clear `alive` for what is redundant, write the removed rows to `order`; how many those are.

    Ints dropped by `_absorb` are not in `order`: what avoids the row around them avoids them.
    """
    k, m = lows.shape
    ends, holders = np.empty((m, 4), np.int64), np.empty((m, 2), np.int64)
    left, removed = 0, 0
    t = np.zeros(k, np.int64)
    for i in range(k):
        left += alive[i]
        for c in range(2 * m):
            t[i] += table[i, c]
    while True:
        before = left
        _extremes(low, high, lows, highs, table, alive, ends, holders)
        for i in range(k):
            # Freedom was judged at the start of the round: fewer rows can only make more cells free.
            if alive[i] and (t[i] >= left or _conflict_free(low, high, lows, highs, table, i, ends, holders) >= 1):
                alive[i] = False
                order[removed] = i
                removed += 1
                left -= 1
        if left == before:
            left -= _absorb(low, high, lows, highs, alive)
        if left == before:
            return removed


@njit
def _grow(lows: Ranks, highs: Ranks, table: Bools, order: Ints, low: Ranks, high: Ranks) -> bool:
    """Shrink the box low..high, in place, until it avoids each row of `order`, one after the other."""
    for i in order:
        free = False
        for j in range(lows.shape[1]):
            if high[j] < lows[i, j] or low[j] > highs[i, j]:
                free = True
                break
        for j in range(lows.shape[1]):
            if free:
                break
            if table[i, 2 * j] and lows[i, j] > low[j]:
                high[j] = min(high[j], lows[i, j] - 1)
                free = True
            elif table[i, 2 * j + 1] and highs[i, j] < high[j]:
                low[j] = max(low[j], highs[i, j] + 1)
                free = True
        if not free:
            return False
    return True


@njit
def _escape(lows: Ranks, highs: Ranks, rows: Bools, point: Ranks, low: Ranks, high: Ranks) -> None:
    """Shrink the box low..high around `point` until it avoids each of `rows`, none of which holds the point."""
    for i in range(len(rows)):
        if not rows[i]:
            continue
        for j in range(lows.shape[1]):
            if point[j] < lows[i, j]:
                high[j] = min(high[j], lows[i, j] - 1)
                break
            if point[j] > highs[i, j]:
                low[j] = max(low[j], highs[i, j] + 1)
                break


OPEN, COROLLARY_1, COROLLARY_3, EMPTY_SET = 0, 1, 2, 3
"""What `settle` says."""


@njit
def settle(
    low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, table: Bools, alive: Bools, order: Ints, point: Ranks
) -> tuple[int, int]:
    """The fast answers of [RSPC06] §4.3 on a table, in their order, or `OPEN`; and how many rows went into `order`.

    `alive` becomes the row that covers s, or the minimised cover set; `point` a witness, if there is one.
    """
    row = _covering(table)
    if row >= 0:
        alive[:] = False
        alive[row] = True
        return COROLLARY_1, 0
    ascending, end = _ascending(table), high.copy()
    if len(ascending) == len(lows):
        point[:] = low
        assert _grow(lows, highs, table, ascending, point, end)
        return COROLLARY_3, 0
    removed = _minimise(low, high, lows, highs, table, alive, order)
    if not alive.any():
        point[:] = low
        assert _grow(lows, highs, table, order[:removed][::-1].copy(), point, end)
        return EMPTY_SET, removed
    return OPEN, removed


@njit
def grow_witness(
    low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, table: Bools, alive: Bools, order: Ints, point: Ranks
) -> None:
    """From a point in no row of the minimised set make one that is in no row at all, in place: see `grown`."""
    first, last = low.copy(), high.copy()
    _escape(lows, highs, alive, point, first, last)
    assert _grow(lows, highs, table, order[::-1].copy(), first, last)
    point[:] = first


# --- the table ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Minimised:
    """The minimised cover set S' and how it came about."""

    alive: Bools
    """Which rows are in S'."""
    order: Ints
    """The redundant rows, in the order of their removal."""

    @property
    def rows(self) -> Ints:
        return np.flatnonzero(self.alive)


class ConflictTable:
    """The conflict table of the box `low..high` against the boxes `lows..highs`; definition 2.

    Cost: O(m k) to build.

    >>> low, high = np.array([830, 1003]), np.array([870, 1006])
    >>> lows, highs = np.array([[820, 1001], [840, 1002]]), np.array([[850, 1007], [880, 1009]])
    >>> print(ConflictTable(low, high, lows, highs))
    s1: -  x1 > 850  -  -
    s2: x1 < 840  -  -  -
    """

    def __init__(self, low: Ranks, high: Ranks, lows: Ranks, highs: Ranks) -> None:
        self.low, self.high, self.lows, self.highs = low, high, lows, highs
        self.defined: Bools = defined(low, high, lows, highs)

    def __len__(self) -> int:
        return len(self.lows)

    def __str__(self) -> str:
        return "\n".join(f"s{i + 1}: {'  '.join(self.cells(i))}" for i in range(len(self)))

    def cells(self, i: int) -> list[str]:
        """Row i as the paper prints it; `-` is undefined."""
        words = []
        for j in range(len(self.low)):
            words.append(f"x{j + 1} < {self.lows[i, j]}" if self.defined[i, 2 * j] else "-")
            words.append(f"x{j + 1} > {self.highs[i, j]}" if self.defined[i, 2 * j + 1] else "-")
        return words

    @property
    def t(self) -> Ints:
        """The number of defined cells of each row."""
        return self.defined.sum(axis=1)

    def conflict_free(self) -> Ints:
        """f_c of each row: its cells that conflict with no cell of another row (definition 5)."""
        k, m = self.lows.shape
        ends, holders = np.empty((m, 4), np.int64), np.empty((m, 2), np.int64)
        box = (self.low, self.high, self.lows, self.highs, self.defined)
        _extremes(*box, np.ones(k, bool), ends, holders)
        return np.array([_conflict_free(*box, i, ends, holders) for i in range(k)], np.int64)

    def covering(self) -> int:
        """The first row without a defined cell, which covers s alone (corollary 1), or -1."""
        return int(_covering(self.defined))

    def covered(self) -> Ints:
        """The rows that s covers (corollary 2).

        Differs: the corollary asks for all cells to be defined, which misses a row that touches a side of s from
        within; closed integer boxes are compared.
        """
        return np.flatnonzero(((self.lows >= self.low) & (self.highs <= self.high)).all(axis=1))

    def polyhedron(self) -> tuple[Ranks, Ranks] | None:
        """A box inside s that no row meets, if corollary 3 says that there is one; else None, which says nothing."""
        order = _ascending(self.defined)
        if len(order) < len(self):
            return None
        return self._grown(order, self.low.copy(), self.high.copy())

    def minimised(self) -> Minimised:
        """The minimised cover set (Algorithm 2): s is covered by it iff s is covered by all rows.

        Cost: O(m k) a round, at most k rounds; O(m k'^2) for the k' rows that are left.
        """
        alive, order = np.ones(len(self), bool), np.empty(len(self), np.int64)
        removed = _minimise(self.low, self.high, self.lows, self.highs, self.defined, alive, order)
        return Minimised(alive, order[:removed])

    def grown(self, minimised: Minimised, point: Ranks | None = None) -> tuple[Ranks, Ranks]:
        """A box inside s that no row meets, from a point of s that no row of the minimised set holds.

        Without a point the set must be empty. This is proposition 3 read backwards: a row went because one of its
        cells conflicts with nobody, or because it had more cells than there were others to conflict with; so, in
        the reverse order, each row still has a cell to add.
        Guarantee: every point of the box is a witness against all rows. Cost: O(m k).
        """
        low, high = self.low.copy(), self.high.copy()
        if point is not None:
            _escape(self.lows, self.highs, minimised.alive, point, low, high)
        else:
            assert not minimised.alive.any()
        return self._grown(minimised.order[::-1], low, high)

    def _grown(self, order: Ints, low: Ranks, high: Ranks) -> tuple[Ranks, Ranks]:
        found = _grow(self.lows, self.highs, self.defined, np.ascontiguousarray(order), low, high)
        assert found, "a redundant row has no cell left: proposition 3 is broken"
        return low, high
