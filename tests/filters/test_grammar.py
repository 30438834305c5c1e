"""The filter language: what it accepts, what it refuses and how, and that nothing else can come out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import FilterError
from state.filters.checking import BYTES_MAX
from state.filters.grammar import KEYWORDS, parse
from state.filters.printing import to_text
from state.filters.tree import TRUE, And, Filter, Operator, Or, Predicate, Timestamp, predicates
from tests import oracle
from tests.filters.samples import COMPARISONS, LITERALS, PLAIN, QUOTE, filters, random_filter


@contextmanager
def deep_recursion() -> Iterator[None]:
    """The oracle descends recursively; the product does not, and runs under the usual limit."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(30_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def code_of(text: str) -> str | None:
    """The code that `parse` refuses a text with; anything but a tree or a FilterError escapes."""
    try:
        parse(text, QUOTE)
    except FilterError as error:
        refused = error
    else:
        return None
    assert str(refused).startswith(refused.code)
    assert refused.position is None or 0 <= refused.position <= len(text)
    return refused.code


def same_as_the_oracle(text: str) -> str | None:
    found = code_of(text)
    with deep_recursion():
        assert found == oracle.refusal(text, PLAIN), text
    return found


P = Predicate
ACCEPTED: list[tuple[str, Filter]] = [
    ("TRUE", TRUE),
    (" true\n", TRUE),
    ("price<5", P("price", Operator.LT, (5,))),
    ("price <> 5", P("price", Operator.NE, (5,))),
    ("price = 5.", P("price", Operator.EQ, (5.0,))),
    ("price = .5", P("price", Operator.EQ, (0.5,))),
    ("price = +5e-1", P("price", Operator.EQ, (0.5,))),
    ("volume = -5", P("volume", Operator.EQ, (-5,))),
    ("volume = 1" + "0" * 400, P("volume", Operator.EQ, (10**400,))),
    ("symbol = 'it''s'", P("symbol", Operator.EQ, ("it's",))),
    ("\"in\" = 'x'", P("in", Operator.EQ, ("x",))),
    ('"a ""b""" = 1', P('a "b"', Operator.EQ, (1,))),
    ("EXISTS price", P("price", Operator.IS_NOT_NULL)),
    ("NOT EXISTS price", P("price", Operator.IS_NULL)),
    ("NOT price IS NULL", P("price", Operator.IS_NOT_NULL)),
    ("at > '1970-01-01T00:00:01.5Z'", P("at", Operator.GT, (Timestamp(1_500_000),))),
    ("halted IN (true, FALSE)", P("halted", Operator.IN, (True, False))),
    ("symbol not like 'a!%' escape '!'", P("symbol", Operator.NOT_LIKE, ("a!%", "!"))),
    ("price BETWEEN 9 AND 5", P("price", Operator.BETWEEN, (9, 5))),
    (
        "NOT price BETWEEN 1 AND 2 AND volume = 1",
        And((P("price", Operator.NOT_BETWEEN, (1, 2)), P("volume", Operator.EQ, (1,)))),
    ),
]


@pytest.mark.parametrize(("text", "tree"), ACCEPTED)
def test_accepted(text: str, tree: Filter) -> None:
    """Each of these means exactly this tree."""
    assert parse(text, QUOTE) == tree
    assert same_as_the_oracle(text) is None


@pytest.mark.parametrize(
    ("text", "code", "position"),
    [
        ("", "filter-syntax", 0),
        ("   ", "filter-syntax", 3),
        ("FALSE", "filter-syntax", 0),
        ("NOT TRUE", "filter-syntax", 4),
        ("TRUE AND price = 1", "filter-syntax", 5),
        ("price", "filter-syntax", 5),
        ("price = NULL", "filter-syntax", 8),
        ("price IN ()", "filter-syntax", 10),
        ("price = volume", "filter-syntax", 8),
        ("5 < price", "filter-syntax", 0),
        ("price < 5 6", "filter-syntax", 10),
        ("price < --5", "filter-syntax", 8),
        ("symbol = 'abc", "filter-syntax", 9),
        ('"price = 5', "filter-syntax", 0),
        ("(price < 5", "filter-syntax", 10),
        ("price < 5)", "filter-syntax", 9),
        ("symbol LIKE 'a' ESCAPE '!!'", "filter-syntax", 23),
        ("symbol LIKE 'a!b' ESCAPE '!'", "filter-syntax", 12),
        ("symbol LIKE 'a!' ESCAPE '!'", "filter-syntax", 12),
        ("in = 'x'", "filter-syntax", 0),
        ("symbol = '\ud800'", "filter-syntax", 10),
        ("Price < 5", "filter-attribute", 0),
        ("price < 5 AND size < 5", "filter-attribute", 14),
        ("price < 'a'", "filter-type", 8),
        ("price < true", "filter-type", 8),
        ("price < 1e400", "filter-type", 8),
        ("volume IN (1, 2, 'a')", "filter-type", 17),
        ("halted > true", "filter-type", 0),
        ("halted BETWEEN false AND true", "filter-type", 0),
        ("halted = 1", "filter-type", 9),
        ("side = 'hold'", "filter-type", 7),
        ("at > '2024-01-01T00:00:00'", "filter-type", 5),
        ("at > 5", "filter-type", 5),
        ("symbol = 5", "filter-type", 9),
        ("symbol LIKE 5", "filter-type", 12),
        ("price LIKE '5%'", "filter-type", 0),
    ],
)
def test_refused(text: str, code: str, position: int) -> None:
    """Each of these is refused with this code at this character."""
    with pytest.raises(FilterError) as caught:
        parse(text, QUOTE)
    assert (caught.value.code, caught.value.position) == (code, position)
    assert same_as_the_oracle(text) == code


def test_an_error_says_what_was_expected() -> None:
    """A syntax error names what was found, what would have been right, and where, counting from one."""
    with pytest.raises(FilterError) as caught:
        parse("price IS 5", QUOTE)
    assert str(caught.value) == "filter-syntax: found '5' where NOT or NULL was expected (at character 10)"


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("(" * 32 + "price = 1" + ")" * 32, "(" * 33 + "price = 1" + ")" * 33),
        ("NOT " * 32 + "price = 1", "NOT " * 33 + "price = 1"),
        ("NOT (" * 32 + "price = 1" + ")" * 32, "NOT (" * 33 + "price = 1" + ")" * 33),
        (" OR ".join(["price = 1"] * 64), " OR ".join(["price = 1"] * 65)),
        (f"symbol = '{'é' * 2042}a'", f"symbol = '{'é' * 2043}'"),
        (f"price IN ({','.join('1' * 2043)})", f"price IN ({','.join('1' * 2044)})"),
    ],
    ids=["brackets", "nots", "nots with brackets", "predicates", "bytes", "values"],
)
def test_limits(inside: str, outside: str) -> None:
    """Depth 32, 64 predicates and 4096 bytes are admitted, one more is not."""
    assert len(inside.encode()) <= BYTES_MAX
    assert same_as_the_oracle(inside) is None
    assert same_as_the_oracle(outside) == "filter-limit"


def test_keywords_are_ascii() -> None:
    """Letters that merely become a keyword's when made upper case (a dotless i, a long s) make no keyword."""
    assert same_as_the_oracle("price \u0131\u017f NULL") == "filter-syntax"
    assert same_as_the_oracle("\u0131n = 1") == "filter-attribute"


# --- properties -----------------------------------------------------------------------------------


def prints_and_parses_again(text: str) -> None:
    tree = parse(text, QUOTE)
    printed = to_text(tree)
    for limits in (True, False) if len(printed.encode()) <= BYTES_MAX else (False,):
        again = parse(printed, QUOTE, limits)
        assert again == tree
        assert [[*map(type, p.values)] for p in predicates(again)] == [[*map(type, p.values)] for p in predicates(tree)]
        assert to_text(again) == printed
    assert oracle.nesting(oracle.parse(printed)) <= oracle.nesting(oracle.parse(text))


@settings(max_examples=150, deadline=None)
@given(filters(max_leaves=12))
def test_printing_and_parsing_again_gives_the_same_tree(text: str) -> None:
    """parse(to_text(tree)) is the tree: operators, values of every kind, brackets, names that need quotes."""
    prints_and_parses_again(text)


@pytest.mark.parametrize("seed", range(3))
def test_printing_and_parsing_again_in_bulk(seed: int) -> None:
    """The same for many filters of a seeded generator."""
    random = Random(seed)
    for i in range(150):
        prints_and_parses_again(random_filter(random, depth=i % 4))


@settings(max_examples=100, deadline=None)
@given(filters(max_leaves=12))
def test_trees_are_canonical(text: str) -> None:
    """No AND in an AND, no OR in an OR, none with fewer than two children; NOT in leaves only."""

    def check(tree: Filter) -> None:
        if not isinstance(tree, Predicate):
            assert len(tree.children) >= 2
            for child in tree.children:
                assert type(child) is not type(tree)
                check(child)

    check(parse(text, QUOTE))


SOUP = [
    *KEYWORDS,
    *COMPARISONS,
    "(",
    ")",
    "(",
    ")",
    ",",
    "price",
    '"in"',
    "symbol",
    "halted",
    "'x'",
    "1",
    "-.5e3",
    "nope",
]
SOUP += [word.lower() for word in KEYWORDS] + LITERALS["timestamp"][:2] + ["'", '"', "\0", "é", "--", "1e", "\n"]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(SOUP), max_size=14), st.sampled_from([" ", " ", ""]))
def test_any_words_are_accepted_or_refused_as_the_oracle_does(words: list[str], space: str) -> None:
    """Words of the language in any order: a tree or the oracle's code, never another exception."""
    same_as_the_oracle(space.join(words))


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.binary(max_size=60).map(lambda raw: raw.decode("latin-1"))))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    """Random characters, lone surrogates and control characters included."""
    same_as_the_oracle(text)


PATCHES = ["", "'", '"', "(", ")", " NOT ", " ", "%", "5", ".", "e", "\0", "AND", "price"]


def mutated(text: str, random: Random) -> str:
    """A filter with characters removed, exchanged, put in, and parts of itself repeated."""
    for _ in range(random.randint(1, 3)):
        at, width = random.randint(0, len(text)), random.randint(0, 4)
        patch = random.choice([*PATCHES, text[at : at + 9]])
        text = text[:at] + patch + text[at + width :]
    return text


@settings(max_examples=100, deadline=None)
@given(filters(max_leaves=4), st.randoms(use_true_random=False))
def test_mutated_filters_are_accepted_or_refused_as_the_oracle_does(text: str, random: Random) -> None:
    """A valid filter with a few faults: a tree or the oracle's code, never another exception."""
    same_as_the_oracle(mutated(text, random))


@pytest.mark.parametrize("seed", range(4))
def test_mutated_filters_in_bulk(seed: int) -> None:
    """The same for many filters of a seeded generator, about half of which are still valid."""
    random = Random(seed)
    codes = Counter(same_as_the_oracle(mutated(random_filter(random, i % 3), random)) for i in range(600))
    assert {None, "filter-syntax", "filter-type", "filter-attribute"} <= set(codes)


def calls_during(text: str) -> int:
    """Python calls that parsing a text takes: lexer, parser and checks alike."""
    calls = 0

    def count(frame: object, kind: str, argument: object) -> None:
        nonlocal calls
        calls += kind == "call"

    code_of("price < 5")  # builds the parser
    sys.setprofile(count)
    try:
        code_of(text)
    finally:
        sys.setprofile(None)
    return calls


CALLS_PER_CHARACTER = 12
CALLS_ANYWAY = 500  # the message of an error tries every terminal


@pytest.mark.parametrize(
    "part",
    [
        "(",
        "NOT ",
        "price=1 OR ",
        "price=1 AND(",
        "'",
        "''",
        '"',
        '""',
        "1",
        "1,",
        "-",
        ".",
        "e",
        "\0",
        " ",
        "\n",
        "<",
    ],
)
@pytest.mark.parametrize("head", ["", "price IN (", "symbol = '", "(price < 1"])
def test_parsing_takes_a_bounded_number_of_steps(head: str, part: str) -> None:
    """Steps are counted, not timed: however hostile, no more than a constant for each character."""
    for length in (100, 1000, 4096):
        text = (head + part * length)[:length]
        assert calls_during(text) <= CALLS_ANYWAY + CALLS_PER_CHARACTER * length


def test_over_long_texts_are_not_even_looked_at() -> None:
    """A megabyte is refused by its size, in a handful of calls."""
    assert code_of("(" * 1_000_000) == "filter-limit"
    assert calls_during("(" * 1_000_000) < 50


def test_printed_text_beyond_the_limit_can_still_be_read() -> None:
    """Printing makes this admitted filter longer than a subscriber may write; read without limits it is the same."""
    tree = parse(f"price IN ({','.join(['1e9'] * 1000)})", QUOTE)
    assert len(to_text(tree)) > BYTES_MAX
    assert code_of(to_text(tree)) == "filter-limit"
    assert parse(to_text(tree), QUOTE, limits=False) == tree


def test_or_inside_and_keeps_its_brackets() -> None:
    """AND binds tighter than OR, in both directions."""
    tree = parse("price = 1 AND (volume = 1 OR volume = 2) OR volume = 3", QUOTE)
    assert isinstance(tree, Or)
    assert to_text(tree) == "price = 1 AND (volume = 1 OR volume = 2) OR volume = 3"
