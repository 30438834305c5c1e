"""Where live subscriptions deliver to, counted as facts come and go: nobody lists all facts to know.

registry ── a fact that changed ──> count of its destination, up or down ──> names that came or went
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from state.config import Config
from state.control.facts import Fact
from streaming.registry import FactKey


class WantedDestinations:
    """Destinations of the live subscriptions of all brokers, and of those that are hosted here."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._of: dict[FactKey, tuple[str, bool]] = {}
        """By live subscription: its destination, and whether that is a sink."""
        self._hosted: Counter[str] = Counter()
        self._sinks: Counter[str] = Counter()

    @property
    def hosted(self) -> Collection[str]:
        """Destinations that the hosted brokers deliver to."""
        return self._hosted.keys()

    @property
    def sinks(self) -> Collection[str]:
        """Topics that subscriptions at any broker deliver to instead of the client's own."""
        return self._sinks.keys()

    def follow(self, key: FactKey, fact: Fact | None) -> None:
        """Take notice of a fact of the registry. Cost: O(1)."""
        kind, broker, _, _ = key
        if kind != "subscription":
            return
        before = self._of.pop(key, None)
        if before is not None:
            self._count(broker, *before, -1)
        if fact is not None and fact.live:
            now = fact.sink or self._config.topics.deliver(fact.owner or ""), fact.sink is not None
            self._of[key] = now
            self._count(broker, *now, 1)

    def _count(self, broker: str, destination: str, is_sink: bool, by: int) -> None:
        counts = [self._hosted] if broker in self._config.deployment.hosts else []
        for count in [*counts, self._sinks] if is_sink else counts:
            count[destination] += by
            if not count[destination]:
                del count[destination]
