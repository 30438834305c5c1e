"""The parser written by hand reads and refuses as lark does with the grammar of the language."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import FilterError
from state.filters.grammar import KEYWORDS, Leaf, Node, written
from tests.filters import lark_grammar
from tests.filters.samples import filters, random_filter
from tests.filters.test_grammar import SOUP, mutated


def spelled(node: Node) -> Any:
    """What was written, with operators as words and every place, to be compared."""
    if isinstance(node, Leaf):
        literals = [(type(value), value, node.at(i)) for i, value in enumerate(node.literals)]
        return node.name, node.operator.value.split(), literals, node.at(None)
    return node.kind, [spelled(child) for child in node.children]


def spelled_by_lark(node: lark_grammar.Node | lark_grammar.Leaf) -> Any:
    if isinstance(node, lark_grammar.Leaf):
        words = ["!=" if word == "<>" else word for word in node.words] or ["IS", "NOT", "NULL"]
        return node.name, words, [(type(value), value, at) for value, at in node.literals], node.position
    if node.kind == "group":
        return spelled_by_lark(node.children[0])
    return node.kind, [spelled_by_lark(child) for child in node.children]


def same_as_lark(text: str) -> str:
    """Read a text both ways; returns how it was refused, in short, or that it was not."""
    expected = outcome(text)
    if isinstance(expected, lark_grammar.Refused):
        with pytest.raises(FilterError) as caught:
            written(text, limits=False)
        where = f"{expected.reason} (at character {expected.position + 1})"
        error = caught.value
        assert (error.code, error.reason, error.position) == ("filter-syntax", where, expected.position), text
        return expected.reason.split()[0]
    found = written(text, limits=False)
    assert spelled(found.node) == spelled_by_lark(expected), text
    assert (found.depth, found.predicates) == (expected.depth, expected.predicates), text
    return "read"


def outcome(text: str) -> lark_grammar.Node | lark_grammar.Leaf | lark_grammar.Refused:
    try:
        return lark_grammar.read(text)
    except lark_grammar.Refused as refused:
        return refused


SHORT = [
    *("", "TRUE", "TRUE 5", "TRUE )", "(TRUE)", "NOT", "NOT TRUE", "price", "price NOT", "price NOT 5", "price IS"),
    *("price IS NOT", "price IS NOT 5", "price IN", "price IN (", "price IN (1", "price IN (1 2", "price IN (1,"),
    *("price IN (NULL", "price IN ()", "price BETWEEN", "price BETWEEN 1", "price BETWEEN 1 OR", "price NULL"),
    *("price BETWEEN 1 AND", "price LIKE", "price LIKE 'a' 5", "(price LIKE 'a' 5", "(price LIKE 'a') 5", "x=1 5"),
    *("price LIKE 'a' )", "price LIKE 'a' ESCAPE", "price LIKE 'a' ESCAPE 5", "price LIKE 'a' ESCAPE 'b' 5"),
    *("EXISTS", "EXISTS 5", "NOT EXISTS 5", "EXISTS x)", "(EXISTS x", "x = NULL", "x IS NULL NULL", "x=1 AND"),
    *("x=1 OR TRUE", "x=1 AND (", "((x=1) 5", "(x=1))", "x=1)", "(x=1", "((x=1)", "(x=1,", "x=1 OR NOT y=2)"),
    *("x='", "'", '"', '"x', "x = -", "x = +", "x = .", "x = 1e", "x = 1.e5", "x=5AND y=1", "x\0", "²=1", "_=1"),
    *('""=1', "x = ''", "x <= >", "x LIKE TRUE", "x LIKE 5 ESCAPE ''", "\x1c", "x\u00a0= 1", "ſ=1", "x ıs NULL"),
]


@pytest.mark.parametrize("text", SHORT)
def test_each_state_of_the_parser(text: str) -> None:
    """Wherever a text can stop or go wrong, the words and the place are lark's."""
    same_as_lark(text)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(SOUP), max_size=14), st.sampled_from([" ", " ", ""]))
def test_any_words(words: list[str], space: str) -> None:
    """Words of the language in any order."""
    same_as_lark(space.join(words))


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text(text: str) -> None:
    """Characters in any order, all that have UTF-8."""
    same_as_lark(text)


@settings(max_examples=100, deadline=None)
@given(filters(max_leaves=12), st.randoms(use_true_random=False))
def test_filters_and_their_mutations(text: str, random: Random) -> None:
    """Valid filters, and the same with a few faults."""
    assert same_as_lark(text) == "read"
    same_as_lark(mutated(text, random))


def in_bulk(seed: int, rounds: int) -> Counter[str]:
    """Mutated filters, and words that follow each other as they do in filters, of a seeded generator."""
    random, met = Random(seed), Counter[str]()
    words = sorted([*SOUP, *KEYWORDS])
    for i in range(rounds):
        met[same_as_lark(mutated(random_filter(random, i % 3), random))] += 1
        cut = random_filter(random, i % 2)[: random.randrange(60)]
        met[same_as_lark(f"{cut} {random.choice(words)} {random.choice(words)}")] += 1
    return met


@pytest.mark.parametrize("seed", range(3))
def test_mutated_filters_in_bulk(seed: int) -> None:
    """The same for many of a seeded generator: some are read, some end too soon, some hold what nothing expects."""
    assert {"read", "the", "found"} <= set(in_bulk(seed, 2000))
