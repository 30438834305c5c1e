"""Building the rows that go out: compiled copies between Arrow columns, no Python object for a row.

An output row is (which input row, which topic, which extra headers). Keys and values are taken from the input columns;
the headers of a row are those that its input keeps, followed by extra ones made here:

    input headers   name, value | name, value | ...         kept runs are copied whole where nothing was dropped
    pool of extras  name code, value | ...                  a row names k positions in it

Rows leave in batches of some megabytes: a column of Arrow holds at most 2 GB, and one event may go to many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from state.columns import column, copy
from state.config import Config
from state.kernels import njit
from state.messages import Output
from streaming.envelope import HEADER, Envelopes, read

SCHEMA = pa.schema(
    [("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(HEADER))]
)
INPUT = pa.schema([SCHEMA.field("topic"), ("partition", pa.int32()), ("offset", pa.int64()), *list(SCHEMA)[1:]])
BATCH_BYTES = 64 << 20
"""About how much one outgoing batch holds."""
Ints = NDArray[np.int64]
Offsets = NDArray[np.int32]
Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]


@dataclass
class Outgoing:
    """Rows to write, collected by kind and built at the end."""

    kinds: list[tuple[Ints, Ints, Ints]] = field(default_factory=list)
    """Input rows, codes of topics, and (rows, k) positions of each row's extra headers in the pool."""
    names: list[str] = field(default_factory=list)
    """Topics by code."""
    extra_names: list[str] = field(default_factory=list)
    extra_values: list[pa.Array] = field(default_factory=list)
    """The pool: one name and many values each."""
    pooled: int = 0

    def code(self, topic: str) -> int:
        self.names.append(topic)
        return len(self.names) - 1

    def pool(self, name: str, values: pa.Array | list[bytes]) -> int:
        """Add extra headers of one name to the pool; return the position of the first."""
        first = self.pooled
        self.extra_names.append(name)
        self.extra_values.append(pa.array(values, pa.binary()) if isinstance(values, list) else values)
        self.pooled += len(values)
        return first

    def add(self, rows: Ints, topics: Ints, extras: Ints | None = None) -> None:
        none = np.empty((len(rows), 0), np.int64)
        self.kinds.append((rows, topics, none if extras is None else extras))


def build(outgoing: Outgoing, envelopes: Envelopes) -> Iterator[pa.RecordBatch]:
    """Build the rows, by the number of their extra headers, then by topic: so the producer fills batch after batch.

    Guarantee: rows to one topic with equally many extra headers leave in input order.
    """
    names = np.array(outgoing.names, dtype=object)
    rank = np.unique(names.astype(str), return_inverse=True)[1] if len(names) else np.empty(0, np.int64)
    table = envelopes.table
    topics_of = pa.array(names, pa.string())
    input_bytes = np.diff(column(table.column("key"))[1]) + np.diff(column(table.column("value"))[1])
    headers = _Headers(outgoing, envelopes)
    input_bytes += headers.kept_sizes
    for width in sorted({extras.shape[1] for _, _, extras in outgoing.kinds}):
        alike = [kind for kind in outgoing.kinds if kind[2].shape[1] == width]
        rows, topics, extras = (np.concatenate(columns) for columns in zip(*alike, strict=True))
        order = _sorted(rank[topics], len(names), _sorted(rows, len(envelopes), np.arange(len(rows))))
        rows, topics, extras = rows[order], topics[order], np.ascontiguousarray(extras[order])
        for a, b in _chunks(input_bytes[rows] + headers.extra_sizes(extras)):
            gather = pa.array(rows[a:b])
            columns = [
                topics_of.take(pa.array(topics[a:b])),
                table.column("key").take(gather),
                table.column("value").take(gather),
                headers.build(rows[a:b], extras[a:b]),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _chunks(sizes: Ints) -> Iterator[tuple[int, int]]:
    """Cut rows of these sizes into runs of about BATCH_BYTES, at least one row each."""
    total = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(total[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(total, before + BATCH_BYTES, side="right")))
        yield first, end
        first = end


@njit
def _sorted(keys: Ints, limit: int, order: Ints) -> Ints:
    """The positions `order`, stably sorted by their keys, which are below `limit`: counted, not compared."""
    starts = np.zeros(limit + 1, np.int64)
    for i in range(len(order)):
        starts[keys[order[i]] + 1] += 1
    for k in range(limit):
        starts[k + 1] += starts[k]
    out = np.empty(len(order), np.int64)
    for i in range(len(order)):
        key = keys[order[i]]
        out[starts[key]] = order[i]
        starts[key] += 1
    return out


class _Headers:
    """The headers that rows can have: what input rows keep, and the pool of extras."""

    def __init__(self, outgoing: Outgoing, envelopes: Envelopes) -> None:
        self.kept = envelopes.kept
        self.kept_end = np.cumsum(envelopes.kept_counts)
        self.kept_counts = envelopes.kept_counts
        self.names, self.name_at = column(envelopes.names)
        self.values, self.value_at = column(envelopes.contents)
        self.null = np.asarray(envelopes.contents.is_null().to_numpy(zero_copy_only=False))
        extra_names = [name.encode() for name in outgoing.extra_names]
        self.extra_names, self.extra_name_at = column(pa.array(extra_names, pa.binary()))
        lengths = [len(values) for values in outgoing.extra_values]
        self.extra_code = np.repeat(np.arange(len(lengths)), lengths)
        pool = pa.concat_arrays(outgoing.extra_values) if lengths else pa.array([], pa.binary())
        self.extra_values, self.extra_value_at = column(pool)

    @cached_property
    def kept_sizes(self) -> Ints:
        """About how many bytes the kept headers of each input row take."""
        sizes = (np.diff(self.name_at) + np.diff(self.value_at))[self.kept]
        bytes_of = np.append(0, np.cumsum(sizes))
        return np.asarray(bytes_of[self.kept_end] - bytes_of[self.kept_end - self.kept_counts])

    def extra_sizes(self, extras: Ints) -> Ints:
        """About how many bytes the extra headers of these output rows take."""
        return np.asarray(np.diff(self.extra_value_at)[extras].sum(axis=1) + 32 * extras.shape[1])

    def build(self, rows: Ints, extras: Ints) -> pa.Array:
        """The header lists of these output rows."""
        first = self.kept_end[rows] - self.kept_counts[rows]
        counts = self.kept_counts[rows]
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts + extras.shape[1], out=offsets[1:])
        kept = (self.kept, first, counts, self.name_at, self.value_at)
        pool = (extras, self.extra_code, self.extra_name_at, self.extra_value_at)
        slots = int(offsets[-1])
        name_at, value_at = np.empty(slots + 1, np.int32), np.empty(slots + 1, np.int32)
        _lay(*kept, *pool, name_at, value_at)
        names, values = np.empty(name_at[-1], np.uint8), np.empty(value_at[-1], np.uint8)
        null = np.zeros(slots, bool)
        of_input = (self.names, self.values, self.null)
        _fill(*kept, *of_input, *pool, self.extra_names, self.extra_values, name_at, value_at, names, values, null)
        flat = pa.StructArray.from_arrays(
            [_strings(pa.string(), name_at, names, None), _strings(pa.binary(), value_at, values, null)],
            fields=list(HEADER),
        )
        return pa.ListArray.from_arrays(pa.array(offsets), flat)


def _strings(kind: pa.DataType, offsets: Offsets, data: Bytes, null: Bools | None) -> pa.Array:
    valid = None
    if null is not None and null.any():
        valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def fixed(rows: Bytes) -> pa.Array:
    """A matrix of bytes as an Arrow column of binary values, one for each row."""
    n, width = rows.shape
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    return _strings(pa.binary(), offsets, np.ascontiguousarray(rows).reshape(-1), None)


def warm(config: Config) -> None:
    """Compile what copies headers, or load it from the cache, before the first batch needs it."""
    header = [{"key": "a", "value": b"1"}]
    row = {"topic": "t", "partition": 0, "offset": 0, "key": b"", "value": b"{}", "headers": header}
    outgoing, first = Outgoing(), np.zeros(1, np.int64)
    outgoing.code("t")
    outgoing.add(first, first, np.full((1, 1), outgoing.pool("b", [b"2"])))
    for _ in build(outgoing, read(pa.RecordBatch.from_pylist([row], INPUT), config)):
        pass


@njit
def _lay(
    kept: Ints, first: Ints, counts: Ints, name_at: Ints, value_at: Ints,
    extras: Ints, extra_code: Ints, extra_name_at: Ints, extra_value_at: Ints,
    to_name: Offsets, to_value: Offsets,
) -> None:  # fmt: skip
    """Where the name and the value of every header of every row begin."""
    slot, name, value = 0, np.int64(0), np.int64(0)
    for row in range(len(first)):
        for j in range(first[row], first[row] + counts[row]):
            to_name[slot], to_value[slot] = name, value
            slot += 1
            at = kept[j]
            name += name_at[at + 1] - name_at[at]
            value += value_at[at + 1] - value_at[at]
        for j in range(extras.shape[1]):
            to_name[slot], to_value[slot] = name, value
            slot += 1
            at = extras[row, j]
            code = extra_code[at]
            name += extra_name_at[code + 1] - extra_name_at[code]
            value += extra_value_at[at + 1] - extra_value_at[at]
    to_name[slot], to_value[slot] = name, value


@njit
def _fill(
    kept: Ints, first: Ints, counts: Ints, name_at: Ints, value_at: Ints, names: Bytes, values: Bytes, null: Bools,
    extras: Ints, extra_code: Ints, extra_name_at: Ints, extra_value_at: Ints, extra_names: Bytes, extra_values: Bytes,
    to_name: Offsets, to_value: Offsets, out_names: Bytes, out_values: Bytes, out_null: Bools,
) -> None:  # fmt: skip
    """Copy what `_lay` has laid out; headers that follow each other in the input in one go."""
    slot = 0
    for row in range(len(first)):
        j, end = first[row], first[row] + counts[row]
        while j < end:
            run = j + 1
            while run < end and kept[run] == kept[run - 1] + 1:
                run += 1
            a, b = kept[j], kept[run - 1] + 1
            copy(names, name_at[a], name_at[b], out_names, to_name[slot])
            copy(values, value_at[a], value_at[b], out_values, to_value[slot])
            for i in range(a, b):
                out_null[slot + i - a] = null[i]
            slot += b - a
            j = run
        for j in range(extras.shape[1]):
            at = extras[row, j]
            code = extra_code[at]
            copy(extra_names, extra_name_at[code], extra_name_at[code + 1], out_names, to_name[slot])
            copy(extra_values, extra_value_at[at], extra_value_at[at + 1], out_values, to_value[slot])
            slot += 1


def plain(outputs: list[Output]) -> pa.RecordBatch | None:
    """Rows that were made one by one: dead letters and the routing log."""
    if not outputs:
        return None
    headers = [[{"key": name, "value": value} for name, value in output.headers] for output in outputs]
    columns = [
        pa.array([output.topic for output in outputs], pa.string()),
        pa.array([output.key for output in outputs], pa.binary()),
        pa.array([output.value for output in outputs], pa.binary()),
        pa.array(headers, pa.list_(HEADER)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
