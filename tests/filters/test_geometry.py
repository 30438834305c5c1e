"""Boxes of filters: spans of predicates, the kernels under the regions, and what must never be expanded."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from state.filters import geometry as module
from state.filters.disjoint import disjoint_union, intersections, joined
from state.filters.geometry import BOXES_MAX, common, complement, conjunctions, geometry, intervals, united
from state.filters.grammar import parse
from state.filters.tree import And, Filter, Operator, Or, Predicate
from state.space.boxes import Boxes
from state.space.event_type import Attribute, EventType
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN, float_rank, rank, text_rank
from tests.filters.samples import QUOTE, leaves

SIDE = 5
"""Kernels are tried on the cells 0 .. SIDE-1 of each dimension, so that boxes touch and overlap a lot."""


@st.composite
def small_boxes(draw: st.DrawFn, d: int, most: int = 6) -> Boxes:
    corner = st.tuples(*[st.tuples(st.integers(0, SIDE - 1), st.integers(0, SIDE - 1))] * d)
    corners = draw(st.lists(corner, min_size=1, max_size=most))
    return Boxes.of([([min(s) for s in box], [max(s) for s in box]) for box in corners])


def cells(boxes: Boxes) -> list[tuple[int, ...]]:
    """Every cell of every box, as often as a box holds it."""
    return [
        cell
        for low, high in boxes
        for cell in itertools.product(*(range(int(a), int(b) + 1) for a, b in zip(low, high, strict=True)))
    ]


def after_joining(lows: np.ndarray, highs: np.ndarray) -> Boxes:
    count = joined(lows, highs)
    return Boxes(lows[:count], highs[:count])


def made_disjoint(boxes: Boxes, cap: int) -> Boxes | None:
    lows, highs, count = disjoint_union(boxes.lows, boxes.highs, cap)
    return None if count < 0 else Boxes(lows[:count], highs[:count])


def assert_disjoint(boxes: Boxes) -> None:
    boxes.check()
    assert len(cells(boxes)) == len(set(cells(boxes)))


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 3).flatmap(small_boxes))
def test_a_disjoint_union_has_the_same_cells_each_once(boxes: Boxes) -> None:
    """Nothing lost, nothing added, nothing twice; no more boxes than allowed or None."""
    found = made_disjoint(boxes, 1000)
    assert found is not None
    assert_disjoint(found)
    assert set(cells(found)) == set(cells(boxes))
    for cap in (0, 1, len(found) - 1, len(found)):
        capped = made_disjoint(boxes, cap)
        assert capped is None or len(capped) <= cap


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 3).flatmap(lambda d: st.tuples(small_boxes(d), small_boxes(d))))
def test_intersections_have_the_cells_of_both(pair: tuple[Boxes, Boxes]) -> None:
    """The cells of both sides and no others, disjoint because each side is; a count of -1 when they are too many."""
    one, other = (made_disjoint(boxes, 1000) for boxes in pair)
    assert one is not None
    assert other is not None
    sides = (one.lows, one.highs, other.lows, other.highs)
    lows, highs, count = intersections(*sides, 1000)
    found = Boxes(lows[:count], highs[:count])
    assert_disjoint(found)
    assert set(cells(found)) == set(cells(pair[0])) & set(cells(pair[1]))
    if count:
        assert intersections(*sides, count - 1)[2] < 0


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3).flatmap(small_boxes))
def test_joining_unites_boxes_that_touch(boxes: Boxes) -> None:
    """Single cells, joined: the same cells, each once, and no two boxes left that are one box together."""
    every = sorted(set(cells(boxes)))
    left = after_joining(np.array(every, dtype=np.int64), np.array(every, dtype=np.int64))
    assert_disjoint(left)
    assert sorted(cells(left)) == every
    for i, j in itertools.combinations(range(len(left)), 2):
        pair = Boxes(left.lows[[i, j]], left.highs[[i, j]])
        assert len(cells(pair.bounding())) > len(cells(pair))


def test_kernels_reach_the_ends_of_int64() -> None:
    """Cutting at the lowest and highest rank neither overflows nor loses the ends."""
    whole, middle = Boxes.everything(2), Boxes.of([([0, ABSENT], [0, PRESENT_MAX])])
    both = middle.joined(whole)
    assert made_disjoint(both, 10) == whole
    halves = Boxes.of([([ABSENT, 5], [4, 5]), ([5, 5], [PRESENT_MAX, 5])])
    assert after_joining(halves.lows, halves.highs) == Boxes.of([([ABSENT, 5], [PRESENT_MAX, 5])])


# --- spans ----------------------------------------------------------------------------------------

spans = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted).map(tuple), max_size=5)


def members(found: object) -> set[int]:
    assert isinstance(found, tuple)
    for (_, high), (low, _) in itertools.pairwise(found):
        assert high + 1 < low, "sorted, disjoint, not touching"
    return {i for low, high in found for i in range(low, high + 1)}


@given(spans, spans)
@settings(max_examples=300, deadline=None)
def test_spans_are_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    """Union, intersection and complement of spans are those of their members, in canonical form."""
    a, b = united(one), united(other)
    assert members(a) == {i for low, high in one for i in range(low, high + 1)}
    assert members(common(a, b)) == members(a) & members(b)
    assert members(complement(a, (0, 9))) == set(range(10)) - members(a)


@settings(max_examples=200, deadline=None)
@given(leaves())
def test_a_predicate_and_its_opposite_share_what_is_present(text: str) -> None:
    """Together they span all that is present and nothing absent; exact ones share nothing."""
    predicate = parse(text, QUOTE)
    assert isinstance(predicate, Predicate)
    attribute = QUOTE.attribute(predicate.attribute)
    if predicate.operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        return
    one, other = intervals(predicate, attribute), intervals(predicate.negated(), attribute)
    everything = intervals(Predicate(predicate.attribute, Operator.IS_NOT_NULL), attribute)
    assert united(one.spans + other.spans) == everything.spans
    assert one.exact == other.exact
    if one.exact:
        assert common(one.spans, other.spans) == ()


@pytest.mark.parametrize(
    ("text", "spans", "exact"),
    [
        ("volume < 1.5", [(PRESENT_MIN, 1)], True),
        ("volume >= 1.5", [(2, PRESENT_MAX)], True),
        ("volume = 1.5", [], True),
        ("volume != 1.5", [(PRESENT_MIN, PRESENT_MAX)], True),
        ("volume > 9223372036854775807", [], True),
        ("volume < 1" + "0" * 30, [(PRESENT_MIN, PRESENT_MAX)], True),
        ("volume IN (1, 2, 3, 5)", [(1, 3), (5, 5)], True),
        ("volume BETWEEN 9 AND 5", [], True),
        ("volume IS NULL", [(ABSENT, ABSENT)], True),
        ("price = 9007199254740993", [], True),
        ("price >= 0.1", [(float_rank(0.1), PRESENT_MAX)], True),
        ("side > 'sell'", [(1, 2)], True),
        ("side LIKE '%l%'", [(0, 0)], True),
        ("halted != true", [(0, 0)], True),
        ("at = '1970-01-01T00:00:01Z'", [(10**6, 10**6)], True),
        ("symbol = 'abcdefg'", [(text_rank("abcdefg"),) * 2], True),
        ("symbol = 'abcdefgh'", [(text_rank("abcdefgh"),) * 2], False),
        ("symbol != 'abcdefgh'", [(PRESENT_MIN, PRESENT_MAX)], False),
        ("symbol < 'abcdefgh'", [(PRESENT_MIN, text_rank("abcdefgh"))], False),
        ("symbol < ''", [], True),
        ("symbol LIKE 'abcdefg%'", [(text_rank("abcdefg"), text_rank("abcdefgh"))], True),
        ("symbol LIKE 'abcdefgh%'", [(text_rank("abcdefgh"),) * 2], False),
        ("symbol LIKE 'abcdefg_'", [(text_rank("abcdefg"), text_rank("abcdefgh"))], False),
        ("symbol LIKE '%'", [(PRESENT_MIN, PRESENT_MAX)], True),
        ("symbol LIKE 'abc'", [(text_rank("abc"),) * 2], True),
    ],
)
def test_spans_of_predicates(text: str, spans: list[tuple[int, int]], exact: bool) -> None:
    """The spans of these predicates, worked out by hand."""
    predicate = parse(text, QUOTE)
    assert isinstance(predicate, Predicate)
    found = intervals(predicate, QUOTE.attribute(predicate.attribute))
    assert (list(found.spans), found.exact) == (spans, exact)


# --- filters --------------------------------------------------------------------------------------


NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-(2**70), 2**70), st.floats(-4, 4), st.floats(allow_nan=False))
HOLDS = {
    Operator.LT: lambda x, a, b: x < a,
    Operator.LE: lambda x, a, b: x <= a,
    Operator.GT: lambda x, a, b: x > a,
    Operator.GE: lambda x, a, b: x >= a,
    Operator.BETWEEN: lambda x, a, b: a <= x <= b,
    Operator.NOT_BETWEEN: lambda x, a, b: not a <= x <= b,
}


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(list(HOLDS)), st.sampled_from(["int", "float"]), NUMBERS, NUMBERS, NUMBERS)
def test_orders_of_numbers_are_exact(operator: Operator, kind: str, value: float, low: float, high: float) -> None:
    """The spans of an order hold exactly the values that compare so as rational numbers, and nothing absent."""
    assume(all(math.isfinite(x) for x in (low, high)))
    attribute = Attribute("a", kind)  # type: ignore[arg-type]
    values = (low, high) if "BETWEEN" in operator.value else (low,)
    spans = intervals(Predicate("a", operator, values), attribute).spans
    assert all(PRESENT_MIN <= first <= last <= PRESENT_MAX for first, last in spans)
    place = rank(attribute, value)
    assume(place != ABSENT)
    held = Fraction(float(value) if kind == "float" else value)
    assert any(a <= place <= b for a, b in spans) == HOLDS[operator](held, Fraction(low), Fraction(high))


@pytest.mark.parametrize(
    "text",
    [
        "price < 5 AND price > 9",
        "volume > 1 AND volume < 2",
        "volume BETWEEN 9 AND 5",
        "price IS NULL AND price < 5",
        "price IS NULL AND price IS NOT NULL",
        "(price < 5 OR volume = 1) AND price > 9 AND volume != 1",
        "halted = true AND halted = false",
        "symbol = 'IBM' AND symbol LIKE 'S%'",
        "symbol LIKE 'abcdefgh%' AND symbol < 'abc'",
        " AND ".join(f"(volume = {i} OR price = {i})" for i in range(12)) + " AND volume < -5 AND price < -5",
    ],
)
def test_contradictions_have_no_boxes(text: str) -> None:
    """What no event can satisfy takes no box, is exact, and leaves nothing to check."""
    found = geometry(parse(text, QUOTE), QUOTE)
    assert (len(found.boxes), found.exact, found.residual) == (0, True, None)


def test_only_attributes_with_a_predicate_are_bounded() -> None:
    """An attribute without a predicate spans everything, absent included; with one only what is present."""
    found = geometry(parse("volume >= 3", QUOTE), QUOTE)
    expected = Boxes.everything(QUOTE.d)
    expected.lows[0, QUOTE.dimension["volume"]] = 3
    assert found.boxes == expected
    assert geometry(parse("TRUE", QUOTE), QUOTE).boxes == Boxes.everything(QUOTE.d)


def test_the_residual_of_a_conjunction_is_what_boxes_do_not_decide() -> None:
    """Only the predicates on long text are left to check."""
    tree = parse("volume = 1 AND symbol = 'a long text' AND (price < 5 OR side = 'buy')", QUOTE)
    found = geometry(tree, QUOTE)
    assert found.residual == Predicate("symbol", Operator.EQ, ("a long text",))
    assert len(geometry(parse("volume = 1 AND symbol = 'IBM'", QUOTE), QUOTE).boxes) == 1


WIDE = EventType("wide", tuple(Attribute(f"a{i}", "int") for i in range(64)))


def either(i: int) -> Filter:
    return Or((Predicate(f"a{2 * i}", Operator.EQ, (0,)), Predicate(f"a{2 * i + 1}", Operator.EQ, (0,))))


@pytest.mark.parametrize("n", [1, 5, 7, 8, 20, 32])
def test_conjunctions_are_counted_and_not_expanded(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """n two-way ORs have 2^n conjunctions: above 128 no region is built, the bounding box stands in."""
    built = 0
    original = module.boxes_of

    def counting(*arguments: object) -> object:
        nonlocal built
        built += 1
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "boxes_of", counting)
    tree = And((Predicate("a0", Operator.GE, (0,)), *map(either, range(n))))
    assert conjunctions(tree) == 2**n
    found = geometry(tree, WIDE)
    found.check()
    if 2**n > 128:
        assert built == 0
        assert found.residual == tree
        assert found.boxes.lows[0, :2].tolist() == [0, ABSENT]
        assert len(found.boxes) == 1
    else:
        assert built == 1
        assert found.exact == (len(found.boxes) > 1)


@pytest.mark.parametrize("attributes", [1, 2, 3, 5])
def test_boxes_are_counted_and_not_expanded(attributes: int) -> None:
    """n values excluded on each of several attributes are (n+1)^attributes boxes, or one above the cap."""
    excluded = tuple(range(0, 30, 2))
    tree = And(tuple(Predicate(f"a{i}", Operator.NOT_IN, excluded) for i in range(attributes)))
    found = geometry(tree, WIDE)
    found.check()
    total = (len(excluded) + 1) ** attributes
    assert len(found.boxes) == (total if total <= BOXES_MAX else 1)
    assert found.exact == (total <= BOXES_MAX)


def test_the_same_filter_gives_the_same_boxes() -> None:
    """Deterministic: corners in the same order every time, as a replay needs."""
    tree = parse("price < 5 OR volume IN (1, 3, 5) AND NOT (side = 'buy' OR halted = true) OR price > 3", QUOTE)
    first = geometry(tree, QUOTE)
    assert all(geometry(tree, QUOTE).boxes == first.boxes for _ in range(3))
    assert first.boxes.lows.dtype == np.int64
    assert first.boxes.lows.flags.c_contiguous
