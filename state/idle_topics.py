"""Which delivery topics nobody needs any more, and how they are removed without losing what comes at that moment.

    holds nothing      no subscription of the client is live, or lies dormant, at any broker of any deployment
    for how long       since the last one ended; where the registry knows of none, since that was first seen
    nothing to read    Kafka holds no message of the topic any more: the retention of each has passed

A client may subscribe again, and be served, between a look and a removal. So a topic is fenced first: from then on
Kafka takes nothing into it, and whoever delivers waits, as he does for a node that is away.

    due, empty ──fence──> fenced ──still empty, still nobody's──> removed; whoever was waiting is served by a new one
                            │
                            └── somebody's again, or not empty: something came just before ──> lifted, as before

What is empty behind a fence stays empty. So nothing that was ever written is removed, whoever delivers, and however
late anybody heard of it. Only the deployment that hosts the first broker of the overlay removes. A fence that another
life made is taken over after `FOREIGN_MS`: until then its maker may be about to remove.
Left out: Kafka's admin API does not remove a topic by its id, so that a driver that stands still for a minute exactly
between its last look at the clock and the request could remove what another has made anew. Pure: all is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from state.config import Config
from state.control.facts import Fact

HOUR_MS = 3_600_000
SETTLE_MS = 3_000
"""After so long every node knows of a fence."""
FENCED_MAX_MS = 30_000
"""Whoever has not removed a topic by then begins again."""
FOREIGN_MS = 90_000


class Delivery(NamedTuple):
    """A delivery topic as Kafka shows it."""

    empty: bool
    fenced: bool


class Steps(NamedTuple):
    """What is to be done now, each sorted."""

    fence: list[str]
    lift: list[str]
    remove: list[str]


class IdleTopics:
    """The delivery topics of clients that hold nothing, as one deployment has seen them. All times are Kafka's."""

    def __init__(self, since: Mapping[str, int] | None = None) -> None:
        self.since = dict(since or {})
        """By topic: since when its client has held nothing. Worth keeping from one life to the next."""
        self._held: frozenset[str] = frozenset()
        self._ours: dict[str, int] = {}
        """Fences that we have made or taken over, and when."""
        self._foreign: dict[str, int] = {}
        """Fences that we have not made, and since when we see them."""

    @property
    def fences(self) -> bool:
        """Whether a topic is fenced now: then it should be looked at soon."""
        return bool(self._ours or self._foreign)

    def follow(self, config: Config, existing: Iterable[str], subscriptions: Iterable[Fact], now_ms: int) -> list[str]:
        """Take notice of what there is; return the topics that want a closer look.

        Cost: O(topics + subscriptions).
        """
        head = config.topics.deliver("")
        topics = {topic for topic in existing if topic.startswith(head)}
        ended: dict[str, int] = {}
        held = set()
        for fact in subscriptions:
            topic = head + (fact.owner or "")
            if fact.live:
                held.add(topic)
            elif topic in topics:
                ended[topic] = max(ended.get(topic, 0), ended_ms(fact))
        self._held = frozenset(held)
        self.since = {topic: ended.get(topic, self.since.get(topic, now_ms)) for topic in topics - held}
        for fences in (self._ours, self._foreign):
            for topic in fences.keys() - topics:
                del fences[topic]
        due = {topic for topic in self.since if self._is_due(config, topic, now_ms)}
        return sorted(due | self._ours.keys() | self._foreign.keys())

    def made(self, topics: Iterable[str], now_ms: int) -> None:
        """Take notice that these are fenced by us, since `now_ms` or before."""
        self._ours.update(dict.fromkeys(topics, now_ms))

    def found(self, topics: Iterable[str], now_ms: int) -> None:
        """Take notice of fences that were seen, whoever made them."""
        for topic in topics:
            if topic not in self._ours:
                self._foreign.setdefault(topic, now_ms)

    def steps(self, config: Config, seen: Mapping[str, Delivery], now_ms: int) -> Steps:
        """What to do about the topics that were looked at; they were looked at no earlier than `now_ms`."""
        steps = Steps([], [], [])
        self.found((topic for topic, delivery in seen.items() if delivery.fenced), now_ms)
        for topic, delivery in sorted(seen.items()):
            if not delivery.fenced:
                self._ours.pop(topic, None)
                self._foreign.pop(topic, None)
            elif topic in self._foreign:
                if now_ms - self._foreign[topic] < FOREIGN_MS:
                    continue
                del self._foreign[topic]
                self._ours[topic] = now_ms
            due = delivery.empty and topic not in self._held and self._is_due(config, topic, now_ms)
            if due and not delivery.fenced:
                steps.fence.append(topic)
            elif due and now_ms - self._ours[topic] <= FENCED_MAX_MS:
                if now_ms - self._ours[topic] >= SETTLE_MS:
                    steps.remove.append(topic)
            elif delivery.fenced:
                steps.lift.append(topic)
        return steps

    def _is_due(self, config: Config, topic: str, now_ms: int) -> bool:
        hours = config.settings.idle_topic_hours
        if hours is None or config.overlay.brokers[0] not in config.deployment.hosts:
            return False
        return topic in self.since and now_ms - self.since[topic] >= hours * HOUR_MS


def ended_ms(fact: Fact) -> int:
    """When a registration ended: it was withdrawn, or its time to live had passed."""
    expired = fact.ended == "expired" and fact.expires_ms is not None
    return max(fact.timestamp_ms, fact.expires_ms or 0) if expired else fact.timestamp_ms
