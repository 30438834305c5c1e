"""The tables of ranges against sets of cells: Algorithm 1, its undoing, Algorithm 2, and the packed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from state.errors import HilcastError
from state.reductions.interval_table import (
    CompiledTable,
    IntervalTable,
    Journal,
    cells_of,
    closed,
    closed_in_order,
    difference,
    inside,
    near,
    range_id,
    range_ids,
    range_of,
)
from state.reductions.live_ranges import LiveRanges
from state.space.packing import pack_numbers, pack_ranges, unpack_numbers, unpack_ranges
from state.space.ranges import Ranges

LAST = 30
TOP = 2**63 - 1

spans = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda p: (min(p), max(p)))
some_spans = st.lists(spans, max_size=12)


def cells(pairs) -> set[int]:
    return {h for start, end in pairs for h in range(start, end + 1)}


def runs(held: set[int], gap: int = 0) -> list[tuple[int, int]]:
    """The maximal runs of a set of cells, joined across gaps of up to `gap`: the oracle of merging."""
    result: list[tuple[int, int]] = []
    for h in sorted(held):
        if result and h - result[-1][1] <= gap + 1:
            result[-1] = (result[-1][0], h)
        else:
            result.append((h, h))
    return result


def pairs_of(ranges: Ranges) -> list[tuple[int, int]]:
    return list(zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True))


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s for s, _ in pairs], np.int64), np.array([e for _, e in pairs], np.int64)


class TableMachine(RuleBasedStateMachine):
    """Insertions and cuts against a set of cells, with perfect merging."""

    def __init__(self) -> None:
        super().__init__()
        self.table = IntervalTable()
        self.held: set[int] = set()
        self.neighbour: set[tuple[int, int]] = set()

    def follow(self, edit) -> None:
        assert set(edit.removed) <= self.neighbour, "took back what was not there"
        self.neighbour -= set(edit.removed)
        assert not set(edit.added) & self.neighbour, "sent again"
        self.neighbour |= set(edit.added)

    @rule(span=spans)
    def insert(self, span) -> None:
        covered = cells([span]) <= self.held
        edit = self.table.insert(*span)
        assert bool(edit) == (not covered), "a covered range changes nothing, any other does"
        self.held |= cells([span])
        self.follow(edit)

    @rule(span=spans)
    def cut(self, span) -> None:
        self.held -= cells([span])
        self.follow(self.table.cut(*span))

    @rule(span=spans)
    def ask(self, span) -> None:
        assert (self.table.find(*span) is not None) == (cells([span]) <= self.held)
        assert self.table.touches(*span) == bool(cells([(span[0] - 1, span[1] + 1)]) & self.held)

    @rule(h=st.integers(0, LAST))
    def look_up(self, h) -> None:
        assert (h in self.table) == (h in self.held)

    @invariant()
    def is_the_set(self) -> None:
        self.table.check()
        assert list(self.table) == runs(self.held)
        assert sorted(self.neighbour) == runs(self.held)


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class LiveMachine(RuleBasedStateMachine):
    """The multiset of live ranges, in chunks of 4 so that they split, against a list."""

    def __init__(self) -> None:
        super().__init__()
        self.live = LiveRanges(chunk=4)
        self.rows: list[tuple[int, int, int]] = []

    @rule(span=spans, owner=st.integers(0, 5))
    def insert(self, span, owner) -> None:
        self.live.insert(*span, owner)
        self.rows.append((*span, owner))

    @rule(owner=st.integers(0, 5))
    def extract(self, owner) -> None:
        gone = self.live.ranges_of(owner)
        self.live.remove(gone, owner)
        taken = [(start, end) for start, end, who in self.rows if who == owner]
        assert sorted(pairs_of(gone)) == sorted(taken)
        self.rows = [row for row in self.rows if row[2] != owner]

    @rule()
    def rebuild(self) -> None:
        self.live = LiveRanges.of(*self.live.columns(), chunk=4)

    @rule(h=st.integers(0, LAST))
    def reach(self, h) -> None:
        assert self.live.furthest(h) == max((e for s, e, _ in self.rows if s <= h), default=-1)
        assert self.live.next_start(h) == min((s for s, _, _ in self.rows if s > h), default=None)

    @rule(span=spans)
    def uncovered(self, span) -> None:
        left = cells([span]) - cells([(s, e) for s, e, _ in self.rows])
        assert pairs_of(self.live.uncovered(*span)) == runs(left)

    @rule(asked=some_spans)
    def touching(self, asked) -> None:
        ranges = closed(*columns(asked))
        wanted = cells(asked)
        expected = {who for s, e, who in self.rows if cells([(s, e)]) & wanted}
        assert self.live.touching(ranges).tolist() == sorted(expected)

    @invariant()
    def is_the_list(self) -> None:
        self.live.check()
        starts, ends, owners = (column.tolist() for column in self.live.columns())
        assert len(self.live) == len(self.rows)
        assert sorted(zip(starts, ends, owners, strict=True)) == sorted(self.rows)


TestLive = LiveMachine.TestCase
TestLive.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_uncovered_grows_its_room() -> None:
    """A wide range over many small ones leaves every gap between them, however many."""
    starts = np.arange(0, 1000, 2, dtype=np.int64)
    live = LiveRanges.of(starts, starts, np.zeros(500, np.int64))
    assert pairs_of(live.uncovered(0, 999)) == [(h, h) for h in range(1, 1000, 2)]


def test_touching_grows_its_room() -> None:
    """Hundreds of owners under one range are all named."""
    starts = np.arange(1000, dtype=np.int64)
    live = LiveRanges.of(starts, starts, starts[::-1].copy())
    assert live.touching(Ranges.of([(0, 999)])).tolist() == list(range(1000))


@given(some_spans, st.integers(0, 3))
@settings(deadline=None)
def test_closing_at_once_is_inserting_one_by_one(pairs, gap) -> None:
    """`closed` gives the runs of the cells, joined across gaps, in any order; so do the table and one sorted pass."""
    expected = runs(cells(pairs), gap)
    assert pairs_of(closed(*columns(pairs), gap)) == expected
    assert pairs_of(closed_in_order(*columns(sorted(pairs)), gap)) == expected
    table = IntervalTable(gap=gap)
    for pair in pairs:
        table.insert(*pair)
    table.check()
    assert list(table) == expected


@given(some_spans, some_spans, st.integers(0, 3))
@settings(deadline=None)
def test_inside_and_near(stored, asked, gap) -> None:
    """`inside` and `near` say of each range what the table says of it."""
    ranges = closed(*columns(stored), gap)
    table = IntervalTable(ranges, gap)
    starts, ends = columns(asked)
    assert inside(ranges, starts, ends).tolist() == [table.find(*span) is not None for span in asked]
    assert near(ranges, starts, ends, gap).tolist() == [table.touches(*span) for span in asked]
    held = cells(pairs_of(ranges))
    expected = [bool(held & set(range(s - gap - 1, e + gap + 2))) for s, e in asked]
    assert near(ranges, starts, ends, gap).tolist() == expected


@given(some_spans, some_spans)
@settings(deadline=None)
def test_difference_names_what_changed(before, after) -> None:
    """`difference` is the difference of the sets of ranges, and the journal comes to the same."""
    first, second = closed(*columns(before)), closed(*columns(after))
    added, removed = difference(first, second)
    assert set(pairs_of(added)) == set(pairs_of(second)) - set(pairs_of(first))
    assert set(pairs_of(removed)) == set(pairs_of(first)) - set(pairs_of(second))


@given(st.lists(st.tuples(st.booleans(), spans), max_size=20))
@settings(deadline=None)
def test_the_journal_is_the_net_effect(changes) -> None:
    """Whatever was edited, the journal holds just what is different in the end."""
    table, journal = IntervalTable(Ranges.of([(3, 5), (9, 12)])), Journal()
    before = set(table)
    for is_cut, span in changes:
        journal.note(table.cut(*span) if is_cut else table.insert(*span))
    assert set(journal.net().added) == set(table) - before
    assert set(journal.net().removed) == before - set(table)


@given(some_spans, st.lists(st.integers(-3, LAST + 3), max_size=30))
@settings(deadline=None)
def test_compiled_look_ups(pairs, asked) -> None:
    """The compiled table answers like the set of cells."""
    table = CompiledTable(closed(*columns(pairs)))
    table.check()
    indices = np.array(asked, np.int64)
    assert table.lookup(indices).tolist() == [h in cells(pairs) for h in asked]


@given(st.lists(st.integers(0, TOP), min_size=2, max_size=40, unique=True).map(sorted))
@settings(deadline=None)
def test_compiled_look_ups_at_any_scale(ends) -> None:
    """Buckets hold over the whole int64 span: every end is found, and nothing just outside."""
    ends = ends[: len(ends) // 2 * 2]
    ranges = closed(*columns(list(zip(ends[::2], ends[1::2], strict=True))))
    table = CompiledTable(ranges)
    table.check()
    assert table.lookup(ranges.starts).all()
    assert table.lookup(ranges.ends).all()
    after = ranges.ends[:-1] + 1
    assert not table.lookup(after).any()


def test_the_whole_domain_is_one_range() -> None:
    """2^63 cells are counted, merged and looked up without overflow."""
    ends = np.array([0, 2**62]), np.array([2**62 - 1, TOP])
    ranges = closed(*ends)
    assert closed_in_order(*ends) == ranges
    assert pairs_of(ranges) == [(0, TOP)]
    assert cells_of(ranges) == 2**63
    assert CompiledTable(ranges).lookup(np.array([0, 2**62, TOP])).all()
    assert LiveRanges.of(ranges.starts, ranges.ends, np.array([0])).furthest(5) == TOP


def test_an_empty_table_holds_nothing() -> None:
    """No ranges: every look-up says no."""
    table = CompiledTable(Ranges.empty())
    table.check()
    assert table.lookup(np.array([0, 5])).tolist() == [False, False]
    assert unpack_ranges(pack_ranges(Ranges.empty())) == Ranges.empty()


def test_figure_3() -> None:
    """[MICS09] figure 3: s2 is [32,35], [45,46], [50,55]; p1 = 28 misses it, p2 = 52 and p3 = 50 match."""
    table = IntervalTable(Ranges.of([(32, 35), (45, 46), (50, 55)]))
    assert [h in table for h in (28, 52, 50)] == [False, True, True]
    compiled = CompiledTable(table.ranges())
    assert compiled.lookup(np.array([28, 52, 50])).tolist() == [False, True, True]


@given(st.lists(st.integers(0, TOP)))
@settings(deadline=None)
def test_packed_numbers_come_back(numbers) -> None:
    """Numbers survive packing, one after another, and small ones take one byte."""
    blob = pack_numbers(numbers)
    back, at = unpack_numbers(blob + b"rest", len(numbers))
    assert back.tolist() == numbers
    assert blob + b"rest" == blob[:at] + b"rest"
    assert len(pack_numbers([n % 128 for n in numbers])) == len(numbers)


@given(st.lists(st.integers(0, TOP), max_size=40, unique=True).map(sorted))
@settings(deadline=None)
def test_packed_tables_come_back(ends) -> None:
    """A table survives packing; its first byte is the format."""
    ends = ends[: len(ends) // 2 * 2]
    ranges = closed(*columns(list(zip(ends[::2], ends[1::2], strict=True))))
    blob = pack_ranges(ranges)
    assert blob[0] == 1
    assert unpack_ranges(blob) == ranges


@pytest.mark.parametrize("blob", [b"", b"\x02\x00", pack_ranges(Ranges.of([(3, 900)]))[:-1], b"\x01" + b"\xff" * 12])
def test_a_broken_table_is_refused(blob) -> None:
    """An unknown format, a cut or overlong number: a coded error, never a wrong table."""
    with pytest.raises(HilcastError, match=r"^state-format: "):
        unpack_ranges(blob)


@pytest.mark.parametrize("count", [2**32 - 1, 2**62 - 1, 2**63 - 1])
def test_a_damaged_count_is_refused(count) -> None:
    """A count of more ranges than there are bytes is a coded error, not a call for memory."""
    with pytest.raises(HilcastError, match=r"^state-format: packed numbers: cut short"):
        unpack_ranges(b"\x01" + pack_numbers([count]))


def test_bytes_after_a_table_are_refused() -> None:
    """What follows a table is damage too."""
    with pytest.raises(HilcastError, match=r"^state-format: a table of ranges: 4 bytes of 8"):
        unpack_ranges(pack_ranges(Ranges.of([(3, 9)])) + b"junk")


@given(spans)
@settings(deadline=None)
def test_ids_sort_as_ranges(span) -> None:
    """An id gives its ends back, and ids compare like starts."""
    assert range_of(range_id(*span)) == span
    assert range_ids(Ranges.of([span, (TOP, TOP)])) == [range_id(*span), range_id(TOP, TOP)]
    assert range_id(*span) < range_id(span[0] + 1, 5)
    assert range_id(*span) < range_id(TOP, TOP)


@pytest.mark.parametrize("id", ["", "x", "000000000000001f", "000000000000001g-0000000000000fff"])
def test_what_is_no_id_is_refused(id) -> None:
    """Anything else than two ends of 16 digits is an error."""
    with pytest.raises(HilcastError, match=r"^bad-value: "):
        range_of(id)


@given(st.integers(0, TOP), st.integers(0, TOP), st.data())
@settings(deadline=None)
def test_one_range_is_packed_as_many_are(one: int, other: int, data: st.DataObject) -> None:
    """The short way for one range makes and reads the same bytes; cut short or longer they are refused."""
    start, end = sorted((one, other))
    blob = pack_ranges(Ranges.of([(start, end)]))
    assert blob == b"\x01" + pack_numbers([1, start, end - start])
    assert pairs_of(unpack_ranges(blob)) == [(start, end)]
    for damaged in (blob[: data.draw(st.integers(0, len(blob) - 1))], blob + b"\0", blob + b"\x80"):
        with pytest.raises(HilcastError, match="state-format"):
            unpack_ranges(damaged)
    with pytest.raises(HilcastError, match="state-format"):
        unpack_ranges(b"\x01" + pack_numbers([1, TOP, 1 + start % TOP]))
