"""The subscription table of [MICS09] §4.1: disjoint Hilbert ranges, sorted by start, in two forms.

`IntervalTable` is the form that changes. The paper's B+tree of starts is a `SortedDict` here: the same
look-up, the same walk along the leaves. One range is inserted by Algorithm 1, one publication looked up by
Algorithm 2. `CompiledTable` is the form that routes: sorted arrays and a bucket table, a batch at a time.

    Algorithm 1, inserting [20, 44] with gap 0:
      table   ├─10..19─┤   ├25..30┤   ├40..50┤   ├60..┤       one look-up finds L_min = 10..19
      step 1  inside L_min? no
      step 2  25..30 is swallowed; the walk ends at L_max = 40..50
      step 3  L_min touches, L_max overlaps: the table becomes ├─10────────────50┤   ├60..┤

Two ranges with at most `gap` cells between them become one: 0 is perfect merging, more imperfect (§3.6).
Operations on whole tables (`closed`, `difference`) work on arrays and carry the batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sortedcontainers import SortedDict

from state.arrays import Bools, Ints
from state.errors import HilcastError
from state.kernels import njit
from state.space.ranges import Ranges

Range = tuple[int, int]

HEX_WIDTH = 16
"""Digits of one end in a range's id: any int64."""


# --- ids: a range is known by its ends ----------------------------------------------------------------------


def range_id(start: int, end: int) -> str:
    """The id of a forwarded range: both ends in hexadecimal of fixed width, so ids sort as ranges do.

    As members of a Redis sorted set they make Algorithm 2 one command: of the members below h + 1, in 16
    digits, the last one by `ZRANGE ... BYLEX REV LIMIT 0 1` is the range that may hold h.

    >>> range_id(31, 4095)
    '000000000000001f-0000000000000fff'
    """
    return f"{start:016x}-{end:016x}"


def range_ids(ranges: Ranges) -> list[str]:
    """The ids of many ranges at once."""
    ends = np.column_stack([ranges.starts, ranges.ends]).astype(">i8")
    text = ends.tobytes().hex()
    width = HEX_WIDTH
    return [f"{text[i : i + width]}-{text[i + width : i + 2 * width]}" for i in range(0, len(text), 2 * width)]


def range_of(id: str) -> Range:
    """The ends in an id that `range_id` made.

    >>> range_of('000000000000001f-0000000000000fff')
    (31, 4095)
    """
    start, _, end = id.partition("-")
    if len(start) != HEX_WIDTH or len(end) != HEX_WIDTH:
        raise HilcastError("bad-value", f"not the id of a range: {id!r}")
    try:
        return int(start, 16), int(end, 16)
    except ValueError:
        raise HilcastError("bad-value", f"not the id of a range: {id!r}") from None


# --- whole tables as arrays ---------------------------------------------------------------------------------


def closed(starts: Ints, ends: Ints, gap: int = 0) -> Ranges:
    """Merge ranges, in any order and overlapping, into the table that inserting them one by one gives.

    [MICS09] §3.6: perfect merging with `gap` 0, imperfect above. Starts and ends are sorted each for itself:
    the i-th start opens a range exactly if the i ranges that start before it have all ended, that is, if the
    i-th smallest end lies before it. Cost: two sorts.

    >>> closed(np.array([8, 0, 4]), np.array([9, 3, 5]))
    Ranges.of([(0, 5), (8, 9)])
    """
    starts, ends = np.sort(starts), np.sort(ends)
    if len(starts) == 0:
        return Ranges(starts, ends)
    # The difference cannot overflow, where ends + gap + 1 could: indices are non-negative int64.
    breaks = starts[1:] - ends[:-1] > gap + 1
    return Ranges(starts[np.append(True, breaks)], ends[np.append(breaks, True)])


def closed_in_order(starts: Ints, ends: Ints, gap: int = 0) -> Ranges:
    """`closed`, of ranges that are sorted by start. Cost: one pass.

    >>> closed_in_order(np.array([0, 2, 4]), np.array([3, 2, 5]))
    Ranges.of([(0, 5)])
    """
    if len(starts) == 0:
        return Ranges(starts, ends)
    reach = np.maximum.accumulate(ends)
    opens = np.empty(len(starts), bool)
    opens[0] = True
    np.greater(starts[1:] - reach[:-1], gap + 1, out=opens[1:])
    return Ranges(starts[opens], reach[np.append(opens[1:], True)])


def cells_of(ranges: Ranges) -> int:
    """How many cells the ranges hold (up to 2^63, which int64 is one too small for)."""
    return int((ranges.ends - ranges.starts).astype(np.uint64).sum()) + len(ranges)


def difference(before: Ranges, after: Ranges) -> tuple[Ranges, Ranges]:
    """The ranges of `after` that `before` has not, and the other way round; a range is its two ends."""
    return _only(after, before), _only(before, after)


def _only(these: Ranges, those: Ranges) -> Ranges:
    if len(those) == 0:
        return these
    at = np.minimum(np.searchsorted(those.starts, these.starts), len(those) - 1)
    same = (those.starts[at] == these.starts) & (those.ends[at] == these.ends)
    return Ranges(these.starts[~same], these.ends[~same])


def inside(table: Ranges, starts: Ints, ends: Ints) -> Bools:
    """Tell for each range whether one range of the table contains it."""
    if len(table) == 0:
        return np.zeros(len(starts), bool)
    at = np.searchsorted(table.starts, starts, side="right") - 1
    return (at >= 0) & (ends <= table.ends[at])


def near(table: Ranges, starts: Ints, ends: Ints, gap: int = 0) -> Bools:
    """Tell for each range whether a range of the table overlaps it or is at most `gap` cells away."""
    if len(table) == 0:
        return np.zeros(len(starts), bool)
    at = np.searchsorted(table.starts, ends, side="right") - 1
    left = (at >= 0) & (starts - table.ends[at] <= gap + 1)
    following = np.minimum(at + 1, len(table) - 1)
    return left | ((at + 1 < len(table)) & (table.starts[following] - ends <= gap + 1))


# --- the table that changes ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edit:
    """What one change did to a table: ranges that are new in it, and ranges that left it."""

    added: tuple[Range, ...] = ()
    removed: tuple[Range, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


UNCHANGED = Edit()


class IntervalTable:
    """Disjoint ranges, sorted by start, more than `gap` cells apart.

    Implements [MICS09] Algorithms 1 and 2. Differs: a `SortedDict` from start to end stands for the B+tree.
    Algorithm 1 as printed inserts nothing, never sets L_max and leaves a merged L_min in place: §4.2's text
    is followed.
    Cost, n ranges: one look-up O(log n); an insertion or cut that plus O(ranges swallowed).

    >>> table = IntervalTable(Ranges(np.array([10, 25, 40, 60]), np.array([19, 30, 50, 69])))
    >>> table.insert(20, 44)
    Edit(added=((10, 50),), removed=((10, 19), (25, 30), (40, 50)))
    >>> table.insert(12, 30)  # inside: covered or subsumed, one look-up
    Edit(added=(), removed=())
    >>> table.cut(20, 29)
    Edit(added=((10, 19), (30, 50)), removed=((10, 50),))
    >>> 45 in table, 55 in table
    (True, False)
    """

    def __init__(self, ranges: Ranges | None = None, gap: int = 0) -> None:
        assert gap >= 0
        self.gap = gap
        self._ends: SortedDict = SortedDict()
        if ranges is not None:
            self._ends.update(zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ends.items())

    def __contains__(self, h: int) -> bool:
        """Whether a range holds the index `h`: Algorithm 2 for one publication."""
        return self.find(h, h) is not None

    def _at_or_before(self, h: int) -> Range | None:
        """L_min: the range with the greatest start at or before `h`."""
        for start in self._ends.irange(None, h, reverse=True):
            return start, self._ends[start]
        return None

    def find(self, start: int, end: int) -> Range | None:
        """The range that contains start..end: step 1 of Algorithm 1, covering and subsumption in one."""
        found = self._at_or_before(start)
        return found if found is not None and end <= found[1] else None

    def touches(self, start: int, end: int) -> bool:
        """Whether inserting start..end would merge it with some range."""
        found = self._at_or_before(end)
        if found is not None and start - found[1] <= self.gap + 1:
            return True
        return next(self._ends.irange(end, end + self.gap + 1), None) is not None

    def insert(self, start: int, end: int) -> Edit:
        """Add the cells start..end: Algorithm 1 for one range.

        Differs: where the paper forwards the new range alone (L246), the edit names the merged range and
        what it replaces, since a neighbour holds ranges by their ends and must forget the old ones.
        """
        before = self._at_or_before(start)
        removed: list[Range] = []
        if before is not None:
            if end <= before[1]:
                return UNCHANGED
            if start - before[1] <= self.gap + 1:
                removed.append(before)
        # Every range that starts inside or close behind is swallowed; only the last, L_max, may stick out.
        first = start + 1 if removed and removed[0][0] == start else start
        removed += [(s, self._ends[s]) for s in self._ends.irange(first, end + self.gap + 1)]
        if removed:
            start, end = min(start, removed[0][0]), max(end, removed[-1][1])
        for old, _ in removed:
            if old != start:
                del self._ends[old]
        self._ends[start] = end
        return Edit(((start, end),), tuple(removed))

    def cut(self, start: int, end: int) -> Edit:
        """Take the cells start..end out."""
        before = self._at_or_before(start)
        removed: list[Range] = [before] if before is not None and before[1] >= start else []
        first = start + 1 if removed and removed[0][0] == start else start
        removed += [(s, self._ends[s]) for s in self._ends.irange(first, end)]
        if not removed:
            return UNCHANGED
        added: list[Range] = []
        if removed[0][0] < start:
            added.append((removed[0][0], start - 1))
        if removed[-1][1] > end:
            added.append((end + 1, removed[-1][1]))
        for old, _ in removed:
            del self._ends[old]
        self._ends.update(added)
        return Edit(tuple(added), tuple(removed))

    def ranges(self) -> Ranges:
        """The table as arrays. Cost: O(n)."""
        n = len(self._ends)
        return Ranges(np.fromiter(self._ends.keys(), np.int64, n), np.fromiter(self._ends.values(), np.int64, n))

    def check(self) -> None:
        """Assert: sorted, upright, more than `gap` apart."""
        previous = None
        for start, end in self:
            assert start <= end
            assert previous is None or start - previous > self.gap + 1
            previous = end


class Journal:
    """The net effect of many edits: a range that left and came back was never touched."""

    def __init__(self) -> None:
        self._added: dict[Range, None] = {}
        self._removed: dict[Range, None] = {}

    def note(self, edit: Edit) -> None:
        for old in edit.removed:
            if old in self._added:
                del self._added[old]
            else:
                self._removed[old] = None
        for new in edit.added:
            if new in self._removed:
                del self._removed[new]
            else:
                self._added[new] = None

    def __bool__(self) -> bool:
        """Whether anything is different in the end."""
        return bool(self._added or self._removed)

    def net(self) -> Edit:
        """What is new and what is gone, in order of start."""
        return Edit(tuple(sorted(self._added)), tuple(sorted(self._removed)))


# --- the table that routes ----------------------------------------------------------------------------------


@njit
def _position(h: int, starts: Ints, buckets: Ints, first: int, shift: int) -> int:
    """The position of the greatest start <= h: in the bucket of h, or the last one before it."""
    bucket = (h - first) >> shift
    left, right = buckets[bucket], buckets[bucket + 1]
    while left < right:
        middle = (left + right) >> 1
        if starts[middle] <= h:
            left = middle + 1
        else:
            right = middle
    return left - 1


@njit
def _holds_all(
    indices: Ints,
    starts: Ints,
    ends: Ints,
    buckets: Ints,
    shift: int,
    held: Bools,
) -> None:
    """Write for each index whether a range holds it."""
    first, last = starts[0], ends[-1]
    for i in range(indices.shape[0]):
        h = indices[i]
        held[i] = first <= h <= last and ends[_position(h, starts, buckets, first, shift)] >= h


class CompiledTable:
    """A table for routing: look-ups of whole batches.

    Implements [MICS09] Algorithm 2 for a batch. Differs: the upper levels of the tree are a bucket table over
    the top bits of the index, about one bucket a range, so that a search begins where it ends.

        b = (h - first) >> shift        starts[buckets[b] : buckets[b + 1]] lie in bucket b

    Cost: O(1) expected per look-up where ranges spread evenly, O(log n) at worst. Memory: 24 bytes a range.

    >>> table = CompiledTable(Ranges(np.array([32, 45, 50]), np.array([35, 46, 55])))
    >>> table.lookup(np.array([28, 52, 50]))  # p1, p2, p3 of figure 3
    array([False,  True,  True])
    """

    def __init__(self, ranges: Ranges) -> None:
        self.starts = np.ascontiguousarray(ranges.starts, np.int64)
        self.ends = np.ascontiguousarray(ranges.ends, np.int64)
        n = len(self.starts)
        self._first = int(self.starts[0]) if n else 0
        span = int(self.ends[-1]) - self._first if n else 0
        # As many buckets as ranges, rounded to a power of two.
        self._shift = max(0, span.bit_length() - n.bit_length())
        edges = self._first + (np.arange((span >> self._shift) + 1, dtype=np.int64) << self._shift)
        self._buckets = np.append(np.searchsorted(self.starts, edges), n)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def ranges(self) -> Ranges:
        return Ranges(self.starts, self.ends)

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.ends.nbytes + self._buckets.nbytes

    def lookup(self, indices: Ints) -> Bools:
        """Tell for each index whether a range holds it."""
        held = np.zeros(len(indices), np.bool_)
        if len(self):
            indices = np.ascontiguousarray(indices, np.int64)
            _holds_all(indices, self.starts, self.ends, self._buckets, self._shift, held)
        return held

    def check(self) -> None:
        """Assert: sorted, disjoint, and each bucket points at its first start."""
        assert (self.starts <= self.ends).all()
        assert (self.starts[1:] > self.ends[:-1]).all()
        if len(self):
            starts_of = (self.starts - self._first) >> self._shift
            counts = np.bincount(starts_of, minlength=len(self._buckets) - 1)
            assert (np.diff(self._buckets) == counts).all()
