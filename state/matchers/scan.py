"""The kernels of the bitmap matcher: events against one segment one by one, and the union of what segments found.

Many events are taken together, as far as that pays, by `state/matchers/scan_ahead.py`.

The inner loops do not branch on what cannot be foretold: words of all dimensions are AND-ed before they are looked at,
and a candidate is written first and counted only if its corners hold it.
"""

from __future__ import annotations

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros
from numpy.typing import NDArray

from state.arrays import Bools, Ints, Words
from state.kernels import njit
from state.matchers.matcher import Matches
from state.matchers.segment import ALL, U0, U1, Rows, Segment, locate, segment_at
from state.space.boxes import Ranks

Found = tuple[Ints, Ints, Ints]
"""Starts, ends and ids: what was found for event e is `ids[starts[e] : ends[e]]`."""

U2 = np.uint64(2)
OR_CELLS_MAX = 8
"""An imprecise publication over more cells of a dimension than this is not looked up there, only compared."""


@njit
def collect_each(
    segment: Segment,
    points: Ranks,
    rows: Rows,
    order: Ints,
    low: int,
    high: int,
    alone: bool,
    starts: Ints,
    ends: Ints,
    ids: Ints,
    done: int,
    used: int,
) -> tuple[int, int]:
    """Write for point e where in `ids` the owners begin and end whose boxes in one segment hold it: starts[e], ends[e].

    If the segment is alone they are sorted, each once; else in any order, for `united` sorts them. All are of
    low .. high. Goes on with point order[done] until all are done, or there is no room for every box to match; says
    how far, and how many ids are used.
    """
    # Arrays are taken out of the tuple once, since each access to a field counts references. Flat and unsigned,
    # an index is one addition; signed, it is first tested for being negative.
    owners, alive, summary, reach = segment.owners, segment.alive, segment.summary, segment.reach
    bits, begins = segment.bits, segment.starts
    dims, compared, fine, spans = segment.dims, segment.compared, segment.fine, segment.spans.ravel()
    corners, width = segment.corners.ravel(), np.uint64(2 * len(dims))
    d, words, blocks = len(dims), len(alive), summary.shape[1]
    point, cells, survivors = np.empty(d, np.int64), np.empty(d, np.uint64), np.empty(blocks, np.uint64)
    seen, seen_summary = bit_sets(low, high, len(owners) if alone else 0)
    while done < len(order) and used + len(owners) <= len(ids):
        e = order[done]
        done += 1
        starts[e] = used
        for j in range(d):
            point[j], cells[j] = points[e, dims[j]], np.uint64(begins[rows[e, j]])
        first, end = _survive(rows, e, reach, summary, words, survivors)
        for s in range(first, end):
            left = survivors[s]
            while left != U0:
                w = np.uint64(s * 64) + trailing_zeros(left)
                left &= left - U1
                if _outside(spans, fine, point, w):
                    continue
                word = _touched(bits, cells, w, alive[w])
                if word == U0:
                    continue
                unsure = _unsure(bits, cells, w)
                sure, word = word & ~unsure, word & unsure
                while sure != U0:
                    ids[used] = owners[(w << np.uint64(6)) + trailing_zeros(sure)]
                    sure &= sure - U1
                    used += 1
                while word != U0:
                    i = (w << np.uint64(6)) + trailing_zeros(word)
                    word &= word - U1
                    ids[used] = owners[i]
                    used += _holds(corners, compared, point, i * width)
        if alone and used > starts[e] + 1:
            used = starts[e] + sort_once(ids[starts[e] : used], low, seen, seen_summary)
        ends[e] = used
    return done, used


@njit
def collect_few(places: Ints, points: Ranks, out: Ints) -> int:
    """`collect_each` and `united` in one call for all segments, given by their addresses: of few points, it costs most.

    Writes pairs into the rows of `out`, points and owners, and returns how many there are; if that is more than `out`
    has room for, nothing is written. To make arrays and hand them out would cost more than all else here.
    No bits are set to sort with but for what was found: to clear one for each owner would cost more than to look.
    """
    n, order = len(points), np.arange(len(points))
    starts, ends = np.empty((len(places), n), np.int64), np.empty((len(places), n), np.int64)
    ids, used = np.empty(0, np.int64), 0
    for k in range(len(places)):
        segment = segment_at(places[k])
        rows = locate(points, segment.dims, segment.trees, segment.first_node, segment.first_row)
        done = 0
        while done < n:
            if used + len(segment.owners) > len(ids):
                ids = _grown(ids, used, len(segment.owners) + 2 * n)
            done, used = collect_each(segment, points, rows, order, 0, -1, False, starts[k], ends[k], ids, done, used)
    first, end, found = _merged(starts, ends, ids[:used], np.empty(used, np.int64))
    if len(found) <= out.shape[1]:
        for e in range(n):
            for at in range(first[e], end[e]):
                out[0, at], out[1, at] = e, found[at]
    return len(found)


@njit
def mark_each(segment: Segment, points: Ranks, rows: Rows, order: Ints, found: Bools) -> None:
    """Set `found[e]` where a box of one segment holds point e; a point that is set already is left out."""
    alive, summary, reach = segment.alive, segment.summary, segment.reach
    bits, begins = segment.bits, segment.starts
    dims, compared, fine, spans = segment.dims, segment.compared, segment.fine, segment.spans.ravel()
    corners, width = segment.corners.ravel(), np.uint64(2 * len(dims))
    d, words, blocks = len(dims), len(alive), summary.shape[1]
    point, cells, survivors = np.empty(d, np.int64), np.empty(d, np.uint64), np.empty(blocks, np.uint64)
    for e in order:
        if found[e]:
            continue
        for j in range(d):
            point[j], cells[j] = points[e, dims[j]], np.uint64(begins[rows[e, j]])
        first, end = _survive(rows, e, reach, summary, words, survivors)
        for s in range(first, end):
            left = survivors[s]
            while left != U0 and not found[e]:
                w = np.uint64(s * 64) + trailing_zeros(left)
                left &= left - U1
                if _outside(spans, fine, point, w):
                    continue
                word = _touched(bits, cells, w, alive[w])
                if word == U0:
                    continue
                unsure = _unsure(bits, cells, w)
                found[e] = (word & ~unsure) != U0
                while word != U0 and not found[e]:
                    i = (w << np.uint64(6)) + trailing_zeros(word)
                    word &= word - U1
                    found[e] = _holds(corners, compared, point, i * width)


@njit
def _survive(rows: Rows, e: int, reach: Ints, summary: Words, words: int, survivors: Words) -> tuple[int, int]:
    """AND the summaries of the cells of point e, where all of them reach; return from where to where that is."""
    first, end = 0, len(survivors)
    for j in range(rows.shape[1]):
        row = rows[e, j]
        first, end = max(first, reach[row, 0]), min(end, reach[row, 1])
    for s in range(first, end):
        survivors[s] = ALL
    # Bits beyond the last word stand for nothing.
    survivors[len(survivors) - 1] >>= np.uint64(-words & 63)
    for j in range(rows.shape[1]):
        row = rows[e, j]
        for s in range(first, end):
            survivors[s] &= summary[row, s]
    return first, end


@njit
def _touched(bits: Words, cells: Words, w: np.uint64, word: np.uint64) -> np.uint64:
    """Of the boxes in `word`, the w-th, those that touch these cells, given as where their word 0 would be in `bits`.

    That may be before 0: sums of unsigned numbers come back from there. All of them keep a word w that survives.
    """
    for j in range(len(cells)):
        word &= bits[cells[j] + w + w]
    return word


@njit
def _outside(spans: Ranks, fine: Ints, point: Ranks, w: np.uint64) -> bool:
    """Whether the point is outside the span of all boxes of a word in one of the fine dimensions.

    Asked first: spans of words that follow each other lie side by side, their bits do not.
    """
    outside, many = False, np.uint64(len(fine))
    for k in range(len(fine)):
        value, at = point[np.uint64(fine[k])], U2 * (w * many + np.uint64(k))
        outside |= (value < spans[at]) | (value > spans[at + U1])
    return outside


@njit
def _unsure(bits: Words, cells: Words, w: np.uint64) -> np.uint64:
    """The boxes of word w with a corner inside one of the cells: whether they hold the point is not yet decided."""
    unsure = U0
    for j in range(len(cells)):
        unsure |= bits[cells[j] + w + w + U1]
    return unsure


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
def scan_boxes(segment: Segment, lows: Ranks, highs: Ranks) -> tuple[Ints, Ints]:
    """Return (row of the batch, row of the segment) for the boxes of one segment that meet each query box."""
    n, blocks = len(lows), segment.summary.shape[1]
    words = np.uint64(len(segment.alive))
    firsts = locate(lows, segment.dims, segment.trees, segment.first_node, segment.first_row)
    lasts = locate(highs, segment.dims, segment.trees, segment.first_node, segment.first_row)
    room, used = len(segment.owners), 0
    events, rows = np.empty(room + n, np.int64), np.empty(room + n, np.int64)
    for e in range(n):
        if used + room > len(rows):
            events, rows = _grown(events, used, room), _grown(rows, used, room)
        for s in range(blocks):
            left = _touching_words(segment.summary, s, firsts[e], lasts[e])
            while left != U0:
                w = np.uint64(s * 64) + trailing_zeros(left)
                left &= left - U1
                if w >= words:
                    break
                word = _touching(segment, w, firsts[e], lasts[e])
                while word != U0:
                    i = (w << np.uint64(6)) + trailing_zeros(word)
                    word &= word - U1
                    events[used], rows[used] = e, np.int64(i)
                    used += _meets(segment, i, lows[e], highs[e])
    return events[:used], rows[:used]


@njit
def _touching_words(summary: Words, s: int, first: Rows, last: Rows) -> np.uint64:
    """AND over the dimensions of the OR over the rows first .. last, at one word; long runs count as ones."""
    word = ALL
    for j in range(len(first)):
        if last[j] - first[j] < OR_CELLS_MAX:
            some = U0
            for row in range(first[j], last[j] + 1):
                some |= summary[row, s]
            word &= some
    return word


@njit
def _touching(segment: Segment, w: np.uint64, first: Rows, last: Rows) -> np.uint64:
    """The same at a word of the rows themselves; of those that do not keep it, it is 0."""
    word = segment.alive[w]
    for j in range(len(first)):
        if last[j] - first[j] < OR_CELLS_MAX:
            some = U0
            for row in range(first[j], last[j] + 1):
                if (segment.summary[row, w >> np.uint64(6)] >> (w & np.uint64(63))) & U1:
                    some |= segment.bits[np.uint64(segment.starts[row]) + w + w]
            word &= some
    return word


@njit
def _meets(segment: Segment, i: np.uint64, low: Ranks, high: Ranks) -> bool:
    meets = True
    for j in range(len(segment.dims)):
        column = segment.dims[j]
        meets &= (segment.corners[i, 2 * j] <= high[column]) & (low[column] <= segment.corners[i, 2 * j + 1])
    return meets


def united(found: list[Found], alone: bool = False) -> Matches:
    """Unite what segments found; what a segment found `alone` is already sorted, each id once."""
    starts, ends, ids = found[0]
    if not alone:
        shift = np.cumsum([0, *(len(some) for _, _, some in found[:-1])])[:, None]
        all_starts = np.stack([some for some, _, _ in found]) + shift
        all_ends = np.stack([some for _, some, _ in found]) + shift
        all_ids = np.concatenate([some for _, _, some in found]) if len(found) > 1 else ids
        starts, ends, ids = _merged(all_starts, all_ends, all_ids, np.empty(len(all_ids), np.int64))
    total = int((ends - starts).sum())
    matches = Matches(np.empty(total, np.int64), np.empty(total, np.int64))
    _in_order(starts, ends, ids, matches.rows, matches.ids)
    return matches


@njit
def _merged(starts: Ints, ends: Ints, ids: Ints, out: Ints) -> Found:
    """For each event one run of ids, sorted and without repeats, out of one run per segment."""
    segments, n = starts.shape
    low, high = (ids.min(), ids.max()) if len(ids) else (0, 0)
    seen, summary = bit_sets(low, high, len(ids))
    out_starts, out_ends, used = np.empty(n, np.int64), np.empty(n, np.int64), 0
    for e in range(n):
        out_starts[e] = used
        for k in range(segments):
            for at in range(starts[k, e], ends[k, e]):
                out[used] = ids[at]
                used += 1
        if used > out_starts[e] + 1:
            used = out_starts[e] + sort_once(out[out_starts[e] : used], low, seen, summary)
        out_ends[e] = used
    return out_starts, out_ends, out[:used]


@njit
def _in_order(starts: Ints, ends: Ints, ids: Ints, rows_out: Ints, ids_out: Ints) -> None:
    """Write the runs of ids one after the other, in the order of the events, each with its event."""
    used = 0
    for e in range(len(starts)):
        for at in range(starts[e], ends[e]):
            rows_out[used], ids_out[used] = e, ids[at]
            used += 1


@njit
def bit_sets(low: int, high: int, expected: int) -> tuple[Words, Words]:
    """Zeros for `sort_once`: a bit for each id low .. high, and one for each of its words; none if ids are too sparse.

    A difference that overflows is negative, and also too sparse.
    """
    span = high - low + 1
    words = (span + 63) >> 6 if 0 < span <= 64 * expected + 4096 else 0
    return np.zeros(words, np.uint64), np.zeros((words + 63) >> 6, np.uint64)


@njit
def sort_once(some: Ints, low: int, seen: Words, summary: Words) -> int:
    """Sort ids in place and keep one of each; return how many.

    Few are sorted as they are. Many are set as bits, with one summary bit per word, and read back in order: linear
    in the ids, whatever order they came in.
    """
    if len(some) > 16 and len(seen) > 0 and 8 * len(some) > len(summary):
        return _sort_by_bits(some, low, seen, summary)
    return _sort_by_values(some)


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
def bury(alive: Words, by_owner: NDArray[np.int32], first: Ints, end: Ints) -> int:
    """Clear the bits of the rows by_owner[first[k]:end[k]]; return how many were set."""
    buried = 0
    for k in range(len(first)):
        for at in range(first[k], end[k]):
            i = np.int64(by_owner[at])
            bit = U1 << np.uint64(i & 63)
            if alive[i >> 6] & bit:
                alive[i >> 6] &= ~bit
                buried += 1
    return buried
