"""Entries and their rows against plain enumeration, whether questions scan or ask the tree."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.reductions import entry_rows
from state.reductions.arrivals import Arrivals
from state.reductions.conflict_table import COROLLARY_1
from state.reductions.covering import Covering
from state.reductions.entry_rows import EntryRows, covers
from state.reductions.judging import Rules
from state.reductions.row_tree import LEAF_MAX, RowTree
from state.reductions.rspc import CORNER
from state.space.boxes import Boxes
from state.space.ranks import ABSENT, PRESENT_MAX
from tests.reductions.contract import BoxSpace, Contract, machine

SPACE = BoxSpace((0, 0), (9, 9))
EXACTLY = Rules(True, 10_000, 0.001, 0, 0)


@pytest.fixture
def tree_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build the tree at the first question, however few rows there are."""
    monkeypatch.setattr(entry_rows, "ROWS_MIN", 1)
    monkeypatch.setattr(entry_rows, "SCANS_MAX", 0)


def drawn(random: Random, boxes_max: int) -> Boxes:
    sides = [[sorted(random.choices(range(10), k=2)) for _ in range(2)] for _ in range(random.randint(1, boxes_max))]
    return SPACE._disjoint([tuple(box) for box in sides])


def assert_answers(rows: EntryRows, asked: Boxes) -> None:
    """Every question is answered as by looking at each entry and box, in the order of their coming."""
    low, high = asked.lows[0], asked.highs[0]
    everything = [(id, a, b) for id, boxes in rows.entries.items() for a, b in boxes]
    meets = [id for id, a, b in everything if (a <= high).all() and (b >= low).all()]
    holds = [id for id, a, b in everything if (a <= low).all() and (b >= high).all()]
    assert rows.owners(rows.meeting(low, high)) == meets
    assert rows.meets(low, high) == bool(meets)
    first = rows.containing(low, high)
    assert (rows.owners(np.array([first])) if first >= 0 else []) == holds[:1]
    assert rows.coverer(asked) == next((id for id, boxes in rows.entries.items() if covers(boxes, asked)), None)
    some = [id for id, boxes in rows.entries.items() if len(boxes)][::2]
    meeting = {id for a, b in asked for id in rows.owners(rows.meeting(a, b))}
    assert rows.touching(rows.starts(some), asked).tolist() == [id in meeting for id in some]
    corners = [np.where([1 & k, 2 & k], high, low) for k in range(4)]
    free = [p for p in corners if not any((a <= p).all() and (b >= p).all() for _, a, b in everything)]
    step, by, point, _ = rows.judged(low, high, EXACTLY, np.uint64(0))
    assert (step == COROLLARY_1) == bool(holds)
    assert rows.owners(by[: step == COROLLARY_1]) == holds[:1]
    assert (step == CORNER) == bool(free and not holds)
    assert step != CORNER or tuple(point.tolist()) == tuple(free[0].tolist())
    points = {p for _, a, b in everything for p in SPACE.points(Boxes(a[None], b[None]))}
    assert bool(len(by)) == (SPACE.points(Boxes(low[None], high[None])) <= points)
    assert rows.inside(asked) == [id for id, boxes in rows.entries.items() if len(boxes) and covers(asked, boxes)]


def corner_of(rows: EntryRows, low: np.ndarray, high: np.ndarray) -> tuple[int, ...] | None:
    step, _, point, _ = rows.judged(low, high, EXACTLY, np.uint64(0))
    return tuple(point.tolist()) if step == CORNER else None


def test_a_corner_beyond_the_fourth_dimension_is_the_lower_one() -> None:
    """Of many dimensions some corners are tried, no others: one of these that is held by nobody is a proof."""
    rows, low, high = EntryRows(6), np.zeros(6, np.int64), np.full(6, 9)
    assert corner_of(rows, low, high) == (0,) * 6
    rows.add("first half", Boxes.of([([0] * 6, [9, 9, 9, 4, 9, 9])]))
    assert corner_of(rows, low, high) == (0, 0, 0, 9, 0, 0)
    rows.add("low end of the last", Boxes.of([([0] * 6, [9, 9, 9, 9, 9, 0])]))
    assert corner_of(rows, low, high) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_tree_answers_as_enumeration_does(tree_at_once: None, seed: int) -> None:
    """Hundreds of entries come and go, alike and equal ones among them: each answer is that of enumeration."""
    random, rows = Random(seed), EntryRows(2)
    for step in range(900):
        id = f"e{random.randrange(200 if step < 700 else 40)}"
        if id in rows:
            rows.remove(id)
        elif step < 700 or random.random() < 0.2:
            rows.add(id, drawn(random, 3))
        if step % 20 == 0:
            assert_answers(rows, drawn(random, 2))
            assert rows._tree is None or rows._tree._count == rows.size
    assert rows._tree is not None
    rows.check()


@pytest.mark.parametrize("seed", range(4))
def test_shares_give_the_order_in_which_entries_that_come_are_judged(seed: int) -> None:
    """The larger first, equal ones by id, of one or several boxes: as many that come together are put in order."""
    random, rows = Random(seed), EntryRows(2)
    for i in range(60):
        rows.add(f"e{random.randrange(10**6)}-{i}", drawn(random, 3))
    rows.remove(next(iter(rows.entries)))
    some = [id for id, boxes in rows.entries.items() if len(boxes)]
    random.shuffle(some)
    for ids in (some, some[:3], some[:1]):
        order = rows.by_share(rows.starts(ids), DOMAIN.sides()[0])
        told = Arrivals.of({id: rows.entries[id] for id in ids}, 2).largest_first(DOMAIN)
        assert [ids[i] for i in order.tolist()] == told.ids


def test_questions_scan_until_a_tree_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree is built after `SCANS_MAX` scans of at least `ROWS_MIN` rows, and no earlier."""
    rows = EntryRows(1)
    for i in range(entry_rows.ROWS_MIN - 1):
        rows.add(str(i), Boxes.of([([i], [i])]))
    point = np.array([7])
    for _ in range(3 * entry_rows.SCANS_MAX):
        assert rows.containing(point, point) == 7
    assert rows._tree is None
    rows.add("last", Boxes.of([([999], [999])]))
    for _ in range(entry_rows.SCANS_MAX):
        assert rows.containing(point, point) == 7
    assert rows._tree is None
    assert rows.containing(point, point) == 7
    assert rows._tree is not None


def test_equal_boxes_share_a_leaf(tree_at_once: None) -> None:
    """Boxes that are equal cannot be parted: they are all found, and leave one by one."""
    rows, box = EntryRows(1), Boxes.of([([3], [5])])
    ids = [f"e{i}" for i in range(5 * LEAF_MAX)]
    for id in ids:
        rows.add(id, box)
        assert rows.owners(rows.meeting(np.array([4]), np.array([4]))) == ids[: len(rows)]
    rows.check()
    for id in ids[::2]:
        rows.remove(id)
    assert rows.inside(box) == ids[1::2]
    rows.check()


@given(st.lists(st.tuples(st.sampled_from([ABSENT, -1, 0, 1, PRESENT_MAX]), st.integers(0, 3)), max_size=80))
@settings(max_examples=60, deadline=None)
def test_a_tree_parts_at_the_ends_of_the_ranks(points: list[tuple[int, int]]) -> None:
    """Numbers as far apart as ranks can be are parted without wrapping round."""
    table = np.array(points, np.int64).reshape(-1, 2)
    tree = RowTree(table, np.arange(len(table)))
    tree.check()
    for value in (ABSENT, 0, PRESENT_MAX):
        floor, ceiling = np.array([ABSENT, 1]), np.array([value, 2])
        expected = [i for i, (a, b) in enumerate(points) if a <= value and 1 <= b <= 2]
        assert tree.between(floor, ceiling).tolist() == expected
        assert tree.first_between(floor, ceiling) == (expected[0] if expected else -1)


DOMAIN = Boxes.of([(SPACE.low, SPACE.high)])
CONTRACT = Contract(
    make=lambda: Covering(DOMAIN), decode=lambda blob: Covering.decode(blob, DOMAIN), space=SPACE, examples=20
)


@pytest.mark.usefixtures("tree_at_once")
class TestCoveringByTheTree(machine(CONTRACT).TestCase):  # type: ignore[misc, name-defined]
    """The contract holds where every question asks the tree."""
