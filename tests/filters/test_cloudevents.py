"""The CloudEvents JSON form: the same trees, the same limits, the same refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import FilterError
from state.filters.cloudevents import from_json, read_filter
from state.filters.evaluate import compile
from state.filters.grammar import parse
from state.filters.tree import TRUE, predicates
from tests import oracle
from tests.filters.samples import PLAIN, QUOTE, TEXTS, TIMES, VALUES, events, filters

SCALARS: dict[str, list[Any]] = {
    "symbol": [text for text in TEXTS if text],
    "in": [text for text in TEXTS if text],
    "side": list(VALUES),
    "at": list(TIMES),
    "price": [1, 1.5, -0.0, "1.5", "3", 2**53 + 1],
    "volume": [1, 3.0, 1.5, "2", "2.0", 10**30],
    "halted": [True, False, "true", "false"],
}
TEXT_LIKE = ("symbol", "in", "side")


def members(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    optional = {name: st.sampled_from(SCALARS[name]) for name in names}
    return st.fixed_dictionaries({}, optional=optional).filter(bool)


affixes = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(["a", "b", "%", "_", "\\", "ab", "日", "%_\\"]) for name in TEXT_LIKE}
).filter(bool)
simple = st.one_of(
    members(tuple(SCALARS)).map(lambda m: {"exact": m}),
    affixes.map(lambda m: {"prefix": m}),
    affixes.map(lambda m: {"suffix": m}),
    filters(max_leaves=3).map(lambda text: {"sql": text}),
)
json_filters = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"all": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"any": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(st.one_of(json_filters, st.lists(json_filters, max_size=3)), st.lists(events(), min_size=4, max_size=10))
def test_dialects_agree_with_the_oracle(value: Any, batch: list[dict[str, Any]]) -> None:
    """exact, prefix, suffix, all, any, not, sql and a list of them match what the oracle says they match."""
    holds = compile(read_filter(value, QUOTE), QUOTE)
    for event in batch:
        assert holds(event) == oracle.evaluate(value, event, PLAIN)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "TRUE"),
        ({"exact": {"side": "buy", "volume": 3}}, "side = 'buy' AND volume = 3"),
        ({"exact": {"volume": "3", "halted": "true"}}, "volume = 3 AND halted = true"),
        ({"prefix": {"symbol": "IB"}}, "symbol LIKE 'IB%'"),
        ({"suffix": {"symbol": "5%"}}, "symbol LIKE '%5\\%' ESCAPE '\\'"),
        (
            {"not": {"any": [{"exact": {"side": "buy"}}, {"sql": "price < 5"}]}},
            "side != 'buy' AND price >= 5",
        ),
        ([{"sql": "price < 5"}, {"all": [{"exact": {"volume": 1}}]}], "price < 5 AND volume = 1"),
        ({"any": [{"sql": "TRUE"}, {"sql": "price < 5"}]}, "TRUE"),
    ],
)
def test_both_forms_give_one_tree(value: Any, text: str) -> None:
    """The JSON form is another spelling of the text form."""
    assert read_filter(value, QUOTE) == read_filter(text, QUOTE)


def nested(depth: int, core: Any) -> Any:
    for _ in range(depth):
        core = {"all": [core]}
    return core


ONE = {"exact": {"volume": 1}}


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (5, "bad-value"),
        (None, "bad-value"),
        (True, "bad-value"),
        ({}, "filter-syntax"),
        ({"exact": {"side": "buy"}, "prefix": {"symbol": "a"}}, "filter-syntax"),
        ({"regex": {"symbol": "a"}}, "filter-syntax"),
        ({"exact": {}}, "filter-syntax"),
        ({"exact": []}, "filter-syntax"),
        ({"exact": {"symbol": ""}}, "filter-syntax"),
        ({"exact": {"symbol": None}}, "filter-syntax"),
        ({"exact": {"volume": [1]}}, "filter-syntax"),
        ({"all": []}, "filter-syntax"),
        ({"any": ONE}, "filter-syntax"),
        ({"not": [ONE]}, "filter-syntax"),
        ({"not": {"sql": "TRUE"}}, "filter-syntax"),
        ({"sql": 5}, "filter-syntax"),
        ({"sql": "price <"}, "filter-syntax"),
        ({"exact": {"symbol": "\ud800"}}, "filter-syntax"),
        (["price < 5"], "filter-syntax"),
        ({"exact": {"nope": 1}}, "filter-attribute"),
        ({"prefix": {"price": "1"}}, "filter-type"),
        ({"prefix": {"symbol": 1}}, "filter-type"),
        ({"exact": {"volume": "one"}}, "filter-type"),
        ({"exact": {"volume": True}}, "filter-type"),
        ({"exact": {"price": float("inf")}}, "filter-type"),
        ({"exact": {"price": "1e400"}}, "filter-type"),
        ({"exact": {"side": "hold"}}, "filter-type"),
        ({"exact": {"halted": "TRUE"}}, "filter-type"),
        (nested(33, ONE), "filter-limit"),
        (nested(100_000, ONE), "filter-limit"),
        (nested(30, {"sql": "NOT (NOT (NOT price = 1))"}), "filter-limit"),
        ([ONE] * 65, "filter-limit"),
        (
            [{"sql": " OR ".join(["price = 1"] * 40)}, {"sql": " OR ".join(["price = 1"] * 25)}],
            "filter-limit",
        ),
        ({"exact": {"symbol": "x" * 5000}}, "filter-limit"),
        ({"exact": {"volume": 10**4096}}, "filter-limit"),
        ({"exact": {"volume": 10**4301}}, "filter-limit"),
        ({"exact": {"volume": 10**5000}}, "filter-limit"),
    ],
)
def test_refused(value: Any, code: str) -> None:
    """Each of these is refused with this code, and with no other exception."""
    with pytest.raises(FilterError) as caught:
        read_filter(value, QUOTE)
    assert caught.value.code == code


def test_limits_admit_what_they_say() -> None:
    """Depth 32 and 64 predicates are admitted in this form too."""
    assert len(list(predicates(from_json(nested(32, ONE), QUOTE)))) == 1
    assert len(list(predicates(from_json([ONE] * 64, QUOTE)))) == 64
    assert from_json(nested(29, {"sql": "NOT (NOT (NOT price = 1))"}), QUOTE) == parse("price != 1", QUOTE)


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
names = st.one_of(
    st.sampled_from(["exact", "prefix", "any", "all", "not", "sql", "price", "symbol"]), st.text(max_size=3)
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=2)),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(anything)
def test_any_json_is_accepted_or_refused(value: Any) -> None:
    """Whatever JSON a message holds: a tree or a FilterError."""
    try:
        tree = read_filter(value, QUOTE)
    except FilterError as error:
        code = error.code
    else:
        code = "" if tree == TRUE or list(predicates(tree)) else "neither TRUE nor a predicate"
    assert code in ("", "filter-syntax", "filter-type", "filter-attribute", "filter-limit", "bad-value")
