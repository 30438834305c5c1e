"""Building the rows that go out: compiled copies between Arrow columns, no Python object for a row.

An output row is (which input row, which topic, which extra headers). Keys and values are taken from the input columns;
the headers of a row are those that its input keeps, followed by extra ones made here:

    input headers   name, value | name, value | ...         kept runs are copied whole where nothing was dropped
    pool of extras  value | value | ...                     a row names one for each of the extra headers of its kind

Rows leave in batches of some megabytes: a column of Arrow holds at most 2 GB, and one event may go to many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from state.arrays import Bools, Bytes, Ints, Offsets
from state.columns import column, copy
from state.kernels import njit
from state.messages import Output
from state.routing.envelope import HEADER, Envelopes

SCHEMA = pa.schema(
    [("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(HEADER))]
)
BATCH_BYTES = 64 << 20
"""About how much one outgoing batch holds."""
_NO_NULLS: Bools = np.zeros(0, bool)


@dataclass
class Outgoing:
    """Rows to write, collected by kind and built at the end."""

    kinds: dict[tuple[str, ...], list[tuple[Ints, Ints, Ints]]] = field(default_factory=dict)
    """By the names of the extra headers: input rows, codes of topics, and where in the pool each row's extras are."""
    names: list[str] = field(default_factory=list)
    """Topics by code."""
    extra_values: list[pa.Array] = field(default_factory=list)
    """The pool."""
    pooled: int = 0

    def code(self, topic: str) -> int:
        self.names.append(topic)
        return len(self.names) - 1

    def pool(self, values: pa.Array | list[bytes]) -> int:
        """Add values of extra headers to the pool; return the position of the first."""
        first = self.pooled
        self.extra_values.append(pa.array(values, pa.binary()) if isinstance(values, list) else values)
        self.pooled += len(values)
        return first

    def add(self, rows: Ints, topics: Ints, extras: Mapping[str, Ints] | None = None) -> None:
        """Add rows; `extras`: by name of an extra header, where in the pool each row finds its value."""
        extras = extras or {}
        positions = np.empty((len(rows), len(extras)), np.int64)
        for j, where in enumerate(extras.values()):
            positions[:, j] = where
        self.kinds.setdefault(tuple(extras), []).append((rows, topics, positions))


def build(outgoing: Outgoing, envelopes: Envelopes) -> Iterator[pa.RecordBatch]:
    """Build the rows, by their extra headers, then by topic: so the producer fills batch after batch.

    Guarantee: rows to one topic with equal extra headers leave in input order.
    """
    names = np.array(outgoing.names, dtype=object)
    rank = np.unique(names.astype(str), return_inverse=True)[1] if len(names) else np.empty(0, np.int64)
    table = envelopes.table
    topics_of = pa.array(names, pa.string())
    headers = _Headers(outgoing, envelopes)
    for extra_names, alike in sorted(outgoing.kinds.items()):
        rows, topics, extras = (np.concatenate(columns) for columns in zip(*alike, strict=True))
        order = _sorted(rank[topics], len(names), _sorted(rows, len(envelopes), np.arange(len(rows))))
        rows, topics, extras = rows[order], topics[order], np.ascontiguousarray(extras[order])
        for a, b in _chunks(envelopes.kept_bytes[rows] + headers.extra_sizes(extra_names, extras)):
            gather = pa.array(rows[a:b])
            columns = [
                topics_of.take(pa.array(topics[a:b])),
                table.column("key").take(gather),
                table.column("value").take(gather),
                headers.build(rows[a:b], extra_names, extras[a:b]),
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
        self.envelopes = envelopes
        self.kept = envelopes.kept.astype(np.int32)
        self.kept_end = np.cumsum(envelopes.kept_counts)
        self.kept_counts = envelopes.kept_counts
        self.names, self.name_at = column(envelopes.names)
        self.values, self.value_at = column(envelopes.contents)
        self.null = _NO_NULLS
        if envelopes.contents.null_count:
            self.null = np.asarray(envelopes.contents.is_null().to_numpy(zero_copy_only=False))
        pool = pa.concat_arrays(outgoing.extra_values) if outgoing.extra_values else pa.array([], pa.binary())
        self.pool, self.pool_at = column(pool)

    def extra_sizes(self, names: tuple[str, ...], extras: Ints) -> Ints:
        """Bytes of the extra headers of these output rows."""
        return np.asarray(np.diff(self.pool_at)[extras].sum(axis=1) + len("".join(names).encode()))

    def build(self, rows: Ints, names: tuple[str, ...], extras: Ints) -> pa.Array:
        """The header lists of these output rows."""
        encoded = [name.encode() for name in names]
        block = np.frombuffer(b"".join(encoded), np.uint8)
        block_at = np.cumsum([0, *map(len, encoded)])
        counts = self.kept_counts[rows]
        first = self.kept_end[rows] - counts
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts + len(names), out=offsets[1:])
        slots = int(offsets[-1])
        name_bytes = int(self.envelopes.kept_names[rows].sum()) + len(block) * len(rows)
        value_bytes = int(self.envelopes.kept_contents[rows].sum() + np.diff(self.pool_at)[extras].sum())
        name_at, value_at = np.empty(slots + 1, np.int32), np.empty(slots + 1, np.int32)
        out_names, out_values = np.empty(name_bytes, np.uint8), np.empty(value_bytes, np.uint8)
        null = np.zeros(slots if len(self.null) else 0, bool)
        _fill(
            self.kept, first, counts, self.name_at, self.value_at, self.names, self.values, self.null,
            block, block_at, extras, self.pool_at, self.pool, name_at, value_at, out_names, out_values, null,
        )  # fmt: skip
        assert (name_at[-1], value_at[-1]) == (name_bytes, value_bytes)
        flat = pa.StructArray.from_arrays(
            [_strings(pa.string(), name_at, out_names, _NO_NULLS), _strings(pa.binary(), value_at, out_values, null)],
            fields=list(HEADER),
        )
        return pa.ListArray.from_arrays(pa.array(offsets), flat)


def _strings(kind: pa.DataType, offsets: Offsets, data: Bytes, null: Bools) -> pa.Array:
    valid = None
    if null.any():
        valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def fixed(rows: Bytes) -> pa.Array:
    """A matrix of bytes as an Arrow column of binary values, one for each row."""
    n, width = rows.shape
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    return _strings(pa.binary(), offsets, np.ascontiguousarray(rows).reshape(-1), _NO_NULLS)


@njit
def _fill(
    kept: Offsets, first: Ints, counts: Ints, name_at: Offsets, value_at: Offsets,
    names: Bytes, values: Bytes, null: Bools,
    block: Bytes, block_at: Ints, extras: Ints, pool_at: Offsets, pool: Bytes,
    to_name: Offsets, to_value: Offsets, out_names: Bytes, out_values: Bytes, out_null: Bools,
) -> None:  # fmt: skip
    """Write the headers of every row: what it keeps, runs that follow each other in the input in one go, then extras.

    `block` is the names of the extra headers, one after the other, the same for all rows.
    """
    slot, name, value = 0, 0, 0
    for row in range(len(first)):
        j, end = first[row], first[row] + counts[row]
        while j < end:
            run = j + 1
            while run < end and kept[run] == kept[run - 1] + 1:
                run += 1
            a, b = kept[j], kept[run - 1] + 1
            for i in range(a, b):
                to_name[slot + i - a] = name + name_at[i] - name_at[a]
                to_value[slot + i - a] = value + value_at[i] - value_at[a]
            if len(null):
                for i in range(a, b):
                    out_null[slot + i - a] = null[i]
            copy(names, name_at[a], name_at[b], out_names, name)
            copy(values, value_at[a], value_at[b], out_values, value)
            name += name_at[b] - name_at[a]
            value += value_at[b] - value_at[a]
            slot += b - a
            j = run
        copy(block, 0, len(block), out_names, name)
        for j in range(extras.shape[1]):
            at = extras[row, j]
            to_name[slot], to_value[slot] = name + block_at[j], value
            copy(pool, pool_at[at], pool_at[at + 1], out_values, value)
            value += pool_at[at + 1] - pool_at[at]
            slot += 1
        name += len(block)
    to_name[slot], to_value[slot] = name, value


def plain(outputs: Sequence[Output]) -> pa.RecordBatch | None:
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
