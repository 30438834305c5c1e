"""Reading publications: CloudEvents headers in Arrow columns, with no Python loop over ordinary events.

    headers: list<struct<key, value>>     one row per event, flattened to two child columns
    ce_broker, ce_type                    dictionary-encoded: a code per row, the few distinct texts beside

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

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Column:
    """A column of texts with few distinct values: a code per row, -1 where there is none."""

    def __init__(self, codes: Ints, texts: list[str]) -> None:
        self.codes = codes
        self.texts = texts

    @classmethod
    def of(cls, values: pa.Array) -> Column:
        encoded = values.dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        return cls(codes.copy(), [(text or b"").decode("utf-8", "replace") for text in encoded.dictionary.to_pylist()])

    @classmethod
    def empty(cls, n: int) -> Column:
        return cls(np.full(n, -1, np.int64), [])

    def put(self, rows: Ints | int, text: str) -> None:
        if text not in self.texts:
            self.texts.append(text)
        self.codes[rows] = self.texts.index(text)

    def __getitem__(self, row: int) -> str | None:
        code = self.codes[row]
        return None if code < 0 else self.texts[code]


@dataclass
class Envelopes:
    """One Arrow batch of input records, with what routing needs of each."""

    table: pa.RecordBatch
    values: pa.Array
    """The JSON object of attributes: the value itself, or `data` of a structured event."""
    broker: Column
    type: Column
    origin: Column
    """The neighbour it came from, for records of link topics."""
    source: pa.Array
    id: pa.Array
    names: pa.Array
    contents: pa.Array
    kept: Ints
    """Positions in the flattened headers of what is passed on (incoming hilcast_* are dropped)."""
    kept_counts: Ints
    missing: dict[str, Bools]
    bad: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Code and reason by row, for what cannot be used."""
    identities: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """Source and id by row, where they are not in the headers."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def identity(self, rows: Ints) -> tuple[pa.Array, pa.Array]:
        """Source and id of these rows."""
        gather = pa.array(rows)
        sources, ids = self.source.take(gather), self.id.take(gather)
        if not self.identities:
            return sources, ids
        given = zip(rows.tolist(), sources.to_pylist(), ids.to_pylist(), strict=True)
        pairs = [self.identities.get(row, (source, id)) for row, source, id in given]
        return pa.array([source for source, _ in pairs], pa.binary()), pa.array([id for _, id in pairs], pa.binary())

    def gain(self, gained: dict[int, list[tuple[str, bytes]]]) -> None:
        """Add headers to some rows, after those that they have."""
        rows = np.repeat(np.array(list(gained), np.int64), [len(headers) for headers in gained.values()])
        flat = [header for headers in gained.values() for header in headers]
        if not flat:
            return
        owners = np.concatenate([np.repeat(np.arange(len(self)), self.kept_counts), rows])
        kept = np.concatenate([self.kept, len(self.names) + np.arange(len(flat))])
        self.kept = kept[np.argsort(owners, kind="stable")]
        self.kept_counts = self.kept_counts + np.bincount(rows, minlength=len(self))
        self.names = pa.concat_arrays([self.names, pa.array([name for name, _ in flat], pa.string())])
        self.contents = pa.concat_arrays([self.contents, pa.array([value for _, value in flat], pa.binary())])


def read(table: pa.RecordBatch, config: Config) -> Envelopes:
    """Read one Arrow batch; whatever is wrong with a row is noted in `bad`, never raised."""
    n = table.num_rows
    lengths, names, contents = _flatten(table.column("headers"))
    rows = np.repeat(np.arange(n), lengths)
    found = {name: _taken(contents, _last(names, rows, name, n)) for name in REQUIRED}
    kept = np.flatnonzero(~_bools(pc.starts_with(names, "hilcast_")))
    envelopes = Envelopes(
        table,
        table.column("value"),
        Column.of(found["ce_broker"]),
        Column.of(found["ce_type"]),
        Column.empty(n),
        found["ce_source"],
        found["ce_id"],
        names,
        contents,
        kept,
        np.bincount(rows[kept], minlength=n).astype(np.int64),
        {name: _bools(pc.equal(pc.binary_length(found[name]).fill_null(0), 0)) for name in REQUIRED},
    )
    topics = Column.of(table.column("topic").cast(pa.binary()))
    _adapt_sources(envelopes, config, topics)
    _read_structured(envelopes, rows)
    _read_origins(envelopes, config, topics)
    for name in REQUIRED:
        for row in np.flatnonzero(envelopes.missing[name]).tolist():
            envelopes.bad.setdefault(row, ("bad-event", f"the CloudEvents attribute {name} is missing"))
    return envelopes


def _flatten(headers: pa.Array) -> tuple[Ints, pa.Array, pa.Array]:
    lengths = np.asarray(pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    flat = headers.flatten()  # null lists have no items
    return lengths, pc.fill_null(flat.field("key"), ""), flat.field("value")


def _bools(array: pa.Array) -> Bools:
    return np.array(array.to_numpy(zero_copy_only=False), bool)


def _last(names: pa.Array, rows: Ints, name: str, n: int) -> Ints:
    """Position of the last header of this name in each row, -1 where there is none."""
    at = np.full(n, -1, np.int64)
    hits = np.flatnonzero(_bools(pc.equal(names, name)))
    at[rows[hits]] = hits
    return at


def _taken(contents: pa.Array, positions: Ints) -> pa.Array:
    """Values at these positions; null where there is none."""
    return contents.take(pa.array(positions, mask=positions < 0))


def _adapt_sources(envelopes: Envelopes, config: Config, topics: Column) -> None:
    """Fill in what plain JSON of an existing producer lacks."""
    for source in config.sources:
        if source.topic not in topics.texts:
            continue
        rows = np.flatnonzero(topics.codes == topics.texts.index(source.topic))
        missing = {name: envelopes.missing[name].copy() for name in REQUIRED}
        envelopes.broker.put(rows[missing["ce_broker"][rows]], source.broker)
        envelopes.type.put(rows[missing["ce_type"][rows]], source.type)
        gather = pa.array(rows)
        partitions = envelopes.table.column("partition").take(gather).to_pylist()
        offsets = envelopes.table.column("offset").take(gather).to_pylist()
        identities = (given.to_pylist() for given in envelopes.identity(rows))
        gained = {}
        for row, partition, offset, source_given, id_given in zip(
            rows.tolist(), partitions, offsets, *identities, strict=True
        ):
            defaults = {
                "ce_specversion": b"1.0",
                "ce_id": f"{partition}/{offset}".encode(),
                "ce_source": f"kafka:{source.topic}".encode(),
                "ce_type": source.type.encode(),
                "ce_broker": source.broker.encode(),
            }
            gained[row] = [(name, value) for name, value in defaults.items() if missing[name][row]]
            envelopes.identities[row] = (source_given or defaults["ce_source"], id_given or defaults["ce_id"])
        envelopes.gain(gained)
        for name in REQUIRED:
            envelopes.missing[name][rows] = False


def _read_structured(envelopes: Envelopes, rows: Ints) -> None:
    """Read events whose attributes are in the value; the value itself is forwarded as it is."""
    hits = np.flatnonzero(_bools(pc.equal(pc.utf8_lower(envelopes.names), "content-type")))
    if not len(hits):
        return
    kinds = envelopes.contents.take(pa.array(hits)).to_pylist()
    structured = [
        int(rows[hit]) for hit, kind in zip(hits, kinds, strict=True) if (kind or b"").lower().startswith(STRUCTURED)
    ]
    if not structured:
        return
    values = envelopes.values.to_pylist()
    for row in structured:
        values[row] = _read_one(envelopes, row, values[row])
    envelopes.values = pa.array(values, pa.binary())


def _read_one(envelopes: Envelopes, row: int, value: bytes | None) -> bytes:
    try:
        event = msgspec.json.decode(value or b"")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        event, reason = None, f"a structured event that is not JSON: {error}"
    else:
        reason = "a structured event must be a JSON object"
    if not isinstance(event, dict):
        envelopes.bad[row] = ("bad-event", reason)
        for name in REQUIRED:
            envelopes.missing[name][row] = False
        return b"{}"
    found = {}
    for name in REQUIRED:
        given = event.get(name.removeprefix("ce_"))
        envelopes.missing[name][row] = not (isinstance(given, str) and given)
        found[name] = given if isinstance(given, str) else ""
    envelopes.broker.put(row, found["ce_broker"])
    envelopes.type.put(row, found["ce_type"])
    envelopes.identities[row] = (found["ce_source"].encode(), found["ce_id"].encode())
    data = event.get("data")
    if not isinstance(data, dict):
        envelopes.bad[row] = ("bad-event", "`data` of a structured event must be a JSON object")
        return b"{}"
    return msgspec.json.encode(data)


def _read_origins(envelopes: Envelopes, config: Config, topics: Column) -> None:
    """Records of link topics stand at the far end of the link, whatever broker they entered at."""
    hosts = config.deployment.hosts
    for broker in hosts:
        for neighbour in config.overlay.neighbours(broker):
            topic = config.topics.link(neighbour, broker)
            if neighbour not in hosts and topic in topics.texts:
                rows = np.flatnonzero(topics.codes == topics.texts.index(topic))
                envelopes.origin.put(rows, neighbour)
                envelopes.broker.put(rows, broker)
                envelopes.missing["ce_broker"][rows] = False
