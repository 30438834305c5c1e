"""Rows of varying length in flat columns: what the kernels walk over, and cheap to change.

    start  count          columns
    [ 0      3 ]  ──────> | 4 9 2 | 7 7 | . . . . | 1 |      row 0 = 4 9 2, row 1 = 7 7
    [ 3      2 ]  ────────────────^                 ^        row 2 was removed: its number is free,
    [ 0     -1 ]  free                              |        its places are garbage
    [ 9      1 ]  ──────────────────────────────────┘

A row's number stays its own until it is removed; numbers are used again, last freed first. When most of the
columns is garbage they are written anew: O(1) amortised per change. Nothing here is of [BADV06].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]
T = TypeVar("T")

GARBAGE_MIN = 256
"""Below this many places garbage is not worth the while."""


def grown(column: Column, size: int) -> Column:
    """Return the column with room for `size` values, at least doubled if it has to grow."""
    if size <= len(column):
        return column
    wider = np.zeros(max(size, 2 * len(column), 16), column.dtype)
    wider[: len(column)] = column
    return wider


class Rows:
    """Rows of varying length, each with one value per column and place.

    >>> rows = Rows(np.int32)
    >>> a, b = rows.add([4, 9, 2]), rows.add([7, 7])
    >>> rows.remove(a)
    >>> rows.add([1]) == a, rows.row(b)[0]
    (True, array([7, 7], dtype=int32))
    """

    def __init__(self, *dtypes: Any) -> None:
        self.start = np.zeros(0, np.int64)
        self.count = np.zeros(0, np.int32)
        """Length of each row; -1 where the number is free."""
        self.columns = [np.zeros(0, dtype) for dtype in dtypes]
        self.size = 0
        """Numbers given out so far, free ones included."""
        self.used = 0
        self.garbage = 0
        self._free: list[int] = []

    def __len__(self) -> int:
        return self.size - len(self._free)

    def add(self, *values: Any) -> int:
        """Store a row, one sequence per column, and return its number."""
        if self._free:
            row = self._free.pop()
        else:
            row, self.size = self.size, self.size + 1
            self.start, self.count = grown(self.start, self.size), grown(self.count, self.size)
        length, begin = len(values[0]), self.used
        self.start[row], self.count[row] = begin, length
        self.used += length
        for i, value in enumerate(values):
            column = self.columns[i] = grown(self.columns[i], self.used)
            column[begin : self.used] = value
        return row

    def remove(self, row: int) -> None:
        """Free a row's number."""
        assert self.count[row] >= 0, "a free row cannot be removed"
        self.garbage += int(self.count[row])
        self.count[row] = -1
        self._free.append(row)
        if self.garbage > GARBAGE_MIN and 2 * self.garbage > self.used:
            self._compact()

    def row(self, row: int) -> tuple[Column, ...]:
        """The values of a row, as views."""
        begin, end = int(self.start[row]), int(self.start[row] + self.count[row])
        return tuple(column[begin:end] for column in self.columns)

    def places(self, rows: Column) -> Column:
        """Where in the columns the values of these rows stand, in order."""
        counts = self.count[rows].astype(np.int64)
        ends = np.cumsum(counts)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
        return np.repeat(self.start[rows], counts) + within

    def _compact(self) -> None:
        live = np.flatnonzero(self.count[: self.size] >= 0)
        places = self.places(live)
        self.columns = [column[places] for column in self.columns]
        self.start[live] = np.cumsum(self.count[live]) - self.count[live]
        self.used, self.garbage = len(places), 0

    @property
    def nbytes(self) -> int:
        return int(self.start.nbytes + self.count.nbytes + sum(column.nbytes for column in self.columns))

    def check(self) -> None:
        """Assert every invariant."""
        live = np.flatnonzero(self.count[: self.size] >= 0)
        assert sorted(self._free) == np.flatnonzero(self.count[: self.size] < 0).tolist()
        places = self.places(live)
        assert len(np.unique(places)) == len(places), "two rows share a place"
        assert len(places) + self.garbage == self.used
        assert all(len(column) >= self.used for column in self.columns)


class Pool(Generic[T]):
    """Equal things stored once, under numbers, and counted per use.

    `columns_of` tells what the kernels see of a thing: one sequence per column.
    """

    def __init__(self, columns_of: Callable[[T], tuple[Any, ...]], *dtypes: Any) -> None:
        self._columns_of = columns_of
        self.rows = Rows(*dtypes)
        self.numbers: dict[T, int] = {}
        self.things: list[T | None] = []
        self.uses = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.numbers)

    def hold(self, thing: T) -> int:
        """Count one more use of a thing and return its number."""
        number = self.numbers.get(thing)
        if number is None:
            number = self._enter(thing)
        self.uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """Count one use less; an unused thing goes, and its number becomes free."""
        self.uses[number] -= 1
        assert self.uses[number] >= 0
        if self.uses[number] == 0:
            self._leave(number)

    def _enter(self, thing: T) -> int:
        number = self.rows.add(*self._columns_of(thing))
        self.numbers[thing] = number
        self.uses = grown(self.uses, self.rows.size)
        if number == len(self.things):
            self.things.append(thing)
        else:
            self.things[number] = thing
        return number

    def _leave(self, number: int) -> T:
        thing = self.things[number]
        assert thing is not None
        del self.numbers[thing]
        self.things[number] = None
        self.rows.remove(number)
        return thing

    def check(self) -> None:
        """Assert every invariant."""
        self.rows.check()
        assert len(self.rows) == len(self.numbers)
        for thing, number in self.numbers.items():
            assert self.things[number] == thing
            assert self.uses[number] > 0
            for stored, expected in zip(self.rows.row(number), self._columns_of(thing), strict=True):
                assert np.array_equal(stored, expected)
