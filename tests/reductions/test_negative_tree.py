"""The tree of negative boxes against a set of points: [NEG08] figures 2 to 6 and 8."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import HilcastError
from state.reductions import negative_tree
from state.reductions.negative_tree import (
    BENEFIT,
    BENEFIT_COST,
    COST,
    NegativeTree,
    merged_boxes,
    volume,
)
from state.space.boxes import Boxes
from state.space.ranks import ABSENT, PRESENT_MAX

SIDE = 4
Box = tuple[tuple[int, ...], tuple[int, ...]]
Points = set[tuple[int, ...]]


@pytest.fixture(autouse=True, scope="module")
def rebalance_often() -> Iterator[None]:
    """Build the tree anew after a few cuts, so that small histories do it too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("state.reductions.negative_tree.REBALANCE_MIN", 2)
        yield


def box_strategy(d: int) -> st.SearchStrategy[Box]:
    side = st.tuples(st.integers(0, SIDE), st.integers(0, SIDE)).map(sorted)
    return st.tuples(*([side] * d)).map(lambda s: (tuple(a for a, _ in s), tuple(b for _, b in s)))


def history(most: int) -> st.SearchStrategy[tuple[int, list[Box]]]:
    return st.integers(1, 4).flatmap(
        lambda d: st.tuples(st.just(d), st.lists(box_strategy(d), min_size=1, max_size=most))
    )


def points(box: Box) -> Points:
    return set(itertools.product(*(range(a, b + 1) for a, b in zip(*box, strict=True))))


def points_of(boxes: Boxes) -> Points:
    """The points of disjoint boxes; fails where two of them share one."""
    held: Points = set()
    for low, high in zip(boxes.lows.tolist(), boxes.highs.tolist(), strict=True):
        more = points((tuple(low), tuple(high)))
        assert not more & held, "two boxes share a point"
        held |= more
    return held


def cube(d: int) -> NegativeTree:
    return NegativeTree(Boxes.of([([0] * d, [SIDE] * d)]))


def ends(box: Box) -> tuple[np.ndarray, np.ndarray]:
    return np.array(box[0]), np.array(box[1])


def all_points(d: int) -> Points:
    return points(((0,) * d, (SIDE,) * d))


@settings(max_examples=150, deadline=None)
@given(history(12), st.booleans())
def test_what_is_left_is_what_no_box_covers(drawn: tuple[int, list[Box]], largest_first: bool) -> None:
    """After any subtractions, in either order of cuts, the leaves are the uncovered points, disjoint."""
    d, boxes = drawn
    tree = NegativeTree(Boxes.of([([0] * d, [SIDE] * d)]), largest_first)
    left = all_points(d)
    for box in boxes:
        low, high = ends(box)
        assert tree.covered(low, high) == (not points(box) & left)
        hits, before = len(tree.meeting(low, high)), len(tree)
        assert tree.subtract(low, high)
        assert len(tree) - before <= hits * (2 * d - 1), "proposition 2"
        left -= points(box)
        tree.check()
        assert points_of(tree.boxes()) == left
        assert tree.volume() == len(left)


@settings(max_examples=100, deadline=None)
@given(history(10), st.data())
def test_questions(drawn: tuple[int, list[Box]], data: st.DataObject) -> None:
    """`meeting` is the negative part of a box, the first uncovered point first; `covered`: there is none."""
    d, boxes = drawn
    tree, left = cube(d), all_points(d)
    for box in boxes:
        tree.subtract(*ends(box))
        left -= points(box)
    asked = data.draw(st.lists(box_strategy(d), max_size=3))
    for box in asked:
        met, uncovered = tree.meeting(*ends(box)), points(box) & left
        assert points_of(met) == uncovered
        assert tree.covered(*ends(box)) == (not uncovered)
        assert not uncovered or tuple(met.lows[0].tolist()) == min(uncovered)


@settings(max_examples=100, deadline=None)
@given(history(12), st.integers(0, 12))
def test_the_budget_holds_and_refuses_whole(drawn: tuple[int, list[Box]], budget: int) -> None:
    """A cut that would exceed the budget changes nothing; a cut that shrinks the tree is always made."""
    d, boxes = drawn
    tree = cube(d)
    for box in boxes:
        before, free = tree.boxes(), cube(d)
        free._build_from(np.hstack([before.lows, before.highs]))
        free.subtract(*ends(box))
        if tree.subtract(*ends(box), budget):
            assert tree.boxes() == free.boxes()
            assert len(tree) <= max(budget, len(before))
        else:
            assert tree.boxes() == before
            assert len(free) > max(budget, len(before))


def plain_best(boxes: Boxes, box: Box, limit: int, choice: int) -> list[Box]:
    """Figure 8 as corrected, step by step on plain Python: the parts taken out."""
    low, high = box
    free, candidates = [], []
    for a, b in zip(boxes.lows.tolist(), boxes.highs.tolist(), strict=True):
        part = (tuple(map(max, a, low)), tuple(map(min, b, high)))
        if any(x > y for x, y in zip(*part, strict=True)):
            continue
        cost = sum(x < y for x, y in zip(a, low, strict=True)) - 1
        cost += sum(x > y for x, y in zip(b, high, strict=True))
        if cost <= 0:
            free.append(part)
        else:
            benefit = len(points(part))
            metric = {BENEFIT_COST: benefit / cost, BENEFIT: benefit, COST: 1 / cost}[choice]
            candidates.append((-metric, a, cost, part))
    taken, new = free, 0
    for _, _, cost, part in sorted(candidates):
        if new + cost <= limit:
            new += cost
            taken.append(part)
    return sorted(taken)


@settings(max_examples=150, deadline=None)
@given(history(10), st.integers(0, 8), st.sampled_from([BENEFIT_COST, BENEFIT, COST]))
def test_the_best_cuts_are_those_of_figure_8(drawn: tuple[int, list[Box]], limit: int, choice: int) -> None:
    """Free trims, then by the metric, never more than `limit` boxes more; what is taken out is returned."""
    d, boxes = drawn
    tree = cube(d)
    for box in boxes:
        before, points_before = len(tree), points_of(tree.boxes())
        expected = plain_best(tree.boxes(), box, limit, choice)
        taken, spent = tree.subtract_best(*ends(box), limit, choice)
        rows = zip(map(tuple, taken.lows.tolist()), map(tuple, taken.highs.tolist()), strict=True)
        assert sorted(rows) == expected
        assert points_of(tree.boxes()) == points_before - points_of(taken)
        assert len(tree) <= before + spent <= before + limit
        tree.check()


@settings(max_examples=100, deadline=None)
@given(history(14), st.data())
def test_space_given_back_is_negative_again(drawn: tuple[int, list[Box]], data: st.DataObject) -> None:
    """Adding disjoint boxes to the tree, few or many, makes exactly them negative."""
    d, boxes = drawn
    tree, left = cube(d), all_points(d)
    for box in boxes:
        low, high = ends(box)
        if data.draw(st.booleans()):
            tree.subtract(low, high)
            left -= points(box)
        else:
            hole = NegativeTree(Boxes.of([(list(box[0]), list(box[1]))]))
            for a, b in tree.boxes():
                hole.subtract(a, b)
            tree.add(hole.boxes())
            left |= points(box)
        tree.check()
        assert points_of(tree.boxes()) == left


@settings(max_examples=100, deadline=None)
@given(history(12), st.integers(0, 9))
def test_merging_keeps_the_space(drawn: tuple[int, list[Box]], sweeps: int) -> None:
    """Merging joins boxes, never changes the points; run to its end, no two boxes could still be joined."""
    d, boxes = drawn
    tree = NegativeTree(Boxes.of([([0] * d, [SIDE] * d)]), largest_first=False)
    for box in boxes:
        tree.subtract(*ends(box))
    left, count = points_of(tree.boxes()), len(tree)
    before, after = tree.merge(sweeps)
    assert (before, after) == (count, len(tree))
    assert after <= before
    assert points_of(tree.boxes()) == left
    tree.check()
    tree.merge(1000)
    rows = list(zip(tree.boxes().lows.tolist(), tree.boxes().highs.tolist(), strict=True))
    for (a, b), (e, f) in itertools.combinations(rows, 2):
        apart = [j for j in range(d) if (a[j], b[j]) != (e[j], f[j])]
        joinable = len(apart) == 1 and (b[apart[0]] + 1 == e[apart[0]] or f[apart[0]] + 1 == a[apart[0]])
        assert not joinable, "two neighbours that form a box were left"


@settings(max_examples=60, deadline=None)
@given(history(12), st.integers(0, 12), st.integers(0, 6))
def test_a_decoded_tree_goes_on_alike(drawn: tuple[int, list[Box]], at: int, limit: int) -> None:
    """Decoding and going on gives the same bytes as going on: nothing depends on the tree's shape."""
    d, boxes = drawn
    tree, other = cube(d), cube(d)
    for i, box in enumerate(boxes):
        if i == at:
            assert NegativeTree.decode(other.encode()).encode() == other.encode()
            other = NegativeTree.decode(other.encode())
        for each in (tree, other):
            if i % 2:
                each.subtract_best(*ends(box), limit)
            else:
                each.subtract(*ends(box))
    assert tree.encode() == other.encode()


RANK = st.one_of(st.integers(ABSENT, ABSENT + 2), st.integers(PRESENT_MAX - 2, PRESENT_MAX), st.integers(-2, 2))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.tuples(RANK, RANK).map(sorted), min_size=2, max_size=2), min_size=1, max_size=6))
def test_the_whole_rank_space(sides: list[list[list[int]]]) -> None:
    """Boxes at both ends of int64 are cut and measured without a wrap: every point is counted once."""
    tree = NegativeTree(Boxes.everything(2))
    taken = 0
    for (x, y), (u, v) in sides:
        low, high = np.array([x, u]), np.array([y, v])
        taken += volume(tree.meeting(low, high))
        tree.subtract(low, high)
        tree.check()
        assert tree.covered(low, high)
        assert tree.volume() + taken == 2**128
        tree.merge(6)
        assert tree.volume() + taken == 2**128
    assert NegativeTree.decode(tree.encode()).boxes() == tree.boxes()


def test_the_best_cut_survives_full_ranks() -> None:
    """The benefit of a box as wide as all ranks is not an overflow: the larger overlap is chosen."""
    tree = NegativeTree(Boxes.everything(2))
    low, high = np.array([0, ABSENT]), np.array([0, PRESENT_MAX])
    assert len(tree.subtract_best(low, high, 1)[0]) == 1
    assert len(tree) == 2
    wide, _ = tree.subtract_best(np.array([-(2**40), 0]), np.array([5, 0]), 2)
    assert wide == Boxes.of([([-(2**40), 0], [-1, 0])])


def test_the_example_of_figures_2_and_5() -> None:
    """Four boxes after s1, seven after s2, and s3 is subsumed by both, covered by neither."""
    tree = NegativeTree(Boxes.of([([0, 0], [1000, 1000])]), largest_first=False)
    s1, s2, s3 = (((175, 180), (510, 680)), ((405, 110), (840, 540)), ((380, 230), (720, 495)))
    counts = []
    for s in (s1, s2):
        assert not tree.covered(*ends(s))
        tree.subtract(*ends(s))
        counts.append(len(tree))
    assert counts == [4, 7]
    assert tree.covered(*ends(s3))
    for s in (s1, s2):
        alone = NegativeTree(Boxes.of([([0, 0], [1000, 1000])]))
        alone.subtract(*ends(s))
        assert not alone.covered(*ends(s3))


def random_boxes(n: int, d: int, side: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    draws = np.random.default_rng(seed).integers(0, side, (n, 2, d))
    return zip(draws.min(axis=1), draws.max(axis=1), strict=True)


def test_many_cuts_grow_and_rebalance() -> None:
    """Hundreds of cuts and gifts in 3-D, through growth and building anew, keep the invariants and volume."""
    side = 40
    tree = NegativeTree(Boxes.of([([0] * 3, [side - 1] * 3)]))
    grid = np.ones((side,) * 3, bool)
    for i, (low, high) in enumerate(random_boxes(400, 3, side, seed=7)):
        high = np.minimum(high, low + 6)
        inside = tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))
        if i % 5 == 4:
            hole = NegativeTree(Boxes(low[None], high[None]))
            for a, b in tree.meeting(low, high):
                hole.subtract(a, b)
            tree.add(hole.boxes())
            grid[inside] = True
        else:
            assert tree.covered(low, high) == (not grid[inside].any())
            tree.subtract(low, high)
            grid[inside] = False
    tree.check()
    assert tree.volume() == grid.sum()
    assert len(tree) > 1000


@pytest.mark.parametrize("blob", [b"", b"\x01", b"\x07\x00abc"])
def test_a_strange_blob_is_refused(blob: bytes) -> None:
    """A blob of another format is refused with its code."""
    with pytest.raises(HilcastError, match="state-format"):
        NegativeTree.decode(blob)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), unique=True), st.integers(0, 1))
@settings(deadline=None)
def test_a_sweep_joins_every_run_also_at_the_ends_of_the_ranks(cells: list[tuple[int, int]], j: int) -> None:
    """Unit cells in a line become one box for each run of neighbours, of the lowest and of the highest ranks."""
    for first in (ABSENT, -2, PRESENT_MAX - 3):
        points = np.array(cells, np.int64).reshape(-1, 2) + first
        joined = negative_tree._joined_along(Boxes(points, points.copy()), j)
        lines: dict[int, list[int]] = {}
        for cell in cells:
            lines.setdefault(cell[1 - j], []).append(cell[j])
        expected = []
        for line, places in lines.items():
            starts = [place for place in places if place - 1 not in places]
            ends = [place for place in places if place + 1 not in places]
            expected += [(line, *run) for run in zip(sorted(starts), sorted(ends), strict=True)]
        found = zip(joined.lows[:, 1 - j] - first, joined.lows[:, j] - first, joined.highs[:, j] - first, strict=True)
        assert sorted(tuple(map(int, run)) for run in found) == sorted(expected)


def test_no_boxes_merge_to_none() -> None:
    """Nothing merges to nothing."""
    assert len(merged_boxes(Boxes.empty(3), 9)) == 0


def test_an_empty_cube_has_nothing_negative():
    """A cube beyond an attribute's few values has no point: nothing of it is negative, packed and unpacked too."""
    beyond = Boxes.of([([0, 1], [9, ABSENT])])
    tree = NegativeTree(beyond)
    assert len(tree) == len(NegativeTree.decode(tree.encode())) == 0
    assert tree.covered(np.array([0, ABSENT]), np.array([9, 5]))
    tree.check()
