"""The bitmap matcher: one bit per box for each cell of each dimension, and one summary bit per word of 64 boxes.

Our own, beside the trees of [STREE03] §3, behind the same interface. Each dimension is cut into cells at
quantiles of the boxes' corners; `bits[cell]` has a one for every box that touches the cell.

    dimension 0, cell of the event   0110 0000 0100 ...      boxes in spatial order, so that
    dimension 1, cell of the event   0010 0111 0100 ...      words are empty in runs
    AND                              0010 0000 0100 ...   -> boxes 2 and 9: candidates
    summary of each (word not 0)     1    1    1             AND-ed first; only surviving words are read

A candidate is certain in a dimension unless the event lies in the first or the last cell of the box: only there are
the corners compared. A dimension that no box constrains has no bitmap and costs nothing; a dimension with few
distinct corners has a cell for each, and is exact without a comparison.

Changes go into *parts*: an insert builds a small part of its own and unites it with those that are not much larger;
a removal clears a box's bit in the part's `alive`. `resort` makes one part of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros
from numpy.typing import NDArray

from state.kernels import njit
from state.matchers.cover import certain
from state.matchers.interface import Bools, Ints, Matches, Mode, as_points, owned
from state.matchers.order import sample_corners, spatial_order
from state.space.boxes import ABSENT, PRESENT_MAX, Boxes, Ranks

Words = NDArray[np.uint64]
Cells = NDArray[np.uint16]

CELL_BITS_PER_BOX = 1024
"""Cells of all dimensions together: 128 bytes of bitmap per box."""
CELLS_MIN, CELLS_MAX = 32, 1024
OR_CELLS_MAX = 8
"""An imprecise publication over more cells of a dimension than this is not looked up there, only compared."""

U0, U1, ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Boxes in spatial order with their bitmaps; immutable but for `alive`.

    Invariant: bit i%64 of `bits[base[j] + c * words + i//64]` says whether box i touches cell c of `dims[j]`;
    `summary` says the same of whole words. `edges[i, 2j], edges[i, 2j+1]` are the first and last cell of box i.
    """

    dims: Ints
    cuts: Ranks
    cut_start: Ints
    lows: Ranks
    highs: Ranks
    owners: Ints
    edges: Cells
    bits: Words
    summary: Words
    inexact: Ints
    """Places in `dims` where some corner lies inside a cell: only these are compared."""
    alive: Words
    live: list[int]
    """How many bits of `alive` are set, in a list of one: the rest of a part never changes."""
    by_owner: list[Ints] = field(default_factory=list)
    """Rows sorted by owner, made by the first removal."""

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """What the kernels take, in their order."""
        shape = (self.dims, self.cuts, self.cut_start, self.inexact)
        return (*shape, self.lows, self.highs, self.edges, self.bits, self.summary, self.alive, self.owners)

    def __len__(self) -> int:
        return len(self.owners)


def _build(lows: Ranks, highs: Ranks, owners: Ints) -> _Part:
    dims = np.flatnonzero(((lows > ABSENT) | (highs < PRESENT_MAX)).any(axis=0))
    lows, highs = lows[:, dims], highs[:, dims]
    order = spatial_order(lows, highs)
    lows, highs, owners = lows[order], highs[order], owners[order]
    cuts = _cuts(lows, highs)
    by_reach = np.argsort([_reach(lows[:, j], highs[:, j], c) for j, c in enumerate(cuts)], kind="stable")
    dims, lows, highs = (
        dims[by_reach],
        np.ascontiguousarray(lows[:, by_reach]),
        np.ascontiguousarray(highs[:, by_reach]),
    )
    flat_cuts = np.concatenate([*(cuts[j] for j in by_reach), np.empty(0, np.int64)])
    cut_start = np.cumsum([0, *(len(cuts[j]) for j in by_reach)], dtype=np.int64)
    n, words = len(owners), -(-len(owners) // 64)
    edges, bits, summary, exact = _fill(lows, highs, flat_cuts, cut_start, words, -(-words // 64))
    alive = np.full(words, ALL)
    if n % 64:
        alive[-1] = (1 << (n % 64)) - 1
    inexact = np.flatnonzero(~exact)
    return _Part(dims, flat_cuts, cut_start, lows, highs, owners, edges, bits, summary, inexact, alive, [n])


def _reach(lows: Ranks, highs: Ranks, cuts: Ranks) -> float:
    """Mean share of the cells that a box touches: the dimension with the least is asked first, so words die early."""
    step = max(1, len(lows) // 1024)
    cells = (
        np.searchsorted(cuts, highs[::step], side="right")
        - np.searchsorted(cuts, lows[::step], side="right")
        + 1
    )
    return float(cells.mean()) / (len(cuts) + 1)


def _cuts(lows: Ranks, highs: Ranks) -> list[Ranks]:
    """Return for each dimension the sorted places where a new cell begins.

    Few distinct corners get a cut each, and leave what they do not need to the others.
    """
    n, d = lows.shape
    places = [sample_corners(lows[:, j], highs[:, j]) for j in range(d)]
    distinct = [np.unique(p) for p in places]
    cuts: dict[int, Ranks] = {}
    budget = CELL_BITS_PER_BOX
    for left, j in zip(range(d, 0, -1), sorted(range(d), key=lambda j: len(distinct[j])), strict=True):
        size = min(max(budget // left, CELLS_MIN), CELLS_MAX) - 1
        if len(distinct[j]) <= size:
            cuts[j] = distinct[j]
        else:
            picks = np.linspace(0, len(places[j]) - 1, size).astype(np.int64)
            cuts[j] = np.unique(places[j][picks])
        budget -= len(cuts[j]) + 1
    return [cuts[j] for j in range(d)]


@njit
def _cell(cuts: Ranks, start: int, end: int, value: int) -> int:
    """Number of cuts at or below `value`: the cell that holds it."""
    low, size = start, end - start
    while size > 0:
        half = size >> 1
        if cuts[low + half] <= value:
            low += half + 1
            size -= half + 1
        else:
            size = half
    return low - start


@njit
def _fill(lows, highs, cuts, cut_start, words, blocks):  # type: ignore[no-untyped-def]
    """Compute edges, bitmaps and summaries, eight words at a time, so that every cache line is written once."""
    n, d = lows.shape
    cells = cut_start[d] + d
    edges = np.empty((n, 2 * d), np.uint16)
    bits = np.empty(cells * words, np.uint64)
    summary = np.zeros(cells * blocks, np.uint64)
    exact = np.ones(d, np.bool_)
    for j in range(d):
        first, last = cut_start[j], cut_start[j + 1]
        size = last - first + 1
        base = first + j
        toggles = np.zeros((size + 1, 8), np.uint64)
        for tile in range(0, words, 8):
            width = min(8, words - tile)
            toggles[:] = U0
            for i in range(tile * 64, min(n, (tile + 8) * 64)):
                a = _cell(cuts, first, last, lows[i, j])
                z = _cell(cuts, first, last, highs[i, j])
                edges[i, 2 * j], edges[i, 2 * j + 1] = a, z
                if (a == 0 and lows[i, j] != ABSENT) or (a > 0 and cuts[first + a - 1] != lows[i, j]):
                    exact[j] = False
                if (z == size - 1 and highs[i, j] != PRESENT_MAX) or (
                    z < size - 1 and cuts[first + z] - 1 != highs[i, j]
                ):
                    exact[j] = False
                bit = U1 << np.uint64(i & 63)
                toggles[a, (i >> 6) - tile] ^= bit
                toggles[z + 1, (i >> 6) - tile] ^= bit
            for w in range(width):
                running = U0
                mark = U1 << np.uint64((tile + w) & 63)
                block = (tile + w) >> 6
                for c in range(size):
                    running ^= toggles[c, w]
                    toggles[c, w] = running
                    if running != U0:
                        summary[(base + c) * blocks + block] |= mark
            for c in range(size):
                at = (base + c) * words + tile
                for w in range(width):
                    bits[at + w] = toggles[c, w]
    return edges, bits, summary, exact


COLLECT, ANY, GROUPS, ROWS = 0, 1, 2, 3


@njit
def _scan(
    points,
    want,
    group_of_owner,
    found,
    dims,
    cuts,
    cut_start,
    inexact,
    lows,
    highs,
    edges,
    bits,
    summary,
    alive,
    owners,
):  # type: ignore[no-untyped-def]
    """Match a batch against one part: into (offsets, ids) to COLLECT, else into `found`.

    ANY stops an event at its first box; GROUPS when every group is found, and compares no box of a found group.
    """
    n, d = len(points), len(dims)
    words = len(alive)
    blocks = (words + 63) >> 6
    cell, base, base_summary = np.empty(d, np.int64), np.empty(d, np.int64), np.empty(d, np.int64)
    survivors = np.empty(blocks, np.uint64)
    offsets = np.zeros(n + 1, np.int64)
    ids = np.empty(max(1024, n) if want == COLLECT else 0, np.int64)
    used = 0
    for e in range(n):
        missing = found.shape[1]
        if want != COLLECT:
            for g in range(found.shape[1]):
                missing -= found[e, g]
            if missing == 0:
                continue
        survivors[:] = ALL
        if words & 63:
            survivors[blocks - 1] = (U1 << np.uint64(words & 63)) - U1
        for j in range(d):
            c = _cell(cuts, cut_start[j], cut_start[j + 1], points[e, dims[j]])
            cell[j] = c
            base[j] = (cut_start[j] + j + c) * words
            at = (cut_start[j] + j + c) * blocks
            for s in range(blocks):
                survivors[s] &= summary[at + s]
        for s in range(blocks):
            left = survivors[s]
            while left != U0 and missing >= 0:
                w = (s << 6) + np.int64(trailing_zeros(left))
                left &= left - U1
                word = alive[w]
                for j in range(d):
                    word &= bits[base[j] + w]
                    if word == U0:
                        break
                while word != U0:
                    i = (w << 6) + np.int64(trailing_zeros(word))
                    word &= word - U1
                    group = 0
                    if want == GROUPS:
                        group = group_of_owner[owners[i]]
                        if group < 0 or found[e, group]:
                            continue
                    holds = True
                    for v in inexact:
                        p, c = points[e, dims[v]], cell[v]
                        if (c == edges[i, 2 * v] and p < lows[i, v]) or (
                            c == edges[i, 2 * v + 1] and p > highs[i, v]
                        ):
                            holds = False
                            break
                    if not holds:
                        continue
                    if want == COLLECT:
                        if used == len(ids):
                            ids = _doubled(ids)
                        ids[used] = owners[i]
                        used += 1
                    else:
                        found[e, group] = True
                        missing -= 1
                        if missing == 0:
                            missing, word = -1, U0
        offsets[e + 1] = used
    return offsets, ids[:used]


@njit
def _doubled(ids: Ints) -> Ints:
    larger = np.empty(2 * len(ids), ids.dtype)
    larger[: len(ids)] = ids
    return larger


@njit
def _united(offsets: Ints, ids: Ints, low: int, high: int) -> tuple[Ints, Ints]:
    """Sort the ids of each event and drop repeats; `offsets[k]` are the ends of part k's events within `ids`.

    Few ids are sorted as they are. Many are set as bits of the numbers low .. high, with one summary bit per word,
    and read back in order: linear in the matches, whatever their order was.
    """
    parts, n = offsets.shape[0], offsets.shape[1] - 1
    rows_out, ids_out = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    span = high - low + 1
    # Ids far apart (or beyond what a difference can hold) are always sorted.
    dense = 0 < span <= 64 * len(ids) + 4096
    seen = np.zeros((span + 63) >> 6 if dense else 1, np.uint64)
    seen_summary = np.zeros((len(seen) + 63) >> 6, np.uint64)
    used = 0
    for e in range(n):
        count = 0
        for k in range(parts):
            count += offsets[k, e + 1] - offsets[k, e]
        if count == 0:
            continue
        if dense and count > 16 and 8 * count > len(seen_summary):
            for k in range(parts):
                for at in range(offsets[k, e], offsets[k, e + 1]):
                    bit = ids[at] - low
                    seen[bit >> 6] |= U1 << np.uint64(bit & 63)
                    seen_summary[bit >> 12] |= U1 << np.uint64((bit >> 6) & 63)
            for s in range(len(seen_summary)):
                left = seen_summary[s]
                seen_summary[s] = U0
                while left != U0:
                    w = (s << 6) + np.int64(trailing_zeros(left))
                    left &= left - U1
                    word = seen[w]
                    seen[w] = U0
                    while word != U0:
                        rows_out[used] = e
                        ids_out[used] = low + (w << 6) + np.int64(trailing_zeros(word))
                        word &= word - U1
                        used += 1
        else:
            some = ids_out[used : used + count]
            at = 0
            for k in range(parts):
                for i in range(offsets[k, e], offsets[k, e + 1]):
                    some[at] = ids[i]
                    at += 1
            used = _sorted_once(some, rows_out, e, used)
    return rows_out[:used], ids_out[:used]


@njit
def _sorted_once(some: Ints, rows_out: Ints, e: int, used: int) -> int:
    """Sort a few ids in place, keep one of each, and note their event; return the end of what was kept."""
    if len(some) > 32:
        some.sort()
    else:
        for i in range(1, len(some)):
            value, at = some[i], i
            while at > 0 and some[at - 1] > value:
                some[at] = some[at - 1]
                at -= 1
            some[at] = value
    kept = 0
    for i in range(len(some)):
        if i == 0 or some[i] != some[kept - 1]:
            some[kept] = some[i]
            rows_out[used + kept] = e
            kept += 1
    return used + kept


@njit
def _scan_boxes(
    query_lows, query_highs, dims, cuts, cut_start, inexact, lows, highs, edges, bits, summary, alive, owners
):  # type: ignore[no-untyped-def]
    """Return (event, row) for the boxes of one part that meet each query box."""
    n, d = len(query_lows), len(dims)
    words = len(alive)
    blocks = (words + 63) >> 6
    first, last = np.empty(d, np.int64), np.empty(d, np.int64)
    events, rows = np.empty(max(64, n), np.int64), np.empty(max(64, n), np.int64)
    used = 0
    for e in range(n):
        for j in range(d):
            first[j] = _cell(cuts, cut_start[j], cut_start[j + 1], query_lows[e, dims[j]])
            last[j] = _cell(cuts, cut_start[j], cut_start[j + 1], query_highs[e, dims[j]])
        for s in range(blocks):
            left = _any_of(summary, s, blocks, first, last, cut_start, ALL)
            while left != U0:
                w = (s << 6) + np.int64(trailing_zeros(left))
                left &= left - U1
                if w >= words:
                    break
                word = _any_of(bits, w, words, first, last, cut_start, alive[w])
                while word != U0:
                    i = (w << 6) + np.int64(trailing_zeros(word))
                    word &= word - U1
                    meets = True
                    for j in range(d):
                        if query_lows[e, dims[j]] > highs[i, j] or query_highs[e, dims[j]] < lows[i, j]:
                            meets = False
                            break
                    if meets:
                        if used == len(rows):
                            events, rows = _doubled(events), _doubled(rows)
                        events[used], rows[used] = e, i
                        used += 1
    return events[:used], rows[:used]


@njit
def _any_of(bitmap, at, stride, first, last, cut_start, start):  # type: ignore[no-untyped-def]
    """AND over the dimensions of the OR over the cells first .. last, at one word; long runs of cells count as ones."""
    word = start
    for j in range(len(first)):
        if last[j] - first[j] < OR_CELLS_MAX:
            some = U0
            for c in range(first[j], last[j] + 1):
                some |= bitmap[(cut_start[j] + j + c) * stride + at]
            word &= some
            if word == U0:
                break
    return word


class BitmapMatcher:
    """Cell bitmaps over spatially ordered boxes, in parts; the matcher of the route query.

    Guarantee: exact. Cost, per event: d binary searches among at most 1024 cuts, d ANDs over n / 4096 summary words,
    and for each word that survives d ANDs; then one comparison per match that lies in an edge cell. An insert of m
    boxes costs O(m log n) amortised builds; a removal one bit per box, after one sort per part.

    >>> m = BitmapMatcher(Boxes.of([([0, 0], [3, 3]), ([2, 2], [9, 9])]), np.array([7, 5]))
    >>> m.match(np.array([[1, 1], [2, 3], [8, 0]]))
    Matches(rows=array([0, 1, 1]), ids=array([7, 5, 7]))
    >>> m.remove(np.array([7]))
    >>> m.match_any(np.array([[1, 1], [2, 3], [8, 0]]))
    array([False,  True, False])
    """

    def __init__(self, boxes: Boxes, owners: Ints) -> None:
        self._d = boxes.d
        self._parts: list[_Part] = []
        self.insert(boxes, owners)

    @property
    def d(self) -> int:
        return self._d

    def __len__(self) -> int:
        return sum(part.live[0] for part in self._parts)

    def match(self, points: Ranks) -> Matches:
        points = as_points(points, self._d)
        if not self._parts:
            return Matches.none()
        found = [_scan(points, COLLECT, _NO_GROUPS, _NOTHING_FOUND, *part.arrays()) for part in self._parts]
        shift = np.cumsum([0, *(len(ids) for _, ids in found)])
        offsets = np.stack([offsets + s for (offsets, _), s in zip(found, shift[:-1], strict=True)])
        ids = np.concatenate([ids for _, ids in found]) if len(found) > 1 else found[0][1]
        if len(ids) == 0:
            return Matches.none()
        return Matches(*_united(offsets, ids, *self._id_range()))

    def match_any(self, points: Ranks) -> Bools:
        points = as_points(points, self._d)
        found = np.zeros((len(points), 1), dtype=bool)
        for part in self._parts:
            _scan(points, ANY, _NO_GROUPS, found, *part.arrays())
        return found[:, 0]

    def match_groups(self, points: Ranks, group_of_owner: Ints, n_groups: int) -> Bools:
        points = as_points(points, self._d)
        found = np.zeros((len(points), n_groups), dtype=bool)
        groups = np.ascontiguousarray(group_of_owner, dtype=np.int64)
        if self._parts and n_groups:
            low, high = self._id_range()
            assert low >= 0 and high < len(groups), "every owner needs its group"
            for part in self._parts:
                _scan(points, GROUPS, groups, found, *part.arrays())
        return found

    def match_boxes(self, lows: Ranks, highs: Ranks, mode: Mode = "possible") -> Matches:
        lows, highs = as_points(lows, self._d), as_points(highs, self._d)
        events, ids, box_lows, box_highs = [], [], [], []
        for part in self._parts:
            event, row = _scan_boxes(lows, highs, *part.arrays())
            events.append(event)
            ids.append(part.owners[row])
            if mode == "certain":
                some_lows, some_highs = self._corners(part, row)
                box_lows.append(some_lows)
                box_highs.append(some_highs)
        if not events:
            return Matches.none()
        all_events, all_ids = np.concatenate(events), np.concatenate(ids)
        if mode == "possible":
            return Matches.of(all_events, all_ids)
        return certain(lows, highs, all_events, all_ids, np.concatenate(box_lows), np.concatenate(box_highs))

    def insert(self, boxes: Boxes, owners: Ints) -> None:
        assert boxes.d == self._d
        owners = owned(boxes, owners)
        if len(boxes) == 0:
            return
        lows, highs = [boxes.lows], [boxes.highs]
        ids, size = [owners], len(boxes)
        # Sizes fall by more than half from part to part: n boxes make at most log2(n) parts.
        while self._parts and self._parts[-1].live[0] <= 2 * size:
            part = self._parts.pop()
            rows = _live_rows(part)
            some_lows, some_highs = self._corners(part, rows)
            lows.append(some_lows)
            highs.append(some_highs)
            ids.append(part.owners[rows])
            size += len(rows)
        self._parts.append(_build(np.concatenate(lows), np.concatenate(highs), np.concatenate(ids)))

    def remove(self, owners: Ints) -> None:
        gone = np.unique(np.asarray(owners, dtype=np.int64))
        for part in self._parts:
            if not part.by_owner:
                part.by_owner.append(np.argsort(part.owners, kind="stable"))
            by_owner = part.by_owner[0]
            first = np.searchsorted(part.owners, gone, side="left", sorter=by_owner)
            end = np.searchsorted(part.owners, gone, side="right", sorter=by_owner)
            part.live[0] -= _bury(part.alive, by_owner, first, end)
        self._parts = [part for part in self._parts if part.live[0]]

    def resort(self) -> None:
        """Make one part of all live boxes, in fresh order and with fresh cells. Cost: that of a build."""
        boxes, owners = self.boxes()
        self._parts = []
        self.insert(boxes, owners)

    def boxes(self) -> tuple[Boxes, Ints]:
        """The live boxes and their owners, in the order of storage."""
        rows = [_live_rows(part) for part in self._parts]
        corners = [self._corners(part, r) for part, r in zip(self._parts, rows, strict=True)]
        empty = Boxes.empty(self._d)
        lows = np.concatenate([empty.lows, *(low for low, _ in corners)])
        highs = np.concatenate([empty.highs, *(high for _, high in corners)])
        owners = [part.owners[r] for part, r in zip(self._parts, rows, strict=True)]
        return Boxes(lows, highs), np.concatenate([np.empty(0, np.int64), *owners])

    def memory(self) -> int:
        return sum(a.nbytes for part in self._parts for a in (*part.arrays(), *part.by_owner))

    def _id_range(self) -> tuple[int, int]:
        ends = [(int(part.owners.min()), int(part.owners.max())) for part in self._parts]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def _corners(self, part: _Part, rows: Ints) -> tuple[Ranks, Ranks]:
        """Corners in all dimensions: those that the part leaves out are unconstrained."""
        lows, highs = np.full((len(rows), self._d), ABSENT), np.full((len(rows), self._d), PRESENT_MAX)
        lows[:, part.dims], highs[:, part.dims] = part.lows[rows], part.highs[rows]
        return lows, highs

    def check(self) -> None:
        sizes = [part.live[0] for part in self._parts]
        assert all(size > 0 for size in sizes)
        for part in self._parts:
            _check(part)


_NO_GROUPS = np.empty(0, np.int64)
_NOTHING_FOUND = np.empty((0, 0), np.bool_)


def _live_rows(part: _Part) -> Ints:
    return np.flatnonzero(_unpacked(part.alive, len(part)))


def _unpacked(words: Words, n: int) -> Bools:
    return np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little", count=n).astype(bool)


@njit
def _bury(alive: Words, by_owner: Ints, first: Ints, end: Ints) -> int:
    """Clear the bits of the rows by_owner[first[k]:end[k]]; return how many were set."""
    buried = 0
    for k in range(len(first)):
        for at in range(first[k], end[k]):
            i = by_owner[at]
            bit = U1 << np.uint64(i & 63)
            if alive[i >> 6] & bit:
                alive[i >> 6] &= ~bit
                buried += 1
    return buried


def _check(part: _Part) -> None:
    """Assert the invariants of a part: every bit, from the corners."""
    n, words = len(part), len(part.alive)
    assert int(_unpacked(part.alive, 64 * words).sum()) == part.live[0] <= n <= 64 * words
    for j in range(len(part.dims)):
        start, end = part.cut_start[j], part.cut_start[j + 1]
        cuts = part.cuts[start:end]
        assert (np.diff(cuts) > 0).all()
        assert (part.lows[:, j] <= part.highs[:, j]).all()
        assert ((part.lows[:, j] > ABSENT) | (part.highs[:, j] < PRESENT_MAX)).any(), (
            "an unconstrained dimension"
        )
        a = np.searchsorted(cuts, part.lows[:, j], side="right")
        z = np.searchsorted(cuts, part.highs[:, j], side="right")
        assert np.array_equal(part.edges[:, 2 * j], a)
        assert np.array_equal(part.edges[:, 2 * j + 1], z)
        for c in range(len(cuts) + 1):
            row = part.bits[(start + j + c) * words :][:words]
            assert np.array_equal(_unpacked(row, n), (a <= c) & (c <= z))
            blocks = -(-words // 64)
            sums = part.summary[(start + j + c) * blocks :][:blocks]
            assert np.array_equal(_unpacked(sums, words), row != 0)
        on_cut = np.isin(part.lows[:, j], np.append(cuts, ABSENT)) & np.isin(
            part.highs[:, j], np.append(cuts - 1, PRESENT_MAX)
        )
        assert on_cut.all() or j in part.inexact
