"""The degradation queue: of all filters the pruning that does the least harm, and the way back.

[BADV06] §5.5. A pruning removes one child of a conjunction. Children of disjunctions are never removed (that would
narrow the filter), nor is the root (nothing would be left), so every pruned filter holds wherever the original does.

    a AND (b AND c OR d)  ──>  b AND c OR d     a     a AND (c OR d)     a AND (b OR d)

Differs: among prunings of equal degradation the one that removes most goes first, then the filter that waited
longest; the paper leaves ties open. Prunings are remembered and can be undone, last first; the paper only prunes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count, pairwise

from state.filters.tree import TRUE, And, Filter, Predicate, conjunction, disjunction

_VOID_MAX = 64
"""Void places that a heap may hold, beside as many as there are filters, before they are thrown out."""

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
    return 1 if isinstance(filter, Predicate) else sum(map(size, filter.children))


@dataclass(slots=True)
class _Entry:
    original: Filter
    current: Filter
    associations: int
    best: tuple[float, Filter] | None = None
    """The least degradation of a pruning of `current`, and what it makes."""
    steps: list[tuple[float, Filter]] = field(default_factory=list)
    """The prunings so far: their degradation, and the filter before."""
    ticket: int = 0
    """Of the entry's place in the queue; older tickets are void."""
    undo_ticket: int = 0


class DegradationQueue:
    """Filters under ids, each as written and as pruned so far, ordered by their best pruning.

    `associations_of` tells how many predicates a filter uses once it is stored; `associations` is their sum.
    Cost: adding or pruning O(prunings * predicates) of that filter and O(log filters).
    """

    def __init__(self, degradation: Degradation, associations_of: Callable[[Filter], int] = size) -> None:
        self._degradation = degradation
        self._associations_of = associations_of
        self.associations = 0
        self._entries: dict[str, _Entry] = {}
        self._queue: list[tuple[float, int, int, str]] = []
        self._undo: list[tuple[float, int, str]] = []
        self._tickets = count(1)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: str) -> bool:
        return id in self._entries

    def ids(self) -> list[str]:
        """All ids, in the order in which they came."""
        return list(self._entries)

    def original(self, id: str) -> Filter:
        """The filter as it was written."""
        return self._entries[id].original

    def current(self, id: str) -> Filter:
        """The filter as pruned so far."""
        return self._entries[id].current

    def add(self, id: str, filter: Filter) -> None:
        """Add a filter, unpruned; one under the same id is replaced."""
        self.remove(id)
        entry = self._entries[id] = _Entry(filter, filter, self._associations_of(filter))
        self.associations += entry.associations
        self._enqueue(id, entry)

    def remove(self, id: str) -> bool:
        """Remove a filter; tell whether it was there."""
        entry = self._entries.pop(id, None)
        if entry is None:
            return False
        self.associations -= entry.associations
        return True

    def best(self) -> tuple[float, str, Filter] | None:
        """The pruning of the least degradation: how much it is, whose, and what it makes."""
        while self._queue:
            least, _, ticket, id = self._queue[0]
            entry = self._entries.get(id)
            if entry is not None and entry.ticket == ticket:
                assert entry.best is not None
                return least, id, entry.best[1]
            heappop(self._queue)
        return None

    def prune(self, id: str) -> None:
        """Perform the best pruning of a filter."""
        entry = self._entries[id]
        assert entry.best is not None, "a filter without prunings is not in the queue"
        least, pruned = entry.best
        entry.steps.append((least, entry.current))
        self._change(id, entry, pruned)

    def refuse(self, id: str) -> None:
        """Take a filter out of the queue until it changes, or all are looked at anew."""
        self._entries[id].ticket = 0

    def costliest(self) -> tuple[float, str, Filter] | None:
        """Of the last prunings of all filters the one of the greatest degradation, and the filter before it."""
        while self._undo:
            _, ticket, id = self._undo[0]
            entry = self._entries.get(id)
            if entry is not None and entry.undo_ticket == ticket:
                most, before = entry.steps[-1]
                return most, id, before
            heappop(self._undo)
        return None

    def undo(self, id: str) -> None:
        """Take back the last pruning of a filter."""
        entry = self._entries[id]
        _, before = entry.steps.pop()
        self._change(id, entry, before)

    def associations_with(self, id: str, filter: Filter) -> int:
        """What `associations` would be if this filter stood for that of `id`."""
        return self.associations - self._entries[id].associations + self._associations_of(filter)

    def refresh(self, degradation: Degradation) -> None:
        """Order all prunings by another measure of harm; what was pruned stays pruned."""
        self._degradation = degradation
        self._queue = []
        for id, entry in self._entries.items():
            self._enqueue(id, entry)
        heapify(self._queue)

    def check(self) -> None:
        """Assert every invariant."""
        assert {id for _, _, ticket, id in self._queue if self._is(id, ticket)} == {
            id for id, entry in self._entries.items() if entry.ticket
        }
        for entry in self._entries.values():
            filters = [*(before for _, before in entry.steps), entry.current]
            assert filters[0] == entry.original
            assert all(after in list(prunings(before)) for before, after in pairwise(filters))
            assert entry.current != TRUE or not entry.steps
            assert entry.associations == self._associations_of(entry.current)
        assert self.associations == sum(entry.associations for entry in self._entries.values())

    def _is(self, id: str, ticket: int) -> bool:
        return id in self._entries and self._entries[id].ticket == ticket

    def _change(self, id: str, entry: _Entry, filter: Filter) -> None:
        self.associations = self.associations_with(id, filter)
        entry.associations = self._associations_of(filter)
        entry.current = filter
        self._enqueue(id, entry)
        self._enqueue_undo(id, entry)

    def _enqueue(self, id: str, entry: _Entry) -> None:
        harm = self._degradation(entry.current)
        options = [(harm(pruned), size(pruned), pruned) for pruned in prunings(entry.current)]
        if not options:
            entry.best, entry.ticket = None, 0
            return
        least, left, pruned = min(options, key=lambda option: option[:2])
        assert least >= -1e-9, "pruning cannot do good"
        entry.best = least, pruned
        entry.ticket = next(self._tickets)
        heappush(self._queue, (least, left - size(entry.current), entry.ticket, id))
        if len(self._queue) > _VOID_MAX + 2 * len(self._entries):
            self._queue = [place for place in self._queue if self._is(place[3], place[2])]
            heapify(self._queue)

    def _enqueue_undo(self, id: str, entry: _Entry) -> None:
        entry.undo_ticket = next(self._tickets) if entry.steps else 0
        if entry.steps:
            heappush(self._undo, (-entry.steps[-1][0], entry.undo_ticket, id))
        if len(self._undo) > _VOID_MAX + 2 * len(self._entries):
            valid = {entry.undo_ticket for entry in self._entries.values()}
            self._undo = [place for place in self._undo if place[1] in valid]
            heapify(self._undo)
