"""May a subscription be delivered to this topic? Asked before it is accepted: afterwards it is too late.

    sink               created if it is missing; then: can it be written, does it take what deliveries are?
    delivery topic     created later, with others of its batch; here: may we create topics, is one that is there fit?

A topic that the sink of a query cannot write to stops the query. So what Kafka will not let us create, or has made
unfit, is refused with the reason. What Kafka does not say now is waited for: nobody is refused because Kafka is away.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from infra.kafka.topic_keeper import RefusedError, TopicKeeper
from state.errors import HilcastError
from state.topics import destination, metric_name

AGAIN_S = 1.0
REFUSED_S = 5.0
"""For so long a refusal is not asked for again: a batch that is tried anew is answered alike."""
LISTED_S = 5.0
"""For so long what is in the cluster is not asked for again."""


class Destinations:
    """Judges destinations for the home keys of one worker; remembers what it has found fit."""

    def __init__(self, keeper: TopicKeeper, say: Callable[[str], None]) -> None:
        self._keeper = keeper
        self._say = say
        self._prefix = keeper.config.deployment.prefix
        self._fit: set[str] = set()
        self._refused: dict[str, tuple[str, float]] = {}
        self._may_create = False
        self._existing: set[str] = set()
        self._listed_until = float("-inf")

    def __call__(self, topic: str) -> str | None:
        """Why nothing may be delivered to this topic; None if it may. Waits while Kafka does not answer."""
        if topic in self._fit:
            return None
        reason, until = self._refused.get(topic, ("", 0.0))
        if time.monotonic() < until:
            return reason
        told = False
        while True:
            try:
                found = self._judge(topic)
                break
            except (KafkaException, HilcastError) as error:
                if not told:
                    self._say(f"waiting for kafka to say whether {topic!r} may be delivered to: {error}")
                    told = True
                time.sleep(AGAIN_S)
        if found is None:
            self._fit.add(topic)
        else:
            self._refused[topic] = found, time.monotonic() + REFUSED_S
        return found

    def doubt(self) -> None:
        """Something that was found fit could not be created after all: ask again."""
        self._fit.clear()
        self._may_create = False

    def _judge(self, topic: str) -> str | None:
        try:
            if topic.startswith(f"{self._prefix}."):
                return self._judge_own(topic)
            if metric_name(topic).startswith(metric_name(f"{self._prefix}.")):
                return f"Kafka, which takes '.' and '_' for one, cannot tell it from topics under {self._prefix!r}"
            self._keeper.create({topic: destination(self._keeper.config, topic)})
        except RefusedError as error:
            return error.reason
        return self._keeper.unfit([topic], unseen="the job may not look at it").get(topic)

    def _judge_own(self, topic: str) -> str | None:
        """Names under the prefix do not collide: once for all of them it is asked whether topics may be created.

        One that is there already may have been made by somebody else. Thousands of clients whose topics are not there
        yet cost a look at the cluster every few seconds.
        """
        if not self._may_create:
            self._keeper.rehearse(topic)
            self._may_create = True
        now = time.monotonic()
        if now >= self._listed_until:
            self._existing, self._listed_until = self._keeper.existing(), now + LISTED_S
        return self._keeper.unfit([topic]).get(topic) if topic in self._existing else None
