"""Second looks, compiled: what a program says is what the filter says, and what it leaves open is little."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.filters.evaluate import compile
from state.filters.grammar import parse
from state.filters.residual_programs import OPEN, YES, Program, Programs
from state.filters.tree import Filter
from state.space.decode import Beside, decode
from state.space.event_type import Attribute, EventType
from tests.filters.samples import QUOTE, filters, random_event, random_filter

TEXT = EventType("t", (Attribute("s", "text"), Attribute("n", "int"), Attribute("r", "text", imprecise="possible")))
LONG = ["abcdefg", "abcdefgh", "abcdefghi", "abcdefgh\0", "abcdefgé", "abcdefg日本語", "abcdefg𝄞", "abcdefg\uffff"]
LONG += ['abcdefg"h', "abcdefg\\h", "abcdefg/h", "abcdefgh" * 9, "abcdefg\n", "", "a", "x", "it's abcdefgh"]
VALUES: list[Any] = [*LONG, "\ud800abcdefg", "abcdefg\udc00", None, 5, True, [], {"min": "abcdefgh", "max": "abcdefgh"}]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def text_filter(random: Random, depth: int) -> str:
    """Predicates on long texts with common beginnings, in every shape."""
    if depth:
        parts = [text_filter(random, depth - 1) for _ in range(random.randint(1, 3))]
        joined = random.choice([" AND ", " OR "]).join(f"({part})" for part in parts)
        return random.choice(["", "NOT "]) + f"({joined})"
    name, no = random.choice("sr"), random.choice(["", "NOT "])
    one, other = quoted(random.choice(LONG)), quoted(random.choice(LONG))
    forms = [f"{name} {random.choice(['=', '<>', '<', '<=', '>', '>='])} {one}", f"{name} {no}IN ({one}, {other})"]
    forms += [f"{name} {no}BETWEEN {one} AND {other}", f"{name} {no}LIKE {one[:-1]}%'", f"{name} {no}LIKE {one}"]
    forms += [f"{name} {no}LIKE {one[:-1]}_%'", f"{name} IS {no}NULL", f"n < {random.randint(-1, 1)}"]
    return random.choice(forms)


def written_event(random: Random) -> bytes:
    """JSON with and without escapes, in values and keys, of one key sometimes two."""
    event = {name: random.choice(VALUES) for name in ("s", "r") if random.random() < 0.9}
    text = json.dumps(event | {"n": random.randint(-1, 1)}, ensure_ascii=random.random() < 0.3)
    text = text.replace('"s"', '"\\u0073"') if random.random() < 0.1 else text
    if random.random() < 0.1:
        text = f'{{"s": 7, {text[1:]}'
    return text.encode("utf-8", "surrogatepass")


def judged(
    event_type: EventType, trees: list[Filter], values: list[bytes], beside: Beside | None = None
) -> Counter[str]:
    """Ask programs and filters about every pair; count the answers."""
    batch = decode(event_type, values, beside)
    points = batch.valid if batch.highs is None else batch.valid & (batch.highs == batch.ranks).all(axis=1)
    programs, every = Programs(), [compile(tree, event_type) for tree in trees]
    for number, tree in enumerate(trees):
        programs.put(number, Program(tree, event_type))
    rows, numbers = (a.ravel() for a in np.meshgrid(np.flatnonzero(points), np.arange(len(trees))))
    assert batch.starts is not None
    answers, _, _ = programs.decide(rows, numbers, batch.ranks, batch.starts)
    met: Counter[str] = Counter()
    for row, number, answer in zip(rows.tolist(), numbers.tolist(), answers.tolist(), strict=True):
        holds = every[number](batch.event(row))
        assert answer == OPEN or (answer == YES) == holds, (trees[number], batch.value(row))
        met["open" if answer == OPEN else "yes" if holds else "no"] += 1
    return met


@pytest.mark.parametrize("seed", range(6))
def test_long_texts_are_decided_as_the_filter_does(seed: int) -> None:
    """Common beginnings, escapes, NUL, characters beyond ASCII, lone halves, wrong kinds: never another answer."""
    random = Random(seed)
    trees = [parse(text_filter(random, i % 3), TEXT, limits=False) for i in range(60)]
    met = judged(TEXT, trees, [written_event(random) for _ in range(60)])
    assert {"open", "yes", "no"} <= set(met)


@pytest.mark.parametrize("seed", range(4))
def test_filters_of_every_kind_are_decided_as_the_filter_does(seed: int) -> None:
    """The same for a type of all kinds and any filter."""
    random = Random(seed)
    trees = [parse(random_filter(random, i % 3), QUOTE) for i in range(60)]
    values = [json.dumps(random_event(random), allow_nan=True).encode() for _ in range(60)]
    assert {"yes", "no"} <= set(judged(QUOTE, trees, values))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(filters(max_leaves=6), min_size=1, max_size=4), st.lists(st.text(max_size=12), min_size=1, max_size=6))
def test_any_text_is_decided_as_the_filter_does(texts: list[str], symbols: list[str]) -> None:
    """Whatever characters a text has, as they are or escaped."""
    trees = [parse(text, QUOTE, limits=False) for text in texts]
    values = [json.dumps({"symbol": symbol}).encode() for symbol in symbols]
    values += [
        json.dumps({"symbol": symbol}, ensure_ascii=False).encode("utf-8", "surrogatepass") for symbol in symbols
    ]
    judged(QUOTE, trees, values)


BELOW = EventType(
    "t", (Attribute("s", "text", path=("a", "s")), Attribute("n", "int"), Attribute("r", "text", path=("a",)))
)
BESIDE = EventType(
    "t", (Attribute("s", "text", path=("a", "s")), Attribute("n", "int", key=True), Attribute("r", "text", header="x"))
)


def written_below(random: Random) -> bytes:
    """The text one level down: behind an object, behind anything else, replaced by what comes later, with escapes."""
    inner = json.dumps({"s": random.choice(VALUES), "n": 7}, ensure_ascii=random.random() < 0.3)
    outer = random.choice([inner, inner, inner, json.dumps(random.choice(VALUES)), f"[{inner}]"])
    text = f'{{"s": "abcdefgh", "a": {outer}, "n": {random.randint(-1, 1)}}}'
    if random.random() < 0.2:
        text = f'{text[:-1]}, "a": {random.choice(["{}", "7", inner])}}}'
    if random.random() < 0.1:
        text = text.replace('"a"', '"\\u0061"', 1)
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("event_type", [BELOW, BESIDE], ids=["below", "beside"])
def test_texts_below_and_beside_are_decided_as_the_filter_does(event_type: EventType, seed: int) -> None:
    """Attributes in objects, in a header and in the key, by names that members have, too: never another answer."""
    random = Random(seed)
    trees = [parse(text_filter(random, i % 3), event_type, limits=False) for i in range(60)]
    values = [written_below(random) for _ in range(60)]
    beside = {"n": [random.choice([b"0", b"1", b"x", None]) for _ in values]}
    beside["r"] = [random.choice([*(text.encode() for text in LONG), b"\xff", None]) for _ in values]
    met = judged(event_type, trees, values, {name: beside[name] for name in beside if event_type is BESIDE})
    assert {"open", "yes", "no"} <= set(met)


def test_what_is_beside_the_document_has_no_address() -> None:
    """A member of its name is not taken for it: the header decides, and only the filter reads it."""
    batch = decode(BESIDE, [b'{"x": "abcdefghi", "r": "abcdefghi", "a": {"s": "abcdefghi"}}'], {"r": [b"abcdefghj"]})
    assert batch.starts is not None
    assert (batch.starts > 0).tolist() == [[True], [False], [False]]
    tree = parse("r = 'abcdefghi'", BESIDE)
    assert set(judged(BESIDE, [tree], [batch.value(0)], {"r": [b"abcdefghj"]})) == {"open"}
    assert not compile(tree, BESIDE)(batch.event(0))


def test_equality_sets_and_prefixes_stay_compiled() -> None:
    """Of plain texts nothing is left open, but by LIKE beyond a prefix."""
    texts = ["s = 'abcdefghi'", "s IN ('abcdefghi', 'abcdefgh')", "s LIKE 'abcdefgh%' AND n < 5", "NOT s > 'abcdefgh'"]
    values = [json.dumps({"s": text, "n": 1}, ensure_ascii=False).encode() for text in LONG[:8] if "\0" not in text]
    assert "open" not in judged(TEXT, [parse(text, TEXT) for text in texts], values)
    assert set(judged(TEXT, [parse("s LIKE 'abcdefgh%i'", TEXT)], values)) == {"open"}


def test_numbers_come_and_go() -> None:
    """A number answers by the program that was put last, and is open once it is dropped, however often."""
    random, programs, held = Random(1), Programs(), {}
    batch = decode(TEXT, [b'{"s": "abcdefghi"}'])
    assert batch.starts is not None
    for _ in range(300):
        number, literal = random.randrange(9), random.choice(["abcdefghi", "abcdefghj"])
        if random.random() < 0.4:
            programs.drop(number)
            held.pop(number, None)
        else:
            programs.put(number, Program(parse(f"s = '{literal}'", TEXT), TEXT))
            held[number] = int(literal == "abcdefghi")
        if random.random() < 0.5:
            answers, _, _ = programs.decide(np.zeros(9, np.int64), np.arange(9), batch.ranks, batch.starts)
            assert answers.tolist() == [held.get(number, OPEN) for number in range(9)]
