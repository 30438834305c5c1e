"""What the control query reads where every client has inboxes of its own: they come and go, and none is to be starved.

    Kafka ── which inboxes there are, and where they end ──> fair share of each client ──> one batch
                                                             control topic: all of it

Spark's own source takes topics that come later, too, but divides a limit by how much is waiting: whoever floods his
inbox would get nearly all of it. It also stops where a topic is gone. This one takes equal shares of each client
(`state/control/fairness.py`). An inbox that is gone has nothing more to say; one that was made again has another id and
is read from its beginning. An inbox that is not kept as it must be (one partition, log-append time) is not read, and
said: by its records' own times a client could outwit its quota.

The offsets of a batch are Spark's to keep: {TOPIC: {"0": OFFSET, "id": KAFKA'S ID}}. A batch that is repeated reads the
same records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, cast

import pyarrow as pa
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from infra.kafka import open_transport
from infra.kafka.reading import between
from infra.kafka.retry import retried
from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger, set_up
from state.config import Config
from state.control.fairness import taken
from state.errors import HilcastError
from state.fitting import clipped
from state.limits import INBOX_BYTES_MAX, OUTPUT_BYTES_MAX
from state.messages import Record, content_bytes
from state.topics import faults, inboxes

NAME = "hilcast-inboxes"
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, topic_id string"
)
_ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("topic_id", pa.string()),
    ]
)
IDS_S = 5.0
"""How often it is asked whether a topic is still the one that it was."""
ROWS, BYTES = 10_000, 64 * 1024 * 1024
"""Of one Arrow batch, at most; one record more than so many bytes."""
_log = logger("inboxes")

Offset = dict[str, int | str]
"""Of one topic: `0`, the offset, and `id`, Kafka's id of the topic."""
Offsets = dict[str, Offset]


class Span(TypedDict):
    """What is to be read of one topic."""

    topic: str
    first: int
    end: int
    id: str


class Spans(InputPartition):
    """What one task reads."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans


class Found:
    """The inboxes that there are, looked at again and again."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._keeper = TopicKeeper(config)
        self._ids: dict[str, str] = {}
        self._unfit: set[str] = set()
        self._asked = float("-inf")

    def look(self) -> dict[str, str]:
        """By topic that can be read, the control topic among them: Kafka's id."""
        found = inboxes(self._config.with_own(self._keeper.existing()))
        names = {self._config.topics.control, *found}
        if time.monotonic() - self._asked > IDS_S:
            ids, self._asked = self._keeper.ids(names), time.monotonic()
            self._ids = {topic: id for topic, id in self._ids.items() if ids.get(topic) == id}
        self._judge([name for name in names if name not in self._ids])
        return {name: self._ids[name] for name in sorted(names) if name in self._ids and name not in self._unfit}

    def _judge(self, new: Sequence[str]) -> None:
        """Take note of topics that are new, and say which of them are not read."""
        if not new:
            return
        kept = self._keeper.found(new)
        self._ids |= {topic: found.id for topic, found in kept.items()}
        config = replace(self._config, inbox_topics=tuple(name for name in new if name != self._config.topics.control))
        wrong = {fault.topic: fault for fault in faults(config, kept, 1) if fault.fatal and fault.topic in new}
        self._unfit = (self._unfit - set(new)) | set(wrong)
        for fault in wrong.values():
            _log.error("an inbox is not read: %s", fault)

    def ends(self, topics: Sequence[str]) -> dict[str, int]:
        """The offset after the last record of each of these."""
        return self._offsets(topics, OffsetSpec.latest())

    def firsts(self, topics: Sequence[str]) -> dict[str, int]:
        """The first offset that Kafka holds of each of these."""
        return self._offsets(topics, OffsetSpec.earliest())

    def _offsets(self, topics: Sequence[str], spec: OffsetSpec) -> dict[str, int]:
        """All asked for together."""
        asked = {TopicPartition(topic, 0): spec for topic in topics}
        if not asked:
            return {}
        answers = self._keeper.admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=30.0
        )
        return {place.topic: int(answer.result().offset) for place, answer in answers.items()}


def planned(
    config: Config, start: Offsets, ids: Mapping[str, str], ends: Mapping[str, int], limit: int | None
) -> Offsets:
    """How far the next batch goes: of the control topic to its end, of each client's inboxes by equal shares."""
    control = config.topics.control
    waiting: dict[str, dict[str, tuple[int, int]]] = {}
    offsets: Offsets = {}
    for topic, id in ids.items():
        first = first_of(start, topic, id)
        offsets[topic] = {"0": max(first, ends[topic]) if topic == control else first, "id": id}
        owner = config.topics.client_of(topic)
        if owner is not None and ends[topic] > first:
            waiting.setdefault(owner[1], {})[topic] = (first, ends[topic])
    for topic, end in taken(waiting, limit).items():
        offsets[topic]["0"] = end
    return offsets


def first_of(offsets: Offsets, topic: str, id: str) -> int:
    """Where a topic goes on; one that is new, or was made again, at its beginning.

    >>> first_of({"t": {"0": 7, "id": "x"}}, "t", "x"), first_of({"t": {"0": 7, "id": "x"}}, "t", "y")
    (7, 0)
    """
    known = offsets.get(topic, {})
    return int(known.get("0", 0)) if known.get("id", id) == id else 0


class InboxReader(DataSourceStreamReader):  # type: ignore[misc]
    """Plans the batches, in a process beside the driver, and reads them in tasks."""

    def __init__(self, config: Config, starting: str, limit: int, tasks: int, lossy: bool) -> None:
        self._config, self._limit, self._tasks, self._lossy = config, limit, tasks, lossy
        self._starting = starting
        self._found: Found | None = None
        self._latest: Offsets | None = None

    @property
    def _inboxes(self) -> Found:
        if self._found is None:
            set_up(self._config, "control")
            self._found = Found(self._config)
        return self._found

    def _ends(self) -> tuple[dict[str, str], dict[str, int]]:
        """The topics that there are, by Kafka's id, and where each ends."""
        ids = self._inboxes.look()
        return ids, self._inboxes.ends(list(ids))

    def initialOffset(self) -> Offsets:
        """Where a new generation begins: an offset below 0 means the oldest record there is."""
        ids = retried(self._inboxes.look)
        starting = cast(dict[str, dict[str, int]], json.loads(self._starting))
        known = {topic: by["0"] for topic, by in starting.items() if topic in ids}
        firsts = retried(lambda: self._inboxes.firsts([topic for topic, offset in known.items() if offset < 0]))
        return {topic: {"0": firsts.get(topic, offset), "id": ids[topic]} for topic, offset in known.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        ids, ends = retried(self._ends)  # a topic may go in between: then both are asked for again
        self._latest = {topic: {"0": ends[topic], "id": id} for topic, id in ids.items()}
        return planned(self._config, start, ids, ends, None if isinstance(limit, ReadAllAvailable) else self._limit)

    def reportLatestOffset(self) -> Offsets | None:
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> list[Spans]:
        """What is to be read between two offsets; of an inbox that is gone by now there is nothing."""
        ids = retried(self._inboxes.look)
        wanted = [
            Span(topic=topic, first=first, end=int(at["0"]), id=str(at["id"]))
            for topic, at in end.items()
            if (first := first_of(start, topic, str(at["id"]))) < int(at["0"])
        ]
        spans = [span for span in wanted if ids.get(span["topic"]) == span["id"]]
        for span in wanted:
            if span not in spans:
                _log.warning("an inbox is gone before all of it was read: %s", span["topic"])
        self._check(spans)
        return [Spans(spans[i :: self._tasks]) for i in range(min(self._tasks, len(spans)))]

    def _check(self, spans: Sequence[Span]) -> None:
        """Kafka may have deleted what is to be read."""
        firsts = retried(lambda: self._inboxes.firsts([span["topic"] for span in spans]))
        deleted = [span for span in spans if firsts[span["topic"]] > span["first"]]
        if deleted and not self._lossy:
            topic, first = deleted[0]["topic"], deleted[0]["first"]
            reason = f"{topic}: offsets {first} to {firsts[topic] - 1} are deleted; some data may have been missed"
            raise HilcastError("data-loss", reason)

    def read(self, partition: Spans) -> Iterator[pa.RecordBatch]:
        """The records of one task, of each topic in order."""
        ids = {span["topic"]: span["id"] for span in partition.spans}
        spans = {(span["topic"], 0): (span["first"], span["end"]) for span in partition.spans}
        transport = open_transport(self._config)
        try:
            some: list[Record] = []
            held = 0
            for record in between(transport, spans):
                limit = OUTPUT_BYTES_MAX if record.topic == self._config.topics.control else INBOX_BYTES_MAX
                some.append(clipped(record, limit))
                held += content_bytes(some[-1])
                if len(some) == ROWS or held > BYTES:
                    yield _batch(some, ids)
                    some, held = [], 0
            if some:
                yield _batch(some, ids)
        finally:
            transport.close()


def _batch(records: Sequence[Record], ids: Mapping[str, str]) -> pa.RecordBatch:
    columns = [
        [record.topic for record in records],
        [record.partition for record in records],
        [record.offset for record in records],
        [record.timestamp_ms for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [[{"key": name, "value": value} for name, value in record.headers] for record in records],
        [ids[record.topic] for record in records],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


def source_of(config: Config, starting: str, *, lossy: bool) -> type[DataSource]:
    """The data source of one control query, to be registered with Spark under `NAME`.

    The configuration goes with the class, as it goes with the code of the workers: options would be shown in plans.
    """
    limit, tasks = config.settings.inbox_records_per_batch, config.settings.shuffle_partitions

    class Inboxes(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: StructType) -> InboxReader:
            return InboxReader(config, starting, limit, tasks, lossy)

    return Inboxes
