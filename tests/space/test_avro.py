"""Avro values: written by fastavro from random schemas, read by the compiled scan and by the plain reader."""

from __future__ import annotations

import datetime
import io
import itertools
import json
import math
import uuid
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import HilcastError
from state.plain_events import plain_event
from state.space.decode import decode, rank_events
from state.space.encodings.avro_schema import at_path, parse
from state.space.encodings.documents import read_document
from state.space.encodings.leaves import DEPTH_MAX, STEPS_FREE
from state.space.encodings.schemas import Schema
from state.space.encodings.wire import framed
from state.space.event_type import Attribute, EventType
from state.space.ranks import ABSENT, Exact
from tests.space.encoded import Known, assert_row, expected, judged_alike

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NAMES = itertools.count()
"""A schema defines each name once."""
WORDS = ("buy", "sell", "a rather long value", "a rather long valuf", "é", "")


# --- random schemas, with values and what these are in JSON ---------------------------------------------------


@dataclass
class Made:
    """A schema, a value for fastavro to write, and what it is in JSON."""

    schema: Any
    value: Any
    said: Any


def moment(micros: int, ending: str = "Z") -> str | None:
    try:
        at = EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError:
        return None
    fraction = f".{at.microsecond:06}" if at.microsecond else ""
    return at.strftime(f"{at.year:04}-%m-%dT%H:%M:%S") + fraction + ending


def number(value: float) -> float | None:
    return value if math.isfinite(value) else None


LONGS = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))
TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
TEXTS = st.one_of(st.sampled_from(WORDS), st.text(max_size=12), TIMES.map(moment))


@st.composite
def leaf(draw: st.DrawFn) -> Made:
    kind = draw(st.sampled_from(sorted(LEAVES)))
    schema, values, says = LEAVES[kind]
    value = draw(values)
    return Made(json.loads(json.dumps(schema).replace("NAME", f"n{next(NAMES)}")), value, says(value))


def decimal(value: bytes) -> float | int | None:
    whole = int.from_bytes(value, "big", signed=True)
    if whole % 1000 == 0:
        return whole // 1000
    # what is not whole is no integer, though its nearest double may be one
    return Exact(whole / 1000, None) if (whole / 1000).is_integer() else whole / 1000


LEAVES: dict[str, tuple[Any, st.SearchStrategy[Any], Any]] = {
    "null": ("null", st.none(), lambda _: None),
    "boolean": ("boolean", st.booleans(), bool),
    "int": ("int", st.integers(-(2**31), 2**31 - 1), int),
    "long": ("long", LONGS, int),
    "float": ("float", st.floats(width=32), number),
    "double": ("double", st.one_of(st.floats(), st.integers(-3, 3).map(float)), number),
    "string": ("string", TEXTS, str),
    "bytes": ("bytes", st.binary(max_size=9), lambda _: None),
    "fixed": ({"type": "fixed", "name": "NAME", "size": 3}, st.binary(min_size=3, max_size=3), lambda _: None),
    "enum": (
        {"type": "enum", "name": "NAME", "symbols": ["buy", "sell", "other"]}, st.sampled_from(["buy", "other"]), str,
    ),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"}, TIMES.map(lambda t: t // 1000), lambda v: moment(v * 1000),
    ),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, st.one_of(TIMES, LONGS), moment),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-micros"}, TIMES, lambda v: moment(v, ""),
    ),
    "date": (
        {"type": "int", "logicalType": "date"}, st.integers(-1000, 30000), lambda v: moment(v * 86_400_000_000)[:10],
    ),
    "other": ({"type": "long", "logicalType": "no-such-type"}, LONGS, int),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 3}, st.binary(max_size=12), decimal,
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str), str),
}  # fmt: skip


@st.composite
def array(draw: st.DrawFn, depth: int) -> Made:
    made = draw(anything(depth - 1))
    count = draw(st.integers(0, 4))
    return Made({"type": "array", "items": made.schema}, [made.value] * count, [])


@st.composite
def mapping(draw: st.DrawFn, depth: int) -> Made:
    made = draw(anything(depth - 1))
    keys = draw(st.lists(st.sampled_from("abc"), unique=True))
    return Made({"type": "map", "values": made.schema}, dict.fromkeys(keys, made.value), [])


@st.composite
def union(draw: st.DrawFn, depth: int) -> Made:
    made = draw(anything(depth - 1))
    if isinstance(made.schema, list) or made.schema == "null":
        return made
    schema = ["null", made.schema] if draw(st.booleans()) else [made.schema, "null"]
    return Made(schema, made.value, made.said) if draw(st.booleans()) else Made(schema, None, None)


@st.composite
def record(draw: st.DrawFn, depth: int) -> Made:
    names = draw(st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1, max_size=4))
    fields = {name: draw(anything(depth - 1)) for name in names}
    name = f"r{next(NAMES)}"
    schema = {"type": "record", "name": name, "fields": [{"name": n, "type": f.schema} for n, f in fields.items()]}
    return Made(schema, {n: f.value for n, f in fields.items()}, {n: f.said for n, f in fields.items()})


def anything(depth: int) -> st.SearchStrategy[Made]:
    if depth == 0:
        return leaf()
    return st.one_of(leaf(), record(depth), union(depth), array(depth), mapping(depth))


@st.composite
def attributes(draw: st.DrawFn, said: list[Any]) -> tuple[Attribute, ...]:
    """Attributes of any kind at paths that some of these documents have, and elsewhere."""
    paths = sorted({path for one in said for path in every_path(one)}) or [("a",)]
    made = []
    for k in range(draw(st.integers(1, 5))):
        path = draw(
            st.one_of(st.sampled_from(paths), st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple))
        )
        kind = draw(st.sampled_from(["int", "float", "boolean", "category", "timestamp", "text"]))
        imprecise = draw(st.sampled_from([None, "possible"])) if kind in ("int", "float", "timestamp") else None
        made.append(Attribute(f"x{k}", kind, None, None, WORDS if kind == "category" else (), imprecise, path))
    return tuple(made)


def every_path(said: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(said, dict):
        return [at] if at else []
    return [path for name, below in said.items() for path in [(*at, name), *every_path(below, (*at, name))]]


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(without_logical(schema)), value)
    return out.getvalue()


def without_logical(schema: Any) -> Any:
    """The schema as it is on the wire: fastavro then takes values as they are."""
    if isinstance(schema, dict):
        return {key: without_logical(value) for key, value in schema.items() if key != "logicalType"}
    return [without_logical(one) for one in schema] if isinstance(schema, list) else schema


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_random_schemas_are_read_as_they_were_written(data: st.DataObject) -> None:
    """What fastavro writes by a random schema is read as the values it was given, by the scan and one at a time."""
    made = data.draw(record(3))
    kind = EventType(
        "t", data.draw(attributes([made.said])), format="avro", schema=Schema("avro", json.dumps(made.schema))
    )
    value = written(made.schema, made.value)
    batch = decode(kind, [value, None, value])
    batch.check()
    assert batch.valid.tolist() == [True, False, True]
    for row in (0, 2):
        assert_row(kind, batch, row, made.said)
    # a whole document shows maps as they are, but for who asks what paths lead into
    for only in (True, False):
        document = read_document(kind, value, attributes_only=only, maps=False)
        assert expected(kind, document) == expected(kind, made.said)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_events_are_read_by_the_schema_they_were_written_with(data: st.DataObject) -> None:
    """Schemas that gain, lose and change fields stand in one batch; a field that a schema lacks is absent."""
    versions = data.draw(st.lists(record(2), min_size=2, max_size=4))
    order = data.draw(st.lists(st.integers(0, len(versions)), min_size=1, max_size=12))
    kind = EventType("t", data.draw(attributes([made.said for made in versions])), format="avro")
    known = Known({k: Schema("avro", json.dumps(made.schema)) for k, made in enumerate(versions)})
    values = [b"" if k == len(versions) else framed(k, written(versions[k].schema, versions[k].value)) for k in order]
    batch = decode(kind, [*values, framed(77, b"x")], None, known)
    batch.check()
    assert set(batch.unknown) == {len(values)}
    for row, k in enumerate(order):
        if k == len(versions):
            assert not batch.valid[row]
        else:
            assert_row(kind, batch, row, versions[k].said)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_values_are_judged_alike(data: st.DataObject) -> None:
    """Whatever bytes come, the scan and the plain reader agree: both refuse them, or both read the same."""
    made = data.draw(record(3))
    kind = EventType(
        "t", data.draw(attributes([made.said])), format="avro", schema=Schema("avro", json.dumps(made.schema))
    )
    value = bytearray(written(made.schema, made.value))
    for _ in range(data.draw(st.integers(1, 3))):
        if value:
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(value[: data.draw(st.integers(0, len(value)))] if data.draw(st.booleans()) else value)
    judged_alike(kind, damaged)


# --- by hand ------------------------------------------------------------------------------------------------


def order_type(schema: Any, *attributes: Attribute) -> EventType:
    return EventType("t", attributes, format="avro", schema=Schema("avro", json.dumps(schema)))


def fields(*pairs: tuple[str, Any]) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": of} for name, of in pairs]}


X = Attribute("x", "int")


def test_every_cut_is_refused() -> None:
    """A value cut anywhere is not valid, and neither is one with a byte more."""
    schema = fields(("s", "string"), ("x", "long"), ("d", "double"), ("a", {"type": "array", "items": "int"}))
    value = written(schema, {"s": "hello", "x": 300, "d": 1.5, "a": [1, 2, 300]})
    kind = order_type(schema, X)
    batch = decode(kind, [value[:k] for k in range(len(value))] + [value, value + b"\0"])
    assert batch.valid.tolist() == [False] * len(value) + [True, False]


def test_an_array_of_items_without_bytes_ends() -> None:
    """A block of 2^60 nulls, alone or in each other, is refused after a bounded number of steps; few are read."""
    many = bytes([0x80] * 8 + [0x20])
    for items in ("null", {"type": "record", "name": "E", "fields": []}, {"type": "fixed", "name": "F", "size": 0}):
        kind = order_type(fields(("a", {"type": "array", "items": items}), ("x", "int")), X)
        few = bytes([2 * 50, 0, 6])
        batch = decode(kind, [many + b"\0\6", few])
        assert batch.valid.tolist() == [False, True]
        assert batch.ranks[1, 0] == 3
        with pytest.raises(HilcastError, match="too many items"):
            read_document(kind, many + b"\0\6")
    assert STEPS_FREE < 2**20


def test_a_type_that_contains_itself_is_read_so_deep_and_no_deeper() -> None:
    """A linked list within the limit is valid; one of a million links is refused, and nothing recurses."""
    link = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    kind = order_type(fields(("l", link), ("x", "int")), X)

    def links(count: int) -> bytes:
        return b"\2" * count + b"\0\6"

    batch = decode(kind, [links(DEPTH_MAX - 2), links(DEPTH_MAX - 1), links(10**6)])
    assert batch.valid.tolist() == [True, False, False]
    for value in (links(DEPTH_MAX - 1), links(10**5)):
        with pytest.raises(HilcastError, match="nested deeper"):
            read_document(kind, value)


@pytest.mark.parametrize("size", [b"\1", b"\xff" * 9 + b"\1", b"\xfe" * 9 + b"\1", b"\x80" * 10, b"\xff" * 11])
def test_impossible_sizes_are_refused(size: bytes) -> None:
    """Negative, huge and endless lengths of a text or a block are not valid."""
    for of in ("string", "bytes", {"type": "map", "values": "int"}):
        kind = order_type(fields(("s", of), ("x", "int")), X)
        assert decode(kind, [size + b"\0\0\0\6"]).valid.tolist() == [False]
        with pytest.raises(HilcastError, match="bad-event"):
            read_document(kind, size + b"\0\0\0\6")


def test_negative_counts_carry_a_size() -> None:
    """A block may say its size in bytes after a negative count; the items are read all the same."""
    kind = order_type(fields(("a", {"type": "array", "items": "int"}), ("x", "int")), X)
    assert decode(kind, [bytes([3, 4, 2, 2, 0, 6])]).ranks.tolist() == [[3]]


def test_text_that_is_not_utf8_is_refused_where_it_is_read() -> None:
    """A text attribute must be UTF-8; a text that no attribute reads is not looked into."""
    schema = fields(("s", "string"), ("x", "int"))
    value = b"\4\xff\xfe\6"
    assert decode(order_type(schema, X), [value]).valid.tolist() == [True]
    assert decode(order_type(schema, Attribute("s", "text")), [value]).valid.tolist() == [False]


def test_a_uuid_in_bytes_is_text() -> None:
    """The logical type uuid over 16 fixed bytes reads as its text."""
    schema = fields(("u", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}))
    id = uuid.UUID(int=2**127 + 5)
    kind = order_type(schema, Attribute("u", "text"))
    assert decode(kind, [id.bytes]).event(0) == {"u": str(id)}


def test_intervals_are_records_with_min_and_max() -> None:
    """An imprecise attribute reads a number, or a record with `min` and `max`, whichever branch was written."""
    span = {"type": "record", "name": "S", "fields": [{"name": "min", "type": "int"}, {"name": "max", "type": "int"}]}
    schema = fields(("x", ["int", span]))
    kind = order_type(schema, Attribute("x", "int", imprecise="possible"))
    batch = decode(kind, [b"\0\6", b"\2\2\10", b"\2\10\2"])
    assert batch.highs is not None
    assert (batch.ranks[:, 0].tolist(), batch.highs[:, 0].tolist()) == ([3, 1, ABSENT], [3, 4, ABSENT])
    assert batch.event(1) == {"x": {"min": 1, "max": 4}}


def test_nanoseconds_are_cut_towards_the_past() -> None:
    """timestamp-nanos keeps microseconds, before 1970 too."""
    kind = order_type(fields(("t", {"type": "long", "logicalType": "timestamp-nanos"})), Attribute("t", "timestamp"))
    values = [written(fields(("t", "long")), {"t": t}) for t in (1999, -1, 2**63 - 1, -(2**63))]
    ranks = decode(kind, values).ranks[:, 0].tolist()
    assert ranks == [1, -1, (2**63 - 1) // 1000, -(2**63) // 1000]


@pytest.mark.parametrize(
    "text",
    [
        "nonsense", "[]", "7", '"no.such.Name"', '{"type": "record", "name": "R"}', '{"type": "fixed", "name": "F"}',
        '{"type": "fixed", "name": "F", "size": -1}', '{"type": "enum", "name": "E", "symbols": [1]}',
        '{"type": "record", "name": "R", "fields": [{"type": "int"}]}', "[" * 100_000, '{"type": 7}',
        '{"type": "array"}',
    ],
)  # fmt: skip
def test_schemas_that_are_none_are_refused(text: str) -> None:
    """What is no schema raises ValueError, whatever it is."""
    with pytest.raises(ValueError):
        parse(text)


def test_names_are_found_in_their_namespace_and_in_references() -> None:
    """A name without dots means one of the enclosing namespace; references bring named types of other schemas."""
    address = (
        '{"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}'
    )
    order = '{"type": "record", "name": "shop.Order", "fields": [{"name": "to", "type": "Address"}]}'
    assert [type.code for type in at_path(parse(order, [address]), ("to", "city"))] == [parse('"string"').code]
    with pytest.raises(ValueError, match="no type 'Address'"):
        parse(order)


def test_a_batch_larger_than_any_text_keeps_its_bytes_apart() -> None:
    """Rows of one batch do not run into each other: each is read to its own end."""
    schema = fields(("s", "string"), ("x", "int"))
    values = [written(schema, {"s": "é" * k, "x": k}) for k in range(300)]
    batch = decode(order_type(schema, X, Attribute("s", "text")), values)
    assert batch.ranks[:, 0].tolist() == list(range(300))
    assert [batch.event(k)["s"] for k in range(300)] == ["é" * k for k in range(300)]
    assert np.array_equal(batch.valid, np.ones(300, bool))


def kinds_of_attributes(said: str) -> tuple[Attribute, ...]:
    """One of every kind at `v`; the category has what the value says as text, too."""
    kinds = ("int", "float", "boolean", "timestamp", "text")
    category = Attribute("c", "category", values=("other", said), path=("v",))
    return (*(Attribute(f"a_{kind}", kind, path=("v",)) for kind in kinds), category)


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_000, "1970-01-01T00:00:01Z"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_500_000_000, "1970-01-01T00:00:01.500000Z"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 1_000, "1970-01-01T00:00:01"),
        ({"type": "int", "logicalType": "date"}, 1, "1970-01-02"),
        ({"type": "string", "logicalType": "uuid"}, "1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z"),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", "b"),
        ("string", "1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z"),
        ("double", 3.0, "3.0"),
        ("boolean", True, "true"),
    ],
)
def test_a_leaf_is_the_json_value_it_stands_for_to_every_kind(schema: Any, value: Any, said: str) -> None:
    """Whatever kind an attribute has, the scan ranks a leaf as the judge ranks the JSON value that it stands for."""
    whole = fields(("v", schema))
    kind = order_type(whole, *kinds_of_attributes(said))
    data = written(whole, {"v": value})
    batch = decode(kind, [data])
    judged = rank_events(kind, [plain_event(kind, data, {})])
    assert batch.valid.all()
    assert batch.ranks.tolist() == judged.ranks.tolist()
    assert (batch.ranks != ABSENT).any()
