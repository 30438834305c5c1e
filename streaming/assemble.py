"""Building the rows that go out: gathers over Arrow columns, a Python step only where text must be made.

An output row is (which input row, which topic, which extra headers). Keys and values are taken from the input columns;
the header list of a row is its input's kept headers followed by its extra ones, gathered from one pool of headers:

    pool:  [ input headers ........ | extra headers made here ........ ]
    row:     kept positions of its input + positions of its own extras
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from state.messages import Output
from streaming.envelope import HEADER, Envelopes

SCHEMA = pa.schema(
    [("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(HEADER))]
)


@dataclass
class Outgoing:
    """Rows to write, collected by kind and built at the end."""

    rows: list[NDArray[np.int64]] = field(default_factory=list)
    topics: list[NDArray[np.int64]] = field(default_factory=list)
    """Codes into `names`."""
    extras: list[NDArray[np.int64]] = field(default_factory=list)
    """Number of extra headers of each row; the extras themselves follow in the same order."""
    names: list[str] = field(default_factory=list)
    extra_names: list[str] = field(default_factory=list)
    extra_values: list[bytes | None] = field(default_factory=list)

    def code(self, topic: str) -> int:
        self.names.append(topic)
        return len(self.names) - 1

    def add(self, rows: NDArray[np.int64], topics: NDArray[np.int64], extras_each: int = 0) -> None:
        """Add rows; their extra headers, `extras_each` a row, must have been appended in the same order."""
        self.rows.append(rows)
        self.topics.append(topics)
        self.extras.append(np.full(len(rows), extras_each, np.int64))


def build(outgoing: Outgoing, envelopes: Envelopes) -> pa.RecordBatch | None:
    """Gather the rows, sorted by topic so that the producer fills one batch after the other."""
    if not outgoing.rows:
        return None
    rows, topics = np.concatenate(outgoing.rows), np.concatenate(outgoing.topics)
    extras = np.concatenate(outgoing.extras)
    headers = _headers(outgoing, envelopes, rows, extras)
    names = np.array(outgoing.names, dtype=object)
    rank = np.argsort(np.argsort(names, kind="stable"), kind="stable")
    order = pa.array(np.argsort(rank[topics], kind="stable"))
    table = envelopes.table
    gather = pa.array(rows)
    columns = [
        pa.array(names, pa.string()).take(pa.array(topics)),
        table.column("key").take(gather),
        table.column("value").take(gather),
        headers,
    ]
    return pa.RecordBatch.from_arrays([column.take(order) for column in columns], schema=SCHEMA)


def _headers(outgoing: Outgoing, envelopes: Envelopes, rows: NDArray[np.int64], extras: NDArray[np.int64]) -> pa.Array:
    """The header lists of the output rows, gathered from the pool of input headers and extras."""
    added_start, added_counts, pool_names, pool_values = _pool(outgoing, envelopes)
    kept_start = np.concatenate([[0], np.cumsum(envelopes.kept_counts)[:-1]]).astype(np.int64)
    extra_base = len(envelopes.names) + int(added_counts.sum())
    extra_start = extra_base + np.concatenate([[0], np.cumsum(extras)[:-1]]).astype(np.int64)
    pieces = [
        (kept_start[rows], envelopes.kept_counts[rows], envelopes.kept),
        (added_start[rows], added_counts[rows], None),
        (extra_start, extras, None),
    ]
    lengths = sum(counts for _, counts, _ in pieces)
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    positions = np.empty(int(offsets[-1]), np.int64)
    at = offsets[:-1].copy()
    for start, counts, through in pieces:
        target, source = _spread(at, counts), _spread(start, counts)
        positions[target] = source if through is None else through[source]
        at += counts
    gather = pa.array(positions)
    flat = pa.StructArray.from_arrays([pool_names.take(gather), pool_values.take(gather)], fields=list(HEADER))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat)


def _pool(outgoing: Outgoing, envelopes: Envelopes) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array, pa.Array]:
    """All headers there are: of the input, gained by sources, and made here."""
    n = len(envelopes)
    counts = np.zeros(n, np.int64)
    names: list[str] = []
    values: list[bytes | None] = []
    starts = np.zeros(n, np.int64)
    for row in sorted(envelopes.added):
        starts[row], counts[row] = len(envelopes.names) + len(names), len(envelopes.added[row])
        names += [name for name, _ in envelopes.added[row]]
        values += [value for _, value in envelopes.added[row]]
    pool_names = pa.concat_arrays([envelopes.names, pa.array(names + outgoing.extra_names, pa.string())])
    pool_values = pa.concat_arrays([envelopes.contents, pa.array(values + outgoing.extra_values, pa.binary())])
    return starts, counts, pool_names, pool_values


def _spread(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each i the numbers starts[i], starts[i]+1, ... counts[i] of them, one after the other.

    >>> _spread(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    total = int(counts.sum())
    ends = np.cumsum(counts)
    within = np.arange(total) - np.repeat(ends - counts, counts)
    return np.repeat(starts, counts) + within


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
