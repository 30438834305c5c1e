"""Events with intervals: judged as a box, against every point of it."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from state.errors import HilcastError
from state.filters import imprecise
from state.filters.evaluate import compile, explain, matches
from state.filters.grammar import parse
from state.space.event_type import Attribute, EventType
from tests import oracle

ROUGH = EventType(
    "rough",
    (
        Attribute("a", "int", imprecise="certain"),
        Attribute("b", "int", imprecise="certain"),
        Attribute("p", "int", imprecise="possible"),
        Attribute("f", "float", imprecise="certain"),
        Attribute("t", "timestamp", imprecise="possible"),
        Attribute("exact", "int"),
        Attribute("s", "text"),
    ),
)
PLAIN: dict[str, dict[str, Any]] = {
    a.name: {"kind": a.kind, "imprecise": a.imprecise} if a.imprecise else {"kind": a.kind} for a in ROUGH.attributes
}
TIMES = [f"1970-01-01T00:00:0{i}Z" for i in range(4)]


def random_filter(random: Random, names: str, depth: int) -> str:
    if depth:
        parts = [random_filter(random, names, depth - 1) for _ in range(random.randint(1, 3))]
        return random.choice(["", "", "NOT "]) + "(" + random.choice([" AND ", " OR "]).join(parts) + ")"
    name = random.choice(names)
    name = {"e": "exact"}.get(name, name)
    if name == "s":
        return random.choice(["s = 'a long text'", "s LIKE 'a%'", "s IS NULL"])
    one, other = (
        random.choice(["0", "1", "2", "3", "1.5"] if name != "t" else [f"'{x}'" for x in TIMES]) for _ in "12"
    )
    return random.choice(
        [f"{name} {random.choice(['<', '<=', '>', '>=', '=', '!='])} {one}", f"{name} BETWEEN {one} AND {other}",
         f"{name} NOT IN ({one}, {other})", f"{name} IS NULL", f"EXISTS {name}"]
    )  # fmt: skip


def random_value(random: Random, name: str) -> Any:
    if name == "s":
        return random.choice(["a", "a long text", "b", None, {"min": "a", "max": "b"}])
    pool = TIMES if name == "t" else [0, 1, 2, 3, 3.0, None, "x"] if name != "f" else [0, 0.5, 1.5, 3, None]
    low, high = random.choice(pool), random.choice(pool)
    return random.choice([low, {"min": low, "max": high}, {"min": low, "max": high, "more": 1}, {"min": low}])


@pytest.mark.parametrize("seed", range(4))
def test_events_with_intervals_agree_with_the_oracle(seed: int) -> None:
    """Certain, possible, both, faulty intervals, and intervals where the type allows none: as the oracle says."""
    random = Random(seed)
    matched = 0
    for i in range(400):
        text = random_filter(random, "abpftes", depth=i % 3)
        tree = parse(text, ROUGH)
        holds = compile(tree, ROUGH)
        for _ in range(5):
            event = {a.name: random_value(random, a.name) for a in ROUGH.attributes if random.random() < 0.8}
            expected = oracle.evaluate(text, event, PLAIN)
            assert holds(event) == expected, (text, event)
            matched += expected
    assert 200 < matched < 1800


@pytest.mark.parametrize("seed", range(3))
def test_every_point_of_the_box_is_what_counts(seed: int) -> None:
    """On small integers, tried one by one: for every value of the certain ones there is one of the possible ones."""
    random = Random(seed)
    for i in range(200):
        text = random_filter(random, "abp", depth=1 + i % 2)
        tree = parse(text, ROUGH)
        ends = {name: sorted((random.randint(0, 3), random.randint(0, 3))) for name in "abp"}
        event = {name: {"min": low, "max": high} for name, (low, high) in ends.items()}
        values = {name: range(low, high + 1) for name, (low, high) in ends.items()}
        expected = all(
            any(matches(tree, {"a": a, "b": b, "p": p}, ROUGH) for p in values["p"])
            for a, b in itertools.product(values["a"], values["b"])
        )
        assert matches(tree, event, ROUGH) == expected, (text, event)


@pytest.mark.parametrize(
    ("text", "event", "expected"),
    [
        ("a < 5 OR a >= 5", {"a": {"min": 3, "max": 7}}, True),
        ("a < 5", {"a": {"min": 3, "max": 7}}, False),
        ("p < 5", {"p": {"min": 3, "max": 7}}, True),
        ("p < 3 AND p > 4", {"p": {"min": 0, "max": 9}}, False),
        ("a IS NULL", {"a": {"min": 3, "max": 7}}, False),
        ("a IS NULL", {"a": {"min": 7, "max": 3}}, True),
        ("exact IS NULL", {"exact": {"min": 3, "max": 7}}, True),
        ("a = 3", {"a": {"min": 3, "max": 3.0}}, True),
        ("(a < 5 AND p < 2) OR (a >= 5 AND p > 2)", {"a": {"min": 0, "max": 9}, "p": {"min": 0, "max": 9}}, True),
    ],
)
def test_intervals_are_judged_as_a_whole(text: str, event: dict[str, Any], expected: bool) -> None:
    """The examples of the module's description."""
    assert matches(parse(text, ROUGH), event, ROUGH) is expected
    assert oracle.evaluate(text, event, PLAIN) is expected


MANY = EventType("many", tuple(Attribute(name, "int", imprecise="possible") for name in "abd"))


def test_long_lists_are_decided_exactly() -> None:
    """Three lists with a million boxes between them: an interval of one value is judged as that value is."""
    odd = [f"{name} NOT IN ({', '.join(str(n) for n in range(0, 201, 2))})" for name in "abd"]
    tree = parse(" AND ".join(odd), MANY)
    imprecise.check_decidable(tree, MANY)
    for value in range(201):
        event = {name: {"min": value, "max": value} for name in "abd"}
        assert matches(tree, event, MANY) == matches(tree, dict.fromkeys("abd", value), MANY) == (value % 2 == 1)
    wide = {name: {"min": 0, "max": 200} for name in "abd"}
    assert matches(tree, wide, MANY)
    assert not matches(tree, wide | {"b": {"min": 4, "max": 4}}, MANY)
    certain = EventType("many", tuple(Attribute(name, "int", imprecise="certain") for name in "abd"))
    assert not matches(tree, wide, certain)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_registered_is_decided(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a table may hold: a filter is refused, or every event is decided, within it and as the oracle does."""
    random = Random(seed)
    decided = refused = 0
    for i in range(600):
        monkeypatch.setattr(imprecise, "CASES_MAX", random.choice([2, 8, 30]))
        text = random_filter(random, "abpft", depth=1 + i % 3)
        tree = parse(text, ROUGH)
        try:
            imprecise.check_decidable(tree, ROUGH)
        except HilcastError:
            refused += 1
            continue
        for _ in range(5):
            event = {a.name: random_value(random, a.name) for a in ROUGH.attributes if random.random() < 0.9}
            assert matches(tree, event, ROUGH) == oracle.evaluate(text, event, PLAIN), (text, event)
            decided += 1
    assert decided > 500
    assert refused > 50


def test_explain_shows_the_interval() -> None:
    """The value that a predicate saw is the interval itself."""
    (explained,) = explain(parse("a < 5", ROUGH), {"a": {"min": 3, "max": 4}}, ROUGH)
    assert (explained.holds, explained.value) == (True, {"min": 3, "max": 4})
