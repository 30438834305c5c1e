"""A text of a known form gives the tree, or the fault, that the parser gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from state.errors import FilterError
from state.filters import forms
from state.filters.forms import FORMS_MAX, TYPES_MAX, cut, known_forms
from state.filters.grammar import _TOKEN, _WORDS, _literal, admitted, parse, written
from state.filters.tree import Filter
from tests.filters.samples import QUOTE, filters

PIECES = [
    *(
        "a",
        "a5",
        "x.5",
        "5",
        "-5",
        "+",
        "-",
        ".",
        "5.",
        "1e5",
        "1e",
        "'",
        "''",
        "'a'",
        "'it''s'",
        '"',
        '"a 5"',
        '"it\'s"',
    ),
    *(
        "<",
        "<=",
        "<>",
        "!",
        "!=",
        "=",
        "(",
        ")",
        ",",
        " ",
        "\n",
        "\u00a0",
        "٣",
        "é",
        "𝄞",
        "AND",
        "TRUE",
        "price",
        "NOT",
        ";",
    ),
]
LITERALS = [
    "5",
    "-1.5",
    "1e400",
    "''",
    "'a'",
    "'IBM'",
    "'sell'",
    "'nowhere'",
    "'1970-01-01T00:00:00Z'",
    "TRUE",
    "+",
    "\ud800",
]


def answer(text: str, read) -> Filter | tuple[str, int | None]:
    try:
        return read(text)
    except FilterError as error:
        return str(error), error.position


def slowly(text: str) -> Filter:
    """By the parser alone."""
    return admitted(written(text), QUOTE)


@settings(max_examples=500, deadline=None)
@given(filters(), st.lists(st.tuples(st.integers(0, 40), st.sampled_from(LITERALS)), max_size=3))
def test_other_literals_in_a_known_form(text: str, others: list[tuple[int, str]]) -> None:
    """The first text makes its form known; in the second some literals are others, of any kind or none at all."""
    assert parse(text, QUOTE) == parse(text, QUOTE) == slowly(text)
    words, literals = map(list, cut(text))
    for place, literal in others:
        literals[place % len(literals)] = literal
    changed = "".join(word + literal for word, literal in zip(words, literals, strict=True))
    for _ in range(2):
        assert answer(changed, lambda text: parse(text, QUOTE)) == answer(changed, slowly), changed


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("a5.5.5'x''y'z")
def test_a_text_is_cut_where_its_tokens_are_literals(text: str) -> None:
    """Literals are those of the parser, as long as it meets none but tokens that it knows; nothing is left out."""
    words, literals = cut(text)
    assert "".join(word + literal for word, literal in zip(words, literals, strict=True)) == text
    assert [not literal for literal in literals] == [*[False] * (len(literals) - 1), True]
    tokens = _TOKEN.findall(text)
    expected = [token for token in tokens if _literal(token) is not None and token not in _WORDS]
    found = [literal for literal in literals if _literal(literal) is not None]
    assert found == expected


def test_forms_are_of_one_type_and_forgotten_when_there_are_too_many(monkeypatch):
    """The same words ask for another kind of value where the type is another; what is kept is bounded."""
    monkeypatch.setattr(forms, "_known", {})
    text = "volume < 1"
    other = replace(
        QUOTE, attributes=tuple(replace(a, kind="text") if a.name == "volume" else a for a in QUOTE.attributes)
    )
    assert parse(text, QUOTE) == parse(text, QUOTE)
    for _ in range(2):
        with pytest.raises(FilterError, match="does not fit volume"):
            parse(text, other)
    for i in range(FORMS_MAX + 5):
        parse(" " * i + text, QUOTE)
        assert len(known_forms(QUOTE)) <= FORMS_MAX
    for _ in range(TYPES_MAX + 5):
        parse(text, replace(QUOTE))
        assert len(forms._known) <= TYPES_MAX


def test_what_has_limits_has_them_in_a_known_form():
    """A form is known by a text that was printed, which has no limits; what somebody writes has them."""
    text = " OR ".join(f"volume = {i}" for i in range(65))
    assert parse(text, QUOTE, limits=False) == parse(text, QUOTE, limits=False)
    with pytest.raises(FilterError, match="65 predicates"):
        parse(text, QUOTE)
    short, long = "symbol = 'a'", f"symbol = '{'é' * 2048}'"
    assert parse(short, QUOTE) == parse(short, QUOTE)
    assert parse(long, QUOTE, limits=False).values == ("é" * 2048,)
    with pytest.raises(FilterError, match="4107 bytes of UTF-8"):
        parse(long, QUOTE)


def test_forms_are_used(monkeypatch):
    """A filter of a form that is known never meets the parser."""
    parse("price < 5 AND symbol IN ('a', 'b') AND NOT halted = TRUE AND volume IS NULL", QUOTE)
    monkeypatch.setattr("state.filters.grammar._disjunction", None)
    tree = parse("price < 7 AND symbol IN ('c', 'd') AND NOT halted = TRUE AND volume IS NULL", QUOTE)
    assert [child.values for child in tree.children] == [(7,), ("c", "d"), (True,), ()]
