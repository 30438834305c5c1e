"""Subscribing, and reading what comes: repeats removed, ids of several deployments united."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal

from infra.kafka import Name, Transport
from infra.kafka.transport import Partition, Place, Reader
from producers.client.delivery import Delivery, Memory, read_delivery, read_named
from producers.client.encoding import Encoder
from producers.client.inbox import TIMEOUT_S, Filter, Receipt, RefusedError, Registrant, Request
from producers.client.mapping_option import Mapped, open_mapper
from producers.client.membership import Following
from state.config import Config
from state.messages import Record

if TYPE_CHECKING:
    from producers.client.mapper import Mapper

Start = Literal["beginning", "end", "stored"]

POLL_S = 0.2
SILENCE_S = 5.0
"""An end that is not reached, because Kafka's own marks stand there, is not waited for longer than this."""
LOOK_S = 1.0
"""How often a delivery topic that does not exist yet is looked for."""
GROWN_S = 15.0
"""How often it is looked whether a topic that is read was given more partitions."""


class Subscriber(Registrant):
    """One client: its subscriptions and its deliveries.

    Iterating waits for deliveries for ever, from `start` on: the beginning of what Kafka holds, its end, or what
    `commit` stored. `sinks` are further topics that its subscriptions deliver to. A delivery is given once: of the
    last `memory` deliveries every repeat is known. With `unite_s` a delivery is held back that long, so that copies
    of other deployments have added their ids before it is given; without, they join the `subscriptions` of a
    delivery that was already given.

    A subscription with `groups=True` lets the router serve this client through topics that it shares with others. The
    client then reads them as the topic `groups` says, in every later life too, and leaves out what does not name it.
    Whoever reads a shared topic sees the events and the names of all whom it serves: opt in where that is no secret.

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
        super().__init__(config, "subscriptions", client, transport)
        self.client = client
        self._config = config
        self._mappers: dict[Mapped, Mapper | None] = {}
        self.group = f"{config.deployment.prefix}.client.{client}"
        self._topics = [config.topics.deliver(client), *sinks]
        self._start = start
        self._encoder = Encoder(config)
        self._memory = Memory(memory)
        self._unite_s = unite_s
        self._groups = Following(self._transport, config.topics.groups, client)
        self._reader: Reader | None = None
        self._reading: set[Partition] = set()
        self._partitions: dict[str, tuple[int, ...]] = {}
        """Of topics that were seen to exist."""
        self._moved = False
        """Whether spans changed or the end of one was reached, so that the reader must go on elsewhere."""
        self._looked = self._asked = float("-inf")
        self._fetched: deque[Record] = deque()
        self._held: deque[tuple[float, Delivery]] = deque()
        self._copies: dict[str, list[Place]] = {}
        """By delivery id: where the copies of what is held back stand."""
        self._positions: dict[Partition, int] = {}
        if start == "end":
            self._groups.catch_up()
            self._positions = self._ends()

    @property
    def repeats(self) -> int:
        """How many copies were left out so far."""
        return self._memory.repeats

    @property
    def discarded(self) -> int:
        """How many messages of shared topics were left out so far because they do not name this client."""
        return self._memory.discarded

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
        groups: bool = False,
        mapping: Mapped = False,
        timeout_s: float = TIMEOUT_S,
    ) -> Receipt:
        """Subscribe and wait for the receipt; `RefusedError` if it is refused, `UnansweredError` at the timeout.

        With `mapping` the filter's Hilbert ranges go along (`mapper.py`). Where they are refused as `stale-grid`, and
        Redis by now describes another grid than the one they were made on, they are made again, once.
        """
        send = partial(
            self.request,
            broker,
            type,
            filter,
            version=version,
            ttl_ms=ttl_ms,
            sink=sink,
            groups=groups,
            mapping=mapping,
        )
        request = send(id=id)
        try:
            return request.receipt(timeout_s)
        except RefusedError as error:
            if error.code != "stale-grid" or not self._grid_moved(type, mapping):
                raise
        return send(id=request.id).receipt(timeout_s)

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
        groups: bool = False,
        mapping: Mapped = False,
        timeout_s: float = TIMEOUT_S,
    ) -> Receipt:
        """Replace the filter of a subscription, without a gap for what matches both, and wait for the receipt."""
        return self.subscribe(
            broker, type, filter, id=id, version=version, ttl_ms=ttl_ms, sink=sink, groups=groups, mapping=mapping,
            timeout_s=timeout_s,
        )  # fmt: skip

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
        groups: bool = False,
        mapping: Mapped = False,
    ) -> Request:
        """Subscribe or replace without waiting: to load many, send them all, then ask each for its receipt."""
        value: dict[str, object] = {"client": self.client, "filter": filter}
        if ttl_ms is not None:
            value["ttl_ms"] = ttl_ms
        if groups:
            value["groups"] = True
        if (mapper := self._mapper(mapping)) is not None and (ranges := mapper.ranges(type, filter)) is not None:
            value["ranges"] = ranges
        if sink is not None:
            value["sink"] = sink
            if sink not in self._topics:
                self._topics.append(sink)
                self._looked = float("-inf")
        return self._inbox.send(broker, type, id, value, version)

    def _mapper(self, mapping: Mapped) -> Mapper | None:
        if mapping not in self._mappers:
            self._mappers[mapping] = open_mapper(self._config, mapping)
        return self._mappers[mapping]

    def _grid_moved(self, type: str, mapping: Mapped) -> bool:
        """Fetch a grid again; whether it is another one."""
        mapper = self._mapper(mapping)
        if mapper is None or mapping != "redis":
            return False
        before = mapper.grid(type).hash
        mapper.forget(type)
        return mapper.grid(type).hash != before

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
        self._moved |= self._groups.catch_up()
        ends = self._ends()
        heard = time.monotonic()
        while self._before(ends) and time.monotonic() - heard < SILENCE_S:
            before = dict(self._positions)
            delivery = self._next(POLL_S, ripe=float("inf"))
            if self._positions != before:
                heard = time.monotonic()
            if delivery is not None:
                yield delivery
        while self._held:
            yield self._release()

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
        for topic, partition, offset in (place for copies in self._copies.values() for place in copies):
            offsets[topic, partition] = min(offsets[topic, partition], offset)
        self._transport.commit(self.group, offsets)

    def _next(self, timeout_s: float, ripe: float | None = None) -> Delivery | None:
        """The next delivery, or None after `timeout_s`; with `ripe` what is held back counts as old enough then."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._held and self._held[0][0] <= (time.monotonic() if ripe is None else ripe):
                return self._release()
            while self._fetched:
                delivery = self._taken(self._fetched.popleft())
                if delivery is not None:
                    return delivery
            left = deadline - time.monotonic()
            self._fetch(max(0.0, min(left, POLL_S)))
            if left <= 0 and not self._fetched:
                return None

    def _taken(self, record: Record) -> Delivery | None:
        position = self._positions[record.topic, record.partition] = record.offset + 1
        if record.topic not in self._topics:
            place = (record.topic, record.partition)
            self._moved |= self._groups.spans.next(place, position) != position
        delivery = read_delivery(record, self.client, self._memory, self._encoder)
        if self._unite_s > 0:
            self._hold(record, delivery)
            return None
        return delivery

    def _hold(self, record: Record, delivery: Delivery | None) -> None:
        """Hold a delivery back; of one that is held already, remember where the copy stands."""
        if delivery is not None:
            self._held.append((time.monotonic() + self._unite_s, delivery))
            self._copies.setdefault(delivery.id, []).append(record.place)
        elif self._copies and (named := read_named(record, self.client)) is not None and named[0] in self._copies:
            self._copies[named[0]].append(record.place)

    def _release(self) -> Delivery:
        delivery = self._held.popleft()[1]
        # a repeat that the memory no longer knows is held as a delivery of its own, under the same id
        self._copies.pop(delivery.id, None)
        return delivery

    # ── topics ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _fetch(self, timeout_s: float) -> None:
        self._look()
        if self._reader is None:
            time.sleep(timeout_s)
        else:
            self._fetched.extend(self._reader.poll(timeout_s))

    def _look(self) -> None:
        """Read what there is to read now: the first subscription makes a delivery topic, perhaps after this began, and
        spans begin and end.
        """
        assert not self._fetched, "what was fetched is given before more is looked for"
        self._moved |= self._groups.poll()
        now = time.monotonic()
        if now - self._asked >= GROWN_S:
            self._follow_growth()
        shared = self._groups.spans.places()
        missing = any(topic not in self._partitions for topic in self._topics)
        missing |= any(p not in self._partitions.get(topic, ()) for topic, p in shared)
        if not self._moved and (not missing or now - self._looked < LOOK_S):
            return
        self._looked = now
        starts = self._starts()
        if self._moved or starts.keys() != self._reading:
            self._read(starts)

    def _read(self, starts: dict[Partition, int]) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = self._transport.read(starts) if starts else None
        self._reading = set(starts)
        self._moved = False

    def _starts(self) -> dict[Partition, int]:
        """Every partition that is to be read now, and from where."""
        shared = [(t, p) for t, p in self._groups.spans.places() if t not in self._topics and p in self._existing(t, p)]
        existing = [*((topic, p) for topic in self._topics for p in self._existing(topic)), *shared]
        fresh = [partition for partition in existing if partition not in self._positions]
        stored = self._transport.committed(self.group, fresh) if fresh and self._start == "stored" else {}
        for topic, p in fresh:
            # Kafka may have deleted what a span begins with, or all of it
            held = self._transport.span(topic, p)[0] if (topic, p) in shared else 0
            self._positions[topic, p] = max(stored.get((topic, p), 0), held)
        starts = {}
        for topic, p in existing:
            position = self._positions[topic, p]
            ahead = self._groups.spans.next((topic, p), position) if (topic, p) in shared else position
            if ahead is not None:
                starts[topic, p] = self._positions[topic, p] = ahead
        return starts

    def _existing(self, topic: str, wanted: int = 0) -> tuple[int, ...]:
        """The partitions of a topic; none as long as it does not exist. It may have grown: `wanted` is looked for."""
        if wanted not in self._partitions.get(topic, ()) and (found := self._transport.partitions(topic)):
            self._partitions[topic] = found
        return self._partitions.get(topic, ())

    def _follow_growth(self) -> None:
        """Take notice of the partitions that topics were given; a new one is read from its beginning."""
        self._asked = time.monotonic()
        for topic in self._topics:
            found = self._transport.partitions(topic)
            if found and found != self._partitions.get(topic):
                self._partitions[topic] = found
                self._moved = True

    def _ends(self) -> dict[Partition, int]:
        """Where everything ends now that is read, or will be once its topic is looked for."""
        self._follow_growth()
        ends = {(t, p): self._transport.span(t, p)[1] for t in self._topics for p in self._transport.partitions(t)}
        for topic, p in self._groups.spans.places():
            last = self._groups.spans.end((topic, p))
            if (topic, p) not in ends and p in self._transport.partitions(topic):
                low, end = self._transport.span(topic, p)
                ahead = self._groups.spans.next((topic, p), max(low, self._positions.get((topic, p), 0)))
                if ahead is not None:
                    ends[topic, p] = end if last is None else min(end, last)
        return ends

    def _before(self, ends: dict[Partition, int]) -> bool:
        """Whether there is something to read before these ends."""
        held = [(delivery.record.topic, delivery.record.partition) for _, delivery in self._held]
        return bool(held) or any(self._positions.get(partition, 0) < end for partition, end in ends.items())

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._groups.close()
        super().close()
