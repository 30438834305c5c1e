"""Many points against one segment: some are taken together, so that memory is asked for before it is needed.

    words        of each point the words that no summary and no span excludes        their bits are asked for
    candidates   of each word the boxes that touch the cells of its point            their corners are asked for
    corners      of each box whether it holds its point

At 100,000 subscriptions a point that is done before the next one is begun waits for memory most of its time: what it
reads lies in some tens of megabytes, and what comes next is not known before it has come. Taken by `TOGETHER`, points
wait side by side. One that has many words gains nothing by that, and is left to `state/matchers/scan.py`.
"""

from __future__ import annotations

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from state.arrays import Bools, Ints, Words
from state.kernels import njit
from state.matchers.scan import U2, Found, bit_sets, collect_each, mark_each, sort_once
from state.matchers.segment import U0, U1, Rows, Segment
from state.space.boxes import Ranks
from state.space.memory import prefetch

MANY = 64
"""Points from which on it pays to take them together."""
TOGETHER = 32
"""Points that are taken together."""
WORDS_MAX = 8
"""Words of a point beyond which it is done by itself: where many boxes hold it, one of the first is found soon."""
LATE = -1
_SURE = np.uint64(2**63)
"""Beside a candidate: its cells say that it holds the point."""
_WORD = np.uint64(8)


def mark(segment: Segment, points: Ranks, rows: Rows, order: Ints, found: Bools) -> None:
    """Set `found[e]` where a box of one segment holds point e of `order`; a point that is set already is left out."""
    if len(order) >= MANY and len(segment.dims):
        open_ones = order[~found[order]]
        order = np.empty(len(open_ones), np.int64)
        order = order[: mark_ahead(segment, points, rows, open_ones, found, order)]
    mark_each(segment, points, rows, order, found)


def collect(segment: Segment, points: Ranks, rows: Rows, order: Ints, low: int, high: int, alone: bool) -> Found:
    """Return (starts, ends, ids): `ids[starts[e] : ends[e]]` own the boxes of one segment that hold point e.

    If the segment is alone they are sorted, each once; else in any order, for `united` sorts them. All are of
    low .. high.
    """
    starts, ends = np.empty(len(points), np.int64), np.empty(len(points), np.int64)
    # numpy asks for large pages, numba does not: of many matches the writing of fresh memory is the greater segment.
    ids = np.empty(segment.size() + 2 * len(points), np.int64)
    done, used, left, late = 0, 0, 0, np.empty(len(order), np.int64)
    while len(order) >= MANY and len(segment.dims):
        done, used, left = collect_ahead(
            segment, points, rows, order, low, high, alone, starts, ends, ids, late, done, used, left
        )
        if done == len(order):
            order, done = late[:left], 0
            break
        ids = _larger(ids, used)
    while True:
        done, used = collect_each(segment, points, rows, order, low, high, alone, starts, ends, ids, done, used)
        if done == len(order):
            return starts, ends, ids[:used]
        ids = _larger(ids, used)


def _larger(ids: Ints, used: int) -> Ints:
    larger = np.empty(2 * len(ids), np.int64)
    larger[:used] = ids[:used]
    return larger


@njit
def mark_ahead(segment: Segment, points: Ranks, rows: Rows, order: Ints, found: Bools, late: Ints) -> int:
    """Say for the points of `order` whether some box holds them; return how many are left, the first of `late`."""
    dims, compared, corners = segment.dims, segment.compared, segment.corners.ravel()
    d, width, left = len(dims), np.uint64(2 * len(dims)), 0
    point, cells = np.empty(TOGETHER * d, np.int64), np.empty(TOGETHER * d, np.uint64)
    slots, words = _pairs(TOGETHER * (WORDS_MAX + 1))
    slots_of, boxes = _pairs(64 * len(slots))
    ends = np.empty(TOGETHER, np.int64)
    for first in range(0, len(order), TOGETHER):
        some = order[first : first + TOGETHER]
        n = _find_words(segment, points, rows, some, point, cells, slots, words, ends)
        n = _find_boxes(segment, cells, d, slots, words, n, slots_of, boxes, 0)
        for k in range(len(some)):
            late[left] = some[k]
            left += ends[k] == LATE
        for i in range(n):
            k, box = slots_of[np.uint64(i)], boxes[np.uint64(i)]
            if box >= _SURE:
                found[some[np.int64(k)]] = True
            else:
                found[some[np.int64(k)]] |= _holds(corners, compared, point, k * np.uint64(d), box * width)
    return left


@njit
def collect_ahead(
    segment: Segment, points: Ranks, rows: Rows, order: Ints, low: int, high: int, alone: bool,
    starts: Ints, ends: Ints, ids: Ints, late: Ints, done: int, used: int, left: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Go on with point order[done], as `collect_each` does, until all are done or there is no room for the next ones.

    Returns how many are done, ids written, and points left to others, the first of `late`.
    """
    dims, compared, corners, owners = segment.dims, segment.compared, segment.corners.ravel(), segment.owners
    d, width = len(dims), np.uint64(2 * len(dims))
    point, cells = np.empty(TOGETHER * d, np.int64), np.empty(TOGETHER * d, np.uint64)
    slots, words = _pairs(TOGETHER * (WORDS_MAX + 1))
    slots_of, boxes = _pairs(64 * len(slots))
    ends_of_words = np.empty(TOGETHER, np.int64)
    seen, seen_summary = bit_sets(low, high, len(owners) if alone else 0)
    while done < len(order):
        some = order[done : done + TOGETHER]
        n = _find_words(segment, points, rows, some, point, cells, slots, words, ends_of_words)
        n = _find_boxes(segment, cells, d, slots, words, n, slots_of, boxes, owners.ctypes.data)
        if used + n > len(ids):
            break
        i = 0
        for k in range(len(some)):
            e = some[k]
            starts[e] = used
            if ends_of_words[k] == LATE:
                late[left] = e
                left += 1
            while i < n and slots_of[i] == np.uint64(k):
                box = boxes[i]
                sure, box = box >= _SURE, box & ~_SURE
                ids[used] = owners[box]
                used += sure or _holds(corners, compared, point, np.uint64(k * d), box * width)
                i += 1
            if alone and used > starts[e] + 1:
                used = starts[e] + sort_once(ids[starts[e] : used], low, seen, seen_summary)
            ends[e] = used
        done += len(some)
    return done, used, left


@njit
def _pairs(n: int) -> tuple[Words, Words]:
    return np.empty(n, np.uint64), np.empty(n, np.uint64)


@njit
def _find_words(
    segment: Segment, points: Ranks, rows: Rows, some: Ints,
    point: Ints, cells: Words, slots: Words, words: Words, ends: Ints,
) -> np.int64:  # fmt: skip
    """Write coordinates and cells of some points, and of each the words where a box may hold it.

    Returns how many words there are of all; `ends[k]` is where those of the k-th end, LATE where it has too many.
    """
    dims, fine, spans, bits = segment.dims, segment.fine, segment.spans.ravel(), segment.bits.ctypes.data
    begins, reach, summary = segment.starts, segment.reach.ravel(), segment.summary.ravel()
    d, many, blocks, n = np.uint64(len(dims)), np.uint64(len(fine)), np.uint64(segment.summary.shape[1]), np.uint64(0)
    for k in range(len(some)):
        e, base = np.uint64(some[k]), np.uint64(k) * d
        first, end, before = U0, blocks, n
        for j in range(d):
            row, at = np.uint64(rows[e, np.uint64(j)]), base + np.uint64(j)
            point[at], cells[at] = points[e, dims[np.uint64(j)]], np.uint64(begins[row])
            first, end = max(first, np.uint64(reach[row + row])), min(end, np.uint64(reach[row + row + U1]))
        for s in range(first, end):
            left = ~U0
            for j in range(d):
                left &= summary[np.uint64(rows[e, np.uint64(j)]) * blocks + np.uint64(s)]
            while left != U0 and n <= before + np.uint64(WORDS_MAX):
                w = np.uint64(s) * np.uint64(64) + trailing_zeros(left)
                left &= left - U1
                outside = False
                for f in range(many):
                    value, at = point[base + np.uint64(fine[np.uint64(f)])], U2 * (w * many + np.uint64(f))
                    outside |= (value < spans[at]) | (value > spans[at + U1])
                for j in range(d):
                    prefetch(bits + np.int64(_WORD * (cells[base + np.uint64(j)] + w + w)))
                slots[n], words[n] = np.uint64(k), w
                n += np.uint64(not outside)
        ends[k] = np.int64(n)
        if n > before + np.uint64(WORDS_MAX):
            n, ends[k] = before, LATE
    return np.int64(n)


@njit
def _find_boxes(
    segment: Segment,
    cells: Words,
    d: int,
    slots: Words,
    words: Words,
    n: np.int64,
    slots_of: Words,
    boxes: Words,
    owners: int,
) -> np.int64:
    """Write the boxes of some words that touch the cells of their points, those first that hold them for sure.

    `owners`: where those of the boxes are, if they will be asked for; else 0.
    """
    bits, alive, found = segment.bits, segment.alive, U0
    corners, width = segment.corners.ctypes.data, np.uint64(16 * d)
    for i in range(n):
        k, w = slots[np.uint64(i)], words[np.uint64(i)]
        base, word, unsure = k * np.uint64(d), alive[w], U0
        for j in range(d):
            at = cells[base + np.uint64(j)] + w + w
            word &= bits[at]
            unsure |= bits[at + U1]
        sure, word = word & ~unsure, word & unsure
        while sure != U0:
            box = (w << np.uint64(6)) + trailing_zeros(sure)
            sure &= sure - U1
            slots_of[found], boxes[found] = k, box | _SURE
            found += U1
            if owners:
                prefetch(owners + np.int64(_WORD * box))
        while word != U0:
            box = (w << np.uint64(6)) + trailing_zeros(word)
            word &= word - U1
            slots_of[found], boxes[found] = k, box
            found += U1
            if owners:
                prefetch(owners + np.int64(_WORD * box))
            prefetch(corners + np.int64(width * box))
            prefetch(corners + np.int64(width * box + width - U1))
    return np.int64(found)


@njit
def _holds(corners: Ranks, compared: Ints, point: Ints, base: np.uint64, start: np.uint64) -> bool:
    """Whether the corners of a candidate hold the point, in the dimensions where its cells do not decide that."""
    inside = True
    for k in range(len(compared)):
        j = np.uint64(compared[np.uint64(k)])
        at = start + j + j
        inside &= (corners[at] <= point[base + j]) & (point[base + j] <= corners[at + U1])
    return inside
