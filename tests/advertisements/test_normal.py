"""Normal forms: equal to the filter, or wider where a limit says so."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.advertisements import normal as normal_module
from state.advertisements.extents import Extent
from state.advertisements.normal import Normal, Normaliser, Structure, shape
from state.filters.geometry import CONJUNCTIONS_MAX
from state.filters.grammar import parse
from state.space.event_type import Attribute, EventType
from state.space.ranks import rank
from tests.advertisements.witnesses import NAMES, TYPE, VALUES, Bools, Grid, filters, leaves

GRID = Grid()
NORMAL = Normaliser(TYPE)


def holds(extent: Extent, dimension: int, value: object) -> bool:
    """Whether a value is in an extent, looked up span by span."""
    if value is None:
        return extent.absent
    attribute = TYPE.attributes[dimension]
    key = value if attribute.kind == "text" else rank(attribute, value)
    inside = any(low <= key < high for low, high in extent.spans)
    fits = all(like.matches(key) for like in extent.likes) and not any(like.matches(key) for like in extent.unlikes)
    return inside and fits


def truth(found: Normal) -> Bools:
    """Which events of the grid satisfy a normal form, evaluated as the tree it is."""
    sizes = tuple(len(VALUES[name]) for name in NAMES)
    columns = iter(
        [
            np.array([holds(leaf.extent, leaf.dimension, v) for v in VALUES[NAMES[leaf.dimension]]]).reshape(
                [len(VALUES[name]) if i == leaf.dimension else 1 for i, name in enumerate(NAMES)]
            )
            for leaf in found.leaves
        ]
    )

    def walk(structure: Structure) -> Bools:
        if structure == 0:
            return np.broadcast_to(next(columns), sizes)
        parts = [walk(child) for child in structure[1:]]
        if structure[0] == "&":
            return np.logical_and.reduce([np.ones(sizes, bool), *parts])
        return np.logical_or.reduce([np.zeros(sizes, bool), *parts])

    return walk(found.shape.structure)


@settings(max_examples=250, deadline=None)
@given(filters(leaves(like=True)))
def test_normal_form_means_the_same(text: str) -> None:
    """Within the limits a normal form holds exactly where the filter does, LIKE included."""
    found = NORMAL(parse(text, TYPE))
    assert np.array_equal(truth(found), GRID.truth(text))
    assert found.never or len(found.shape.conjunctions) <= CONJUNCTIONS_MAX


@settings(max_examples=250, deadline=None)
@given(filters(leaves(like=True)))
def test_no_way_restricts_an_attribute_twice(text: str) -> None:
    """On each way to satisfy a normal form the extents of one attribute lie within each other, the last being least."""
    for conjunction in NORMAL(parse(text, TYPE)).conjunctions():
        for dimension in range(TYPE.d):
            sets = [
                {i for i, v in enumerate(VALUES[NAMES[dimension]]) if holds(leaf.extent, dimension, v)}
                for leaf in conjunction.leaves
                if leaf.dimension == dimension
            ]
            assert all(later <= earlier for earlier, later in pairwise(sets))


def test_filters_that_are_normal_keep_their_predicates() -> None:
    """What the paper's classes look like is taken as written, and the cheap way gives what the long one does."""
    text = "t = 'a' AND (c = 'low' AND n > 1 OR c = 'mid' AND n > 2)"
    found = NORMAL(parse(text, TYPE))
    assert found.shape.structure == ("&", 0, ("|", ("&", 0, 0), ("&", 0, 0)))
    assert found == NORMAL.of_tree(NORMAL.tree(parse(text, TYPE)))


@settings(max_examples=120, deadline=None)
@given(filters())
def test_the_short_way_equals_the_long_one(text: str) -> None:
    """Filters that need no change are recognised by their skeleton; the result means what simplifying gives."""
    tree = parse(text, TYPE)
    short, long = NORMAL(tree), NORMAL.of_tree(NORMAL.tree(tree))
    assert np.array_equal(truth(short), truth(long))


@pytest.mark.parametrize(
    ("text", "structure", "conjunctions"),
    [
        ("n > 1 AND n < 3", 0, 1),
        ("n = 1 OR n = 2", 0, 1),
        ("n > 2 AND n < 2", ("|",), 0),
        ("n IS NULL OR n IS NOT NULL", ("&",), 1),
        ("TRUE", ("&",), 1),
        ("n = 1 AND (n > 0 OR b = true)", 0, 1),
        ("n = 1 AND (n > 1 OR b = true)", ("&", 0, 0), 1),
        ("(n < 1 OR b = true) AND (n > 1 OR c = 'low')", ("|", ("&", 0, 0), ("&", 0, 0), ("&", 0, 0)), 3),
    ],
)
def test_simplification(text: str, structure: Structure, conjunctions: int) -> None:
    """Leaves on one attribute merge, contradictions and tautologies go, ORs that share an attribute multiply."""
    found = NORMAL(parse(text, TYPE))
    assert found.shape.structure == structure
    assert len(found.shape.conjunctions) == conjunctions
    assert found.never == (conjunctions == 0)


pairs = st.tuples(leaves(), leaves()).map(lambda two: f"({two[0]} OR {two[1]})")


@settings(max_examples=40, deadline=None)
@given(st.lists(pairs, min_size=8, max_size=12))
def test_beyond_the_limit_a_filter_only_widens(parts: list[str]) -> None:
    """An AND of many ORs keeps at most 128 conjunctions, and holds wherever it did."""
    text = " AND ".join(parts)
    found = NORMAL(parse(text, TYPE))
    assert len(found.shape.conjunctions) <= CONJUNCTIONS_MAX
    assert not (GRID.truth(text) & ~truth(found)).any()


def test_widening_keeps_what_it_can() -> None:
    """Of ten ORs that no merging shortens, seven are kept: 2^7 conjunctions; plain leaves are never dropped."""
    many = Normaliser(EventType("wide", tuple(Attribute(f"a{i}", "int") for i in range(21))))
    ors = " AND ".join(f"(a{2 * i} = 1 OR a{2 * i + 1} = 1)" for i in range(10))
    found = many(parse(f"a20 = 1 AND {ors}", many.event_type))
    assert len(found.shape.conjunctions) == 128
    assert found.shape.predicates == 1 + 2 * 7
    flat = many(parse(" OR ".join(f"(a{2 * i} = 1 AND a{2 * i + 1} = 1)" for i in range(10)), many.event_type))
    assert flat.shape.predicates == 20


def test_multiplying_out_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where multiplying out would need too many leaves the ORs stay: wider, never narrower."""
    text = "(n < 1 OR b = true) AND (n > 1 OR c = 'low')"
    monkeypatch.setattr(normal_module, "LEAVES_MAX", 7)
    found = NORMAL(parse(text, TYPE))
    assert found.shape.structure == ("&", ("|", 0, 0), ("|", 0, 0))
    assert np.array_equal(truth(found), GRID.truth(text))


structures = st.recursive(
    st.just(0),
    lambda inner: st.tuples(st.sampled_from("&|"), st.lists(inner, min_size=2, max_size=3)).map(
        lambda node: (node[0], *node[1])
    ),
    max_leaves=7,
)


@settings(max_examples=200, deadline=None)
@given(structures)
def test_shapes_count_what_the_paper_counts(structure: Structure) -> None:
    """|P|, |P_min| and the conjunctions, against all assignments of the leaves."""
    found = shape(structure)
    n = found.predicates
    minterms = [bits for bits in range(2**n) if satisfied(structure, bits)]
    assert found.minimum == min(bits.bit_count() for bits in minterms)
    conjunctions = [sum(1 << i for i in members) for members in found.conjunctions]
    assert len(conjunctions) == ways(structure)
    assert minterms == [bits for bits in range(2**n) if any(bits & c == c for c in conjunctions)]
    assert found.masks == tuple(sum(1 << k for k, c in enumerate(conjunctions) if c >> i & 1) for i in range(n))


def satisfied(structure: Structure, bits: int) -> bool:
    numbers = iter(range(100))

    def walk(node: Structure) -> bool:
        if node == 0:
            return bool(bits >> next(numbers) & 1)
        parts = [walk(child) for child in node[1:]]
        return all(parts) if node[0] == "&" else any(parts)

    return walk(structure)


def ways(structure: Structure) -> int:
    if structure == 0:
        return 1
    counts = [ways(child) for child in structure[1:]]
    return prod(counts) if structure[0] == "&" else sum(counts)
