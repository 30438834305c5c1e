"""Groups that live: members follow the subscriptions, and drift is noticed."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from state.distribution.cell_grid import CellGrid
from state.distribution.clustering import CLUSTERINGS
from state.distribution.groups import CATCH_ALL, Groups
from state.space.boxes import Boxes
from state.space.ranks import PRESENT_MAX

GRID = CellGrid.equal(np.array([0, 0]), np.array([11, 11]), cells=4)


def market(rng, n, n_clients=10, first=0):
    lows = rng.integers(-1, 12, (n, 2))
    highs = np.where(rng.random((n, 2)) < 0.1, PRESENT_MAX, lows + rng.integers(0, 4, (n, 2)))
    return Boxes(lows, highs), first + np.arange(n), rng.integers(0, n_clients, n)


class Living(RuleBasedStateMachine):
    """Subscriptions come and go, publications are observed, groups are formed anew; the members stay exact."""

    @initialize(seed=st.integers(0, 2**32), n=st.integers(1, 5), method=st.sampled_from(sorted(CLUSTERINGS)))
    def begin(self, seed, n, method):
        self.rng, self.method, self.next = np.random.default_rng(seed), method, 30
        boxes, owners, clients = market(self.rng, 30)
        weights = GRID.histogram(self.rng.integers(0, 12, (100, 2)))
        self.groups = Groups.form(GRID, boxes, owners, clients, weights, n, method, cells_kept=10)
        self.live = {int(o): (low, high, int(c)) for o, (low, high), c in zip(owners, boxes, clients, strict=True)}

    @rule(n=st.integers(0, 5), n_clients=st.sampled_from([10, 14]))
    def add(self, n, n_clients):
        boxes, owners, clients = market(self.rng, n, n_clients, self.next)
        self.next += n
        self.groups.add(boxes, owners, clients)
        self.live |= {int(o): (low, high, int(c)) for o, (low, high), c in zip(owners, boxes, clients, strict=True)}

    @rule(n=st.integers(0, 6))
    def remove(self, n):
        owners = self.rng.integers(0, self.next + 3, n)
        self.groups.remove(owners)
        for owner in owners.tolist():
            self.live.pop(owner, None)

    @rule()
    def observe(self):
        self.groups.observe(self.rng.integers(-2, 14, (20, 2)))

    @rule(n=st.integers(1, 5))
    def form_anew(self, n):
        self.groups = self.groups.reformed(n, self.method, cells_kept=10)

    @invariant()
    def everybody_interested_is_a_member_and_nobody_else(self):
        if not hasattr(self, "groups"):
            return
        groups = self.groups
        groups.check()
        points = self.rng.integers(-2, 14, (15, 2))
        members = groups.members()
        for point, group in zip(points, groups.group_of(points), strict=True):
            interested = {c for low, high, c in self.live.values() if (low <= point).all() and (point <= high).all()}
            assert groups.interested(point[None]).tolist() == [len(interested)]
            if group != CATCH_ALL:
                assert interested <= set(np.flatnonzero(members[group]).tolist())
        for group in range(groups.n):
            of_cells = list(GRID.boxes_of(groups.cells[groups.labels == group], 2))
            expected = {
                c
                for low, high, c in self.live.values()
                if any((low <= z).all() and (a <= high).all() for a, z in of_cells)
            }
            assert set(np.flatnonzero(members[group]).tolist()) == expected


TestLiving = Living.TestCase
TestLiving.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


def formed(seed=1, n=3, subscriptions=200):
    rng = np.random.default_rng(seed)
    boxes, owners, clients = market(rng, subscriptions, 40)
    weights = GRID.histogram(rng.integers(0, 6, (1000, 2)))
    return Groups.form(GRID, boxes, owners, clients, weights, n, cells_kept=6), rng


def test_groups_that_nothing_happened_to_have_not_drifted():
    """Neither fresh groups nor ones whose publications go on as before are formed anew."""
    groups, rng = formed()
    assert not groups.drifted()
    groups.observe(rng.integers(0, 6, (5000, 2)))
    assert not groups.drifted()


def test_publications_elsewhere_are_drift():
    """When publications move to cells of no group, the catch-all grows, once enough of them were seen."""
    groups, rng = formed()
    groups.observe(rng.integers(6, 12, (900, 2)))
    assert not groups.drifted(observed_min=1000)
    groups.observe(rng.integers(6, 12, (900, 2)))
    assert groups.catch_all_share() > groups.catch_all_formed + 0.25
    assert groups.drifted(observed_min=1000)
    assert not groups.reformed(3, cells_kept=6, memory=0.0).drifted()


def test_subscriptions_that_mix_the_groups_are_drift():
    """New clients with interest in single cells make others' cells waste more; forming anew wastes less."""
    groups, _ = formed(n=6)
    assert groups.waste() == groups.waste_formed == 0.0
    groups, _ = formed(n=3)
    before = groups.waste()
    # One client each for every kept cell: whatever the groups, the other cells' publications are wasted on them.
    cells = GRID.boxes_of(np.repeat(groups.cells, 20), 2)
    groups.add(cells, 1000 + np.arange(len(cells)), 40 + np.arange(len(cells)))
    assert groups.waste() > 1.25 * before
    assert groups.drifted()
    assert groups.reformed(6, cells_kept=6).waste() < groups.waste()


def test_no_interest_makes_no_groups():
    """Without subscriptions everything is in the catch-all, and groups form as soon as there is interest."""
    none = Groups.form(
        GRID, Boxes.empty(2), *(np.empty(0, np.int64),) * 2, GRID.histogram(np.zeros((1, 2), np.int64)), 3
    )
    none.check()
    points = np.array([[1, 1], [9, 9]])
    assert none.group_of(points).tolist() == [CATCH_ALL, CATCH_ALL]
    assert (none.waste(), none.n, none.drifted()) == (0.0, 0, False)
    none.add(Boxes.everything(2), np.array([0]), np.array([3]))
    none.check()
    none.observe(points)
    later = none.reformed(3)
    later.check()
    assert (later.group_of(points) != CATCH_ALL).all()
    assert later.members()[:, 3].all()


def test_expected_waste_is_waste_per_publication_of_the_group():
    """p(G) EW(G) added up over the groups is the waste."""
    groups, _ = formed()
    share = np.bincount(groups.labels, weights=groups.weights[groups.cells], minlength=groups.n)
    assert np.isclose((share * groups.expected_waste()).sum(), groups.waste())
