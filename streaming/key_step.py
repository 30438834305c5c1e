"""One key's records of one batch: from Spark's rows through the core to state, Redis and rows again.

The state of a key is (format, version, blob): our own versioned bytes. Versions travel as bytes, since a nullable long
becomes a float in pandas; the blob as base64, since what is bytes Spark writes for Python letter by letter, and what is
text at once: that was a seventh of the JVM's time while 100,000 subscriptions were registered.
"""

from __future__ import annotations

import gc
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState

from infra.kafka.destinations import Destinations
from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger, set_up
from infra.signing_keys import SigningKeys
from state.control.context import Context, Result
from state.control.handle import handle, whole_index
from state.fitting import held, misfits
from state.keys import Key
from state.messages import Output, Record
from state.redis_index import RedisIndex
from state.redis_retry import redis_retried
from streaming import dying
from streaming.boot import Boot
from streaming.careful import Hand
from streaming.settings import QUERY_VARIABLE

STATE = "format int, version binary, blob string"
STATE_FORMAT = 2
RECORD = "record"
"""The column of a record: an array of bytes."""
TOPIC_ID = "topic_id"
FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", TOPIC_ID)
"""What it begins with, numbers as text; then come the names of its headers, and as many values."""
COLLECTED_EVERY = 64
"""Batches after which garbage is looked for among all that a worker holds; in between only among what is new."""
_log = logger("redis")
_control_log = logger("control")


class _Worker:
    """What a Python worker keeps between batches: grids, connections; found again by module, not by closure."""

    def __init__(self, boot: Boot) -> None:
        set_up(boot.config, os.environ.get(QUERY_VARIABLE, "control"))
        self.boot = boot
        self.keys = SigningKeys(boot.config)
        self.redis = RedisIndex(boot.config, keys=self.keys.current)
        self.topics = TopicKeeper(boot.config)
        self.destinations = Destinations(self.topics, _log.warning)
        self.collected = -COLLECTED_EVERY
        """The batch after which garbage was last looked for everywhere."""
        self.hand = Hand(boot.config, self.redis, "control") if boot.careful else None
        self.context = Context(
            boot.config,
            boot.generation,
            0,
            samples=boot.samples,
            topic_ids=boot.topic_ids,
            destinations=self.destinations,
            quarantined=boot.quarantined,
        )

    def at(self, batch: int) -> Context:
        """The context of one key in a batch, with the keys as they are now."""
        self.context.keyring = self.keys.current()
        if not self.collected <= batch < self.collected + COLLECTED_EVERY:
            self.collected = batch
            gc.unfreeze()
        return self.context.at(self.boot.generation, batch)

    def rest(self, batch: int) -> None:
        """Keep what is held out of sight of the collector, which PySpark calls after every task.

        Parts and their entries are millions of objects, to be looked at for half a second a task, and refer to nothing
        that refers to them. What is garbage already, and in a cycle, waits until all is looked at again.
        """
        if batch != self.collected:
            gc.freeze()

    def ensure(self, topics: set[str]) -> None:
        """Have these delivery topics. One that cannot be made any more is closed by the driver (`closed.py`)."""
        refused = self.topics.ensure(topics)
        if refused:
            self.destinations.doubt()
        for reason in refused.values():
            _control_log.warning("%s", reason)


_workers: dict[object, _Worker] = {}
_asked: list[tuple[Boot, _Worker]] = []
"""For the key before: all keys of a task have the same, and writing a configuration out takes 0.1 ms and more."""


def _worker(boot: Boot) -> _Worker:
    if _asked and _asked[0][0] is boot:
        return _asked[0][1]
    identity = (repr(boot.config), boot.generation, boot.careful, boot.suspects, boot.quarantined)
    if identity not in _workers:
        _workers.clear()
        _workers[identity] = _Worker(boot)
    _asked[:] = [(boot, _workers[identity])]
    return _workers[identity]


def prepare(boot: Boot) -> None:
    """Have this worker be as it is after its first batch: grids made, Redis reached."""
    worker = _worker(boot)
    redis_retried(worker.redis.current, say=_log.warning)


def step(boot: Boot, key: tuple[str], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Handle one key's records of one batch: state, Redis and outputs in one pass.

    `StateUnreadable` ends the query with its code in the text, and nothing of the batch is committed: only a new
    generation can go on.
    """
    worker = _worker(boot)
    read: dict[tuple[str, str], None] = {}
    records = held(_records(frames, read, own=boot.config.security.own), boot.config.topics)
    batch = _batch()
    context = worker.at(batch)
    if boot.config.security.own:
        # a client's own inbox may have come since this life began: the source says which one it read
        context.topic_ids = {**boot.topic_ids, **dict(read.keys())}  # in their order: the last one counts
    if worker.hand is not None:
        _apply_carefully(worker, worker.hand, key[0], records, state, context)
    elif outputs := _applied(worker, key[0], records, state, context).outputs:
        yield _frame(outputs)
    worker.rest(batch)
    dying.at("control-after-sink", after_s=0.05)


def _applied(worker: _Worker, key: str, records: list[Record], state: GroupState, context: Context) -> Result:
    """Apply records to a key and its state; the outputs are still to be written."""
    result = _handled(key, records, state, context)
    assert not misfits(result.outputs, worker.context.topics), "what Kafka would not take must not reach its sink"
    for line in result.faults:
        _control_log.error("%s", line)
    if result.topics:
        worker.ensure(result.topics)
    if result.index is not None or result.deltas:
        _publish(worker, Key.parse(key), result, context)
        dying.at("control-after-redis")
    elif result.figures:
        redis_retried(lambda: worker.redis.count(result.figures), say=lambda line: None)
    if result.state is not None:
        version = int.from_bytes(bytes(state.get[1]), "big") + 1 if state.exists else 1
        state.update((STATE_FORMAT, version.to_bytes(8, "big"), b64encode(result.state).decode()))
    return result


def _handled(key: str, records: list[Record], state: GroupState, context: Context) -> Result:
    dying.of(lambda: ((record.place, record.value) for record in records), context.quarantined)
    return handle(key, b64decode(state.get[2]) if state.exists else None, records, context)


def _apply_carefully(
    worker: _Worker, hand: Hand, key: str, records: list[Record], state: GroupState, context: Context
) -> None:
    """The same with a note of what is in hand (`careful.py`). Suspects are first tried alone, which changes nothing."""
    tries = [[record] for record in records if record.place in worker.boot.suspects]
    for some in tries:
        hand.take([record.place for record in some])
        _handled(key, some, state, context)
        hand.put_down()
    hand.take([record.place for record in records])
    try:
        hand.write(_applied(worker, key, records, state, context).outputs)
    except Exception as error:
        hand.failed(error)
        raise
    hand.put_down()


def _batch() -> int:
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    assert batch is not None, "the control operator runs inside a streaming query"
    return int(batch)


def _publish(worker: _Worker, key: Key, result: Result, context: Context) -> None:
    """Write the index, or what changed of it, and add the figures; the batch does not end before Redis answered."""
    generation, batch, state = worker.boot.generation, _batch(), result.state
    assert state is not None, "a part that has an index has a state"

    def whole() -> bytes:
        return whole_index(key, state, context)

    if result.index is None:
        told, reduced = result.forwarding, result.reduced
        redis_retried(
            lambda: worker.redis.publish_deltas(
                key, result.deltas, whole, generation, batch, told, reduced, result.figures
            ),
            say=_log.warning,
        )
        return
    index = whole() if result.deltas else result.index
    redis_retried(
        lambda: worker.redis.publish(
            {key: index}, generation, batch, {key: result.forwarding}, {key: result.reduced}, result.figures
        ),
        say=_log.warning,
    )


def _records(frames: Iterable[pd.DataFrame], read: dict[tuple[str, str], None], *, own: bool) -> Iterator[Record]:
    """The records of a key, one after another; `read` gains their topics and the ids of these, where they are said."""
    for frame in frames:
        for row in frame[RECORD]:
            record = _record(*row)
            if own:
                read[record.topic, row[len(FIELDS) - 1].decode()] = None
            yield record


def _record(
    topic: bytes,
    partition: bytes,
    offset: bytes,
    timestamp_ms: bytes,
    key: bytes | None,
    value: bytes | None,
    _topic_id: bytes | None,
    *headers: bytes | None,
) -> Record:
    count = len(headers) // 2
    pairs = zip(headers[:count], headers[count:], strict=True)
    # nothing that a client writes may raise here: it would stop the query before anybody could leave the record out
    named = tuple(((name or b"").decode(errors="replace"), value) for name, value in pairs)
    return Record(topic.decode(), int(partition), int(offset), int(timestamp_ms), key, value, named)


def _frame(outputs: Iterable[Output]) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {"topic": [], "key": [], "value": [], "headers": []}
    for output in outputs:
        columns["topic"].append(output.topic)
        columns["key"].append(output.key)
        columns["value"].append(output.value)
        columns["headers"].append([{"key": name, "value": value} for name, value in output.headers] or None)
    return pd.DataFrame(columns, dtype=object)
