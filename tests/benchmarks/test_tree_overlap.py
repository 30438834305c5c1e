"""Overlap of Boolean filters against every event of a small space, as pairs and through the index."""

from __future__ import annotations

import pytest
from hypothesis import event as noted
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from benchmarks.peers.tree_overlap import OverlapIndex
from state.advertisements import filter_index as index_module
from state.advertisements import rows
from state.filters.grammar import parse
from state.space.event_type import Attribute, EventType
from tests import oracle
from tests.advertisements.witnesses import PLAIN, TYPE, VALUES, Grid, conjunctions, filters, leaves

GRID = Grid()
like_leaves = leaves(like=True)


def claimed(one: str, other: str) -> bool:
    """What the pair test says; both orders, and the index in both directions, must say it."""
    index = OverlapIndex(TYPE)
    a, b = parse(one, TYPE), parse(other, TYPE)
    answer = index.overlaps(a, b)
    assert index.overlaps(b, a) == answer
    index.add_advertisement("a", a, "n")
    index.add_subscription("b", b)
    assert index.overlapping_advertisements(b, "all") == ({"n": ["a"]} if answer else {})
    assert index.overlapping_subscriptions(a) == (["b"] if answer else [])
    return answer


@settings(max_examples=200, deadline=None)
@given(conjunctions(), conjunctions())
def test_conjunctions_without_like_are_exact(one: str, other: str) -> None:
    """Two conjunctions overlap exactly if some event satisfies both, however often they restrict an attribute."""
    assert claimed(one, other) == GRID.overlap(one, other)


@settings(max_examples=200, deadline=None)
@given(filters(), filters())
def test_trees_without_like_are_exact(one: str, other: str) -> None:
    """The same for any two trees of this size: all are within the limits of the normal form."""
    expected = GRID.overlap(one, other)
    noted(f"overlap: {expected}")
    assert claimed(one, other) == expected


@settings(max_examples=200, deadline=None)
@given(filters(like_leaves, max_leaves=5), filters(like_leaves, max_leaves=5))
def test_with_like_no_overlap_is_lost(one: str, other: str) -> None:
    """Where an event satisfies both, "overlap" is said, LIKE or not; the rest is counted."""
    answer = claimed(one, other)
    if GRID.overlap(one, other):
        assert answer
    else:
        noted(f"claimed without a witness: {answer}")


@pytest.mark.parametrize("pattern", ["a_", "a_%", "%b", "a%b"])
@pytest.mark.parametrize("ordered", ["<= 'a'", "BETWEEN 'a' AND 'a'", "IN ('a', 'b')", "< 'b'", "<= 'ab'"])
def test_index_and_pairs_agree_where_one_text_decides(pattern: str, ordered: str) -> None:
    """What a pattern and a comparison share may be one text: it decides, through the index as for the pair."""
    one, other = f"t LIKE '{pattern}'", f"t {ordered}"
    answer = claimed(one, other)
    assert answer or not GRID.overlap(one, other)
    assert not (answer and ordered in ("<= 'a'", "BETWEEN 'a' AND 'a'") and pattern in ("a_", "a_%", "a%b"))


CLOSED = st.builds(
    "(t LIKE '{}' AND (t <= '{}'{}))".format,
    st.sampled_from(["_", "a_", "__%", "%b"]),
    st.sampled_from(["a", "ab", "b"]),
    st.sampled_from(["", " OR t = 'b'", " OR t > 'b'", " OR t = 'abcdefgh'"]),
)
"""Patterns whose span ends with a text that it holds."""
PLAIN_TEXT = filters(leaves(names=("t",)), max_leaves=2) | st.sampled_from(["t LIKE 'ab%'", "t >= 'ab'", "t LIKE 'a%'"])


@settings(max_examples=150, deadline=None)
@given(CLOSED, PLAIN_TEXT | CLOSED)
def test_index_and_pairs_agree_on_patterns_that_end_with_a_text(one: str, other: str) -> None:
    """`t LIKE '_' AND t <= 'ab'` and `t LIKE 'ab%'` share at most 'ab', which is no single letter: no overlap, said
    whichever of them is stored."""
    answers = claimed(one, other), claimed(other, one)
    assert answers[0] == answers[1]
    assert answers[0] or not GRID.overlap(one, other)


ors = st.lists(leaves(), min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(parts)})")


@settings(max_examples=30, deadline=None)
@given(st.lists(ors, min_size=8, max_size=14).map(" AND ".join), filters())
def test_beyond_the_limit_no_overlap_is_lost(one: str, other: str) -> None:
    """More than 128 conjunctions are widened: both directions still agree, and no overlap is lost."""
    answer = claimed(one, other)
    assert answer or not GRID.overlap(one, other)


WIDE = EventType("wide", tuple(Attribute(f"a{i}", "int") for i in range(4)))


def test_more_conjunctions_than_a_word_has_bits() -> None:
    """A filter of 100 conjunctions is asked 62 at a time; each finds the one advertisement that only it overlaps."""
    index = OverlapIndex(WIDE)
    for i in range(11):
        for j in range(11):
            filter = parse(f"a0 = {i} AND a1 = {i} AND a2 = {j} AND a3 = {j}", WIDE)
            index.add_advertisement(f"{i}/{j}", filter, f"n{i}")
    one, other = (" OR ".join(f"(a{k} = {i} AND a{k + 1} = {i})" for i in range(10)) for k in (0, 2))
    asked = parse(f"({one}) AND ({other})", WIDE)
    assert len(index.normal(asked).shape.conjunctions) == 100
    found = index.overlapping_advertisements(asked, "all")
    assert found == {f"n{i}": [f"{i}/{j}" for j in range(10)] for i in range(10)}
    assert index.overlapping_advertisements(asked) == {f"n{i}": [f"{i}/0"] for i in range(10)}
    last = parse("a0 = 9 AND a1 = 9 AND a2 = 9 AND a3 = 9", WIDE)
    index.add_subscription("s", asked)
    assert index.overlapping_subscriptions(last) == ["s"]


IMPRECISE = EventType("imprecise", (Attribute("n", "int", imprecise="possible"), TYPE.attributes[2]))
IMPRECISE_PLAIN = {"n": {"kind": "int", "imprecise": "possible"}, "c": PLAIN["c"]}
EVENTS = [
    {"n": n, "c": c}
    for n in [*VALUES["n"], *({"min": low, "max": high} for low in range(-1, 4) for high in range(low + 1, 5))]
    for c in VALUES["c"]
]
two_leaves = leaves(names=("n", "c"))


@settings(max_examples=50, deadline=None)
@given(filters(two_leaves, max_leaves=4), filters(two_leaves, max_leaves=4))
def test_imprecise_events_lose_no_overlap(one: str, other: str) -> None:
    """An event whose interval touches both filters satisfies both, though no value may: that is an overlap."""
    witness = any(
        oracle.evaluate(one, event, IMPRECISE_PLAIN) and oracle.evaluate(other, event, IMPRECISE_PLAIN)
        for event in EVENTS
    )
    answer = OverlapIndex(IMPRECISE).overlaps(parse(one, IMPRECISE), parse(other, IMPRECISE))
    assert answer or not witness
    noted(f"claimed without a witness: {answer and not witness}")


def test_an_interval_reaches_two_filters() -> None:
    """`n = 1` and `n = 3` share no value, but an event of 0 to 4 satisfies both: the subscription must travel."""
    index = OverlapIndex(IMPRECISE)
    one, other = parse("n = 1 AND c = 'low'", IMPRECISE), parse("n = 3", IMPRECISE)
    assert index.overlaps(one, other)
    assert not index.overlaps(one, parse("n = 3 AND c = 'top'", IMPRECISE))


def test_absent_attributes_overlap_only_where_absence_is_allowed() -> None:
    """An advertisement of events without a title overlaps what asks nothing of the title, or its absence."""
    absent, any_title = "t IS NULL AND n = 1", "n = 1"
    assert claimed(absent, any_title)
    assert claimed(absent, "t IS NULL OR t = 'a'")
    assert not claimed(absent, "t = 'a'")
    assert not claimed(absent, "NOT (t = 'a')")
    assert not claimed(absent, "t IS NOT NULL")


def test_filters_that_nothing_satisfies_overlap_nothing() -> None:
    """A contradiction is stored, answered with nothing, and can be removed."""
    index = OverlapIndex(TYPE)
    index.add_advertisement("a", parse("n > 3 AND n < 2", TYPE), "x")
    assert index.overlapping_advertisements(parse("TRUE", TYPE)) == {}
    index.check()
    assert index.remove_advertisement("a")
    assert not index.remove_advertisement("a")


def test_first_looks_at_few_trees() -> None:
    """First evaluates a tree per neighbour when the first one overlaps; All evaluates every one."""
    index = OverlapIndex(TYPE)
    for i in range(100):
        index.add_advertisement(f"a{i}", parse(f"n >= {i % 4}", TYPE), f"b{i % 2}")
    asked = parse("n >= 0 AND t = 'a'", TYPE)
    assert index.overlapping_advertisements(asked) == {"b0": ["a0"], "b1": ["a1"]}
    assert index.advertisements.evaluated == 2
    index.overlapping_advertisements(asked, "all")
    assert index.advertisements.evaluated == 102


def test_a_group_that_shrank_is_packed() -> None:
    """After most of many advertisements left, questions look at few rows, and the rest is still found."""
    index = OverlapIndex(TYPE)
    for i in range(400):
        index.add_advertisement(f"a{i}", parse(f"n = {i}", TYPE), "b")
    for i in range(390):
        index.remove_advertisement(f"a{i}")
    index.check()
    assert index.advertisements.groups["b"].rows.size < 100
    assert index.overlapping_advertisements(parse("n > 393", TYPE), "all") == {"b": [f"a{i}" for i in range(394, 400)]}


SMALL = st.sampled_from(["a1", "a2", "a3", "a4", "a5", "a6"])


class IndexAgainstDict(RuleBasedStateMachine):
    """Both sides under random additions, replacements and removals, against asking every pair."""

    def __init__(self) -> None:
        super().__init__()
        self.minima = rows.GARBAGE_MIN, index_module.SPARSE_MIN
        rows.GARBAGE_MIN, index_module.SPARSE_MIN = 8, 3
        self.index = OverlapIndex(TYPE)
        self.advertisements: dict[str, tuple[str, str]] = {}
        self.subscriptions: dict[str, str] = {}

    def teardown(self) -> None:
        rows.GARBAGE_MIN, index_module.SPARSE_MIN = self.minima

    @rule(id=SMALL, text=filters(max_leaves=5), neighbour=st.sampled_from(["b1", "b2", "b3"]))
    def advertise(self, id: str, text: str, neighbour: str) -> None:
        self.index.add_advertisement(id, parse(text, TYPE), neighbour)
        self.advertisements[id] = text, neighbour

    @rule(id=SMALL)
    def unadvertise(self, id: str) -> None:
        known = self.advertisements.pop(id, None) is not None
        assert self.index.remove_advertisement(id) == known

    @rule(id=SMALL, text=filters(max_leaves=5))
    def subscribe(self, id: str, text: str) -> None:
        self.index.add_subscription(id, parse(text, TYPE))
        self.subscriptions[id] = text

    @rule(id=SMALL)
    def unsubscribe(self, id: str) -> None:
        known = self.subscriptions.pop(id, None) is not None
        assert self.index.remove_subscription(id) == known

    @rule(text=filters(max_leaves=5))
    def ask(self, text: str) -> None:
        expected: dict[str, set[str]] = {}
        for id, (other, neighbour) in self.advertisements.items():
            if GRID.overlap(text, other):
                expected.setdefault(neighbour, set()).add(id)
        tree = parse(text, TYPE)
        found = self.index.overlapping_advertisements(tree, "all")
        assert {neighbour: set(ids) for neighbour, ids in found.items()} == expected
        first = self.index.overlapping_advertisements(tree, "first")
        assert {neighbour: ids[:1] for neighbour, ids in found.items()} == first
        overlapped = {id for id, other in self.subscriptions.items() if GRID.overlap(text, other)}
        assert set(self.index.overlapping_subscriptions(tree)) == overlapped

    @invariant()
    def sound(self) -> None:
        self.index.check()
        stats = self.index.stats()
        assert stats["advertisements_filters"] == len(self.advertisements)
        assert stats["subscriptions_filters"] == len(self.subscriptions)


TestIndex = IndexAgainstDict.TestCase
TestIndex.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
