"""Time to live and the end of tombstones: the control plane's one look at a clock, which is Kafka's.

The core has no clock. A follower of the registry knows every expiry; when one is due it sends `expire(id, version)` to
the home that owns it, and again after a while if the registry still shows the fact alive. Due times are counted from
log-append times, and so judged by Kafka's time (`broker_clock.py`), never by the driver's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from state.config import Config
from state.control.facts import Fact
from state.control.protocol import Expire, Forget, Message
from state.keys import home_key
from streaming.registry import FactKey

AGAIN_MS = 15_000


class Timers:
    """Due times of the facts of the hosted brokers."""

    def __init__(self, config: Config, send: Callable[[str, Message], None]) -> None:
        self.config = config
        self._send = send
        self._due: list[tuple[int, FactKey, int, bool]] = []

    def follow(self, key: FactKey, fact: Fact | None) -> None:
        """Note when this fact, as it is now, ends."""
        _, broker, type_name, _ = key
        if fact is None or broker not in self.config.deployment.hosts or type_name not in self.config.types:
            return
        if fact.live and fact.expires_ms is not None:
            heapq.heappush(self._due, (fact.expires_ms, key, fact.version, True))
        elif not fact.live:
            due = fact.timestamp_ms + self.config.settings.tombstone_hours * 3_600_000
            heapq.heappush(self._due, (due, key, fact.version, False))

    @property
    def next_ms(self) -> int | None:
        """When something may be due next."""
        return self._due[0][0] if self._due else None

    def fire(self, now_ms: int, facts: dict[FactKey, Fact]) -> int:
        """Send what is due at this time of Kafka's; return how many."""
        sent = 0
        while self._due and self._due[0][0] <= now_ms:
            _, key, version, live = heapq.heappop(self._due)
            fact = facts.get(key)
            if fact is None or fact.version != version or fact.live != live:
                continue
            kind, broker, type_name, id = key
            make = Expire if live else Forget
            self._send(str(home_key(broker, type_name, id, self.config)), make(kind == "advertisement", id, version))
            heapq.heappush(self._due, (now_ms + AGAIN_MS, key, version, live))
            sent += 1
        return sent
