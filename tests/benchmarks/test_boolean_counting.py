"""Candidates and the paper's counting algorithm, against their definitions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.boolean_counting import CountingSnapshot
from state.advertisements.extents import disjoint
from state.advertisements.filter_index import FilterIndex
from state.advertisements.normal import Normal, Normaliser
from state.filters.grammar import parse
from tests.advertisements.witnesses import TYPE, filters, leaves

NORMAL = Normaliser(TYPE)
several = st.lists(filters(leaves(like=True), max_leaves=6), min_size=1, max_size=6)


def built(texts: list[str]) -> FilterIndex:
    index = FilterIndex(TYPE)
    for i, text in enumerate(texts):
        index.add(f"f{i}", NORMAL(parse(text, TYPE)))
    return index


def violated(conjunction: Normal, stored: Normal) -> int:
    """How many leaves of a stored filter no value satisfies with a conjunction, each occurrence counted."""
    return sum(
        any(leaf.dimension == asked.dimension and disjoint(leaf.extent, asked.extent) for asked in conjunction.leaves)
        for leaf in stored.leaves
    )


@settings(max_examples=80, deadline=None)
@given(several, filters(leaves(like=True), max_leaves=6))
def test_candidates_are_those_that_bear_their_violations(texts: list[str], asked: str) -> None:
    """A stored filter is a candidate of a conjunction if |P| >= |P_vio| + |P_min|, and every overlap is one."""
    index, filter = built(texts), NORMAL(parse(asked, TYPE))
    stored = [index[id] for id in index.ids() if not index[id].never]
    expected = [
        sum(each.shape.predicates >= violated(conjunction, each) + each.shape.minimum for each in stored)
        for conjunction in filter.conjunctions()
    ]
    assert index.candidates(filter) == expected
    overlapping = sum(map(len, index.overlapping(filter).values()))
    assert overlapping <= sum(expected)


@settings(max_examples=80, deadline=None)
@given(several, filters(leaves(like=True), max_leaves=6))
def test_counting_answers_as_the_index_does(texts: list[str], asked: str) -> None:
    """Hit vector, candidates and evaluation find the same filters, in All and in First."""
    index, filter = built(texts), NORMAL(parse(asked, TYPE))
    if not index.groups:
        return
    counting = CountingSnapshot(index)
    found = index.overlapping(filter).get("", [])
    assert counting.overlapping(filter) == found
    assert len(found) <= counting.candidates <= sum(index.candidates(filter))
    first = counting.overlapping(filter, first=True)
    assert len(first) == min(1, len(found))
    assert set(first) <= set(found)


@settings(max_examples=80, deadline=None)
@given(several, filters(leaves(like=True), max_leaves=6))
def test_conversion_to_conjunctions_answers_the_same(texts: list[str], asked: str) -> None:
    """A filter overlaps if one of its conjunctions overlaps a conjunction of the other: the baseline is right."""
    index, filter = built(texts), NORMAL(parse(asked, TYPE))
    converted = FilterIndex(TYPE)
    for id in index.ids():
        for k, conjunction in enumerate(index[id].conjunctions()):
            converted.add(f"{id}/{k}", conjunction)
    if not converted.groups:
        return
    counting = CountingSnapshot(converted)
    found = {id.split("/")[0] for part in filter.conjunctions() for id in counting.overlapping(part)}
    assert found == set(index.overlapping(filter).get("", []))


def test_repeated_predicates_count_per_occurrence() -> None:
    """Of (n = 1 AND b) OR (n = 1 AND c) three leaves are violated by n = 2 AND NOT b, not two."""
    index = built(["(n = 1 AND b = true) OR (n = 1 AND c = 'low')"])
    assert index.associations == 4
    stored = index["f0"]
    assert (stored.shape.predicates, stored.shape.minimum) == (4, 2)
    asked = NORMAL(parse("n = 2 AND b = false", TYPE))
    assert violated(asked, stored) == 3
    assert index.candidates(asked) == [0]
    assert index.candidates(NORMAL(parse("n = 2", TYPE))) == [1]
    assert index.overlapping(NORMAL(parse("n = 2", TYPE))) == {}
