"""Subscribing, and reading what comes: repeats removed, ids of several deployments united."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

from producers.client.delivery import Delivery, Memory, read_delivery
from producers.client.registering import Filter, Registering
from producers.client.registrar import TIMEOUT_S, Receipt, Request
from producers.transport import Name, Transport
from producers.transport.interface import Partition, Reader
from state.config import Config
from state.messages import Record

Start = Literal["beginning", "end", "stored"]

POLL_S = 0.2
PATIENCE_S = 5.0
"""An end that is not reached, because Kafka's own marks stand there, is not waited for longer than this."""
LOOK_S = 1.0
"""How often a delivery topic that does not exist yet is looked for."""


class Subscriber(Registering):
    """One client: its subscriptions and its deliveries.

    Iterating waits for deliveries for ever, from `start` on: the beginning of what Kafka holds, its end, or what
    `commit` stored. `sinks` are further topics that its subscriptions deliver to. A delivery is given once: of the
    last `memory` deliveries every repeat is known. With `unite_s` a delivery is held back that long, so that copies
    of other deployments have added their ids before it is given; without, they join the `subscriptions` of a
    delivery that was already given.

        with Subscriber(config, "alice") as alice:
            alice.subscribe("b1", "stock.quote", "price < 100", id="cheap")
            for delivery in alice:
                print(delivery.event, delivery.subscriptions)
    """

    def __init__(
        self,
        config: Config,
        client: str,
        *,
        sinks: Iterable[str] = (),
        start: Start = "beginning",
        memory: int = 100_000,
        unite_s: float = 0.0,
        transport: Transport | Name = "confluent",
    ) -> None:
        super().__init__(config, config.topics.subscriptions, transport)
        self.client = client
        self.group = f"{config.deployment.prefix}.client.{client}"
        self._topics = [config.topics.deliver(client), *sinks]
        self._start = start
        self._memory = Memory(memory)
        self._unite_s = unite_s
        self._reader: Reader | None = None
        self._reading: set[str] = set()
        self._looked = float("-inf")
        self._fetched: deque[Record] = deque()
        self._held: deque[tuple[float, Delivery]] = deque()
        self._positions: dict[Partition, int] = self._ends() if start == "end" else {}

    @property
    def repeats(self) -> int:
        """How many copies were left out so far."""
        return self._memory.repeats

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        broker: str,
        type: str,
        filter: Filter,
        *,
        id: str | None = None,
        version: int | None = None,
        ttl_ms: int | None = None,
        sink: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Receipt:
        """Subscribe and wait for the receipt; `RefusedError` if it is refused, `UnansweredError` at the timeout."""
        request = self.request(broker, type, filter, id=id, version=version, ttl_ms=ttl_ms, sink=sink)
        return request.receipt(timeout_s)

    def replace(
        self,
        broker: str,
        type: str,
        id: str,
        filter: Filter,
        *,
        version: int | None = None,
        ttl_ms: int | None = None,
        sink: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Receipt:
        """Replace the filter of a subscription, without a gap for what matches both, and wait for the receipt."""
        return self.subscribe(
            broker, type, filter, id=id, version=version, ttl_ms=ttl_ms, sink=sink, timeout_s=timeout_s
        )

    def request(
        self,
        broker: str,
        type: str,
        filter: Filter,
        *,
        id: str | None = None,
        version: int | None = None,
        ttl_ms: int | None = None,
        sink: str | None = None,
    ) -> Request:
        """Subscribe or replace without waiting: to load many, send them all, then ask each for its receipt."""
        value: dict[str, object] = {"client": self.client, "filter": filter}
        if ttl_ms is not None:
            value["ttl_ms"] = ttl_ms
        if sink is not None:
            value["sink"] = sink
            if sink not in self._topics:
                self._topics.append(sink)
                self._looked = float("-inf")
        return self._registrar.send(broker, type, id, value, version)

    # ── deliveries ──────────────────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Delivery]:
        """Deliveries, for ever."""
        return self.deliveries()

    def deliveries(self, *, quiet_s: float | None = None) -> Iterator[Delivery]:
        """Deliveries; with `quiet_s` until none has come for that long."""
        heard = time.monotonic()
        while quiet_s is None or time.monotonic() - heard < quiet_s or self._held:
            while (delivery := self._next(POLL_S)) is not None:
                yield delivery
                heard = time.monotonic()

    def present(self) -> Iterator[Delivery]:
        """Deliveries up to the ends of their topics now; those that are still to come are left for later."""
        ends = self._ends()
        heard = time.monotonic()
        while self._before(ends) and time.monotonic() - heard < PATIENCE_S:
            before = dict(self._positions)
            delivery = self._next(POLL_S, ripe=float("inf"))
            if self._positions != before:
                heard = time.monotonic()
            if delivery is not None:
                yield delivery
        while self._held:
            yield self._held.popleft()[1]

    def poll(self, timeout_s: float = 0.0) -> list[Delivery]:
        """What has come; waits for a first one, `timeout_s` at most."""
        found: list[Delivery] = []
        while (delivery := self._next(0.0 if found else timeout_s)) is not None:
            found.append(delivery)
        return found

    def commit(self) -> None:
        """Store how far this client has read, for `start="stored"` of its next life.

        What was given before this call is then not given again; repeats of it that Kafka gets later are.
        """
        offsets = dict(self._positions)
        for _, delivery in self._held:
            place = (delivery.record.topic, delivery.record.partition)
            offsets[place] = min(offsets[place], delivery.record.offset)
        self._transport.commit(self.group, offsets)

    def _next(self, timeout_s: float, ripe: float | None = None) -> Delivery | None:
        """The next delivery, or None after `timeout_s`; with `ripe` what is held back counts as old enough then."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._held and self._held[0][0] <= (time.monotonic() if ripe is None else ripe):
                return self._held.popleft()[1]
            while self._fetched:
                delivery = self._taken(self._fetched.popleft())
                if delivery is not None:
                    return delivery
            left = deadline - time.monotonic()
            self._fetch(max(0.0, min(left, POLL_S)))
            if left <= 0 and not self._fetched:
                return None

    def _taken(self, record: Record) -> Delivery | None:
        self._positions[record.topic, record.partition] = record.offset + 1
        delivery = read_delivery(record, self.client, self._memory)
        if delivery is not None and self._unite_s > 0:
            self._held.append((time.monotonic() + self._unite_s, delivery))
            return None
        return delivery

    # ── topics ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _fetch(self, timeout_s: float) -> None:
        self._look()
        if self._reader is None:
            time.sleep(timeout_s)
        else:
            self._fetched.extend(self._reader.poll(timeout_s))

    def _look(self) -> None:
        """Read what exists and is not read yet: the first subscription makes a delivery topic, perhaps after this
        began.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_S or self._reading.issuperset(self._topics):
            return
        self._looked = now
        existing = [t for t in self._topics if t not in self._reading and self._transport.partitions(t)]
        if not existing:
            return
        assert not self._fetched, "what was fetched is given before more is looked for"
        fresh = [(topic, p) for topic in existing for p in self._transport.partitions(topic)]
        stored = self._transport.committed(self.group, fresh) if self._start == "stored" else {}
        for partition in fresh:
            self._positions.setdefault(partition, stored.get(partition, 0))
        if self._reader is not None:
            self._reader.close()
        self._reader = self._transport.read(self._positions)
        self._reading.update(existing)

    def _ends(self) -> dict[Partition, int]:
        return {(t, p): self._transport.span(t, p)[1] for t in self._topics for p in self._transport.partitions(t)}

    def _before(self, ends: dict[Partition, int]) -> bool:
        """Whether there is something to read before these ends."""
        held = [(delivery.record.topic, delivery.record.partition) for _, delivery in self._held]
        return bool(held) or any(self._positions.get(partition, 0) < end for partition, end in ends.items())

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        super().close()
