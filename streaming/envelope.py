"""Reading publications: CloudEvents headers in Arrow columns, with no Python loop over events.

    headers: list<struct<key, value>>     one row per event, flattened to two child columns

Binary mode is the ordinary case and is read column by column. Structured mode (`content-type:
application/cloudevents+json`) is read event by event; topics of `[[sources]]` gain the headers that they lack.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from state.config import Config

REQUIRED = ("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_broker")
STRUCTURED = b"application/cloudevents"
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


@dataclass
class Envelopes:
    """One Arrow batch of input records, with what routing needs of each."""

    table: pa.RecordBatch
    values: pa.Array
    """The JSON object of attributes: the value itself, or `data` of a structured event."""
    broker: list[str | None]
    type: list[str | None]
    source: list[bytes | None]
    id: list[bytes | None]
    origin: list[str | None]
    """The neighbour it came from, for records of link topics."""
    bad: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Code and reason by row, for what cannot be used."""
    kept: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Positions in the flattened headers of what is passed on (incoming hilcast_* are dropped)."""
    kept_counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    names: pa.Array = None
    contents: pa.Array = None
    added: dict[int, list[tuple[str, bytes]]] = field(default_factory=dict)
    """Headers that events of `[[sources]]` gain."""

    def __len__(self) -> int:
        return int(self.table.num_rows)


def read(table: pa.RecordBatch, config: Config) -> Envelopes:
    """Read one Arrow batch; whatever is wrong with a row is noted in `bad`, never raised."""
    n = table.num_rows
    headers = table.column("headers")
    offsets, names, contents = _flatten(headers, n)
    rows = np.repeat(np.arange(n), np.diff(offsets))
    found = {name: _last(names, rows, name, n) for name in REQUIRED}
    columns = {name: _taken(contents, found[name]) for name in REQUIRED}
    broker, type_name = _texts(columns["ce_broker"]), _texts(columns["ce_type"])
    envelopes = Envelopes(
        table,
        table.column("value"),
        broker,
        type_name,
        columns["ce_source"],
        columns["ce_id"],
        [None] * n,
        names=names,
        contents=contents,
    )
    kept = np.flatnonzero(~np.asarray(pc.starts_with(names, "hilcast_").to_numpy(zero_copy_only=False), bool))
    envelopes.kept = kept
    envelopes.kept_counts = np.bincount(rows[kept], minlength=n) if n else np.empty(0, np.int64)
    missing = {name: [value is None for value in columns[name]] for name in REQUIRED}
    _adapt_sources(envelopes, config, missing, columns)
    _read_structured(envelopes, names, contents, rows, missing)
    _read_origins(envelopes, config, missing)
    for name in REQUIRED:
        for row in np.flatnonzero(missing[name]):
            envelopes.bad.setdefault(int(row), ("bad-event", f"the CloudEvents attribute {name} is missing"))
    return envelopes


def _flatten(headers: pa.Array, n: int) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    if headers.null_count:
        headers = pc.fill_null(headers, pa.scalar([], headers.type))
    flat = headers.flatten()
    lengths = np.asarray(pc.list_value_length(headers).to_numpy(zero_copy_only=False), np.int64)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, pc.fill_null(flat.field("key"), ""), flat.field("value")


def _last(names: pa.Array, rows: NDArray[np.int64], name: str, n: int) -> NDArray[np.int64]:
    """Position of the last header of this name in each row, -1 where there is none."""
    at = np.full(n, -1, np.int64)
    hits = np.flatnonzero(np.asarray(pc.equal(names, name).to_numpy(zero_copy_only=False), bool))
    at[rows[hits]] = hits
    return at


def _taken(contents: pa.Array, positions: NDArray[np.int64]) -> list[bytes | None]:
    """Values at these positions as Python bytes; empty counts as missing."""
    indices = pa.array(positions, mask=positions < 0)
    values = contents.take(indices).to_pylist()
    return [value or None for value in values]


def _texts(values: list[bytes | None]) -> list[str | None]:
    cache: dict[bytes | None, str | None] = {None: None}
    for value in set(values):
        if value is not None:
            cache[value] = value.decode("utf-8", "replace")
    return [cache[value] for value in values]


def _adapt_sources(
    envelopes: Envelopes,
    config: Config,
    missing: dict[str, list[bool]],
    columns: dict[str, list[bytes | None]],
) -> None:
    """Fill in what plain JSON of an existing producer lacks."""
    sources = {source.topic: source for source in config.sources}
    if not sources:
        return
    topics = envelopes.table.column("topic").to_pylist()
    partitions = envelopes.table.column("partition").to_pylist()
    offsets = envelopes.table.column("offset").to_pylist()
    for row, topic in enumerate(topics):
        source = sources.get(topic)
        if source is None:
            continue
        defaults = {
            "ce_specversion": b"1.0",
            "ce_id": f"{partitions[row]}/{offsets[row]}".encode(),
            "ce_source": f"kafka:{topic}".encode(),
            "ce_type": source.type.encode(),
            "ce_broker": source.broker.encode(),
        }
        added = [(name, value) for name, value in defaults.items() if missing[name][row]]
        for name, value in added:
            missing[name][row] = False
            columns[name][row] = value
        envelopes.added[row] = added
        envelopes.broker[row] = (columns["ce_broker"][row] or b"").decode("utf-8", "replace")
        envelopes.type[row] = (columns["ce_type"][row] or b"").decode("utf-8", "replace")


def _read_structured(
    envelopes: Envelopes,
    names: pa.Array,
    contents: pa.Array,
    rows: NDArray[np.int64],
    missing: dict[str, list[bool]],
) -> None:
    """Read events whose attributes are in the value; the value itself is forwarded as it is."""
    hits = np.flatnonzero(
        np.asarray(pc.equal(pc.utf8_lower(names), "content-type").to_numpy(zero_copy_only=False), bool)
    )
    if not len(hits):
        return
    kinds = contents.take(pa.array(hits)).to_pylist()
    structured = [
        int(rows[h]) for h, kind in zip(hits, kinds, strict=True) if (kind or b"").lower().startswith(STRUCTURED)
    ]
    if not structured:
        return
    values = envelopes.values.to_pylist()
    for row in structured:
        values[row] = _read_one(envelopes, row, values[row], missing)
    envelopes.values = pa.array(values, pa.binary())


def _read_one(envelopes: Envelopes, row: int, value: bytes | None, missing: dict[str, list[bool]]) -> bytes:
    try:
        event = msgspec.json.decode(value or b"")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        event, reason = None, f"a structured event that is not JSON: {error}"
    else:
        reason = "a structured event must be a JSON object"
    if not isinstance(event, dict):
        envelopes.bad[row] = ("bad-event", reason)
        for name in REQUIRED:
            missing[name][row] = False
        return b"{}"
    found = {}
    for name in REQUIRED:
        given = event.get(name.removeprefix("ce_"))
        missing[name][row] = not (isinstance(given, str) and given)
        found[name] = given if isinstance(given, str) else ""
    envelopes.broker[row], envelopes.type[row] = found["ce_broker"], found["ce_type"]
    envelopes.source[row], envelopes.id[row] = found["ce_source"].encode(), found["ce_id"].encode()
    data = event.get("data")
    if not isinstance(data, dict):
        envelopes.bad[row] = ("bad-event", "`data` of a structured event must be a JSON object")
        return b"{}"
    return msgspec.json.encode(data)


def _read_origins(envelopes: Envelopes, config: Config, missing: dict[str, list[bool]]) -> None:
    """Records of link topics stand at the far end of the link, whatever broker they entered at."""
    hosts = set(config.deployment.hosts)
    links = {
        config.topics.link(a, b): (a, b)
        for b in config.deployment.hosts
        for a in config.overlay.neighbours(b)
        if a not in hosts
    }
    if not links:
        return
    for row, topic in enumerate(envelopes.table.column("topic").to_pylist()):
        if topic in links:
            envelopes.origin[row], envelopes.broker[row] = links[topic]
            missing["ce_broker"][row] = False
