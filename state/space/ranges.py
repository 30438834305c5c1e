"""Boxes of cells to ranges of Hilbert indices ([MICS09] §3.3), and sets of ranges.

A box becomes sorted, disjoint, closed intervals of indices by walking down the curve, never by listing
cells. Each node is a sub-cube of the grid, its children come in curve order, so ranges come out sorted:

      whole grid ──┬── child 0: outside the box: nothing
                   ├── child 1: inside: one range, joined to the one before if they touch
                   └── child 2: neither: go down

Per node four masks of d bits answer for all 2^d children (a child is a corner, d bits): in which dimensions
only one half meets the box, and which; in which dimensions a half sticks out. A child then costs three
operations, whatever d.

Long lists are shortened in one of two ways: `capped` keeps the largest gaps of an exact list (the least
over-coverage possible), and where even the exact list would be too long, `boxes_ranges` opens the sub-cubes
with most waste first and stops early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from state.arrays import Bools, Floats, Ints
from state.kernels import njit
from state.limits import INDEX_BITS_MAX
from state.space.hilbert import Table, curve

RANGES_MAX = 2**18
"""Without a cap boxes are exact up to so many expected ranges, and beyond covered by so many at most."""
EFFORT_PER_RANGE = 16
"""With a cap: ranges or sub-cubes to work with per range asked for, before the smallest gaps are joined. At
16 a cap of 256 costs under 1 ms and covers within 2 % of what the exact list would
(`benchmarks/ranges.py`)."""
EFFORT_MIN = 2**12


class Ranges(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Sorted, disjoint, closed intervals of Hilbert indices: `starts[i] <= h <= ends[i]`.

    Invariant: both are int64 of one length, `starts <= ends`, and each range begins after the end of the one
    before. What this module makes does not even touch: between two ranges lies a gap.

    >>> r = Ranges.of([(32, 35), (45, 46), (50, 55)])  # s2 of [MICS09] figure 3
    >>> r.contains(np.array([28, 52, 50]))  # p1, p2 and p3
    array([False,  True,  True])
    >>> r.cells
    12
    """

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> Ranges:
        """Build from sorted, disjoint pairs that do not touch."""
        pairs = np.array(list(ranges), np.int64).reshape(-1, 2)
        return cls(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))

    @classmethod
    def empty(cls) -> Ranges:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    def clipped(self, first: int, last: int) -> Ranges:
        """The parts of these ranges inside first..last, such as a cube, the empty ones dropped."""
        starts, ends = np.maximum(self.starts, first), np.minimum(self.ends, last)
        keep = starts <= ends
        return Ranges(starts[keep], ends[keep])

    @property
    def cells(self) -> int:
        """How many indices they cover."""
        return int((self.ends - self.starts).sum()) + len(self)

    def contains(self, indices: NDArray[np.integer]) -> Bools:
        """Tell for each index whether some range holds it ([MICS09] §3.4). Cost: O(log n) each."""
        if len(self) == 0:
            return np.zeros(len(indices), bool)
        before = np.searchsorted(self.starts, indices, side="right") - 1
        return (before >= 0) & (indices <= self.ends[before])

    def covers(self, other: Ranges) -> bool:
        """Tell whether each range of `other` lies inside one of these ([MICS09] §3.5). Cost: O(m log n)."""
        if len(self) == 0:
            return len(other) == 0
        before = np.searchsorted(self.starts, other.starts, side="right") - 1
        return bool(((before >= 0) & (other.ends <= self.ends[before])).all())

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self.starts.tolist(), self.ends.tolist(), strict=True))

    def __repr__(self) -> str:
        shown = [str(pair) for _, pair in zip(range(8), self, strict=False)]
        return f"Ranges.of([{', '.join(shown)}{', ...' if len(self) > 8 else ''}])"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranges):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.ends, other.ends)

    def __ne__(self, other: object) -> bool:
        # msgspec brings one of its own, which asks for the same object
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = None  # type: ignore[assignment]

    def check(self) -> None:
        """Assert the invariant."""
        assert self.starts.dtype == np.int64
        assert self.ends.dtype == np.int64
        assert self.starts.shape == self.ends.shape
        assert self.starts.ndim == 1
        assert (self.starts >= 0).all()
        assert (self.starts <= self.ends).all()
        assert (self.starts[1:] > self.ends[:-1]).all()


def boxes_ranges(lows: Ints, highs: Ints, k: int, cap: int | None = None) -> Ranges:
    """Return the ranges of the cells of boxes `low <= x <= high`, one a row, in a grid of 2^k cells per dimension.

    Implements [MICS09] §3.3, the last step of mapping a subscription. Differs: walks down the curve instead of
    listing and sorting cells; the paper has no cap. Guarantee: covers every cell of every box, with at most
    `cap` ranges. Exact without a cap up to `RANGES_MAX` expected ranges (`expected_total`).
    Cost: O(2^d) per sub-cube on the surface of a box, about 60 ns per range; bounded, whatever the box.

    >>> boxes_ranges(np.array([[4, 2]]), np.array([[6, 5]]), k=3)  # s2 of [MICS09] figure 3
    Ranges.of([(32, 35), (45, 46), (50, 55)])
    """
    n, d = lows.shape
    assert 1 <= d * k <= INDEX_BITS_MAX, (d, k)
    assert cap is None or cap >= 1, cap
    assert ((lows >= 0) & (lows <= highs) & (highs >> k == 0)).all(), "boxes must lie in the grid"
    child = curve(d).child
    effort = RANGES_MAX if cap is None else min(max(EFFORT_PER_RANGE * cap, EFFORT_MIN), RANGES_MAX)
    expected = expected_total(lows, highs, k)
    if expected <= effort:
        # the curve enters and leaves a box through faces of cells, so it has d·expected ranges at most
        room = int(d * expected) + n + 1
        starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
        count = _walk_all(lows, highs, k, child, starts, ends)
        starts, ends = starts[:count].copy(), ends[:count].copy()
        ranges = Ranges(starts, ends) if n == 1 else _joined(starts, ends)
    else:
        ranges = _joined(*_cover_all(lows, highs, k, child, max(effort // n, 2**d)))
    return ranges if cap is None else capped(ranges, cap)


def each_ranges(lows: Ints, highs: Ints, k: int, cap: int) -> tuple[Ints, Ints, Ints]:
    """The ranges of many boxes, each as `boxes_ranges` has them of it alone: starts, ends, and how many each has.

    Cost: that of `boxes_ranges`, compiled, but for boxes that are too wide to be walked.
    """
    d = lows.shape[1]
    child = curve(d).child
    effort = min(max(EFFORT_PER_RANGE * cap, EFFORT_MIN), RANGES_MAX)
    starts, ends, sizes = _walk_each(lows, highs, k, child, cap, effort)
    wide = np.flatnonzero(sizes < 0)
    if not len(wide):
        return starts, ends, sizes
    others = [boxes_ranges(lows[i : i + 1], highs[i : i + 1], k, cap) for i in wide.tolist()]
    sizes[wide] = [len(other) for other in others]
    is_other = np.repeat(np.isin(np.arange(len(sizes)), wide), sizes)
    found = []
    for walked, side in ((starts, "starts"), (ends, "ends")):
        whole = np.empty(int(sizes.sum()), np.int64)
        whole[~is_other] = walked
        whole[is_other] = np.concatenate([getattr(other, side) for other in others])
        found.append(whole)
    return found[0], found[1], sizes


def union(parts: list[Ranges]) -> Ranges:
    """Return the ranges of several sets as one; what overlaps or touches becomes one range. Cost: one
    sort."""
    if not parts:
        return Ranges.empty()
    starts = np.concatenate([part.starts for part in parts])
    ends = np.concatenate([part.ends for part in parts])
    return _joined(starts, ends)


def _joined(starts: Ints, ends: Ints) -> Ranges:
    if len(starts) == 0:
        return Ranges.empty()
    order = np.argsort(starts, kind="stable")
    starts = starts[order]
    reach = np.maximum.accumulate(ends[order])
    apart = starts[1:] - 1 > reach[:-1]
    return Ranges(np.concatenate([starts[:1], starts[1:][apart]]), np.concatenate([reach[:-1][apart], reach[-1:]]))


def capped(ranges: Ranges, cap: int) -> Ranges:
    """Join the ranges across their smallest gaps until at most `cap` are left: imperfect merging ([MICS09]
    §3.6).

    Differs: the paper joins across gaps under a threshold; here the threshold follows from the cap.
    Guarantee: a superset, and of all supersets of `cap` ranges one with the fewest cells. Among equal gaps
    the first are kept. Cost: O(n), one partition.

    >>> capped(Ranges.of([(32, 35), (45, 46), (50, 55)]), 2)
    Ranges.of([(32, 35), (45, 55)])
    """
    assert cap >= 1, cap
    if len(ranges) <= cap:
        return ranges
    gaps = ranges.starts[1:] - ranges.ends[:-1]
    kept = np.zeros(len(gaps), bool)
    if cap > 1:
        threshold = np.partition(gaps, len(gaps) - (cap - 1))[len(gaps) - (cap - 1)]
        kept = gaps > threshold
        ties = np.flatnonzero(gaps == threshold)
        kept[ties[: cap - 1 - int(kept.sum())]] = True
    return Ranges(
        np.concatenate([ranges.starts[:1], ranges.starts[1:][kept]]),
        np.concatenate([ranges.ends[:-1][kept], ranges.ends[-1:]]),
    )


@njit
def expected_total(lows: Ints, highs: Ints, k: int) -> float:
    """Return the number of ranges that boxes of cells have on average over their positions, summed.

    Implements [MICS09] eq. 1-3: surface / 2d, with sides in cells (up - low + 1; the paper prints up - low).
    Differs: faces on the border of the grid are left out, since the curve never crosses them, and each end of the
    curve inside a box counts half a range. So a one-sided predicate has one face, and an attribute without a
    predicate none.

    >>> expected_total(np.array([[0, 0]]), np.array([[7, 7]]), 3)
    1.0
    """
    n, d = lows.shape
    top = (1 << k) - 1
    total = 0.0
    for b in range(n):
        cells = 1.0
        for i in range(d):
            cells *= float(highs[b, i] - lows[b, i]) + 1
        # the curve begins in cell (0, .., 0) and ends in (top, 0, .., 0)
        begins, ends = lows[b, 0] == 0, highs[b, 0] == top
        for i in range(d):
            faces = (lows[b, i] > 0) + (highs[b, i] < top)
            total += faces * cells / (float(highs[b, i] - lows[b, i]) + 1) / (2 * d)
            if i > 0 and lows[b, i] > 0:
                begins = ends = False
        total += (begins + ends) / 2
    return total


@njit
def _faces(low: Ints, high: Ints, origin: Ints, r: int) -> tuple[int, int, int, int]:
    """Return four masks of d bits for a node of side 2^r at `origin` (in units of its side) that meets the box.

    half, which: dimensions of which only one half meets the box, and there 1 for the upper half;
    lower, upper: dimensions whose lower, upper half is not inside the box.
    """
    d = len(low)
    half = which = lower = upper = 0
    for i in range(d):
        bit = 1 << (d - 1 - i)
        begin = origin[i] << r
        middle = begin + (1 << (r - 1))
        end = begin + ((1 << r) - 1)
        if low[i] >= middle:
            half |= bit
            which |= bit
        elif high[i] < middle:
            half |= bit
        if low[i] > begin or high[i] < middle - 1:
            lower |= bit
        if low[i] > middle or high[i] < end:
            upper |= bit
    return half, which, lower, upper


@njit
def _walk_all(lows: Ints, highs: Ints, k: int, child: Table, starts: Ints, ends: Ints) -> int:
    """Write the ranges of every box, one box after the other; return how many."""
    count = 0
    for b in range(len(lows)):
        count += _walk(lows[b], highs[b], k, child, starts[count:], ends[count:])
    return count


@njit
def _walk_each(lows: Ints, highs: Ints, k: int, child: Table, cap: int, effort: int) -> tuple[Ints, Ints, Ints]:
    """Starts and ends of the ranges of each box, one after the other and capped, and how many; -1: too wide to walk."""
    n, d = lows.shape
    sizes, count = np.empty(n, np.int64), 0
    starts, ends = np.empty(16 * n + 16, np.int64), np.empty(16 * n + 16, np.int64)
    for b in range(n):
        expected = expected_total(lows[b : b + 1], highs[b : b + 1], k)
        if expected > effort:
            sizes[b] = -1
            continue
        room = count + int(d * expected) + 2
        if room > len(starts):
            more = np.empty(room, np.int64)
            starts, ends = np.concatenate((starts, more)), np.concatenate((ends, more))
        sizes[b] = _walk(lows[b], highs[b], k, child, starts[count:], ends[count:])
        if sizes[b] > cap:
            sizes[b] = _cap(starts[count:], ends[count:], sizes[b], cap)
        count += sizes[b]
    return starts[:count].copy(), ends[:count].copy(), sizes


@njit
def _cap(starts: Ints, ends: Ints, size: int, cap: int) -> int:
    """`capped`, in place: join across the smallest gaps, of equal ones the last; returns `cap`."""
    gaps = starts[1:size] - ends[: size - 1]
    least = np.partition(gaps, size - cap)[size - cap] if cap > 1 else np.int64(0)
    ties = cap - 1 - (gaps > least).sum()
    last = 0
    for i in range(size - 1):
        keeps = cap > 1 and (gaps[i] > least or (gaps[i] == least and ties > 0))
        if keeps:
            ties -= gaps[i] == least
            ends[last] = ends[i]
            last += 1
            starts[last] = starts[i + 1]
    ends[last] = ends[size - 1]
    return last + 1


@njit
def _walk(low: Ints, high: Ints, k: int, child: Table, starts: Ints, ends: Ints) -> int:
    """Write the ranges of the box in order, return how many. A frame per level; frame 0 is the whole grid."""
    d = len(low)
    mask = (1 << d) - 1
    origin = np.zeros((k + 1, d), np.int64)
    frames = np.zeros((k + 1, 4), np.int64)
    faces = np.zeros((k + 1, 4), np.int64)
    half, which, lower, upper = _faces(low, high, origin[0], k)
    row = signs = base = j = level = count = 0
    reach = -2
    while True:
        if j > mask:
            if level == 0:
                return count
            level -= 1
            row, signs, base, j = frames[level]
            half, which, lower, upper = faces[level]
            continue
        bits = d * (k - level - 1)
        entry = int(child[(row << d) | j])
        corner = (entry & mask) ^ signs
        begin = base + (j << bits)
        j += 1
        if (corner ^ which) & half:
            continue
        if (corner & upper) | (~corner & lower) == 0:
            if begin != reach + 1:
                starts[count] = begin
                count += 1
            reach = begin + ((1 << bits) - 1)
            ends[count - 1] = reach
            continue
        frames[level] = row, signs, base, j
        faces[level] = half, which, lower, upper
        level += 1
        for i in range(d):
            origin[level, i] = (origin[level - 1, i] << 1) | ((corner >> (d - 1 - i)) & 1)
        half, which, lower, upper = _faces(low, high, origin[level], k - level)
        row, signs, base, j = entry >> (2 * d), signs ^ ((entry >> d) & mask), begin, 0


@njit
def _cover_all(lows: Ints, highs: Ints, k: int, child: Table, nodes_max: int) -> tuple[Ints, Ints]:
    """Return starts and ends of at most `nodes_max` sub-cubes per box."""
    starts, ends = _open_most_wasteful(lows[0], highs[0], k, child, nodes_max)
    for b in range(1, len(lows)):
        more_starts, more_ends = _open_most_wasteful(lows[b], highs[b], k, child, nodes_max)
        starts, ends = np.concatenate((starts, more_starts)), np.concatenate((ends, more_ends))
    return starts, ends


@njit
def _open_most_wasteful(low: Ints, high: Ints, k: int, child: Table, nodes_max: int) -> tuple[Ints, Ints]:
    """Return starts and ends, in no order, of at most `nodes_max` sub-cubes that together cover the box.

    A sub-cube that lies partly in the box wastes the rest of it. The one with most waste (the first among
    equals) is replaced by its children, until the next replacement would not fit or nothing is wasted.
    `heap` holds the open ones.
    """
    d = len(low)
    mask = (1 << d) - 1
    size = nodes_max + mask + 1
    origin = np.zeros((size, d), np.int64)
    remaining, row, signs = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    base, heap, waste = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size)
    starts, ends = np.empty(size, np.int64), np.empty(size, np.int64)
    remaining[0] = k
    spare = np.arange(size)[::-1].copy()
    spare_count = size - 1
    opened, closed = 1, 0
    while opened > 0 and opened + closed + mask <= nodes_max:
        node = heap[0]
        opened -= 1
        heap[0] = heap[opened]
        _sift_down(heap, opened, waste, base)
        r = remaining[node]
        half, which, lower, upper = _faces(low, high, origin[node], r)
        for j in range(mask + 1):
            entry = int(child[(row[node] << d) | j])
            corner = (entry & mask) ^ signs[node]
            if (corner ^ which) & half:
                continue
            begin = base[node] + (j << (d * (r - 1)))
            if (corner & upper) | (~corner & lower) == 0:
                starts[closed] = begin
                ends[closed] = begin + ((1 << (d * (r - 1))) - 1)
                closed += 1
                continue
            spare_count -= 1
            new = spare[spare_count]
            inside = 1.0
            for i in range(d):
                at = (origin[node, i] << 1) | ((corner >> (d - 1 - i)) & 1)
                origin[new, i] = at
                first = max(low[i], at << (r - 1))
                last = min(high[i], (at << (r - 1)) + ((1 << (r - 1)) - 1))
                inside *= float(last - first) + 1
            remaining[new] = r - 1
            row[new] = entry >> (2 * d)
            signs[new] = signs[node] ^ ((entry >> d) & mask)
            base[new] = begin
            waste[new] = 2.0 ** (d * (r - 1)) - inside
            heap[opened] = new
            _sift_up(heap, opened, waste, base)
            opened += 1
        spare[spare_count] = node
        spare_count += 1
    for n in range(opened):
        node = heap[n]
        starts[closed] = base[node]
        ends[closed] = base[node] + ((1 << (d * remaining[node] - 1)) - 1) + (1 << (d * remaining[node] - 1))
        closed += 1
    return starts[:closed].copy(), ends[:closed].copy()


@njit
def _before(a: int, b: int, waste: Floats, base: Ints) -> bool:
    return waste[a] > waste[b] or (waste[a] == waste[b] and base[a] < base[b])


@njit
def _sift_up(heap: Ints, at: int, waste: Floats, base: Ints) -> None:
    node = heap[at]
    while at > 0:
        parent = (at - 1) // 2
        if not _before(node, heap[parent], waste, base):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = node


@njit
def _sift_down(heap: Ints, count: int, waste: Floats, base: Ints) -> None:
    node = heap[0]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and _before(heap[below + 1], heap[below], waste, base):
            below += 1
        if not _before(heap[below], node, waste, base):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = node
