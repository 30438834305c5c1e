"""The stable order of keys that are counted, digit by digit, and not compared.

numpy sorts int64 stably by merging: 80 to 160 ns a key where there are 100,000 and more, this 10 to 30.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Ints
from state.kernels import njit

COUNTED_MIN = 4096
"""Keys from which on it pays."""
DIGIT_BITS = 11
"""Bits of a key by which it is sorted at a time: as many counters as stay in a core's own cache."""


def stable_order(keys: Ints) -> Ints:
    """The places of keys of 0 and more in the order of the keys; of equal keys in their own.

    Cost: O(n) for each digit in which not all are equal.

    >>> stable_order(np.array([2, 0, 2, 1])).tolist()
    [1, 3, 0, 2]
    """
    return np.argsort(keys, kind="stable") if len(keys) < COUNTED_MIN else counted(keys)


@njit
def counted(keys: Ints) -> Ints:
    """The same, however few: by the last digit first."""
    n, most, digits = len(keys), keys.max(), 0
    while digits * DIGIT_BITS < 63 and most >> (digits * DIGIT_BITS) > 0:
        digits += 1
    mask = (1 << DIGIT_BITS) - 1
    starts = np.zeros((digits, mask + 2), np.int64)
    for i in range(n):
        for digit in range(digits):
            starts[digit, ((keys[i] >> (digit * DIGIT_BITS)) & mask) + 1] += 1
    order, before = np.arange(n), np.empty(n, np.int64)
    in_order, keys_before = keys.copy(), np.empty(n, np.int64)
    for digit in range(digits):
        if starts[digit].max() == n:
            continue
        for k in range(mask + 1):
            starts[digit, k + 1] += starts[digit, k]
        order, before, in_order, keys_before = before, order, keys_before, in_order
        for i in range(n):
            at = (keys_before[i] >> (digit * DIGIT_BITS)) & mask
            to = starts[digit, at]
            order[to], in_order[to] = before[i], keys_before[i]
            starts[digit, at] += 1
    return order


def warm() -> None:
    """Compile it, or load it."""
    counted(np.arange(2))
