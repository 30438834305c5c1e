"""Filters in normal form: trees on which comparing predicates pair by pair is the whole truth.

[BADV06] §4 compares the predicates of two trees pair by pair. That is exact only while no attribute is
restricted twice on one way to satisfy a tree: of `price > 5 AND price < 7` neither predicate violates
`price = 9 OR price = 2`, but no event satisfies both. So before anything is indexed:

    leaves of one AND on one attribute  become one leaf, the intersection    a > 5 AND a < 9
    leaves of one OR on one attribute   become one leaf, the union           a = 1 OR a = 2
    a leaf below an AND                 is cut to what the AND still allows  a > 5 AND (a < 9 OR b = 1)
    ORs of one AND, sharing attributes  are multiplied out                   (a < 3 OR b) AND (a > 5 OR c)
    what cannot hold, or always does    is dropped

and both sides of every comparison are normal forms, so "overlaps" means the same in both directions.

Differs: the paper indexes the tree as written; its own examples and all its classes are normal already. It
has no limit on conjunctions. Here, beyond 128, children of conjunctions are dropped until 128 are left: that
only widens, and still says "no" where the rest suffices. ORs are multiplied out only while the result has at
most 256 leaves; above, and for LIKE, "overlap" may be said of two filters that share no event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from math import prod
from typing import Any, NamedTuple

from state.advertisements.extents import Extent, both, either, everything, extent
from state.filters.geometry import CONJUNCTIONS_MAX
from state.filters.tree import And, Filter, Or, Predicate
from state.space.event_type import EventType

LEAVES_MAX = 256
"""ORs are not multiplied out beyond this many leaves: what one filter costs in an index stays bounded."""
_CACHE_MAX = 1 << 16


class Leaf(NamedTuple):
    """What a tree asks of one attribute, given as its dimension."""

    dimension: int
    extent: Extent


@dataclass(frozen=True, slots=True)
class AllOf:
    """All children hold; without children it is always true."""

    children: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some child holds; without children none ever does."""

    children: tuple[Tree, ...]


Tree = Leaf | AllOf | AnyOf
ALWAYS, NEVER = AllOf(()), AnyOf(())

Structure = Any
"""A tree without its leaves: 0 for a leaf, ("&", child, ...) or ("|", child, ...). The leaves are numbered
from left to right; those of an AND stand before its ORs, so that the cheapest reason for a no comes first."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What all trees of one structure share."""

    structure: Structure
    predicates: int
    """|P|, the number of leaves."""
    minimum: int
    """|P_min|: the least number of leaves that are true when the tree is ([BADV06] §4.3)."""
    conjunctions: tuple[tuple[int, ...], ...]
    """The numbers of the leaves of each conjunction of its disjunctive normal form."""
    masks: tuple[int, ...]
    """For each leaf the conjunctions it belongs to, as bits: the cross product that P'_vio of the root is."""


@dataclass(frozen=True, slots=True)
class Normal:
    """A filter in normal form."""

    shape: Shape
    leaves: tuple[Leaf, ...]

    @property
    def never(self) -> bool:
        """No event satisfies the filter."""
        return not self.shape.conjunctions

    def conjunctions(self) -> list[Normal]:
        """The filter as the list of its conjunctions: what a conjunctive system would register instead."""
        return [
            Normal(shape(("&", *[0] * len(numbers))), tuple(self.leaves[i] for i in numbers))
            for numbers in self.shape.conjunctions
        ]


@lru_cache(maxsize=4096)
def shape(structure: Structure) -> Shape:
    """Return what trees of this structure share.

    >>> s = shape(("&", 0, ("|", ("&", 0, 0), ("&", 0, 0))))
    >>> s.predicates, s.minimum, s.conjunctions
    (5, 3, ((0, 1, 2), (0, 3, 4)))
    >>> s.masks
    (3, 1, 1, 2, 2)
    """
    numbers = iter(range(1 << 30))
    minimum, conjunctions = _expanded(structure, numbers)
    count = next(numbers)
    masks = [0] * count
    for k, members in enumerate(conjunctions):
        for i in members:
            masks[i] |= 1 << k
    return Shape(structure, count, minimum, tuple(conjunctions), tuple(masks))


def _expanded(structure: Structure, numbers: Any) -> tuple[int, list[tuple[int, ...]]]:
    if structure == 0:
        return 1, [(next(numbers),)]
    operator, *rest = structure
    children = [_expanded(child, numbers) for child in rest]
    if operator == "|":
        return min((least for least, _ in children), default=0), [c for _, each in children for c in each]
    ways = product(*(each for _, each in children))
    return sum(least for least, _ in children), [tuple(i for part in way for i in part) for way in ways]


class Normaliser:
    """Turns filters of one event type into normal form.

    Guarantee: the normal form holds for every event for which the filter does; without LIKE (other than by
    prefix) and within the limits above it is equal to it, and comparing two of them pair by pair is exact.
    Cost: microseconds per predicate where the filter is normal as written (each structure is judged once).
    """

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self._everything = [everything(attribute) for attribute in event_type.attributes]
        self.leaf = lru_cache(maxsize=_CACHE_MAX)(self._leaf)

    def __call__(self, filter: Filter) -> Normal:
        """Return the normal form of a filter."""
        leaves: list[Predicate] = []
        plan = _plan(_skeleton(filter, leaves))
        if plan is not None:
            found = tuple(self.leaf(leaves[i]) for i in plan.order)
            if not any(leaf.extent.empty for leaf in found):
                return Normal(plan.shape, found)
        return self.of_tree(self.tree(filter))

    def tree(self, filter: Filter) -> Tree:
        """The filter as written, its predicates as extents."""
        if isinstance(filter, Predicate):
            return self.leaf(filter)
        children = tuple(self.tree(child) for child in filter.children)
        return AllOf(children) if isinstance(filter, And) else AnyOf(children)

    def of_tree(self, tree: Tree) -> Normal:
        """Return the normal form of a tree of extents."""
        tree = self._simple(tree, {}, False)
        if conjunctions(tree) > CONJUNCTIONS_MAX:
            tree = self._simple(_fitted(tree, CONJUNCTIONS_MAX), {}, False)
        tree = self._simple(tree, {}, True)
        leaves: list[Leaf] = []
        structure = _structure(tree, leaves)
        return Normal(shape(structure), tuple(leaves))

    def _leaf(self, predicate: Predicate) -> Leaf:
        dimension = self.event_type.dimension[predicate.attribute]
        return Leaf(dimension, extent(predicate, self.event_type.attributes[dimension]))

    # `context` is what the conjunctions around a node leave of each attribute; `spread` multiplies ORs out.

    def _simple(self, tree: Tree, context: dict[int, Extent], spread: bool) -> Tree:
        if isinstance(tree, AllOf):
            return self._simple_all(tree.children, context, spread)
        if isinstance(tree, AnyOf):
            return self._simple_any(tree.children, context, spread)
        known = context.get(tree.dimension, self._everything[tree.dimension])
        met = both(tree.extent, known)
        if met.empty:
            return NEVER
        return ALWAYS if met == known else Leaf(tree.dimension, met)

    def _simple_all(self, children: Iterable[Tree], outer: dict[int, Extent], spread: bool) -> Tree:
        own: dict[int, Leaf] = {}
        context = dict(outer)
        pending: Sequence[Tree] = list(children)
        while True:
            leaves, disjunctions = _parted(pending)
            for leaf in leaves:
                found = self._simple(leaf, context, spread)
                if found == NEVER:
                    return NEVER
                if isinstance(found, Leaf):
                    own[leaf.dimension] = found
                    context[leaf.dimension] = found.extent
            simple = [self._simple_any(d.children, context, spread) for d in disjunctions]
            pending = list(dict.fromkeys(simple))
            if NEVER in pending:
                return NEVER
            if all(isinstance(child, AnyOf) for child in pending):
                break  # else an OR became a leaf or an AND: take it in, and look at the others again
        if spread:
            pair = _sharing(pending)
            if pair is not None:
                return self._simple_all([*own.values(), *_multiplied(pending, *pair)], outer, spread)
        return _joined(AllOf, [*own.values(), *pending])

    def _simple_any(self, children: Iterable[Tree], context: dict[int, Extent], spread: bool) -> Tree:
        flat: list[Tree] = []
        for child in children:
            found = self._simple(child, context, spread)
            if found == ALWAYS:
                return ALWAYS
            flat.extend(found.children if isinstance(found, AnyOf) else (found,))
        merged: dict[int, Extent] = {}
        others: dict[Tree, None] = {}
        for child in flat:
            if isinstance(child, Leaf) and not child.extent.patterned:
                before = merged.get(child.dimension)
                merged[child.dimension] = child.extent if before is None else either(before, child.extent)
            else:
                others[child] = None
        for dimension, union in merged.items():
            if union == context.get(dimension, self._everything[dimension]):
                return ALWAYS
        return _joined(AnyOf, [*(Leaf(d, union) for d, union in merged.items()), *others])


def conjunctions(tree: Tree) -> int:
    """Count the conjunctions of the disjunctive normal form, without writing it out."""
    if isinstance(tree, Leaf):
        return 1
    counts = (conjunctions(child) for child in tree.children)
    return prod(counts) if isinstance(tree, AllOf) else sum(counts)


def _fitted(tree: Tree, limit: int) -> Tree:
    """Widen a tree to at most `limit` conjunctions: ORs are dropped from conjunctions, largest first."""
    if conjunctions(tree) <= limit:
        return tree
    assert not isinstance(tree, Leaf)
    smallest_first = sorted(tree.children, key=conjunctions)
    kept: list[Tree] = []
    if isinstance(tree, AnyOf):
        if len(smallest_first) > limit:
            return ALWAYS
        for left, child in zip(range(len(smallest_first), 0, -1), smallest_first, strict=True):
            kept.append(_fitted(child, limit // left))
            limit -= conjunctions(kept[-1])
        return AnyOf(tuple(kept))
    for child in smallest_first:
        fitted = _fitted(child, limit)
        kept.append(fitted)
        limit //= conjunctions(fitted)
    return AllOf(tuple(kept))


def _parted(children: Iterable[Tree]) -> tuple[list[Leaf], list[AnyOf]]:
    leaves: list[Leaf] = []
    disjunctions: list[AnyOf] = []
    for child in children:
        if isinstance(child, Leaf):
            leaves.append(child)
        elif isinstance(child, AnyOf):
            disjunctions.append(child)
        else:
            more = _parted(child.children)
            leaves += more[0]
            disjunctions += more[1]
    return leaves, disjunctions


def _joined(kind: type[AllOf] | type[AnyOf], children: list[Tree]) -> Tree:
    return children[0] if len(children) == 1 else kind(tuple(children))


def _sharing(disjunctions: Sequence[Tree]) -> tuple[int, int] | None:
    """The first two that restrict a common attribute, if multiplying them out is not too much."""
    dimensions = [_dimensions(tree) for tree in disjunctions]
    for i, j in combinations(range(len(disjunctions)), 2):
        if dimensions[i] & dimensions[j]:
            one, other = disjunctions[i], disjunctions[j]
            assert isinstance(one, AnyOf)
            assert isinstance(other, AnyOf)
            leaves = len(other.children) * _leaves(one) + len(one.children) * _leaves(other)
            if leaves <= LEAVES_MAX:
                return i, j
    return None


def _multiplied(disjunctions: Sequence[Tree], i: int, j: int) -> list[Tree]:
    one, other = disjunctions[i], disjunctions[j]
    assert isinstance(one, AnyOf)
    assert isinstance(other, AnyOf)
    rest = [tree for k, tree in enumerate(disjunctions) if k not in (i, j)]
    return [*rest, AnyOf(tuple(AllOf(pair) for pair in product(one.children, other.children)))]


def _dimensions(tree: Tree) -> set[int]:
    if isinstance(tree, Leaf):
        return {tree.dimension}
    return set().union(*(_dimensions(child) for child in tree.children))


def _leaves(tree: Tree) -> int:
    return 1 if isinstance(tree, Leaf) else sum(_leaves(child) for child in tree.children)


def _structure(tree: Tree, leaves: list[Leaf]) -> Structure:
    if isinstance(tree, Leaf):
        leaves.append(tree)
        return 0
    children: Iterable[Tree] = tree.children
    if isinstance(tree, AllOf):
        children = sorted(children, key=lambda child: not isinstance(child, Leaf))
    return ("&" if isinstance(tree, AllOf) else "|", *(_structure(child, leaves) for child in children))


# --- filters that are normal as written ---------------------------------------------------------------------


class _Plan(NamedTuple):
    shape: Shape
    order: tuple[int, ...]
    """Which predicate, counted from left to right in the filter, each leaf of the shape is."""


def _skeleton(filter: Filter, leaves: list[Predicate]) -> Any:
    """The filter without its literals: attribute names, ("&", child, ...) and ("|", child, ...)."""
    if isinstance(filter, Predicate):
        leaves.append(filter)
        return filter.attribute
    operator = "|" if isinstance(filter, Or) else "&"
    return (operator, *[_skeleton(child, leaves) for child in filter.children])


@lru_cache(maxsize=4096)
def _plan(skeleton: Any) -> _Plan | None:
    """How to arrange the leaves of filters with this skeleton; None if they may not be normal as written."""
    numbers = iter(range(1 << 30))
    order: list[int] = []
    numbered = _numbered(skeleton, numbers)
    if skeleton != ("&",) and (_attributes(numbered) is None or _ways(numbered) > CONJUNCTIONS_MAX):
        return None
    return _Plan(shape(_arranged(numbered, order)), tuple(order))


def _numbered(skeleton: Any, numbers: Any) -> Any:
    """The same with each attribute as (name, number), and an AND inside an AND (OR inside OR) dissolved."""
    if isinstance(skeleton, str):
        return [skeleton, next(numbers)]
    flat: list[Any] = []
    for child in (_numbered(part, numbers) for part in skeleton[1:]):
        flat.extend(child[1:] if child[0] == skeleton[0] and isinstance(child, tuple) else (child,))
    return (skeleton[0], *flat)


def _attributes(node: Any) -> set[str] | None:
    """The attributes below a node, or None if it is not normal."""
    if isinstance(node, list):
        return {node[0]}
    names = [_attributes(child) for child in node[1:]]
    leaves = [child[0] for child in node[1:] if isinstance(child, list)]
    if len(names) < 2 or len(set(leaves)) < len(leaves):
        return None
    union: set[str] = set()
    for found in names:
        if found is None or (node[0] == "&" and union & found):
            return None
        union |= found
    return union


def _ways(node: Any) -> int:
    if isinstance(node, list):
        return 1
    counts = [_ways(child) for child in node[1:]]
    return prod(counts) if node[0] == "&" else sum(counts)


def _arranged(node: Any, order: list[int]) -> Structure:
    if isinstance(node, list):
        order.append(node[1])
        return 0
    children = node[1:]
    if node[0] == "&":
        children = sorted(children, key=lambda child: not isinstance(child, list))
    return (node[0], *(_arranged(child, order) for child in children))
