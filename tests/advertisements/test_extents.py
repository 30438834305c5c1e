"""Violating predicates: every pair of operators of every kind, by brute force; and Table 1 of the paper."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.advertisements.extents import disjoint, extent, patterns_meet
from state.filters.grammar import parse
from state.filters.like import Like
from state.filters.tree import Operator, Predicate
from state.space.event_type import Attribute, EventType
from tests import oracle

EVERY_TEXT = [None, *("".join(c) for n in range(5) for c in product("ab", repeat=n)), "a\0", "ab\0", "b\0"]
TIMES = ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", "9999-12-31T23:59:59.999999-23:59"]

KINDS: dict[str, tuple[dict[str, Any], list[str], list[Any]]] = {
    # kind: (the type as the oracle has it, literals, one value of every gap and every literal)
    "int": (
        {"kind": "int"},
        ["0", "1", "2", "1.5", "9223372036854775807", "9223372036854775808"],
        [None, -(2**63) + 1, -1, 0, 1, 2, 3, 2**63 - 2, 2**63 - 1],
    ),
    "float": (
        {"kind": "float"},
        ["0", "0.5", "9007199254740993", "1.7976931348623157e308"],
        [
            None,
            -1.0,
            -5e-324,
            0.0,
            5e-324,
            0.49999999999999994,
            0.5,
            0.5000000000000001,
            1.0,
            2.0**53,
            2.0**53 + 2,
            1.7976931348623155e308,
            1.7976931348623157e308,
        ],
    ),
    "boolean": ({"kind": "boolean"}, ["true", "false"], [None, True, False]),
    "category": (
        {"kind": "category", "values": ["a", "b", "c"]},
        ["'a'", "'b'", "'c'"],
        [None, "a", "b", "c"],
    ),
    "timestamp": (
        {"kind": "timestamp"},
        [f"'{time}'" for time in TIMES],
        [
            None,
            "0000-01-01T00:00:00+23:59",
            "1969-12-31T23:59:59Z",
            TIMES[0],
            "1970-01-01T00:00:00.5Z",
            TIMES[1],
            "1970-01-01T00:00:02Z",
            TIMES[2],
        ],
    ),
    "text": (
        {"kind": "text"},
        ["''", "'a'", "'ab'", "'abcdefgh'", "'abcdefgi'"],
        [None, "", "\0", "a", "a\0", "ab", "ab\0", "abcdefgh", "abcdefgh\0", "abcdefgi", "abcdefgi\0", "ac"],
    ),
}


def every_predicate(kind: str) -> list[str]:
    """One predicate on `x` for every operator and every choice of literals, up to two of IN."""
    _, literals, _ = KINDS[kind]
    texts = ["x IS NULL", "x IS NOT NULL"]
    comparisons = ["=", "!="] if kind == "boolean" else ["=", "!=", "<", "<=", ">", ">="]
    texts += [f"x {operator} {literal}" for operator in comparisons for literal in literals]
    pairs = list(product(literals, repeat=2))
    texts += [f"x {no}IN ({a}, {b})" for no in ("", "NOT ") for a, b in pairs]
    if kind != "boolean":
        texts += [f"x {no}BETWEEN {a} AND {b}" for no in ("", "NOT ") for a, b in pairs]
    if kind == "category":
        texts += [f"x {no}LIKE '{pattern}'" for no in ("", "NOT ") for pattern in ("a", "_", "%c", "d%")]
    if kind == "text":
        texts += [f"x {no}LIKE '{pattern}'" for no in ("", "NOT ") for pattern in ("a", "ab%", "%", "")]
    return texts


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_pair_of_operators(kind: str) -> None:
    """Two predicates violate each other exactly if no value, absent included, satisfies both."""
    plain, _, values = KINDS[kind]
    attribute = Attribute("x", kind, values=tuple(plain.get("values", ())))  # type: ignore[arg-type]
    event_type = EventType("t", (attribute,))
    satisfying, extents = [], []
    for text in every_predicate(kind):
        satisfying.append({i for i, v in enumerate(values) if oracle.evaluate(text, {"x": v}, {"x": plain})})
        extents.append(extent(parse(text, event_type), attribute))  # type: ignore[arg-type]
        extents[-1].check()
    for (i, one), (j, other) in product(enumerate(extents), repeat=2):
        assert disjoint(one, other) == (not satisfying[i] & satisfying[j]), (kind, every_predicate(kind)[i], j)


PATTERNS = ["%a", "%b", "_", "__", "a_", "_b%", "%a%", "a%b", "%_a", "b%_", "%ab%"]


def test_patterns_lose_no_overlap() -> None:
    """LIKE of any form never violates a predicate that some text satisfies with it; against `=` it is exact."""
    attribute = Attribute("x", "text")
    event_type = EventType("t", (attribute,))
    plain = {"x": {"kind": "text"}}
    likes = [f"x {no}LIKE '{pattern}'" for no in ("", "NOT ") for pattern in PATTERNS]
    others = [f"x {operator} '{text}'" for operator in ("=", "!=", "<", ">") for text in ("", "a", "ab", "ba", "b")]
    others += ["x IN ('a', 'bb')", "x LIKE 'ab%'", "x IS NULL", "x IS NOT NULL"]
    sets = {text: {v for v in EVERY_TEXT if oracle.evaluate(text, {"x": v}, plain)} for text in [*likes, *others]}
    extents = {text: extent(parse(text, event_type), attribute) for text in sets}  # type: ignore[arg-type]
    for one, other in product(likes, [*likes, *others]):
        violated = disjoint(extents[one], extents[other])
        assert violated == disjoint(extents[other], extents[one])
        if sets[one] & sets[other]:
            assert not violated, (one, other)
        elif other.startswith(("x =", "x IN", "x IS NULL")):
            assert violated, (one, other)


pieces = st.lists(st.sampled_from(["a", "b", "%", "_"]), max_size=4).map("".join)


@settings(max_examples=400, deadline=None)
@given(pieces, pieces)
def test_two_patterns_meet_exactly_if_a_text_fits_both(one: str, other: str) -> None:
    """A text that fits both, if there is one, is no longer than the two patterns together."""
    texts = ["".join(c) for n in range(len(one) + len(other) + 1) for c in product("ab", repeat=n)]
    expected = any(oracle.like(text, one) and oracle.like(text, other) for text in texts)
    assert patterns_meet(Like.of(one), Like.of(other)) == expected


def test_possible_values_of_an_interval_never_violate() -> None:
    """A publication may give an imprecise attribute as an interval that touches both 3 and 7: no violation."""
    imprecise = Attribute("x", "int", imprecise="possible")
    three, seven, none, absent = (
        extent(Predicate("x", operator, values), imprecise)
        for operator, values in [
            (Operator.EQ, (3,)),
            (Operator.EQ, (7,)),
            (Operator.GT, (2**63 - 1,)),
            (Operator.IS_NULL, ()),
        ]
    )
    assert not disjoint(three, seven)
    assert disjoint(three, absent)
    assert disjoint(three, none)


# --- Table 1 ------------------------------------------------------------------------------------------------------
# The domain of the table is 0 .. 4, with predecessor, successor, minimal and maximal value.

LOW, HIGH = 0, 4
Rule = Callable[[int, int], bool]
"""Does a subscription's predicate with operand j violate an advertisement's with operand i?"""
OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda v, o: v == o,
    "NE": lambda v, o: v != o,
    "GT": lambda v, o: v > o,
    "LT": lambda v, o: v < o,
}
PRINTED: dict[tuple[str, str], Rule] = {
    ("EQ", "EQ"): lambda i, j: j != i,
    ("EQ", "NE"): lambda i, j: j == i,
    ("EQ", "GT"): lambda i, j: j > i,
    ("EQ", "LT"): lambda i, j: j <= i,
    ("NE", "EQ"): lambda i, j: j == i,
    ("NE", "NE"): lambda i, j: j != i,
    ("NE", "GT"): lambda i, j: i == HIGH and j == i - 1,
    ("NE", "LT"): lambda i, j: i == LOW and j == i + 1,
    ("GT", "EQ"): lambda i, j: j <= i,
    ("GT", "NE"): lambda i, j: i == HIGH - 1 and j == HIGH,
    ("GT", "GT"): lambda i, j: False,
    ("GT", "LT"): lambda i, j: j <= i,
    ("LT", "EQ"): lambda i, j: j >= i,
    ("LT", "NE"): lambda i, j: i == LOW + 1 and j == LOW,
    ("LT", "GT"): lambda i, j: j >= i - 1,
    ("LT", "LT"): lambda i, j: False,
}
CORRECTED: dict[tuple[str, str], Rule] = PRINTED | {
    ("EQ", "GT"): lambda i, j: j >= i,
    ("NE", "NE"): lambda i, j: False,
    ("GT", "LT"): lambda i, j: j <= i + 1,
}


def satisfiable_pairs(one: str, other: str) -> list[tuple[int, int]]:
    """Operands with which each predicate alone can hold: the table ignores the others."""
    holds = {name: [o for o in range(LOW, HIGH + 1) if any(f(v, o) for v in range(LOW, HIGH + 1))]
             for name, f in OPERATORS.items()}  # fmt: skip
    return list(product(holds[one], holds[other]))


def truly_violate(one: str, other: str, i: int, j: int) -> bool:
    return not any(OPERATORS[one](v, i) and OPERATORS[other](v, j) for v in range(LOW, HIGH + 1))


@pytest.mark.parametrize(("one", "other"), list(PRINTED))
def test_table_1_corrected(one: str, other: str) -> None:
    """The corrected rows are true, and ours are equal to them: categories 0 .. 4 are the table's domain."""
    domain = Attribute("x", "category", values=tuple("01234"))
    for i, j in satisfiable_pairs(one, other):
        expected = truly_violate(one, other, i, j)
        assert CORRECTED[one, other](i, j) == expected
        p, q = (Predicate("x", Operator[name], (str(o),)) for name, o in ((one, i), (other, j)))
        assert disjoint(extent(p, domain), extent(q, domain)) == expected


@pytest.mark.parametrize(
    ("one", "other", "counter_example", "loses"),
    [
        ("NE", "NE", (1, 2), True),  # 0 satisfies != 1 and != 2, and the printed row calls them violating
        ("EQ", "GT", (3, 3), False),  # nothing is = 3 and > 3, and the printed row misses it
        ("GT", "LT", (2, 3), False),  # nothing is > 2 and < 3, and the printed row misses it
    ],
)
def test_table_1_as_printed_errs(one: str, other: str, counter_example: tuple[int, int], loses: bool) -> None:
    """Three rows are wrong as printed; the one for NOTEQUALS twice calls an overlap none, so it loses subscriptions."""
    i, j = counter_example
    assert PRINTED[one, other](i, j) == loses
    assert truly_violate(one, other, i, j) != loses


def test_table_1_errs_nowhere_else() -> None:
    """The other thirteen rows are true as printed."""
    wrong = {
        pair
        for pair in PRINTED
        for i, j in satisfiable_pairs(*pair)
        if PRINTED[pair](i, j) != truly_violate(*pair, i, j)
    }
    assert wrong == {("NE", "NE"), ("EQ", "GT"), ("GT", "LT")}
