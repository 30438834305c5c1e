"""One event, a batch, and boxes: three evaluators, one answer, which is the oracle's."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import event as noted
from hypothesis import given, settings
from hypothesis import strategies as st

from state.arrays import Ints
from state.filters.evaluate import compile, explain, matches, matches_batch
from state.filters.geometry import CONJUNCTIONS_MAX, beyond_boxes, conjunctions, geometry, intervals
from state.filters.grammar import parse
from state.filters.printing import predicate_text
from state.filters.tree import Filter, predicates
from state.space.boxes import Boxes
from state.space.points import ranks
from tests import oracle
from tests.filters.samples import PLAIN, QUOTE, events, filters, leaves, random_event, random_filter

Events = list[dict[str, Any]]


def rank_rows(batch: Events) -> np.ndarray:
    return np.array([ranks(QUOTE, event) for event in batch], dtype=np.int64).reshape(-1, QUOTE.d)


def answers(tree: Filter, batch: Events) -> dict[str, list[bool]]:
    """What each evaluator says of each event."""
    holds = compile(tree, QUOTE)
    found = geometry(tree, QUOTE)
    found.check()
    points = rank_rows(batch)
    inside = found.boxes.contains(points)
    rest = [found.residual is None or matches(found.residual, event, QUOTE) for event in batch]
    vectorised = matches_batch(tree, points, QUOTE, lambda name, rows: [batch[row].get(name) for row in rows])
    compiled = [holds(event) for event in batch]
    return {"compiled": compiled, "batch": vectorised.tolist(), "boxes": (inside & rest).tolist()}


@settings(max_examples=200, deadline=None)
@given(filters(), st.lists(events(), min_size=1, max_size=6))
def test_evaluators_agree_with_the_oracle(text: str, batch: Events) -> None:
    """Compiled closures, rank columns, and boxes with residual give the oracle's answer on each event."""
    expected = [oracle.evaluate(text, event, PLAIN) for event in batch]
    for evaluator, found in answers(parse(text, QUOTE), batch).items():
        assert found == expected, (evaluator, text)


@pytest.mark.parametrize("seed", range(6))
def test_evaluators_agree_with_the_oracle_on_many_events(seed: int) -> None:
    """The same in bulk: single predicates and trees of them, each on 200 events."""
    random = Random(seed)
    batch = [random_event(random) for _ in range(200)]
    matched = 0
    for i in range(60):
        text = random_filter(random, depth=i % 3)
        wanted = oracle.tree_of(text)
        expected = [oracle.evaluate(wanted, event, PLAIN) for event in batch]
        matched += sum(expected)
        for evaluator, found in answers(parse(text, QUOTE), batch).items():
            assert found == expected, (evaluator, text)
    assert 0.05 < matched / (60 * len(batch)) < 0.95, "nearly all or nearly none would prove little"


NOT_TEXT = tuple(a for a in QUOTE.attributes if a.kind != "text")


@settings(max_examples=150, deadline=None)
@given(filters(leaves(NOT_TEXT), max_leaves=12), st.lists(events(), min_size=4, max_size=8))
def test_geometry_without_text_is_exact(text: str, batch: Events) -> None:
    """Without text and up to 128 conjunctions, boxes alone decide: as long as they are not too many."""
    tree = parse(text, QUOTE)
    found = geometry(tree, QUOTE)
    if conjunctions(tree) > CONJUNCTIONS_MAX:
        assert not found.exact or len(found.boxes) == 0
        return
    noted(f"exact: {found.exact}")
    roomy = geometry(tree, QUOTE, boxes_max=200_000)
    assert roomy.exact
    assert found.exact or (found.residual == tree and len(found.boxes) == 1)
    inside = roomy.boxes.contains(rank_rows(batch))
    assert inside.tolist() == [oracle.evaluate(text, event, PLAIN) for event in batch]


@settings(max_examples=150, deadline=None)
@given(filters(), st.lists(events(), min_size=4, max_size=8), st.sampled_from([0, 1, 2, 5]))
def test_capped_geometry_never_loses(text: str, batch: Events, boxes_max: int) -> None:
    """However few boxes are allowed, they hold every event that matches, and with the residual no other; so with what
    `beyond_boxes` leaves."""
    tree = parse(text, QUOTE)
    left = beyond_boxes(tree, QUOTE)
    found = geometry(tree, QUOTE, boxes_max=boxes_max)
    found.check()
    assert len(found.boxes) <= max(1, boxes_max)
    inside = found.boxes.contains(rank_rows(batch))
    for event, within in zip(batch, inside, strict=True):
        expected = oracle.evaluate(text, event, PLAIN)
        assert within or not expected
        assert expected == (within and (found.residual is None or matches(found.residual, event, QUOTE)))
        assert expected == (within and matches(left, event, QUOTE))


@settings(max_examples=150, deadline=None)
@given(filters(), events())
def test_explain_tells_what_each_predicate_saw(text: str, event: dict[str, Any]) -> None:
    """Every leaf is listed once, in order, with the oracle's answer for it and the value that counted."""
    tree = parse(text, QUOTE)
    explained = explain(tree, event, QUOTE)
    assert [each.predicate for each in explained] == [predicate_text(p) for p in predicates(tree)]
    for each, predicate in zip(explained, predicates(tree), strict=True):
        assert each.holds == oracle.evaluate(each.predicate, event, PLAIN)
        quoted_name = predicate.attribute.replace('"', '""')
        absent = oracle.evaluate(f'NOT EXISTS "{quoted_name}"', event, PLAIN)
        assert (each.value is None) == absent


@given(leaves(), leaves(), st.lists(events(), min_size=4, max_size=12))
@settings(max_examples=150, deadline=None)
def test_text_is_asked_for_only_where_ranks_do_not_decide(one: str, other: str, batch: Events) -> None:
    """A batch looks at text only in rows whose ranks a predicate's spans hold, never if they are exact."""
    tree = parse(f"{one} AND {other}", QUOTE)
    points = rank_rows(batch)
    asked: list[tuple[str, int]] = []

    def text_of(name: str, rows: Ints) -> list[Any]:
        asked.extend((name, int(row)) for row in rows)
        return [batch[row].get(name) for row in rows]

    matches_batch(tree, points, QUOTE, text_of)
    open_rows = set()
    for predicate in predicates(tree):
        k = QUOTE.dimension[predicate.attribute]
        allowed = intervals(predicate, QUOTE.attributes[k])
        if not allowed.exact:
            held = Boxes.of([([low], [high]) for low, high in allowed.spans], d=1).contains(points[:, [k]])
            open_rows |= {(predicate.attribute, int(row)) for row in np.flatnonzero(held)}
    assert set(asked) <= open_rows
    if geometry(tree, QUOTE).exact:
        assert not asked or len(geometry(tree, QUOTE).boxes) == 0


def test_an_or_asks_for_text_only_in_rows_that_are_still_open() -> None:
    """Ints that another branch of an OR has settled, even a later one without text, are not looked at."""
    batch: Events = [{"symbol": "a long text", "price": price} for price in (1, 9, 1, 9)]
    asked: list[int] = []

    def text_of(name: str, rows: Ints) -> list[Any]:
        asked.extend(rows.tolist())
        return [batch[row].get(name) for row in rows]

    tree = parse("symbol = 'a long text' OR price < 5", QUOTE)
    assert matches_batch(tree, rank_rows(batch), QUOTE, text_of).all()
    assert sorted(asked) == [1, 3]


def test_an_evaluation_error_is_raised() -> None:
    """What fails inside an evaluation is not taken for an answer: the caller sees it."""

    class Broken(dict):  # type: ignore[type-arg]
        def get(self, *_: object) -> object:
            raise ValueError("a mapping that fails")

    holds = compile(parse("price < 5 OR price >= 5", QUOTE), QUOTE)
    with pytest.raises(ValueError, match="a mapping that fails"):
        holds(Broken())
    assert holds({"price": 7})


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_batches_of_any_size(rows: int) -> None:
    """No row, one row, many rows: an array of as many answers."""
    points = np.zeros((rows, QUOTE.d), dtype=np.int64)
    found = matches_batch(parse("volume = 0 OR price IS NULL", QUOTE), points, QUOTE)
    assert found.shape == (rows,)
    assert found.all()
