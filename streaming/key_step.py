"""One key's records of one batch: from Spark's rows through the core to state, Redis and rows again.

The state of a key is (format, version, blob): our own versioned bytes. Versions travel as bytes, since a nullable long
becomes a float in pandas.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState

from infra.kafka.destinations import Destinations
from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger, set_up
from state.control.context import Context, Result
from state.control.handle import handle
from state.errors import HilcastError
from state.fitting import misfits
from state.keys import Key
from state.messages import Record
from state.redis_index import RedisIndex, patiently
from streaming import dying
from streaming.boot import Boot
from streaming.settings import QUERY_VARIABLE

STATE = "format int, version binary, blob binary"
STATE_FORMAT = 1
_log = logger("redis")
_control_log = logger("control")


class _Worker:
    """What a Python worker keeps between batches: grids, connections; found again by module, not by closure."""

    def __init__(self, boot: Boot) -> None:
        set_up(boot.config, os.environ.get(QUERY_VARIABLE, "control"))
        self.boot = boot
        self.redis = RedisIndex(boot.config)
        self.topics = TopicKeeper(boot.config)
        self.destinations = Destinations(self.topics, _log.warning)
        self.context = Context(
            boot.config,
            boot.generation,
            0,
            samples=boot.samples,
            topic_ids=boot.topic_ids,
            destinations=self.destinations,
        )

    def ensure(self, topics: set[str]) -> None:
        """Have these delivery topics; one that cannot be created fails the batch, which refuses it the next time."""
        try:
            self.topics.ensure(topics)
        except HilcastError:
            self.destinations.doubt()
            raise


_workers: dict[tuple[str, int], _Worker] = {}


def _worker(boot: Boot) -> _Worker:
    identity = (repr(boot.config), boot.generation)
    if identity not in _workers:
        _workers.clear()
        _workers[identity] = _Worker(boot)
    return _workers[identity]


def step(boot: Boot, key: tuple[str], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Handle one key's records of one batch: state, Redis and outputs in one pass.

    `StateUnreadable` ends the query with its code in the text, and nothing of the batch is committed: only a new
    generation can go on.
    """
    worker = _worker(boot)
    records = [record for frame in frames for record in _records(frame)]
    blob = state.get[2] if state.exists else None
    result = handle(
        key[0], None if blob is None else bytes(blob), records, worker.context.at(boot.generation, _batch())
    )
    assert not misfits(result.outputs, worker.context.topics), "what Kafka would not take must not reach its sink"
    for line in result.faults:
        _control_log.error("%s", line)
    if result.topics:
        worker.ensure(result.topics)
    if result.index is not None:
        _publish(worker, Key.parse(key[0]), result.index, result)
        dying.at("control-after-redis")
    if result.state is not None:
        version = int.from_bytes(bytes(state.get[1]), "big") + 1 if state.exists else 1
        state.update((STATE_FORMAT, version.to_bytes(8, "big"), result.state))
    _count(worker, result)
    yield _frame(result)
    dying.at("control-after-sink", after_s=0.05)


def _batch() -> int:
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    assert batch is not None, "the control operator runs inside a streaming query"
    return int(batch)


def _publish(worker: _Worker, key: Key, index: bytes, result: Result) -> None:
    """Write the index; the batch does not end before Redis answered."""
    told, reduced = {key: result.forwarding}, {key: result.reduced}
    patiently(
        lambda: worker.redis.publish({key: index}, worker.boot.generation, _batch(), told, reduced),
        say=_log.warning,
    )


def _count(worker: _Worker, result: Result) -> None:
    if result.figures:
        patiently(lambda: worker.redis.count(result.figures), say=lambda line: None)


def _records(frame: pd.DataFrame) -> Iterator[Record]:
    for row in frame.itertuples(index=False):
        names = [] if row.header_names is None else list(row.header_names)
        values = [] if row.header_values is None else list(row.header_values)
        headers = tuple((str(n), None if v is None else bytes(v)) for n, v in zip(names, values, strict=True))
        yield Record(
            row.topic,
            int(row.partition),
            int(row.offset),
            int(row.timestamp_ms),
            _bytes(row.key),
            _bytes(row.value),
            headers,
        )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _frame(result: Result) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {"topic": [], "key": [], "value": [], "headers": []}
    for output in result.outputs:
        columns["topic"].append(output.topic)
        columns["key"].append(output.key)
        columns["value"].append(output.value)
        columns["headers"].append([{"key": name, "value": value} for name, value in output.headers] or None)
    return pd.DataFrame(columns, dtype=object)
