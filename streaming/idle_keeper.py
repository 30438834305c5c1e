"""Removes the delivery topics of clients that hold nothing, while the job runs: what `state/idle_topics.py` says.

The fence is `min.insync.replicas` of the topic, higher than any number of replicas: Kafka answers writers that it has
not enough of them now, and they try again until it is lifted or the topic is another one. Nothing fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from infra.kafka.topic_keeper import TopicKeeper
from infra.logs import logger
from state.control.facts import Fact
from state.idle_topics import FENCED_MAX_MS, Delivery, IdleTopics
from streaming.checkpoint import Checkpoint

EVERY_S = 60.0
"""Between looks, unless a topic is fenced or soon due."""
AT_ONCE = 500
"""Topics that are looked at more closely in one go."""
_log = logger("watch")


class IdleKeeper:
    """The delivery topics that a deployment may remove; `look` does one step for each that is due."""

    def __init__(
        self,
        topics: TopicKeeper,
        holds: Callable[[str], bool],
        now_ms: Callable[[], int],
        checkpoint: Checkpoint,
    ) -> None:
        """`holds`: whether Kafka holds a message of a topic; `now_ms`: Kafka's time."""
        self._topics, self._holds, self._now_ms, self._checkpoint = topics, holds, now_ms, checkpoint
        self.idle = IdleTopics(checkpoint.idle())
        self._done: float | None = None
        self._next = ""
        """Where in the order of names the next look begins."""

    def look(self, facts: Iterable[Fact], *, stumbled: bool = False) -> None:
        """Fence, lift and remove what there is to; `facts`: of all subscriptions that the registry knows.

        `stumbled`: the route query has failed, so that all that is fenced is looked for, whoever fenced it.
        Cost: nothing for most calls; else a question for the topics of the cluster and for Kafka's time, and a few for
        each topic that is due.
        """
        config, began = self._topics.config, time.monotonic()
        hours = config.settings.idle_topic_hours
        if hours is None and not self.idle.fences:
            return
        every_s = min(EVERY_S, (hours or 0) * 900)
        if self._done is not None and not (stumbled or self.idle.fences) and began - self._done < every_s:
            return
        existing = self._topics.existing()
        now_ms = self._now_ms()
        if stumbled or self._done is None:
            head = config.topics.deliver("")
            self.idle.found(self._topics.fenced(topic for topic in existing if topic.startswith(head)), now_ms)
        self._done = began
        due = self._turn(self.idle.follow(config, existing, facts, now_ms))
        fenced = self._topics.fenced(due)
        # a fence is looked for before the messages: what is empty behind it stays so
        seen = {topic: Delivery(not self._holds(topic), topic in fenced) for topic in due}
        steps = self.idle.steps(config, seen, now_ms)
        self._topics.lift(steps.lift)
        if time.monotonic() - began < FENCED_MAX_MS / 1000:
            self._remove(steps.remove)
        self._topics.fence(steps.fence)
        self.idle.made(steps.fence, self._now_ms() if steps.fence else now_ms)
        self._checkpoint.keep_idle(self.idle.since)

    def _turn(self, names: list[str]) -> list[str]:
        """The next few names, round and round."""
        later = [name for name in names if name > self._next]
        some = [*later, *(name for name in names if name <= self._next)][:AT_ONCE]
        self._next = some[-1] if len(some) < len(names) else ""
        return some

    def _remove(self, topics: Collection[str]) -> None:
        self._topics.delete(topics)
        if topics:
            some = f"{', '.join(sorted(topics)[:5])}{' ...' if len(topics) > 5 else ''}"
            _log.info("removed %d delivery topics that nobody uses: %s", len(topics), some)
