"""Which events are ours, and which of them can be routed; the others become dead letters.

    claim      whose event is it: this deployment's if its broker is hosted here; what names no broker of the overlay
               is answered by the host of the first one
    examine    the events of one type: is the value a JSON object, does an advertisement hold, will it fit Kafka

Each says what it refuses; nothing is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from state.arrays import Bools, Ints
from state.config import Config
from state.fitting import dead_letter
from state.limits import HEADER_OVERHEAD_BYTES, OUTPUT_BYTES_MAX
from state.messages import Output, Record, quoted
from state.routing.envelope import Envelopes, Refusal
from state.routing.junction import Junction
from state.routing.snapshot import Snapshot
from state.space.decode import RankBatch, decode_arrow, joined
from state.space.encodings.schemas import Schemas
from state.space.event_type import EventType, format_named

OVERHEAD_BYTES = 2048
"""What Kafka adds to a record and a batch, and our small headers, generously."""
OUR_HEADERS_BYTES = 17 * 1024
"""Our large headers: the ids that matched."""


@dataclass(frozen=True)
class Claimed:
    """Events of a batch that this deployment answers for."""

    mine: Bools
    """By row."""
    by_type: Mapping[str, Ints]
    """Rows whose envelope is right."""
    refused: Mapping[int, Refusal]


def claim(envelopes: Envelopes, snapshot: Snapshot) -> Claimed:
    """Tell what is ours, by type; what names no valid broker is answered by the first broker's host."""
    brokers, types = snapshot.config.overlay.brokers, snapshot.config.types
    hosted = np.array([text in snapshot.hosts for text in envelopes.broker.texts] + [False])
    known = np.array([text in brokers for text in envelopes.broker.texts] + [False])
    here, valid = hosted[envelopes.broker.codes], known[envelopes.broker.codes]
    mine = here | ~valid if brokers[0] in snapshot.hosts else here
    refused = {row: why for row, why in envelopes.refused.items() if mine[row]}
    for row in np.flatnonzero(mine & ~valid).tolist():
        reason = f"{quoted(envelopes.broker[row] or '')} is not a broker of this overlay"
        refused.setdefault(row, Refusal("unknown-broker", reason))
    usable = mine.copy()
    usable[list(refused)] = False
    by_type = {}
    for code, name in enumerate([*envelopes.type.texts, ""]):
        rows = np.flatnonzero(usable & (envelopes.type.codes == (code if name else -1)))
        if name not in types:
            why = Refusal("unknown-type", f"{quoted(name)} is not a configured event type")
            refused |= dict.fromkeys(rows.tolist(), why)
        elif len(rows):
            by_type[name] = rows
    return Claimed(mine, by_type, refused)


@dataclass(frozen=True)
class Examined:
    """The events of one type, as ranks."""

    rows: Ints
    """Of the batch, by row here."""
    events: RankBatch
    entered: Mapping[tuple[str, str | None], Ints]
    """Rows here that are to be routed, by broker and the neighbour they came from (None for a publisher)."""
    refused: Mapping[int, Refusal]
    """By row of the batch."""
    awaited: Mapping[int, int]
    """Those of them that are refused only because their schema was not to be had now: its id."""


def examine(envelopes: Envelopes, snapshot: Snapshot, type_name: str, rows: Ints) -> Examined:
    """Read the events of one type and tell which can be routed."""
    event_type = snapshot.config.types[type_name]
    events = _read(envelopes, event_type, rows, snapshot.schemas)
    refused = _unreadable(envelopes, event_type, rows, events)
    if event_type.advertisements:
        refused |= _not_advertised(envelopes, snapshot.junctions[type_name], rows, events)
    refused |= _too_large(envelopes, rows)
    if snapshot.config.limits.any:
        refused |= _over_quota(envelopes, snapshot.config, type_name, rows)
    usable = np.isin(rows, list(refused), invert=True) if refused else events.valid
    awaited = {int(rows[i]): id for i, id in events.awaited.items() if refused[int(rows[i])].code == "unknown-schema"}
    return Examined(rows, events, _entered(envelopes, rows, usable), refused, awaited)


def _read(envelopes: Envelopes, event_type: EventType, rows: Ints, schemas: Schemas) -> RankBatch:
    """The events of these rows, each in its own format."""
    codes = envelopes.format.codes[rows]
    # names of no format of ours mean what the type says
    formats = [format_named(text.encode()) or event_type.format for text in envelopes.format.texts]
    formats.append(event_type.format)
    if not np.array([format != event_type.format for format in formats])[codes].any():
        return _read_alike(envelopes, event_type, rows, schemas)
    parts = []
    for format in sorted(set(formats)):
        members = np.flatnonzero(np.array([one == format for one in formats])[codes])
        if len(members):
            part = _read_alike(envelopes, event_type.written_in(format), rows[members], schemas)
            parts.append((members, part))
    return parts[0][1] if len(parts) == 1 else joined(event_type, len(rows), parts)


def _read_alike(envelopes: Envelopes, event_type: EventType, rows: Ints, schemas: Schemas) -> RankBatch:
    values = envelopes.values
    taken = None if len(rows) == len(envelopes) else pa.array(rows)
    beside = _beside(envelopes, event_type, taken)
    return decode_arrow(event_type, values if taken is None else values.take(taken), beside, schemas)


def _unreadable(envelopes: Envelopes, event_type: EventType, rows: Ints, events: RankBatch) -> dict[int, Refusal]:
    """What is no event of its type."""
    refused = {}
    for i in np.flatnonzero(~events.valid).tolist():
        row = int(rows[i])
        format = format_named((envelopes.format[row] or "").encode()) or event_type.format
        reason = "the value is not a JSON object" if format == "json" else f"the value is not {format} of its schema"
        why = Refusal("bad-event", reason)
        refused[row] = Refusal("unknown-schema", events.unknown[i]) if i in events.unknown else why
    return refused


def _beside(envelopes: Envelopes, event_type: EventType, rows: pa.Array | None) -> dict[str, pa.Array]:
    """By attribute that is in a header or in the key: what these rows (None: all) hold of it."""
    keys = envelopes.table.column("key")
    columns = {a.name: keys if a.header is None else envelopes.header(a.header) for a in event_type.beside}
    return columns if rows is None else {name: column.take(rows) for name, column in columns.items()}


def _entered(envelopes: Envelopes, rows: Ints, usable: Bools) -> dict[tuple[str, str | None], Ints]:
    """Rows of this type by where they stand and where they came from."""
    broker, origin = envelopes.broker, envelopes.origin
    place = broker.codes[rows] * (len(origin.texts) + 1) + origin.codes[rows] + 1
    place[~usable] = -1
    entered = {}
    for code in np.unique(place[usable]).tolist():
        members = np.flatnonzero(place == code)
        at = int(rows[members[0]])
        entered[broker[at] or "", origin[at]] = members
    return entered


def _not_advertised(
    envelopes: Envelopes, junctions: Mapping[str, Junction], rows: Ints, events: RankBatch
) -> dict[int, Refusal]:
    """Events that no advertisement of their publisher at their entry broker holds."""
    refused = {}
    for (broker, origin), members in _entered(envelopes, rows, events.valid).items():
        if origin is not None:
            continue  # it was checked where it entered
        sources, _ = envelopes.identity(rows[members])
        publishers = [source.decode("utf-8", "replace") for source in sources.to_pylist()]
        conforming = junctions[broker].conforming(events, members, publishers)
        for i in np.flatnonzero(~conforming).tolist():
            reason = f"no advertisement of {quoted(publishers[i])} at {broker} holds for this event"
            refused[int(rows[members[i]])] = Refusal("not-advertised", reason)
    return refused


def _too_large(envelopes: Envelopes, rows: Ints) -> dict[int, Refusal]:
    """Events that do not fit Kafka's limit with our headers added: key, value and headers count."""
    sizes = envelopes.kept_bytes[rows] + HEADER_OVERHEAD_BYTES * envelopes.kept_counts[rows]
    over = sizes + OVERHEAD_BYTES + OUR_HEADERS_BYTES > OUTPUT_BYTES_MAX
    return {
        row: Refusal("too-large", f"{size} bytes do not fit once routed")
        for row, size in zip(rows[over].tolist(), sizes[over].tolist(), strict=True)
    }


def _over_quota(envelopes: Envelopes, config: Config, type_name: str, rows: Ints) -> dict[int, Refusal]:
    """Events that are larger than their client's, or everybody's, may be; judged where they enter."""
    refused = {}
    for code in np.unique(envelopes.topic.codes[rows]).tolist():
        _, client = config.topics.client_of(envelopes.topic.texts[code]) or ("", "")
        limit = config.limits.of(client, type_name).event_bytes
        if limit is None:
            continue
        here = rows[(envelopes.topic.codes[rows] == code) & (envelopes.origin.codes[rows] < 0)]
        sizes = envelopes.kept_bytes[here]
        for row, size in zip(here[sizes > limit].tolist(), sizes[sizes > limit].tolist(), strict=True):
            refused[row] = Refusal("over-quota", f"{size} bytes are more than {limit}")
    return refused


def dead_letters(table: pa.RecordBatch, refused: Mapping[int, Refusal], config: Config) -> list[Output]:
    """One for each event that is refused: the original, plus where it stood and why."""
    return [letter_of(table, row, refused[row], config) for row in sorted(refused)]


def letter_of(table: pa.RecordBatch, row: int, why: Refusal, config: Config, with_headers: bool = True) -> Output:
    """The dead letter of one row."""
    return dead_letter(config, record_at(table, row, with_headers), why.code, why.reason)


def record_at(table: pa.RecordBatch, row: int, with_headers: bool = True) -> Record:
    """One row as a record; its time is not known."""
    names = ("topic", "partition", "offset", "key", "value")
    topic, partition, offset, key, value = (table.column(name)[row].as_py() for name in names)
    headers = table.column("headers")[row].as_py() if with_headers else None
    kept = tuple((header["key"] or "", header["value"]) for header in headers or ())
    return Record(topic, partition, offset, 0, key, value, kept)
