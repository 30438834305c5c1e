"""The degradation queue: of all filters the pruning that does the least harm, and the way back.

[BADV06] §5.5. A pruning removes one child of a conjunction. Children of disjunctions are never removed (that would
narrow the filter), nor is the root (nothing would be left), so every pruned filter holds wherever the original does.

    a AND (b AND c OR d)  ──>  b AND c OR d     a     a AND (c OR d)     a AND (b OR d)

What a queue knows of each filter (`Pruned`) is plain data: home keeps it in its state from batch to batch and makes a
queue of it where a budget asks for one (`state/control/travelling.py`); the experiments hold one queue in memory.

Differs: among prunings of equal degradation the one that removes most goes first, then the filter that came first; the
paper leaves ties open. Prunings are remembered and can be undone, last first; the paper only prunes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count, pairwise
from math import inf
from typing import Any

import msgspec

from state.filters.printing import to_text
from state.filters.tree import TRUE, And, Filter, Predicate, conjunction, disjunction

_VOID_MAX = 64
"""Void places that a heap may hold, beside as many as there are filters, before they are thrown out."""
_DIGITS = 9
"""Of a harm: the last bits of a sum may differ from processor to processor, and a replay may run on another one."""

Degradation = Callable[[Filter], Callable[[Filter], float]]
"""Of a filter, and then of what one pruning makes of it: the harm; never negative."""


def prunings(filter: Filter) -> Iterator[Filter]:
    """Yield what each possible pruning makes of a filter; a single predicate has none.

    >>> from state.filters.printing import to_text
    >>> from state.filters.tree import Operator, Or
    >>> a, b, c, d = (Predicate(name, Operator.IS_NULL) for name in "abcd")
    >>> [to_text(f) for f in prunings(And((a, Or((And((b, c)), d)))))]
    ['b IS NULL AND c IS NULL OR d IS NULL', 'a IS NULL', 'a IS NULL AND (c IS NULL OR d IS NULL)', \
'a IS NULL AND (b IS NULL OR d IS NULL)']
    """
    if isinstance(filter, Predicate):
        return
    rebuilt = conjunction if isinstance(filter, And) else disjunction
    children = filter.children
    if isinstance(filter, And) and len(children) > 1:
        for i in range(len(children)):
            yield conjunction(children[:i] + children[i + 1 :])
    for i, child in enumerate(children):
        for pruned in prunings(child):
            yield rebuilt((*children[:i], pruned, *children[i + 1 :]))


def size(filter: Filter) -> int:
    """The number of predicates of a filter, repeated ones counted again."""
    if isinstance(filter, Predicate):
        return 1
    return sum([1 if child.__class__ is Predicate else size(child) for child in filter.children])


class Step(msgspec.Struct, array_like=True, frozen=True):
    """One pruning of a filter."""

    harm: float
    before: int
    """Predicates before it."""
    text: str
    """The filter after it."""


class Pruned(msgspec.Struct, array_like=True):
    """How far a filter is pruned, and what is known of its best further pruning."""

    predicates: int
    """Of the filter as it is now."""
    steps: list[Step] = []
    harm: float | None = None
    """Of the best further pruning; None: not looked for, or there is none."""
    gain: int = 0
    """Predicates that the best further pruning takes away."""
    spent: bool = False
    """Nothing more can be pruned."""

    @property
    def text(self) -> str | None:
        """The filter as it is now; None: as it was written."""
        return self.steps[-1].text if self.steps else None


class _Places:
    """Ids ordered by rank, of which only the last place of each counts."""

    def __init__(self) -> None:
        self.heap: list[tuple[tuple[float, int, int], int, str]] = []
        self._tickets: dict[str, int] = {}
        self._next = count()

    def put(self, id: str, rank: tuple[float, int, int]) -> None:
        ticket = self._tickets[id] = next(self._next)
        heappush(self.heap, (rank, ticket, id))
        if len(self.heap) > _VOID_MAX + 2 * len(self._tickets):
            self.heap = [place for place in self.heap if self._tickets.get(place[2]) == place[1]]
            heapify(self.heap)

    def drop(self, id: str) -> None:
        self._tickets.pop(id, None)

    def first(self) -> str | None:
        while self.heap:
            _, ticket, id = self.heap[0]
            if self._tickets.get(id) == ticket:
                return id
            heappop(self.heap)
        return None

    def ids(self) -> set[str]:
        return set(self._tickets)


class DegradationQueue:
    """Filters under ids, each as written and as pruned so far, ordered by their best pruning.

    `associations_of` tells how many predicates a filter uses once it is stored; `associations` is their sum.
    `admits(id, pruned)` tells whether a pruning may be done at all. `held` is what another queue knew, in the order in
    which the filters came; it is changed in place, and `read(id, text)` finds its filters (None: as written).

    Guarantee: deterministic: equal filters, in the same order, are pruned and undone alike.
    Cost: O(filters) numbers to begin with; each filter whose best pruning is not known yet, and each pruning,
    O(prunings * predicates) of that filter and O(log filters).
    """

    def __init__(
        self,
        degradation: Degradation,
        associations_of: Callable[[Filter], int] = size,
        *,
        admits: Callable[[str, Filter], bool] = lambda id, pruned: True,
        held: dict[str, Pruned] | None = None,
        read: Callable[[str, str | None], Filter] | None = None,
    ) -> None:
        self._degradation = degradation
        self._associations_of = associations_of
        self._admits = admits
        self._held = {} if held is None else held
        self._read = read
        self.associations = sum(one.predicates for one in self._held.values())
        self.pruned = self.undone = 0
        self._numbers = count()
        self._order = {id: next(self._numbers) for id in self._held}
        self._forms: dict[str, dict[int, Filter]] = {}
        """By id and number of prunings: filters, as far as anybody asked."""
        self._found: dict[str, Filter] = {}
        """What the best pruning makes of a filter, as far as it was looked for here."""
        self._queue, self._undo = _Places(), _Places()
        self._unplaced = dict.fromkeys(self._held)
        self._unplaced_undo = dict.fromkeys(self._held)
        """Ids whose place is looked for when somebody asks for the first."""
        self._before: dict[str, str | None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, id: str) -> bool:
        return id in self._held

    def ids(self) -> list[str]:
        """All ids, in the order in which they came."""
        return list(self._held)

    def original(self, id: str) -> Filter:
        """The filter as it was written."""
        return self._form(id, 0)

    def current(self, id: str) -> Filter:
        """The filter as pruned so far."""
        return self._form(id, len(self._held[id].steps))

    def add(self, id: str, filter: Filter) -> None:
        """Add a filter, unpruned; one under the same id is replaced."""
        self.remove(id)
        self._held[id] = Pruned(self._associations_of(filter))
        self._order[id] = next(self._numbers)
        self._forms[id] = {0: filter}
        self.associations += self._held[id].predicates
        self._unplaced[id] = self._unplaced_undo[id] = None

    def remove(self, id: str) -> bool:
        """Remove a filter; tell whether it was there."""
        one = self._held.pop(id, None)
        if one is None:
            return False
        self.associations -= one.predicates
        known: tuple[dict[str, Any], ...]
        known = self._order, self._forms, self._found, self._before, self._unplaced, self._unplaced_undo
        for of_id in known:
            of_id.pop(id, None)
        self._queue.drop(id)
        self._undo.drop(id)
        return True

    # ── pruning ─────────────────────────────────────────────────────────────────────────────────────────────────

    def best(self) -> tuple[float, str, Filter] | None:
        """The pruning of the least degradation: how much it is, whose, and what it makes."""
        for id in self._unplaced:
            self._place(id)
        self._unplaced = {}
        while (first := self._queue.first()) is not None:
            if first not in self._found:
                self._look(first)
            harm = self._held[first].harm
            if harm is not None:
                return harm, first, self._found[first]
            self._queue.drop(first)
        return None

    def prune(self, id: str) -> None:
        """Perform the best pruning of a filter."""
        if id not in self._found:
            self._look(id)
        one, pruned = self._held[id], self._found[id]
        assert one.harm is not None, "a filter without prunings is not in the queue"
        step = Step(one.harm, one.predicates, to_text(pruned))
        self._change(id, [*one.steps, step], self._associations_of(pruned))
        self._forms[id][len(one.steps)] = pruned
        self.pruned += 1
        self._look(id)
        self._place(id)

    def refuse(self, id: str) -> None:
        """Take a filter out of the queue until it changes, or all are looked at anew."""
        self._queue.drop(id)
        self._unplaced.pop(id, None)

    def shrink(self, budget: int, harm_max: float = inf) -> None:
        """Prune, least harm first, until `associations` are within the budget or nothing is left that may be pruned."""
        while self.associations > budget and (best := self.best()) is not None and best[0] <= harm_max:
            self.prune(best[1])

    # ── undoing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def costliest(self) -> tuple[float, str] | None:
        """Of the last prunings of all filters the one of the greatest degradation: how much it was, and whose."""
        for id in self._unplaced_undo:
            self._place_undo(id)
        self._unplaced_undo = {}
        first = self._undo.first()
        return None if first is None else (self._held[first].steps[-1].harm, first)

    def undo(self, id: str) -> None:
        """Take back the last pruning of a filter."""
        one = self._held[id]
        self._forms.get(id, {}).pop(len(one.steps), None)
        self._change(id, one.steps[:-1], one.steps[-1].before)
        one.harm, one.gain, one.spent = None, 0, False
        self._found.pop(id, None)
        self.undone += 1
        self._queue.drop(id)
        self._unplaced[id] = None

    def associations_without(self, id: str) -> int:
        """What `associations` would be without the last pruning of a filter."""
        one = self._held[id]
        return self.associations - one.predicates + one.steps[-1].before

    def grow(self, budget: int) -> None:
        """Undo prunings, the costliest first, while the budget has room for it."""
        while (last := self.costliest()) is not None and self.associations_without(last[1]) <= budget:
            self.undo(last[1])

    def changed(self) -> dict[str, str | None]:
        """The filters that are not what they were when this was last asked, with what they were (None: as written)."""
        before, self._before = self._before, {}
        return {id: text for id, text in before.items() if self._held[id].text != text}

    def refresh(self, degradation: Degradation) -> None:
        """Order all prunings by another measure of harm; what was pruned stays pruned."""
        self._degradation = degradation
        self._found, self._queue = {}, _Places()
        for one in self._held.values():
            one.harm = None
        self._unplaced = dict.fromkeys(self._held)

    def check(self) -> None:
        """Assert every invariant."""
        self.best()
        self.costliest()
        assert self._queue.ids() <= {id for id, one in self._held.items() if one.harm is not None}
        assert self._undo.ids() == {id for id, one in self._held.items() if one.steps}
        for id, one in self._held.items():
            filters = [self._form(id, depth) for depth in range(len(one.steps) + 1)]
            assert all(after in list(prunings(before)) for before, after in pairwise(filters))
            assert filters[-1] != TRUE or not one.steps
            assert one.predicates == self._associations_of(filters[-1])
            assert not one.spent or one.harm is None
        assert self.associations == sum(one.predicates for one in self._held.values())

    # ── places and forms ────────────────────────────────────────────────────────────────────────────────────────

    def _form(self, id: str, depth: int) -> Filter:
        forms = self._forms.setdefault(id, {})
        if depth not in forms:
            assert self._read is not None, "what was added here is known here"
            forms[depth] = self._read(id, self._held[id].steps[depth - 1].text if depth else None)
        return forms[depth]

    def _place(self, id: str) -> None:
        one = self._held[id]
        if one.harm is None and not one.spent:
            self._look(id)
        if one.harm is None:
            self._queue.drop(id)
        else:
            self._queue.put(id, (one.harm, -one.gain, self._order[id]))

    def _place_undo(self, id: str) -> None:
        steps = self._held[id].steps
        if steps:
            self._undo.put(id, (-steps[-1].harm, 0, self._order[id]))
        else:
            self._undo.drop(id)

    def _change(self, id: str, steps: list[Step], predicates: int) -> None:
        one = self._held[id]
        self._before.setdefault(id, one.text)
        self.associations += predicates - one.predicates
        one.steps, one.predicates = steps, predicates
        self._place_undo(id)

    def _look(self, id: str) -> None:
        """Find the best pruning of a filter: of the least harm, then the one that takes away most."""
        one, current = self._held[id], self.current(id)
        harm_of, whole = self._degradation(current), size(current)
        options = [(round(harm_of(pruned), _DIGITS), size(pruned), pruned) for pruned in prunings(current)]
        options.sort(key=lambda option: option[:2])
        one.harm, one.gain, one.spent = None, 0, True
        self._found.pop(id, None)
        for harm, left, pruned in options:
            assert left < whole, "a pruning takes something away"
            assert harm >= -1e-9, "pruning cannot do good"
            if self._admits(id, pruned):
                one.harm, one.gain, one.spent = harm, whole - left, False
                self._found[id] = pruned
                return
