"""Imprecise events: an attribute given as an interval, `{"min": 3, "max": 5}`, where the event type allows it.

[RSPC06] §1 lets a publication be a box and calls it matched when a subscription covers it. Here each attribute says
which it wants: `certain`, the filter must hold whatever the value really is, or `possible`, it may hold.

             certain a                 the event is the box; the filter holds of the shaded part
        ┌──────────────────┐
     p  │▒▒▒▒▒▒▒▒▒▒│       │           only certain attributes     the whole box must be shaded
     o  │▒▒▒▒▒▒▒▒▒▒└───────┤           only possible ones          some point of it must be
     s. │        │▒▒▒▒▒▒▒▒▒│           both                        above every a some p: as in this picture
        └──────────────────┘

Differs: the paper knows only covering. An interval is judged as a whole, not predicate by predicate: of
`a < 5 OR a >= 5` it is certain, and of `a < 3 AND a > 4` not even possible. Only int, float and timestamp attributes
can be imprecise (`state/config.py`); their ranks are exact, and so is this.

Values of an attribute that answer all its predicates alike are one *case*; `a NOT IN (0, 2, ..., 32)` has two, however
long the list. The cases of all attributes make a table, which is filled in at once and read: above every certain case
some possible one. What falls apart is decided apart: an AND of parts that share no possible attribute, an OR of parts
that share no certain one. A filter whose table could become larger than `CASES_MAX` is refused when it is registered,
so no event ever meets one that is too large to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np

from state.arrays import Bools
from state.errors import HilcastError
from state.filters.geometry import Spans, common, intervals, united
from state.filters.tree import And, Filter, Predicate, conjunction, disjunction, predicates
from state.space.boxes import Boxes
from state.space.event_type import EventType
from state.space.ranks import ABSENT, PRESENT_MAX, PRESENT_MIN, Span, rank_span

CASES_MAX = 1 << 20
"""Of one table: some 20 ms to fill in."""
_COMPARED_MAX = 256
"""Cases of one attribute that are compared each with each, to leave out those that others decide."""

Holds = Callable[[Mapping[str, object]], bool]


def imprecise_names(filter: Filter, event_type: EventType) -> tuple[str, ...]:
    """The attributes of the filter that events may give as an interval."""
    used = {predicate.attribute for predicate in predicates(filter)}
    return tuple(a.name for a in event_type.attributes if a.imprecise is not None and a.name in used)


def spread(event: Mapping[str, object], names: tuple[str, ...], event_type: EventType) -> dict[str, Span]:
    """Those of the attributes that this event gives as an interval, with their ranks: ABSENT for a faulty one.

    >>> from state.space.event_type import Attribute
    >>> spread({"a": {"min": 3, "max": 5}}, ("a",), EventType("t", (Attribute("a", "int", imprecise="certain"),)))
    {'a': (3, 5)}
    """
    given = [name for name in names if isinstance(event.get(name), Mapping)]
    return {name: rank_span(event_type.attribute(name), event[name]) for name in given}


def possible_boxes(boxes: Boxes, event_type: EventType) -> Boxes:
    """Widen the boxes of a filter by what imprecise events can add: along `possible` attributes to all that is present.

    Guarantee: whatever event satisfies the filter and another one, the widened boxes meet those of the other. An
    interval may touch both `a < 3` and `a > 7`, which no value does.
    """
    lows, highs = boxes.lows.copy(), boxes.highs.copy()
    for column, attribute in enumerate(event_type.attributes):
        if attribute.imprecise == "possible":
            present = highs[:, column] >= PRESENT_MIN
            lows[present, column] = np.minimum(lows[present, column], PRESENT_MIN)
            highs[present, column] = PRESENT_MAX
    return Boxes(lows, highs)


def check_decidable(filter: Filter, event_type: EventType) -> None:
    """Refuse a filter that some imprecise event could not be held against within `CASES_MAX`.

    Guarantee: what passes, `holds_of_box` decides for every event: an event leaves fewer predicates open than there
    are, and an interval has fewer cases than the whole attribute. Cost: that of the predicates.

    >>> from state.filters.grammar import parse
    >>> from state.space.event_type import Attribute
    >>> many = EventType("t", tuple(Attribute(f"a{i}", "int", imprecise="certain") for i in range(30)))
    >>> any_of = " OR ".join(f"(a{i} < 1 AND a{(i + 1) % 30} < 2)" for i in range(30))
    >>> check_decidable(parse(any_of, many), many)
    Traceback (most recent call last):
    state.errors.HilcastError: filter-limit: events with intervals could need 205891132094649 cases, at most 1048576; \
ask for fewer imprecise attributes, or less often for each
    """
    names = imprecise_names(filter, event_type)
    if not names:
        return
    rest = _only(filter, frozenset(names))
    everything = dict.fromkeys(names, (ABSENT, PRESENT_MAX))
    count = (
        0
        if rest is None
        else max((_Table(part).size() for part in _tables(_tree(rest, everything, event_type))), default=0)
    )
    if count > CASES_MAX:
        raise HilcastError(
            "filter-limit",
            f"events with intervals could need {count} cases, at most {CASES_MAX}; ask for fewer imprecise attributes, "
            "or less often for each",
        )


def holds_of_box(
    filter: Filter,
    event: Mapping[str, object],
    spans: Mapping[str, Span],
    event_type: EventType,
    compiled: Callable[[Predicate], Holds],
) -> bool:
    """Tell whether the filter holds of an event with intervals, as its attributes want it.

    `compiled` evaluates predicates on the attributes that are not intervals; what remains is a table of cases.
    Guarantee: exact. Cost: that of the table, at most `CASES_MAX` cases for a filter that was registered.
    """
    rest = _remaining(filter, event, spans, compiled)
    return rest if isinstance(rest, bool) else _decided(_tree(rest, spans, event_type))


def _remaining(
    filter: Filter, event: Mapping[str, object], spans: Mapping[str, Span], compiled: Callable[[Predicate], Holds]
) -> Filter | bool:
    """The filter with every predicate that this event decides replaced by its answer."""
    if isinstance(filter, Predicate):
        return filter if filter.attribute in spans else compiled(filter)(event)
    every = isinstance(filter, And)
    left = []
    for child in filter.children:
        rest = _remaining(child, event, spans, compiled)
        if rest is not every and isinstance(rest, bool):
            return rest
        if not isinstance(rest, bool):
            left.append(rest)
    if not left:
        return every
    return conjunction(left) if every else disjunction(left)


def _only(filter: Filter, names: frozenset[str]) -> Filter | None:
    """The filter without predicates on other attributes; None if nothing is left."""
    if isinstance(filter, Predicate):
        return filter if filter.attribute in names else None
    left = [rest for child in filter.children if (rest := _only(child, names)) is not None]
    if not left:
        return None
    return conjunction(left) if isinstance(filter, And) else disjunction(left)


# --- trees: what remains of a filter ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Leaf:
    """All that one node asks directly of one attribute."""

    attribute: str
    certain: bool
    spans: Spans
    within: Span

    @property
    def attributes(self) -> frozenset[str]:
        return frozenset((self.attribute,))


@dataclass(frozen=True, slots=True)
class _Node:
    every: bool
    """AND, else OR."""
    children: tuple[_Tree, ...]
    attributes: frozenset[str]
    certain: frozenset[str]


_Tree = _Leaf | _Node


def _tree(filter: Filter, spans: Mapping[str, Span], event_type: EventType) -> _Tree:
    """A filter on attributes that are intervals, with one leaf for all that a node asks of an attribute."""
    if isinstance(filter, Predicate):
        attribute = event_type.attribute(filter.attribute)
        found = intervals(filter, attribute).spans
        return _Leaf(attribute.name, attribute.imprecise == "certain", found, spans[attribute.name])
    every = isinstance(filter, And)
    return _joined(every, [_tree(child, spans, event_type) for child in filter.children])


def _joined(every: bool, children: Iterable[_Tree]) -> _Tree:
    leaves: dict[str, _Leaf] = {}
    nodes: list[_Tree] = []
    for child in children:
        if not isinstance(child, _Leaf):
            nodes.append(child)
        elif child.attribute not in leaves:
            leaves[child.attribute] = child
        else:
            known = leaves[child.attribute].spans
            both = common(known, child.spans) if every else united([*known, *child.spans])
            leaves[child.attribute] = _Leaf(child.attribute, child.certain, both, child.within)
    parts = (*leaves.values(), *nodes)
    if len(parts) == 1:
        return parts[0]
    attributes = frozenset[str]().union(*(part.attributes for part in parts))
    return _Node(every, parts, attributes, frozenset[str]().union(*map(_certain, parts)))


def _certain(tree: _Tree) -> frozenset[str]:
    return tree.certain if isinstance(tree, _Node) else tree.attributes if tree.certain else frozenset()


def _apart(tree: _Node) -> list[_Tree]:
    """The parts of a node that can be decided apart.

    Above every certain case there is a possible one for both of two parts, if there is one for each and they choose
    among different attributes. And one part or the other has one above every certain case of both, only if one of them
    has one above each of its own, where those are different attributes.
    """
    groups: list[tuple[frozenset[str], list[_Tree]]] = []
    for child in tree.children:
        tie = child.attributes - _certain(child) if tree.every else _certain(child)
        met = [group for group in groups if group[0] & tie]
        groups = [group for group in groups if not group[0] & tie]
        groups.append((tie.union(*(names for names, _ in met)), [*(one for _, some in met for one in some), child]))
    return [_joined(tree.every, some) for _, some in groups]


def _decided(tree: _Tree) -> bool:
    if isinstance(tree, _Node) and len(parts := _apart(tree)) > 1:
        return all(map(_decided, parts)) if tree.every else any(map(_decided, parts))
    return _Table(tree).read()


def _tables(tree: _Tree) -> list[_Tree]:
    """All parts that `_decided` may make a table of."""
    if isinstance(tree, _Node) and len(parts := _apart(tree)) > 1:
        return [table for part in parts for table in _tables(part)]
    return [tree]


# --- tables: all cases at once ----------------------------------------------------------------------------


class _Table:
    """The cases of one tree: an axis for each attribute."""

    def __init__(self, tree: _Tree) -> None:
        self._tree = tree
        self._leaves: dict[str, list[_Leaf]] = {}
        self._collect(tree)
        self._axes = {name: axis for axis, name in enumerate(self._leaves)}

    def _collect(self, tree: _Tree) -> None:
        if isinstance(tree, _Leaf):
            self._leaves.setdefault(tree.attribute, []).append(tree)
        else:
            for child in tree.children:
                self._collect(child)

    def size(self) -> int:
        """How many cases there can be."""
        return prod(len(_cases(leaves)) for leaves in self._leaves.values())

    def read(self) -> bool:
        """Whether above every certain case some possible one holds."""
        cases = {name: _deciding(_cases(leaves), leaves[0].certain) for name, leaves in self._leaves.items()}
        assert prod(map(len, cases.values())) <= CASES_MAX, "a filter that cannot be decided is not registered"
        answers = {name: iter(found.T) for name, found in cases.items()}
        held = self._filled(self._tree, answers)
        certain = tuple(self._axes[name] for name, leaves in self._leaves.items() if leaves[0].certain)
        possible = tuple(axis for axis in range(len(self._axes)) if axis not in certain)
        return bool(held.any(axis=possible, keepdims=True).all())

    def _filled(self, tree: _Tree, answers: Mapping[str, Iterable[Bools]]) -> Bools:
        """The answers of a tree to all cases; an axis that does not matter to it has length 1."""
        if isinstance(tree, _Leaf):
            shape = [1] * len(self._axes)
            shape[self._axes[tree.attribute]] = -1
            return next(iter(answers[tree.attribute])).reshape(shape)
        children = [self._filled(child, answers) for child in tree.children]
        return reduce(np.logical_and if tree.every else np.logical_or, children)


def _cases(leaves: Sequence[_Leaf]) -> Bools:
    """(cases, leaves): the different ways in which the values of an interval answer these leaves."""
    low, high = leaves[0].within
    ends = [end for leaf in leaves for first, last in leaf.spans for end in (first, last + 1) if low < end <= high]
    values = np.array(sorted({low, *ends}), np.int64)
    return np.unique(np.stack([_inside(leaf.spans, values) for leaf in leaves], axis=1), axis=0)


def _inside(spans: Spans, values: np.ndarray) -> Bools:
    if not spans:
        return np.zeros(len(values), bool)
    firsts, lasts = np.array(spans, np.int64).T
    place = np.searchsorted(firsts, values, side="right") - 1
    return (place >= 0) & (values <= lasts[place])


def _deciding(cases: Bools, certain: bool) -> Bools:
    """Leave out cases that others decide: a filter has no NOT, so more answers of yes never make it fail.

    Of certain cases the hardest count, of possible ones the easiest.
    """
    if len(cases) > _COMPARED_MAX:
        return cases
    below: Bools = np.all(cases[:, None] <= cases[None], axis=2)  # of different rows: strictly, for no two are equal
    np.fill_diagonal(below, False)
    return cases[~np.any(below, axis=0 if certain else 1)]
