"""Pruning: it only widens, stays in its budget, can be undone, and follows what it is measured by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from benchmarks.peers.index_pruning import AdvertisementPruning, SubscriptionPruning
from benchmarks.peers.tree_overlap import OverlapIndex
from benchmarks.workloads.auction import AUCTION, Auction
from state.advertisements.normal import Normaliser
from state.advertisements.observations import Observations
from state.advertisements.queue import DegradationQueue, prunings, size
from state.filters.grammar import parse
from state.filters.printing import to_text
from state.filters.tree import TRUE, And, Filter, Or, predicates
from tests.advertisements.witnesses import TYPE, VALUES, Grid, filters

GRID = Grid()
NORMAL = Normaliser(TYPE)


def conjunctive_children(filter: Filter) -> int:
    """How many prunings a filter has, counted by hand: the children of its conjunctions."""
    if not isinstance(filter, And | Or):
        return 0
    own = len(filter.children) if isinstance(filter, And) and len(filter.children) > 1 else 0
    return own + sum(map(conjunctive_children, filter.children))


@settings(max_examples=200, deadline=None)
@given(filters())
def test_every_pruning_widens_and_leaves_a_predicate(text: str) -> None:
    """Each child of a conjunction can go, nothing else; what is left holds wherever the filter did, and is not TRUE."""
    filter = parse(text, TYPE)
    found = list(prunings(filter))
    assert len(found) == conjunctive_children(filter)
    before = GRID.truth(text)
    for pruned in found:
        assert pruned != TRUE
        assert size(pruned) < size(filter)
        assert set(predicates(pruned)) <= set(predicates(filter))
        assert not (before & ~GRID.truth(to_text(pruned))).any()


def test_children_of_disjunctions_and_roots_stay() -> None:
    """A predicate, and an OR of predicates, have no pruning."""
    assert list(prunings(parse("n = 1", TYPE))) == []
    assert list(prunings(parse("n = 1 OR b = true", TYPE))) == []
    assert list(prunings(TRUE)) == []


# --- the queue ----------------------------------------------------------------------------------------------------


def removed_size(before: Filter) -> Callable[[Filter], float]:
    """A harm that is easy to foresee: the sum of what the removed predicates' texts are long."""
    length = len(to_text(before))
    return lambda after: float(length - len(to_text(after)))


class QueueAgainstDict(RuleBasedStateMachine):
    """The queue's best and costliest are those that looking at all filters finds."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = DegradationQueue(removed_size)
        self.model: dict[str, list[Filter]] = {}

    @rule(id=st.sampled_from("abcd"), text=filters(max_leaves=6))
    def add(self, id: str, text: str) -> None:
        self.queue.add(id, parse(text, TYPE))
        self.model[id] = [parse(text, TYPE)]

    @rule(id=st.sampled_from("abcd"))
    def remove(self, id: str) -> None:
        assert self.queue.remove(id) == (self.model.pop(id, None) is not None)

    @rule()
    def prune(self) -> None:
        best = self.queue.best()
        harms = [removed_size(f[-1])(p) for f in self.model.values() for p in prunings(f[-1])]
        assert (best is None) == (not harms)
        if best is not None:
            least, id, pruned = best
            assert least == min(harms)
            self.queue.prune(id)
            self.model[id].append(pruned)

    @rule()
    def undo(self) -> None:
        last = self.queue.costliest()
        harms = [removed_size(f[-2])(f[-1]) for f in self.model.values() if len(f) > 1]
        assert (last is None) == (not harms)
        if last is not None:
            most, id = last
            assert most == max(harms)
            before = self.queue.associations_without(id)
            self.queue.undo(id)
            self.model[id].pop()
            assert self.queue.current(id) == self.model[id][-1]
            assert self.queue.associations == before

    @rule()
    def refresh(self) -> None:
        self.queue.refresh(removed_size)

    @invariant()
    def same(self) -> None:
        self.queue.check()
        assert set(self.queue.ids()) == set(self.model)
        for id, history in self.model.items():
            assert self.queue.current(id) == history[-1]
            assert self.queue.original(id) == history[0]


TestQueue = QueueAgainstDict.TestCase
TestQueue.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_refused_prunings_wait_for_a_change() -> None:
    """A refused filter is out of the queue until all are looked at anew."""
    queue = DegradationQueue(removed_size)
    queue.add("a", parse("n = 1 AND b = true", TYPE))
    queue.refuse("a")
    assert queue.best() is None
    queue.check()
    queue.refresh(removed_size)
    assert queue.best() is not None


def test_the_queue_forgets_void_places() -> None:
    """Filters that are replaced again and again leave nothing behind."""
    queue = DegradationQueue(removed_size)
    for i in range(1000):
        queue.add(str(i % 3), parse("n = 1 AND b = true AND c = 'low'", TYPE))
        queue.prune(str(i % 3))
    assert len(queue._queue.heap) < 100
    assert len(queue._undo.heap) < 100
    queue.check()
    assert queue.best() is not None
    assert queue.costliest() is not None


# --- advertisements -----------------------------------------------------------------------------------------------


class AdvertisementsInABudget(RuleBasedStateMachine):
    """Advertisements and subscriptions come and go, and after each `settle` the index holds what it may."""

    def __init__(self) -> None:
        super().__init__()
        self.index = OverlapIndex(TYPE)
        self.observations = Observations(TYPE, window=8)
        self.budget = 9
        self.pruning = AdvertisementPruning(self.index, self.observations, associations_max=self.budget)
        self.originals: dict[str, str] = {}
        self.settled = True

    @rule(id=st.sampled_from("abcd"), text=filters(max_leaves=6))
    def advertise(self, id: str, text: str) -> None:
        self.pruning.add(id, parse(text, TYPE), "n")
        self.originals[id] = text
        self.settled = False

    @rule(id=st.sampled_from("abcd"))
    def unadvertise(self, id: str) -> None:
        assert self.pruning.remove(id) == (self.originals.pop(id, None) is not None)
        self.settled = False

    @rule(id=st.sampled_from("st"), text=filters(max_leaves=5))
    def subscribe(self, id: str, text: str) -> None:
        self.index.add_subscription(id, parse(text, TYPE))

    @rule(event=st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}))
    def publish(self, event: dict[str, Any]) -> None:
        self.observations.observe(event)

    @rule()
    def settle(self) -> None:
        before = {id: self.pruning.current(id) for id in self.originals}
        changed = self.pruning.settle()
        assert {id for id in self.originals if self.pruning.current(id) != before[id]} == set(changed)
        self.settled = True

    @rule(text=filters(max_leaves=4))
    def ask(self, text: str) -> None:
        found = self.index.overlapping_advertisements(parse(text, TYPE), "all").get("n", [])
        lost = [id for id, other in self.originals.items() if GRID.overlap(text, other) and id not in found]
        assert not lost

    @invariant()
    def only_wider(self) -> None:
        self.pruning.check()
        self.index.check()
        assert self.pruning.associations == self.index.advertisements.associations
        for id, text in self.originals.items():
            assert self.pruning.original(id) == parse(text, TYPE)
            pruned = to_text(self.pruning.current(id))
            assert not (GRID.truth(text) & ~GRID.truth(pruned)).any()
            if self.settled and self.pruning.associations > self.budget:
                assert not list(prunings(self.pruning.current(id))), "over the budget with prunings left"


TestAdvertisements = AdvertisementsInABudget.TestCase
TestAdvertisements.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def auction_index(subscriptions: int, seed: int = 5) -> tuple[Auction, OverlapIndex, Observations]:
    auction, index, observations = Auction(seed), OverlapIndex(AUCTION), Observations(AUCTION)
    for i, filter in enumerate(auction.subscriptions(subscriptions)):
        index.add_subscription(f"s{i}", filter)
    for event in auction.publications(300):
        observations.observe(event)
    return auction, index, observations


def test_the_memory_budget_is_met_and_undone() -> None:
    """Half the associations go; when half the advertisements leave, the rest gets its predicates back."""
    auction, index, observations = auction_index(200)
    pruning = AdvertisementPruning(index, observations, associations_max=10**6)
    originals = dict(enumerate(auction.advertisements(60)))
    for i, filter in originals.items():
        pruning.add(f"a{i}", filter, "n")
    assert pruning.settle() == []
    whole = pruning.associations
    pruning.associations_max = whole // 2
    changed = pruning.settle()
    assert changed
    assert whole // 2 - 12 < pruning.associations <= whole // 2
    assert index.advertisements.associations == pruning.associations
    pruned = sum(pruning.current(f"a{i}") != originals[i] for i in originals)
    assert pruned == len(changed)
    for i in range(0, 60, 2):
        pruning.remove(f"a{i}")
    pruning.settle()
    pruning.check()
    left = range(1, 60, 2)
    assert pruning.undone > 0
    assert pruning.associations <= whole // 2
    for i in range(1, 60, 4):
        pruning.remove(f"a{i}")
    pruning.settle()
    assert all(pruning.current(f"a{i}") == originals[i] for i in left if i % 4 == 3)


def test_the_overlap_budget_is_kept() -> None:
    """With 2 % more overlaps allowed, the exact growth over all pairs stays under it, and much is pruned."""
    auction, index, observations = auction_index(200)
    pruning = AdvertisementPruning(index, observations, growth_max=0.02)
    filters = list(auction.advertisements(60))
    for i, filter in enumerate(filters):
        pruning.add(f"a{i}", filter, "n")
    whole = index.advertisements.associations
    before = sum(len(index.overlapping_subscriptions(filter)) for filter in filters)
    pruning.settle()
    pruning.check()
    after = sum(len(index.overlapping_subscriptions(pruning.current(f"a{i}"))) for i in range(60))
    assert before <= after <= 1.02 * before
    assert pruning.growth == pytest.approx((after - before) / before)  # 200 subscriptions: the sample is all of them
    assert pruning.associations < 0.7 * whole
    assert pruning.refused > 0


def test_overlap_budget_holds_when_subscriptions_change() -> None:
    """Subscriptions that the pruned advertisements overlap too often make it take prunings back."""
    auction, index, _ = auction_index(30)
    pruning = AdvertisementPruning(index, growth_max=0.02)
    for i, filter in enumerate(auction.advertisements(40)):
        pruning.add(f"a{i}", filter, "n")
    pruning.settle()
    for i in range(30):
        index.remove_subscription(f"s{i}")
    for i, filter in enumerate(auction.subscriptions(120, ("S1",))):
        index.add_subscription(f"t{i}", filter)
    pruning.settle()
    pruning.check()
    assert pruning.growth <= 0.02


def test_ranks_follow_the_subscriptions() -> None:
    """The predicate that no subscription contradicts is pruned first; which one that is changes with them."""
    advertised = parse("n = 1 AND c = 'low'", TYPE)
    for subscribed, kept in (("n = 2", "n = 1"), ("c = 'top'", "c = 'low'")):
        index = OverlapIndex(TYPE)
        pruning = AdvertisementPruning(index, associations_max=10)
        pruning.add("a", advertised, "x")
        index.add_subscription("s", parse(subscribed, TYPE))
        pruning.associations_max = 1
        assert pruning.settle() == ["a"]
        assert pruning.current("a") == parse(kept, TYPE)


def test_ranks_follow_the_publications() -> None:
    """Of two predicates that contradict one subscription each, the one whose subscription matches more is pruned."""
    for often, kept in (({"n": 2}, "c = 'low'"), ({"c": "top"}, "n = 1")):
        index, observations = OverlapIndex(TYPE), Observations(TYPE)
        pruning = AdvertisementPruning(index, observations, associations_max=10)
        index.add_subscription("s", parse("n = 2", TYPE))
        index.add_subscription("t", parse("c = 'top'", TYPE))
        pruning.add("a", parse("n = 1 AND c = 'low'", TYPE), "x")
        pruning.settle()
        for _ in range(50):
            observations.observe(often)
        pruning.associations_max = 1
        pruning.settle()
        assert pruning.current("a") == parse(kept, TYPE)


# --- subscriptions ------------------------------------------------------------------------------------------------


def test_subscriptions_lose_what_selects_least() -> None:
    """Of two predicates the one that nearly all publications satisfy goes first; local subscriptions stay whole."""
    index, observations = OverlapIndex(TYPE), Observations(TYPE)
    pruning = SubscriptionPruning(index, observations, associations_max=3)
    filter = parse("n > 0 AND c = 'low'", TYPE)
    pruning.add("local", filter, local=True)
    pruning.add("remote", filter, local=False)
    assert pruning.settle() == []  # nothing was observed yet: nothing is known to be harmless
    for i in range(40):
        observations.observe({"n": 0 if i == 0 else 3, "c": "low" if i % 2 else "top"})
    assert pruning.settle() == ["remote"]
    assert pruning.current("remote") == parse("c = 'low'", TYPE)
    assert index.subscriptions["local"] == index.normal(filter)
    assert pruning.stats()["local"] == 1
    pruning.check()
    pruning.associations_max = 1
    pruning.settle()
    assert pruning.associations == 3, "a single predicate and local subscriptions are never pruned"
    pruning.associations_max = 3
    pruning.remove("local")
    assert pruning.settle() == ["remote"]
    assert pruning.current("remote") == filter
    assert pruning.original("remote") == filter
    pruning.check()


def test_a_limit_on_degradation_stops_pruning() -> None:
    """No pruning may raise the share of matches by more than allowed, budget or not."""
    index, observations = OverlapIndex(TYPE), Observations(TYPE)
    pruning = SubscriptionPruning(index, observations, associations_max=0, degradation_max=0.3)
    pruning.add("s", parse("n > 0 AND c = 'low'", TYPE), local=False)
    pruning.add("t", parse("n > 0 AND t = 'a'", TYPE), local=False)
    for i in range(40):
        observations.observe({"n": i % 2, "c": "low" if i % 4 < 2 else "top", "t": "b" if i % 2 else "a"})
    assert pruning.settle() == ["s"]  # from a quarter to a half; either pruning of t would go from none to a half
    assert pruning.current("s") == parse("c = 'low'", TYPE)
    assert pruning.current("t") == pruning.original("t")


class SubscriptionsInABudget(RuleBasedStateMachine):
    """Subscriptions come and go; pruned ones only hold more often, and local ones are never touched."""

    def __init__(self) -> None:
        super().__init__()
        self.index = OverlapIndex(TYPE)
        self.observations = Observations(TYPE, window=8)
        self.pruning = SubscriptionPruning(self.index, self.observations, associations_max=8)
        self.originals: dict[str, tuple[str, bool]] = {}

    @rule(id=st.sampled_from("abcd"), text=filters(max_leaves=6), local=st.booleans())
    def subscribe(self, id: str, text: str, local: bool) -> None:
        self.pruning.add(id, parse(text, TYPE), local)
        self.originals[id] = text, local

    @rule(id=st.sampled_from("abcd"))
    def unsubscribe(self, id: str) -> None:
        assert self.pruning.remove(id) == (self.originals.pop(id, None) is not None)

    @rule(event=st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}))
    def publish(self, event: dict[str, Any]) -> None:
        self.observations.observe(event)

    @rule()
    def settle(self) -> None:
        self.pruning.settle()

    @invariant()
    def only_wider(self) -> None:
        self.pruning.check()
        assert self.pruning.associations == self.index.subscriptions.associations
        for id, (text, local) in self.originals.items():
            if local:
                assert self.index.subscriptions[id] == self.index.normal(parse(text, TYPE))
            else:
                pruned = to_text(self.pruning.current(id))
                assert not (GRID.truth(text) & ~GRID.truth(pruned)).any()


TestSubscriptions = SubscriptionsInABudget.TestCase
TestSubscriptions.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
