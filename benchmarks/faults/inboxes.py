"""Topics that lose what they held, and thousands of leases that lapse at once."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from benchmarks.faults.kind import Fault, known
from benchmarks.faults.load import Sent
from benchmarks.faults.scene import Scene


class RetentionPasses(Fault):
    """While the job is down, Kafka deletes publications that were not routed yet."""

    name = "retention-passes"
    expects = "what is deleted is lost and said so; the rest is routed"
    bound_s = 120.0
    ends = True

    def strike(self, scene: Scene) -> None:
        scene.job.end()
        scene.load.some(200)
        scene.load.flush(60.0)
        scene.judge.look()
        topic = f"{scene.deployment.prefix}.publications"
        number_of = scene.admin.list_topics(topic, timeout=30.0).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in number_of]
        ends = {p: f.result() for p, f in scene.admin.list_offsets({p: OffsetSpec.latest() for p in places}).items()}
        cut = [TopicPartition(p.topic, p.partition, max(0, end.offset - 50)) for p, end in ends.items()]
        for future in scene.admin.delete_records(cut).values():
            future.result(60.0)
        lows = {p.partition: p.offset for p in cut}
        scene.judge.excuse(lambda place: place[2] < lows[place[1]])

    def heal(self, scene: Scene) -> None:
        scene.restart()

    def after(self, scene: Scene) -> list[str]:
        said = "cannot resume where it was" in scene.job.said() or "goes on behind a gap" in scene.job.said()
        return [] if said else ["nobody said that publications were lost to retention"]


class InboxRecreated(Fault):
    """The inbox of subscriptions is deleted and made again: its offsets begin at 0."""

    name = "inbox-recreated"
    expects = "later changes are answered and come into force"
    bound_s = 180.0
    ends = True

    def strike(self, scene: Scene) -> None:
        scene.load.changing = False
        scene.until(lambda: self._no_lease(scene), "the leases to be over")
        scene.fence()
        topic = f"{scene.deployment.prefix}.subscriptions"
        about = ConfigResource(ResourceType.TOPIC, topic)
        told = next(iter(scene.admin.describe_configs([about]).values())).result(30.0)
        settings = {name: entry.value for name, entry in told.items() if not entry.is_default and entry.value}
        kept = {name: value for name, value in settings.items() if name in ("message.timestamp.type", "retention.ms")}
        scene.job.stop()
        scene.admin.delete_topics([topic])[topic].result(60.0)
        scene.until(lambda: topic not in scene.admin.list_topics(timeout=10.0).topics, "the inbox to be gone", 60.0)
        scene.until(lambda: self._made(scene, NewTopic(topic, 1, 1, config=kept)), "the inbox to be made", 60.0)
        scene.judge.forget(topic)

    def _no_lease(self, scene: Scene) -> bool:
        scene.judge.look()
        return all(each.lease is None or scene.judge.is_over(each.lease) for each in scene.load.subscriptions)

    def _made(self, scene: Scene, new: NewTopic) -> bool:
        try:
            next(iter(scene.admin.create_topics([new]).values())).result(30.0)
        except KafkaException:
            return False  # the old one is not quite gone
        return True

    def heal(self, scene: Scene) -> None:
        scene.restart()
        scene.load.changing = True
        for _ in range(30):
            with scene.load.lock:
                scene.load.change()


class LeasesLapse(Fault):
    """Thousands of subscriptions whose time to live ends at one moment, as when a fleet goes away."""

    name = "leases-lapse"
    expects = "all are said to be over, nothing else waits"
    bound_s = 120.0

    def prepare(self, scene: Scene) -> None:
        name, stamp = scene.deployment.types[scene.rng.randrange(3)], scene.rng.randrange(10**6)
        began, sent = time.time(), []
        for n in range(scene.size.leases):
            lapses_ms = int((began + scene.size.lease_ms / 1000 - time.time()) * 1000)
            text = f"price BETWEEN {n % 900} AND {n % 900 + 3} AND symbol = 'fleet{n}'"
            value = {"client": "fleet", "filter": text, "ttl_ms": max(100, lapses_ms)}
            sent.append(scene.load.send("subscriptions", f"b{n % 5 + 1}/{name}/fleet{stamp}x{n}", value))
        scene.notes["leases"] = sent
        scene.load.flush(120.0)

    def strike(self, scene: Scene) -> None:
        time.sleep(scene.size.lease_ms / 1000)

    def after(self, scene: Scene) -> list[str]:
        leases = scene.notes["leases"]
        assert isinstance(leases, list)
        left = lambda: [s for s in leases if isinstance(s, Sent) and not scene.judge.is_over(s)]  # noqa: E731
        deadline = time.monotonic() + scene.size.patience_s
        while left() and time.monotonic() < deadline:
            time.sleep(1.0)
            scene.judge.look()
        return [f"{len(left())} of {len(leases)} leases were never said to be over"] if left() else []


known(RetentionPasses(), InboxRecreated(), LeasesLapse())
