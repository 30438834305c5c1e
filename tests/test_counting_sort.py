"""Sorting by counting against sorting by comparison."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from state.counting_sort import COUNTED_MIN, counted, stable_order


@given(keys=st.lists(st.integers(0, 2**62 - 1) | st.integers(0, 3) | st.just(2**62 - 1), min_size=1, max_size=200))
@settings(max_examples=100, deadline=None)
def test_keys_are_sorted_as_by_comparison(keys):
    """Counting digit by digit gives the stable order, whichever digits keys have in common."""
    some = np.array(keys, np.int64)
    assert counted(some).tolist() == np.argsort(some, kind="stable").tolist()


def test_few_and_many_have_the_same_order():
    """Whether keys are counted or compared is not to be seen: of equal ones the first comes first."""
    for n in (COUNTED_MIN - 1, COUNTED_MIN, 3 * COUNTED_MIN):
        keys = np.random.default_rng(n).integers(0, 1000, n) << 20
        assert np.array_equal(stable_order(keys), np.argsort(keys, kind="stable"))
