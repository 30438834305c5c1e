"""The kernels of the bitmap matcher: a batch of events against one part, and the union of what parts found.

Nothing here branches on what it cannot foretell: words are AND-ed four dimensions at a time before they are looked at,
and a candidate is written first and counted only if its corners hold it.
"""

from __future__ import annotations

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from state.kernels import njit
from state.matchers.interface import Bools, Ints
from state.matchers.part import ALL, U0, U1, Part, Rows, Words, locate
from state.space.boxes import Ranks

COLLECT, ANY, GROUPS = 0, 1, 2
OR_CELLS_MAX = 8
"""An imprecise publication over more cells of a dimension than this is not looked up there, only compared."""


@njit
def scan(part: Part, points: Ranks, want: int, group_of_owner: Ints, found: Bools) -> tuple[Ints, Ints]:
    """Match points against one part: COLLECT into (offsets, ids), ids in order of storage; else set `found`.

    ANY stops an event at its first box. GROUPS stops when every group is found, and compares no box of a found
    group.
    """
    # Arrays are taken out of the tuple once: each access to a field counts references, atomically.
    dims, first_row, owners = part.dims, part.first_row, part.owners
    compared, fine, spans = part.compared, part.fine, part.spans
    first_edge, edges = part.first_edge, part.edges.ravel()
    # Flat and unsigned, an index is one addition; signed, it is first tested for being negative.
    bits, summary, alive, corners = part.bits.ravel(), part.summary, part.alive, part.corners.ravel()
    n, d, words, blocks = len(points), len(dims), len(alive), summary.shape[1]
    rows = locate(points, dims, part.trees, part.first_node, first_row)
    point, starts, survivors = np.empty(d, np.int64), np.empty(d, np.uint64), np.empty(blocks, np.uint64)
    edge_starts = np.empty(len(compared), np.uint64)
    offsets = np.zeros(n + 1, np.int64)
    # Room for every box before each event: to test inside the loops costs more than they do, and pages that
    # are never written are never there.
    room = len(owners) if want == COLLECT else 0
    ids = np.empty(room + n, np.int64)
    used, width = 0, np.uint64(2 * d)
    for e in range(n):
        missing = found.shape[1]
        for g in range(missing if want != COLLECT else 0):
            missing -= found[e, g]
        if want != COLLECT and missing == 0:
            continue
        if used + room > len(ids):
            ids = _grown(ids, used, room)
        for s in range(blocks):
            survivors[s] = ALL
        # Bits beyond the last word stand for nothing.
        survivors[blocks - 1] >>= np.uint64(-words & 63)
        for j in range(d):
            row = rows[e, j]
            point[j], starts[j] = points[e, dims[j]], np.uint64(row) * np.uint64(words)
            for s in range(blocks):
                survivors[s] &= summary[row, s]
        for k in range(len(compared)):
            j = compared[k]
            edge_starts[k] = starts[j] + np.uint64((first_edge[k] - first_row[j]) * words)
        for s in range(blocks):
            left = survivors[s]
            while left != U0:
                w = np.uint64(s * 64) + trailing_zeros(left)
                left &= left - U1
                word = alive[w]
                for k in range(len(fine)):
                    if point[fine[k]] < spans[w, 2 * k] or point[fine[k]] > spans[w, 2 * k + 1]:
                        word = U0
                word = _touched(bits, starts, w, word)
                if word == U0:
                    continue
                unsure = U0
                for k in range(len(edge_starts)):
                    unsure |= edges[edge_starts[k] + w]
                if want == COLLECT:
                    sure = word & ~unsure
                    while sure != U0:
                        ids[used] = owners[(w << np.uint64(6)) + trailing_zeros(sure)]
                        sure &= sure - U1
                        used += 1
                    word &= unsure
                    while word != U0:
                        i = (w << np.uint64(6)) + trailing_zeros(word)
                        word &= word - U1
                        ids[used] = owners[i]
                        used += _holds(corners, compared, point, i * width)
                while word != U0:
                    i = (w << np.uint64(6)) + trailing_zeros(word)
                    word &= word - U1
                    group = group_of_owner[owners[i]] if want == GROUPS else 0
                    if group >= 0 and not found[e, group] and _holds(corners, compared, point, i * width):
                        found[e, group] = True
                        missing -= 1
                        if missing == 0:
                            left = word = U0
            if want != COLLECT and missing == 0:
                break
        offsets[e + 1] = used
    return offsets, ids[:used]


@njit
def _touched(bits: Words, starts: Words, w: np.uint64, word: np.uint64) -> np.uint64:
    """Of the boxes in `word`, the w-th, those that touch the cells that start there."""
    for j in range(len(starts)):
        word &= bits[starts[j] + w]
    return word


@njit
def _holds(corners: Ranks, compared: Ints, point: Ranks, start: np.uint64) -> bool:
    """Whether the corners of a candidate hold the point, in the dimensions where its cells do not decide that."""
    inside = True
    for k in range(len(compared)):
        j = np.uint64(compared[k])
        at = start + j + j
        inside &= (corners[at] <= point[j]) & (point[j] <= corners[at + U1])
    return inside


@njit
def _grown(ids: Ints, used: int, room: int) -> Ints:
    larger = np.empty(2 * len(ids) + room, np.int64)
    larger[:used] = ids[:used]
    return larger


@njit
def scan_boxes(part: Part, lows: Ranks, highs: Ranks) -> tuple[Ints, Ints]:
    """Return (row of the batch, row of the part) for the boxes of one part that meet each query box."""
    n, blocks = len(lows), part.summary.shape[1]
    words = np.uint64(len(part.alive))
    firsts = locate(lows, part.dims, part.trees, part.first_node, part.first_row)
    lasts = locate(highs, part.dims, part.trees, part.first_node, part.first_row)
    room, used = len(part.owners), 0
    events, rows = np.empty(room + n, np.int64), np.empty(room + n, np.int64)
    for e in range(n):
        if used + room > len(rows):
            events, rows = _grown(events, used, room), _grown(rows, used, room)
        for s in range(blocks):
            left = _touching(part.summary, np.uint64(s), firsts[e], lasts[e], ALL)
            while left != U0:
                w = np.uint64(s * 64) + trailing_zeros(left)
                left &= left - U1
                if w >= words:
                    break
                word = _touching(part.bits, w, firsts[e], lasts[e], part.alive[w])
                while word != U0:
                    i = (w << np.uint64(6)) + trailing_zeros(word)
                    word &= word - U1
                    events[used], rows[used] = e, np.int64(i)
                    used += _meets(part, i, lows[e], highs[e])
    return events[:used], rows[:used]


@njit
def _touching(bitmap: Words, at: np.uint64, first: Rows, last: Rows, start: np.uint64) -> np.uint64:
    """AND over the dimensions of the OR over the rows first .. last, at one word; long runs count as ones."""
    word = start
    for j in range(len(first)):
        if last[j] - first[j] < OR_CELLS_MAX:
            some = U0
            for row in range(first[j], last[j] + 1):
                some |= bitmap[row, at]
            word &= some
    return word


@njit
def _meets(part: Part, i: np.uint64, low: Ranks, high: Ranks) -> bool:
    meets = True
    for j in range(len(part.dims)):
        column = part.dims[j]
        meets &= (part.corners[i, 2 * j] <= high[column]) & (low[column] <= part.corners[i, 2 * j + 1])
    return meets


@njit
def united(offsets: Ints, ids: Ints, low: int, high: int) -> tuple[Ints, Ints]:
    """Sort the ids of each event and drop repeats; part k found `ids[offsets[k, e] : offsets[k, e + 1]]` for e.

    Few ids are sorted as they are. Many are set as bits of the numbers low .. high, with one summary bit per
    word, and read back in order: linear in the matches, whatever order they came in.
    """
    parts, n = offsets.shape[0], offsets.shape[1] - 1
    rows_out, ids_out = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    span = high - low + 1
    # Ids far apart, or so far that their difference overflows, are always sorted.
    dense = 0 < span <= 64 * len(ids) + 4096
    seen = np.zeros((span + 63) >> 6 if dense else 1, np.uint64)
    summary = np.zeros((len(seen) + 63) >> 6, np.uint64)
    used = 0
    for e in range(n):
        start = used
        for k in range(parts):
            for at in range(offsets[k, e], offsets[k, e + 1]):
                ids_out[used] = ids[at]
                used += 1
        count = used - start
        if dense and count > 16 and 8 * count > len(summary):
            used = start + _sort_by_bits(ids_out[start:used], low, seen, summary)
        elif count > 1:
            used = start + _sort_by_values(ids_out[start:used])
        for at in range(start, used):
            rows_out[at] = e
    return rows_out[:used], ids_out[:used]


@njit
def _sort_by_bits(some: Ints, low: int, seen: Words, summary: Words) -> int:
    """Sort in place without repeats, through two levels of bits that are zero before and after."""
    for at in range(len(some)):
        bit = np.uint64(some[at] - low)
        seen[bit >> np.uint64(6)] |= U1 << (bit & np.uint64(63))
        summary[bit >> np.uint64(12)] |= U1 << ((bit >> np.uint64(6)) & np.uint64(63))
    kept = 0
    for s in range(len(summary)):
        left = summary[s]
        summary[s] = U0
        while left != U0:
            w = np.uint64(s * 64) + trailing_zeros(left)
            left &= left - U1
            word = seen[w]
            seen[w] = U0
            while word != U0:
                some[kept] = low + np.int64((w << np.uint64(6)) + trailing_zeros(word))
                word &= word - U1
                kept += 1
    return kept


@njit
def _sort_by_values(some: Ints) -> int:
    """Sort in place without repeats: by insertion if there are few."""
    if len(some) > 32:
        some.sort()
    else:
        for i in range(1, len(some)):
            value, at = some[i], i
            while at > 0 and some[at - 1] > value:
                some[at] = some[at - 1]
                at -= 1
            some[at] = value
    kept = 1
    for i in range(1, len(some)):
        some[kept] = some[i]
        kept += some[i] != some[kept - 1]
    return kept


@njit
def bury(alive: Words, by_owner: Ints, first: Ints, end: Ints) -> int:
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
