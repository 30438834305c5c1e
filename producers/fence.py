"""`hilcast wait`: return when every control event sent so far is in force everywhere. Needs only Kafka.

A deployment is a consumer group `PREFIX.control.NAME`; its commits say how far its control query has come, the commit
metadata which brokers it hosts. One control event causes others, a hop at a time, so one look is not enough: each round
reads the ends of the inboxes and of the control topic and waits until every broker's deployment has committed them.
After as many rounds as a consequence can have steps (`state/limits.py`), everything is in force.

Where clients have inboxes of their own, those count that whoever asks may see: an operator waits for everybody, and a
client that Kafka's ACLs keep from others' topics for itself. The control topic and its commits are everybody's to see.
An inbox that no commit names yet has not been read: it is waited for like any other.

What lies behind a transaction that somebody left open in an inbox is waited for, too, until it is ended or aborted.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from infra.kafka.dialects import librdkafka
from infra.kafka.retry import retried
from state.config import Config
from state.topics import inboxes

POLL_S = 0.1
RETRY_S = 10.0
"""For so long Kafka may not know where a topic ends."""


@dataclass(frozen=True)
class Behind:
    """A broker whose deployment has not come far enough, or that nobody hosts."""

    broker: str
    deployment: str | None
    missing: int
    outdated: bool = False
    """Whether other deployments go by a newer configuration."""

    def __str__(self) -> str:
        if self.deployment is None:
            return f"{self.broker}: no deployment hosts it"
        if self.outdated:
            return f"{self.broker}: deployment {self.deployment} has not taken the newest configuration yet"
        return f"{self.broker}: deployment {self.deployment} is {self.missing} control records behind"


@dataclass(frozen=True)
class Deployed:
    """What the commits of a deployment say of it."""

    hosts: list[str]
    committed: dict[str, int]
    """By topic."""
    configuration: int
    """The version of the configuration that is in force there."""


class Fence:
    """Waits on the control progress of all deployments of one prefix."""

    def __init__(self, config: Config, client: str | None = None) -> None:
        """`client`: wait for its control events alone, where it has inboxes of its own."""
        self.config = config
        self._client = client
        self._admin = AdminClient(librdkafka(config))
        # ends are where anything was sent to, also behind a transaction that is open: the job cannot read that yet
        group = f"{config.deployment.prefix}.fence"
        self._consumer = Consumer({**librdkafka(config), "group.id": group, "isolation.level": "read_uncommitted"})
        self._partitions = [TopicPartition(name, 0) for name in (*inboxes(config), config.topics.control)]
        """What is waited for; clients' own inboxes as they were found when the last round began."""

    def wait(self, timeout_s: float = 60.0) -> list[Behind]:
        """Wait; return who is still behind at the timeout: nobody means that all is in force."""
        deadline = time.monotonic() + timeout_s
        behind: list[Behind] = []
        for _ in range(self.config.fence_rounds()):
            ends = self._ends()
            while behind := self._behind(ends):
                if time.monotonic() > deadline:
                    return behind
                time.sleep(POLL_S)
        return behind

    def _inputs(self) -> list[str]:
        """The inboxes that there are now, and the control topic."""
        topics = self.config.topics
        existing = self._consumer.list_topics(timeout=10.0).topics if self.config.security.own else {}
        found = inboxes(self.config.with_own(existing))
        owners = {topic: topics.client_of(topic) for topic in found}
        mine = [topic for topic, owner in owners.items() if self._client in (None, owner[1] if owner else None)]
        return [*(mine if self.config.security.own else found), topics.control]

    def _ends(self) -> dict[str, int]:
        """Where everything ends that is waited for; an inbox may be new, and Kafka still choosing its leader, or go."""
        return retried(self._ends_now, RETRY_S)

    def _ends_now(self) -> dict[str, int]:
        self._partitions = [TopicPartition(name, 0) for name in self._inputs()]
        ends = {}
        for partition in self._partitions:
            _, ends[partition.topic] = self._consumer.get_watermark_offsets(partition, timeout=10.0)
        return ends

    def _behind(self, ends: dict[str, int]) -> list[Behind]:
        best: dict[str, Behind | None] = {b: Behind(b, None, 0) for b in self.config.overlay.brokers}
        deployments = self.deployments()
        newest = max((d.configuration for d in deployments.values()), default=0)
        for name, deployment in deployments.items():
            committed, outdated = deployment.committed, deployment.configuration < newest
            missing = sum(max(0, end - committed.get(topic, 0)) for topic, end in ends.items())
            missing = max(1, missing) if outdated else missing
            for broker in deployment.hosts:
                known = best.get(broker)
                if broker not in best or known is None:
                    continue
                if missing == 0:
                    best[broker] = None
                elif known.deployment is None or missing < known.missing:
                    best[broker] = Behind(broker, name, missing, outdated)
        return [found for found in best.values() if found is not None]

    def deployments(self) -> dict[str, Deployed]:
        """By name: how far each deployment is, as its commits say."""
        prefix = f"{self.config.deployment.prefix}.control."
        try:
            listed = self._admin.list_consumer_groups(request_timeout=10.0).result()
        except KafkaException:
            return {}
        names = [group.group_id for group in listed.valid if group.group_id.startswith(prefix)]
        found: dict[str, Deployed] = {}
        for name in names:
            request = [ConsumerGroupTopicPartitions(name, self._partitions)]
            try:
                answer = self._admin.list_consumer_group_offsets(request, request_timeout=10.0)[name].result()
            except KafkaException:
                continue  # the group went away, or its coordinator is loading: it counts as behind this time
            offsets = {p.topic: p.offset for p in answer.topic_partitions if p.offset >= 0}
            texts = [p.metadata for p in answer.topic_partitions if p.metadata]
            found[name.removeprefix(prefix)] = _deployed(texts, offsets)
        return found

    def close(self) -> None:
        self._consumer.close()


def _deployed(texts: list[str], offsets: dict[str, int]) -> Deployed:
    """What the commits' metadata say: a share of the hosted brokers in each, and the version of the configuration."""
    hosts: list[str] = []
    configuration = 0
    for text in texts:
        try:
            said = json.loads(text)
            hosts += [str(host) for host in said["hosts"]]
            configuration = max(configuration, int(said.get("configuration", 0)))
        except (ValueError, KeyError, TypeError):
            continue  # not a commit of ours
    return Deployed(hosts, offsets, configuration)
