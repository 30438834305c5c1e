"""What travels: the form in which neighbours are told each filter, within a budget of predicates.

A filter has two forms, and two words for them, here and wherever home speaks of them:

    sent         as its client wrote it; decides deliveries and conformance, and is never changed
    travelling   as neighbours are told it: as it was sent, or what prunings have made of that

    price > 5 AND volume > 9 ──┬──────────────> clients, conformance      sent
                               └──pruned──────> neighbours                travelling: price > 5

[BADV06] §5 prunes advertisements, least loss of overlapping rank first; §2.3 subscriptions, least gain in selectivity
first. The travelling form holds wherever the sent one does, so that subscriptions and publications may travel further
and none is lost. After each batch filters are pruned while their budget is exceeded, and the costliest prunings undone
while it has room (`state/advertisements/queue.py`). Everything a decision needs is in the state of the home key and in
the sample of its generation, so that a replay repeats it.

Differs: the budget is of one home key, which knows the filters of its own ids only. The overlapping rank of an
advertisement is that against at most `RANKED_MAX` of the subscriptions of the same home key. A pruning that would
make a filter touch so many cubes that it had to move to a wide key is not done: cube and wide keys change at
different moments, and in between the filter would be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import msgspec

from state.advertisements.normal import Normaliser
from state.advertisements.observations import Observations
from state.advertisements.predicates import PredicateTable
from state.advertisements.queue import Degradation, DegradationQueue, Pruned
from state.advertisements.ranking import Ranking, degradation
from state.control.context import Context
from state.control.facts import Fact, Kind, Name
from state.control.placement import Placement, Placing
from state.filters.cloudevents import read_filter
from state.filters.grammar import parse
from state.filters.tree import Filter
from state.keys import is_wide
from state.space.event_type import EventType, Pruning

RANKED_MAX = 256
"""Subscriptions against which advertisements are ranked."""
REFRESH_SHARE = 0.1
"""Advertisements are ranked anew once this share of the subscriptions has changed."""

Facts = Mapping[Kind, Mapping[str, Fact]]


class TravellingState(msgspec.Struct):
    """What a home key keeps of pruning between batches."""

    pruned: dict[Kind, dict[str, Pruned]] = msgspec.field(default_factory=lambda: {kind: {} for kind in Kind})
    """By id: how far each filter is pruned, where there is a budget; what holds for no event is told nobody."""
    ranked: int = 0
    """Subscriptions that there were when advertisements were last ranked."""
    changes: int = 0
    """How often any changed since."""


class Filters:
    """Reads the filters of one type; what pruning asks for again and again is read once a batch."""

    def __init__(self, event_type: EventType) -> None:
        self._type = event_type
        self._again = event_type.pruning != Pruning()
        """Whether filters are asked for again."""
        self._sent: dict[str, Filter] = {}
        self._printed: dict[str, Filter] = {}

    def sent(self, value: object) -> Filter:
        """A filter as clients send it: text or a CloudEvents filter."""
        if not self._again or not isinstance(value, str):
            return read_filter(value, self._type)
        if value not in self._sent:
            self._sent[value] = read_filter(value, self._type)
        return self._sent[value]

    def printed(self, text: str) -> Filter:
        """A filter that was printed by us."""
        if text not in self._printed:
            self._printed[text] = parse(text, self._type, limits=False)
        return self._printed[text]


class Travelling:
    """The travelling forms of one home key for the length of one batch: filters `enter` and `leave`, then `settle`."""

    def __init__(
        self, state: TravellingState, facts: Facts, filters: Filters, placing: Placing, context: Context, type_name: str
    ) -> None:
        self._state = state
        self._facts = facts
        self._filters = filters
        self._placing = placing
        self._type = context.config.types[type_name]
        self._context = context

    def enter(self, name: Name, placement: Placement) -> None:
        """A filter came: it travels as it was sent, until this batch is through."""
        self.leave(name)
        if self._budget(name.kind) is not None and placement.predicates:
            self._state.pruned[name.kind][name.id] = Pruned(placement.predicates)

    def leave(self, name: Name) -> None:
        """A filter went, or is replaced."""
        self._state.pruned[name.kind].pop(name.id, None)
        if name.kind is Kind.SUBSCRIPTION and self._budget(Kind.ADVERTISEMENT) is not None:
            self._state.changes += 1

    def form(self, name: Name) -> Filter | None:
        """The travelling form of a filter; None: as it was sent."""
        pruned = self._state.pruned[name.kind].get(name.id)
        return None if pruned is None or pruned.text is None else self._filters.printed(pruned.text)

    def settle(self, kind: Kind) -> tuple[dict[str, Filter | None], int]:
        """Bring the filters of one kind within their budget; return those whose travelling form changed by that.

        They come with the form that they had (None: as it was sent), and with the number of prunings done.
        Guarantee: afterwards their predicates are within the budget, or nothing more can be pruned; and the costliest
        of the last prunings is needed for that. Every travelling filter holds wherever the sent one does, and keeps a
        predicate. Cost: that of the queue, where there is a budget; tens of microseconds for each possible pruning.
        """
        budget = self._budget(kind)
        if budget is None:
            return {}, 0
        if kind is Kind.ADVERTISEMENT:
            self._rank_anew()
        queue = DegradationQueue(
            lambda filter: self._harm(kind)(filter),
            admits=lambda id, pruned: self._admits(Name(kind, id), pruned),
            held=self._state.pruned[kind],
            read=lambda id, text: self._sent(Name(kind, id)) if text is None else self._filters.printed(text),
        )
        queue.shrink(budget)
        queue.grow(budget)
        changed = queue.changed().items()
        return {id: None if text is None else self._filters.printed(text) for id, text in changed}, queue.pruned

    def _budget(self, kind: Kind) -> int | None:
        budgets = self._type.pruning
        return budgets.advertisements if kind is Kind.ADVERTISEMENT else budgets.subscriptions

    def _sent(self, name: Name) -> Filter:
        return self._filters.sent(self._facts[name.kind][name.id].sent)

    def _admits(self, name: Name, pruned: Filter) -> bool:
        """Whether what a pruning makes stays with the kind of key that the filter has."""
        if name.kind is Kind.ADVERTISEMENT or self._facts[name.kind][name.id].wide:
            return True
        touched = self._placing.touched(pruned)
        return not is_wide(touched, self._type.cubes) or touched <= self._placing.touched(self._sent(name))

    def _rank_anew(self) -> None:
        """Forget what is known of the harm to advertisements, once many subscriptions have changed."""
        if self._state.changes <= REFRESH_SHARE * self._state.ranked:
            return
        for pruned in self._state.pruned[Kind.ADVERTISEMENT].values():
            pruned.harm = None
        self._state.ranked, self._state.changes = len(self._subscriptions()), 0

    def _subscriptions(self) -> list[str]:
        return [id for id, fact in self._facts[Kind.SUBSCRIPTION].items() if fact.live and fact.parts]

    def _harm(self, kind: Kind) -> Degradation:
        return self._harm_to_advertisements if kind is Kind.ADVERTISEMENT else self._harm_to_subscriptions

    @cached_property
    def _harm_to_subscriptions(self) -> Degradation:
        return by_selectivity(*self._context.observed(self._type.name))

    @cached_property
    def _harm_to_advertisements(self) -> Degradation:
        ids = self._subscriptions()
        some = ids[:: max(1, -(-len(ids) // RANKED_MAX))]
        filters = (self._sent(Name(Kind.SUBSCRIPTION, id)) for id in some)
        return by_rank(self._type, filters, *self._context.observed(self._type.name))


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
