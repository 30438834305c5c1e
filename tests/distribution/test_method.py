"""Unicast, group or broadcast: everybody interested is served once, and the costs are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.workloads import stock
from state.distribution.cell_grid import CellGrid
from state.distribution.groups import CATCH_ALL, Groups
from state.distribution.method import (
    FIT_MIN,
    NEVER,
    CostModel,
    choose,
    fit_threshold,
    fitted,
)
from state.matchers.bitmap import BitmapMatcher

CLIENTS = 6


@st.composite
def batches(draw):
    """Interested clients of some events, their groups, and who reads what."""
    events, groups = draw(st.integers(0, 6)), draw(st.integers(1, 3))
    bits = st.lists(st.booleans(), min_size=CLIENTS, max_size=CLIENTS)
    interested = np.array(draw(st.lists(bits, min_size=events, max_size=events)), dtype=bool).reshape(events, CLIENTS)
    members = np.array(draw(st.lists(bits, min_size=groups, max_size=groups)), dtype=bool)
    of_event = np.array(draw(st.lists(st.integers(CATCH_ALL, groups - 1), min_size=events, max_size=events)), np.int64)
    return interested, of_event, members, np.array(draw(bits), dtype=bool)


THRESHOLDS = st.sampled_from([0.0, 0.15, 1 / 3, 0.5, 1.0, NEVER])


def rule(interested, group, members, threshold):
    """The paper's rule for one event: the group, or None for unicasts."""
    if group == CATCH_ALL:
        return None
    inside = [c for c in interested if members[group][c]]
    if not inside or len(inside) / sum(members[group]) < threshold:
        return None
    return group


@given(batch=batches(), threshold=THRESHOLDS, loud=THRESHOLDS)
@settings(max_examples=150, deadline=None)
def test_each_interested_client_is_served_once(batch, threshold, loud):
    """By a message of its own, by its group or by the broadcast, as the rule says; groups and broadcast reach nobody
    but those who read them."""
    interested, groups, members, listeners = batch
    rows, clients = np.nonzero(interested)
    choice = choose(rows, clients, groups, members, threshold, listeners, loud)
    for e in range(len(groups)):
        wanted = np.flatnonzero(interested[e]).tolist()
        hearing = [c for c in wanted if listeners[c]]
        broadcast = bool(hearing) and len(hearing) / sum(listeners) >= loud
        group = None if broadcast else rule(wanted, groups[e], members.tolist(), threshold)
        assert choice.broadcast[e] == broadcast
        assert choice.group[e] == (CATCH_ALL if group is None else group)
        alone = choice.unicast_clients[choice.unicast_rows == e].tolist()
        reached = np.flatnonzero(members[group]).tolist() if group is not None else []
        heard = np.flatnonzero(listeners).tolist() if broadcast else []
        served = sorted(alone + [c for c in wanted if c in reached or c in heard])
        assert served == wanted


def test_thresholds_at_their_ends():
    """t = 0 sends all that interests a member to its group; NEVER sends nothing there; share = t is enough."""
    members = np.ones((1, 100), dtype=bool)
    interested = np.zeros((1, 100), dtype=bool)
    interested[0, :7] = True
    group = np.array([0])

    def choose_dense(interested, group, members, threshold):
        return choose(*np.nonzero(interested), group, members, threshold)

    assert choose_dense(interested, group, members, 0.0).group.tolist() == [0]
    assert choose_dense(interested, group, members, 0.07).group.tolist() == [0]
    assert choose_dense(interested, group, members, 0.0701).group.tolist() == [CATCH_ALL]
    assert choose_dense(interested, group, members, NEVER).group.tolist() == [CATCH_ALL]
    assert choose_dense(~members, group, members, 0.0).group.tolist() == [CATCH_ALL]


@given(size=st.integers(1, 60), write=st.sampled_from([1.0, 3.0]), discard=st.sampled_from([0.0, 0.15, 1.0]))
@settings(max_examples=60, deadline=None)
def test_the_model_s_threshold_is_where_costs_meet(size, write, discard):
    """From its t on a message to the group costs no more than unicasts, below it more."""
    t = CostModel(write, discard).threshold(size)
    for interested in range(1, size + 1):
        cheaper = write + discard * (size - interested) <= write * interested + 1e-9
        if abs(interested / size - t) > 1e-9:
            assert cheaper == (interested / size > t)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_the_fitted_threshold_is_the_best_of_all(events):
    """No t has a lower total than the fitted one, and its total is as said."""
    shares = np.array([s / 5 for s, _, _ in events])
    below, above = (np.array([float(e[k]) for e in events]) for k in (1, 2))
    t, cost = fit_threshold(shares, below, above)
    totals = {x: np.where(shares < x, below, above).sum() for x in [0.0, *shares.tolist(), NEVER]}
    assert totals[t] == cost == min(totals.values())


@given(seed=st.integers(0, 2**32), n=st.integers(0, 450), present=THRESHOLDS)
@settings(max_examples=60, deadline=None)
def test_a_threshold_is_taken_only_if_it_is_better_on_other_events(seed, n, present):
    """With few events the present t stays; with some the best of them is taken; with many it is fitted to half of
    them and must save on the other half.
    """
    rng = np.random.default_rng(seed)
    members = rng.integers(0, 40, n)
    interested = np.minimum(rng.integers(0, 41, n), members)
    model = CostModel(1.0, 0.3)
    t = fitted(interested, members, present, model)

    def cost(threshold, use):
        each = [(s, m) for s, m in zip(interested.tolist(), members.tolist(), strict=True) if s and m][use]
        return sum(s if s / m < threshold else 1 + 0.3 * (m - s) for s, m in each)

    useful = int(((interested > 0) & (members > 0)).sum())
    candidates = [0.0, *(interested[members > 0] / members[members > 0]).tolist(), NEVER]
    if useful < FIT_MIN:
        assert t == present
    elif useful < 2 * FIT_MIN:
        assert cost(t, slice(None)) == pytest.approx(min(cost(c, slice(None)) for c in candidates))
    else:
        best = min(cost(c, slice(0, None, 2)) for c in candidates)
        if t == present:
            tried = [c for c in candidates if cost(c, slice(0, None, 2)) == pytest.approx(best)]
            assert any(cost(c, slice(1, None, 2)) >= 0.99 * cost(present, slice(1, None, 2)) for c in tried)
        else:
            assert cost(t, slice(0, None, 2)) == pytest.approx(best)
            assert cost(t, slice(1, None, 2)) < 0.99 * cost(present, slice(1, None, 2))
    assert t == fitted(interested, members, present, model), "the same again"


def test_on_the_stock_market_everybody_interested_receives():
    """Matcher, groups and rule together: each client receives exactly its matches, unicasts and groups filtered."""
    net = stock.network(1)
    subs = stock.subscriptions(net, 400, seed=1)
    points = stock.publications(500, 4, seed=2)
    grid = CellGrid.equal(np.zeros(4, np.int64), np.array([2, 2000, 2000, 2000]), 4)
    groups = Groups.form(grid, subs.boxes, np.arange(400), subs.nodes, grid.histogram(points), 11)
    rows, nodes = BitmapMatcher(subs.boxes, subs.nodes).match(points)
    interested = np.zeros((len(points), len(net)), dtype=bool)
    interested[rows, nodes] = True
    members = np.pad(groups.members(), ((0, 0), (0, len(net) - groups.members().shape[1])))
    choice = choose(*np.nonzero(interested), groups.group_of(points), members, 0.15)
    assert (choice.group != CATCH_ALL).sum() > 50
    assert len(choice.unicast_rows) > 50
    received = np.zeros_like(interested)
    received[choice.unicast_rows, choice.unicast_clients] = True
    for e in np.flatnonzero(choice.group != CATCH_ALL):
        reads = members[choice.group[e]]
        # A client's library keeps of the group topic what its own subscriptions match.
        own = ((subs.boxes.lows <= points[e]) & (points[e] <= subs.boxes.highs)).all(axis=1)
        keeps = np.isin(np.arange(len(net)), subs.nodes[own])
        received[e] |= reads & keeps
    naive = np.zeros_like(interested)
    for i, (low, high) in enumerate(subs.boxes):
        naive[((low <= points) & (points <= high)).all(axis=1), subs.nodes[i]] = True
    assert np.array_equal(received, naive)
