"""Negative space, exact and approximate, against the contract and enumeration: [NEG08] figures 6 to 9."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import HilcastError
from state.reductions import entry_rows, negative_space, negative_tree, row_tree
from state.reductions.negative_space import NegativeSpace
from state.reductions.negative_tree import NegativeTree
from state.reductions.reduction import Reduction, add, remove
from state.space.boxes import Boxes
from state.space.packing import Geometry
from state.space.ranks import ABSENT, PRESENT_MAX
from tests.reductions.contract import BoxSpace, Contract, machine


@pytest.fixture(autouse=True, scope="module")
def small_constants() -> Iterator[None]:
    """Merge and rebalance after a few boxes, so that small histories do it too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("state.reductions.negative_tree.REBALANCE_MIN", 2)
        patch.setattr("state.reductions.negative_tree.MERGE_MIN", 2)
        yield


def contract(space: BoxSpace, complete: bool = False, **parameters: object) -> Contract:
    domain = Boxes.of([(list(space.low), list(space.high))])
    return Contract(
        make=partial(NegativeSpace, domain, parameters),
        decode=partial(NegativeSpace.decode, domain=domain, parameters=parameters),
        space=space,
        guarantee="exact",
        complete=complete,
        examples=25,
        steps=20,
    )


PLANE, SOLID = BoxSpace((0, 0), (4, 4)), BoxSpace((0, 0, -1), (2, 3, 1))
CORNER = BoxSpace((ABSENT, PRESENT_MAX - 3), (ABSENT + 3, PRESENT_MAX))

EXACT = contract(PLANE, complete=True, rebuild=0)
APPROXIMATE = contract(PLANE, mode="approximate", k=2, rebuild=0.5)

TestExact = machine(EXACT).TestCase
TestExactSolid = machine(contract(SOLID, complete=True, merge_budget=0, rebuild=0.5)).TestCase
TestExactAsInThePaper = machine(
    contract(CORNER, complete=True, cuts="in-order", retire=False, merge_budget=0, rebuild=0)
).TestCase
TestExactCapped = machine(contract(PLANE, max_boxes=4)).TestCase
TestApproximate = machine(APPROXIMATE).TestCase
TestApproximateSolid = machine(contract(SOLID, mode="approximate", k=1, choice="cost", retire=False)).TestCase
TestApproximateDynamic = machine(
    contract(CORNER, mode="approximate", k=2, dynamic=True, choice="benefit", max_boxes=9)
).TestCase


class AtOnce(NegativeSpace):
    """Negative space that takes however few entries in together."""

    many = 1


AT_ONCE = Contract(
    make=lambda: AtOnce(Boxes.of([([0, 0], [4, 4])]), {"rebuild": 0.5}),
    decode=lambda blob: AtOnce.decode(blob, Boxes.of([([0, 0], [4, 4])]), {"rebuild": 0.5}),
    space=PLANE,
    guarantee="exact",
    complete=True,
    examples=25,
)
TestExactAtOnce = machine(AT_ONCE).TestCase


@pytest.mark.parametrize("more", [{}, {"max_boxes": 12}, {"retire": False, "merge_budget": 0}, {"rebuild": 0.2}])
@pytest.mark.parametrize("last", [15, 400])
def test_many_at_once_are_cut_out_as_one_by_one(last: int, more: dict[str, object]) -> None:
    """Equal deltas, in the same order, and equal bytes, whether a step is a few passes or entry by entry."""
    random, domain = Random(last), Boxes.of([([0, 0], [last, last])])
    at_once, one_by_one = NegativeSpace(domain, more), NegativeSpace(domain, more)
    at_once.many, one_by_one.many = 1, 10**9
    live: list[str] = []
    ends: dict[str, float] = {}
    for _ in range(12):
        added = {f"e{random.randrange(400)}": _drawn(random, last) for _ in range(random.choice([1, 40, 150]))}
        removed = random.sample(live, min(len(live), random.choice([0, 5, 40])))
        deltas = [reduction.update(added, removed) for reduction in (at_once, one_by_one)]
        assert list(deltas[0].added.items()) == list(deltas[1].added.items())
        assert deltas[0].removed == deltas[1].removed
        assert at_once.encode() == one_by_one.encode()
        at_once.check()
        live = [id for id in {**dict.fromkeys(live), **added} if id in added or id not in removed]
    ends = at_once.stats()
    assert min(ends["covered_together"], ends["forwarded"]) > 3, "this shows little"
    assert ends["retired"] > 0 or "retire" in more, "this shows little of what lies inside others"
    assert ends["uncut_boxes"] > 0 or "max_boxes" not in more, "this shows little of the cap"


def _drawn(random: Random, last: int) -> Boxes:
    """An entry, most often of one box: some lie in others, some in several."""
    (a, b), (c, d) = (sorted((low, min(last, low + random.randrange(last // 4 + 1)))) for low in _corner(random, last))
    if b < last and random.random() < 0.1:
        return Boxes.of([([a, c], [b, d]), ([b + 1, 0], [last, last // 9])])
    return Boxes.of([([a, c], [b, d])][: random.random() < 0.95], d=2)


def _corner(random: Random, last: int) -> list[int]:
    return [random.randrange(last + 1) for _ in range(2)]


def test_it_is_a_reduction() -> None:
    """The class has every method of the interface."""
    assert isinstance(NegativeSpace(Boxes.of([([0], [9])])), Reduction)


# --- decisions against enumeration --------------------------------------------------------------------------

Box = tuple[tuple[int, ...], tuple[int, ...]]
SIDE = 4


def boxes_in(d: int) -> st.SearchStrategy[Box]:
    side = st.tuples(st.integers(0, SIDE), st.integers(0, SIDE)).map(sorted)
    return st.tuples(*([side] * d)).map(lambda s: (tuple(a for a, _ in s), tuple(b for _, b in s)))


HISTORIES = st.integers(1, 3).flatmap(lambda d: st.tuples(st.just(d), st.lists(boxes_in(d), min_size=1, max_size=14)))


def points(box: Box) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(a, b + 1) for a, b in zip(*box, strict=True))))


def as_boxes(box: Box) -> Boxes:
    return Boxes.of([(list(box[0]), list(box[1]))])


def cube(d: int, **parameters: object) -> NegativeSpace:
    return NegativeSpace(Boxes.of([([0] * d, [SIDE] * d)]), parameters)


@settings(max_examples=120, deadline=None)
@given(HISTORIES)
def test_exact_withholds_what_is_covered_and_nothing_else(drawn: tuple[int, list[Box]]) -> None:
    """One by one, an entry is forwarded iff some point of it is in no earlier one."""
    d, boxes = drawn
    space, held = cube(d), set()
    for i, box in enumerate(boxes):
        delta = add(space, str(i), as_boxes(box))
        assert (str(i) in delta.added) == bool(points(box) - held)
        held |= points(box)


@settings(max_examples=120, deadline=None)
@given(HISTORIES, st.integers(1, 4), st.sampled_from(["benefit-cost", "benefit", "cost"]), st.booleans())
def test_approximate_withholds_between_pairs_and_exact(
    drawn: tuple[int, list[Box]], k: int, choice: str, dynamic: bool
) -> None:
    """Approximate never withholds what is not covered, and withholds all that one earlier entry covers."""
    d, boxes = drawn
    space = cube(d, mode="approximate", k=k, choice=choice, dynamic=dynamic)
    held: set[tuple[int, ...]] = set()
    earlier: list[set[tuple[int, ...]]] = []
    for i, box in enumerate(boxes):
        forwarded = str(i) in add(space, str(i), as_boxes(box)).added
        assert forwarded or not points(box) - held
        assert not forwarded or not any(points(box) <= other for other in earlier)
        held |= points(box)
        earlier.append(points(box))
        space.check()


CHANGES = st.integers(1, 3).flatmap(
    lambda d: st.tuples(
        st.just(d),
        st.lists(
            st.tuples(
                st.dictionaries(st.sampled_from("abcdefg"), boxes_in(d), max_size=4),
                st.sets(st.sampled_from("abcdefg"), max_size=3),
            ),
            max_size=10,
        ),
    )
)


@settings(max_examples=120, deadline=None)
@given(CHANGES)
def test_after_any_history_exact_is_as_if_built_from_scratch(
    drawn: tuple[int, list[tuple[dict[str, Box], set[str]]]],
) -> None:
    """Adds and removes leave the negative space of the live entries, as one that never saw another has it."""
    d, changes = drawn
    space, live = cube(d), {}
    for added, removed in changes:
        space.update({id: as_boxes(box) for id, box in added.items()}, sorted(removed - added.keys()))
        live = {id: box for id, box in (live | added).items() if id not in removed or id in added}
        scratch = cube(d)
        scratch.update({id: as_boxes(box) for id, box in live.items()})
        assert enumerated(space.tree) == enumerated(scratch.tree)
        assert enumerated(space.tree) == points(((0,) * d, (SIDE,) * d)).difference(*map(points, live.values()))


def enumerated(tree: NegativeTree) -> set[tuple[int, ...]]:
    boxes = tree.boxes()
    rows = zip(boxes.lows.tolist(), boxes.highs.tolist(), strict=True)
    return set().union(*(points((tuple(low), tuple(high))) for low, high in rows))


# --- what a change costs and sends --------------------------------------------------------------------------


def line(low: int, high: int) -> Boxes:
    return Boxes.of([([low], [high])])


def test_removing_reexamines_only_what_it_touches() -> None:
    """Of ten passive entries, just the two that meet the removed one are looked at again."""
    space = NegativeSpace(line(0, 999))
    space.update({"wide": line(0, 499), "left": line(500, 599), "right": line(600, 899)})
    space.update({f"p{i}": line(600 + 20 * i, 610 + 20 * i) for i in range(8)})
    space.update({"both": line(490, 520), "under": line(510, 550)})
    before = space.stats()["reexamined"]
    delta = remove(space, "left")
    assert space.stats()["reexamined"] - before == 2
    assert (sorted(delta.added), delta.removed) == (["both", "under"], ("left",))


def test_a_promotion_and_the_removal_travel_together() -> None:
    """What a removal uncovers is in the same delta, and nothing else is."""
    space = NegativeSpace(line(0, 99))
    space.update({"a": line(0, 50), "b": line(40, 99)})
    assert not add(space, "c", line(30, 60))
    assert not add(space, "d", line(80, 90))
    delta = remove(space, "b")
    assert (list(delta.added), delta.removed) == (["c", "d"], ("b",))


def test_a_replacement_is_one_step() -> None:
    """Replacing an active entry sends the new boxes under the same id; an equal one sends nothing."""
    space = NegativeSpace(line(0, 99))
    add(space, "a", line(0, 50))
    assert not add(space, "a", line(0, 50))
    delta = add(space, "a", line(10, 60))
    assert (delta.added, delta.removed) == ({"a": line(10, 60)}, ())


def test_a_larger_newcomer_retires_what_it_contains() -> None:
    """An active entry inside a new one is withdrawn in the same step, and comes back when that goes."""
    space = NegativeSpace(line(0, 99))
    space.update({"a": line(10, 20), "b": line(5, 9)})
    delta = add(space, "big", line(0, 50))
    assert (list(delta.added), delta.removed) == (["big"], ("a", "b"))
    delta = remove(space, "big")
    assert (list(delta.added), delta.removed) == (["a", "b"], ("big",))
    assert remove(NegativeSpace(line(0, 9), {"retire": False}), "nobody").removed == ()


def test_several_boxes_are_covered_only_together() -> None:
    """An entry of two boxes is withheld iff both are covered, each in its own way."""
    space = NegativeSpace(line(0, 99))
    space.update({"a": line(0, 10), "b": line(11, 20), "c": line(60, 70)})
    two = Boxes.of([([5], [15]), ([62], [65])])
    assert space.decide(two).covered
    assert sorted(space.decide(two).by) == ["a", "b", "c"]
    assert not space.decide(Boxes.of([([5], [15]), ([62], [75])])).covered
    assert space.decide(Boxes.of([([5], [15]), ([62], [75])])).witness == (71,)


def test_the_largest_goes_first_whatever_the_order() -> None:
    """Within one update the order of the mapping makes no difference, to the deltas or to the bytes."""
    entries = {"a": line(0, 9), "b": line(5, 30), "c": line(0, 40), "d": line(40, 41)}
    first, second = NegativeSpace(line(0, 99)), NegativeSpace(line(0, 99))
    one, other = first.update(entries), second.update(dict(reversed(entries.items())))
    assert sorted(one.added) == sorted(other.added) == ["c", "d"]
    assert first.encode() == second.encode()


# --- the cap ------------------------------------------------------------------------------------------------


def random_entries(n: int, d: int, side: int, seed: int) -> dict[str, Boxes]:
    draws = np.random.default_rng(seed).integers(0, side, (n, 2, d))
    return {str(i): Boxes(a.min(axis=0)[None], a.max(axis=0)[None]) for i, a in enumerate(draws)}


@pytest.mark.parametrize("seed", [1, 3])
def test_by_default_exact_withholds_no_less_than_approximate(seed: int) -> None:
    """One cap for both modes: of wide boxes in 4-D, which are cut most often, it leaves the exact one enough."""
    random = np.random.default_rng(seed)
    lows = random.integers(0, 1000, (800, 4)) << 20
    highs = lows + (random.random((800, 4)) * ((1000 << 20) - lows)).astype(np.int64)
    withheld = {}
    for mode in ("exact", "approximate"):
        space = NegativeSpace(Boxes.of([([0] * 4, [1000 << 20] * 4)]), {"mode": mode})
        for i in range(len(lows)):
            space.update({str(i): Boxes(lows[i : i + 1], highs[i : i + 1])})
        withheld[mode] = space.stats()["withheld"]
    assert withheld["exact"] >= withheld["approximate"] > 0


@pytest.mark.parametrize("mode", ["exact", "approximate"])
def test_the_cap_bounds_the_boxes_and_loses_nothing(mode: str) -> None:
    """In 5-D the boxes stay under the cap through adds and removes, and no live entry loses a point."""
    domain = Boxes.of([([0] * 5, [9] * 5)])
    space = NegativeSpace(domain, {"mode": mode, "max_boxes": 60, "rebuild": 0})
    entries = random_entries(150, 5, 10, seed=3)
    for id, boxes in entries.items():
        add(space, id, boxes)
        assert space.stats()["negative_boxes"] <= 60
    assert space.stats()["uncut_boxes"] > 0
    for id in list(entries)[::3]:
        remove(space, id)
        del entries[id]
        assert mode == "approximate" or space.stats()["negative_boxes"] <= 60
    space.check()
    covered = np.zeros((10,) * 5, bool)
    for boxes in space.forwarded().values():
        covered[box_slice(boxes)] = True
    for id, boxes in entries.items():
        assert covered[box_slice(boxes)].all(), f"{id} lost a point"


def box_slice(boxes: Boxes) -> tuple[slice, ...]:
    return tuple(slice(a, b + 1) for a, b in zip(boxes.lows[0], boxes.highs[0], strict=True))


# --- rebuilding ---------------------------------------------------------------------------------------------


def churned(parameters: Mapping[str, object]) -> tuple[NegativeSpace, int, int]:
    """A long run of adds and withdrawals; also what the updates that rebuilt sent and withdrew."""
    space = NegativeSpace(Boxes.of([([0] * 3, [19] * 3)]), parameters)
    held: dict[str, Geometry] = {}
    entries = random_entries(240, 3, 20, seed=5)
    sent = withdrawn = 0
    for i, (id, boxes) in enumerate(entries.items()):
        gone = [str(i - 60)] if i >= 60 else []
        kept = space.stats()["rebuilds_kept"]
        delta = space.update({id: boxes}, gone)
        held |= delta.added
        held = {k: v for k, v in held.items() if k not in delta.removed}
        if space.stats()["rebuilds_kept"] > kept:
            sent, withdrawn = sent + len(delta.added), withdrawn + len(delta.removed)
    assert held == space.forwarded()
    space.check()
    return space, sent, withdrawn


def test_a_rebuild_travels_in_one_step_and_pays() -> None:
    """Rebuilding withdraws more than it sends, in the delta of one update, and leaves fewer entries."""
    base: dict[str, object] = {"mode": "approximate", "k": 4, "retire": False}
    never, _, _ = churned(base | {"rebuild": 0})
    often, sent, withdrawn = churned(base | {"rebuild": 0.25})
    assert never.stats()["rebuilds"] == 0
    assert 0 < often.stats()["rebuilds_kept"] <= often.stats()["rebuilds"]
    assert withdrawn > sent
    assert often.stats()["forwarded"] < never.stats()["forwarded"]


def test_a_rebuild_that_does_not_pay_sends_nothing() -> None:
    """Where from scratch another set of the same size would be forwarded, the neighbour keeps what it has."""
    space = NegativeSpace(line(0, 99), {"retire": False, "rebuild": 0.1})
    for id, entry in {"a": line(0, 10), "b": line(11, 15), "c": line(4, 15), "d": line(50, 60)}.items():
        add(space, id, entry)
    scratch = NegativeSpace(line(0, 99), {"retire": False})
    scratch.update({"a": line(0, 10), "b": line(11, 15), "c": line(4, 15)})
    assert (sorted(space.forwarded()), sorted(scratch.forwarded())) == (["a", "b", "d"], ["a", "c"])
    delta = remove(space, "d")
    assert (delta.added, delta.removed) == ({}, ("d",))
    assert (space.stats()["rebuilds"], space.stats()["rebuilds_kept"]) == (1, 0)


def test_the_merging_is_counted() -> None:
    """Merging leaves fewer boxes of the same volume, and the boxes it joined are counted."""
    domain, entries = Boxes.of([([0] * 3, [19] * 3)]), random_entries(60, 3, 20, seed=1)
    plain = NegativeSpace(domain, {"merge_budget": 0, "cuts": "in-order"})
    merging = NegativeSpace(domain, {"merge_budget": 2, "cuts": "in-order"})
    for id, boxes in entries.items():
        assert add(plain, id, boxes) == add(merging, id, boxes)
    assert merging.tree.volume() == plain.tree.volume()
    assert len(merging.tree) < len(plain.tree)
    assert plain.stats()["merged"] == 0 < merging.stats()["merged"]


# --- approximate --------------------------------------------------------------------------------------------


def test_at_most_k_boxes_more() -> None:
    """Figure 8 makes at most k boxes more at a time; the dynamic threshold uses what others left."""
    entries = random_entries(150, 3, 50, seed=2)
    domain = Boxes.of([([0] * 3, [49] * 3)])
    fixed = NegativeSpace(domain, {"mode": "approximate", "k": 3, "merge_budget": 0})
    dynamic = NegativeSpace(domain, {"mode": "approximate", "k": 3, "merge_budget": 0, "dynamic": True})
    most = 0
    for i, (id, boxes) in enumerate(entries.items()):
        before = len(fixed.tree), len(dynamic.tree)
        add(fixed, id, boxes)
        add(dynamic, id, boxes)
        assert len(fixed.tree) - before[0] <= 3
        assert len(dynamic.tree) <= max(3 * (i + 1), before[1])
        most = max(most, len(dynamic.tree) - before[1])
    assert most > 3


def test_what_it_gives_back_is_what_it_took() -> None:
    """Without passive entries, cancelling in any order ends with the whole cube negative again (figure 9)."""
    domain = Boxes.of([([0] * 3, [49] * 3)])
    entries = random_entries(40, 3, 50, seed=4)
    space = NegativeSpace(domain, {"mode": "approximate", "k": 2})
    space.update(entries)
    for id in sorted(entries, key=lambda id: int(id) * 7 % 40):
        remove(space, id)
        space.check()
    assert space.tree.volume() == 50**3
    assert space.stats()["entries"] == 0


def test_redundant_forwards_have_no_false_witness() -> None:
    """Where the approximation forwards what is covered, it says so and shows no point as a proof."""
    space = NegativeSpace(Boxes.of([([0, 0], [99, 99])]), {"mode": "approximate", "k": 1, "retire": False})
    space.update({"a": Boxes.of([([10, 10], [40, 60])]), "b": Boxes.of([([41, 10], [80, 60])])})
    decision = space.decide(Boxes.of([([30, 20], [50, 40])]))
    assert not decision.covered
    assert decision.witness is None
    assert "no cover is known" in decision.reason


def test_a_box_that_is_not_cut_out_takes_nothing_over() -> None:
    """Under the cap, an entry that is cut out is not retired into one that is not: its space would stay lost."""
    space = NegativeSpace(Boxes.of([([0, 0], [9, 9])]), {"max_boxes": 4, "rebuild": 0})
    small, wide = Boxes.of([([4, 4], [5, 5])]), Boxes.of([([2, 2], [7, 7])])
    add(space, "small", small)
    delta = add(space, "wide", wide)
    assert (space.stats()["uncut_boxes"], delta.removed) == (1, ())
    remove(space, "wide")
    assert space.forwarded() == {"small": small}


IN_TREE = ("meets_any", "collect", "new_boxes", "cut_leaves", "_choose", "_insert", "_leaves", "_build", "_joined")
KERNELS = [getattr(negative_tree, name) for name in IN_TREE]
KERNELS += [entry_rows._scan, entry_rows._scan_first]
KERNELS += [row_tree.search, row_tree.search_first, row_tree.insert, row_tree.remove, row_tree.build]


def test_arrays_out_of_messages_compile_nothing_anew() -> None:
    """After `warm`, entries in read-only arrays and views find every kernel compiled."""
    negative_space.warm()
    before = [len(kernel.signatures) for kernel in KERNELS]
    assert min(before) > 0
    for mode in ("exact", "approximate"):
        space = NegativeSpace(Boxes.of([([0, 0], [99, 99])]), {"mode": mode})
        for i in range(12):
            low = np.frombuffer(np.array([[i, 3 * i]]).tobytes(), np.int64).reshape(1, 2)
            high = np.asfortranarray(np.array([[i + 20, 3 * i + 30], [0, 0]]))[:1]
            space.decide(Boxes(low, high))
            space.update({str(i): Boxes(low, high)})
            space.tree.meeting(low[0], high[0])
        space.update({}, ["0", "5"])
        NegativeSpace.decode(space.encode(), Boxes.of([([0, 0], [99, 99])]), {"mode": mode}).update({}, ["7"])
    assert [len(kernel.signatures) for kernel in KERNELS] == before


# --- state --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blob", [b"", b"\x09rest"])
def test_a_strange_blob_is_refused(blob: bytes) -> None:
    """State of another format is refused with its code."""
    with pytest.raises(HilcastError, match="state-format"):
        NegativeSpace.decode(blob, line(0, 9), {})


def test_state_is_small() -> None:
    """Packed, a negative box takes a fraction of its 16 d bytes."""
    space = NegativeSpace(Boxes.of([([0] * 3, [999] * 3)]), {"merge_budget": 0})
    space.update(random_entries(400, 3, 1000, seed=9))
    boxes = len(space.tree)
    assert boxes > 500
    assert len(space.tree.encode()) < 48 * boxes / 2


def test_the_union_of_many_boxes_is_not_counted() -> None:
    """Beyond its limit of cells the volume check steps aside instead of filling the memory."""
    boxes = Boxes.of([([i * 10**6] * 6, [i * 10**6 + 5] * 6) for i in range(20)])
    assert negative_space._union_volume(boxes) is None
    assert negative_space._union_volume(Boxes.of([([0, 0], [4, 4]), ([3, 3], [5, 5])])) == 25 + 9 - 4
