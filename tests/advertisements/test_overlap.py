"""Overlap of Boolean filters against every event of a small space."""

from __future__ import annotations

from hypothesis import event as noted
from hypothesis import given, settings
from hypothesis import strategies as st

from state.advertisements.overlap import OverlapIndex
from state.filters.grammar import parse
from tests.advertisements.witnesses import TYPE, Grid, conjunctions, filters, leaves

GRID = Grid()


def claimed(one: str, other: str) -> bool:
    """What the pair test says; both orders must say it."""
    index = OverlapIndex(TYPE)
    a, b = parse(one, TYPE), parse(other, TYPE)
    answer = index.overlaps(a, b)
    assert index.overlaps(b, a) == answer
    return answer


@settings(max_examples=1000, deadline=None)
@given(conjunctions(), conjunctions())
def test_conjunctions_without_like_are_exact(one: str, other: str) -> None:
    """Two conjunctions overlap exactly if some event satisfies both, however often they restrict an attribute."""
    assert claimed(one, other) == GRID.overlap(one, other)


@settings(max_examples=1000, deadline=None)
@given(filters(), filters())
def test_trees_without_like_are_exact(one: str, other: str) -> None:
    """The same for any two trees of this size: all are within the limits of the normal form."""
    expected = GRID.overlap(one, other)
    noted(f"overlap: {expected}")
    assert claimed(one, other) == expected
