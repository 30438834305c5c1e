"""The baseline of figure 5b: a superset whose excess is what was allowed, and nothing that outlives its members."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.reductions.rectangle_merging import RectangleMerging, added_space
from state.reductions.reduction import Fate, Reduction, add, remove
from state.space.boxes import Boxes
from tests.reductions.contract import BoxSpace, Contract, machine

SPACE = BoxSpace((0, 0), (4, 4), boxes_max=2)
CUBE = Boxes.of([([0, 0], [4, 4])])


def contract(budget, guarantee) -> Contract:
    parameters = {"budget": budget}
    return Contract(
        make=lambda: RectangleMerging(CUBE, parameters),
        decode=lambda blob: RectangleMerging.decode(blob, CUBE, parameters),
        space=SPACE,
        guarantee=guarantee,
        whole=False,
    )


class AtOnce(RectangleMerging):
    """Merging that takes however few boxes in together."""

    many = 1


AT_ONCE = Contract(
    make=lambda: AtOnce(CUBE),
    decode=lambda blob: AtOnce.decode(blob, CUBE),
    space=SPACE,
    guarantee="exact",
    whole=False,
)
CONTRACT = contract(0.5, "superset")
PERFECT = contract(0, "exact")
TestMerging = machine(CONTRACT).TestCase
TestPerfectMerging = machine(PERFECT).TestCase
TestMergingAtOnce = machine(AT_ONCE).TestCase


@pytest.mark.parametrize("last", [3, 12, 60])
def test_many_at_once_are_merged_as_one_by_one(last: int) -> None:
    """Equal deltas, in the same order, equal bytes and counts, whether a step is one pass or box by box."""
    random, domain = Random(last), Boxes.of([([0, 0], [last, last])])
    at_once, one_by_one = RectangleMerging(domain), RectangleMerging(domain)
    at_once.many, one_by_one.many = 1, 10**9
    live: list[str] = []
    for _ in range(30):
        added = {f"e{random.randrange(300)}": _drawn(random, last) for _ in range(random.choice([1, 40, 150]))}
        removed = random.sample(live, min(len(live), random.choice([0, 5, 40])))
        deltas = [reduction.update(added, removed) for reduction in (at_once, one_by_one)]
        assert list(deltas[0].added.items()) == list(deltas[1].added.items())
        assert deltas[0].removed == deltas[1].removed
        assert at_once.encode() == one_by_one.encode()
        assert at_once.stats() == one_by_one.stats()
        at_once.check()
        live = [id for id in {**dict.fromkeys(live), **added} if id in added or id not in removed]
    groups = [len(group) for group in at_once._groups.values()]
    assert max(groups) > 3, "this shows little"


def _drawn(random: Random, last: int) -> Boxes:
    """An entry of no, one or two boxes, often as wide as others in one dimension, so that they make rectangles."""
    (a, b), (c, d) = (sorted(random.choices(range(last + 1), k=2)) for _ in range(2))
    if random.random() < 0.5:
        c, d = random.choice([(0, last), (0, last // 2), (last // 2 + 1, last)])
    if b < last and random.random() < 0.2:
        return Boxes.of([([a, c], [b, d]), ([b + 1, 0], [last, last // 2])])
    return Boxes.of([([a, c], [b, d])][: random.random() < 0.95], d=2)


boxes_of_one = SPACE.entries().filter(lambda e: len(e) >= 1).map(lambda e: Boxes(e.lows[:1], e.highs[:1]))


@given(boxes_of_one, boxes_of_one)
@settings(deadline=None)
def test_added_space_is_counted(one, other) -> None:
    """The space that a merge adds is that of the bounding rectangle less both, counted in cells."""
    extra, both = added_space(one.lows, one.highs, other.lows[0], other.highs[0])
    held = SPACE.points(one) | SPACE.points(other)
    assert both[0] == len(held)
    assert extra[0] == len(SPACE.points(one.joined(other).bounding())) - len(held)


@given(st.lists(boxes_of_one, min_size=2, max_size=2), st.sampled_from([0.0, 0.3, 1.0]))
@settings(deadline=None)
def test_a_merge_keeps_its_budget(pair, budget) -> None:
    """Two boxes merge if and only if the extra space is within the budget."""
    merging = RectangleMerging(CUBE, {"budget": budget})
    merging.update({"a": pair[0], "b": pair[1]})
    held = SPACE.points(pair[0]) | SPACE.points(pair[1])
    extra = len(SPACE.points(pair[0].joined(pair[1]).bounding())) - len(held)
    assert (len(merging.forwarded()) == 1) == (extra <= budget * len(held))


def test_figure_5b() -> None:
    """Three boxes become their bounding rectangle, which covers cells that nobody asked for."""
    merging = RectangleMerging(CUBE, {"budget": 10})
    for id, low, high in (("a", [0, 0], [1, 1]), ("b", [1, 2], [2, 3]), ("c", [3, 1], [4, 2])):
        add(merging, id, Boxes.of([(low, high)]))
    assert merging.rectangles() == Boxes.of([([0, 0], [4, 3])])
    assert list(merging.forwarded()) == ["a"]


def test_what_is_covered_changes_nothing() -> None:
    """A box inside one rectangle goes there, although it would make an exact rectangle with another one too."""
    merging = RectangleMerging(CUBE, {"budget": 0})
    add(merging, "small", Boxes.of([([0, 0], [1, 1])]))
    add(merging, "tall", Boxes.of([([2, 0], [4, 4])]))
    inner = Boxes.of([([2, 0], [3, 1])])
    assert merging.decide(inner).by == ("tall",)
    assert not add(merging, "inner", inner)


def test_a_withdrawal_leaves_no_trace() -> None:
    """When the box that held a group together goes, the rectangle shrinks to what is left."""
    merging = RectangleMerging(CUBE, {"budget": 0})
    add(merging, "left", Boxes.of([([0, 0], [1, 4])]))
    add(merging, "middle", Boxes.of([([2, 0], [2, 4])]))
    add(merging, "right", Boxes.of([([3, 0], [4, 4])]))
    assert len(merging.forwarded()) == 1
    delta = remove(merging, "middle")
    assert list(delta.added) == ["left", "right"]
    assert merging.rectangles() == Boxes.of([([0, 0], [1, 4]), ([3, 0], [4, 4])])


def test_ids_are_those_of_entries_and_of_their_boxes() -> None:
    """A group goes under the id of its first member; a second box of an entry is told apart by its number."""
    merging = RectangleMerging(CUBE)
    add(merging, "two", Boxes.of([([0, 0], [0, 0]), ([3, 3], [4, 4])]))
    add(merging, "one", Boxes.of([([0, 4], [1, 4])]))
    assert list(merging.forwarded()) == ["two", "two.1", "one"]
    assert merging.fate("two") == Fate("forwarded", ("two", "two.1"))
    assert merging.fate("one") == Fate("forwarded")
    add(merging, "beside", Boxes.of([([2, 3], [2, 4])]))
    assert merging.fate("two") == Fate("merged", ("two", "two.1"))
    assert merging.fate("beside") == Fate("merged", ("two.1",))


@given(boxes_of_one, boxes_of_one, st.sampled_from([2**63 - 5, 2**53, -(2**63)]), st.sampled_from([1, 2**30]))
@settings(deadline=None)
def test_perfect_merging_is_exact_for_any_ranks(one, other, offset, scale) -> None:
    """With a budget of 0 two boxes become one iff nothing is added, also where floats round ranks or volumes."""
    extra = len(SPACE.points(one.joined(other).bounding())) - len(SPACE.points(one) | SPACE.points(other))
    # Five cells of 2^30 would leave int64 at the upper offset.
    offset = min(offset, 2**63 - 5 * scale)
    moved = {
        id: Boxes(box.lows * scale + offset, box.highs * scale + (offset + scale - 1))
        for id, box in (("a", one), ("b", other))
    }
    merging = RectangleMerging(Boxes.everything(2), {"budget": 0})
    merging.update(moved)
    assert (len(merging.forwarded()) == 1) == (extra == 0)


def test_wide_boxes_do_not_overflow() -> None:
    """Boxes over every rank of many dimensions have a volume."""
    merging = RectangleMerging(Boxes.everything(7), {"budget": 0.1})
    assert isinstance(merging, Reduction)
    everything = Boxes.everything(7)
    merging.update({"a": everything, "b": everything, "c": Boxes.of([([0] * 7, [9] * 7)])})
    assert merging.rectangles() == everything
    assert np.isfinite(added_space(everything.lows, everything.highs, everything.lows[0], everything.highs[0])).all()


def test_a_member_leaves_a_large_group_without_a_look_at_the_others(monkeypatch) -> None:
    """While another member is the whole rectangle; when that one leaves, the next that is takes its part."""
    merging = RectangleMerging(Boxes.of([([0], [999])]))
    whole = Boxes.of([([0], [999])])
    merging.update({"whole": whole, "again": whole, **{f"i{i}": Boxes.of([([i], [i + 5])]) for i in range(100)}})
    assert list(merging.forwarded()) == ["whole"]
    looked_at: list[object] = []
    is_whole = RectangleMerging._is_whole
    monkeypatch.setattr(RectangleMerging, "_is_whole", lambda *given: looked_at.append(given) or is_whole(*given))
    for i in range(90):
        assert not merging.update({}, [f"i{i}"])
    assert not looked_at
    delta = merging.update({}, ["whole"])
    assert (list(delta.added), delta.removed) == (["again"], ("whole",))
    assert len(looked_at) == 1, "the next in the group is the one"
    merging.check()
    assert RectangleMerging.decode(merging.encode(), Boxes.of([([0], [999])]))._whole == merging._whole
    merging.update({}, ["again"])
    assert sorted(merging.forwarded()) == sorted(merging._groups)
    merging.check()
