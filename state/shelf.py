"""Arrays that several processes read: what a shelf of them owes, and columns that only grow.

    keep     some arrays under a name; they never change, so whoever has the name has them
    grow     a column under a name; what stands in it never changes, more may follow

Structures that are kept (`matchers/`, `routing/`) describe themselves by names and small figures, write to a shelf only
what it has not got, and go on with the shelf's own arrays. Who reads a description opens the same structure, and copies
what it may change. Where arrays lie, a shelf alone knows (`streaming/host_files.py`: files that are mapped).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from state.arrays import Bytes, Ints
from state.columns import copy
from state.kernels import njit

Array = NDArray[Any]


class Shelf(Protocol):
    """Where arrays are kept that others read too."""

    def keep(self, arrays: Sequence[Array]) -> str:
        """Keep arrays as they are now; return their name."""
        ...

    def read(self, name: str) -> list[Array]:
        """The arrays of a name, in their order; nobody may write to them."""
        ...

    def grow(self, name: str | None, values: Array, first: int) -> str:
        """Put values in a column from place `first` on, a new one without a name; return the name.

        Places before `first` stay as they are. Those behind it nobody reads yet.
        """
        ...

    def column(self, name: str, kind: np.dtype[Any], size: int) -> Array:
        """The first `size` values of a column; nobody may write to them."""
        ...


class KeptColumn(msgspec.Struct, array_like=True, frozen=True):
    """How a column is found on a shelf."""

    name: str
    size: int


class Column:
    """An array of one dimension that only grows: what stands in it is never written again.

    Cost: amortised, that of what is added; after it was kept, once more a copy of all.
    """

    def __init__(self, kind: type[np.generic]) -> None:
        self._room: Array = np.empty(0, kind)
        self._size = 0
        self._kept: KeptColumn | None = None

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> Array:
        """What stands in it."""
        return self._room[: self._size]

    def add(self, values: Array) -> None:
        """Put values behind those that are there."""
        size = self._size + len(values)
        if size > len(self._room):
            room = np.empty(max(size, 2 * self._size if self._room.base is None else 0), self._room.dtype)
            room[: self._size] = self.values
            self._room = room
        self._room[self._size : size] = values
        self._size = size

    def is_same(self, other: Column) -> bool:
        """Whether both are the same column of a shelf, be one longer than the other."""
        return self._kept is not None and other._kept is not None and self._kept.name == other._kept.name

    def kept(self, shelf: Shelf) -> KeptColumn:
        """Write down what the shelf has not got, and go on with its array."""
        done = 0 if self._kept is None else self._kept.size
        if self._kept is None or done < len(self):
            name = shelf.grow(None if self._kept is None else self._kept.name, self.values[done:], done)
            self.open(KeptColumn(name, len(self)), shelf)
        assert self._kept is not None
        return self._kept

    def open(self, kept: KeptColumn, shelf: Shelf) -> None:
        """Take what a shelf has in the place of what is here."""
        self._room, self._size = shelf.column(kept.name, self._room.dtype, kept.size), kept.size
        self._kept = kept


class KeptTexts(msgspec.Struct, array_like=True, frozen=True):
    """How texts are found on a shelf."""

    ends: KeptColumn
    letters: KeptColumn

    def names(self) -> tuple[str, str]:
        """What it needs of the shelf."""
        return self.ends.name, self.letters.name


class Texts:
    """Texts by number, as bytes one behind the other; more may follow.

    >>> texts = Texts()
    >>> texts.add(["ann", "bob"])
    >>> texts[1], len(texts)
    ('bob', 2)
    """

    def __init__(self) -> None:
        self._ends, self._letters = Column(np.int64), Column(np.uint8)
        self._ends.add(np.zeros(1, np.int64))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        first, end = self._ends.values[number : number + 2]
        return bytes(self._letters.values[first:end]).decode()

    def add(self, texts: Iterable[str]) -> None:
        """Put texts behind those that are there."""
        written = [text.encode() for text in texts]
        lengths = np.array([len(one) for one in written], np.int64)
        self._ends.add(np.cumsum(lengths) + self._ends.values[-1])
        self._letters.add(np.frombuffer(b"".join(written), np.uint8))

    def gathered(self, numbers: Ints, skip: Bytes) -> pa.Array:
        """The texts of some numbers, without the first bytes of each: by place in `numbers`, `skip` of them."""
        ends, letters = self._ends.values, self._letters.values
        offsets = np.zeros(len(numbers) + 1, np.int32)
        np.cumsum(ends[numbers + 1] - ends[numbers] - skip, out=offsets[1:])
        out = np.empty(offsets[-1], np.uint8)
        _gather(letters, ends, numbers, skip, offsets, out)
        return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(out)])

    def kept(self, shelf: Shelf) -> KeptTexts:
        """Write down what the shelf has not got, and go on with its arrays."""
        return KeptTexts(self._ends.kept(shelf), self._letters.kept(shelf))

    def open(self, kept: KeptTexts, shelf: Shelf) -> None:
        """Take what a shelf has in the place of what is here."""
        self._ends.open(kept.ends, shelf)
        self._letters.open(kept.letters, shelf)


@njit
def _gather(letters: Bytes, ends: Ints, numbers: Ints, skip: Bytes, offsets: NDArray[np.int32], out: Bytes) -> None:
    for i in range(len(numbers)):
        copy(letters, ends[numbers[i]] + skip[i], ends[numbers[i] + 1], out, offsets[i])
