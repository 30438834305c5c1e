"""One segment of the bitmap matcher: boxes in spatial order, and for each cell of each dimension who touches it.

                        word 0            word 1            word 2
    dimension 0  cell 0 1100 ... 0010     0000 ... 0000     0001 ... 0000     summary 101
                 cell 1 0100 ... 0011     0011 ... 0000     0000 ... 0000             110
    dimension 1  cell 0 1111 ... 1111     1111 ... 1111     1111 ... 1100             111
                 ...

Of a row only the words from its first to its last that is not 0 are kept: in a dimension that the order of the boxes
follows, a cell is touched by boxes that stand together.

Cells begin at *cuts*, quantiles of the places where boxes begin and end: values may be any int64 ranks. A dimension
with few such places gets a cut at each; there the cells alone decide, and no corner is compared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import carray
from numpy.typing import NDArray

from state.arrays import Bools, Ints, Words
from state.kernels import njit
from state.matchers.order import sample_corners, search_tree, spatial_order
from state.space.boxes import Ranks
from state.space.memory import pointer_at
from state.space.ranks import ABSENT, PRESENT_MAX

Rows = NDArray[np.uint32]

CELLS_PER_BOX = 512
"""Cells of all dimensions together, about; at most two bits per box in each: 128 bytes."""
CELLS_MIN, CELLS_MAX = 32, 1024
"""Cells of one dimension."""
SEGMENT_MIN = 2048
"""Boxes for which a segment of their own pays: each segment costs a call per batch and a look-up per event."""
ADDRESS = 21
"""Numbers that say where a segment lies."""

NO_RANKS = np.empty(0, np.int64)
U0, U1, ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)


class Segment(NamedTuple):
    """Boxes with their bitmaps; immutable but for `alive`. A tuple of arrays, for that is what kernels take.

    Dimension j of a segment is column `dims[j]` of a point; its cells are the rows `first_row[j] .. first_row[j + 1]`.
    Bit i % 64 of `bits[starts[row] + 2 * (i // 64)]` says whether box i touches the cell of that row, and that of the
    next word whether a corner of it lies inside the cell: then touching is not yet holding the point. Words that are
    not kept are asked by nobody: `summary` says that they are 0.
    """

    dims: Ints
    """The dimensions that some box constrains, the most selective first."""
    trees: Ranks
    """Where the cells of each dimension begin, as search trees."""
    first_node: Ints
    """Where the tree of each dimension starts in `trees`."""
    first_row: Ints
    """Where the rows of each dimension begin."""
    corners: Ranks
    """Row i: low and high of box i in dimension 0, in dimension 1, ..: one cache line for four dimensions."""
    owners: Ints
    compared: Ints
    """The dimensions where some corner lies inside a cell."""
    fine: Ints
    """The dimensions where most boxes are smaller than a cell: there whole words are compared with `spans`."""
    spans: Ranks
    """Row w: least low and greatest high of the boxes of word w, for each of `fine`."""
    bits: Words
    """Rows one behind the other, of each the words from the first to the last that a box touches."""
    starts: Ints
    """Where word 0 of each row stands in `bits`, or would: before the words that are kept."""
    summary: Words
    """Bit w % 64 of `summary[row, w // 64]`: whether word w of the row has any bit."""
    reach: Ints
    """The first word of `summary[row]` that is not 0, and the one after the last: boxes are in spatial order, so that
    a cell of a selective dimension is touched by few that are not near each other."""
    alive: Words

    def size(self) -> int:
        """Number of boxes, the dead included."""
        return len(self.owners)

    def address(self) -> list[int]:
        """Where it lies, as `segment_at` reads it: seven sizes, then the addresses of its arrays.

        Whoever keeps it keeps the segment too.
        """
        assert all(array.flags.c_contiguous and array.dtype.itemsize == 8 for array in self)
        counted = (self.dims, self.trees, self.owners, self.compared, self.fine, self.bits, self.reach)
        return [len(array) for array in counted] + [array.ctypes.data for array in self]

    def row(self, row: int) -> Words:
        """(words, 2): a row with all its words. Cost: that of all of them; for checks."""
        words = np.zeros((len(self.alive), 2), np.uint64)
        there = np.flatnonzero(unpacked(self.summary[row], len(words)))
        if len(there):
            first, end = int(there[0]), int(there[-1]) + 1
            words[first:end] = self.bits[self.starts[row] + 2 * first : self.starts[row] + 2 * end].reshape(-1, 2)
        return words


@njit
def segment_at(place: Ints) -> Segment:
    """The segment at an address: the same arrays, not copied."""
    d, nodes, n, compared, fine, kept, rows = place[0], place[1], place[2], place[3], place[4], place[5], place[6]
    words = (n + 63) >> 6
    return Segment(
        carray(pointer_at(place[7]), d, np.int64),
        carray(pointer_at(place[8]), nodes, np.int64),
        carray(pointer_at(place[9]), d + 1, np.int64),
        carray(pointer_at(place[10]), d + 1, np.int64),
        carray(pointer_at(place[11]), (n, 2 * d), np.int64),
        carray(pointer_at(place[12]), n, np.int64),
        carray(pointer_at(place[13]), compared, np.int64),
        carray(pointer_at(place[14]), fine, np.int64),
        carray(pointer_at(place[15]), (words, 2 * fine), np.int64),
        carray(pointer_at(place[16]), kept, np.uint64),
        carray(pointer_at(place[17]), rows, np.int64),
        carray(pointer_at(place[18]), (rows, (words + 63) >> 6), np.uint64),
        carray(pointer_at(place[19]), (rows, 2), np.int64),
        carray(pointer_at(place[20]), words, np.uint64),
    )


def build_segments(lows: Ranks, highs: Ranks, owners: Ints) -> list[Segment]:
    """Build one segment for each large set of boxes that constrain the same dimensions, and one for all others.

    A box that spans a dimension has ones in all its cells there: apart from those that are narrow in it, it
    needs no bits for it at all, and leaves finer cells to the dimensions that count.
    """
    constrained = (lows > ABSENT) | (highs < PRESENT_MAX)
    if len(owners) < 2 * SEGMENT_MIN or (constrained == constrained[0]).all():
        return [build(lows, highs, owners)]
    packed = np.packbits(constrained, axis=1)
    _, kind, count = np.unique(packed.view(f"V{packed.shape[1]}"), return_inverse=True, return_counts=True)
    kind = np.where(count >= SEGMENT_MIN, np.arange(len(count)), len(count))[kind.ravel()]
    order = np.argsort(kind, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(kind[order])) + 1)
    return [build(lows[rows], highs[rows], owners[rows]) for rows in groups]


def build(lows: Ranks, highs: Ranks, owners: Ints) -> Segment:
    """Sort boxes and fill their bitmaps.

    Cost: O(n * d * log SAMPLE), one or two sorts of n keys, and each byte of the bitmaps written once.
    """
    dims = np.flatnonzero((lows > ABSENT).any(axis=0) | (highs < PRESENT_MAX).any(axis=0))
    lows, highs = lows.take(dims, axis=1), highs.take(dims, axis=1)
    order = spatial_order(lows, highs)
    corners = _cornered(lows, highs, order)
    cuts = choose_cuts(corners[:, 0::2], corners[:, 1::2])
    reached = [_reach(corners[:, 2 * j], corners[:, 2 * j + 1], c) for j, c in enumerate(cuts)]
    by_reach = np.argsort(reached, kind="stable")
    if (np.diff(by_reach) < 0).any():
        corners = corners.reshape(len(order), len(dims), 2).take(by_reach, axis=1).reshape(corners.shape)
    owners, cuts = owners[order], [cuts[j] for j in by_reach]
    trees = [search_tree(c) for c in cuts]
    first_row = np.cumsum([0, *(len(c) + 1 for c in cuts)], dtype=np.int64)
    first_node = np.cumsum([0, *(len(t) for t in trees)], dtype=np.int64)
    search = (np.concatenate([*trees, NO_RANKS]), first_node, first_row)
    columns = np.arange(0, 2 * len(dims), 2)
    begins, ends = locate(corners, columns, *search), locate(corners, columns + 1, *search)
    cells, inside, small = _cells(corners, np.concatenate([*cuts, NO_RANKS]), first_row, begins, ends)
    compared = np.flatnonzero(inside)
    summary, starts, size = _summarised(cells, first_row)
    bits = _filled(cells, first_row, summary, starts, size)
    fine = np.flatnonzero((inside > 0) & (2 * small > len(owners)))
    spans = _spans(corners, fine)
    alive = np.full((len(owners) + 63) >> 6, ALL)
    if len(owners) % 64:
        alive[-1] = (1 << (len(owners) % 64)) - 1
    columns, reach = dims[by_reach], _reached(summary)
    return Segment(
        columns, *search, corners, owners, compared, fine, spans, bits, starts, summary, reach, alive
    )  # fmt: skip


@njit
def _cornered(lows: Ranks, highs: Ranks, order: Ints) -> Ranks:
    """The boxes of some rows, as a segment has them: low and high in one column, then in the next."""
    corners = np.empty((len(order), 2 * lows.shape[1]), np.int64)
    for i in range(len(order)):
        for j in range(lows.shape[1]):
            corners[i, 2 * j], corners[i, 2 * j + 1] = lows[order[i], j], highs[order[i], j]
    return corners


def choose_cuts(lows: Ranks, highs: Ranks) -> list[Ranks]:
    """Return for each dimension the sorted places where a new cell begins.

    The narrower the boxes of a dimension, the more cells it gets: a cell much smaller than a box rules out little
    more. Few distinct corners get a cut each, and leave what they do not need to the others.
    """
    d = lows.shape[1]
    places = [sample_corners(lows[:, j], highs[:, j]) for j in range(d)]
    distinct = [np.unique(p) for p in places]
    weight = [1 / max(_reach(lows[:, j], highs[:, j], places[j]), 1 / CELLS_MAX) for j in range(d)]
    cuts: list[Ranks] = [np.empty(0, np.int64)] * d
    budget, weights = CELLS_PER_BOX, sum(weight)
    for j in sorted(range(d), key=lambda j: len(distinct[j]) / weight[j]):
        size = min(max(int(budget * weight[j] / weights), CELLS_MIN), CELLS_MAX) - 1
        if len(distinct[j]) <= size:
            cuts[j] = distinct[j]
        else:
            cuts[j] = np.unique(places[j][np.linspace(0, len(places[j]) - 1, size).astype(np.int64)])
        budget, weights = max(budget - len(cuts[j]) - 1, 0), weights - weight[j]
    return cuts


def _reach(lows: Ranks, highs: Ranks, cuts: Ranks) -> float:
    """Mean share of the cells that a box touches: the dimension with the least is asked first, and gets most cells."""
    step = max(1, len(lows) // 1024)
    first = np.searchsorted(cuts, lows[::step], side="right")
    last = np.searchsorted(cuts, highs[::step], side="right")
    return float((last - first + 1).mean()) / (len(cuts) + 1)


@njit
def locate(points: Ranks, dims: Ints, trees: Ranks, first_node: Ints, first_row: Ints) -> Rows:
    """Return, for each point and each of `dims`, the row of its cell: first row + number of cuts at or below it.

    Found in the trees of `search_tree`; the searches of several points overlap.
    """
    rows = np.empty((len(points), len(dims)), np.uint32)
    for j in range(len(dims)):
        column, root, slots = dims[j], np.uint64(first_node[j]), first_node[j + 1] - first_node[j]
        first, last = np.uint64(first_row[j]), np.uint64(first_row[j + 1] - 1)
        levels = 0
        while slots >> levels > 1:
            levels += 1
        for e in range(len(points)):
            value, node = points[e, column], U1
            for _ in range(levels):
                node += node + np.uint64(trees[root + node] <= value)
            rows[e, j] = min(first + node - np.uint64(slots), last)
    return rows


@njit
def by_cells(rows: Rows, first_row: Ints) -> Ints:
    """The places of located points, by the cell of the first dimension, then an eighth of each further one; stable."""
    n, size = len(rows), first_row[1] - first_row[0] if rows.shape[1] else 1
    keys = np.zeros(n, np.int64)
    for j in range(rows.shape[1]):
        first, cells = first_row[j], first_row[j + 1] - first_row[j]
        for e in range(n):
            cell = np.int64(rows[e, j]) - first
            keys[e] = 8 * keys[e] + 8 * cell // cells if j else cell
        size *= 8 if j else 1
    starts, order = np.zeros(size + 1, np.int64), np.empty(n, np.int64)
    for e in range(n):
        starts[keys[e] + 1] += 1
    for key in range(size):
        starts[key + 1] += starts[key]
    for e in range(n):
        order[starts[keys[e]]] = e
        starts[keys[e]] += 1
    return order


@njit
def _cells(
    corners: Ranks, cuts: Ranks, first_row: Ints, begins: Rows, ends: Rows
) -> tuple[NDArray[np.uint16], Ints, Ints]:
    """Pack first and last cell of each box, shifted left by one; the low bit says that the corner is inside it.

    Also counts, for each dimension, the corners inside a cell and the boxes inside a cell.
    """
    n, d = len(corners), len(first_row) - 1
    cells = np.empty((d, 2, n), np.uint16)
    inside, small = np.zeros(d, np.int64), np.zeros(d, np.int64)
    for j in range(d):
        size = first_row[j + 1] - first_row[j]
        start = first_row[j] - j
        for i in range(n):
            a, z = np.int64(begins[i, j]) - first_row[j], np.int64(ends[i, j]) - first_row[j]
            # The ends of the rank space are borders too: no value lies beyond.
            low_inside = corners[i, 2 * j] != (cuts[start + a - 1] if a > 0 else ABSENT)
            high_inside = corners[i, 2 * j + 1] != (cuts[start + z] - 1 if z < size - 1 else PRESENT_MAX)
            cells[j, 0, i], cells[j, 1, i] = 2 * a + low_inside, 2 * z + high_inside
            inside[j] += low_inside + high_inside
            small[j] += a == z
    return cells, inside, small


@njit
def _summarised(cells: NDArray[np.uint16], first_row: Ints) -> tuple[Words, Ints, int]:
    """Tell which words of each row have a bit, where the row stands that has no others, and what all take together.

    A box toggles its bit at its first cell and after its last; the running XOR over the cells is the bitmap.
    """
    d, n = cells.shape[0], cells.shape[2]
    words = (n + 63) >> 6
    summary = np.zeros((first_row[d], (words + 63) >> 6), np.uint64)
    first, end = np.zeros(first_row[d], np.int64), np.zeros(first_row[d], np.int64)
    for j in range(d):
        row, size = first_row[j], first_row[j + 1] - first_row[j]
        toggles = np.zeros(size + 1, np.uint64)
        for w in range(words):
            toggles[:] = U0
            for i in range(w * 64, min(n, (w + 1) * 64)):
                bit = U1 << np.uint64(i & 63)
                toggles[cells[j, 0, i] >> 1] ^= bit
                toggles[(cells[j, 1, i] >> 1) + 1] ^= bit
            running, mark = U0, U1 << np.uint64(w & 63)
            for c in range(size):
                running ^= toggles[c]
                if running != U0:
                    summary[row + c, w >> 6] |= mark
                    first[row + c] = w if end[row + c] == 0 else first[row + c]
                    end[row + c] = w + 1
    starts, used = np.empty(first_row[d], np.int64), 0
    for row in range(first_row[d]):
        starts[row] = used - 2 * first[row]
        used += 2 * (end[row] - first[row])
    return summary, starts, used


@njit
def _filled(cells: NDArray[np.uint16], first_row: Ints, summary: Words, starts: Ints, size: int) -> Words:
    """Fill the words of all rows, four at a time so that a cache line is written once."""
    d, n = cells.shape[0], cells.shape[2]
    words = (n + 63) >> 6
    bits = np.zeros(size, np.uint64)
    for j in range(d):
        row, count = first_row[j], first_row[j + 1] - first_row[j]
        toggles, inside = np.zeros((count + 1, 4), np.uint64), np.zeros((count, 4), np.uint64)
        for tile in range(0, words, 4):
            toggles[:], inside[:] = U0, U0
            for i in range(tile * 64, min(n, (tile + 4) * 64)):
                a, z, w = np.int64(cells[j, 0, i]), np.int64(cells[j, 1, i]), (i >> 6) - tile
                bit = U1 << np.uint64(i & 63)
                toggles[a >> 1, w] ^= bit
                toggles[(z >> 1) + 1, w] ^= bit
                inside[a >> 1, w] |= bit * np.uint64(a & 1)
                inside[z >> 1, w] |= bit * np.uint64(z & 1)
            for c in range(1, count):
                for w in range(4):
                    toggles[c, w] ^= toggles[c - 1, w]
            for c in range(count):
                # the words of a tile are in one word of the summary
                there = (summary[row + c, tile >> 6] >> np.uint64(tile & 63)) & np.uint64(15)
                for w in range(4):
                    if (there >> np.uint64(w)) & U1:
                        at = starts[row + c] + 2 * (tile + w)
                        bits[at], bits[at + 1] = toggles[c, w], inside[c, w]
    return bits


@njit
def _reached(summary: Words) -> Ints:
    """First word of each row that is not 0, and the one after the last; 0 and 0 if all are."""
    reach = np.zeros((len(summary), 2), np.int64)
    for row in range(len(summary)):
        for s in range(summary.shape[1]):
            if summary[row, s] != U0:
                if reach[row, 1] == 0:
                    reach[row, 0] = s
                reach[row, 1] = s + 1
    return reach


def _spans(corners: Ranks, fine: Ints) -> Ranks:
    starts = np.arange(0, len(corners), 64)
    lows = np.minimum.reduceat(corners[:, 2 * fine], starts, axis=0)
    highs = np.maximum.reduceat(corners[:, 2 * fine + 1], starts, axis=0)
    return np.stack([lows, highs], axis=2).reshape(len(starts), 2 * len(fine))


def unpacked(words: Words, n: int) -> Bools:
    """The first n bits as booleans."""
    return np.unpackbits(np.ascontiguousarray(words, "<u8").view(np.uint8), bitorder="little", count=n).astype(bool)


def check(segment: Segment) -> None:
    """Assert every bit of a segment, from its corners. Cost: O(n * cells), numpy."""
    n, words = segment.size(), len(segment.alive)
    assert 64 * (words - 1) < n <= 64 * words
    assert not unpacked(segment.alive, 64 * words)[n:].any()
    for j in range(len(segment.dims)):
        row, end = segment.first_row[j], segment.first_row[j + 1]
        tree = segment.trees[segment.first_node[j] : segment.first_node[j + 1]]
        cuts = np.sort(tree[1:])[: end - row - 1]
        assert np.array_equal(tree, search_tree(cuts))
        lows, highs = segment.corners[:, 2 * j], segment.corners[:, 2 * j + 1]
        assert (cuts[1:] > cuts[:-1]).all()
        assert (lows <= highs).all()
        assert ((lows > ABSENT) | (highs < PRESENT_MAX)).any(), "a dimension that no box constrains"
        a, z = np.searchsorted(cuts, lows, side="right"), np.searchsorted(cuts, highs, side="right")
        for c in range(end - row):
            assert np.array_equal(unpacked(segment.row(row + c)[:, 0], n), (a <= c) & (c <= z))
            assert np.array_equal(unpacked(segment.summary[row + c], words), segment.row(row + c)[:, 0] != 0)
            there = np.flatnonzero(segment.summary[row + c])
            assert segment.reach[row + c].tolist() == ([there[0], there[-1] + 1] if len(there) else [0, 0])
        low_inside, high_inside = ~np.isin(lows, [*cuts, ABSENT]), ~np.isin(highs, [*(cuts - 1), PRESENT_MAX])
        assert (low_inside | high_inside).any() == (j in segment.compared)
        for c in range(end - row):
            cut = ((a == c) & low_inside) | ((z == c) & high_inside)
            assert np.array_equal(unpacked(segment.row(row + c)[:, 1], n), cut)
    for k, j in enumerate(segment.fine):
        for w in range(words):
            block = segment.corners[64 * w : 64 * w + 64]
            assert segment.spans[w, 2 * k] == block[:, 2 * j].min()
            assert segment.spans[w, 2 * k + 1] == block[:, 2 * j + 1].max()
