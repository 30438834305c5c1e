"""The stock market has the shapes and shares that the paper gives, and the same ones for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.workloads.stock import (
    MODES,
    STOCK,
    Network,
    event,
    filter_text,
    mass,
    network,
    publications,
    subscriptions,
)
from state.filters.evaluate import matches
from state.filters.grammar import parse
from state.space.points import ranks
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN

NET = network(7)


def test_the_network_is_a_transit_stub_of_600_nodes():
    """Three blocks, fifteen transit nodes, thirty stubs of twenty nodes on average, all connected."""
    assert len(NET) == 600
    assert sorted(np.unique(NET.block)) == [0, 1, 2]
    assert (NET.stub < 0).sum() == 15
    sizes = np.bincount(NET.stub[NET.stub >= 0])
    assert len(sizes) == 30
    assert 19 <= sizes.mean() <= 20
    assert sizes.min() < sizes.max()
    assert np.isfinite(NET.paths(0).distance).all()


def test_stubs_are_near_and_blocks_are_far():
    """An edge between blocks costs more than the mean within a block, and that more than within a stub."""
    a, b = NET.edges.T
    between = NET.costs[NET.block[a] != NET.block[b]]
    transit = NET.costs[(NET.stub[a] < 0) & (NET.stub[b] < 0) & (NET.block[a] == NET.block[b])]
    inside = NET.costs[(NET.stub[a] >= 0) & (NET.stub[a] == NET.stub[b])]
    assert len(between) == 3
    assert between.mean() > transit.mean() > inside.mean() > 0


def bellman_ford(net: Network, source: int) -> list[float]:
    distance = [float("inf")] * len(net)
    distance[source] = 0.0
    for _ in range(len(net)):
        before = list(distance)
        for (a, b), cost in zip(net.edges.tolist(), net.costs.tolist(), strict=True):
            distance[a] = min(distance[a], distance[b] + cost)
            distance[b] = min(distance[b], distance[a] + cost)
        if distance == before:
            break
    return distance


def test_paths_are_shortest():
    """Distances are those of another algorithm, and each is its parent's plus an edge."""
    paths = NET.paths(17)
    assert paths.distance.tolist() == pytest.approx(bellman_ford(NET, 17))
    cost = {(int(a), int(b)): c for (a, b), c in zip(NET.edges, NET.costs, strict=True)}
    for node in paths.order[1:].tolist():
        parent = int(paths.parent[node])
        edge = cost.get((parent, node), cost.get((node, parent)))
        assert paths.distance[node] == pytest.approx(paths.distance[parent] + edge)


def test_multicast_costs_the_union_of_the_ways():
    """One message along the tree crosses every edge on the way to some wanted node once, unicasts each time."""
    paths = NET.paths(3)
    wanted = np.random.default_rng(1).random((5, 600)) < 0.02
    wanted[4] = False
    for row, total, single in zip(wanted, paths.multicast(wanted), paths.unicast(wanted), strict=True):
        crossed = set()
        for node in np.flatnonzero(row).tolist():
            while node != 3:
                crossed.add((node, int(paths.parent[node])))
                node = int(paths.parent[node])
        assert total == pytest.approx(sum(paths.distance[a] - paths.distance[b] for a, b in crossed))
        assert single == pytest.approx(paths.distance[row].sum())
    assert (paths.multicast(wanted) <= paths.unicast(wanted) + 1e-9).all()


def test_subscriptions_have_the_shares_of_the_paper():
    """40, 30 and 30 % by block; B, S, T with 0.4, 0.4, 0.2; intervals of price and volume by q0, q1, q2."""
    some = subscriptions(NET, 20_000, seed=1)
    some.boxes.check()
    assert (NET.stub[some.nodes] >= 0).all()
    assert np.bincount(NET.block[some.nodes]).tolist() == [8000, 6000, 6000]
    lows, highs = some.boxes.lows, some.boxes.highs
    assert np.bincount(lows[:, 0]) / 20_000 == pytest.approx([0.4, 0.4, 0.2], abs=0.02)
    for j, q0 in ((2, 0.15), (3, 0.35)):
        free = (lows[:, j] == ABSENT) & (highs[:, j] == PRESENT_MAX)
        above = (lows[:, j] > PRESENT_MIN) & (highs[:, j] == PRESENT_MAX)
        below = lows[:, j] == PRESENT_MIN
        assert [free.mean(), above.mean(), below.mean()] == pytest.approx([q0, 0.1, 0.1], abs=0.01)
        rest = ~(free | above | below)
        length = (highs[rest, j] - lows[rest, j]) / 100
        assert length.min() >= 4 - 0.02
        assert (length > 8).mean() == pytest.approx(0.5, abs=0.02)
    centre = (lows[:, 1] + highs[:, 1]) / 200
    for block, mean in enumerate((3, 10, 17)):
        assert centre[NET.block[some.nodes] == block].mean() == pytest.approx(mean, abs=0.2)


def test_subscriptions_crowd_in_few_stubs():
    """Zipf over the stubs of a block: the first of about ten has over a quarter of the block's subscriptions."""
    some = subscriptions(NET, 10_000, seed=2)
    for block in range(3):
        counts = np.bincount(NET.stub[some.nodes][NET.block[some.nodes] == block])
        assert counts.max() / counts.sum() > 0.25


@pytest.mark.parametrize("modes", [1, 4, 9])
def test_publications_follow_their_mixture(modes):
    """Means and variances are those of the mixtures, and the mass of a box is its share of the publications."""
    points = publications(40_000, modes, seed=3)
    for j in (1, 2, 3):
        share, mean, deviation = np.array(MODES[modes][j]).T
        expected = (share * mean).sum()
        variance = (share * (deviation**2 + mean**2)).sum() - expected**2
        assert points[:, j].mean() / 100 == pytest.approx(expected, abs=0.15)
        assert points[:, j].var() / 100**2 == pytest.approx(variance, rel=0.05)
    assert set(np.unique(points[:, 0])) == {0, 1, 2}
    lows = np.array([[0, 200, 300, ABSENT], [1, ABSENT, ABSENT, ABSENT], [0, 0, 0, 0]])
    highs = np.array([[1, 1200, 1000, PRESENT_MAX], [1, PRESENT_MAX, PRESENT_MAX, PRESENT_MAX], [2, 999, 999, 999]])
    inside = ((points[:, None] >= lows) & (points[:, None] <= highs)).all(axis=2).mean(axis=0)
    assert mass(lows, highs, modes) == pytest.approx(inside, abs=0.01)


def test_the_whole_space_has_mass_one():
    """Every publication is somewhere."""
    everything = np.full((1, 4), ABSENT), np.full((1, 4), PRESENT_MAX)
    assert mass(*everything, 9) == pytest.approx([1.0])


def test_the_same_seed_gives_the_same_market():
    """Network, subscriptions and publications are functions of their seeds."""
    again = network(7)
    assert np.array_equal(again.edges, NET.edges)
    assert np.array_equal(again.costs, NET.costs)
    assert subscriptions(again, 50, 1).boxes == subscriptions(NET, 50, 1).boxes
    assert np.array_equal(publications(50, 4, 1), publications(50, 4, 1))
    assert not np.array_equal(network(8).costs[:9], NET.costs[:9])


def test_filters_and_events_mean_the_boxes_and_points():
    """The text of a subscription holds for the attributes of a publication where the box holds its ranks."""
    some, points = subscriptions(NET, 60, seed=4), publications(40, 1, seed=4)
    matched = 0
    for point in points:
        assert np.array_equal(ranks(STOCK, event(point)), point)
        for low, high in some.boxes:
            expected = bool(((low <= point) & (point <= high)).all())
            assert matches(parse(filter_text(low, high), STOCK), event(point), STOCK) == expected
            matched += expected
    assert matched > 10
