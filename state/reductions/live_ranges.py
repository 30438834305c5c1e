"""All ranges of all live entries, with their owners: what makes unsubscription exact ([MICS09] §2, §4.2).

The paper moves covered ranges to a *passive list*, to be forwarded should their cover be withdrawn, and says
no more. Here every live range is kept, covered or not, sorted by start, and one question answers everything:
how far do the ranges that start at or before h reach (`furthest`)? A range is covered by one other if that
reaches its end; what a removed range leaves uncovered is found by hopping from reach to reach (`uncovered`).

    live    a ├───────────┤              remove a, then ask from 3 to 9:
            c      ├─┤                   nothing that starts by 3 reaches 3: uncovered up to c, [3, 4]
            e              ├────┤        c reaches 6, hop to 7; nothing reaches 7: uncovered up to e, [7, 8]
            0      5 6     9    12       e reaches beyond 9: done

Ranges sit in chunks of up to `CHUNK`; each chunk knows its lowest start, its furthest end, and how far it and all
before it reach. So an insertion moves one chunk at most, a hop looks into one chunk, and nothing depends on how wide a
range is. Who touches a range is asked of the chunks before its end, `BLOCK` of them at a time: a block whose furthest
end lies before it is passed over.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Ints
from state.kernels import njit
from state.space.ranges import Ranges

CHUNK = 512
"""Ranges in a chunk at most; a full one is split into halves."""
BLOCK = 64
"""Chunks of a block."""
NOWHERE = -1
"""Before every Hilbert index."""

# Columns of a range in `cells[column, row, slot]`, and lines of the directory, which lists chunks in order.
START, END, OWNER = 0, 1, 2
ROW, SIZE, LOW, PEAK, REACH, OF_BLOCK = 0, 1, 2, 3, 4, 5
LINES = 6
"""The last line has one number for each block: its furthest end."""


@njit
def _chunk_of(directory: Ints, chunks: int, start: int) -> int:
    """The last chunk whose lowest start is at or before `start` (the first one if none is)."""
    left, right = 0, chunks
    while left < right:
        middle = (left + right) // 2
        if directory[LOW, middle] <= start:
            left = middle + 1
        else:
            right = middle
    return max(left - 1, 0)


@njit
def _slot_after(starts: Ints, size: int, start: int) -> int:
    """The first slot of a chunk whose start is after `start`."""
    left, right = 0, size
    while left < right:
        middle = (left + right) // 2
        if starts[middle] <= start:
            left = middle + 1
        else:
            right = middle
    return left


@njit
def _reaching(directory: Ints, chunks: int, at: int, stop: int) -> None:
    """Write how far chunks reach, from `at` on: all before `stop`, then until nothing changes."""
    reach = directory[REACH, at - 1] if at else NOWHERE
    for i in range(at, chunks):
        reach = max(reach, directory[PEAK, i])
        if i >= stop and directory[REACH, i] == reach:
            return
        directory[REACH, i] = reach


@njit
def _blocks(directory: Ints, chunks: int, first: int, end: int) -> None:
    """Write the furthest ends of the blocks that hold chunks first..end - 1."""
    for block in range(first // BLOCK, (end - 1) // BLOCK + 1):
        peak = NOWHERE
        for i in range(block * BLOCK, min((block + 1) * BLOCK, chunks)):
            peak = max(peak, directory[PEAK, i])
        directory[OF_BLOCK, block] = peak


@njit
def _split(cells: Ints, directory: Ints, chunks: int, at: int) -> None:
    """Move the upper half of chunk `at` to a spare row, listed right after it."""
    half = directory[SIZE, at] // 2
    moved = directory[SIZE, at] - half
    old, new = directory[ROW, at], directory[ROW, chunks]
    for line in range(OF_BLOCK):
        for i in range(chunks, at + 1, -1):
            directory[line, i] = directory[line, i - 1]
    cells[:, new, :moved] = cells[:, old, half : half + moved]
    directory[ROW, at + 1] = new
    directory[SIZE, at], directory[SIZE, at + 1] = half, moved
    directory[LOW, at + 1] = cells[START, new, 0]
    directory[PEAK, at] = cells[END, old, :half].max()
    directory[PEAK, at + 1] = cells[END, new, :moved].max()
    _reaching(directory, chunks + 1, at, at + 2)
    _blocks(directory, chunks + 1, at, chunks + 1)


@njit
def _insert(cells: Ints, directory: Ints, chunks: int, start: int, end: int, owner: int) -> int:
    """Insert one range; return the number of chunks (there must be room for one more)."""
    if chunks == 0:
        directory[SIZE, 0], directory[PEAK, 0] = 0, end
        directory[REACH, 0] = directory[OF_BLOCK, 0] = end
        chunks = 1
    at = _chunk_of(directory, chunks, start)
    if directory[SIZE, at] == cells.shape[2]:
        _split(cells, directory, chunks, at)
        chunks += 1
        if start >= directory[LOW, at + 1]:
            at += 1
    row, size = directory[ROW, at], directory[SIZE, at]
    slot = _slot_after(cells[START, row], size, start)
    for column in range(3):
        for i in range(size, slot, -1):
            cells[column, row, i] = cells[column, row, i - 1]
    cells[START, row, slot], cells[END, row, slot], cells[OWNER, row, slot] = start, end, owner
    directory[SIZE, at] = size + 1
    directory[LOW, at] = cells[START, row, 0]
    if end > directory[PEAK, at]:
        directory[PEAK, at] = end
        directory[OF_BLOCK, at // BLOCK] = max(directory[OF_BLOCK, at // BLOCK], end)
        _reaching(directory, chunks, at, at)
    return chunks


@njit
def _insert_all(cells: Ints, directory: Ints, chunks: int, starts: Ints, ends: Ints, owners: Ints) -> int:
    """Insert ranges; return the number of chunks (there must be room for one more each)."""
    for i in range(len(starts)):
        chunks = _insert(cells, directory, chunks, starts[i], ends[i], owners[i])
    return chunks


@njit
def _find(cells: Ints, directory: Ints, chunks: int, start: int, owner: int) -> tuple[int, int]:
    """The chunk and slot of an owner's range with this start; it is there."""
    at = _chunk_of(directory, chunks, start)
    row = directory[ROW, at]
    slot = _slot_after(cells[START, row], directory[SIZE, at], start) - 1
    # Those that start together may fill several chunks.
    while cells[OWNER, row, slot] != owner or cells[START, row, slot] != start:
        slot -= 1
        if slot < 0:
            at -= 1
            row, slot = directory[ROW, at], directory[SIZE, at] - 1
        assert at >= 0, "no such range"
        assert cells[START, row, slot] == start, "no such range"
    return at, slot


@njit
def _remove_all(cells: Ints, directory: Ints, chunks: int, starts: Ints, owner: int) -> int:
    """Take out an owner's ranges by their starts; return the number of chunks left."""
    for k in range(len(starts)):
        at, slot = _find(cells, directory, chunks, starts[k], owner)
        row, size = directory[ROW, at], directory[SIZE, at] - 1
        end = cells[END, row, slot]
        for column in range(3):
            for i in range(slot, size):
                cells[column, row, i] = cells[column, row, i + 1]
        directory[SIZE, at] = size
        if size == 0:
            # An empty chunk goes behind the others, as a spare row.
            chunks -= 1
            for line in range(OF_BLOCK):
                for i in range(at, chunks):
                    directory[line, i] = directory[line, i + 1]
            directory[ROW, chunks] = row
            _reaching(directory, chunks, at, at)
            _blocks(directory, chunks, at, chunks + 1)
            continue
        directory[LOW, at] = cells[START, row, 0]
        if end == directory[PEAK, at]:
            directory[PEAK, at] = cells[END, row, :size].max()
            _reaching(directory, chunks, at, at)
            _blocks(directory, chunks, at, at + 1)
    return chunks


@njit
def _starts_of(cells: Ints, directory: Ints, chunks: int, owner: int, starts: Ints, ends: Ints) -> int:
    """Write every range of `owner`, in order; return how many. Cost: one pass."""
    found = 0
    for at in range(chunks):
        row = directory[ROW, at]
        for i in range(directory[SIZE, at]):
            if cells[OWNER, row, i] == owner:
                starts[found], ends[found] = cells[START, row, i], cells[END, row, i]
                found += 1
    return found


@njit
def _furthest(cells: Ints, directory: Ints, chunks: int, h: int) -> int:
    """The furthest end of the ranges that start at or before `h`; -1 if there is none."""
    if chunks == 0 or directory[LOW, 0] > h:
        return NOWHERE
    at = _chunk_of(directory, chunks, h)
    reach = directory[REACH, at - 1] if at else NOWHERE
    row = directory[ROW, at]
    for i in range(_slot_after(cells[START, row], directory[SIZE, at], h)):
        reach = max(reach, cells[END, row, i])
    return reach


@njit
def _furthest_of_all(cells: Ints, directory: Ints, chunks: int, starts: Ints, reaches: Ints) -> None:
    for i in range(len(starts)):
        reaches[i] = _furthest(cells, directory, chunks, starts[i])


@njit
def _next_start(cells: Ints, directory: Ints, chunks: int, h: int) -> int:
    """The first start after `h`; -1 if there is none."""
    if chunks == 0:
        return NOWHERE
    at = _chunk_of(directory, chunks, h)
    row, size = directory[ROW, at], directory[SIZE, at]
    slot = _slot_after(cells[START, row], size, h)
    if slot < size:
        return cells[START, row, slot]
    return directory[LOW, at + 1] if at + 1 < chunks else NOWHERE


@njit
def _uncovered(cells: Ints, directory: Ints, chunks: int, start: int, end: int, starts: Ints, ends: Ints) -> int:
    """Write what of start..end no range holds; return how many pieces. -1: there was no room for all."""
    found, h = 0, start
    while True:
        reach = _furthest(cells, directory, chunks, h)
        if reach >= end:
            return found
        if reach >= h:
            h = reach + 1
            continue
        if found == starts.shape[0]:
            return -1
        following = _next_start(cells, directory, chunks, h)
        starts[found] = h
        if following < 0 or following > end:
            ends[found] = end
            return found + 1
        ends[found] = following - 1
        found += 1
        h = following


@njit
def _uncovered_of_all(
    cells: Ints, directory: Ints, chunks: int, asked_starts: Ints, asked_ends: Ints, starts: Ints, ends: Ints
) -> int:
    """Write what of each range asked for no range holds, one after the other; -1: there was no room for all."""
    total = 0
    for i in range(len(asked_starts)):
        found = _uncovered(cells, directory, chunks, asked_starts[i], asked_ends[i], starts[total:], ends[total:])
        if found < 0:
            return -1
        total += found
    return total


@njit
def _touching(cells: Ints, directory: Ints, chunks: int, starts: Ints, ends: Ints, owners: Ints) -> int:
    """Write the owners of the ranges that share an index with one of those asked for; return how many.

    Where `owners` has no room they are only counted.
    """
    found = 0
    for query in range(starts.shape[0] if chunks else 0):
        start, end = starts[query], ends[query]
        at = _chunk_of(directory, chunks, end)
        while at >= 0 and directory[REACH, at] >= start:
            if at % BLOCK == BLOCK - 1 and directory[OF_BLOCK, at // BLOCK] < start:
                at -= BLOCK
                continue
            row = directory[ROW, at]
            for i in range(directory[SIZE, at] if directory[PEAK, at] >= start else 0):
                if cells[START, row, i] > end:
                    break
                if cells[END, row, i] >= start:
                    if found < owners.shape[0]:
                        owners[found] = cells[OWNER, row, i]
                    found += 1
            at -= 1
    return found


@njit
def meetings(
    starts: Ints,
    ends: Ints,
    owners: Ints,
    asked_starts: Ints,
    asked_ends: Ints,
    questions: Ints,
    since: Ints,
    until: Ints,
) -> Ints:
    """Which owners have a range that meets one that is asked for: question times the number of owners, plus the owner.

    Of the owners, numbered from 0, question i finds those with since < i <= until. Ranges lie sorted by start, and so
    do those that are asked for, each with its question. A pair is told as often as it meets.
    Cost: one pass over both, side by side; each asked for looks at what holds its start, or what held that before it.
    """
    found, count = np.empty(1024, np.int64), 0
    near, size, following = np.empty(256, np.int64), 0, 0
    for at in range(len(asked_starts)):
        start, i = asked_starts[at], questions[at]
        while following < len(starts) and starts[following] <= start:
            if ends[following] >= start:
                if size == len(near):
                    near = np.concatenate((near, near))
                near[size] = following
                size += 1
            following += 1
        kept = 0
        for n in range(size):  # what ended before is dropped when it is come upon
            if ends[near[n]] >= start:
                near[kept] = near[n]
                kept += 1
        size = ahead = kept
        beyond = following
        while beyond < len(starts) and starts[beyond] <= asked_ends[at]:
            if ahead == len(near):
                near = np.concatenate((near, near))
            near[ahead] = beyond
            ahead, beyond = ahead + 1, beyond + 1
        while count + ahead > len(found):
            found = np.concatenate((found, found))
        for row in near[:ahead]:
            owner = owners[row]
            if since[owner] < i <= until[owner]:
                found[count] = i * len(since) + owner
                count += 1
    return found[:count]


@njit
def _flatten(cells: Ints, directory: Ints, chunks: int, flat: Ints) -> None:
    at = 0
    for i in range(chunks):
        size = directory[SIZE, i]
        flat[:, at : at + size] = cells[:, directory[ROW, i], :size]
        at += size


class LiveRanges:
    """A sorted multiset of (start, end, owner).

    Cost, n ranges: `insert`, `remove` and `furthest` O(CHUNK) and log(n / CHUNK) a range, `uncovered` that per hop; now
    and then, when a chunk comes or goes or what reached furthest, O(n / CHUNK). `ranges_of` O(n), one pass over the
    owners.

    >>> live = LiveRanges()
    >>> for owner, (start, end) in enumerate([(0, 9), (5, 6), (9, 12)]):
    ...     live.insert(start, end, owner)
    >>> live.furthest(7)
    9
    >>> live.ranges_of(0)
    Ranges.of([(0, 9)])
    >>> live.remove(live.ranges_of(0), 0)
    >>> live.uncovered(3, 9)
    Ranges.of([(3, 4), (7, 8)])
    """

    def __init__(self, chunk: int = CHUNK) -> None:
        assert chunk >= 2, "a full chunk is split into halves"
        self._chunk = chunk
        self._columns: tuple[Ints, Ints, Ints] | None = None
        """Starts, ends and owners, sorted, as long as nobody has asked for a chunk of them."""
        self._make_room(4)

    def _make_room(self, room: int) -> None:
        self._cells = np.empty((3, room, self._chunk), np.int64)
        self._directory = np.zeros((LINES, room), np.int64)
        self._directory[ROW] = np.arange(room)
        self._chunks = 0
        self._n = 0

    @classmethod
    def of(cls, starts: Ints, ends: Ints, owners: Ints, chunk: int = CHUNK) -> LiveRanges:
        """Build from columns sorted by start, which are the caller's no more. Cost: O(1); the first question, O(n)."""
        self = cls(chunk)
        self._columns, self._n = (starts, ends, owners), len(starts)
        return self

    def _laid_out(self) -> tuple[Ints, Ints, int]:
        """The cells, the directory and the number of chunks."""
        if self._columns is not None:
            columns, self._columns = self._columns, None
            self._lay_out(*columns)
        return self._cells, self._directory, self._chunks

    def _lay_out(self, starts: Ints, ends: Ints, owners: Ints) -> None:
        fill = self._chunk // 2
        chunks = -(-len(starts) // fill)
        self._make_room(2 * chunks + 4)
        for column, values in enumerate((starts, ends, owners)):
            padded = np.zeros(chunks * fill, np.int64)
            padded[: len(values)] = values
            self._cells[column, :chunks, :fill] = padded.reshape(chunks, fill)
        if chunks:
            firsts = np.arange(0, len(starts), fill)
            self._directory[SIZE, :chunks] = fill
            self._directory[SIZE, chunks - 1] = len(starts) - firsts[-1]
            self._directory[LOW, :chunks] = starts[firsts]
            self._directory[PEAK, :chunks] = np.maximum.reduceat(ends, firsts)
            self._directory[REACH, :chunks] = np.maximum.accumulate(self._directory[PEAK, :chunks])
            blocks = np.maximum.reduceat(self._directory[PEAK, :chunks], np.arange(0, chunks, BLOCK))
            self._directory[OF_BLOCK, : len(blocks)] = blocks
        self._chunks, self._n = chunks, len(starts)

    def __len__(self) -> int:
        return self._n

    def insert(self, start: int, end: int, owner: int) -> None:
        self.insert_all(np.array([start]), np.array([end]), np.array([owner]))

    def insert_all(self, starts: Ints, ends: Ints, owners: Ints) -> None:
        """Insert ranges, those of an owner in any order."""
        for first in range(0, len(starts), self._chunk):
            some = slice(first, first + self._chunk)
            self._laid_out()
            # Each may split a chunk.
            while self._chunks + len(starts[some]) >= self._directory.shape[1]:
                self._grow()
            self._chunks = int(_insert_all(*self._laid_out(), starts[some], ends[some], owners[some]))
        self._n += len(starts)

    def _grow(self) -> None:
        room = self._directory.shape[1]
        self._cells = np.concatenate([self._cells, np.empty_like(self._cells)], axis=1)
        self._directory = np.concatenate([self._directory, np.zeros((LINES, room), np.int64)], axis=1)
        self._directory[ROW, room:] = np.arange(room, 2 * room)

    def remove(self, ranges: Ranges, owner: int) -> None:
        """Take out ranges of one owner, all of which are there."""
        self._chunks = int(_remove_all(*self._laid_out(), ranges.starts, owner))
        self._n -= len(ranges)

    def ranges_of(self, owner: int) -> Ranges:
        """Every range of one owner, in order. Cost: one pass over all ranges."""
        starts, ends = np.empty(self._n, np.int64), np.empty(self._n, np.int64)
        found = int(_starts_of(*self._laid_out(), owner, starts, ends))
        return Ranges(starts[:found].copy(), ends[:found].copy())

    def furthest(self, h: int) -> int:
        """How far the ranges that start at or before `h` reach; `NOWHERE` if there is none."""
        return int(_furthest(*self._laid_out(), h))

    def next_start(self, h: int) -> int | None:
        """The first start after `h`."""
        start = int(_next_start(*self._laid_out(), h))
        return None if start < 0 else start

    def furthest_of_all(self, starts: Ints) -> Ints:
        """`furthest` of each, in one call."""
        reaches = np.empty(len(starts), np.int64)
        _furthest_of_all(*self._laid_out(), starts, reaches)
        return reaches

    def uncovered(self, start: int, end: int) -> Ranges:
        """What of start..end no range holds: the gaps that a withdrawal leaves."""
        return self.uncovered_of_all(np.array([start]), np.array([end]))

    def uncovered_of_all(self, asked_starts: Ints, asked_ends: Ints) -> Ranges:
        """The same of each range asked for, one after the other, in one call."""
        room = 16
        while True:
            starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
            found = _uncovered_of_all(*self._laid_out(), asked_starts, asked_ends, starts, ends)
            if found >= 0:
                return Ranges(starts[:found], ends[:found])
            room *= 4

    def touching(self, ranges: Ranges) -> Ints:
        """The owners of the live ranges that share an index with one of `ranges`, sorted, each once."""
        owners = np.empty(256, np.int64)
        while True:
            found = _touching(*self._laid_out(), ranges.starts, ranges.ends, owners)
            if found <= len(owners):
                return np.unique(owners[:found])
            owners = np.empty(found, np.int64)

    def columns(self) -> tuple[Ints, Ints, Ints]:
        """Starts, ends and owners, sorted by start; to be read only. Cost: O(n)."""
        if self._columns is not None:
            return self._columns
        flat = np.empty((3, self._n), np.int64)
        _flatten(*self._laid_out(), flat)
        return flat[0], flat[1], flat[2]

    def check(self) -> None:
        """Assert that chunks are full of sorted ranges and know their lowest start and furthest end."""
        self._laid_out()
        starts, ends, _ = self.columns()
        assert int(self._directory[SIZE, : self._chunks].sum()) == self._n
        assert (np.diff(starts) >= 0).all()
        assert (starts <= ends).all()
        assert sorted(self._directory[ROW].tolist()) == list(range(self._directory.shape[1]))
        for at in range(self._chunks):
            row, size, low, peak, reach, _ = self._directory[:, at].tolist()
            assert 0 < size <= self._chunk
            assert low == self._cells[START, row, 0]
            assert peak == self._cells[END, row, :size].max()
            assert reach == self._directory[PEAK, : at + 1].max()
            block = slice(at - at % BLOCK, min(at - at % BLOCK + BLOCK, self._chunks))
            assert self._directory[OF_BLOCK, at // BLOCK] == self._directory[PEAK, block].max()
