"""The judge's own evaluator, against the oracle: event by event, with and without intervals."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from state import plain_filters
from state.arrays import Bools, Ints
from state.filters.grammar import parse
from state.filters.tree import Predicate
from state.plain_filters import PlainEvents
from tests import oracle
from tests.filters import samples
from tests.filters.test_imprecise import PLAIN, ROUGH, random_filter, random_value


@pytest.mark.parametrize("seed", range(4))
def test_events_with_intervals_agree_with_the_oracle(seed: int) -> None:
    """Random filters over columns of random events, intervals and faulty ones among them: as the oracle says."""
    random = Random(seed)
    matched = 0
    for i in range(150):
        text = random_filter(random, "abpftes", depth=i % 3)
        events = [
            {a.name: random_value(random, a.name) for a in ROUGH.attributes if random.random() < 0.8} for _ in range(12)
        ]
        answer = PlainEvents(ROUGH, events).holding(parse(text, ROUGH), np.ones(len(events), bool))
        expected = [oracle.evaluate(text, event, PLAIN) for event in events]
        assert answer.may.tolist() == answer.must.tolist() == expected, (text, events)
        matched += sum(expected)
    assert 100 < matched < 1700


@pytest.mark.parametrize("seed", range(4))
def test_points_of_all_kinds_agree_with_the_oracle(seed: int) -> None:
    """All kinds, values at the ends of doubles and integers, absent and wrong ones, escapes: as the oracle says."""
    random = Random(seed)
    events = [samples.random_event(random) for _ in range(100)]
    plain = PlainEvents(samples.QUOTE, events)
    matched = 0
    for i in range(80):
        text = samples.random_filter(random, depth=i % 3)
        answer = plain.holding(parse(text, samples.QUOTE), np.ones(len(events), bool))
        expected = [oracle.evaluate(text, event, samples.PLAIN) for event in events]
        assert answer.must.tolist() == expected, text
        matched += sum(expected)
    assert 0.05 < matched / (80 * len(events)) < 0.95, "nearly all or nearly none would prove little"


def test_too_many_points_are_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that would take too long may be delivered and need not be; events that are points are still decided."""
    tree = parse("a < 2 AND (p < 1 OR p > 2)", ROUGH)
    events = [{"a": {"min": 0, "max": 3}, "p": {"min": 0, "max": 3}}, {"a": 1, "p": 0}, {"a": 5, "p": 0}]
    plain = PlainEvents(ROUGH, events)
    assert plain.holding(tree, np.ones(3, bool)).may.tolist() == [False, True, False]
    monkeypatch.setattr(plain_filters, "POINTS_MAX", 3)
    answer = plain.holding(tree, np.ones(3, bool))
    assert (answer.may.tolist(), answer.must.tolist()) == ([True, True, False], [False, True, False])


def test_what_is_no_event_holds_nowhere() -> None:
    """A value that could not be read satisfies nothing, not even IS NULL, and neither does what is not asked about."""
    plain = PlainEvents(ROUGH, [None, {}, {}])
    answer = plain.holding(parse("a IS NULL", ROUGH), np.array([True, True, False]))
    assert answer.may.tolist() == answer.must.tolist() == [False, True, False]


def test_a_conjunction_looks_at_the_events_of_its_narrowest_predicate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 events ten have the symbol: all other predicates of the conjunction are asked for these alone."""
    events = [{"symbol": f"S{n % 100}", "price": n} for n in range(1000)]
    plain, asked, whole = PlainEvents(samples.QUOTE, events), list[int](), plain_filters._Column.satisfying

    def counted(column: plain_filters._Column, predicate: Predicate, *rows: Ints | slice) -> Bools:
        found = whole(column, predicate, *rows)
        asked.append(len(found))
        return found

    monkeypatch.setattr(plain_filters._Column, "satisfying", counted)
    every = np.ones(len(events), bool)
    held = plain.holding(parse("price >= 0 AND symbol = 'S7' AND price BETWEEN 0 AND 500", samples.QUOTE), every)
    assert (asked, np.flatnonzero(held.must).tolist()) == ([10, 10, 10], [7, 107, 207, 307, 407])
    asked.clear()
    assert plain.holding(parse("price >= 0 OR symbol = 'S7'", samples.QUOTE), every).must.all()
    assert asked == [1000, 1000]
