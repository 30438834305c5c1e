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

import numpy as np

from state.arrays import Floats, Ints, Words
from state.kernels import njit
from state.reductions.conflict_table import COROLLARY_1
from state.reductions.cover_links import group_of
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
from state.reductions.rspc import CAP, CORNER, ERROR, MADE, ROWS, STEP_NAMES, SUBTRACTION, following
from state.space.boxes import Ranks
from state.space.subtraction import COVERED, UNCOVERED, room_for, subtract, subtract_in

NEEDED_PIECES_MAX = 1_000
"""Pieces that it may take to see which of a group are needed."""
SPARED_MAX = 64
"""Rows of a group up to which each is tried to be left out."""
NEAR_MAX = 1_024
"""Rows that meet a box that left up to which they are gone through for each entry that it had covered."""
TRIALS, CAP_MAX, CAP_SUM, STEPS_FROM = 0, 1, 2, 3
"""Of `counts`: guesses, the largest error at the cap, their sum, then boxes by the step that decided."""
COUNTS = STEPS_FROM + len(STEP_NAMES)


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
def _ends_of(points: Ranks, rows: Ints) -> tuple[Ranks, Ranks]:
    """Lows and highs of rows."""
    k, d = len(rows), points.shape[1] // 2
    lows, highs = np.empty((k, d), np.int64), np.empty((k, d), np.int64)
    for i in range(k):
        for j in range(d):
            lows[i, j], highs[i, j] = points[rows[i], j], points[rows[i], d + j]
    return lows, highs


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
    used = np.empty(len(rows), np.bool_)
    lows, highs = _ends_of(points, rows)
    step = judge(rules, low, high, lows, highs, seed, point, used, figures)
    return step, rows[used]


@njit
def _needed(points: Ranks, rows: Ints, low: Ranks, high: Ranks) -> Ints:
    """Of rows that cover a box, in their order, as few as cover the same of it: none could be left out.

    Whoever is in a group is asked for again when one of it goes: what is not needed costs that for nothing. One is not
    needed if the others cover what it shares with the box. Of more than a few rows, only what subtraction takes.
    """
    k, d = len(rows), len(low)
    if k < 2:
        return rows
    lows, highs = _ends_of(points, rows)
    point, used = np.empty(d, np.int64), np.zeros(k, np.bool_)
    if k > SPARED_MAX:
        found, _ = subtract(low, high, lows, highs, NEEDED_PIECES_MAX, point, used)
        if found != COVERED or used.sum() > SPARED_MAX:
            return rows if found != COVERED else rows[used]
        rows, lows, highs = rows[used], lows[used], highs[used]
        k = len(rows)
    rows, first, last = rows.copy(), np.empty(d, np.int64), np.empty(d, np.int64)
    stack, taken = room_for(k, d)
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
            used[:] = False
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
    seed: np.uint64,
    point: Ranks,
    figures: Floats,
) -> tuple[int, Ints]:
    """The step that decided whether the live rows cover a box, and the rows that do, in their order.

    `found` has room for all rows; `point` becomes the witness, if there is one.
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
    step, cover = _judged(points, np.sort(found[:count]), rules, low, high, seed, point, figures)
    return step, _needed(points, cover, low, high)


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
def _seed_of_part(seed: np.uint64, low: Ranks, high: Ranks) -> np.uint64:
    """The seed of the draws for a part of a box."""
    state = np.array([seed], np.uint64)
    for j in range(len(low)):
        state[0] ^= np.uint64(low[j])
        state[0] = following(state) ^ np.uint64(high[j])
    return following(state)


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
def rows_of(owners: Ints, starts: Ints) -> Ints:
    """The rows of the entries that begin at `starts`, one after another."""
    rows, count = np.empty(len(starts), np.int64), 0
    for start in starts:
        row = start
        while row < len(owners) and owners[row] == owners[start]:
            if count == len(rows):
                rows = np.concatenate((rows, rows))
            rows[count] = row
            count += 1
            row += 1
    return rows[:count]


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
    points: Ranks,
    staying: Ints,
    rows: Ints,
    rules: Rules,
    low: Ranks,
    high: Ranks,
    seed: np.uint64,
    point: Ranks,
    figures: Floats,
) -> tuple[int, bool, Ints]:
    """The step that decided whether some rows cover a box, whether they do, and those that do beside `staying`.

    What stays of a group takes away first what it can, so that few others join it. Those that stay are among the rows.
    """
    n, d = len(staying), len(low)
    lows, highs = _ends_of(points, np.concatenate((staying, rows)))
    used = np.zeros(len(lows), np.bool_)
    stack, taken = room_for(len(lows), d)
    pieces = rules.budget if rules.proving else rules.budget // max(1, rows.size * d)
    found, _ = subtract_in(low, high, lows, highs, n, pieces, point, used, stack, taken)
    figures[:] = 0.0
    if found == COVERED:
        return SUBTRACTION, True, rows[used[n:]]
    if found == UNCOVERED:
        return SUBTRACTION, False, rows[:0]
    step, cover = _judged(points, rows, rules, low, high, seed, point, figures)
    return step, len(cover) > 0, cover


@njit
def _keep_near(near: Ints, held: int, found: Ints, ends: Ints) -> tuple[Ints, int]:
    """Keep what meets a box behind the first `held` of `near`, unless it is much; `ends`: where it begins and ends."""
    ends[0] = held
    if len(found) <= NEAR_MAX:
        near, held = _more(near, held, np.sort(found))
        ends[1] = held
    return near, held


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
    seeds: Words,
    seed_begins: Ints,
    counts: Floats,
) -> tuple[int, bool, Ints, Ints]:
    """Judge withheld entries, some of whose coverers left, as far as the first that is not covered any more.

    Each begins at `heirs` among the rows `withheld`; its group are the coverers that stay (`cover_links.py`), and
    its span of `gone` the rows of `left`, the boxes that left, that were others'. `seeds`: of its boxes, from there on.
    Returns how many were judged, whether all of them are covered (else the last is not), and the first rows of those
    that cover each, with the ends of these.
    Cost: what meets a box that left is looked up once, unless it is much; of each box of an entry, a judgement of what
    it shares with each of its boxes that left, by what meets that; then who of its group, few rows, is needed.
    """
    n = points.shape[1]
    d = n // 2
    floor, ceiling = np.empty(n, np.int64), np.empty(n, np.int64)
    low, high = np.empty(d, np.int64), np.empty(d, np.int64)
    point, figures, found = np.empty(d, np.int64), np.zeros(3), np.empty(len(owners), np.int64)
    by, size, ends = np.empty(4 * len(heirs), np.int64), 0, np.empty(len(heirs), np.int64)
    near, held = np.empty(64, np.int64), 0
    near_ends = np.full((len(left), 2), NONE)
    for i in range(len(heirs)):
        begin, at = size, seed_begins[i]
        staying = rows_of(owners, group_of(cover_links, groups, heirs[i]))
        for box in rows_of(their_owners, heirs[i : i + 1]):
            rows, count = staying.copy(), len(staying)
            for g in gone[spans[i, 0] : spans[i, 1]]:
                if not _share(withheld[box], left[g], low, high):
                    continue
                if near_ends[g, 0] == NONE:
                    met = _meeting(
                        points, owners, bounds, links, chain, stack, left[g, :d], left[g, d:], floor, ceiling, found
                    )
                    near, held = _keep_near(near, held, found[:met], near_ends[g])
                if near_ends[g, 1] == NONE:
                    met = _meeting(points, owners, bounds, links, chain, stack, low, high, floor, ceiling, found)
                    asked = np.sort(found[:met])
                else:
                    met = _meeting_of(points, near[near_ends[g, 0] : near_ends[g, 1]], low, high, found)
                    asked = found[:met]
                seed = _seed_of_part(seeds[at], low, high)
                step, is_covered, cover = _mended(points, staying, asked, rules, low, high, seed, point, figures)
                count_step(step, figures, counts)
                if not is_covered:
                    return i + 1, False, by, ends
                rows, count = _more(rows, count, cover)
            needed = _needed(points, _each_once(rows[:count]), withheld[box, :d], withheld[box, d:])
            by, size = _more_owners(by, size, begin, owners, needed)
            at += 1
        ends[i] = size
    return len(heirs), True, by, ends


@njit
def needed_of_each(
    points: Ranks, owners: Ints, withheld: Ranks, their_owners: Ints, heirs: Ints, cover_links: Links, groups: Ints
) -> tuple[Ints, Ints]:
    """The first rows of those who are needed of each withheld entry's coverers, with the ends of these.

    Entries and coverers are given as to `judge_again`.
    """
    d = points.shape[1] // 2
    by, size, ends = np.empty(8 * len(heirs), np.int64), 0, np.empty(len(heirs), np.int64)
    for i in range(len(heirs)):
        begin = size
        rows = rows_of(owners, group_of(cover_links, groups, heirs[i]))
        met = np.empty(len(rows), np.int64)
        for box in rows_of(their_owners, heirs[i : i + 1]):
            low, high = withheld[box, :d], withheld[box, d:]
            n = _meeting_of(points, rows, low, high, met)
            by, size = _more_owners(by, size, begin, owners, _needed(points, np.sort(met[:n]), low, high))
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
    seeds: Words,
    retired: Ints,
    counts: Floats,
) -> tuple[int, int, int, Ints, Ints]:
    """Take entries in, one after another: `pairwise.take_in`, where several together may cover one.

    `seeds`: of each row. Returns the numbers of nodes, of entries that left and of rows more; and the first rows of
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
                points, owners, bounds, links, chain, stack, found, rules, low, high, seeds[row - firsts[0]], point,
                figures,
            )  # fmt: skip
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
        self, owners: Ints, firsts: Ints, sizes: Ints, seeds: Words, rules: Rules, counts: Floats
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
                seeds[firsts[at] - firsts[0] :],
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
