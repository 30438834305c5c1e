"""Pruning: smaller filters for a little more traffic, when memory or time is short.

[BADV06] §5 prunes advertisements, least loss of overlapping rank first; §2.3 prunes subscriptions, least gain in
selectivity first. A pruned filter only ever holds more often: subscriptions may travel further and publications
too, but none is lost. So

    advertisements   may be pruned anywhere; whether a publication conforms is asked of the original
    subscriptions    are never pruned at the broker of their own subscriber, where delivery is decided

Both prune until a budget is met, and prune no further. When something leaves and the budget has room again, the
costliest prunings are undone first. Ranks and selectivities follow the subscriptions and the publications: they are
computed anew once those have changed by a share of `REFRESH_SHARE`.

Differs: the paper stops "when the required optimization has been achieved" and says no more about budgets; how
many overlaps a pruning adds is only estimated there, here it can be limited, measured on a sample. It never undoes.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers.tree_overlap import OverlapIndex
from state.advertisements.filter_index import FilterIndex
from state.advertisements.normal import Leaf
from state.advertisements.observations import Observations
from state.advertisements.queue import Degradation, DegradationQueue
from state.advertisements.ranking import Ranking, degradation
from state.filters.tree import Filter

REFRESH_SHARE = 0.1
SAMPLE = 256


class _Changes:
    """Counts changes of something of a given size, and tells when a share of it has changed."""

    def __init__(self) -> None:
        self._at = 0
        self._size = 0

    def due(self, changes: int, size: int) -> bool:
        return changes - self._at > REFRESH_SHARE * max(self._size, size) or (self._size == 0 and size > 0)

    def done(self, changes: int, size: int) -> None:
        self._at, self._size = changes, size


class AdvertisementPruning:
    """Keeps the advertisements of an `OverlapIndex` within a budget.

    `associations_max`: the predicates that all advertisements together may use, the paper's measure of memory.
    `growth_max`: by how much the pairs of overlapping subscriptions and advertisements may grow (0.05: by 5 %),
    measured on up to `SAMPLE` subscriptions. With the first alone pruning stops when it is met; with the second
    alone when nothing more fits; with both, whichever comes first.

    Guarantee: every advertisement of the index holds wherever the original does, and keeps a predicate.
    Cost: a pruning costs tens of microseconds per possible pruning of that advertisement; `settle` is O(advertisements)
    when the subscriptions or publications have changed by `REFRESH_SHARE`, else O(prunings performed).
    """

    def __init__(
        self,
        index: OverlapIndex,
        observations: Observations | None = None,
        *,
        associations_max: int | None = None,
        growth_max: float | None = None,
    ) -> None:
        assert associations_max is not None or growth_max is not None, "without a budget there is nothing to do"
        self._index = index
        self._observations = observations
        self.associations_max = associations_max
        self.growth_max = growth_max
        self._queue = DegradationQueue(self._degradation(), index.associations_of)
        self._neighbour: dict[str, str] = {}
        self._changes = _Changes(), _Changes()
        self._sample = FilterIndex(index.event_type)
        self._overlaps: dict[str, tuple[int, int]] = {}
        """For each advertisement how many of the sample its original overlaps, and how many it does now."""
        self._sums = [0, 0]
        self.refused = 0
        self.refresh()

    @property
    def associations(self) -> int:
        """The predicates that all advertisements use as pruned so far."""
        return self._queue.associations

    @property
    def undone(self) -> int:
        """How many prunings were taken back."""
        return self._queue.undone

    @property
    def growth(self) -> float:
        """By how much overlaps with the sample have grown; 0 unless `growth_max` asks for it to be measured."""
        before, now = self._sums
        return (now - before) / before if before else float(now > before)

    def original(self, id: str) -> Filter:
        """The advertisement as its publisher wrote it: what conformance asks."""
        return self._queue.original(id)

    def current(self, id: str) -> Filter:
        """The advertisement as pruned so far."""
        return self._queue.current(id)

    def add(self, id: str, filter: Filter, neighbour: str) -> None:
        """Add an advertisement to the index, unpruned; one under the same id is replaced."""
        self._forget(id)
        self._neighbour[id] = neighbour
        self._queue.add(id, filter)
        self._measure(id)
        self._index.add_advertisement(id, filter, neighbour)

    def remove(self, id: str) -> bool:
        """Remove an advertisement from the index; tell whether it was there."""
        known = self._forget(id)
        self._index.remove_advertisement(id)
        return known

    def settle(self) -> list[str]:
        """Prune, or undo, until the budget is met; return the ids whose advertisement in the index changed."""
        subscriptions, changes = self._index.subscriptions, self._changes
        if changes[0].due(subscriptions.changes, len(subscriptions)) or changes[1].due(*self._seen()):
            self.refresh()
        while self._too_many_overlaps(self._sums[1]) and (last := self._queue.costliest()) is not None:
            self._undo(last[1])
        while self._too_large(self.associations) and (best := self._queue.best()) is not None:
            self._prune(best[1], best[2])
        while self.associations_max is not None and (last := self._queue.costliest()) is not None:
            if self._too_large(self._queue.associations_without(last[1])):
                break
            self._undo(last[1])
        result = list(self._queue.changed())
        for id in result:
            self._index.add_advertisement(id, self._queue.current(id), self._neighbour[id])
        return result

    def refresh(self) -> None:
        """Compute ranks, and overlaps with the sample, from the subscriptions and publications as they are now."""
        subscriptions = self._index.subscriptions
        self._changes[0].done(subscriptions.changes, len(subscriptions))
        self._changes[1].done(*self._seen())
        self._queue.refresh(self._degradation())
        if self.growth_max is None:
            return
        self._sample = FilterIndex(self._index.event_type)
        ids = subscriptions.ids()
        for id in ids[:: max(1, -(-len(ids) // SAMPLE))]:
            self._sample.add(id, subscriptions[id])
        self._overlaps, self._sums = {}, [0, 0]
        for id in self._queue.ids():
            self._measure(id)

    def stats(self) -> dict[str, int | float]:
        """Figures for people."""
        return {
            "advertisements": len(self._queue),
            "associations": self.associations,
            "prunings": self._queue.pruned,
            "undone": self._queue.undone,
            "refused": self.refused,
            "growth": self.growth,
        }

    def check(self) -> None:
        """Assert every invariant."""
        self._queue.check()
        assert self._queue.ids() == list(self._neighbour)
        for id in self._neighbour:
            assert self._index.advertisements[id] == self._index.normal(self._queue.current(id))
        if self.growth_max is not None:
            assert self._sums == [sum(pair[i] for pair in self._overlaps.values()) for i in (0, 1)]

    def _degradation(self) -> Degradation:
        observations = self._observations
        matches: Callable[[Leaf], int] = (lambda leaf: 0) if observations is None else observations.matches
        ranking = Ranking(self._index.subscriptions.predicates, matches, self._index.normal.leaf)

        def of(before: Filter) -> Callable[[Filter], float]:
            rank = ranking(before)
            return lambda after: degradation(rank, ranking(after))

        return of

    def _seen(self) -> tuple[int, int]:
        return (0, 0) if self._observations is None else (self._observations.seen, len(self._observations))

    def _too_large(self, associations: int) -> bool:
        return self.associations_max is None or associations > self.associations_max

    def _too_many_overlaps(self, overlaps: int) -> bool:
        return self.growth_max is not None and overlaps > self._sums[0] * (1 + self.growth_max)

    def _overlapped(self, filter: Filter) -> int:
        return sum(map(len, self._sample.overlapping(self._index.normal(filter)).values()))

    def _prune(self, id: str, pruned: Filter) -> None:
        if self.growth_max is not None:
            overlaps = self._overlapped(pruned)
            if self._too_many_overlaps(self._sums[1] - self._overlaps[id][1] + overlaps):
                self._queue.refuse(id)
                self.refused += 1
                return
        self._queue.prune(id)
        self._recount(id)

    def _undo(self, id: str) -> None:
        self._queue.undo(id)
        self._recount(id)

    def _recount(self, id: str) -> None:
        if self.growth_max is not None:
            before, now = self._overlaps[id]
            overlaps = self._overlapped(self._queue.current(id))
            self._overlaps[id] = before, overlaps
            self._sums[1] += overlaps - now

    def _measure(self, id: str) -> None:
        if self.growth_max is None:
            return
        pair = self._overlapped(self._queue.original(id)), self._overlapped(self._queue.current(id))
        self._overlaps[id] = pair
        self._sums = [self._sums[0] + pair[0], self._sums[1] + pair[1]]

    def _forget(self, id: str) -> bool:
        if not self._queue.remove(id):
            return False
        del self._neighbour[id]
        before, now = self._overlaps.pop(id, (0, 0))
        self._sums = [self._sums[0] - before, self._sums[1] - now]
        return True


class SubscriptionPruning:
    """Keeps the subscriptions of an `OverlapIndex` within a budget, [BADV06] §2.3.

    `associations_max`: the predicates that all subscriptions together may use. `degradation_max`: no pruning may
    raise the share of publications that a subscription matches by more than this. The shares are those of the
    observed publications; before any was observed nothing is pruned.

    Guarantee: every subscription of the index holds wherever the original does; local ones are the original.
    """

    def __init__(
        self,
        index: OverlapIndex,
        observations: Observations,
        *,
        associations_max: int,
        degradation_max: float = 1.0,
    ) -> None:
        self._index = index
        self._observations = observations
        self.associations_max = associations_max
        self.degradation_max = degradation_max
        self._queue = DegradationQueue(self._degradation, index.associations_of)
        self._local: dict[str, int] = {}
        """Local subscriptions, with the predicates that each uses."""
        self._changes = _Changes()

    @property
    def associations(self) -> int:
        """The predicates that all subscriptions use as pruned so far, local ones included."""
        return self._queue.associations + sum(self._local.values())

    def original(self, id: str) -> Filter:
        """A subscription as its subscriber wrote it; not asked for local ones, which have no other."""
        return self._queue.original(id)

    def current(self, id: str) -> Filter:
        """A subscription as pruned so far."""
        return self._queue.current(id)

    def add(self, id: str, filter: Filter, local: bool) -> None:
        """Add a subscription to the index, unpruned; one under the same id is replaced.

        `local`: of a client of this broker. Such a one is never pruned, because it decides what is delivered.
        """
        self._forget(id)
        if local:
            self._local[id] = self._index.associations_of(filter)
        else:
            self._queue.add(id, filter)
        self._index.add_subscription(id, filter)

    def remove(self, id: str) -> bool:
        """Remove a subscription from the index; tell whether it was there."""
        known = self._forget(id)
        self._index.remove_subscription(id)
        return known

    def settle(self) -> list[str]:
        """Prune, or undo, until the budget is met; return the ids whose subscription in the index changed."""
        if self._changes.due(self._observations.seen, len(self._observations)):
            self.refresh()
        room = self.associations_max - sum(self._local.values())
        if len(self._observations):
            self._queue.shrink(room, self.degradation_max)
        self._queue.grow(room)
        result = list(self._queue.changed())
        for id in result:
            self._index.add_subscription(id, self._queue.current(id))
        return result

    def refresh(self) -> None:
        """Compute selectivities from the publications as they are now."""
        self._changes.done(self._observations.seen, len(self._observations))
        self._queue.refresh(self._degradation)

    def stats(self) -> dict[str, int]:
        """Figures for people."""
        return {
            "subscriptions": len(self._queue) + len(self._local),
            "local": len(self._local),
            "associations": self.associations,
            "prunings": self._queue.pruned,
            "undone": self._queue.undone,
        }

    def check(self) -> None:
        """Assert every invariant."""
        self._queue.check()
        assert not self._local.keys() & set(self._queue.ids())
        for id in self._queue.ids():
            assert self._index.subscriptions[id] == self._index.normal(self._queue.current(id))

    def _degradation(self, before: Filter) -> Callable[[Filter], float]:
        selectivity, leaf_of = self._observations.selectivity, self._index.normal.leaf
        share = selectivity(before, leaf_of)
        return lambda after: selectivity(after, leaf_of) - share

    def _forget(self, id: str) -> bool:
        return self._local.pop(id, None) is not None or self._queue.remove(id)
