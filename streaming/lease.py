"""The lease of a deployment: of all drivers that run for it, one acts. Kafka keeps it.

The driver is a member of the group `PREFIX.control.DEPLOYMENT`, and the only partition of the registry is what there is
to be had: Kafka gives it to one member, and to the next one when that has not been heard of for a while. Offsets are
committed as a member, so what a driver commits that has lost its membership is refused, and `hilcast wait` never
believes it.

    a driver starts   ──> it joins, and waits until the partition is its own: it stands by
    it dies           ──> the next one has the partition after LAPSE_MS
    it is restarted   ──> the same host and checkpoint are the same member: it has the partition at once
    it was paused     ──> another one has claimed a newer generation: it stops itself (`job.py`)
    Kafka was away    ──> it joins again; if its membership is void, under a new one, behind whoever came meanwhile

librdkafka gives a member up for good if Kafka says that another one has its name. That happens to the only driver there
is: Kafka comes back, the client joins anew, and a commit of before arrives under the old membership. Then nothing
could be committed for the rest of the life of the job, and `hilcast wait` would never return.
"""

from __future__ import annotations

import hashlib
import queue
import socket
import threading
import time
from concurrent.futures import Future

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from infra.kafka.dialects import librdkafka
from infra.logs import logger
from state.config import Config
from streaming.progress import group

LAPSE_MS = 10_000
"""After so long without a sign of life a driver has lost its lease."""
POLL_S = 0.05
ANSWER_S = 60.0
SAID_AFTER_S = 3.0
"""After so long it is said that another driver is waited for."""
_VOID = (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
"""After these a member of librdkafka's does nothing any more."""
_log = logger("lease")


class Lease:
    """The membership of this driver; `acquire` returns once it may act."""

    def __init__(self, config: Config) -> None:
        self._name = config.deployment.name
        self._held = threading.Event()
        self._closing = threading.Event()
        place = f"{socket.gethostname()}\n{config.deployment.checkpoint}"
        self._asked: queue.Queue[tuple[list[TopicPartition], Future[None]]] = queue.Queue()
        self._registry = config.topics.registry
        self._settings = {
            **librdkafka(config),
            "group.id": group(config, "control"),
            # with any other strategy who comes last may take the partition from who has it
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": LAPSE_MS,
            "heartbeat.interval.ms": LAPSE_MS // 5,
            "enable.auto.commit": "false",
        }
        self._void: KafkaError | None = None
        """Why the membership is one no more."""
        self._consumer = self._joined(f"{self._name}.{hashlib.sha256(place.encode()).hexdigest()[:16]}")
        self._thread = threading.Thread(target=self._poll, name="lease", daemon=True)
        self._thread.start()

    def _joined(self, member: str | None) -> Consumer:
        """A new member; without a name it stands behind whoever has the one that was ours."""
        consumer = Consumer(self._settings | ({} if member is None else {"group.instance.id": member}))
        consumer.subscribe([self._registry], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        return consumer

    def _join_again(self, error: KafkaError) -> None:
        _log.warning("the lease of deployment %s: the membership is void (%s), joining again", self._name, error.str())
        self._consumer.close()
        self._held.clear()
        self._void, self._consumer = None, self._joined(None)

    @property
    def held(self) -> bool:
        return self._held.is_set()

    def acquire(self, stopping: threading.Event) -> bool:
        """Wait until this driver has the lease; False if it was told to stop before."""
        started, told = time.monotonic(), False
        while not self._held.wait(POLL_S):
            if stopping.is_set():
                return False
            if not told and time.monotonic() - started > SAID_AFTER_S:
                told = True
                _log.warning("another driver of deployment %s has the lease: standing by", self._name)
        if told:
            _log.info("the lease of deployment %s is ours", self._name)
        return True

    def commit(self, offsets: list[TopicPartition]) -> None:
        """Commit as a member; KafkaException where Kafka does not take it, as from one that has lost its membership."""
        answer: Future[None] = Future()
        self._asked.put((offsets, answer))
        try:
            answer.result(ANSWER_S)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=10.0)
        self._consumer.close()

    def _poll(self) -> None:
        while not self._closing.is_set():
            try:
                message = self._consumer.poll(POLL_S)
                self._look(None if message is None else message.error())
            except KafkaException as error:
                _log.warning("the lease of deployment %s: %s", self._name, error.args[0].str())
                self._look(error.args[0])
                self._closing.wait(POLL_S)
            while not self._asked.empty():
                self._commit(*self._asked.get())
            if self._void is not None:
                self._join_again(self._void)

    def _look(self, error: KafkaError | None) -> None:
        if error is not None and error.code() in _VOID:
            self._void = error

    def _commit(self, offsets: list[TopicPartition], answer: Future[None]) -> None:
        # in this thread: beside a poll in another one a commit would wait for ever
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
            answer.set_result(None)
        except KafkaException as error:
            self._look(error.args[0])
            answer.set_exception(error)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)  # it is had, not read
            self._held.set()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        if partitions:
            self._held.clear()
            _log.warning("the lease of deployment %s is lost", self._name)
