"""Trees of spans: the program that compiled code writes, beside one written with lists and dictionaries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from state.filters.disjoint import INTERSECT, NOWHERE, PRODUCT, SKIP, UNITE, run
from state.filters.geometry import common, geometry, intervals, united
from state.filters.grammar import parse
from state.filters.span_trees import AND, OR, boxes_of, written
from state.filters.tree import predicates
from state.space.ranks import ABSENT, PRESENT_MAX
from tests.filters.samples import QUOTE, filters

Spans = tuple[tuple[int, int], ...]
ENDS = (ABSENT, ABSENT + 1, -3, -2, 0, 1, 2, 3, 4, 7, PRESENT_MAX - 1, PRESENT_MAX)
"""Few, so that spans meet and touch, also at the ends of the numbers."""


class Leaf(NamedTuple):
    k: int
    exact: bool
    spans: Spans


class Node(NamedTuple):
    kind: int
    leaves: tuple[Leaf, ...]
    branches: tuple[Node, ...]  # type: ignore[name-defined]


span = st.tuples(st.sampled_from(ENDS), st.sampled_from(ENDS)).map(lambda ends: (min(ends), max(ends)))
leaf = st.builds(Leaf, st.integers(0, 2), st.booleans(), st.lists(span, max_size=3).map(united))


def node(below: st.SearchStrategy[tuple[Node, ...]]) -> st.SearchStrategy[Node]:
    return st.builds(Node, st.sampled_from((AND, OR)), st.lists(leaf, max_size=4).map(tuple), below)


nodes = st.recursive(node(st.just(())), lambda inner: node(st.lists(inner, max_size=3).map(tuple)), max_leaves=8)


def numbers(tree: Node) -> list[int]:
    """A tree as `span_trees.py` takes it."""
    found = [tree.kind, len(tree.leaves), len(tree.branches)]
    for k, exact, spans in tree.leaves:
        found += [k, exact, len(spans), *(end for one in spans for end in one)]
    return found + [number for branch in tree.branches for number in numbers(branch)]


def product(spans: dict[int, Spans], exact: bool) -> list[int]:
    found = [PRODUCT, int(exact), len(spans)]
    for k, each in spans.items():
        found += [k, len(each), *(end for one in each for end in one)]
    return found


def program(tree: Node, begin: int = 0) -> list[int]:
    """The program of a tree that begins at a place."""
    spans: dict[int, Spans] = {}
    for k, _, more in tree.leaves:
        spans[k] = (
            more if k not in spans else common(spans[k], more) if tree.kind == AND else united([*spans[k], *more])
        )
    exact = all(one.exact for one in tree.leaves)
    found: list[int] = []
    if tree.kind == OR:
        sets = [product({k: each}, True) for k, each in spans.items() if each]
        for one in sets:
            found += one
        for branch in tree.branches:
            found += program(branch, begin + len(found))
        return [*found, UNITE, int(exact), len(sets) + len(tree.branches)]
    if not all(spans.values()):
        return [NOWHERE]
    found, skips = product(spans, exact), []
    for branch in tree.branches:
        found += program(branch, begin + len(found))
        found += (INTERSECT, SKIP, 0)
        skips.append(len(found) - 1)
    for skip in skips:
        found[skip] = begin + len(found)
    return found


@settings(max_examples=600, deadline=None)
@given(nodes)
def test_the_program_is_that_of_lists_and_dictionaries(tree: Node) -> None:
    """Number for number: so the boxes are the same ones, in the same order."""
    given = np.array(numbers(tree), np.int64)
    room = np.empty(3 * len(given) + 3, np.int64)
    found, expected = room[: written(given, room)].tolist(), program(tree)
    assert found == expected
    assert len(found) <= 3 * len(given)
    corners, count, exact = run(np.array(expected, np.int64), 3, 64)
    boxes = boxes_of(given.tolist(), 3, 64)
    assert (boxes is None) == (count < 0)
    if boxes is not None:
        assert np.array_equal(boxes[0], corners)
        assert boxes[1] == exact


@settings(max_examples=300, deadline=None)
@given(filters())
def test_a_predicate_writes_its_spans(text: str) -> None:
    """What boxes are made of, remembered or not, is what `intervals` says of each predicate by itself."""
    tree = parse(text, QUOTE)
    for _ in range(2):
        for one in predicates(tree):
            alone = geometry(one, QUOTE)
            k, found = QUOTE.dimension[one.attribute], intervals(one, QUOTE.attribute(one.attribute))
            spans = sorted(zip(alone.boxes.lows[:, k].tolist(), alone.boxes.highs[:, k].tolist(), strict=True))
            assert tuple(spans) == found.spans
            assert alone.exact == found.exact or not found.spans
