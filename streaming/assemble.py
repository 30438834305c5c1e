"""Building the rows that go out: gathers over Arrow columns, a Python step only where text must be made.

An output row is (which input row, which topic, which extra headers). Keys and values are taken from the input columns;
the header list of a row is its input's kept headers followed by its extra ones, gathered from one pool of headers:

    pool:  [ input headers ........ | gained by sources ... | extra headers made here ........ ]
    row:     kept positions of its input + positions of what it gained + positions of its own extras
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
Ints = NDArray[np.int64]


@dataclass
class Outgoing:
    """Rows to write, collected by kind and built at the end."""

    rows: list[Ints] = field(default_factory=list)
    topics: list[Ints] = field(default_factory=list)
    """Codes into `names`."""
    extras: list[Ints] = field(default_factory=list)
    """(rows, k) positions of each row's extra headers in `extra_names` and `extra_values`."""
    names: list[str] = field(default_factory=list)
    extra_names: list[pa.Array] = field(default_factory=list)
    extra_values: list[pa.Array] = field(default_factory=list)
    pooled: int = 0

    def code(self, topic: str) -> int:
        self.names.append(topic)
        return len(self.names) - 1

    def pool(self, name: str, values: list[bytes]) -> int:
        """Add extra headers of one name to the pool; return the position of the first."""
        first = self.pooled
        self.extra_names.append(pa.repeat(pa.scalar(name, pa.string()), len(values)))
        self.extra_values.append(pa.array(values, pa.binary()))
        self.pooled += len(values)
        return first

    def add(self, rows: Ints, topics: Ints, extras: Ints | None = None) -> None:
        self.rows.append(rows)
        self.topics.append(topics)
        self.extras.append(np.empty((len(rows), 0), np.int64) if extras is None else extras)


def build(outgoing: Outgoing, envelopes: Envelopes) -> pa.RecordBatch | None:
    """Gather the rows, sorted by topic so that the producer fills one batch after the other, then in input order."""
    if not outgoing.rows:
        return None
    rows, topics = np.concatenate(outgoing.rows), np.concatenate(outgoing.topics)
    names = np.array(outgoing.names, dtype=object)
    rank = np.unique(names.astype(str), return_inverse=True)[1]
    order = np.lexsort((rows, rank[topics]))
    rows, topics = rows[order], topics[order]
    table = envelopes.table
    gather = pa.array(rows)
    columns = [
        pa.array(names, pa.string()).take(pa.array(topics)),
        table.column("key").take(gather),
        table.column("value").take(gather),
        _headers(outgoing, envelopes, rows, order),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _headers(outgoing: Outgoing, envelopes: Envelopes, rows: Ints, order: Ints) -> pa.Array:
    """The header lists of the output rows, gathered from the pool of input headers and extras."""
    added_start, added_counts, pool_names, pool_values, extra_base = _pool(outgoing, envelopes)
    kept_start = np.concatenate([[0], np.cumsum(envelopes.kept_counts)[:-1]]).astype(np.int64)
    extra_counts = np.concatenate([np.full(len(e), e.shape[1], np.int64) for e in outgoing.extras])
    extra_start = np.cumsum(extra_counts) - extra_counts
    extras = extra_base + np.concatenate([e.reshape(-1) for e in outgoing.extras])
    pieces = [
        (kept_start[rows], envelopes.kept_counts[rows], envelopes.kept),
        (added_start[rows], added_counts[rows], None),
        (extra_start[order], extra_counts[order], extras),
    ]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(sum(counts for _, counts, _ in pieces), out=offsets[1:])
    positions = np.empty(int(offsets[-1]), np.int64)
    at = offsets[:-1].copy()
    for start, counts, through in pieces:
        if counts.any():
            source = _spread(start, counts)
            positions[_spread(at, counts)] = source if through is None else through[source]
            at += counts
    gather = pa.array(positions)
    flat = pa.StructArray.from_arrays([pool_names.take(gather), pool_values.take(gather)], fields=list(HEADER))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat)


def _pool(outgoing: Outgoing, envelopes: Envelopes) -> tuple[Ints, Ints, pa.Array, pa.Array, int]:
    """All headers there are: of the input, gained by sources, and made here; where the last ones begin."""
    n = len(envelopes)
    starts, counts = np.zeros(n, np.int64), np.zeros(n, np.int64)
    names: list[str] = []
    values: list[bytes] = []
    for row in sorted(envelopes.added):
        starts[row], counts[row] = len(envelopes.names) + len(names), len(envelopes.added[row])
        names += [name for name, _ in envelopes.added[row]]
        values += [value for _, value in envelopes.added[row]]
    pool_names = pa.concat_arrays([envelopes.names, pa.array(names, pa.string()), *outgoing.extra_names])
    pool_values = pa.concat_arrays([envelopes.contents, pa.array(values, pa.binary()), *outgoing.extra_values])
    return starts, counts, pool_names, pool_values, len(envelopes.names) + len(names)


def _spread(starts: Ints, counts: Ints) -> Ints:
    """For each i the numbers starts[i], starts[i]+1, ... counts[i] of them, one after the other.

    >>> _spread(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.arange(int(counts.sum())) + np.repeat(starts - ends + counts, counts)


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
