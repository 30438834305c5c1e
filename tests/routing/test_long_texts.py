"""Filters that ask for long texts by name or by their beginning, against plain Python: nothing is lost or wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from state.compiled_part import CompiledPart, LocalEntry
from state.filters.evaluate import compile as compile_filter
from state.filters.geometry import geometry
from state.filters.grammar import parse
from state.keys import Key
from state.routing.few_events import ROOM
from state.routing.junction import Junction
from state.space.decode import decode, rank_events
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.packing import pack
from state.space.ranks import ABSENT
from state.space.text_hashes import WHOLE, trait_of

PAGE = EventType("page", (Attribute("url", "text"), Attribute("tag", "text"), Attribute("x", "int")), cubes=1)
SITE = "https://shop.example/"
TEXTS = [f"{SITE}a", f"{SITE}b", f"{SITE}bb", f"{SITE}ü", f'{SITE}"q"', SITE, "https:/", "short", ""]
Plain = Callable[[dict[str, object]], bool]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def equal(name: str, texts: list[str]) -> tuple[str, Plain]:
    words = f"= {quoted(texts[0])}" if len(texts) == 1 else f"IN ({', '.join(map(quoted, texts))})"
    return f"{name} {words}", lambda event: event.get(name) in texts


def unequal(name: str, texts: list[str]) -> tuple[str, Plain]:
    words = f"NOT IN ({', '.join(map(quoted, texts))})"
    return f"{name} {words}", lambda event: isinstance(event.get(name), str) and event[name] not in texts


def begins(name: str, texts: list[str]) -> tuple[str, Plain]:
    pattern = quoted(texts[0] + "%")
    return (
        f"{name} LIKE {pattern}",
        lambda event: isinstance(event.get(name), str) and str(event[name]).startswith(texts[0]),
    )


def below(limit: int) -> tuple[str, Plain]:
    return f"x < {limit}", lambda event: isinstance(event.get("x"), int) and int(str(event["x"])) < limit


LEAVES = st.one_of(
    st.tuples(
        st.sampled_from([equal, equal, unequal, begins]),
        st.sampled_from(["url", "tag"]),
        st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3, unique=True),
    ).map(lambda drawn: drawn[0](drawn[1], drawn[2])),
    st.integers(0, 4).map(below),
)


def together(drawn: tuple[str, list[tuple[str, Plain]]]) -> tuple[str, Plain]:
    word, parts = drawn
    how = all if word == "AND" else any
    return f" {word} ".join(text for text, _ in parts), lambda event: how(holds(event) for _, holds in parts)


FILTERS = st.tuples(st.sampled_from(["AND", "AND", "OR"]), st.lists(LEAVES, min_size=1, max_size=3)).map(together)
VALUES = st.one_of(st.sampled_from(TEXTS), st.none(), st.just(7))
EVENTS = st.lists(
    st.tuples(
        st.fixed_dictionaries({"url": VALUES, "tag": VALUES, "x": st.integers(0, 4)}),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def written(event: dict[str, object], escaped: bool, twice: bool) -> bytes:
    """As JSON: with escapes or in plain UTF-8; some with a first member of the same name that does not count."""
    text = json.dumps(event, ensure_ascii=escaped)
    text = text.replace("https:/", "https:\\/") if escaped else text
    return (f'{{"url": "{SITE}b", ' + text[1:] if twice else text).encode()


def entry(number: int, text: str) -> LocalEntry:
    found = geometry(parse(text, PAGE), PAGE)
    return LocalEntry(str(number), "c", "t", None if found.exact else text, pack(found.boxes), found.exact)


def answers(junction: Junction, batch) -> set[tuple[int, str]]:
    found = junction.exactly(junction.interested(batch, np.arange(len(batch))), batch)
    for rows in (np.arange(len(batch)), np.arange(len(batch))[::-1].copy(), *np.arange(len(batch)).reshape(-1, 1)):
        # twice: filters that were never asked for are read by the first
        some = junction.interested(batch, rows)
        expected = junction.exactly(some._replace(rows=rows[some.rows]), batch)
        for pairs in (junction.matching(batch, rows), junction.matching(batch, rows)):
            assert [column.tolist() for column in pairs] == [column.tolist() for column in expected]
    return {(row, junction.roll.id(number)) for row, number in zip(*(column.tolist() for column in found), strict=True)}


@settings(max_examples=150, deadline=None)
@given(st.lists(FILTERS, min_size=1, max_size=8), EVENTS, st.sampled_from(["bitmap", "s-tree"]), st.data())
def test_filters_hold_as_plain_python_says(filters: list[tuple[str, Plain]], events, matcher: str, data) -> None:
    """Whatever comes and goes: equality of long texts, escaped or not, alone or in company; in bulk or one by one."""
    junction, key = Junction(replace(PAGE, matcher=matcher), Grid.of(PAGE)), Key("b1", "page", "1")
    values = [written(*event) for event in events]
    documents = [json.loads(value) for value in values]
    for _ in range(2):
        some = data.draw(st.sets(st.integers(0, len(filters) - 1)))
        junction.update({key: CompiledPart.of(3, [entry(i, filters[i][0]) for i in sorted(some)], {}, [])})
        junction.check()
        expected = {(row, str(i)) for row, event in enumerate(documents) for i in some if filters[i][1](event)}
        assert answers(junction, decode(PAGE, values)) == expected
        assert answers(junction, rank_events(PAGE, documents)) == expected


def test_a_hash_keeps_filters_apart_that_share_a_rank() -> None:
    """Of a hundred filters that ask for a URL of one site each, an event is held against its own alone."""
    texts = [f"url = '{SITE}{i}'" for i in range(100)]
    entries = [entry(i, text) for i, text in enumerate(texts)]
    junction = Junction.join(PAGE, Grid.of(PAGE), [CompiledPart.of(3, entries, {}, [])])
    batch = decode(PAGE, [json.dumps({"url": f"{SITE}{i}"}).encode() for i in (7, 70, 700)])
    found = junction.interested(batch, np.arange(3))
    assert [(row, junction.roll.id(number)) for row, number in zip(*found, strict=True)] == [(0, "7"), (1, "70")]


def test_a_trait_keeps_prefixes_apart_that_share_a_rank() -> None:
    """Of hundreds of filters that ask for beginnings of many lengths, an event meets those that it begins with."""
    begun = [f"{SITE}{'x' * (i % 40)}{i:03}" for i in range(300)] + [SITE, f"{SITE}{'x' * 20}"]
    entries = [entry(i, f"url LIKE '{text}%'") for i, text in enumerate(begun)]
    for matcher in ("bitmap", "s-tree"):
        page = replace(PAGE, matcher=matcher)
        junction = Junction.join(page, Grid.of(page), [CompiledPart.of(3, entries, {}, [])])
        texts = [f"{text}/7" for text in begun] + ["https://shop"]
        batch = decode(PAGE, [json.dumps({"url": text}).encode() for text in texts])
        found = junction.interested(batch, np.arange(len(batch)))
        met = {(row, int(junction.roll.id(number))) for row, number in zip(*found, strict=True)}
        assert met == {
            (i, k) for i, text in enumerate(texts) for k, prefix in enumerate(begun) if text.startswith(prefix)
        }


def test_prefixes_of_more_lengths_than_there_are_traits_are_answered_by_shorter_ones() -> None:
    """A length that gets no trait of its own is served by one below it, or by none; nothing is lost."""
    begun = [f"{'longer prefix ' * 20}"[: 8 + 5 * i] for i in range(50)][::-1]
    entries = [
        entry(i, f"{name} LIKE '{text}%'")
        for i, (text, name) in enumerate((t, n) for t in begun for n in ("url", "tag"))
    ]
    junction = Junction.join(PAGE, Grid.of(PAGE), [CompiledPart.of(3, entries, {}, [])])
    documents = [{name: text} for text in begun for name in ("url", "tag")]
    expected = {
        (i, str(k))
        for i, one in enumerate(documents)
        for k, other in enumerate(documents)
        if all(one.get(name, "").startswith(text) for name, text in other.items())
    }
    assert answers(junction, decode(PAGE, [json.dumps(one).encode() for one in documents])) == expected


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(), st.none(), st.integers()), min_size=1, max_size=5), st.booleans())
def test_the_traits_of_an_event_are_those_of_its_text(texts: list[object], escaped: bool) -> None:
    """Compiled over bytes or in Python, escaped or not; what is no text has none."""
    values = [json.dumps({"url": text}, ensure_ascii=escaped).encode() for text in texts]
    steps = [0, 1, 2, WHOLE]
    wanted = [[trait_of(text, s) if isinstance(text, str) else ABSENT for s in steps] for text in texts]
    traits = np.array([[0, s, 3 + i] for i, s in enumerate(steps)])
    rows = np.arange(len(texts))[::-1]
    batch = decode(PAGE, values)
    points = batch.points(rows, traits, ["url", "tag", "x"])
    assert points[:, :3].tolist() == batch.ranks[rows].tolist()
    assert points[:, 3:].tolist() == wanted[::-1]


def test_an_interval_of_texts_that_looks_like_a_point_has_no_trait() -> None:
    """Both ends share a rank, and any text between them may be meant: the filter decides, not a trait."""
    page = EventType("page", (Attribute("url", "text", imprecise="possible"),), cubes=1)
    text = f"url = '{SITE}b'"
    found = geometry(parse(text, page), page)
    local = [LocalEntry("s", "c", "t", text, pack(found.boxes), found.exact)]
    junction = Junction.join(page, Grid.of(page), [CompiledPart.of(1, local, {}, [])])
    ends = [("a", "c"), ("b", "b"), ("c", "d")]
    values = [json.dumps({"url": {"min": SITE + low, "max": SITE + high}}).encode() for low, high in ends]
    holds = compile_filter(parse(text, page), page)
    expected = {row for row, value in enumerate(values) if holds(json.loads(value))}
    assert expected >= {0, 1}
    assert {row for row, _ in answers(junction, decode(page, values))} == expected


def test_more_pairs_than_there_is_room_for_are_found_all_the_same() -> None:
    """One event that meets more subscriptions than few events have room for, with and without second looks."""
    for text in ("x < 3", f"url = '{SITE}b'"):
        local = [entry(number, text) for number in range(ROOM + 1)]
        junction = Junction.join(PAGE, Grid.of(PAGE), [CompiledPart.of(3, local, {}, [])])
        batch = decode(PAGE, [written({"url": f"{SITE}b", "tag": None, "x": 1}, False, False)])
        assert len(answers(junction, batch)) == ROOM + 1


def test_few_events_are_matched_after_filters_came_and_went() -> None:
    """What compiled code was told of where things lie is told anew when they have moved."""
    junction, key = Junction(PAGE, Grid.of(PAGE)), Key("b1", "page", "1")
    batch = decode(PAGE, [written({"url": f"{SITE}b", "tag": "short", "x": 1}, False, False)])
    for n in (0, 3, 40, 1, 0, 90, 2):
        local = [entry(number, f"url = '{SITE}{'ab'[number % 2]}' AND x < {number}") for number in range(n)]
        junction.update({key: CompiledPart.of(3, local, {}, [])})
        assert answers(junction, batch) == {(0, str(number)) for number in range(3, n, 2)}
