"""Asks for the schemas that events wait for, and gives the events back: once it is had, or their time is over.

    waiting.DEPLOYMENT ──> WaitingRoom ──> waited.DEPLOYMENT ──> route query
                             ▲       │
              schema registry ───────┴──> shelf in Redis, where every route worker finds it

What was given back is committed afterwards, and only up to the first that still waits: whoever dies in between repeats,
and loses nothing. A thread of its own: a registry that does not answer holds up nothing else in the driver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import KafkaException

from infra.kafka import Transport, open_transport
from infra.kafka.transport import Reader
from infra.logs import logger
from infra.schema_registry import Shelf, beside_schemas
from state.config import Config
from state.errors import HilcastError
from state.routing.waiting_room import WaitingRoom
from state.topics import asides
from streaming import dying
from streaming.broker_clock import BrokerClock
from streaming.progress import group

POLL_S = 0.2
IDLE_S = 1.0
AGAIN_S = 1.0
_log = logger("waiting")


class WaitingKeeper:
    """The room of one deployment; `close` ends its thread."""

    def __init__(self, config: Config, shelf: Shelf, lost: Callable[[int], None]) -> None:
        """`lost` is told how many records Kafka deleted before they were read."""
        assert config.schemas is not None, "nothing waits without a registry"
        self._config, self._shelf, self._lost = config, shelf, lost
        self._wait_ms = config.schemas.wait_ms
        self._schemas = beside_schemas(config, shelf)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waiting", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        """Keep on, whatever happens: after trouble from where it was committed."""
        while not self._stopping.is_set():
            transport, clock = open_transport(self._config), BrokerClock(self._config)
            try:
                self._keep(transport, clock)
            except (HilcastError, KafkaException, OSError) as error:
                _log.warning("events that wait for a schema go on waiting: %s", error)
            except Exception:  # a thread that ended would keep them waiting for ever
                _log.exception("events that wait for a schema go on waiting: it failed inside")
            finally:
                clock.close()
                transport.close()
            self._stopping.wait(AGAIN_S)

    def _keep(self, transport: Transport, clock: BrokerClock) -> None:
        waiting, waited = asides(self._config)
        place, name = (waiting, 0), group(self._config, "waiting")
        committed = transport.committed(name, [place]).get(place, 0)
        low, end = transport.span(*place)
        if committed > end:
            committed = low  # the topic was made again
        if committed < low:
            self._lost(low - committed)
            _log.error("%d events that waited for a schema are lost: Kafka has deleted them", low - committed)
        room, at = WaitingRoom(waited, self._wait_ms), max(committed, low)
        transport.commit(name, {place: at})  # so that `status` knows how many wait
        reader = transport.read({place: at})
        try:
            while not self._stopping.is_set():
                self._round(room, reader, transport, clock)
                if room.low > at:
                    at = room.low
                    transport.commit(name, {place: at})
        finally:
            reader.close()

    def _round(self, room: WaitingRoom, reader: Reader, transport: Transport, clock: BrokerClock) -> None:
        """Read what is new, ask for what is missing, give back what is settled."""
        if room.is_full:
            self._stopping.wait(POLL_S)
        else:
            strange = room.take(reader.poll(POLL_S if room else IDLE_S))
            if strange:
                _log.error("%d records of the waiting events were written by somebody else, and are left out", strange)
        if not room:
            return
        had, due_ms = self._schemas.of(room.schemas), room.due_ms
        self._shelf.put(had)  # once more: Redis may have lost it, and every worker is to find it there
        left = room.leave(had, None if due_ms is None else clock.due(due_ms))
        for output in left:
            transport.send(output)
        dying.at("waiting-given-back")
        transport.flush()
