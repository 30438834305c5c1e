"""Events that wait for their schema: set aside, so that nothing waits with them, and routed once it can be had.

    input ── route ──┬── schema had ─────> links, deliveries
                     └── not to be had ──> waiting ── WaitingRoom (in the driver) ──> waited ── route ──> ...
                                                          ├─ had: routed as if it came now
                                                          └─ in vain: dead letter `unknown-schema`

Both topics have the event as it came and, behind its headers, where that was (`state/set_aside.py`). Whoever reads it
again reads the original (`returned`): dead letters, ids and senders are those of the place that it was sent to. What
waited comes after what overtook it; those that waited for one schema keep the order of their input partition.

The room is pure: records, schemas that were had and Kafka's time go in, records to write and the offset to commit come
out. It holds a bounded number of bytes; who drives it (`streaming/waiting_keeper.py`) reads on when there is room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from state.config import Config
from state.fitting import record_bytes
from state.limits import OUTPUT_BYTES_MAX
from state.messages import Headers, Output, Record
from state.routing.admission import record_at
from state.routing.envelope import INPUT, Refusal
from state.set_aside import HAD, OURS, OUTCOME, VAIN, place_of

ROOM_BYTES = 64_000_000
"""What a room holds at most, but for one record."""


# --- in a batch ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Returned:
    """A batch whose events that waited stand where they were sent to."""

    table: pa.RecordBatch
    since: Mapping[int, bytes] = field(default_factory=dict)
    """By row that waited: since when, by Kafka's clock."""
    vain: Collection[int] = ()
    """Rows that do not wait again."""
    spoiled: Mapping[int, Refusal] = field(default_factory=dict)
    """Rows of the topic that are nothing that was set aside."""


def returned(batch: pa.RecordBatch, config: Config) -> Returned:
    """The batch as it was sent. Cost: a comparison of topics, and a Python loop over what waited."""
    if config.schemas is None:
        return Returned(batch)
    here = pc.equal(batch.column("topic"), config.topics.waited(config.deployment.name))
    if not pc.any(here).as_py():
        return Returned(batch)
    columns = {name: batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "headers")}
    since, vain, spoiled = {}, set(), {}
    for row in pc.indices_nonzero(here).to_pylist():
        headers = [(one["key"], one["value"]) for one in columns["headers"][row] or ()]
        try:
            (topic, partition, offset), own, since[row], outcome = _read(headers)
        except ValueError as error:
            spoiled[row] = Refusal("bad-event", f"nothing that was set aside: {error}")
            continue
        columns["topic"][row], columns["partition"][row], columns["offset"][row] = topic, partition, offset
        columns["headers"][row] = [{"key": name, "value": value} for name, value in own]
        if outcome == VAIN:
            vain.add(row)
    kept = {name: batch.column(name) for name in batch.schema.names}
    kept |= {name: pa.array(column, INPUT.field(name).type) for name, column in columns.items()}
    return Returned(pa.RecordBatch.from_arrays(list(kept.values()), list(kept)), since, vain, spoiled)


def _read(headers: list[tuple[str, bytes | None]]) -> tuple[tuple[str, int, int], Headers, bytes, bytes]:
    """Where a record stood that waited, its own headers, since when it waited and how that ended. Raises ValueError."""
    ours = headers[-len(OURS) - 1 :]
    if [name for name, _ in ours] != [*OURS, OUTCOME]:
        raise ValueError("its last headers are not ours")
    topic, partition, offset, _, since, outcome = (value or b"" for _, value in ours)
    place = topic.decode(), int(partition), int(offset)
    if not (0 <= place[1] < 2**31 and 0 <= place[2] < 2**63) or outcome not in (HAD, VAIN):
        raise ValueError("its last headers say nothing that we write")
    return place, tuple(headers[: -len(OURS) - 1]), since, outcome


def set_aside(back: Returned, awaited: Mapping[int, int], config: Config) -> dict[int, Output]:
    """By row: the events that wait, of those whose schema was not to be had (its id by row).

    Not those that have waited in vain, nor any that would not fit with our headers.
    """
    if config.schemas is None or config.schemas.wait_ms == 0:
        return {}
    waits = {
        row: aside(config, record_at(back.table, row), id, back.since.get(row, b""))
        for row, id in awaited.items()
        if row not in back.vain
    }
    return {row: output for row, output in waits.items() if record_bytes(output) <= OUTPUT_BYTES_MAX}


def aside(config: Config, record: Record, schema: int, since: bytes = b"") -> Output:
    """An event as it waits; `record` stands where it was sent to."""
    topic, partition, offset = record.place
    said = (topic.encode(), str(partition).encode(), str(offset).encode(), str(schema).encode(), since)
    headers = (*record.headers, *zip(OURS, said, strict=True))
    return Output(config.topics.waiting(config.deployment.name), record.key, record.value, headers)


# --- between the two topics ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Waiting:
    """One that waits."""

    record: Record
    schema: int
    since_ms: int
    bytes: int


class WaitingRoom:
    """The records of `waiting` that are not settled yet, oldest first.

    Guarantee: each record that is taken leaves once, when its schema was had or its time is over, and not before one of
    the same schema that came earlier. What is below `low` has left. Cost: `leave` looks at all that are held.
    """

    def __init__(self, topic: str, wait_ms: int) -> None:
        """`topic`: where what leaves goes."""
        self._topic, self._wait_ms = topic, wait_ms
        self._held: dict[int, _Waiting] = {}
        """By offset."""
        self._end = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_full(self) -> bool:
        return self._bytes >= ROOM_BYTES

    @property
    def low(self) -> int:
        """The offset below which everything has left: what may be committed."""
        return next(iter(self._held), self._end)

    @property
    def schemas(self) -> set[int]:
        """What is waited for."""
        return {one.schema for one in self._held.values()}

    @property
    def due_ms(self) -> int | None:
        """When the first of them is to leave, by Kafka's clock; None where nobody waits."""
        return min((one.since_ms + self._wait_ms for one in self._held.values()), default=None)

    def take(self, records: Iterable[Record]) -> int:
        """Take in what comes next in the topic; return how many are none of ours, and were left out."""
        strange = 0
        for record in records:
            assert record.offset >= self._end, f"offset {record.offset} was taken before"
            self._end = record.offset + 1
            try:
                schema, since = (value or b"" for _, value in record.headers[-2:])
                if place_of(record) is None or record.headers[-1][0] == OUTCOME:
                    raise ValueError
                waiting = _Waiting(record, int(schema), int(since or record.timestamp_ms), _size(record))
            except ValueError:
                strange += 1
                continue
            self._held[record.offset] = waiting
            self._bytes += waiting.bytes
        return strange

    def leave(self, had: Collection[int], now_ms: int | None) -> list[Output]:
        """Let those leave whose schema was had, and those whose time is over (None: nobody's is)."""
        left = []
        for offset, one in list(self._held.items()):
            late = now_ms is not None and now_ms >= one.since_ms + self._wait_ms
            if one.schema in had or late:
                left.append(self._given_back(one, HAD if one.schema in had else VAIN))
                del self._held[offset]
                self._bytes -= one.bytes
        return left

    def _given_back(self, one: _Waiting, outcome: bytes) -> Output:
        since = (OURS[-1], str(one.since_ms).encode())
        headers = (*one.record.headers[:-1], since, (OUTCOME, outcome))
        return Output(self._topic, one.record.key, one.record.value, headers)

    def check(self) -> None:
        """Assert the invariant."""
        assert list(self._held) == sorted(self._held)
        assert self._bytes == sum(one.bytes for one in self._held.values())
        assert self.low <= self._end


def _size(record: Record) -> int:
    return record_bytes(Output(record.topic, record.key, record.value, record.headers))
