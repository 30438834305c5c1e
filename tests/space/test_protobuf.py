"""Protobuf values: written by protobuf from random messages, read by the compiled scan and by the plain reader."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from state.errors import HilcastError
from state.space.decode import decode
from state.space.encodings.documents import read_document
from state.space.encodings.protobuf_scan import GROUPS_MAX
from state.space.encodings.schemas import Schema
from state.space.encodings.wire import framed
from state.space.event_type import Attribute, EventType
from state.space.ranks import ABSENT
from tests.space.encoded import Known, assert_row, expected, judged_alike
from tests.space.test_avro import WORDS, moment, written

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18]
TIMESTAMP, WRAPPED = ".google.protobuf.Timestamp", ".google.protobuf.Int64Value"
SINGLE = (TIMESTAMP, WRAPPED)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    1: st.floats(), 2: st.floats(width=32), 3: st.integers(-(2**63), 2**63 - 1), 4: st.integers(0, 2**64 - 1),
    5: st.integers(-(2**31), 2**31 - 1), 6: st.integers(0, 2**64 - 1), 7: st.integers(0, 2**32 - 1), 8: st.booleans(),
    9: st.one_of(st.sampled_from(WORDS), st.text(max_size=10)), 12: st.binary(max_size=8),
    13: st.integers(0, 2**32 - 1),
    14: st.sampled_from([0, 1, 5]), 15: st.integers(-(2**31), 2**31 - 1), 16: st.integers(-(2**63), 2**63 - 1),
    17: st.integers(-(2**31), 2**31 - 1), 18: st.integers(-(2**63), 2**63 - 1),
}  # fmt: skip


# --- random messages ------------------------------------------------------------------------------------------


@st.composite
def files(draw: st.DrawFn) -> descriptor_pb2.FileDescriptorProto:
    """A file with a few messages, each using those before it; the last is the one that is written."""
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax=syntax)
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    side = file.enum_type.add(name="Side")
    for name, number in (("other", 0), ("buy", 1), ("sell", 5)):
        side.value.add(name=name, number=number)
    count = draw(st.integers(1, 3))
    for k in range(count):
        message = file.message_type.add(name=f"M{k}")
        if draw(st.booleans()):
            message.oneof_decl.add(name="choice")
        types = [*SCALARS, TIMESTAMP, WRAPPED, *(f".t.M{j}" for j in range(k))]
        numbers = draw(st.lists(st.integers(1, 40), unique=True, min_size=1, max_size=5))
        for name, number in zip("abcdefg", numbers, strict=False):
            add_field(draw, message, name, number, draw(st.sampled_from(types)), syntax)
    return file


def add_field(draw: st.DrawFn, message: Any, name: str, number: int, type: int | str, syntax: str) -> None:
    field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
    field.type = type if isinstance(type, int) else Field.TYPE_MESSAGE
    if isinstance(type, str) or type == 14:
        field.type_name = type if isinstance(type, str) else ".t.Side"
    place = draw(st.sampled_from(["plain", "plain", "repeated", "oneof", "optional"]))
    if place == "repeated":
        field.label = Field.LABEL_REPEATED
    elif place == "oneof" and message.oneof_decl and message.oneof_decl[0].name == "choice":
        field.oneof_index = 0
    elif place == "optional" and syntax == "proto3":
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def finished(file: descriptor_pb2.FileDescriptorProto) -> Schema:
    """Without a oneof that nothing is in, which protobuf refuses."""
    for message in file.message_type:
        used = sorted({f.oneof_index for f in message.field if f.HasField("oneof_index")})
        kept = [message.oneof_decl[k].name for k in used]
        for f in message.field:
            if f.HasField("oneof_index"):
                f.oneof_index = used.index(f.oneof_index)
        del message.oneof_decl[:]
        for name in sorted(kept, key=lambda name: name != "choice"):
            message.oneof_decl.add(name=name)
        order = {name: k for k, name in enumerate(sorted(kept, key=lambda name: name != "choice"))}
        for f in message.field:
            if f.HasField("oneof_index"):
                f.oneof_index = order[kept[f.oneof_index]]
    return Schema("protobuf", files=(file.SerializeToString(),), message=f"t.{file.message_type[-1].name}")


def fill(draw: st.DrawFn, message: Any) -> Any:
    """Give some fields of a message random values."""
    for field in message.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        if field.type == 11:
            below = getattr(message, field.name)
            for _ in range(draw(st.integers(0, 2)) if field.is_repeated else 1):
                one = below.add() if field.is_repeated else below
                one.SetInParent()
                fill(draw, one)
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(VALUES[field.type], max_size=3)))
        else:
            setattr(message, field.name, draw(VALUES[field.type]))
    return message


def said(message: Any) -> Any:
    """What a message says, in JSON; repeated fields and bytes are none."""
    name = message.DESCRIPTOR.full_name
    if name == TIMESTAMP[1:]:
        return moment(message.seconds * 10**6 + message.nanos // 1000) if 0 <= message.nanos < 10**9 else None
    if name == WRAPPED[1:]:
        return message.value
    found = {}
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated or field.type == 12 or (field.has_presence and not message.HasField(field.name)):
            continue
        value = getattr(message, field.name)
        if field.type == 11:
            value = said(value)
        elif field.type == 14:
            value = {0: "other", 1: "buy", 5: "sell"}.get(value)
        elif isinstance(value, float) and not math.isfinite(value):
            value = None
        found[field.name] = value
    return found


@st.composite
def attributes(draw: st.DrawFn) -> tuple[Attribute, ...]:
    made = []
    for k in range(draw(st.integers(1, 5))):
        path = tuple(draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3)))
        kind = draw(st.sampled_from(["int", "float", "boolean", "category", "timestamp", "text"]))
        made.append(Attribute(f"x{k}", kind, values=WORDS if kind == "category" else (), path=path))
    return tuple(made)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_random_messages_are_read_as_protobuf_reads_them(data: st.DataObject) -> None:
    """What protobuf writes is read as protobuf's own reader reads it; merged messages and oneofs too."""
    schema = finished(data.draw(files()))
    kind = EventType("t", data.draw(attributes()), format="protobuf", schema=schema)
    made = message_factory.GetMessageClass(schema.protobuf())
    parts = [fill(data.draw, made()) for _ in range(data.draw(st.integers(1, 3)))]
    value = b"".join(part.SerializeToString() for part in parts)
    whole = made.FromString(value)
    batch = decode(kind, [value, None, value])
    batch.check()
    assert batch.valid.tolist() == [True, False, True]
    for row in (0, 2):
        assert_row(kind, batch, row, said(whole))
    for only in (True, False):
        assert expected(kind, read_document(kind, value, attributes_only=only)) == expected(kind, said(whole))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_values_are_judged_alike(data: st.DataObject) -> None:
    """The scan and the plain reader agree on any bytes; what protobuf accepts as a whole, they read as it does."""
    schema = finished(data.draw(files()))
    kind = EventType("t", data.draw(attributes()), format="protobuf", schema=schema)
    made = message_factory.GetMessageClass(schema.protobuf())
    value = bytearray(fill(data.draw, made()).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if value:
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    value += data.draw(st.binary(max_size=6))
    damaged = bytes(value)
    batch = judged_alike(kind, damaged)
    try:
        whole = made.FromString(damaged)
        found = said(whole)
    except (DecodeError, UnicodeDecodeError):
        return
    if batch.valid[0] or schema.files[0].find(b"proto3") >= 0:  # texts of proto2 may be any bytes to protobuf
        assert_row(kind, batch, 0, found)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_events_are_read_by_the_schema_they_were_written_with(data: st.DataObject) -> None:
    """Versions of a message stand in one batch, each named by the id of its schema; what one lacks is absent."""
    versions = [finished(data.draw(files())) for _ in range(data.draw(st.integers(2, 4)))]
    kind = EventType("t", data.draw(attributes()), format="protobuf")
    known = Known({k: Schema("protobuf", files=version.files) for k, version in enumerate(versions)})
    values, found = [], []
    for k in data.draw(st.lists(st.integers(0, len(versions) - 1), min_size=1, max_size=8)):
        made = message_factory.GetMessageClass(versions[k].protobuf())
        message = fill(data.draw, made())
        index = int(made.DESCRIPTOR.name[1:])
        values.append(framed(k, message.SerializeToString(), (index,)))
        found.append(said(message))
    batch = decode(kind, [*values, framed(77, b"", (0,)), framed(0, b"", (99,)), b"\0\0\0\0\0"], None, known)
    assert sorted(batch.unknown) == [len(values), len(values) + 1]
    assert not batch.valid[len(values) + 2]
    for row, one in enumerate(found):
        assert_row(kind, batch, row, one)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_one_event_has_the_same_ranks_in_every_format(data: st.DataObject) -> None:
    """The same attributes as JSON, Avro and Protobuf give the same ranks."""
    event = {
        "n": data.draw(st.integers(-(2**63), 2**63 - 1)),
        "f": data.draw(st.floats(allow_nan=False, allow_infinity=False)),
        "b": data.draw(st.booleans()),
        "s": data.draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
        "c": data.draw(st.sampled_from(["other", "buy", "sell"])),
        "t": data.draw(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)),
    }
    asked = (
        Attribute("n", "int", path=("o", "n")), Attribute("f", "float", path=("o", "f")),
        Attribute("b", "boolean", path=("o", "b")), Attribute("s", "text", path=("o", "s")),
        Attribute("c", "category", values=("buy", "sell"), path=("o", "c")),
        Attribute("t", "timestamp", path=("o", "t")),
    )  # fmt: skip
    plain = json.dumps({"o": {**event, "t": moment(event["t"])}}).encode()
    as_json = decode(EventType("t", asked), [plain])
    as_avro = decode(EventType("t", asked, format="avro", schema=AVRO), [avro_value(event)])
    as_protobuf = decode(EventType("t", asked, format="protobuf", schema=PROTOBUF), [protobuf_value(event)])
    assert as_json.valid.all()
    assert as_json.ranks.tolist() == as_avro.ranks.tolist() == as_protobuf.ranks.tolist()


INNER = [
    {"name": "n", "type": "long"}, {"name": "f", "type": "double"}, {"name": "b", "type": "boolean"},
    {"name": "s", "type": "string"},
    {"name": "c", "type": {"type": "enum", "name": "C", "symbols": ["other", "buy", "sell"]}},
    {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]  # fmt: skip
OUTER = {
    "type": "record",
    "name": "E",
    "fields": [{"name": "o", "type": {"type": "record", "name": "O", "fields": INNER}}],
}
AVRO = Schema("avro", json.dumps(OUTER))


def avro_value(event: dict[str, Any]) -> bytes:
    return written(OUTER, {"o": event})


def _protobuf() -> Schema:
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="e", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    side = file.enum_type.add(name="Side")
    for number, name in enumerate(("other", "buy", "sell")):
        side.value.add(name=name, number=number)
    inner, outer = file.message_type.add(name="O"), file.message_type.add(name="E")
    for number, (name, type) in enumerate({"n": 3, "f": 1, "b": 8, "s": 9, "c": 14, "t": 11}.items(), 1):
        names = {"c": ".e.Side", "t": TIMESTAMP}
        inner.field.add(name=name, number=number, label=1, type=type, type_name=names.get(name))
    outer.field.add(name="o", number=1, label=1, type=11, type_name=".e.O")
    return Schema("protobuf", files=(file.SerializeToString(),), message="e.E")


PROTOBUF = _protobuf()


def protobuf_value(event: dict[str, Any]) -> bytes:
    made = message_factory.GetMessageClass(PROTOBUF.protobuf())()
    for name in "nfbs":
        setattr(made.o, name, event[name])
    made.o.c = {"other": 0, "buy": 1, "sell": 2}[event["c"]]
    made.o.t.seconds, made.o.t.nanos = event["t"] // 10**6, event["t"] % 10**6 * 1000
    return made.SerializeToString()


# --- by hand ------------------------------------------------------------------------------------------------


def shop(syntax: str = "proto3") -> Schema:
    """message Order { int32 x = 1; Order again = 2; repeated int64 many = 3; string s = 4; Span span = 5; }"""
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="s", syntax=syntax)
    order, span = file.message_type.add(name="Order"), file.message_type.add(name="Span")
    order.field.add(name="x", number=1, label=1, type=5)
    order.field.add(name="again", number=2, label=1, type=11, type_name=".s.Order")
    order.field.add(name="many", number=3, label=3, type=3)
    order.field.add(name="s", number=4, label=1, type=9)
    order.field.add(name="span", number=5, label=1, type=11, type_name=".s.Span")
    for number, name in enumerate(("min", "max"), 1):
        span.field.add(name=name, number=number, label=1, type=5)
    return Schema("protobuf", files=(file.SerializeToString(),), message="s.Order")


def of(*attributes: Attribute, schema: Schema | None = None) -> EventType:
    return EventType("t", attributes, format="protobuf", schema=schema or shop())


X = Attribute("x", "int")


def test_defaults_are_values_where_a_field_has_no_presence() -> None:
    """In proto3 a field that was not written is 0, if its message is there; in proto2 it is absent."""
    deep = Attribute("y", "int", path=("again", "x"))
    assert decode(of(X, deep), [b"", b"\x12\0"]).ranks.tolist() == [[0, ABSENT], [0, 0]]
    assert decode(of(X, schema=shop("proto2")), [b""]).ranks.tolist() == [[ABSENT]]


def test_messages_ten_thousand_deep_are_skipped_or_read_along_the_path() -> None:
    """Nesting that no attribute lies in is skipped by its length; a path goes as deep as it says and no deeper."""
    value = b"\x08\x07"
    for _ in range(10_000):
        size, head = len(value), b""
        while size >= 0x80:
            head, size = head + bytes([size & 0x7F | 0x80]), size >> 7
        value = b"\x12" + head + bytes([size]) + value
    batch = decode(of(X, Attribute("y", "int", path=("again", "again", "x"))), [value])
    assert batch.valid.tolist() == [True]
    assert batch.ranks.tolist() == [[0, 0]]
    assert read_document(of(X), value, attributes_only=True) == {"x": 0}
    with pytest.raises(HilcastError, match="nested deeper"):
        read_document(of(X), value)


def test_groups_nest_so_deep_and_no_deeper() -> None:
    """Groups have no length and are walked through, up to a limit; one that is not closed is refused."""

    def groups(count: int) -> bytes:
        return b"\x53" * count + b"\x54" * count + b"\x08\x07"

    values = [groups(GROUPS_MAX), groups(GROUPS_MAX + 1), groups(10**6), b"\x53", b"\x54", b"\x53\x5c"]
    batch = decode(of(X), values)
    assert batch.valid.tolist() == [True, False, False, False, False, False]
    assert batch.ranks[0].tolist() == [7]
    for value in values[1:]:
        with pytest.raises(HilcastError, match="bad-event"):
            read_document(of(X), value)


def test_a_packed_bomb_is_skipped() -> None:
    """A megabyte of packed numbers that no attribute reads costs no more than its length."""
    assert decode(of(X), [b"\x1a\x80\x80\x40" + b"\1" * 2**20 + b"\x08\x07"]).ranks.tolist() == [[7]]


@pytest.mark.parametrize(
    "value",
    [
        b"\x08", b"\x08\xff", b"\x12\x05\x08", b"\x0d\0\0", b"\x09\0", b"\0\1", b"\x0f", b"\x08" + b"\xff" * 10,
        b"\x12" + b"\xff" * 9 + b"\x01", b"\x12\x01\x08", b"{}",
    ],
)  # fmt: skip
def test_broken_values_are_refused(value: bytes) -> None:
    """Cut fields, lengths beyond the end, numbers without end and unknown wire types are not valid."""
    kind = of(X, Attribute("y", "int", path=("again", "x")))
    assert decode(kind, [value]).valid.tolist() == [False]
    with pytest.raises(HilcastError, match="bad-event"):
        read_document(kind, value, attributes_only=True)


def test_text_that_is_not_utf8_is_refused_where_it_is_read() -> None:
    """A text attribute must be UTF-8; a text that no attribute reads is not looked into."""
    assert decode(of(X), [b"\x22\x01\xff"]).valid.tolist() == [True]
    assert decode(of(Attribute("s", "text")), [b"\x22\x01\xff"]).valid.tolist() == [False]


def test_intervals_are_messages_with_min_and_max() -> None:
    """An imprecise attribute reads a message with `min` and `max`."""
    kind = of(Attribute("span", "int", imprecise="possible"))
    batch = decode(kind, [b"\x2a\x04\x08\x01\x10\x04", b"\x2a\x02\x08\x01", b""])
    assert batch.highs is not None
    assert batch.ranks[:, 0].tolist() == [1, ABSENT, ABSENT]
    assert batch.highs[:, 0].tolist() == [4, ABSENT, ABSENT]
    assert batch.event(0) == {"span": {"min": 1, "max": 4}}


def test_no_path_leads_into_a_map() -> None:
    """To the scan and to judges a map is no object, though people are shown one."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="m", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="MapEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=5)
    message.field.add(name="map", number=1, label=3, type=11, type_name=".m.M.MapEntry")
    schema = Schema("protobuf", files=(file.SerializeToString(),), message="m.M")
    made = message_factory.GetMessageClass(schema.protobuf())(map={"x": 3})
    kind = of(Attribute("x", "int", path=("map", "x")), Attribute("map", "int", imprecise="possible"), schema=schema)
    value = made.SerializeToString()
    batch = decode(kind, [value])
    assert (batch.valid.tolist(), batch.ranks.tolist()) == ([True], [[ABSENT, ABSENT]])
    assert read_document(kind, value) == {"map": {"x": 3}}
    assert read_document(kind, value, maps=False) == {"map": [{"key": "x", "value": 3}]}
    assert read_document(kind, value, attributes_only=True) == {}
