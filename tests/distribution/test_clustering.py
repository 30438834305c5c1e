"""Clusterings against references that are written with sets, from the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.distribution.clustering import (
    CLUSTERINGS,
    _seeded,
    expected_waste,
    forgy,
    k_means,
    pairwise,
    spanning_tree,
    unions,
    waste,
)


@st.composite
def cells(draw, most=14):
    """Whole weights, so that sums are exact and ties are ties; and sets of clients."""
    t = draw(st.integers(1, most))
    weights = draw(st.lists(st.integers(0, 4), min_size=t, max_size=t))
    sets = draw(st.lists(st.frozensets(st.integers(0, 5)), min_size=t, max_size=t))
    interested = np.array([[client in s for client in range(6)] for s in sets], dtype=bool)
    return np.array(weights, np.float64), interested, sets


def distance(p, one, q, other):
    """Increase of the waste by uniting two groups of weights p, q and these clients."""
    return p * len(other - one) + q * len(one - other)


def naive_waste(weights, sets, labels):
    total = 0.0
    for group in set(labels):
        inside = [i for i, label in enumerate(labels) if label == group]
        union = frozenset().union(*(sets[i] for i in inside))
        total += sum(weights[i] * len(union - sets[i]) for i in inside)
    return total


def test_the_paper_s_formula_as_corrected():
    """Two cells, 0.2 for {1, 2} and 0.3 for {2, 3, 4}: the printed formula gives 0.6, the true value is 1.4."""
    interested = np.array([[1, 1, 0, 0], [0, 1, 1, 1]], dtype=bool)
    value = expected_waste(np.array([0.2, 0.3]), interested, np.array([0, 0]), 1)
    assert value.tolist() == pytest.approx([1.4])


@given(some=cells())
@settings(max_examples=60, deadline=None)
def test_the_corrected_recursion_gives_the_sums(some):
    """EW_new = (p(G) [EW_old + |l(g) - l(G)|] + p(g) |l(G) - l(g)|) / (p(G) + p(g)), cell after cell."""
    weights, interested, sets = some
    weights = weights + 1
    share, clients, value = weights[0], sets[0], 0.0
    for p, new in zip(weights[1:], sets[1:], strict=True):
        value = (share * (value + len(new - clients)) + p * len(clients - new)) / (share + p)
        share, clients = share + p, clients | new
    labels = np.zeros(len(weights), np.int64)
    assert expected_waste(weights, interested, labels, 1)[0] == pytest.approx(value)


@given(some=cells(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_waste_is_the_sum_over_cells_of_clients_that_do_not_care(some, data):
    """The waste of any labelling equals that of comparing sets."""
    weights, interested, sets = some
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(sets), max_size=len(sets))))
    assert waste(weights, interested, labels, 3) == naive_waste(weights, sets, labels.tolist())


@pytest.mark.parametrize("name", CLUSTERINGS)
@given(some=cells(), n=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_every_clustering_makes_as_many_groups_as_it_may(name, some, n):
    """n groups, or as many as there are cells, none of them empty; the same input gives the same labels."""
    weights, interested, sets = some
    labels = CLUSTERINGS[name](weights, interested, n)
    assert set(labels.tolist()) == set(range(min(n, len(sets))))
    assert np.array_equal(labels, CLUSTERINGS[name](weights, interested, n))


@given(some=cells(), n=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_pairwise_unites_the_nearest_groups(some, n):
    """As the paper's A.3: the closest pair becomes one, with new distances, until n are left."""
    weights, interested, sets = some
    groups = {i: ({i}, weights[i], sets[i]) for i in range(len(sets))}
    while len(groups) > n:
        keys = sorted(groups)
        one, other = min(
            ((a, b) for a in keys for b in keys if a < b),
            key=lambda ab: distance(*groups[ab[0]][1:], *groups[ab[1]][1:]),
        )
        merged = groups.pop(other)
        groups[one] = (groups[one][0] | merged[0], groups[one][1] + merged[1], groups[one][2] | merged[2])
    labels = pairwise(weights, interested, n).tolist()
    assert [{i for i, label in enumerate(labels) if label == k} for k in range(len(groups))] == [
        groups[key][0] for key in sorted(groups)
    ]


@given(some=cells(), n=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_spanning_tree_connects_the_nearest_cells(some, n):
    """Edges in order of the distances between single cells, until n components are left."""
    weights, interested, sets = some
    component = list(range(len(sets)))
    edges = sorted(
        ((a, b) for a in range(len(sets)) for b in range(a + 1, len(sets))),
        key=lambda ab: distance(weights[ab[0]], sets[ab[0]], weights[ab[1]], sets[ab[1]]),
    )
    for a, b in edges:
        if len(set(component)) <= n:
            break
        low, high = sorted((component[a], component[b]))
        component = [low if c == high else c for c in component]
    labels = spanning_tree(weights, interested, n).tolist()
    assert labels == [sorted(set(component)).index(c) for c in component]


def one_pass(weights, sets, labels, n, at_once):
    """Step 2 of A.2 with sets; groups renewed after the pass (Forgy) or after each cell."""
    before, labels = list(labels), list(labels)
    for cell in range(len(sets)):
        if labels.count(labels[cell]) == 1:
            continue
        base = before if at_once else labels
        far = []
        for group in range(n):
            others = [i for i, label in enumerate(base) if label == group and i != cell]
            union = frozenset().union(*(sets[i] for i in others))
            far.append(distance(sum(weights[i] for i in others), union, weights[cell], sets[cell]))
        if min(far) < far[labels[cell]]:
            labels[cell] = far.index(min(far))
    return labels


@pytest.mark.parametrize("at_once", [True, False], ids=["forgy", "k-means"])
@given(some=cells(), n=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_k_means_follows_the_paper_s_steps(at_once, some, n):
    """Seeds, assignment and passes as in A.2; of what is passed through, the least waste is returned."""
    weights, interested, sets = some
    n = min(n, len(sets))
    labels = list(range(n))
    for cell in range(n, len(sets)):
        far = []
        for group in range(n):
            inside = [i for i, label in enumerate(labels) if label == group]
            union = frozenset().union(*(sets[i] for i in inside))
            far.append(distance(sum(weights[i] for i in inside), union, weights[cell], sets[cell]))
        labels.append(far.index(min(far)))
    assert _seeded(weights, interested, n).tolist() == labels
    passed = [labels]
    for _ in range(100):
        labels = one_pass(weights, sets, labels, n, at_once)
        if labels in passed:
            break
        passed.append(labels)
    expected = min(passed, key=lambda some: naive_waste(weights, sets, some))
    assert (forgy if at_once else k_means)(weights, interested, n).tolist() == expected


@given(some=cells(), n=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_k_means_never_makes_the_seeding_worse(some, n):
    """Both kinds of k-means end with at most the waste that they began with."""
    weights, interested, _ = some
    n = min(n, len(weights))
    began = waste(weights, interested, _seeded(weights, interested, n), n)
    for method in (forgy, k_means):
        assert waste(weights, interested, method(weights, interested, n), n) <= began


def test_cells_of_equal_interest_cost_nothing():
    """Where there are no more kinds of cells than groups, uniting the nearest wastes nothing."""
    rng = np.random.default_rng(1)
    kinds = rng.random((4, 30)) < 0.3
    interested = kinds[rng.integers(0, 4, 50)]
    weights = rng.random(50)
    for method in (pairwise, spanning_tree):
        assert waste(weights, interested, method(weights, interested, 4), 4) == 0.0


def test_unions_are_the_clients_of_any_cell():
    """l(G) is the union of l(g)."""
    interested = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=bool)
    assert unions(interested, np.array([0, 1, 0]), 2).tolist() == [[True, False, True], [False, True, False]]
