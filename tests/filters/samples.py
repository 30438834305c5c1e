"""Filters and events of one small type of all kinds, from pools so small that everything collides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from state.space.event_type import Attribute, EventType

VALUES = ("sell", "buy", "a%")
QUOTE = EventType(
    "stock.quote",
    (
        Attribute("symbol", "text"),
        Attribute("price", "float"),
        Attribute("volume", "int", min=0, max=3),
        Attribute("side", "category", values=VALUES),
        Attribute("at", "timestamp"),
        Attribute("halted", "boolean"),
        Attribute("in", "text"),
        Attribute('a "b"', "int"),
    ),
)
PLAIN: dict[str, dict[str, Any]] = {
    a.name: {"kind": a.kind, "values": list(a.values)} if a.values else {"kind": a.kind} for a in QUOTE.attributes
}
"""The same type as the oracle knows it."""

NUMBERS = [
    *("0", "1", "2", "3", "-1", "+2", "-0", "-0.0", "1.5", ".5", "2.", "3e0", "0.1", "5e-324", "1e-400"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "9223372036854775807.0"),
    *("9007199254740992", "9007199254740993", "9007199254740992.0", "1.7976931348623157e308", "-1e308"),
    *("1" + "0" * 30, "1" + "0" * 400, "-1" + "0" * 400),
]
TEXTS = ["", "a", "b", "ab", "a\0", "IBM", "it's", "abcdefg", "abcdefgh", "abcdefgi", "abcdefghi"]
TEXTS += ["é", "日本", "日本語", "𝄞", "%", "_", "a%", "\uffff", "\U0010ffff" * 3]
TIMES = [
    *("1970-01-01T00:00:00Z", "1970-01-01t01:00:00+01:00", "1970-01-01 00:00:00.000001z"),
    *("1970-01-01T00:00:00.0000019Z", "1969-12-31T23:59:59.999999Z", "0000-01-01T00:00:00+23:59"),
    *("9999-12-31T23:59:60Z", "1969-12-31T23:59:60Z", "2024-02-29T12:00:00-00:00"),
]
PATTERNS = ["", "%", "a%", "%b", "%a%", "_", "__", "a_", "_b%", "%_b", "a%b%a", "ab%i", "日_", "日%"]
PATTERNS += ["abcdefg%", "abcdefgh%"]
ESCAPED = ["a!%", "!!%", "%!_", "!%", "a!%%"]
COMPARISONS = ["=", "!=", "<>", "<", "<=", ">", ">="]

LITERALS = {
    "int": NUMBERS,
    "float": NUMBERS,
    "boolean": ["true", "FALSE"],
    "category": [f"'{value}'" for value in VALUES],
    "timestamp": [f"'{time}'" for time in TIMES],
    "text": ["'" + text.replace("'", "''") + "'" for text in TEXTS],
}


def name(attribute: Attribute) -> str:
    plain = attribute.name.isalpha() and attribute.name != "in"
    return attribute.name if plain else '"' + attribute.name.replace('"', '""') + '"'


Choose = Callable[[Sequence[Any]], Any]
"""Picks one element: Hypothesis or a seeded generator."""


def leaf(choose: Choose, attributes: Sequence[Attribute] = QUOTE.attributes) -> str:
    """One predicate as text."""
    attribute = choose(attributes)
    literals = LITERALS[attribute.kind]
    left, no = name(attribute), choose(["", "NOT "])
    forms = ["compare", "in", "null", "exists"]
    forms += ["between"] * (attribute.kind != "boolean")
    forms += ["like", "like"] * (attribute.kind in ("text", "category"))
    match choose(forms):
        case "compare":
            comparisons = COMPARISONS if attribute.kind != "boolean" else COMPARISONS[:3]
            return f"{left} {choose(comparisons)} {choose(literals)}"
        case "in":
            chosen = [choose(literals) for _ in range(choose([1, 2, 3, 4]))]
            return f"{left} {no}IN ({', '.join(chosen)})"
        case "null":
            return f"{left} is {no}NULL"
        case "exists":
            return f"exists {left}"
        case "between":
            return f"{left} {no}between {choose(literals)} AND {choose(literals)}"
    if choose([True, False]):
        return f"{left} {no}LIKE '{choose(PATTERNS)}'"
    return f"{left} {no}Like '{choose(ESCAPED)}' ESCAPE '!'"


@st.composite
def leaves(draw: st.DrawFn, attributes: Sequence[Attribute] = QUOTE.attributes) -> str:
    """One predicate as text, by Hypothesis."""
    return leaf(lambda options: draw(st.sampled_from(options)), attributes)


def random_filter(random: Random, depth: int) -> str:
    """A filter as text, by a seeded generator: much faster, and without shrinking."""
    if depth == 0:
        return leaf(random.choice)
    parts = [random_filter(random, depth - 1) for _ in range(random.randint(1, 3))]
    text = random.choice([" AND ", " OR "]).join(f"({part})" for part in parts)
    return random.choice(["", "", "NOT "]) + f"({text})"


def random_event(random: Random) -> dict[str, Any]:
    """Decoded JSON by a seeded generator: two of three values of the right kind, one of six missing."""
    kinds = [(a, random.randrange(6)) for a in QUOTE.attributes]
    return {a.name: random.choice(WRONG if dice == 1 else EVENT_VALUES[a.kind]) for a, dice in kinds if dice > 0}


def filters(leaf: st.SearchStrategy[str] | None = None, max_leaves: int = 8) -> st.SearchStrategy[str]:
    """Filters as text, brackets and NOT included, always valid."""

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        several = st.lists(inner, min_size=2, max_size=4)
        return st.one_of(
            several.map(" AND ".join),
            several.map(" or ".join),
            several.map(lambda parts: f"({' OR '.join(parts)})"),
            inner.map(lambda part: f"NOT ({part})"),
            inner.map(lambda part: f"not {part}"),
        )

    return st.recursive(leaf if leaf is not None else leaves(), grown, max_leaves=max_leaves)


WRONG: list[Any] = [None, True, False, "", "5", "true", 3, -1, 2.5, [], {}, [3], {"min": 1}, "\ud800"]
NUMERIC: list[Any] = [0, 1, 2, 3, -1, 0.0, -0.0, 1.0, 1.5, 3.0, 0.1, 5e-324, 2**53, 2**53 + 1, float(2**53)]
NUMERIC += [2**63 - 1, 2**63, -(2**63), 9.2e18, 1e308, -1e308, float("inf"), float("nan")]
NUMERIC += [10**30, 10**400, -(10**400)]
EVENT_VALUES: dict[str, list[Any]] = {
    "int": NUMERIC,
    "float": NUMERIC,
    "boolean": [True, False],
    "category": [*VALUES, "hold", "Sell"],
    "timestamp": [*TIMES, "1970-01-01T00:00:00", "1970-13-01T00:00:00Z", "1970-01-01T00:00:60Z"],
    "text": [*TEXTS, "aab", "bab", "ba", "aa", "日ab", "abcdefgz", "abcdefghb"],
}


def events() -> st.SearchStrategy[dict[str, Any]]:
    """Decoded JSON: present, missing, null, and of the wrong kind."""
    return st.fixed_dictionaries(
        {},
        optional={
            a.name: st.one_of(
                st.sampled_from(EVENT_VALUES[a.kind]),
                st.sampled_from(EVENT_VALUES[a.kind]),
                st.sampled_from(WRONG),
            )
            for a in QUOTE.attributes
        },
    )
