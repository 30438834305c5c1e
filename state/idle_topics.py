"""Which delivery topics nobody needs any more: those of clients that have held nothing for the stated time.

    holds nothing      no subscription of the client is live, or lies dormant
    for how long       since the last one ended; what the registry has forgotten ended before `tombstone_hours`
    nothing to read    Kafka holds no message of the topic any more: the retention of each has passed

Pure: what exists and what it holds is told. It is asked when a job begins, before anything can be delivered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from state.config import Config
from state.control.facts import Fact

HOUR_MS = 3_600_000


def idle(config: Config, empty: Collection[str], subscriptions: Iterable[Fact], now_ms: int) -> list[str]:
    """The delivery topics to remove, sorted; `empty`: topics that hold no message, `now_ms`: by the broker's clock.

    None where other deployments host brokers, too: they may be delivering at this moment.
    """
    hours = config.settings.idle_topic_hours
    if hours is None or set(config.deployment.hosts) != set(config.overlay.brokers):
        return []
    head = config.topics.deliver("")
    busy = {fact.owner for fact in subscriptions if fact.live or now_ms - ended_ms(fact) < hours * HOUR_MS}
    return sorted(topic for topic in empty if topic.startswith(head) and topic.removeprefix(head) not in busy)


def ended_ms(fact: Fact) -> int:
    """When a registration ended: it was withdrawn, or its time to live had passed."""
    expired = fact.ended == "expired" and fact.expires_ms is not None
    return max(fact.timestamp_ms, fact.expires_ms or 0) if expired else fact.timestamp_ms
