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
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from state.arrays import Bools, Bytes, Ints, Offsets
from state.columns import column, copy_at, gathered
from state.errors import ENVIRONMENT
from state.kernels import njit
from state.limits import HEADER_OVERHEAD_BYTES, OUTPUT_BYTES_MAX, RECORD_OVERHEAD_BYTES
from state.messages import Output
from state.routing.envelope import HEADER, Envelopes

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(HEADER)),
        ("partition", pa.int32()),
    ]
)
BATCH_BYTES = 16 << 20
"""About how much one outgoing batch holds. Of 64 MB each was memory that the system had to hand out anew."""
_NO_NULLS: Bools = np.zeros(0, bool)


@dataclass
class Outgoing:
    """Rows to write, collected by kind and built at the end."""

    kinds: dict[tuple[str, ...], list[tuple[Ints, Ints, Ints]]] = field(default_factory=dict)
    """By the names of the extra headers: input rows, codes of topics, and where in the pool each row's extras are."""
    names: list[str] = field(default_factory=list)
    """Topics by code."""
    lanes: list[int] = field(default_factory=list)
    """By code: partitions that are written to, each row to that of its input; 0: Kafka chooses."""
    extra_values: list[pa.Array] = field(default_factory=list)
    """The pool."""
    pooled: int = 0

    def code(self, topic: str, lanes: int = 0) -> int:
        self.names.append(topic)
        self.lanes.append(lanes)
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


class _Alike(NamedTuple):
    """Rows with equal extra headers, by topic, then in input order."""

    names: tuple[str, ...]
    rows: Ints
    topics: Ints
    extras: Ints
    sizes: Ints
    """Bytes of key, value and headers of each."""


class Assembly:
    """Rows that are to go out, by their extra headers, then by topic: so the producer fills batch after batch.

    What can be known to fit or to fail before anything is written is found when this is made; batches are built as
    they are asked for. Guarantee: rows to one topic with equal extra headers leave in input order; each fits Kafka.
    """

    def __init__(self, outgoing: Outgoing, envelopes: Envelopes) -> None:
        names = np.array(outgoing.names, dtype=object)
        rank = np.unique(names.astype(str), return_inverse=True)[1] if len(names) else np.empty(0, np.int64)
        self._envelopes = envelopes
        self._topics = pa.array(names, pa.string())
        self._lanes = np.array(outgoing.lanes, np.int64)
        self._headers = _Headers(outgoing, envelopes)
        self._kinds = [self._alike(extra_names, alike, rank) for extra_names, alike in sorted(outgoing.kinds.items())]
        self.failed: dict[int, Exception] = {}
        """By input row: what was raised where one of its copies was built; that copy is missing."""

    def _alike(self, names: tuple[str, ...], alike: list[tuple[Ints, Ints, Ints]], rank: Ints) -> _Alike:
        envelopes = self._envelopes
        rows, topics, extras = (np.concatenate(columns) for columns in zip(*alike, strict=True))
        order = _sorted(rank[topics], len(rank), _sorted(rows, len(envelopes), np.arange(len(rows))))
        sorted_rows, sorted_topics, sorted_extras = np.empty_like(rows), np.empty_like(topics), np.empty_like(extras)
        sizes = np.empty(len(rows), np.int64)
        most = _ordered(
            order, rows, topics, extras, envelopes.kept_bytes, envelopes.kept_counts, self._headers.pool_at,
            sum(len(name.encode()) for name in names), sorted_rows, sorted_topics, sorted_extras, sizes,
        )  # fmt: skip
        assert most + RECORD_OVERHEAD_BYTES <= OUTPUT_BYTES_MAX, "what would not fit is refused before it is copied"
        return _Alike(names, sorted_rows, sorted_topics, sorted_extras, sizes)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some 16 MB at a time; of a batch that cannot be built all rows that can, and the others failed."""
        for kind in self._kinds:
            for a, b in _chunks(kind.sizes):
                yield from self._built(kind, a, b)

    def _built(self, kind: _Alike, a: int, b: int) -> list[pa.RecordBatch]:
        try:
            return [self._batch(kind, a, b)]
        except ENVIRONMENT:
            raise
        except Exception as error:
            if b - a == 1:
                self.failed.setdefault(int(kind.rows[a]), error)
                return []
        half = (a + b) // 2
        return self._built(kind, a, half) + self._built(kind, half, b)

    def _batch(self, kind: _Alike, a: int, b: int) -> pa.RecordBatch:
        table, rows = self._envelopes.table, kind.rows[a:b]
        columns = [
            gathered(self._topics, kind.topics[a:b]),
            gathered(table.column("key"), rows),
            gathered(table.column("value"), rows),
            self._headers.build(rows, kind.names, kind.extras[a:b]),
            self._partitions(rows, self._lanes[kind.topics[a:b]]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _partitions(self, rows: Ints, lanes: Ints) -> pa.Array:
        """Which partition each row goes to (`state/lanes.py`); null: Kafka chooses."""
        if not lanes.any():
            return pa.nulls(len(rows), pa.int32())
        lane = self._envelopes.lane[rows] % np.maximum(lanes, 1)
        return pa.array(lane.astype(np.int32), pa.int32(), mask=lanes == 0)


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


@njit
def _ordered(
    order: Ints, rows: Ints, topics: Ints, extras: Ints, kept_bytes: Ints, kept_counts: Ints, pool_at: Offsets,
    name_bytes: int, to_rows: Ints, to_topics: Ints, to_extras: Ints, sizes: Ints,
) -> int:  # fmt: skip
    """Put rows in order, with the bytes of key, value and headers of each; return the most, with what headers add."""
    most = 0
    for i in range(len(order)):
        at = order[i]
        row = rows[at]
        to_rows[i], to_topics[i] = row, topics[at]
        size = kept_bytes[row] + name_bytes
        for j in range(extras.shape[1]):
            place = extras[at, j]
            to_extras[i, j] = place
            size += pool_at[place + 1] - pool_at[place]
        sizes[i] = size
        most = max(most, size + HEADER_OVERHEAD_BYTES * (kept_counts[row] + extras.shape[1]))
    return most


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
        self.pool_sizes = np.diff(self.pool_at)
        self.alike = envelopes.alike
        self._named: dict[tuple[str, ...], tuple[Offsets, Bytes]] = {}
        """By names of extra headers: where the names of some rows that are alike begin, and these."""

    def build(self, rows: Ints, names: tuple[str, ...], extras: Ints) -> pa.Array:
        """The header lists of these output rows."""
        make = self._alike if self.alike >= 0 and not len(self.null) else self._each
        offsets, name_at, out_names, value_at, out_values, null = make(rows, names, extras)
        flat = pa.StructArray.from_arrays(
            [_strings(pa.string(), name_at, out_names, _NO_NULLS), _strings(pa.binary(), value_at, out_values, null)],
            fields=list(HEADER),
        )
        return pa.ListArray.from_arrays(pa.array(offsets), flat)

    def _alike(self, rows: Ints, names: tuple[str, ...], extras: Ints) -> _Lists:
        """Of rows that pass on headers of the same names, none of them null."""
        n, slots = len(rows), self.alike + len(names)
        value_at = np.empty(n * slots + 1, np.int32)
        size = _place_alike(rows, self.alike, self.value_at, extras, self.pool_at, value_at)
        assert size < 2**31, "a column of Arrow holds 2 GB"
        values = np.empty(size, np.uint8)
        _copy_alike(rows, self.alike, self.value_at, self.values, extras, self.pool_at, self.pool, value_at, values)
        return _Lists(np.arange(n + 1, dtype=np.int32) * np.int32(slots), *self._names_of(n, names), value_at, values)

    def _names_of(self, n: int, names: tuple[str, ...]) -> tuple[Offsets, Bytes]:
        """Where the names of n such rows begin, with those of the extra headers, and the names: made once for many."""
        block, block_at = _block(names)
        first, end = self.name_at[0], self.name_at[self.alike]
        text = np.concatenate([self.names[first:end], block])
        within = np.concatenate([self.name_at[: self.alike] - first, end - first + block_at[:-1]]).astype(np.int32)
        if names not in self._named or len(self._named[names][0]) < n * len(within) + 1:
            name_at = np.empty(n * len(within) + 1, np.int32)
            before = np.arange(n, dtype=np.int32) * np.int32(len(text))
            np.add(before[:, None], within, out=name_at[:-1].reshape(n, len(within)))
            name_at[-1] = n * len(text)
            self._named[names] = name_at, np.tile(text, n)
        name_at, every = self._named[names]
        return name_at[: n * len(within) + 1], every[: n * len(text)]

    def _each(self, rows: Ints, names: tuple[str, ...], extras: Ints) -> _Lists:
        """Of any rows."""
        block, block_at = _block(names)
        counts = self.kept_counts[rows]
        first = self.kept_end[rows] - counts
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts + len(names), out=offsets[1:])
        slots = int(offsets[-1])
        value_bytes = int(self.envelopes.kept_contents[rows].sum() + self.pool_sizes[extras].sum())
        value_at, out_values = np.empty(slots + 1, np.int32), np.empty(value_bytes, np.uint8)
        null = np.zeros(slots if len(self.null) else 0, bool)
        _fill_values(
            self.kept, first, counts, self.value_at, self.values, self.null,
            extras, self.pool_at, self.pool, value_at, out_values, null,
        )  # fmt: skip
        assert value_at[-1] == value_bytes
        name_bytes = int(self.envelopes.kept_names[rows].sum()) + len(block) * len(rows)
        name_at, out_names = np.empty(slots + 1, np.int32), np.empty(name_bytes, np.uint8)
        _fill_names(self.kept, first, counts, self.name_at, self.names, block, block_at, name_at, out_names)
        assert name_at[-1] == name_bytes
        return _Lists(offsets, name_at, out_names, value_at, out_values, null)


class _Lists(NamedTuple):
    """Lists of headers: where each row's begin, and names and values, each with where they begin."""

    offsets: Offsets
    name_at: Offsets
    names: Bytes
    value_at: Offsets
    values: Bytes
    null: Bools = _NO_NULLS


def _block(names: tuple[str, ...]) -> tuple[Bytes, Ints]:
    """Names one behind the other, and where each begins."""
    encoded = [name.encode() for name in names]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)])


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
def _place_alike(
    rows: Ints, each: int, value_at: Offsets, extras: Ints, pool_at: Offsets, to_value: Offsets
) -> np.int64:
    """Write where the values of the headers of every row begin, of rows that pass on `each` headers; return the end."""
    slot, value = np.uint64(0), np.int64(0)
    for i in range(len(rows)):
        first = rows[i] * each
        before = value - value_at[first]
        for j in range(first, first + each):
            to_value[slot] = before + value_at[j]
            slot += np.uint64(1)
        value = before + value_at[first + each]
        for j in range(extras.shape[1]):
            to_value[slot] = value
            slot += np.uint64(1)
            value += pool_at[extras[i, j] + 1] - pool_at[extras[i, j]]
    to_value[slot] = value
    return value


@njit
def _copy_alike(
    rows: Ints, each: int, value_at: Offsets, values: Bytes, extras: Ints, pool_at: Offsets, pool: Bytes,
    to_value: Offsets, out_values: Bytes,
) -> None:  # fmt: skip
    """Write those values: what a row passes on lies side by side."""
    slot = 0
    values_from, pool_from, values_to = values.ctypes.data, pool.ctypes.data, out_values.ctypes.data
    for i in range(len(rows)):
        first = value_at[rows[i] * each]
        copy_at(values_from + first, values_to + to_value[slot], value_at[(rows[i] + 1) * each] - first)
        slot += each
        for j in range(extras.shape[1]):
            first = pool_at[extras[i, j]]
            copy_at(pool_from + first, values_to + to_value[slot], pool_at[extras[i, j] + 1] - first)
            slot += 1


@njit
def _fill_names(
    kept: Offsets, first: Ints, counts: Ints, name_at: Offsets, names: Bytes, block: Bytes, block_at: Ints,
    to_name: Offsets, out_names: Bytes,
) -> None:  # fmt: skip
    """Write the names of the headers of every row: of what it keeps, runs that follow each other in the input in one
    go, then `block`, those of the extra headers one after the other, the same for all rows.
    """
    slot, name = 0, 0
    # addresses, taken once: to hand on an array costs more than to copy a short text
    names_from, block_from, names_to = names.ctypes.data, block.ctypes.data, out_names.ctypes.data
    for row in range(len(first)):
        j, end = first[row], first[row] + counts[row]
        while j < end:
            run = j + 1
            while run < end and kept[run] == kept[run - 1] + 1:
                run += 1
            a, b = kept[j], kept[run - 1] + 1
            for i in range(a, b):
                to_name[slot + i - a] = name + name_at[i] - name_at[a]
            copy_at(names_from + name_at[a], names_to + name, name_at[b] - name_at[a])
            name += name_at[b] - name_at[a]
            slot += b - a
            j = run
        copy_at(block_from, names_to + name, len(block))
        for j in range(len(block_at) - 1):
            to_name[slot] = name + block_at[j]
            slot += 1
        name += len(block)
    to_name[slot] = name


@njit
def _fill_values(
    kept: Offsets, first: Ints, counts: Ints, value_at: Offsets, values: Bytes, null: Bools,
    extras: Ints, pool_at: Offsets, pool: Bytes,
    to_value: Offsets, out_values: Bytes, out_null: Bools,
) -> None:  # fmt: skip
    """Write the values of the headers of every row, in the same way: of what it keeps, then of the extra headers."""
    slot, value = 0, 0
    values_from, pool_from, values_to = values.ctypes.data, pool.ctypes.data, out_values.ctypes.data
    for row in range(len(first)):
        j, end = first[row], first[row] + counts[row]
        while j < end:
            run = j + 1
            while run < end and kept[run] == kept[run - 1] + 1:
                run += 1
            a, b = kept[j], kept[run - 1] + 1
            for i in range(a, b):
                to_value[slot + i - a] = value + value_at[i] - value_at[a]
            if len(null):
                for i in range(a, b):
                    out_null[slot + i - a] = null[i]
            copy_at(values_from + value_at[a], values_to + value, value_at[b] - value_at[a])
            value += value_at[b] - value_at[a]
            slot += b - a
            j = run
        for j in range(extras.shape[1]):
            at = extras[row, j]
            to_value[slot] = value
            copy_at(pool_from + pool_at[at], values_to + value, pool_at[at + 1] - pool_at[at])
            value += pool_at[at + 1] - pool_at[at]
            slot += 1
    to_value[slot] = value


def row_bytes(batch: pa.RecordBatch) -> Ints:
    """What each row of an outgoing batch takes at most in Kafka, alone and not compressed.

    Cost: vectorised over the rows; headers lie side by side, so that only where they begin and end is looked at.
    """
    headers = batch.column("headers")
    ends = np.frombuffer(headers.buffers()[1], np.int32, len(headers) + 1, headers.offset * 4)
    sizes = RECORD_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * np.diff(ends).astype(np.int64)
    for name in ("key", "value"):
        sizes += np.diff(column(headers.values.field(name))[1][ends])
        sizes += np.diff(column(batch.column(name))[1])
    return sizes


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
        pa.array([output.partition for output in outputs], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def outputs_of(batch: pa.RecordBatch) -> Iterator[Output]:
    """The rows of an outgoing batch one by one, for whoever writes them by hand."""
    for row in batch.to_pylist():
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        yield Output(row["topic"], row["key"], row["value"], headers, row["partition"])
