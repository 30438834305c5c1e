"""Copies between columns against the same copies made by Python and by Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from state.columns import copy, gathered

TEXTS = st.one_of(st.binary(max_size=5), st.integers(0, 70).map(lambda n: bytes(range(256))[:n]))


def test_a_copy_is_all_that_was_asked_for_and_nothing_beside_it():
    """Of every length up to several steps, from and to every place of a word; what stands around stays."""
    source = np.frombuffer(bytes(range(1, 201)), np.uint8)
    for n in range(100):
        for first, to in ((0, 0), (1, 3), (7, 0), (8, 5), (15, 16), (3, 9)):
            target = np.zeros(140, np.uint8)
            copy(source, first, first + n, target, to)
            assert target.tobytes() == bytes(to) + source[first : first + n].tobytes() + bytes(140 - to - n)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=6), st.integers(0, 2), st.booleans(), st.data())
def test_rows_that_are_gathered_are_those_that_arrow_takes(values, skipped, full, data):
    """In any order, some several times, of a column that is a slice of another, with nulls or without."""
    if full:
        values = [value or b"" for value in values]
    array = pa.array([b"before"] * skipped + values, pa.binary())[skipped:]
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=8)), np.int64)
    got = gathered(array, rows)
    got.validate(full=True)
    assert got.equals(array.take(pa.array(rows)))


def test_texts_and_nothing_are_gathered():
    """A column of texts stays one, and one of nulls alone too; no rows are no values."""
    assert gathered(pa.array(["a", "bc"]), np.array([1, 1])).equals(pa.array(["bc", "bc"]))
    assert gathered(pa.nulls(2, pa.binary()), np.array([1, 0, 1])).equals(pa.nulls(3, pa.binary()))
    assert gathered(pa.array([b"a"]), np.empty(0, np.int64)).equals(pa.array([], pa.binary()))
