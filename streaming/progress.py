"""Telling the world how far the queries are: consumer groups for lag tools and `hilcast wait`, a topic for `verify`.

Spark keeps its offsets to itself. After each batch a listener commits them to the group `PREFIX.control.DEPLOYMENT` (or
`.route.`), with the hosted brokers in the commit metadata, and appends one line to the progress topic.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from pyspark import SparkContext
from pyspark.sql.streaming.listener import StreamingQueryListener

from infra.kafka.dialects import librdkafka
from infra.kafka.retry import retried
from infra.logs import logger
from state.config import Config
from state.index_mark import Mark

METADATA_MAX = 4000
AGAIN_S = 1.0
"""After so long what could not be told is tried again."""
_log = logger("progress")
Place = tuple[str, int, int]
"""Topic, partition and offset."""
Commit = Callable[[list[TopicPartition]], None]
"""Commits offsets as a member of a group."""


def group(config: Config, query: str) -> str:
    return f"{config.deployment.prefix}.{query}.{config.deployment.name}"


class Committer:
    """Commits offsets of a group: as its member (`lease.py`), or of one that nobody joins."""

    def __init__(
        self, config: Config, query: str, member: Commit | None = None, mark: Callable[[], Mark | None] | None = None
    ) -> None:
        """`mark`: how far the index has been written that these offsets stand for."""
        self.config = config
        self._mark = mark
        self._consumer: Consumer | None = None
        if member is None:
            settings = {**librdkafka(config), "group.id": group(config, query), "enable.auto.commit": "false"}
            self._consumer = Consumer(settings)
        self._member = member
        self._last: dict[tuple[str, int], int] = {}
        """What was committed, by partition."""

    def commit(self, offsets: dict[str, dict[str, int]]) -> None:
        places = [
            (topic, int(partition), int(offset))
            for topic, by_partition in offsets.items()
            for partition, offset in by_partition.items()
            if int(offset) >= 0
        ]
        mark = None if self._mark is None else self._mark()
        texts = [self._metadata(i, len(places), mark) for i in range(len(places))]
        if self.config.security.own:
            places, texts = self._changed(places, mark)
        partitions = [TopicPartition(*place, metadata=text) for place, text in zip(places, texts, strict=True)]
        if partitions:
            retried(lambda: self._commit(partitions))
            self._last |= {(topic, number): offset for topic, number, offset in places}

    def _changed(self, places: list[Place], mark: Mark | None) -> tuple[list[Place], list[str]]:
        """What is new of many inboxes; a client may look at its own and the control topic: that one names all hosts."""
        control = self.config.topics.control
        changed = [place for place in places if place[0] == control or self._last.get(place[:2]) != place[2]]
        return changed, [self._metadata(0, 1, mark) if topic == control else "" for topic, _, _ in changed]

    def _commit(self, partitions: list[TopicPartition]) -> None:
        if self._member is not None:
            self._member(partitions)
        elif self._consumer is not None:
            self._consumer.commit(offsets=partitions, asynchronous=False)
            self._consumer.poll(0)  # lets librdkafka's own lines out

    def _metadata(self, i: int, n: int, mark: Mark | None) -> str:
        """The i-th share of the hosted brokers: Kafka takes 4 KB of metadata a partition."""
        said: dict[str, object] = {"hosts": list(self.config.deployment.hosts)[i::n]}
        said |= {"configuration": self.config.version} | ({} if mark is None else {"index": str(mark)})
        text = json.dumps(said, separators=(",", ":"))
        assert len(text) <= METADATA_MAX, "more brokers in one deployment than its commits can name"
        return text

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


class ProgressListener(StreamingQueryListener):  # type: ignore[misc]
    """Collects the progress of both queries; a thread of the driver writes it out.

    The JVM calls it as it is. PySpark would put another object between, which asks the JVM for every figure of an event
    one by one: more than a busy driver answers where batches end several times a second.
    """

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, config: Config, generation: int, member: Commit, mark: Callable[[], Mark | None]) -> None:
        """`member`: what commits offsets of the control query (`lease.py`); `mark`: of the index that it wrote."""
        self.config = config
        self.generation = generation
        self._java: Any = None
        """This listener, as the JVM knows it."""
        self.latest: dict[str, dict[str, Any]] = {}
        self.reached: dict[str, dict[str, Any]] = {}
        """By query: the same as `latest`, as soon as a batch has ended."""
        self.batches: dict[str, int] = {}
        self._committers = {"control": Committer(config, "control", member, mark), "route": Committer(config, "route")}
        self._held: dict[str, dict[str, Any] | None] = {}
        """By query whose offsets are not to be committed: its last line."""
        self._told: dict[str, dict[str, dict[str, int]]] = {}
        """By query: the offsets of its last line."""
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="progress", daemon=True)
        self._thread.start()

    def hold(self, query: str) -> None:
        """Commit nothing of a query until it is released: what it does is not in force yet."""
        self._held[query] = None
        self.reached.pop(query, None)

    def release(self, query: str, config: Config, generation: int) -> None:
        """Go on committing, for another generation: what was held back is in force now."""
        self.config, self.generation = config, generation
        for committer in self._committers.values():
            committer.config = config
        line = self._held.pop(query, None)
        if line is not None:
            self._events.put(line)

    @property
    def _jlistener(self) -> Any:
        """What `addListener` gives to the JVM."""
        if self._java is None:
            self._java = SparkContext._jvm.PythonStreamingQueryListenerWrapper(self)
        return self._java

    def onQueryStarted(self, event: Any) -> None:
        return None

    def onQueryIdle(self, event: Any) -> None:
        return None

    def onQueryTerminated(self, event: Any) -> None:
        return None

    def onQueryProgress(self, event: Any) -> None:
        self._events.put(json.loads(event.progress().json()))

    def _write(self) -> None:
        producer = Producer(librdkafka(self.config))
        while (progress := self._events.get()) is not None:
            if progress["name"] in self._held:
                self._held[progress["name"]] = progress
                self.reached[progress["name"]] = {"offsets": _end_offsets(progress)}
                continue
            while True:
                try:
                    self._write_one(progress, producer)
                    break
                except KafkaException:
                    pass  # Kafka is away; nothing else is lost by waiting
                except Exception as error:  # who dies here silently lets `hilcast wait` wait for ever
                    name = progress["name"]
                    _log.exception(
                        "how far the %s query is cannot be told, trying again: %s", name, type(error).__name__
                    )
                if self._closing.wait(AGAIN_S):
                    return
        producer.flush(5.0)
        for committer in self._committers.values():
            committer.close()

    def _write_one(self, progress: dict[str, Any], producer: Producer) -> None:
        name = progress["name"]
        offsets = _end_offsets(progress)
        self._committers[name].commit(offsets)
        line = self._line(progress, offsets)
        told = line | {"offsets": self._moved(name, offsets)} if self.config.security.own else line
        producer.produce(
            self.config.topics.progress, key=f"{name}/{self.config.deployment.name}", value=json.dumps(told)
        )
        producer.flush(10.0)
        self.latest[name] = self.reached[name] = line
        self.batches[name] = self.batches.get(name, 0) + 1

    def _line(self, progress: dict[str, Any], offsets: dict[str, dict[str, int]]) -> dict[str, Any]:
        line = {
            "deployment": self.config.deployment.name,
            "query": progress["name"],
            "hosts": list(self.config.deployment.hosts),
            "epoch": f"{self.generation}.{progress['batchId']}",
            "offsets": offsets,
            "began": progress["timestamp"],
            "rows": progress["numInputRows"],
            "batch_ms": progress.get("batchDuration", 0),
            "lag": sum(_lag(source) for source in progress["sources"]),
        }
        if self.generation:  # until a generation is in force, routing may go by the configuration before
            line["configuration"] = self.config.version
        return line

    def _moved(self, query: str, offsets: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        """What has changed since the last line of this life: of many inboxes most stand still."""
        before, self._told[query] = self._told.get(query, {}), offsets
        return {topic: by for topic, by in offsets.items() if before.get(topic) != by}

    def close(self) -> None:
        self._closing.set()
        self._events.put(None)
        self._thread.join(timeout=10.0)


def _end_offsets(progress: dict[str, Any]) -> dict[str, dict[str, int]]:
    offsets: dict[str, dict[str, int]] = {}
    for source in progress["sources"]:
        end = source["endOffset"]
        end = json.loads(end) if isinstance(end, str) else end or {}
        for topic, by_partition in end.items():
            offsets[topic] = {str(p): int(o) for p, o in by_partition.items() if str(p).isdigit()}
    return offsets


def _lag(source: dict[str, Any]) -> int:
    """How many records of a source the batch did not reach; our own source does not count them itself."""
    counted = source.get("metrics", {}).get("maxOffsetsBehindLatest")
    if counted is not None or not source.get("latestOffset"):
        return int(counted or 0)
    reached = _end_offsets({"sources": [source]})
    latest = _end_offsets({"sources": [{"endOffset": source["latestOffset"]}]})
    left = [end - reached.get(topic, {}).get(p, 0) for topic, by in latest.items() for p, end in by.items()]
    return max([0, *left])


class Committed:
    """Reads what the driver has committed of the control query: for whoever routes by its index."""

    def __init__(self, config: Config) -> None:
        settings = {**librdkafka(config), "group.id": group(config, "control"), "enable.auto.commit": "false"}
        self._place = [TopicPartition(config.topics.control, 0)]
        self._consumer = Consumer(settings)

    def mark(self, timeout_s: float = 5.0) -> Mark | None:
        """The mark of the index that was last said to be in force; KafkaException where Kafka does not answer."""
        (found,) = self._consumer.committed(self._place, timeout=timeout_s)
        if found.error is not None:
            raise KafkaException(found.error)
        said = json.loads(found.metadata).get("index") if found.metadata else None
        return None if said is None else Mark.parse(said)
