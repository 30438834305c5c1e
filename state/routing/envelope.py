"""Reading publications: CloudEvents headers in Arrow columns, with no Python loop over ordinary events.

    headers: list<struct<key, value>>     one row per event, flattened to two child columns
    ce_broker, ce_type                    dictionary-encoded: a code per row, the few distinct texts beside

Binary mode is the ordinary case and is read column by column. Structured mode (`content-type:
application/cloudevents+json`) is read event by event; topics of `[[sources]]` gain the headers that they lack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.arrays import Bools, Bytes, Ints, Offsets
from state.columns import column
from state.config import Config, Source
from state.json_text import read_json
from state.kernels import njit
from state.lanes import first_lane
from state.messages import quoted
from state.names import ENVELOPE_HEADERS, FORMAT_HEADER, NAME, OUR_HEADERS, UNREADABLE
from state.space.event_type import format_named, format_of_media
from state.topics import asides

CONTENT_TYPE = "content-type"
STRUCTURED = "application/cloudevents"
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
INPUT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(HEADER)),
    ]
)
"""The columns of a batch, as the route query reads them from Kafka."""


def input_topics(config: Config) -> list[str]:
    """What routing reads: publications, topics of existing producers, links from other deployments, what waited.

    Not clients' own publications: they come and go, and are found by `own_publications`.
    """
    named = {source.topic for source in config.sources} | set(_links_in(config))
    named |= set(asides(config)[1:])
    return sorted(named if config.security.own else named | {config.topics.publications})


def own_publications(config: Config) -> str | None:
    """The regular expression of clients' own topics of publications; None where they have none."""
    if not config.security.own:
        return None
    return f"{re.escape(config.topics.publications)}[.]{NAME.pattern}"


def _links_in(config: Config) -> dict[str, tuple[str, str]]:
    """By link topic from another deployment: the neighbour it comes from, and our broker it leads to."""
    hosts, neighbours = config.deployment.hosts, config.overlay.neighbours
    return {config.topics.link(a, b): (a, b) for b in hosts for a in neighbours(b) if a not in hosts}


class Refusal(NamedTuple):
    """Why an event is not routed: what its dead letter says."""

    code: str
    reason: str


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

    def put_each(self, rows: Ints, texts: Sequence[bytes | None]) -> None:
        """Give each row its own text. Cost: O(rows), however many texts there are."""
        codes = {text: code for code, text in reversed(list(enumerate(self.texts)))}
        for row, given in zip(rows.tolist(), texts, strict=True):
            text = (given or b"").decode("utf-8", "replace")
            if text not in codes:
                codes[text] = len(self.texts)
                self.texts.append(text)
            self.codes[row] = codes[text]

    def where(self, text: str) -> Ints:
        """The rows that have this text."""
        return np.flatnonzero(self.codes == self.texts.index(text)) if text in self.texts else np.empty(0, np.int64)

    def __getitem__(self, row: int) -> str | None:
        code = self.codes[row]
        return None if code < 0 else self.texts[code]


@dataclass
class Envelopes:
    """One Arrow batch of input records, with what routing needs of each."""

    table: pa.RecordBatch
    topic: Column
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
    ends: Ints
    """Where the headers of each row end among the flattened ones, as they came in."""
    format: Column
    """What a value is written in, where that is not what its type says."""
    alike: int
    """How many headers each row has, where all have them of the same names and pass all of them on; else -1."""
    refused: dict[int, Refusal] = field(default_factory=dict)
    """By row: what cannot be read."""
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

    def header(self, name: str) -> pa.Array:
        """What the records' own headers of this name hold, of several the last; null where there is none."""
        last = np.full(len(self), -1, np.int64)
        _find_last(*column(self.names), self.ends, np.frombuffer(name.encode(), np.uint8), last)
        return _taken(self.contents, last)

    @cached_property
    def kept_names(self) -> Ints:
        """Bytes of the names of the headers that each row keeps; asked once rows gain no more."""
        return self._kept(self.names)

    @cached_property
    def kept_contents(self) -> Ints:
        """Bytes of their values."""
        return self._kept(self.contents)

    @cached_property
    def kept_bytes(self) -> Ints:
        """Bytes of key, value and kept headers of each row."""
        sizes = [np.diff(column(self.table.column(name))[1]) for name in ("key", "value")]
        return np.asarray(self.kept_names + self.kept_contents + sizes[0] + sizes[1])

    @cached_property
    def lane(self) -> Ints:
        """By row: the lane in which its copies go on, before it is known how many there are."""
        partitions = np.asarray(self.table.column("partition").to_numpy(zero_copy_only=False), np.int64)
        first = np.array([first_lane(topic) for topic in self.topic.texts], np.int64)
        return np.asarray(first[self.topic.codes] + partitions)

    def _kept(self, texts: pa.Array) -> Ints:
        sizes = np.empty(len(self), np.int64)
        _sum_kept(self.kept, self.kept_counts, column(texts)[1], sizes)
        return sizes

    def gain(self, gained: dict[int, list[tuple[str, bytes]]]) -> None:
        """Add headers to some rows, after those that they have."""
        rows = np.repeat(np.array(list(gained), np.int64), [len(headers) for headers in gained.values()])
        flat = [header for headers in gained.values() for header in headers]
        if not flat:
            return
        self.alike = -1
        owners = np.concatenate([np.repeat(np.arange(len(self)), self.kept_counts), rows])
        kept = np.concatenate([self.kept, len(self.names) + np.arange(len(flat))])
        self.kept = kept[np.argsort(owners, kind="stable")]
        self.kept_counts = self.kept_counts + np.bincount(rows, minlength=len(self))
        self.names = pa.concat_arrays([self.names, pa.array([name for name, _ in flat], pa.string())])
        self.contents = pa.concat_arrays([self.contents, pa.array([value for _, value in flat], pa.binary())])


def read(table: pa.RecordBatch, config: Config) -> Envelopes:
    """Read one Arrow batch; whatever is wrong with a row is noted in `refused`, never raised."""
    n = table.num_rows
    lengths, names, contents = _flatten(table.column("headers"))
    ends = np.cumsum(lengths)
    alike = _alike_named(lengths, names)
    last, formats, kinds, dropped = _find(names, ends, alike)
    sizes = np.append(np.diff(column(contents)[1]), 0)
    kept = np.flatnonzero(~dropped)
    kept_counts = lengths.copy()
    if len(kept) < len(names):
        kept_counts = np.diff(np.searchsorted(kept, np.append(0, ends)))
    found = {name: _taken(contents, last[:, i]) for i, name in enumerate(ENVELOPE_HEADERS) if name != "ce_specversion"}
    envelopes = Envelopes(
        table,
        Column.of(table.column("topic").cast(pa.binary())),
        table.column("value"),
        Column.of(found["ce_broker"]),
        Column.of(found["ce_type"]),
        Column.empty(n),
        found["ce_source"],
        found["ce_id"],
        names,
        contents,
        kept,
        kept_counts,
        {name: sizes[last[:, i]] == 0 for i, name in enumerate(ENVELOPE_HEADERS)},
        ends,
        Column.of(_taken(contents, formats)) if (formats >= 0).any() else Column.empty(n),
        alike if len(kept) == len(names) else -1,
    )
    rows = np.flatnonzero(kinds >= 0)
    content_types = Column.of(contents.take(pa.array(kinds[rows])))
    _read_content_types(envelopes, rows, content_types)
    _adapt_sources(envelopes, config)
    structured = _read_structured(envelopes, rows, content_types)
    _read_origins(envelopes, config)
    if config.security.own:
        _bind(envelopes, structured, config)
    for row in _mangled(names, ends):
        envelopes.refused[row] = Refusal("bad-event", "the name of a header is no UTF-8")
    for name in ENVELOPE_HEADERS:
        for row in np.flatnonzero(envelopes.missing[name]).tolist():
            why = Refusal("bad-event", f"the CloudEvents attribute {name} is missing")
            envelopes.refused.setdefault(row, why)
    return envelopes


def _flatten(headers: pa.Array) -> tuple[Ints, pa.Array, pa.Array]:
    lengths = np.asarray(pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    flat = headers.flatten()  # null lists have no items
    return lengths, pc.fill_null(flat.field("key"), ""), flat.field("value")


def _mangled(names: pa.Array, ends: Ints) -> list[int]:
    """Rows with a header whose name could not be read: it would go on under another one."""
    if not (column(names)[0] == UNREADABLE.encode()[0]).any():
        return []
    found = np.flatnonzero(pc.match_substring(names, UNREADABLE).to_numpy(zero_copy_only=False))
    return sorted(set(np.searchsorted(ends, found, side="right").tolist()))


def _alike_named(lengths: Ints, names: pa.Array) -> int:
    """How many headers each row has, where all rows have headers of the same names; else -1.

    Cost: numpy's comparison of the names with themselves, one row further on.
    """
    if not len(lengths) or (lengths != lengths[0]).any():
        return -1
    each = int(lengths[0])
    if not each:
        return 0
    data, at = column(names)
    size, end = at[each] - at[0], at[-1]
    if (at[each:] - at[:-each] != size).any() or (data[at[0] + size : end] != data[at[0] : end - size]).any():
        return -1
    return each


def _find(names: pa.Array, ends: Ints, alike: int) -> tuple[Ints, Ints, Ints, Bools]:
    """Where the required headers, the format and the content type of each row are, -1 for none; which are dropped.

    Of equal names the last counts. Rows are runs of headers that end at `ends`; where they are `alike` one is read.
    """
    wanted = [name.encode() for name in (*ENVELOPE_HEADERS, FORMAT_HEADER, CONTENT_TYPE)]
    last = np.full((len(ends), len(wanted)), -1, np.int64)
    dropped = np.zeros(len(names), bool)
    block, block_at = column(pa.array([*wanted, OUR_HEADERS.encode()], pa.binary()))
    if alike > 0:
        _find_names(*column(names), ends[:1], block, block_at, last[:1], dropped)
        last[1:] = np.where(last[0] < 0, -1, last[0] + ends[:-1, None])
        dropped = np.tile(dropped[:alike], len(ends))
    else:
        _find_names(*column(names), ends, block, block_at, last, dropped)
    return last[:, :-2], last[:, -2], last[:, -1], dropped


@njit
def _sum_kept(kept: Ints, counts: Ints, text_at: Offsets, sizes: Ints) -> None:
    """Bytes of the texts that each row keeps."""
    at = 0
    for row in range(len(counts)):
        size = np.int64(0)
        for j in range(at, at + counts[row]):
            size += text_at[kept[j] + 1] - text_at[kept[j]]
        sizes[row] = size
        at += counts[row]


@njit
def _find_names(
    names: Bytes, name_at: Offsets, ends: Ints, block: Bytes, block_at: Offsets, last: Ints, dropped: Bools
) -> None:
    """`block`: the names that are asked for, the last of them in capital or small letters, then what is dropped."""
    wanted, header = last.shape[1], 0
    for row in range(len(ends)):
        while header < ends[row]:
            size = name_at[header + 1] - name_at[header]
            for k in range(wanted):
                if size == block_at[k + 1] - block_at[k] and _equal(
                    names, name_at[header], block, int(block_at[k]), size, k == wanted - 1
                ):
                    last[row, k] = header
            prefix = block_at[wanted + 1] - block_at[wanted]
            dropped[header] = size >= prefix and _equal(
                names, name_at[header], block, int(block_at[wanted]), prefix, False
            )
            header += 1


@njit
def _find_last(names: Bytes, name_at: Offsets, ends: Ints, wanted: Bytes, last: Ints) -> None:
    """Where the last header of each row is that has the wanted name; what is not found is left as it is."""
    header = 0
    for row in range(len(ends)):
        while header < ends[row]:
            size = name_at[header + 1] - name_at[header]
            if size == len(wanted) and _equal(names, name_at[header], wanted, 0, size, False):
                last[row] = header
            header += 1


@njit
def _equal(names: Bytes, at: int, block: Bytes, of: int, size: int, any_case: bool) -> bool:
    """Whether `size` bytes are equal; with `any_case` capital letters stand for small ones."""
    for i in range(size):
        letter = names[at + i]
        if any_case and 65 <= letter <= 90:
            letter += 32
        if letter != block[of + i]:
            return False
    return True


def _taken(contents: pa.Array, positions: Ints) -> pa.Array:
    """Values at these positions; null where there is none."""
    return contents.take(pa.array(positions, mask=positions < 0))


def _adapt_sources(envelopes: Envelopes, config: Config) -> None:
    """Fill in what plain JSON of an existing producer lacks."""
    for source in config.sources:
        rows = envelopes.topic.where(source.topic)
        if not len(rows):
            continue
        missing = {name: envelopes.missing[name].copy() for name in ENVELOPE_HEADERS}
        gather = pa.array(rows)
        brokers = _brokers_of(envelopes, source, gather)
        named = np.array([bool(broker) for broker in brokers]) & missing["ce_broker"][rows]
        envelopes.broker.put_each(rows[named], [broker for broker, here in zip(brokers, named, strict=True) if here])
        envelopes.type.put(rows[missing["ce_type"][rows]], source.type)
        if source.format is not None:
            envelopes.format.put(rows, source.format)
        partitions = envelopes.table.column("partition").take(gather).to_pylist()
        offsets = envelopes.table.column("offset").take(gather).to_pylist()
        identities = (given.to_pylist() for given in envelopes.identity(rows))
        gained = {}
        # whoever reads what was routed, another deployment or a client, does not know the source
        formats = [] if source.format is None else [(FORMAT_HEADER, source.format.encode())]
        for row, broker, partition, offset, source_given, id_given in zip(
            rows.tolist(), brokers, partitions, offsets, *identities, strict=True
        ):
            defaults = {
                "ce_specversion": b"1.0",
                "ce_id": f"{partition}/{offset}".encode(),
                "ce_source": f"kafka:{source.topic}".encode(),
                "ce_type": source.type.encode(),
                "ce_broker": broker,
            }
            gained[row] = [(name, value) for name, value in defaults.items() if value and missing[name][row]]
            gained[row] += formats
            envelopes.identities[row] = (source_given or defaults["ce_source"], id_given or defaults["ce_id"])
        envelopes.gain(gained)
        for name in ENVELOPE_HEADERS:
            envelopes.missing[name][rows] = False
        envelopes.missing["ce_broker"][rows] = missing["ce_broker"][rows] & ~named


def _brokers_of(envelopes: Envelopes, source: Source, rows: pa.Array) -> list[bytes | None]:
    """Where the records of a source enter that do not say so themselves: fixed, or what a header of theirs says."""
    if source.broker_header is None:
        assert source.broker is not None, "the configuration lets no such source pass"
        return [source.broker.encode()] * len(rows)
    return cast(list[bytes | None], envelopes.header(source.broker_header).take(rows).to_pylist())


def _read_content_types(envelopes: Envelopes, rows: Ints, content_types: Column) -> None:
    """`datacontenttype` says what a value is written in, where no header of ours does."""
    ours = np.array([format_named(text.encode()) is not None for text in envelopes.format.texts] + [False])
    silent = ~ours[envelopes.format.codes[rows]]
    for code, text in enumerate(content_types.texts):
        format = format_of_media(text)
        if format is not None:
            envelopes.format.put(rows[silent & (content_types.codes == code)], format)


def _read_structured(envelopes: Envelopes, rows: Ints, content_types: Column) -> Ints:
    """Read events whose attributes are in the value, which is forwarded as it is; return the rows of these."""
    is_structured = np.array([text.lower().startswith(STRUCTURED) for text in content_types.texts] + [False])
    structured = rows[is_structured[content_types.codes]]
    if not len(structured):
        return structured
    values = envelopes.values.to_pylist()
    envelopes.format.put(structured, "json")
    for row in structured.tolist():
        values[row] = _read_one(envelopes, row, values[row])
    envelopes.values = pa.array(values, pa.binary())
    return structured


class _Data(msgspec.Struct):
    """The attributes of a structured event, byte for byte."""

    data: msgspec.Raw


def _read_one(envelopes: Envelopes, row: int, value: bytes | None) -> bytes:
    try:
        event = read_json(value or b"")
    except ValueError as error:
        event, reason = None, f"a structured event that is not JSON: {error}"
    else:
        reason = "a structured event must be a JSON object"
    if not isinstance(event, dict):
        envelopes.refused[row] = Refusal("bad-event", reason)
        for name in ENVELOPE_HEADERS:
            envelopes.missing[name][row] = False
        return b"{}"
    found = {name: _text(event.get(name.removeprefix("ce_"))) for name in ENVELOPE_HEADERS}
    for name in ENVELOPE_HEADERS:
        envelopes.missing[name][row] = not found[name]
    envelopes.broker.put(row, found["ce_broker"])
    envelopes.type.put(row, found["ce_type"])
    envelopes.identities[row] = (found["ce_source"].encode(), found["ce_id"].encode())
    if not isinstance(event.get("data"), dict):
        envelopes.refused[row] = Refusal("bad-event", "`data` of a structured event must be a JSON object")
        return b"{}"
    try:
        return bytes(msgspec.json.decode(value or b"", type=_Data).data)
    except msgspec.DecodeError:  # half of a surrogate pair, which msgspec does not pass over
        return json.dumps(event["data"]).encode()


def _text(given: object) -> str:
    """A text of an event's own attributes; half of a surrogate pair is no text."""
    return given if isinstance(given, str) and not any("\ud800" <= c <= "\udfff" for c in given) else ""


def _bind(envelopes: Envelopes, structured: Ints, config: Config) -> None:
    """Let the records of a client's own topic be of the client's own sources only.

    The last header counts, and the last member of a structured event; but whoever reads a delivery may go by another,
    since value and headers are passed on as they are. So all that name a source must name one of the client's.
    Cost: one look at each distinct source of each client's topic; one at each structured event that may name two.
    """
    called = pc.equal(pc.ascii_lower(envelopes.names), "ce_source").to_numpy(zero_copy_only=False)
    headers = np.flatnonzero(called)
    owners = np.searchsorted(envelopes.ends, headers, side="right")
    for topic in list(envelopes.topic.texts):
        kind, client = config.topics.client_of(topic) or ("", "")
        if kind != "publications":
            continue
        rows = envelopes.topic.where(topic)
        own = np.isin(owners, rows)
        _refuse_foreign(envelopes, owners[own], envelopes.contents.take(pa.array(headers[own])), client, config)
        _name_source(envelopes, rows[envelopes.missing["ce_source"][rows]], config.security.source_of(client))
        named = rows[~envelopes.missing["ce_source"][rows]]
        _refuse_foreign(envelopes, named, envelopes.identity(named)[0], client, config)
        for row in np.intersect1d(rows, structured).tolist():
            texts = _sources_said(envelopes.table.column("value")[row].as_py() or b"")
            _refuse_foreign(envelopes, np.full(len(texts), row), pa.array(texts, pa.binary()), client, config)


def _refuse_foreign(envelopes: Envelopes, rows: Ints, sources: pa.Array, client: str, config: Config) -> None:
    """Refuse the rows whose source is not the client's; an empty one names nobody."""
    source = Column.of(sources)
    foreign = [bool(text) and not config.security.may_publish(client, text) for text in source.texts]
    for i in np.flatnonzero(np.array([*foreign, False])[source.codes]).tolist():
        reason = f"the source {quoted(source[i] or '')} is not of {client}, whose topic this is"
        envelopes.refused[int(rows[i])] = Refusal("not-yours", reason)


def _sources_said(value: bytes) -> list[bytes]:
    """What a structured event says of its source, where it says it more than once.

    >>> _sources_said(b'{"source": "a", "source": "b", "data": {"source": "c"}}')
    [b'a', b'b']
    """
    if value.count(b'"source"') < 2 and b"\\u" not in value:
        return []
    try:
        pairs = json.loads(value.decode("utf-8", "replace"), object_pairs_hook=tuple, parse_int=float)
    except (ValueError, RecursionError):  # it was refused already
        return []
    if not isinstance(pairs, tuple):
        return []
    return [text.encode("utf-8", "replace") for name, text in pairs if name == "source" and isinstance(text, str)]


def _name_source(envelopes: Envelopes, rows: Ints, source: str | None) -> None:
    """Let events that name no source be of this one; what is structured stays as it is."""
    plain = [row for row in rows.tolist() if row not in envelopes.identities]
    if source is None or not plain:
        return
    _, ids = envelopes.identity(np.array(plain, np.int64))
    for row, id in zip(plain, ids.to_pylist(), strict=True):
        envelopes.identities[row] = (source.encode(), id or b"")
        envelopes.missing["ce_source"][row] = False
    envelopes.gain({row: [("ce_source", source.encode())] for row in plain})


def _read_origins(envelopes: Envelopes, config: Config) -> None:
    """Records of link topics stand at the far end of the link, whatever broker they entered at."""
    for topic, (neighbour, broker) in _links_in(config).items():
        rows = envelopes.topic.where(topic)
        if len(rows):
            envelopes.origin.put(rows, neighbour)
            envelopes.broker.put(rows, broker)
            envelopes.missing["ce_broker"][rows] = False
