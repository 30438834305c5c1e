"""The seven examples of [BADV06], figure 1: subscription S1 and advertisement A1.

    S1  title AND ending < 24 AND ((new AND price < 25) OR (used AND price < 15))        p1 to p6
    A1  ending <= 168 AND ((price > 20 AND new) OR (price > 7.5 AND used))                n1 to n9

           n9 AND                        n1 ending    n2 price > 20    n3 new    n4 price > 7.5    n5 used
          /     \\                        (the figure is not in the text; the examples fix which leaf violates what)
        n1     n8 OR
              /     \\
          n6 AND   n7 AND
           / \\      / \\
         n2  n3   n4  n5

Numbers are the paper's, to 10^-5, but for two misprints of example 7: the average rank of A4 is 0.01114 (printed
0.01152), and its degradation 0.28 (printed 0.25).
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from benchmarks.peers.tree_overlap import OverlapIndex
from state.advertisements.normal import Leaf
from state.advertisements.queue import DegradationQueue, prunings
from state.advertisements.ranking import Rank, Ranking, degradation
from state.filters.evaluate import matches
from state.filters.grammar import parse
from state.filters.tree import And, Filter, Or, Predicate, conjunction, predicates
from state.space.event_type import Attribute, EventType

BOOK = EventType(
    "book",
    (
        Attribute("title", "text"),
        Attribute("ending", "int"),
        Attribute("condition", "category", values=("used", "new")),
        Attribute("price", "float"),
    ),
)
S1 = parse(
    "title = 'Harry Potter' AND ending < 24 AND "
    "((condition = 'new' AND price < 25) OR (condition = 'used' AND price < 15))",
    BOOK,
)
A1 = parse(
    "ending <= 168 AND ((price > 20 AND condition = 'new') OR (price > 7.5 AND condition = 'used'))",
    BOOK,
)
P1, P2, P3, P4, P5, P6 = predicates(S1)
N1, N2, N3, N4, N5 = predicates(A1)
N6, N7 = And((N2, N3)), And((N4, N5))
N8 = Or((N6, N7))


@pytest.fixture
def index() -> OverlapIndex:
    index = OverlapIndex(BOOK)
    index.add_subscription("S1", S1)
    return index


def violating(index: OverlapIndex, node: Filter) -> list[set[Predicate]]:
    """P'_vio of a node, as sets of S1's predicates."""
    named = {index.normal.leaf(p): p for p in (P1, P2, P3, P4, P5, P6)}
    return [{named[leaf] for leaf in found} for found in index.subscriptions.violating(index.normal(node))]


def test_figure_1() -> None:
    """A1 is n9 with the children n1 and n8; e1 of §3.1 satisfies both filters."""
    assert conjunction((N1, N8)) == A1
    e1 = {"title": "Harry Potter", "ending": 6, "condition": "new", "price": 21.0}
    assert matches(S1, e1, BOOK)
    assert matches(A1, e1, BOOK)


@pytest.mark.parametrize(("leaf", "expected"), [(N1, set()), (N2, {P6}), (N3, {P5}), (N4, set()), (N5, {P3})])
def test_example_1(index: OverlapIndex, leaf: Predicate, expected: set[Predicate]) -> None:
    """P_vio of the leaves: n2 is violated by p6, n3 by p5, n5 by p3."""
    assert violating(index, leaf) == [expected]


def test_example_2(index: OverlapIndex) -> None:
    """P'_vio: n6 {{p5, p6}}, n7 {{p3}}, n8 and n9 both sets."""
    assert violating(index, N6) == [{P5, P6}]
    assert violating(index, N7) == [{P3}]
    assert violating(index, N8) == [{P5, P6}, {P3}]
    assert violating(index, A1) == [{P5, P6}, {P3}]


def test_example_3(index: OverlapIndex) -> None:
    """|P| = 6 and |P_min| = 4: S1 is a candidate for both sets, 6 >= 2 + 4 and 6 >= 1 + 4, and overlaps."""
    stored = index.subscriptions["S1"]
    assert (stored.shape.predicates, stored.shape.minimum) == (6, 4)
    assert index.subscriptions.candidates(index.normal(A1)) == [1, 1]
    assert index.overlapping_subscriptions(A1) == ["S1"]
    index.add_advertisement("A1", A1, "b2")
    assert index.overlapping_advertisements(S1, "all") == {"b2": ["A1"]}


@pytest.fixture
def ranking(index: OverlapIndex) -> Ranking:
    counted = {index.normal.leaf(p): n for p, n in ((P3, 500), (P5, 1500), (P6, 2000))}

    def matches(leaf: Leaf) -> int:
        return counted.get(leaf, 0)

    return Ranking(index.subscriptions.predicates, matches, index.normal.leaf)


def near(found: Iterable[float], *expected: float) -> bool:
    return list(found) == pytest.approx(list(expected), abs=1e-5)


def test_example_4(ranking: Ranking) -> None:
    """The overlapping ranks of the leaves."""
    assert near(map(ranking.of_leaf, (N1, N2, N3, N4, N5)), 0, 0.00373, 0.00430, 0, 0.00745)


def test_example_5(ranking: Ranking) -> None:
    """The ranks of the conjunctions n6 and n7."""
    assert near(ranking(N6), 0.00430, 0.00801, 0.00803)
    assert near(ranking(N7), 0.00745, 0.00745, 0.00745)


def test_example_6(ranking: Ranking) -> None:
    """The ranks of the disjunction n8 and of the root n9."""
    assert near(ranking(N8), 0.00430, 0.01540, 0.01548)
    assert near(ranking(A1), 0.00430, 0.01540, 0.01548)


def test_example_7(ranking: Ranking) -> None:
    """Removing n1 costs nothing, n5 everything, n3 in between; A4's average is 0.01114, not 0.01152."""
    a2, a3, a4 = N8, conjunction((N1, Or((N6, N4)))), conjunction((N1, Or((N2, N7))))
    assert {a2, a3, a4} <= set(prunings(A1))
    whole = ranking(A1)
    assert degradation(whole, ranking(a2)) == 0
    assert near(ranking(a3), 0, 0.00801, 0.00803)
    assert degradation(whole, ranking(a3)) == pytest.approx(1.0)
    assert near(ranking(a4), 0.00373, 0.01114, 0.01118)
    shares = [(b - a) / b for b, a in zip(whole, ranking(a4), strict=True)]
    assert shares == pytest.approx([0.13, 0.28, 0.28], abs=0.005)
    assert degradation(whole, ranking(a4)) == pytest.approx(0.28, abs=0.005)


def test_example_7_in_the_queue(ranking: Ranking) -> None:
    """The queue prunes n1 first, then n4, which violates nothing either, then n2, the least of the rest."""

    def harm(before: Filter):  # type: ignore[no-untyped-def]
        rank = ranking(before)
        return lambda after: degradation(rank, ranking(after))

    queue = DegradationQueue(harm)
    queue.add("A1", A1)
    assert queue.best() == (0, "A1", N8)
    queue.prune("A1")
    assert queue.best() == (0, "A1", Or((N6, N5)))
    queue.prune("A1")
    least, _, pruned = queue.best() or (0.0, "", A1)
    assert pruned == Or((N3, N5))
    assert least == pytest.approx(0.24, abs=0.005)
    queue.prune("A1")
    assert queue.best() is None
    queue.check()


def test_zero_rank_degrades_by_nothing() -> None:
    """A rank of 0 cannot fall: 0/0 is 0 where the paper would divide by zero."""
    assert degradation(Rank(0, 0.5, 1), Rank(0, 0.25, 1)) == 0.5
    assert degradation(Rank(0, 0, 0), Rank(0, 0, 0)) == 0
