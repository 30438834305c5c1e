"""Batches of Avro and Protobuf values to ranks: by the schema of the type, or by the one that each record names.

    values ──heads──> schema ids ──Schemas──> programs ──scan──> leaves ──> ranks, by attribute

Values of one schema are scanned together. What is kept of a schema is bounded; where it comes from is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from state.arrays import Bools, Bytes, Ints
from state.space.boxes import Ranks
from state.space.encodings import avro_schema
from state.space.encodings import protobuf_schema as protobuf
from state.space.encodings.avro_scan import scan_avro
from state.space.encodings.leaf_columns import Leaves
from state.space.encodings.protobuf_scan import scan_protobuf
from state.space.encodings.schemas import Schema, Schemas
from state.space.encodings.wire import HEAD_BYTES, MAGIC, read_indexes
from state.space.event_type import Attribute, EventType, Format
from state.space.ranks import ABSENT

PROGRAMS_MAX = 1024
"""Schemas for which programs are kept, each for the attributes of one type."""

Indexes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Encoded:
    """What was read of a batch."""

    lows: Ranks
    highs: Ranks
    valid: Bools
    unknown: dict[int, str]
    """By row, which is not valid: why its schema cannot be used."""
    awaited: dict[int, int]
    """Those of them whose schema was not to be had: its id."""
    _attributes: Sequence[Attribute]
    _parts: Sequence[Leaves]
    _part: Ints
    _row: Ints

    def event(self, i: int) -> dict[str, object]:
        """The attributes of row i that are there, as JSON values."""
        assert self.valid[i], f"row {i} is not an event"
        leaves, row = self._parts[self._part[i]], int(self._row[i])
        values = {a.name: leaves.value(a, s, row) for a, s in zip(self._attributes, leaves.slots, strict=True)}
        return {name: value for name, value in values.items() if value is not None}


def read_encoded(event_type: EventType, data: Bytes, offsets: Ints, present: Bools | None, schemas: Schemas) -> Encoded:
    """Read a batch of values, one after another in `data`, cut at `offsets`.

    Guarantee: equal to reading each by itself with `avro_reader.py` or `protobuf_reader.py`, and ranking what it holds
    at the attributes' paths. Cost: one pass over the bytes, a few vectorised steps for each schema and attribute.
    """
    assert 0 <= offsets[0] <= offsets[-1] <= len(data)
    assert (offsets[:-1] <= offsets[1:]).all()
    n, attributes = len(offsets) - 1, event_type.attributes
    there = np.diff(offsets) >= 0 if present is None else present
    groups, unknown, awaited = _groups(event_type, data, offsets, there, schemas)
    lows = np.full((n, len(attributes)), ABSENT, np.int64)
    highs = lows.copy()
    valid, part, place = np.zeros(n, bool), np.zeros(n, np.int64), np.zeros(n, np.int64)
    parts: list[Leaves] = []
    for program, rows, starts in groups:
        leaves = program.scan(starts + data.ctypes.data, offsets[rows + 1] + data.ctypes.data, data)
        where = rows if len(rows) < n else slice(None)
        for column, (attribute, slot) in enumerate(zip(attributes, leaves.slots, strict=True)):
            lows[where, column], highs[where, column] = leaves.spans(attribute, slot)
        valid[where], part[where], place[where] = leaves.valid, len(parts), np.arange(len(rows))
        parts.append(leaves)
    return Encoded(lows, highs, valid, unknown, awaited, attributes, parts, part, place)


# --- which rows have which schema ---------------------------------------------------------------------------


class Scanner(Protocol):
    """A program for one schema and the attributes of one type."""

    def scan(self, starts: Ints, ends: Ints, memory: Bytes) -> Leaves: ...


Group = tuple[Scanner, Ints, Ints]
"""A program, the rows that it reads, and where their values begin."""


def _groups(
    event_type: EventType, data: Bytes, offsets: Ints, there: Bools, schemas: Schemas
) -> tuple[list[Group], dict[int, str], dict[int, int]]:
    """Rows by their program; those that have none: why, and which schema they need that was not to be had."""
    if event_type.own_schema is not None:
        rows = np.flatnonzero(there)
        return [(program_of(event_type.own_schema, (0,), event_type.attributes), rows, offsets[rows])], {}, {}
    rows = np.flatnonzero(there & (np.diff(offsets) >= HEAD_BYTES))
    rows = rows[data[offsets[rows]] == MAGIC]
    ids = np.zeros(len(rows), np.int64)
    for k in range(1, HEAD_BYTES):
        ids = ids << 8 | data[offsets[rows] + k]
    known = schemas.of(np.unique(ids).tolist()) if len(rows) else {}
    groups: list[Group] = []
    unknown: dict[int, str] = {}
    awaited: dict[int, int] = {}
    for id in np.unique(ids).tolist():
        mine = rows[ids == id]
        if id not in known:
            unknown |= dict.fromkeys(mine.tolist(), f"the schema {id} is not to be had from the registry")
            awaited |= dict.fromkeys(mine.tolist(), id)
            continue
        if known[id].kind != event_type.format:
            unknown |= dict.fromkeys(mine.tolist(), f"the schema {id} cannot be used: it is no {event_type.format}")
            continue
        for indexes, some, starts in _bodies(event_type, data, offsets, mine):
            try:
                groups.append((program_of(known[id], indexes, event_type.attributes), some, starts))
            except ValueError as error:
                unknown |= dict.fromkeys(some.tolist(), f"the schema {id} cannot be used: {error}")
    return groups, unknown, awaited


def _bodies(event_type: EventType, data: Bytes, offsets: Ints, rows: Ints) -> list[tuple[Indexes, Ints, Ints]]:
    """Rows of one schema by the message they are, and where their values begin; those that name none are left out."""
    starts = offsets[rows] + HEAD_BYTES
    if event_type.format == "avro":
        return [((0,), rows, starts)]
    first = np.zeros(len(rows), bool)
    longer = starts < offsets[rows + 1]
    first[longer] = data[starts[longer]] == 0
    found: dict[Indexes, list[tuple[int, int]]] = {}
    for row in rows[~first].tolist():
        value = data[offsets[row] : offsets[row + 1]][: HEAD_BYTES + 512].tobytes()
        try:
            indexes, at = read_indexes(value)
        except ValueError:
            continue
        found.setdefault(indexes, []).append((row, int(offsets[row]) + at))
    bodies: list[tuple[Indexes, Ints, Ints]] = []
    if first.any():
        bodies.append(((0,), rows[first], starts[first] + 1))
    for indexes, some in found.items():
        pairs = np.array(some, np.int64)
        bodies.append((indexes, pairs[:, 0], pairs[:, 1]))
    return bodies


# --- programs -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=PROGRAMS_MAX)
def program_of(schema: Schema, indexes: Indexes, attributes: tuple[Attribute, ...]) -> Scanner:
    """The program of a schema; raises ValueError if it cannot be used."""
    if schema.kind == "protobuf":
        return _Protobuf(protobuf.program(schema.protobuf(indexes), attributes))
    return _Avro(avro_schema.program(schema.avro(), attributes))


class _Avro:
    def __init__(self, made: avro_schema.Program) -> None:
        self._made = made
        columns = [made.codes, made.arguments, made.firsts, made.counts, made.positions, made.kinds]
        self._table, self._children = np.array(columns, np.int64), np.array(made.children, np.int64)

    def scan(self, starts: Ints, ends: Ints, memory: Bytes) -> Leaves:
        leaves = _blank(len(starts), self._made, memory)
        outcome = (leaves.found, leaves.bits, leaves.sizes, leaves.valid)
        scan_avro(starts, ends, self._made.root, self._table, self._children, *outcome)
        leaves.check_texts()
        return leaves


class _Protobuf:
    def __init__(self, made: protobuf.Program) -> None:
        self._made = made
        self._first, self._count = np.array(made.first, np.int64), np.array(made.count, np.int64)
        self._entries = np.array(made.entries, np.int64).reshape(-1, 12)
        self._numbers = np.array(made.numbers, np.int64)
        self._defaults = np.array(made.defaults, np.int64).reshape(-1, 3)

    def scan(self, starts: Ints, ends: Ints, memory: Bytes) -> Leaves:
        leaves = _blank(len(starts), self._made, memory)
        tables = (self._first, self._count, self._entries, self._numbers, self._defaults)
        scan_protobuf(starts, ends, *tables, leaves.found, leaves.bits, leaves.sizes, leaves.valid)
        leaves.check_texts()
        return leaves


def _blank(n: int, made: avro_schema.Program | protobuf.Program, memory: Bytes) -> Leaves:
    found, bits, sizes = (np.zeros((made.width, n), np.int64) for _ in range(3))
    return Leaves(found, bits, sizes, np.zeros(n, bool), made.leaves, made.slots, memory)


# --- for who compiles before the first batch ----------------------------------------------------------------


def two_texts(format: Format) -> tuple[Schema, bytes]:
    """The schema of an event of two texts, `a` and `b`, and such an event."""
    if format == "avro":
        fields = '[{"name": "a", "type": "string"}, {"name": "b", "type": "string"}]'
        return Schema("avro", f'{{"type": "record", "name": "W", "fields": {fields}}}'), b"\x02x\x02c"
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="w.proto", syntax="proto3")
    message = file.message_type.add(name="W")
    for number, name in enumerate("ab", 1):
        message.field.add(name=name, number=number, label=1, type=9)
    return Schema("protobuf", files=(file.SerializeToString(),), message="W"), b"\x0a\x01x\x12\x01c"
