"""Observed publications: counts on the window, against the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.advertisements.normal import Normaliser
from state.advertisements.observations import Observations
from state.filters.grammar import parse
from tests import oracle
from tests.advertisements.witnesses import PLAIN, TYPE, VALUES, filters, leaves

NORMAL = Normaliser(TYPE)
events = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()})


@settings(max_examples=120, deadline=None)
@given(
    st.lists(events, max_size=14),
    st.lists(leaves(like=True), min_size=1, max_size=4),
    filters(leaves(like=True), max_leaves=5),
)
def test_counts_are_those_of_the_last_publications(
    observed: list[dict[str, Any]], predicates: list[str], text: str
) -> None:
    """Matches and selectivity are counted on the last eight publications, whatever came before."""
    observations = Observations(TYPE, window=8)
    for event in observed:
        observations.observe(event)
    observations.check()
    last = observed[-8:]
    assert len(observations) == len(last)
    assert observations.seen == len(observed)
    for predicate in predicates:
        expected = sum(oracle.evaluate(predicate, event, PLAIN) for event in last)
        assert observations.matches(NORMAL.leaf(parse(predicate, TYPE))) == expected  # type: ignore[arg-type]
    share = sum(oracle.evaluate(text, event, PLAIN) for event in last) / len(last) if last else 0
    assert observations.selectivity(parse(text, TYPE), NORMAL.leaf) == pytest.approx(share)


def test_counts_follow_new_publications() -> None:
    """What was asked before is counted anew after the next publication."""
    observations = Observations(TYPE, window=2)
    leaf = NORMAL.leaf(parse("n = 1", TYPE))  # type: ignore[arg-type]
    counts = []
    for value in (1, 1, 0, 0):
        observations.observe({"n": value})
        counts.append(observations.matches(leaf))
    assert counts == [1, 2, 1, 0]
