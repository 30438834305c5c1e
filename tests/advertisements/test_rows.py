"""Rows, pools and text labels under random changes, against plain dicts and lists."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from state.advertisements import predicates, rows
from state.advertisements.extents import END, disjoint
from state.advertisements.normal import Leaf, Normaliser
from state.advertisements.predicates import PredicateTable, TextOrder
from state.advertisements.rows import Rows
from state.filters.grammar import parse
from tests.advertisements.witnesses import TYPE, leaves


class RowsAgainstDict(RuleBasedStateMachine):
    """Rows hold what was added and not removed, under numbers that do not move."""

    def __init__(self) -> None:
        super().__init__()
        self.minimum, rows.GARBAGE_MIN = rows.GARBAGE_MIN, 4  # so that compaction happens all the time
        self.rows = Rows(np.int32, np.int64)
        self.model: dict[int, list[int]] = {}

    def teardown(self) -> None:
        rows.GARBAGE_MIN = self.minimum

    @rule(values=st.lists(st.integers(0, 9), max_size=5))
    def add(self, values: list[int]) -> None:
        number = self.rows.add(values, [10 * value for value in values])
        assert number not in self.model
        self.model[number] = values

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.model:
            number = data.draw(st.sampled_from(sorted(self.model)))
            self.rows.remove(number)
            del self.model[number]

    @invariant()
    def same(self) -> None:
        self.rows.check()
        assert len(self.rows) == len(self.model)
        for number, values in self.model.items():
            one, ten = self.rows.row(number)
            assert one.tolist() == values
            assert ten.tolist() == [10 * value for value in values]


TestRows = RowsAgainstDict.TestCase
TestRows.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.text("ab", max_size=3)), max_size=60), st.text("ab", max_size=4))
def test_labels_keep_the_order_of_texts(steps: list[tuple[bool, str]], asked: str) -> None:
    """Whatever comes and goes, labels are in the order of the texts, and any other text has a place between."""
    edge, step = predicates._EDGE, predicates._STEP
    predicates._EDGE, predicates._STEP = 64, 4  # room for a few texts only, so that labels move
    try:
        order, model = TextOrder(), {}
        for adding, text in steps:
            if adding and (text in model or len(model) < 12):
                order.hold(text)
                model[text] = model.get(text, 0) + 1
            elif not adding and model.get(text):
                order.release(text)
                model[text] -= 1
                if not model[text]:
                    del model[text]
            order.check()
            places = [order.place(t) for t in sorted(model)]
            assert places == sorted(set(places))
            i = bisect_left(sorted(model), asked)
            if asked not in model:
                assert all(place < order.place(asked) for place in places[:i])
                assert all(order.place(asked) < place for place in places[i:])
    finally:
        predicates._EDGE, predicates._STEP = edge, step


def test_labels_move_when_there_is_no_room() -> None:
    """Texts that come in falling order between two others halve the room each time: labels are spread anew."""
    order = TextOrder()
    order.hold("a")
    order.hold("b")
    moved = [order.hold("a" + "\0" * n) for n in range(100, 0, -1)]
    assert any(moved)
    order.check()
    assert order.place(END) > order.place("b")


def test_few_labels_move_whatever_the_order() -> None:
    """Of 5,000 texts that come from both ends towards the middle, or rising below one that is greater, few make others
    move: less than 10 labels for each, on average, where spreading all of them would have moved hundreds."""
    n = 5000
    closing = [f"{i if i % 2 else 2 * n - i:06}" for i in range(n)]
    rising = ["z", *(f"{i:06}" for i in range(n))]
    for texts in (closing, rising):
        order = TextOrder()
        moved = sum(len(order.hold(text)) for text in texts)
        order.check()
        assert 0 < moved < 10 * n


class TableAgainstList(RuleBasedStateMachine):
    """A table of predicates says of each stored one whether a leaf violates it, as its extents do."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = predicates._EDGE, predicates._STEP
        predicates._EDGE, predicates._STEP = 1 << 12, 1 << 4
        self.normal = Normaliser(TYPE)
        self.table = PredicateTable(TYPE)
        self.model: list[tuple[int, Leaf]] = []

    def teardown(self) -> None:
        predicates._EDGE, predicates._STEP = self.edges

    def leaf(self, text: str) -> Leaf:
        return self.normal.leaf(parse(text, TYPE))  # type: ignore[arg-type]

    @rule(text=leaves(like=True))
    def hold(self, text: str) -> None:
        leaf = self.leaf(text)
        self.model.append((self.table.hold(leaf), leaf))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.model:
            number, _ = self.model.pop(data.draw(st.integers(0, len(self.model) - 1)))
            self.table.release(number)

    @rule(text=leaves(like=True))
    def ask(self, text: str) -> None:
        asked = self.leaf(text)
        expected = {
            number
            for number, leaf in self.model
            if leaf.dimension == asked.dimension and disjoint(leaf.extent, asked.extent)
        }
        assert self.table.violating(asked).tolist() == sorted(expected)

    @invariant()
    def sound(self) -> None:
        self.table.check()
        assert self.table.associations == len(self.model)
        assert len(self.table) == len({leaf for _, leaf in self.model})


TestTable = TableAgainstList.TestCase
TestTable.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def test_a_free_row_cannot_be_removed() -> None:
    """Removing twice is a bug of the caller, and is caught."""
    table = Rows(np.int32)
    number = table.add([1])
    table.remove(number)
    with pytest.raises(AssertionError):
        table.remove(number)
