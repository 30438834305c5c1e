"""LIKE against a table filled cell by cell."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.filters.like import Like
from tests import oracle

INNER = ["".join(pattern) for n in range(6) for pattern in itertools.product("ab%_", repeat=n)]
SHORT = ["".join(text) for n in range(6) for text in itertools.product("ab", repeat=n)]

patterns = st.text("ab%_", max_size=9)
texts = st.text("ab", max_size=9)


@settings(max_examples=600, deadline=None)
@given(patterns, texts)
def test_like_agrees_with_the_table(pattern: str, text: str) -> None:
    """Patterns and texts of two letters, so that parts overlap and almost match all the time."""
    assert Like.of(pattern).matches(text) == oracle.like(text, pattern)


@pytest.mark.parametrize("around", ["", "%"])
def test_every_short_pattern_agrees_with_the_table(around: str) -> None:
    """All patterns of up to five characters on all texts of up to five: parts must not share a character."""
    for inner in INNER:
        pattern = around + inner + around
        like = Like.of(pattern).matches
        assert [like(text) for text in SHORT] == [oracle.like(text, pattern) for text in SHORT], pattern


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!"]), max_size=7),
    st.text("ab%_!", max_size=6),
)
def test_escaped_characters_mean_themselves(pieces: list[str], text: str) -> None:
    """With ESCAPE, `!%`, `!_` and `!!` match only %, _ and !."""
    pattern = "".join(pieces)
    assert Like.of(pattern, "!").matches(text) == oracle.like(text, pattern, "!")


@settings(max_examples=200, deadline=None)
@given(patterns, st.lists(texts, max_size=5))
def test_prefix_and_shape_say_what_they_promise(pattern: str, some: list[str]) -> None:
    """A match begins with `prefix`; a literal pattern matches only it, a prefix pattern all such texts."""
    like = Like.of(pattern)
    for text in [*some, like.prefix, like.prefix + "a"]:
        if oracle.like(text, pattern):
            assert text.startswith(like.prefix)
        if like.is_literal:
            assert oracle.like(text, pattern) == (text == like.prefix)
        if like.is_prefix:
            assert oracle.like(text, pattern) == text.startswith(like.prefix)


@pytest.mark.parametrize(
    "pattern", ["%" + "_a" * 1000 + "%", "%" + "a" * 2000 + "b%", "%a" * 1000 + "%b", "%a_" * 900 + "%b%"]
)
def test_hostile_patterns_end(pattern: str) -> None:
    """Patterns that make backtracking explode end, on 20,000 characters, in one pass over them."""
    text = "a" * 20_000
    assert Like.of(pattern).matches(text) == ("b" not in pattern)
    assert Like.of(pattern).matches(text + "b") == (pattern[-1] == "b" or "b%" in pattern or "b" not in pattern)
