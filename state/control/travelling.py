"""Pruning at home: what neighbours are told of the filters of one home key, within a budget of predicates.

[BADV06] §5 prunes advertisements, least loss of overlapping rank first; §2.3 subscriptions, least gain in selectivity
first. What is pruned only ever holds more often, so that subscriptions and publications may travel further and none is
lost:

    filter as sent ──┬──> local clients, conformance           always as it is
                     └──> steps of pruning ──> neighbours      price > 5 AND volume > 9  ──>  price > 5

After each batch filters are pruned while the budget is exceeded, and the costliest prunings undone while it has room.
Everything a decision needs is in the state of the home key and in the sample of its generation, so that a replay
repeats it. `benchmarks/peers/index_pruning.py` is the same method on an index in memory, with the paper's experiments.

Differs: the budget is of one home key, which knows the filters of its own ids only. The overlapping rank of an
advertisement is that against at most `RANKED_MAX` of the subscriptions of the same home key. A pruning that would
make a filter touch so many cubes that it had to move to a wide key is not done: cube and wide keys change at
different moments, and in between the filter would be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Protocol

import msgspec

from state.advertisements.normal import Normaliser
from state.advertisements.observations import Observations
from state.advertisements.predicates import PredicateTable
from state.advertisements.queue import Degradation, prunings, size
from state.advertisements.ranking import Ranking, degradation
from state.filters.printing import to_text
from state.filters.tree import Filter
from state.space.event_type import EventType

RANKED_MAX = 256
"""Subscriptions against which advertisements are ranked."""
REFRESH_SHARE = 0.1
"""Advertisements are ranked anew once this share of the subscriptions has changed."""
_DIGITS = 9
"""Of a harm: the last bits of a sum may differ from processor to processor, and a replay may run on another one."""


class Step(msgspec.Struct, array_like=True, frozen=True):
    """One pruning of a filter."""

    harm: float
    before: int
    """Predicates before it."""
    text: str
    """The filter after it."""


class Travelling(msgspec.Struct, array_like=True):
    """What neighbours are told of one filter."""

    predicates: int
    """Of the filter as it travels."""
    steps: list[Step] = []
    harm: float | None = None
    """Of the best further pruning; None: not looked for, or there is none."""
    gain: int = 0
    """Predicates that the best further pruning takes away."""
    spent: bool = False
    """Nothing more can be pruned."""

    @property
    def text(self) -> str | None:
        """The filter as it travels; None: as it was sent."""
        return self.steps[-1].text if self.steps else None


class Filters(Protocol):
    """What pruning asks of its home."""

    def travelling(self, slot: str, text: str | None) -> Filter:
        """The filter of a slot after the pruning that made this text; None: as it was sent."""

    def admits(self, slot: str, pruned: Filter) -> bool:
        """Whether what a pruning makes may travel."""

    def degradation(self, slot: str) -> Degradation:
        """The measure of harm for filters of this kind."""


class Settling:
    """Brings the filters of one kind at one home key within their budget.

    Guarantee: afterwards their predicates are within the budget, or nothing more can be pruned; and the costliest of
    the last prunings is needed for that. Every travelling filter holds wherever the one sent does, and keeps a
    predicate. Cost: O(filters) numbers; for each pruning, and each filter whose best one is not known yet, what its
    possible prunings cost to judge: tens of microseconds each.
    """

    def __init__(self, held: dict[str, Travelling], budget: int, filters: Filters) -> None:
        self._held = held
        self._budget = budget
        self._filters = filters
        self._order = {slot: i for i, slot in enumerate(held)}
        self._total = sum(one.predicates for one in held.values())
        self._current: dict[str, Filter] = {}
        """Filters as they travel, as far as anybody asked."""
        self.before: dict[str, str | None] = {}
        """Filters that were pruned or unpruned, as they travelled before."""
        self.pruned = 0

    def settle(self) -> dict[str, str | None]:
        """Prune, or undo, until the budget is met; return what travels otherwise than before, with how it did."""
        if self._total > self._budget:
            self._prune()
        self._undo()
        return {slot: text for slot, text in self.before.items() if self._held[slot].text != text}

    def _prune(self) -> None:
        found: dict[str, Filter] = {}
        queue: list[tuple[float, int, int, str]] = []
        for slot, one in self._held.items():
            if one.harm is None and not one.spent:
                self._look(slot, found)
            if one.harm is not None:
                queue.append((one.harm, -one.gain, self._order[slot], slot))
        heapify(queue)
        while self._total > self._budget and queue:
            slot = heappop(queue)[3]
            one = self._held[slot]
            if slot not in found:
                self._look(slot, found)
            if one.harm is None:
                continue  # ranks have changed since it was looked for
            self._change(slot, [*one.steps, Step(one.harm, one.predicates, to_text(found[slot]))], size(found[slot]))
            self._current[slot] = found[slot]
            self.pruned += 1
            self._look(slot, found)
            if one.harm is not None:
                heappush(queue, (one.harm, -one.gain, self._order[slot], slot))

    def _undo(self) -> None:
        queue = [(-one.steps[-1].harm, self._order[slot], slot) for slot, one in self._held.items() if one.steps]
        heapify(queue)
        while queue:
            _, _, slot = queue[0]
            one = self._held[slot]
            before = one.steps[-1].before
            if self._total - one.predicates + before > self._budget:
                return
            heappop(queue)
            self._change(slot, one.steps[:-1], before)
            one.harm, one.gain, one.spent = None, 0, False
            if one.steps:
                heappush(queue, (-one.steps[-1].harm, self._order[slot], slot))

    def _change(self, slot: str, steps: list[Step], predicates: int) -> None:
        one = self._held[slot]
        self.before.setdefault(slot, one.text)
        self._total += predicates - one.predicates
        one.steps, one.predicates = steps, predicates
        self._current.pop(slot, None)

    def _look(self, slot: str, found: dict[str, Filter]) -> None:
        """Find the best pruning of a filter as it travels: of the least harm, then the one that takes away most."""
        one = self._held[slot]
        current = self._current.get(slot) or self._filters.travelling(slot, one.text)
        harm_of = self._filters.degradation(slot)(current)
        options = [(round(harm_of(pruned), _DIGITS), size(pruned), pruned) for pruned in prunings(current)]
        options.sort(key=lambda option: option[:2])
        found.pop(slot, None)
        one.harm, one.gain, one.spent = None, 0, True
        for harm, left, pruned in options:
            assert left < one.predicates, "a pruning takes something away"
            if self._filters.admits(slot, pruned):
                one.harm, one.gain, one.spent = harm, one.predicates - left, False
                found[slot] = pruned
                return


def by_selectivity(observations: Observations, normal: Normaliser) -> Degradation:
    """How much more often a pruned subscription matches, as a share of the observed publications; [BADV06] §2.3."""

    def of(before: Filter) -> Callable[[Filter], float]:
        share = observations.selectivity(before, normal.leaf)
        return lambda after: observations.selectivity(after, normal.leaf) - share

    return of


def by_rank(
    event_type: EventType, subscriptions: Iterable[Filter], observations: Observations, normal: Normaliser
) -> Degradation:
    """How much of its overlapping rank an advertisement loses; [BADV06] §5.3 and §5.4."""
    predicates = PredicateTable(event_type)
    for stated in map(normal, subscriptions):
        for leaf in () if stated.never else stated.leaves:
            predicates.hold(leaf)
    ranking = Ranking(predicates, observations.matches, normal.leaf)

    def of(before: Filter) -> Callable[[Filter], float]:
        rank = ranking(before)
        return lambda after: degradation(rank, ranking(after))

    return of
