"""Attributes that lie deeper in a document, in headers or in the key, against a naive reading of each event."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.plain_events import plain_event
from state.space.decode import DEPTH_MAX, RankBatch, decode, decode_arrow, rank_events
from state.space.event_type import Attribute, EventType
from state.space.places import attributes_of, placed
from state.space.ranks import unrank
from tests.space.mutations import mutated
from tests.space.test_decode import ABSENT, LEAVES, SIDES, SPACES, objects, oracle_event, oracle_rank, oracle_span

NAMES = ("a", "b", "té", "a.b", "min", "max")
KINDS = ("int", "float", "boolean", "category", "timestamp", "text")


def oracle_at(document: object, members: tuple[str, ...]) -> object:
    """What stands at the end of a path, by recursion."""
    if not members:
        return document
    return oracle_at(document.get(members[0]), members[1:]) if isinstance(document, dict) else None


def assert_as_oracle(event_type: EventType, values: list[bytes | None], batch: RankBatch) -> None:
    batch.check()
    highs = batch.ranks if batch.highs is None else batch.highs
    for i, value in enumerate(values):
        event = oracle_event(value)
        assert bool(batch.valid[i]) == (event is not None), value
        for column, attribute in enumerate(event_type.attributes):
            expected = oracle_span(attribute, oracle_at(event, attribute.members))
            assert (batch.ranks[i, column], highs[i, column]) == expected, (value, attribute)


@st.composite
def types(draw: st.DrawFn) -> EventType:
    """A type with attributes anywhere: on the way to others, twice at one place, imprecise or not."""
    paths = draw(st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), min_size=1, max_size=7))
    attributes = []
    for number, path in enumerate(paths):
        kind = draw(st.sampled_from(KINDS))
        spreads = kind in ("int", "float", "timestamp") and draw(st.booleans())
        values = SIDES if kind == "category" else ()
        imprecise = "possible" if spreads else None
        attributes.append(Attribute(f"x{number}", kind, values=values, imprecise=imprecise, path=tuple(path)))
    return EventType("nested", tuple(attributes))


KEYS = st.one_of(
    st.sampled_from([json.dumps(name, ensure_ascii=False) for name in NAMES]),
    st.sampled_from(['"a"', '"b"', '"\\u0061"', '"other"', '""']),
)
DOCUMENTS = objects(
    KEYS,
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"), objects(KEYS, inner)
        ),
        max_leaves=12,
    ),
)
EVENTS = st.builds(lambda a, o, b: (a + o + b).encode(), SPACES, DOCUMENTS, SPACES)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(types(), st.lists(EVENTS, max_size=5))
def test_a_batch_has_the_ranks_of_what_lies_at_its_paths(event_type: EventType, values: list[bytes]) -> None:
    """For random paths and documents, with escapes, arrays and equal keys at every level, ranks are the oracle's."""
    batch = decode(event_type, values)
    assert_as_oracle(event_type, list(values), batch)
    slowly = rank_events(event_type, [plain_event(event_type, value, {}) for value in values])
    assert slowly.ranks.tolist() == batch.ranks.tolist()
    assert slowly.valid.tolist() == batch.valid.tolist()
    for i in range(len(values)):
        assert slowly.event(i) == batch.event(i)


ORDER = EventType(
    "order",
    (
        Attribute("country", "text", path=("order", "customer", "country")),
        Attribute("total", "float", path=("order", "total"), imprecise="possible"),
        Attribute("n", "int", path=("order", "a.b", "n")),
        Attribute("order", "int"),
        Attribute("again", "text", path=("order", "customer", "country")),
    ),
)


def test_mutated_documents() -> None:
    """30,000 nested events with bytes changed, cut, doubled or moved are read as the oracle reads them."""
    draw = random.Random(11)
    seeds = [
        '{"id":1,"order":{"customer":{"country":"DE","tags":["a",{"country":"x"}]},"total":12.5,"a.b":{"n":3}},"z":[]}',
        '{"order":{"total":{"min":1,"max":2.5},"customer":{"country":"F\\u0052"}},"order":{"a.b":{"n":7,"n":8}}}',
        '{"order":{"customer":{"country":"US"},"customer":[1]},"order ":{},"order":{"a.b":{},"total":9}}',
    ]
    values = mutated(draw, seeds, 30_000, 40)
    batch = decode(ORDER, values)
    assert_as_oracle(ORDER, values, batch)
    assert 2_000 < batch.valid.sum() < 28_000, "mutations must make both"


@pytest.mark.parametrize(
    ("document", "country", "n"),
    [
        (b'{"order":{"customer":{"country":"DE"},"a.b":{"n":1}}}', "DE", 1),
        (b'{"order":{"customer":{"country":"DE"}},"order":{"a.b":{"n":1}}}', None, 1),
        (b'{"order":{"customer":{"country":"DE"}},"order":7}', None, None),
        (b'{"order":{"customer":{"country":"DE"}},"order":null}', None, None),
        (b'{"order":{"customer":{"country":"DE"},"customer":{}}}', None, None),
        (b'{"order":{"customer":{"country":"DE","country":"FR"}}}', "FR", None),
        (b'{"order":{"customer":{"country":"DE","country":["FR"]}}}', None, None),
        (b'{"order":[{"customer":{"country":"DE"}}]}', None, None),
        (b'{"order":"{}","customer":{"country":"DE"},"country":"DE"}', None, None),
        (b'{"order":{"customer":{"country":{"country":"DE"}}}}', None, None),
        (b'{"order":{"a":{"b":{"n":1}},"a.b":{"n":2}}}', None, 2),
        (b'{"order":{"a":{"b":{"n":1}}}}', None, None),
        (b'{"\\u006frder":{"customer":{"country":"DE"}}}', "DE", None),
        (b'{"order":{"customer":{"country":"DE"}},"\\u006frder":{}}', None, None),
        (b"{}", None, None),
        (b'{"order":{}}', None, None),
    ],
)
def test_decided_cases(document: bytes, country: str | None, n: int | None) -> None:
    """A later member replaces an earlier one wholly; what is no object leads nowhere; an escape in a key is undone."""
    batch = decode(ORDER, [document])
    assert batch.valid.all()
    assert unrank(ORDER.attribute("country"), int(batch.ranks[0, 0])) == country
    assert batch.ranks[0, 4] == batch.ranks[0, 0]
    assert batch.ranks[0, 2] == (ABSENT if n is None else n)
    assert batch.event(0).get("n") == n


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('{"order":', "}")])
def test_nesting_has_one_limit(opening: str, closing: str) -> None:
    """128 levels are read, 129 are not, wherever a path descends; 500,000 do not crash."""
    ways = ('{"order":', '{"order":{"customer":', '{"order":{"customer":{"country":', '{"other":{"customer":')
    for way in ways:
        level = way.count("{")
        for depth, valid in ((DEPTH_MAX - level, True), (DEPTH_MAX - level + 1, False), (500_000, False)):
            value = (way + opening * depth + "1" + closing * depth + "}" * level).encode()
            assert decode(ORDER, [value]).valid.tolist() == [valid], (way, depth)
            assert decode(ORDER, [value[: len(value) // 2]]).valid.tolist() == [False]


def test_no_value_is_read_beyond_its_end() -> None:
    """An event cut anywhere, with its rest right behind it in memory, is judged by what it holds itself."""
    whole = b'{"order":{"customer":{"country":"DE"},"total":{"min":1,"max":2},"a.b":{"n":-3}},"z":[{}]}'
    for cut in range(len(whole)):
        values: list[bytes | None] = [whole[:cut], whole[cut:], whole[:cut] + b"}", whole[:cut] + b"}}", whole]
        assert_as_oracle(ORDER, values, decode(ORDER, values))


def test_ordinary_nested_events_never_reach_python() -> None:
    """No nested event as programs write them is read as an object."""
    draw = random.Random(5)
    values: list[bytes | None] = [
        json.dumps(
            {
                "id": i,
                "order": {
                    "lines": [{"sku": "x", "n": 1}] * draw.randrange(4),
                    "customer": {"name": "a\nb", "country": draw.choice(["DE", "FR", "a longer one"])},
                    "total": draw.uniform(0, 1000),
                    "a.b": {"n": draw.randrange(10**6)},
                },
            }
        ).encode()
        for i in range(2_000)
    ]
    batch = decode(ORDER, values)
    assert_as_oracle(ORDER, values, batch)
    assert not batch._events


# --- beside the document ------------------------------------------------------------------------------------

BESIDE = EventType(
    "beside",
    (
        Attribute("n", "int", header="n"),
        Attribute("x", "float", header="x"),
        Attribute("b", "boolean", key=True),
        Attribute("side", "category", values=SIDES, header="side"),
        Attribute("at", "timestamp", header="at"),
        Attribute("name", "text", key=True),
        Attribute("inside", "int", path=("a", "b")),
    ),
)
TEXTS = st.one_of(
    st.none(),
    st.binary(max_size=6),
    LEAVES.map(str.encode),
    LEAVES.map(lambda leaf: leaf.strip('"').encode()),
    st.sampled_from([*(side.encode() for side in SIDES), b"01", b"+1", b" 1", b"1 ", b"1.", b"NaN", b"Infinity"]),
    st.sampled_from([b"True", b"TRUE", b"1e5", b"", b"2026-01-02T03:04:05Z", b"1_0", "١".encode(), b"9" * 5000]),
)


def oracle_text(attribute: Attribute, raw: bytes | None) -> object:
    """What a header stands for: text as it stands, else what a JSON document of that member alone would hold."""
    try:
        text = (raw or b"").decode("utf-8", "strict")
    except UnicodeDecodeError:
        return None
    if raw is None or attribute.kind in ("category", "timestamp", "text"):
        return None if raw is None else text
    if text.strip() != text or not text:
        return None
    event = oracle_event(b'{"it":' + raw + b"}")
    return None if event is None or set(event) != {"it"} or isinstance(event["it"], str | dict | list) else event["it"]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, EVENTS | st.just(b"[]")), max_size=4), st.booleans())
def test_headers_and_keys_are_read_by_their_kind(rows: list[tuple[bytes, ...]], arrow: bool) -> None:
    """Text in UTF-8 counts if it is a value of the attribute's kind; a list and an Arrow array say the same."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(6)]
    n, x, key, side, at, values = columns
    texts = {"n": n, "x": x, "b": key, "side": side, "at": at, "name": key}
    if arrow:
        batch = decode_arrow(
            BESIDE, pa.array(values, pa.binary()), {name: pa.array(c, pa.binary()) for name, c in texts.items()}
        )
    else:
        batch = decode(BESIDE, values, texts)
    batch.check()
    for i, value in enumerate(values):
        event = oracle_event(value)
        assert bool(batch.valid[i]) == (event is not None)
        for column, attribute in enumerate(BESIDE.attributes[:-1]):
            given_text = oracle_text(attribute, texts[attribute.name][i])
            expected = ABSENT if event is None else oracle_rank(attribute.kind, given_text)
            assert batch.ranks[i, column] == expected, (attribute, texts[attribute.name][i])
        if event is not None:
            headers = {name: texts[name][i] for name in ("n", "x", "side", "at")}
            assert batch.event(i) == plain_event(BESIDE, value, {name: column[i] for name, column in texts.items()})
            assert batch.event(i) == attributes_of(BESIDE, json.loads(value, parse_int=_integer), headers, key[i])


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= 400 else float(digits)


def test_what_is_not_given_is_absent() -> None:
    """Without headers and keys the attributes that would be there are absent, and the others are read."""
    batch = decode(BESIDE, [b'{"a": {"b": 3}, "n": 4}'])
    assert batch.ranks[0].tolist() == [ABSENT] * 6 + [3]
    assert batch.event(0) == {"inside": 3}


# --- putting attributes in their places ---------------------------------------------------------------------


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "n": st.integers(-(2**62), 2**62),
            "x": st.floats(allow_nan=False, allow_infinity=False),
            "b": st.booleans(),
            "side": st.sampled_from(SIDES),
            "at": st.just("2026-01-02T03:04:05Z"),
            "inside": st.integers(-5, 5),
            "further": st.text(max_size=3),
        },
    )
)
def test_attributes_put_in_their_places_are_found_there(attributes: dict[str, object]) -> None:
    """What `placed` writes, `attributes_of` reads again; members that are no attributes stand at the top."""
    document, headers, key = placed(BESIDE, attributes)
    found = attributes_of(BESIDE, document, dict(headers), key)
    if "b" in attributes:
        assert found.pop("name") == str(attributes["b"]).lower(), "both are the key"
    assert found == {name: value for name, value in attributes.items() if name != "further"}
    assert document.get("further") == attributes.get("further")


def test_attributes_cannot_stand_in_each_others_way() -> None:
    """An attribute below a value, or two at one place, is refused instead of overwritten."""
    for attributes in ({"order": 3, "country": "DE"}, {"country": "DE", "again": "FR"}, {"country": "DE", "order": 1}):
        with pytest.raises(ValueError, match="order"):
            placed(ORDER, attributes)
