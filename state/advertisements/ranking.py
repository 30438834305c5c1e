"""The overlapping rank of an advertisement: how much it does to keep subscriptions from overlapping.

[BADV06] §5.3 and §5.4. A leaf ranks high if it violates many predicates that are used by many subscriptions and
matched by few publications; inner nodes have an estimate: the least, the average and the greatest rank possible.

    leaf   sum over violating p of associations(p) / sqrt(matches(p) + 1), divided by all associations
    AND    (max of mins, a + b - a·b of averages, min(1, sum) of maxima)
    OR     (min of mins, the same,                the same)

Pruning wants to lower it little; `degradation` is by how much it does, relative to what there was.
Differs: 0/0 is 0 (the paper divides by the rank before, which may be 0). In example 7 the average of A4 is
0.01114 (printed 0.01152) and its share 0.28 (printed 0.25).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np

from state.advertisements.normal import Leaf
from state.advertisements.predicates import PredicateTable
from state.filters.tree import Filter, Or, Predicate


class Rank(NamedTuple):
    """An estimated overlapping rank."""

    minimum: float
    average: float
    maximum: float


class Ranking:
    """Overlapping ranks with respect to the predicates of a set of subscriptions, as they were when it was made.

    Predicates that came to the set since then weigh nothing.

    `matches` tells how many publications satisfied a predicate of a subscription, `leaf_of` turns a predicate
    of an advertisement into a leaf. Cost: one look at the subscriptions' predicates of an attribute per distinct
    leaf; then O(leaves) per filter.
    """

    def __init__(
        self,
        predicates: PredicateTable,
        matches: Callable[[Leaf], int],
        leaf_of: Callable[[Predicate], Leaf],
    ) -> None:
        self._predicates = predicates
        self._leaf_of = leaf_of
        self._known: dict[Predicate, float] = {}
        self._came = self._predicates.came
        things, uses = self._predicates.things, self._predicates.uses[: len(self._predicates.things)]
        matched = [0 if leaf is None else matches(leaf) for leaf in things]
        total = max(1, self._predicates.associations)
        self._weights = uses / np.sqrt(np.array(matched, np.float64) + 1) / total

    def of_leaf(self, predicate: Predicate) -> float:
        """rank(n_l): between 0 and 1."""
        found = self._known.get(predicate)
        if found is None:
            violating = self._predicates.violating(self._leaf_of(predicate))
            known = violating[self._predicates.since[violating] <= self._came]
            found = self._known[predicate] = float(self._weights[known].sum())
        return found

    def __call__(self, filter: Filter) -> Rank:
        """The estimated overlapping rank of a filter."""
        if isinstance(filter, Predicate):
            rank = self.of_leaf(filter)
            return Rank(rank, rank, rank)
        ranks = [self(child) for child in filter.children]
        best = min if isinstance(filter, Or) else max
        return Rank(
            best((rank.minimum for rank in ranks), default=0.0),
            reduce(lambda a, b: a + b - a * b, (rank.average for rank in ranks), 0.0),
            min(1.0, sum(rank.maximum for rank in ranks)),
        )


def degradation(before: Rank, after: Rank) -> float:
    """How much of the overlapping rank a pruning takes away: the greatest share of the three, [BADV06] §5.4.

    >>> degradation(Rank(0.0043, 0.0154, 0.01548), Rank(0.0, 0.00801, 0.00803))
    1.0
    >>> degradation(Rank(0.0, 0.0, 0.0), Rank(0.0, 0.0, 0.0))
    0.0
    """
    pairs = zip(before, after, strict=True)
    return max((b - a) / b if b > 0 else 0.0 for b, a in pairs)
