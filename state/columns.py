"""Arrow columns of texts as plain arrays, for compiled kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from state.arrays import Bytes, Offsets
from state.kernels import njit

if TYPE_CHECKING:
    import pyarrow as pa


def column(array: pa.Array) -> tuple[Bytes, Offsets]:
    """The bytes and offsets of a column of binary or text values; null reads as empty.

    >>> import pyarrow
    >>> column(pyarrow.array([b"ab", None, b"c"]))[1].tolist()
    [0, 2, 2, 3]
    """
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return np.empty(0, np.uint8), np.zeros(len(array) + 1, np.int32)
    every = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), every


@njit
def copy(source: Bytes, first: int, end: int, target: Bytes, to: int) -> None:
    """Copy `source[first:end]` to `target` from `to` on.

    Unsigned indices: a signed one is checked for being negative, which makes the loop eight times as slow.
    """
    a, b = np.uint64(first), np.uint64(to)
    for i in range(np.uint64(end - first)):
        target[b + i] = source[a + i]
