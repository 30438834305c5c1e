"""The ids of many deliveries, joined by compiled code, against those of each joined alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from state.messages import SUBSCRIPTIONS_BYTES_MAX, joined_ids
from state.routing import delivery

IDS = st.text("ab-ä𝄞", min_size=1, max_size=4)


def joined(groups: list[list[str]], seed: int = 0) -> list[str]:
    """What compiled code makes of these groups, with their ids in any order in the column."""
    flat = [id for group in groups for id in group]
    shuffled = np.random.default_rng(seed).permutation(len(flat))
    column = pa.array([flat[i].encode() for i in shuffled.tolist()], pa.binary())
    order, sizes = np.argsort(shuffled), [len(group) for group in groups]
    first = np.cumsum([0, *sizes[:-1]])
    return [text.decode() for text in delivery._joined(column, order, first).to_pylist()]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(IDS, min_size=1, max_size=12), min_size=1, max_size=8), st.integers(0, 99))
def test_ids_of_many_deliveries_are_joined_as_those_of_one(groups, seed):
    """Sorted by code point, each once, whatever stands beside them."""
    assert joined(groups, seed) == [joined_ids(group) for group in groups]


def test_very_many_ids_and_very_long_ones_are_joined_as_well():
    """More than are sorted by insertion, and more than fit the header, between groups that are ordinary."""
    many = [f"s{i % 500}" for i in range(10 * delivery.SORTED_MAX)]
    few_and_long = ["x" * 300 + str(i) for i in range(SUBSCRIPTIONS_BYTES_MAX // 300 + 2)]
    groups = [["b", "a"], many, ["c"], few_and_long, ["a", "a"], many[: delivery.SORTED_MAX]]
    told = joined(groups)
    assert told == [joined_ids(group) for group in groups]
    assert told[3].endswith("…")
