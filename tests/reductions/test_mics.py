"""MICS by the contract of reductions, by the paper, and its two ways compared with each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import HilcastError
from state.reductions.interval_table import CompiledTable, range_id, range_of
from state.reductions.mics import Mics, widest_gap_within
from state.reductions.reduction import Reduction, add, remove
from state.space.hilbert import encode
from state.space.ranges import Ranges, boxes_ranges
from tests.reductions.contract import Contract, RangeSpace, machine

DOMAIN = (8, 39)
SPACE = RangeSpace(*DOMAIN)
EDIT_ALWAYS, REBUILD_ALWAYS = 0, 10**9


def factory(parameters):
    """Make reductions that edit and that rebuild, in turn: the contract compares a pair step by step."""
    ways = itertools.cycle((EDIT_ALWAYS, REBUILD_ALWAYS))

    def make() -> Mics:
        made = Mics(DOMAIN, parameters)
        made.edit_cost = next(ways)
        return made

    return make


def contract(parameters, guarantee, **more) -> Contract:
    def decode(blob: bytes) -> Mics:
        return Mics.decode(blob, DOMAIN, parameters)

    def route(held, point) -> bool:
        ends = sorted(range_of(id) for id in held)
        return bool(CompiledTable(Ranges.of(ends)).lookup(np.array(point))[0])

    return Contract(
        make=factory(parameters), decode=decode, space=SPACE, guarantee=guarantee, complete=True, whole=False,
        route=route, **more,
    )  # fmt: skip


CONTRACT = contract({}, "exact", examples=60)
GAP = contract({"merging": "imperfect", "gap_cells": 2}, "superset")
BUDGET = contract({"merging": "imperfect", "budget": 0.3}, "superset")

TestPerfect = machine(CONTRACT).TestCase
TestGap = machine(GAP).TestCase
TestBudget = machine(BUDGET).TestCase


def cells(ranges: Ranges) -> set[int]:
    return {h for s, e in zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True) for h in range(s, e + 1)}


changes = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcdef"), SPACE.entries(), max_size=3),
        st.lists(st.sampled_from("abcdef"), max_size=2),
    ),
    max_size=12,
)


@given(changes)
@settings(max_examples=60, deadline=None)
def test_history_leaves_no_trace(history) -> None:
    """After any history the table with perfect merging is the one built from the live entries alone."""
    mics, live = Mics(DOMAIN), {}
    for added, removed in history:
        removed = [id for id in removed if id not in added]
        mics.update(added, removed)
        live = {id: e for id, e in (live | added).items() if id not in removed}
    fresh = Mics(DOMAIN)
    fresh.update(dict(sorted(live.items())))
    assert mics.table() == fresh.table()
    assert {id: cells(e) for id, e in mics.entries().items()} == {id: cells(e) for id, e in live.items()}


@given(changes, st.sampled_from([0.1, 0.5, 2.0]))
@settings(max_examples=60, deadline=None)
def test_the_budget_is_kept(history, budget) -> None:
    """After every update the extra cells are counted rightly, and are at most the budget's share."""
    mics, live = Mics(DOMAIN, {"merging": "imperfect", "budget": budget}), {}
    for added, removed in history:
        removed = [id for id in removed if id not in added]
        mics.update(added, removed)
        live |= {id: cells(entry) for id, entry in added.items()}
        live = {id: held for id, held in live.items() if id not in removed}
        asked = set().union(*live.values())
        held = cells(mics.table())
        assert asked <= held
        assert mics.excess == len(held - asked) <= budget * len(asked)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 20))
@settings(deadline=None)
def test_the_widest_gap_within_a_budget(gaps, allowed) -> None:
    """It joins every gap up to a width, within the budget, and the next width would exceed it."""
    ends = [0]
    for gap in gaps:
        ends.append(ends[-1] + gap + 1)
    union = Ranges.of([(h, h) for h in ends])
    chosen = widest_gap_within(union, allowed)
    assert sum(g for g in gaps if g <= chosen) <= allowed
    wider = [g for g in gaps if g > chosen]
    assert not wider or sum(g for g in gaps if g <= min(wider)) > allowed


# --- the paper's cases --------------------------------------------------------------------------------------


def ids(*ranges) -> list[str]:
    return [range_id(*ends) for ends in ranges]


def test_whole_covering() -> None:
    """§3.5, figure 4a: every range of s2 lies in a range of s1; nothing is forwarded."""
    mics = Mics((0, 99))
    add(mics, "s1", Ranges.of([(10, 30), (50, 70)]))
    assert not add(mics, "s2", Ranges.of([(12, 20), (55, 60)]))
    assert mics.decide(Ranges.of([(12, 20), (55, 60)])).by == tuple(ids((10, 30), (50, 70)))
    assert mics.stats()["ranges_covered"] == 2
    assert mics.stats()["entries_covered_whole"] == 1


def test_partial_covering() -> None:
    """§3.5, figure 4b: one range of s2 is covered; only the other is forwarded."""
    mics = Mics((0, 99))
    add(mics, "s1", Ranges.of([(10, 30), (50, 60)]))
    delta = add(mics, "s2", Ranges.of([(12, 20), (80, 90)]))
    assert list(delta.added) == ids((80, 90))
    assert delta.removed == ()
    assert mics.stats()["entries_covered_in_part"] == 1


def test_subsumption() -> None:
    """§3.7: no single range covers the new one, their union does; it is withheld, and counted as subsumed."""
    mics = Mics((0, 99))
    add(mics, "s1", Ranges.of([(10, 20)]))
    add(mics, "s2", Ranges.of([(15, 30)]))
    s3 = Ranges.of([(12, 28)])
    assert mics.decide(s3).reason == "1 of 1 ranges covered: 0 by one live range, 1 by several"
    assert not add(mics, "s3", s3)
    assert mics.stats()["ranges_subsumed"] == 1


def test_perfect_merging() -> None:
    """§3.6: overlapping and touching ranges become one; the grown range replaces what it swallowed."""
    mics = Mics((0, 99))
    add(mics, "s1", Ranges.of([(10, 19), (25, 30), (40, 50)]))
    delta = add(mics, "s2", Ranges.of([(20, 44)]))
    assert list(delta.added) == ids((10, 50))
    assert list(delta.removed) == ids((10, 19), (25, 30), (40, 50))
    assert mics.stats()["ranges_merged"] == 1
    assert mics.excess == 0


def test_imperfect_merging_counts_its_excess() -> None:
    """§3.6: ranges are joined across gaps up to the threshold, and the cells nobody asked for are counted."""
    mics = Mics((0, 99), {"merging": "imperfect", "gap_cells": 4})
    add(mics, "s1", Ranges.of([(10, 19), (24, 30), (36, 50)]))
    assert list(mics.forwarded()) == ids((10, 30), (36, 50))
    assert mics.excess == 4


def test_a_budget_joins_the_narrowest_gaps() -> None:
    """With a budget the narrowest gaps that fit are joined, and opened again when what they cost no longer fits."""
    mics = Mics((0, 99), {"merging": "imperfect", "budget": 0.25})
    add(mics, "s1", Ranges.of([(0, 9), (12, 21), (30, 39)]))
    assert list(mics.forwarded()) == ids((0, 21), (30, 39))
    assert mics.excess == 2
    add(mics, "s2", Ranges.of([(50, 99)]))  # 80 cells asked for: 20 more may be joined, and are
    assert list(mics.forwarded()) == ids((0, 99))
    assert remove(mics, "s2").removed == tuple(ids((0, 99)))
    assert list(mics.forwarded()) == ids((0, 21), (30, 39))
    mics.update({"s1": Ranges.of([(0, 1), (12, 12)])})
    assert list(mics.forwarded()) == ids((0, 1), (12, 12))
    assert mics.excess == 0


def test_figure_3_from_boxes() -> None:
    """[MICS09] figure 3 on an 8 x 8 grid: s2 spans x 4-6, y 2-5; p1 = (3,5), p2 = (5,3), p3 = (6,2)."""
    s2 = boxes_ranges(np.array([[4, 2]]), np.array([[6, 5]]), 3)
    assert s2 == Ranges.of([(32, 35), (45, 46), (50, 55)])
    mics = Mics((0, 63))
    add(mics, "s2", s2)
    publications = encode(np.array([[3, 5], [5, 3], [6, 2]]), 3)
    assert publications.tolist() == [28, 52, 50]
    assert CompiledTable(mics.table()).lookup(publications).tolist() == [False, True, True]


def test_a_witness_is_the_first_cell_outside() -> None:
    """`decide` names the first cell of the entry that nothing forwarded holds."""
    mics = Mics((0, 99))
    add(mics, "s1", Ranges.of([(10, 19)]))
    assert mics.decide(Ranges.of([(12, 15), (18, 25)])).witness == (20,)
    assert mics.decide(Ranges.of([(5, 11)])).witness == (5,)


def test_unsubscription_promotes_what_was_covered() -> None:
    """Withdrawing the covering subscription forwards what remains in the step that takes it back."""
    mics = Mics((0, 99))
    add(mics, "wide", Ranges.of([(0, 99)]))
    add(mics, "left", Ranges.of([(3, 5)]))
    add(mics, "right", Ranges.of([(50, 60), (90, 99)]))
    delta = remove(mics, "wide")
    assert list(delta.added) == ids((3, 5), (50, 60), (90, 99))
    assert list(delta.removed) == ids((0, 99))


def test_equal_entries_each_count() -> None:
    """Of two equal entries one may go without a trace; the second takes the range with it."""
    mics = Mics((0, 99))
    add(mics, "a", Ranges.of([(3, 5)]))
    add(mics, "b", Ranges.of([(3, 5)]))
    assert not remove(mics, "a")
    assert remove(mics, "b").removed == tuple(ids((3, 5)))


def test_the_whole_domain() -> None:
    """A domain of 63 bits, all of it asked for, is one range of 2^63 cells, with and without a budget."""
    for parameters in ({}, {"merging": "imperfect", "budget": 0.5}):
        mics = Mics((0, 2**63 - 1), parameters)
        add(mics, "all", Ranges.of([(0, 2**63 - 1)]))
        mics.check()
        assert mics.stats()["cells_covered"] == 2**63
        back = Mics.decode(mics.encode(), (0, 2**63 - 1), parameters)
        assert back.encode() == mics.encode()
        assert remove(back, "all").removed == tuple(ids((0, 2**63 - 1)))


@pytest.mark.parametrize("budget", [1, 16, 1e6, 1.7e308])
def test_a_generous_budget_joins_everything(budget) -> None:
    """A budget of more cells than there are is no error: with it, and with the widest gap, all becomes one range."""
    far = Ranges.of([(0, 2**61), (2**62, 2**62)])
    for wide in ({"budget": budget}, {"gap_cells": 2**63 - 1}):
        mics = Mics((0, 2**63 - 1), {"merging": "imperfect", **wide})
        add(mics, "far", far)
        mics.check()
        assert list(mics.forwarded()) == ids((0, 2**62))
        assert Mics.decode(mics.encode(), (0, 2**63 - 1), {"merging": "imperfect", **wide}).table() == mics.table()


def test_a_large_batch_is_many_small_ones() -> None:
    """Thousands of entries at once lead to the table and the entries of one by one."""
    random = np.random.default_rng(7)
    starts = random.integers(0, 2**20, 3000)
    entries = {f"s{i}": Ranges.of([(int(s), int(s) + i % 50)]) for i, s in enumerate(starts)}
    at_once, singly = Mics((0, 2**21)), Mics((0, 2**21))
    at_once.update(entries)
    for id, entry in entries.items():
        singly.update({id: entry})
    at_once.check()
    singly.check()
    assert at_once.table() == singly.table()
    gone = [f"s{i}" for i in range(0, 3000, 3)]
    at_once.update({}, gone)
    for id in gone:
        singly.update({}, [id])
    assert at_once.table() == singly.table()
    assert at_once.entries().keys() == singly.entries().keys()


def test_the_two_ways_are_taken() -> None:
    """A large batch rebuilds, small ones edit: the choice is by size."""
    mics = Mics((0, 2**21))
    mics.update({f"s{i}": Ranges.of([(4 * i, 4 * i + 1)]) for i in range(2000)})
    assert mics._table is None
    for i in range(8):
        add(mics, f"t{i}", Ranges.of([(40_000 + 4 * i, 40_000 + 4 * i + 1)]))
    assert mics._table is not None
    mics.check()


# --- state --------------------------------------------------------------------------------------------------


def test_numbers_of_a_long_life() -> None:
    """After thousands of replacements the bytes are those of a fresh reduction with the same entries."""
    worn, fresh = Mics(DOMAIN), Mics(DOMAIN)
    entries = {"b": Ranges.of([(9, 12)]), "a": Ranges.of([(9, 12), (20, 22)])}
    for _ in range(600):
        for id, entry in entries.items():
            worn.update({id: entry})
    fresh.update(dict(sorted(entries.items())))
    worn._counts = dict(fresh._counts)
    assert worn.encode() == fresh.encode()
    assert worn._next > 1024 + 4 * 2


@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_broken_state_is_refused(cut) -> None:
    """State of another format, or cut anywhere, is an error."""
    mics = Mics(DOMAIN)
    mics.update({"a": Ranges.of([(9, 12)]), "b": Ranges.of([(30, 31)])})
    blob = mics.encode()
    with pytest.raises(HilcastError, match=r"^state-format: "):
        Mics.decode(blob[:cut] if cut else b"\x09" + blob[1:], DOMAIN)


def test_state_is_compact() -> None:
    """A range takes a handful of bytes, not the 24 of its three numbers."""
    random = np.random.default_rng(3)
    starts = np.sort(random.integers(0, 2**24, 5000))
    mics = Mics((0, 2**24 + 100))
    mics.update({f"{i:x}": Ranges.of([(int(s), int(s) + 5)]) for i, s in enumerate(starts)})
    assert len(mics.encode()) < 5000 * (2 + 1 + 2 + 5)


def test_it_is_a_reduction_and_can_be_looked_up() -> None:
    """It implements the protocol, and its table can be compiled."""
    mics = Mics(Ranges.of([(0, 99)]))
    assert isinstance(mics, Reduction)
    add(mics, "s1", Ranges.of([(10, 19)]))
    assert CompiledTable(mics.table()).lookup(np.array([9, 10])).tolist() == [False, True]
