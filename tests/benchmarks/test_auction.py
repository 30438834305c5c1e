"""The auction workload against the properties that [BADV06] Table 2 gives, its two misprints corrected."""

from __future__ import annotations

from itertools import islice

import pytest

from benchmarks.workloads.auction import (
    ADVERTISEMENT_CLASSES,
    AUCTION,
    AUTHORS,
    CATEGORIES,
    SUBSCRIPTION_CLASSES,
    TITLES,
    Auction,
)
from state.filters.grammar import parse
from state.filters.printing import to_text
from state.filters.tree import And, Filter, Or, predicates

TABLE_2 = {
    # class: predicates, conjunctive operators, disjunctive operators, conjunctions, predicates of each
    "A1": (5, 3, 1, 2, 3),
    "A2": (5, 3, 1, 2, 3),
    "A3": (5, 3, 1, 2, 3),
    "A4": (5, 3, 1, 2, 3),
    "A5": (11, 7, 3, 4, 4),
    "A6": (4, 2, 1, 2, 2),
    "A7": (4, 2, 1, 2, 2),
    "A8": (10, 6, 3, 4, 3),  # printed: 2 disjunctive operators
    "S1": (6, 3, 1, 2, 4),
    "S2": (12, 7, 3, 4, 5),  # printed: 10 and 2 operators, more than 12 predicates can have
    "S3": (7, 3, 3, 6, 3),
}


def drawn(auction: Auction, name: str) -> Filter:
    return auction.advertisement(name) if name[0] == "A" else auction.subscription(name)


def operators(filter: Filter, kind: type) -> int:
    if not isinstance(filter, And | Or):
        return 0
    return isinstance(filter, kind) + sum(operators(child, kind) for child in filter.children)


def conjunctions(filter: Filter) -> list[int]:
    """The numbers of predicates of the conjunctions of the disjunctive normal form, written out."""
    if isinstance(filter, Or):
        return [n for child in filter.children for n in conjunctions(child)]
    if isinstance(filter, And):
        sums = [0]
        for child in filter.children:
            sums = [a + b for a in sums for b in conjunctions(child)]
        return sums
    return [1]


@pytest.mark.parametrize("name", list(TABLE_2))
def test_classes_have_the_properties_of_table_2(name: str) -> None:
    """Every filter of a class has its numbers of predicates, operators, conjunctions and predicates of each."""
    auction = Auction(seed=3)
    for _ in range(20):
        filter = drawn(auction, name)
        each = conjunctions(filter)
        assert set(each) == {TABLE_2[name][4]}
        found = len(list(predicates(filter))), operators(filter, And), operators(filter, Or), len(each)
        assert found == TABLE_2[name][:4]


@pytest.mark.parametrize("name", list(TABLE_2))
def test_filters_are_filters_of_the_language(name: str) -> None:
    """Printed and read again, a filter is the same tree: its values fit the event type."""
    auction = Auction(seed=4)
    for _ in range(20):
        filter = drawn(auction, name)
        assert parse(to_text(filter), AUCTION) == filter


def test_a_seed_gives_the_same_workload() -> None:
    """Two generators of one seed agree on everything, two seeds do not."""

    def workload(seed: int) -> list[object]:
        auction = Auction(seed)
        return [*auction.advertisements(30), *auction.subscriptions(30), *auction.publications(30)]

    assert workload(1) == workload(1)
    assert workload(1) != workload(2)


def test_all_classes_are_drawn_alike() -> None:
    """Of 8,000 advertisements each class has 1,000, give or take 10 %; attributes tell the classes apart."""
    auction = Auction(seed=6)
    kinds: dict[str, int] = {}
    for filter in auction.advertisements(8000):
        kind = ",".join(sorted({p.attribute for p in predicates(filter)})) + str(len(list(predicates(filter))))
        kinds[kind] = kinds.get(kind, 0) + 1
    assert len(kinds) == len(ADVERTISEMENT_CLASSES)
    assert all(900 < n < 1100 for n in kinds.values())
    assert len(SUBSCRIPTION_CLASSES) == 3


def test_lower_prices_go_to_used_and_softcover() -> None:
    """In every filter with prices per condition or format they rise from used to new and from soft to hard."""
    auction = Auction(seed=8)
    for name in ("A3", "A4", "A5", "A6", "A7", "A8", "S1", "S2"):
        for _ in range(20):
            prices = [p.values[0] for p in predicates(drawn(auction, name)) if p.attribute == "price"]
            if len(prices) == 4:
                prices = [prices[0], prices[2], prices[1], prices[3]]  # written by format, ordered by condition
            assert prices == sorted(prices)  # type: ignore[type-var]


def test_publications_carry_the_attributes() -> None:
    """Every publication has all attributes but `special`, which most books lack; values are distinct ones."""
    names = {attribute.name for attribute in AUCTION.attributes}
    offers = list(islice(Auction(seed=9).publications(300), 300))
    assert all(names - {"special"} <= set(offer) <= names for offer in offers)
    assert 0 < sum("special" in offer for offer in offers) < 100
    assert len(set(TITLES)) == 4000
    assert len(set(AUTHORS)) == 1000
    assert len(set(CATEGORIES)) == 24
