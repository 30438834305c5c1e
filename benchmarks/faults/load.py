"""The load: publishers, subscribers that change, leases and advertisements, in a thread; and a memory of all of it.

Time is cut into windows. While a window is open a subscription may have any of the states it had since the window
began: a list of filters, None for none, the newest last. Whoever closes a window (`Load.close`) has made sure that
what was sent is in force, and the next one begins with the newest state alone. An event belongs to the window that it
was sent in.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.faults.world import ATTRIBUTES, BROKERS, Deployment
from benchmarks.workloads.mixed import events, filters
from tests import oracle

IDS = 12
"""Subscriptions of each type; the first third is never changed."""
BODIES = 300
STANDING = {"low": ("price < 500", ["b1", "b4"]), "high": ("NOT (price < 500)", ["b3", "b5"])}
"""Publishers whose advertisements stay: what each promises, and where."""
PROBE = {"symbol": "probe", "price": 100.0, "volume": 1, "side": "buy"}
PROBE_S = 0.5
TICK_S = 0.1
STRANGERS = 0.01
"""Share of the events of types with advertisements that nobody advertised: each must become a dead letter."""

Place = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(slots=True)
class Event:
    """One publication that was sent; its id is its number in `Load.events`."""

    type: str
    body: int
    window: int
    sent_s: float
    stranger: bool = False
    place: Place | None = None
    """Where Kafka put it; None while that is not known."""


@dataclass
class Subscription:
    """One subscription that comes and goes, and the states it may be in."""

    type: str
    id: str
    broker: str
    client: str
    sink: str | None
    groups: bool
    states: list[str | None] = field(default_factory=lambda: [None])
    lease: Sent | None = None
    """The newest change, if it is one that lapses by itself."""

    @property
    def key(self) -> str:
        return f"{self.broker}/{self.type}/{self.id}"


@dataclass
class Sent:
    """A control event that was sent; Kafka's answer fills in the place."""

    key: bytes | None
    place: Place | None = None
    lapses_s: float = 0.0


class Load(threading.Thread):
    """Publishes and changes, at the rates of its deployment's size, until `stop`."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        super().__init__(daemon=True, name="load")
        self.deployment, self.size = deployment, deployment.size
        self.rng = random.Random(f"load {seed}")
        self.producer = Producer(
            {
                "bootstrap.servers": deployment.services.kafka,
                "enable.idempotence": True,
                "linger.ms": 5,
                # Kafka measures what is compressed: a record of megabytes passes, if it is dull enough
                "compression.type": "lz4",
                "message.max.bytes": 8_000_000,
                "message.timeout.ms": 900_000,
                "queue.buffering.max.kbytes": 500_000,
                "log_level": 0,
            }
        )
        shaped = SimpleNamespace(
            attributes=[
                SimpleNamespace(**{"values": (), "min": None, "max": None, **about}, name=name)
                for name, about in ATTRIBUTES.items()
            ]
        )
        self._filter, make = filters(shaped, seed), events(shaped, seed)
        self.bodies = [PROBE, *(make() for _ in range(BODIES))]
        self._values = [json.dumps(body).encode() for body in self.bodies]
        self._publishers = [self._publisher(body) for body in self.bodies]
        self.events: list[Event] = []
        self._first_open = 0
        """All events before this one are in Kafka."""
        self.control: list[Sent] = []
        self.odd: dict[str, str] = {}
        """Filters of the faults' own subscriptions that events of the load may satisfy, by id."""
        self.lost: list[str] = []
        """What Kafka did not take; must stay empty."""
        self.window = 0
        self.closed: list[dict[str, list[tuple[Subscription, tuple[str | None, ...]]]]] = []
        """Of each closed window: by type, the subscriptions with the states they may have been in."""
        self.subscriptions = [
            self._subscription(t, name, n) for t, name in enumerate(deployment.types) for n in range(IDS)
        ]
        self.subscriptions += [self._prober(name) for name in deployment.types]
        self.changing = False
        self._ended = threading.Event()
        self.lock = threading.RLock()

    # ── the cast ────────────────────────────────────────────────────────────────────────────────────────────────

    def _subscription(self, number: int, name: str, n: int) -> Subscription:
        place = number + n
        sink = f"{self.deployment.prefix}-sink-{place % 3}" if n % 5 == 4 else None
        groups = n % 3 > 0 and sink is None
        return Subscription(name, f"{name.replace('.', '-')}_{n}", BROKERS[place % 5], f"c{place % 7}", sink, groups)

    def _prober(self, name: str) -> Subscription:
        return Subscription(name, f"probe_{name.replace('.', '-')}", "b5", "probe", None, False)

    def _publisher(self, body: dict[str, object]) -> str | None:
        return next((p for p, (text, _) in STANDING.items() if oracle.evaluate(text, body, ATTRIBUTES)), None)

    def cast(self) -> None:
        """Advertise what stays, and subscribe everything once."""
        for publisher, (text, brokers) in STANDING.items():
            for name in self.deployment.types:
                for broker in brokers if name.endswith(".adv") else ():
                    self.send(
                        "advertisements", f"{broker}/{name}/{publisher}", {"publisher": publisher, "filter": text}
                    )
        for each in self.subscriptions:
            self.subscribe(each, "symbol = 'probe'" if each.client == "probe" else self._filter())

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        placed: Callable[[Place], None] = lambda place: None,
        timestamp_ms: int = 0,
    ) -> None:
        """Send one record to a topic under the prefix; `placed` is told where Kafka put it."""

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.lost.append(f"{message.topic()}: {error}")
            else:
                placed((message.topic(), message.partition(), message.offset()))

        while True:
            try:
                name = f"{self.deployment.prefix}.{topic}"
                about = {"headers": list(headers), "timestamp": timestamp_ms, "on_delivery": told}
                self.producer.produce(name, key=key, value=value, **about)
                return
            except BufferError:
                self.producer.poll(0.1)

    def send(
        self,
        topic: str,
        key: str | bytes | None,
        value: object,
        lapses_s: float = 0.0,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int = 0,
    ) -> Sent:
        """Send a control event; it must be answered."""
        raw = key.encode() if isinstance(key, str) else key
        sent = Sent(raw, lapses_s=lapses_s)
        self.control.append(sent)
        text = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        self.produce(topic, raw, text, headers, lambda place: setattr(sent, "place", place), timestamp_ms)
        return sent

    def subscribe(self, each: Subscription, text: str, ttl_ms: int | None = None) -> None:
        value: dict[str, object] = {"client": each.client, "filter": text}
        value |= {"groups": True} if each.groups else {}
        value |= {"sink": each.sink} if each.sink else {}
        value |= {"ttl_ms": ttl_ms} if ttl_ms else {}
        lapses_s = time.time() + ttl_ms / 1000 if ttl_ms else 0.0
        sent = self.send("subscriptions", each.key, value, lapses_s)
        each.states += [text, None] if ttl_ms else [text]
        each.lease = sent if ttl_ms else None

    def change(self) -> None:
        """Subscribe, replace, withdraw, or let lapse; now and then an advertisement comes or goes."""
        free = [
            each for each in self.subscriptions if each.client != "probe" and int(each.id.split("_")[1]) >= IDS // 3
        ]
        each, chance = self.rng.choice(free), self.rng.random()
        if chance < 0.3 and each.states[-1] is not None:
            self.send("subscriptions", each.key, None)
            each.states.append(None)
            each.lease = None
        else:
            self.subscribe(each, self._filter(), self.rng.randint(300, 8000) if chance > 0.8 else None)
        if each.type.endswith(".adv") and self.rng.random() < 0.2:
            value = None if self.rng.random() < 0.5 else {"publisher": "extra", "filter": self._filter()}
            at = f"{self.rng.choice(BROKERS)}/{each.type}/extra{self.rng.randint(0, 2)}"
            self.send("advertisements", at, value)

    def publish(self, name: str, body: int) -> Event:
        """Send one event of the pool."""
        source, brokers = "any", BROKERS
        if name.endswith(".adv"):
            source = self._publishers[body] or "low"
            brokers = STANDING[source][1]
        stranger = name.endswith(".adv") and (self._publishers[body] is None or self.rng.random() < STRANGERS)
        stranger = stranger and body != 0
        event = Event(name, body, self.window, time.time(), stranger)
        number = len(self.events)
        self.events.append(event)
        about = {"id": str(number), "source": "stranger" if stranger else source, "type": name, "specversion": "1.0"}
        about["broker"] = self.rng.choice(brokers)
        headers = [(f"ce_{k}", v.encode()) for k, v in about.items()]
        key = str(number).encode()
        self.produce("publications", key, self._values[body], headers, lambda place: setattr(event, "place", place))
        return event

    def some(self, count: int) -> None:
        """Publish so many events of any type."""
        with self.lock:
            for _ in range(count):
                self.publish(self.rng.choice(self.deployment.types), self.rng.randint(1, BODIES))

    def probe(self) -> None:
        """One event for the standing probes of a type without and of one with advertisements."""
        with self.lock:
            for name in self.deployment.types[:2]:
                self.publish(name, 0)

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        due_s = probed_s = time.monotonic()
        owed_events = owed_changes = 0.0
        while not self._ended.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s + TICK_S, time.monotonic() - 1.0)
            owed_events += self.size.rate * TICK_S
            owed_changes += self.size.changes * TICK_S if self.changing else 0.0
            with self.lock:
                self.some(int(owed_events))
                while owed_changes >= 1.0 and self.changing:
                    self.change()
                    owed_changes -= 1.0
                if time.monotonic() - probed_s > PROBE_S:
                    probed_s = time.monotonic()
                    self.probe()
            owed_events -= int(owed_events)
            self.producer.poll(0)

    def stop(self) -> None:
        """Send nothing more."""
        self._ended.set()
        if self.ident is not None:  # it was started
            self.join(30.0)
        self.producer.flush(10.0)

    def flush(self, timeout_s: float) -> bool:
        """Whether everything sent so far is in Kafka, waiting for it so long."""
        with self.lock:
            events, control = len(self.events), len(self.control)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._placed(events) and all(e.place for e in self.control[:control]):
                return True
            self.producer.poll(0.1)
        return False

    def _placed(self, events: int) -> bool:
        """Whether Kafka has the first so many events; each is looked at once."""
        while self._first_open < events and self.events[self._first_open].place is not None:
            self._first_open += 1
        return self._first_open >= events

    # ── windows ─────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self, lapsed: Callable[[Sent], bool]) -> int:
        """Close the window, which the caller has made sure of, and return its number.

        `lapsed` tells whether a lease is known to be over; one that is not may be or may not.
        """
        with self.lock:
            by_type: dict[str, list[tuple[Subscription, tuple[str | None, ...]]]] = {}
            for each in self.subscriptions:
                by_type.setdefault(each.type, []).append((each, tuple(dict.fromkeys(each.states))))
                open_lease = each.lease is not None and not lapsed(each.lease)
                del each.states[: -2 if open_lease else -1]
            self.closed.append(by_type)
            self.window += 1
            return self.window - 1
