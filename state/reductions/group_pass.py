"""Entries judged by compiled passes over the active rows and their tree: what `group_covering.py` asks for.

    judge_box       is one box covered?  inside one row ──> a corner in no row ──> `judge` by the rows that meet it
    judge_again     withheld entries, some of whose coverers left: of each only what these had covered
    needed_of_each  who of groups that were handed down could not be left out
    take_in         entries one after another: covered ones join a group, others the tree; what lies inside leaves

        P was covered by A, B, C, and A leaves:          ┌─P──────────────┐
        P without A is covered by B and C still, so      │ B  ┌A∩P┐   C   │     judged: A∩P, by what meets it;
        A∩P alone is looked up                           └────┴───┴───────┘     P's group: B, C and what covers A∩P

Without a tree all rows are looked at. The answers are the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.arrays import Bools, Floats, Ints, Words
from state.kernels import njit
from state.reductions.conflict_table import COROLLARY_1
from state.reductions.cover_links import COVERER, NEXT
from state.reductions.judging import Rules, judge
from state.reductions.merging_pass import MergingTree
from state.reductions.pairwise import first_of, leave, within
from state.reductions.row_tree import (
    CHANGES_MIN,
    CORNER_BITS,
    LEAST,
    MOST,
    NONE,
    Links,
    ask_corner,
    between,
    insert,
    open_corner,
    search,
    search_first,
)
from state.reductions.rspc import CAP, CORNER, ERROR, MADE, ROWS, STEP_NAMES, SUBTRACTION, seed_by
from state.space.boxes import Ranks
from state.space.subtraction import COVERED, EXHAUSTED, UNCOVERED, room_for, subtract, subtract_in

NEEDED_PIECES_MAX = 1_000
"""Pieces that it may take to see which of a group are needed."""
SPARED_MAX = 64
"""Rows of a group up to which each is tried to be left out."""
NEAR_MAX = 1_024
"""Rows that meet a box that left up to which they are gone through for each entry that it had covered."""
TRIALS, CAP_MAX, CAP_SUM, STEPS_FROM = 0, 1, 2, 3
"""Of `counts`: guesses, the largest error at the cap, their sum, then boxes by the step that decided."""
COUNTS = STEPS_FROM + len(STEP_NAMES)
ALL_COVERED, ONE_OPEN, WORD_WANTED = 0, 1, 2
"""What `judge_again` says of entries: all are covered, the last is not, or subtraction does not tell about the next."""


class Room(NamedTuple):
    """Memory to subtract rows in: made once for many judgements, each of which would take as long to ask for it."""

    lows: Ranks
    highs: Ranks
    stack: Ranks
    taken: Ints
    used: Bools
    ends: Ranks
    """A point, and a low and a high end."""


@njit
def _room(k: int, d: int) -> Room:
    """Room for k rows."""
    stack, taken = room_for(k, d)
    lows, highs = np.empty((k, d), np.int64), np.empty((k, d), np.int64)
    return Room(lows, highs, stack, taken, np.empty(k, np.bool_), np.empty((3, d), np.int64))


@njit
def _meeting(
    points: Ranks,
    owners: Ints,
    bounds: Ranks,
    links: Links,
    chain: Links,
    stack: Links,
    low: Ranks,
    high: Ranks,
    floor: Ranks,
    ceiling: Ranks,
    found: Ints,
) -> int:
    """Write the live rows that meet a box, in no order; how many. No nodes: there is no tree."""
    d = len(low)
    for j in range(d):
        floor[j], floor[d + j] = LEAST, low[j]
        ceiling[j], ceiling[d + j] = high[j], MOST
    if len(links):
        return search(points, bounds, links, chain, stack, floor, ceiling, found)
    count = 0
    for row in range(len(owners)):
        if owners[row] >= 0 and between(points, row, floor, ceiling):
            found[count] = row
            count += 1
    return count


@njit
def _first_of(points: Ranks, rows: Ints, floor: Ranks, ceiling: Ranks) -> int:
    """The first of `rows` between, or -1."""
    for row in rows:
        if between(points, row, floor, ceiling):
            return row
    return NONE


@njit
def _fast(
    points: Ranks,
    bounds: Ranks,
    links: Links,
    chain: Links,
    stack: Links,
    low: Ranks,
    high: Ranks,
    floor: Ranks,
    ceiling: Ranks,
    rows: Ints,
) -> tuple[int, int]:
    """A row that contains the box and -1, or -1 and a corner in no row, or -1 twice; without a tree of `rows`."""
    d = len(low)
    for j in range(d):
        floor[j], floor[d + j] = LEAST, high[j]
        ceiling[j], ceiling[d + j] = low[j], MOST
    if len(links):
        row = search_first(points, bounds, links, chain, stack, floor, ceiling)
        if row != NONE:
            return row, NONE
        return NONE, open_corner(points, bounds, links, chain, stack, low, high, floor, ceiling)
    row = _first_of(points, rows, floor, ceiling)
    if row != NONE:
        return row, NONE
    for corner in range(1 << min(d, CORNER_BITS)):
        ask_corner(low, high, corner, floor, ceiling)
        if _first_of(points, rows, floor, ceiling) == NONE:
            return NONE, corner
    return NONE, NONE


@njit
def _ends_of(points: Ranks, rows: Ints, lows: Ranks, highs: Ranks) -> tuple[Ranks, Ranks]:
    """Lows and highs of rows, in memory that is there."""
    k, d = len(rows), points.shape[1] // 2
    for i in range(k):
        for j in range(d):
            lows[i, j], highs[i, j] = points[rows[i], j], points[rows[i], d + j]
    return lows[:k], highs[:k]


@njit
def _judged(
    points: Ranks,
    rows: Ints,
    rules: Rules,
    low: Ranks,
    high: Ranks,
    seed: np.uint64,
    point: Ranks,
    figures: Floats,
) -> tuple[int, Ints]:
    """The step that decided whether some rows, in their order, cover a box, and those that do."""
    k, d = len(rows), len(low)
    used = np.empty(k, np.bool_)
    lows, highs = _ends_of(points, rows, np.empty((k, d), np.int64), np.empty((k, d), np.int64))
    step = judge(rules, low, high, lows, highs, seed, point, used, figures)
    return step, rows[used]


@njit
def _taking(points: Ranks, rows: Ints, low: Ranks, high: Ranks) -> Ints:
    """Of rows that cover a box those that subtraction takes, if it comes to an end."""
    k, d = len(rows), len(low)
    lows, highs = _ends_of(points, rows, np.empty((k, d), np.int64), np.empty((k, d), np.int64))
    point, used = np.empty(d, np.int64), np.zeros(k, np.bool_)
    found, _ = subtract(low, high, lows, highs, NEEDED_PIECES_MAX, point, used)
    return rows[used] if found == COVERED else rows


@njit
def _needed(points: Ranks, rows: Ints, low: Ranks, high: Ranks, room: Room) -> Ints:
    """Of rows that cover a box, in their order, as few as cover the same of it: none could be left out.

    Whoever is in a group is asked for again when one of it goes: what is not needed costs that for nothing. One is not
    needed if the others cover what it shares with the box. Of more than a few rows, only what subtraction takes. `rows`
    are written over; there is room for `SPARED_MAX`, or for all of them.
    """
    if len(rows) > SPARED_MAX:
        rows = _taking(points, rows, low, high)
    k, d = len(rows), len(low)
    if k < 2 or k > SPARED_MAX:
        return rows
    lows, highs = _ends_of(points, rows, room.lows, room.highs)
    used, stack, taken = room.used, room.stack, room.taken
    point, first, last = room.ends[0], room.ends[1], room.ends[2]
    i = 0
    while i < k and k > 1:
        # The one that is tried stands last; if it is not needed, it is there no more.
        k -= 1
        _swap(rows, lows, highs, i, k)
        meets = True
        for j in range(d):
            first[j], last[j] = max(lows[k, j], low[j]), min(highs[k, j], high[j])
            meets &= first[j] <= last[j]
        if not meets:
            continue
        if not _open_at_corner(first, last, lows, highs, k):
            used[:k] = False
            found, _ = subtract_in(first, last, lows[:k], highs[:k], 0, NEEDED_PIECES_MAX, point, used, stack, taken)
            if found == COVERED:
                continue
        _swap(rows, lows, highs, i, k)
        k, i = k + 1, i + 1
    return _each_once(rows[:k])


@njit
def _open_at_corner(low: Ranks, high: Ranks, lows: Ranks, highs: Ranks, k: int) -> bool:
    """Whether a corner of a box lies in none of the first k rows: soon seen, and most who are needed are by that."""
    d = len(low)
    for corner in range(1 << min(d, CORNER_BITS)):
        is_held = False
        for i in range(k):
            is_held = True
            for j in range(d):
                value = high[j] if j < CORNER_BITS and corner >> j & 1 else low[j]
                if value < lows[i, j] or value > highs[i, j]:
                    is_held = False
                    break
            if is_held:
                break
        if not is_held:
            return True
    return False


@njit
def _swap(rows: Ints, lows: Ranks, highs: Ranks, one: int, other: int) -> None:
    rows[one], rows[other] = rows[other], rows[one]
    for j in range(lows.shape[1]):
        lows[one, j], lows[other, j] = lows[other, j], lows[one, j]
        highs[one, j], highs[other, j] = highs[other, j], highs[one, j]


@njit
def judge_box(
    points: Ranks,
    owners: Ints,
    bounds: Ranks,
    links: Links,
    chain: Links,
    stack: Links,
    found: Ints,
    rules: Rules,
    low: Ranks,
    high: Ranks,
    word: np.uint64,
    point: Ranks,
    figures: Floats,
) -> tuple[int, Ints]:
    """The step that decided whether the live rows cover a box, and the rows that do, in their order.

    `word`: of the id that asks; `found` has room for all rows; `point` becomes the witness, if there is one.
    """
    n = points.shape[1]
    floor, ceiling = np.empty(n, np.int64), np.empty(n, np.int64)
    figures[:] = 0.0
    count = 0
    if not len(links):
        count = _meeting(points, owners, bounds, links, chain, stack, low, high, floor, ceiling, found)
    row, corner = _fast(points, bounds, links, chain, stack, low, high, floor, ceiling, found[:count])
    if row != NONE:
        return COROLLARY_1, np.array([row])
    if rules.rows_max == 0 and not rules.proving:
        return ROWS, found[:0].copy()
    if corner != NONE:
        for j in range(len(low)):
            point[j] = high[j] if j < CORNER_BITS and corner >> j & 1 else low[j]
        return CORNER, found[:0].copy()
    if len(links):
        count = _meeting(points, owners, bounds, links, chain, stack, low, high, floor, ceiling, found)
    seed = seed_by(word, low, high)
    step, cover = _judged(points, np.sort(found[:count]), rules, low, high, seed, point, figures)
    if len(cover) < 2:
        return step, cover
    return step, _needed(points, cover, low, high, _room(min(len(cover), SPARED_MAX), len(low)))


@njit
def count_step(step: int, figures: Floats, counts: Floats) -> None:
    """Note what a judgement was."""
    counts[STEPS_FROM + step] += 1
    counts[TRIALS] += figures[MADE]
    if step == CAP:
        counts[CAP_MAX] = max(counts[CAP_MAX], figures[ERROR])
        counts[CAP_SUM] += figures[ERROR]


@njit
def _more(list: Ints, size: int, more: Ints) -> tuple[Ints, int]:
    """A list with `more` behind its first `size`, in memory that grows."""
    if size + len(more) > len(list):
        longer = np.empty(2 * (size + len(more)), np.int64)
        longer[:size] = list[:size]
        list = longer
    list[size : size + len(more)] = more
    return list, size + len(more)


@njit
def _more_one(list: Ints, size: int, row: int) -> tuple[Ints, int]:
    """A list with one number more."""
    if size == len(list):
        longer = np.empty(2 * size + 16, np.int64)
        longer[:size] = list
        list = longer
    list[size] = row
    return list, size + 1


# --- again --------------------------------------------------------------------------------------------------


@njit
def _meeting_of(points: Ranks, rows: Ints, low: Ranks, high: Ranks, found: Ints) -> int:
    """Write those of `rows` that meet a box, in their order; how many."""
    d, count = len(low), 0
    for row in rows:
        meets = True
        for j in range(d):
            if points[row, j] > high[j] or points[row, d + j] < low[j]:
                meets = False
                break
        if meets:
            found[count] = row
            count += 1
    return count


@njit
def _rows_of_group(owners: Ints, cover_links: Links, groups: Ints, heir: int, rows: Ints) -> tuple[Ints, int]:
    """The rows of who covers a withheld entry, one entry after another, in a list that grows; how many."""
    count, link = 0, groups[heir]
    while link != NONE:
        start = row = cover_links[link, COVERER]
        while row < len(owners) and owners[row] == owners[start]:
            rows, count = _more_one(rows, count, row)
            row += 1
        link = cover_links[link, NEXT]
    return rows, count


@njit
def shares(points: Ranks, owners: Ints, starts: Ints, sides: Floats) -> tuple[Floats, Ints, bool]:
    """The share of a domain with such sides that each entry has, and their order, the larger first.

    Entries begin at `starts`. Also whether two shares are equal: then theirs is any order.
    """
    d, found = len(sides), np.zeros(len(starts))
    for i in range(len(starts)):
        row = starts[i]
        while row < len(owners) and owners[row] == owners[starts[i]]:
            share = 1.0
            for j in range(d):
                share *= (np.float64(np.uint64(points[row, d + j]) - np.uint64(points[row, j])) + 1.0) / sides[j]
            found[i] += share
            row += 1
    order, alike = np.argsort(-found), False
    for i in range(1, len(order)):
        alike |= found[order[i]] == found[order[i - 1]]
    return found, order, alike


@njit
def _more_owners(list: Ints, size: int, begin: int, owners: Ints, rows: Ints) -> tuple[Ints, int]:
    """A list with the first row of each entry that owns some of `rows` behind its first `size`; once since `begin`."""
    for row in rows:
        first, is_known = first_of(owners, row), False
        for at in range(begin, size):
            is_known |= list[at] == first
        if not is_known:
            list, size = _more_one(list, size, first)
    return list, size


@njit
def _each_once(rows: Ints) -> Ints:
    """Few rows in their order, each once; they are put in order where they are."""
    count = 0
    for row in rows:
        at = count
        while at > 0 and rows[at - 1] > row:
            at -= 1
        if at > 0 and rows[at - 1] == row:
            continue
        for n in range(count, at, -1):
            rows[n] = rows[n - 1]
        rows[at] = row
        count += 1
    return rows[:count]


@njit
def _share(one: Ints, other: Ints, low: Ints, high: Ints) -> bool:
    """Write what two boxes share; whether that is anything."""
    d, meets = len(low), True
    for j in range(d):
        low[j], high[j] = max(one[j], other[j]), min(one[d + j], other[d + j])
        meets &= low[j] <= high[j]
    return meets


@njit
def _mended(
    points: Ranks, rows: Ints, staying: int, rules: Rules, low: Ranks, high: Ranks, room: Room, joining: Ints
) -> tuple[int, int]:
    """Whether some rows cover a box, as far as subtraction tells, and of how many beside the first ones: `joining`.

    What stays of a group, the first rows, takes away first what it can, so that few others join it. It may stand among
    the others again.
    """
    lows, highs = _ends_of(points, rows, room.lows, room.highs)
    k, d = lows.shape
    room.used[:k] = False
    pieces = rules.budget if rules.proving else rules.budget // max(1, (k - staying) * d)
    answer, _ = subtract_in(low, high, lows, highs, staying, pieces, room.ends[0], room.used, room.stack, room.taken)
    count = 0
    for i in range(staying, k):
        if room.used[i]:
            joining[count] = rows[i]
            count += 1
    return answer, count


@njit
def _drawing(
    points: Ranks,
    rows: Ints,
    rules: Rules,
    low: Ranks,
    high: Ranks,
    word: np.uint64,
    room: Room,
    figures: Floats,
    joining: Ints,
) -> tuple[int, int]:
    """The step that decided, by draws where nothing else does, and how many rows cover the box, in `joining`."""
    step, cover = _judged(points, rows, rules, low, high, seed_by(word, low, high), room.ends[0], figures)
    joining[: len(cover)] = cover
    return step, len(cover)


@njit
def _near(
    points: Ranks,
    owners: Ints,
    bounds: Ranks,
    links: Links,
    chain: Links,
    stack: Links,
    left: Ranks,
    low: Ranks,
    high: Ranks,
    floor: Ranks,
    ceiling: Ranks,
    near: Ints,
    held: int,
    ends: Ints,
    found: Ints,
) -> tuple[Ints, int, int]:
    """Write the live rows that meet a part of a box that left, in their order; how many, behind the list `near`.

    What meets the whole box is kept behind the first `held` of `near`, unless it is much; `ends`: where it begins and
    ends, if it was looked up.
    """
    d = len(low)
    if ends[0] == NONE:
        met = _meeting(points, owners, bounds, links, chain, stack, left[:d], left[d:], floor, ceiling, found)
        ends[0] = held
        if met <= NEAR_MAX:
            found[:met].sort()
            near, held = _more(near, held, found[:met])
            ends[1] = held
    if ends[1] == NONE:
        met = _meeting(points, owners, bounds, links, chain, stack, low, high, floor, ceiling, found)
        found[:met].sort()
        return near, held, met
    return near, held, _meeting_of(points, near[ends[0] : ends[1]], low, high, found)


@njit
def judge_again(
    points: Ranks,
    owners: Ints,
    bounds: Ranks,
    links: Links,
    chain: Links,
    stack: Links,
    rules: Rules,
    withheld: Ranks,
    their_owners: Ints,
    heirs: Ints,
    cover_links: Links,
    groups: Ints,
    left: Ranks,
    gone: Ints,
    spans: Ints,
    words: Words,
    counts: Floats,
) -> tuple[int, int, Ints, Ints]:
    """Judge withheld entries, some of whose coverers left, as far as the first that is not covered any more.

    Each begins at `heirs` among the rows `withheld`; its group are the coverers that stay (`cover_links.py`), and its
    span of `gone` the rows of `left`, the boxes that left, that were others'. `words`: of their ids (`rspc.py`), or
    none: then it ends before the first that needs one. Returns how many were judged, what is to be said of them, and
    the first rows of those that cover each, with the ends of these.
    Cost: what meets a box that left is looked up once, unless it is much; of each box of an entry, a judgement of what
    it shares with each of its boxes that left, by what meets that; then who of its group, few rows, is needed.
    """
    d = points.shape[1] // 2
    low, high = np.empty(d, np.int64), np.empty(d, np.int64)
    floor, ceiling = np.empty(2 * d, np.int64), np.empty(2 * d, np.int64)
    figures, found, before = np.zeros(3), np.empty(len(owners), np.int64), counts.copy()
    by, size, ends = np.empty(4 * len(heirs), np.int64), 0, np.empty(len(heirs), np.int64)
    near, held, near_ends = np.empty(64, np.int64), 0, np.full((len(left), 2), NONE)
    rows, kept, room = np.empty(64, np.int64), np.empty(64, np.int64), _room(SPARED_MAX, d)
    for i in range(len(heirs)):
        begin, box = size, heirs[i]
        before[:] = counts
        rows, staying = _rows_of_group(owners, cover_links, groups, heirs[i], rows)
        while box < len(their_owners) and their_owners[box] == their_owners[heirs[i]]:
            kept, count = _more(kept, 0, rows[:staying])
            for g in gone[spans[i, 0] : spans[i, 1]]:
                if not _share(withheld[box], left[g], low, high):
                    continue
                near, held, met = _near(
                    points, owners, bounds, links, chain, stack, left[g], low, high, floor, ceiling, near, held,
                    near_ends[g], found,
                )  # fmt: skip
                rows, end = _more(rows, staying, found[:met])
                if end > len(room.taken):
                    room = _room(2 * end, d)
                answer, joining = _mended(points, rows[:end], staying, rules, low, high, room, found)
                step = SUBTRACTION
                figures[:] = 0.0
                if answer == EXHAUSTED:
                    if len(words) == 0:
                        counts[:] = before
                        return i, WORD_WANTED, by, ends
                    new, word = rows[staying:end], words[i]
                    step, joining = _drawing(points, new, rules, low, high, word, room, figures, found)
                    answer = COVERED if joining else UNCOVERED
                count_step(step, figures, counts)
                if answer == UNCOVERED:
                    return i + 1, ONE_OPEN, by, ends
                kept, count = _more(kept, count, found[:joining])
            needed = _needed(points, _each_once(kept[:count]), withheld[box, :d], withheld[box, d:], room)
            by, size = _more_owners(by, size, begin, owners, needed)
            box += 1
        ends[i] = size
    return len(heirs), ALL_COVERED, by, ends


@njit
def needed_of_each(
    points: Ranks, owners: Ints, withheld: Ranks, their_owners: Ints, heirs: Ints, cover_links: Links, groups: Ints
) -> tuple[Ints, Ints]:
    """The first rows of those who are needed of each withheld entry's coverers, with the ends of these.

    Entries and coverers are given as to `judge_again`.
    """
    d = points.shape[1] // 2
    by, size, ends = np.empty(8 * len(heirs), np.int64), 0, np.empty(len(heirs), np.int64)
    rows, room = np.empty(64, np.int64), _room(SPARED_MAX, d)
    for i in range(len(heirs)):
        begin, box = size, heirs[i]
        rows, count = _rows_of_group(owners, cover_links, groups, heirs[i], rows)
        met = np.empty(count, np.int64)
        while box < len(their_owners) and their_owners[box] == their_owners[heirs[i]]:
            low, high = withheld[box, :d], withheld[box, d:]
            n = _meeting_of(points, rows[:count], low, high, met)
            by, size = _more_owners(by, size, begin, owners, _needed(points, np.sort(met[:n]), low, high, room))
            box += 1
        ends[i] = size
    return by[:size], ends


# --- anew ---------------------------------------------------------------------------------------------------


@njit
def take_in(
    points: Ranks,
    owners: Ints,
    bounds: Ranks,
    parts: Ranks,
    links: Links,
    chain: Links,
    stack: Links,
    scale: Floats,
    used: int,
    found: Ints,
    rules: Rules,
    firsts: Ints,
    sizes: Ints,
    words: Words,
    retired: Ints,
    counts: Floats,
) -> tuple[int, int, int, Ints, Ints]:
    """Take entries in, one after another: `pairwise.take_in`, where several together may cover one.

    `words`: of their ids. Returns the numbers of nodes, of entries that left and of rows more; and the first rows of
    those that cover each entry, none if it is active, with the ends of these. `retired` is as there.
    """
    n = points.shape[1]
    d = n // 2
    floor, ceiling = np.empty(n, np.int64), np.empty(n, np.int64)
    point, figures = np.empty(d, np.int64), np.zeros(3)
    by, size, ends = np.empty(4 * len(firsts), np.int64), 0, np.empty(len(firsts), np.int64)
    nobody = np.empty(0, np.int64)
    left = more = 0
    for i in range(len(firsts)):
        first, end, before = firsts[i], firsts[i] + sizes[i], size
        covered = True
        for row in range(first, end):
            low, high = points[row, :d], points[row, d:]
            step, cover = judge_box(
                points, owners, bounds, links, chain, stack, found, rules, low, high, words[i], point, figures
            )
            count_step(step, figures, counts)
            if len(cover) == 0:
                covered, size = False, before
                break
            by, size = _more_owners(by, size, before, owners, cover)
        ends[i] = size
        group = by[before:size] if covered else nobody
        if len(group) != 1:
            count = 0
            for row in range(first, end):
                within(points, row, floor, ceiling)
                count += search(points, bounds, links, chain, stack, floor, ceiling, found[count:])
            if count:
                inside = np.sort(found[:count])
                left, gone = leave(points, owners, parts, links, chain, inside, group, i, retired, left)
                more -= gone
        if covered:
            owners[first:end] = NONE
            continue
        for row in range(first, end):
            used = insert(bounds, parts, links, chain, points, row, used, scale)
        more += sizes[i]
    return used, left, more, by, ends


class GroupTree(MergingTree):
    """A tree of rows that takes in many entries at once, as far as several together do not cover them, either."""

    @property
    def nodes(self) -> Nodes:
        """What the kernels above ask."""
        return self._bounds, self._links, self._chain, self._stack

    def take_in_by_groups(
        self, owners: Ints, firsts: Ints, sizes: Ints, words: Words, rules: Rules, counts: Floats
    ) -> tuple[Ints, Ints, Ints]:
        """Who covers each entry, one after another with the end of each, and who left; `counts` go on.

        Cost: a judgement for each entry, compiled; as many at once as the tree may grow by before it is built anew.
        """
        groups, group_ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        retired = np.empty((self._count + len(firsts), 2), np.int64)
        at = left = size = 0
        while at < len(firsts):
            some = slice(at, at + self._count + CHANGES_MIN)
            rows = int(sizes[some].sum())
            self.make_room(rows)
            used, gone, more, by, ends = take_in(
                self._points,
                owners,
                self._bounds,
                self._parts,
                self._links,
                self._chain,
                self._stack,
                self._scale,
                self._used,
                self._found,
                rules,
                firsts[some],
                sizes[some],
                words[some],
                retired[left:],
                counts,
            )
            retired[left : left + gone, 1] += at
            self._used, left = int(used), left + gone
            self._count += int(more)
            self._changed(abs(int(more)))
            groups.append(by[: ends[-1]])
            group_ends.append(size + ends)
            size += int(ends[-1])
            at = some.stop
        return np.concatenate(groups), np.concatenate(group_ends), retired[:left]


Nodes = tuple[Ranks, Links, Links, Links]
NO_TREE: Nodes = (
    np.empty((0, 0), np.int64),
    np.empty((0, 4), np.int32),
    np.empty((0, 2), np.int32),
    np.empty(0, np.int32),
)
"""Where all rows are looked at."""
