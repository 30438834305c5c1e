"""Waiting until everything that was sent is in force: what `hilcast wait` does, as a call."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException

from infra.kafka import open_transport
from infra.kafka.retry import retried
from infra.kafka.transport import away, missing_topic
from producers.fence import Behind, Fence
from state.config import Config
from state.errors import HilcastError
from state.topics import inboxes

RETRY_S = 5.0
"""So long at least Kafka is asked again, however short the wait."""


class BehindError(HilcastError):
    """Some broker has not come far enough; `behind` says which, and by how much."""

    def __init__(self, behind: list[Behind], timeout_s: float) -> None:
        super().__init__("behind", f"not in force everywhere after {timeout_s:g} s: {'; '.join(map(str, behind))}")
        self.behind = behind


def wait(config: Config, timeout_s: float = 60.0, *, client: str | None = None) -> None:
    """Return when every control event sent so far, by anybody, is in force at every broker.

    Guarantee: what is published after this returned is judged by them all. Raises `BehindError` at the timeout. Where
    clients have inboxes of their own: by anybody whose inboxes Kafka lets us see, or by one `client` alone.
    """
    require_topics(config)
    deadline = time.monotonic() + timeout_s
    fence = Fence(config, client)
    try:
        # what Kafka cannot answer for a moment, because a leader has just been chosen, is asked again
        behind = retried(lambda: fence.wait(max(0.0, deadline - time.monotonic())), max(timeout_s, RETRY_S))
    except KafkaException as error:
        raise away(config.deployment.kafka, error.args[0].str()) from error
    finally:
        fence.close()
    if behind:
        raise BehindError(behind, timeout_s)


def require_topics(config: Config) -> None:
    """Raise what is wrong, and what to do, if Kafka or the topics of the control plane are not there."""
    transport = open_transport(config)
    try:
        existing = transport.topics()
    finally:
        transport.close()
    for topic in (*inboxes(config), config.topics.control):
        if topic not in existing:
            raise missing_topic(topic)
