"""Kafka and Redis away, emptied, old, or unwilling to write."""

from __future__ import annotations

import signal
import time

from benchmarks.faults.kind import Fault, known
from benchmarks.faults.scene import Scene
from benchmarks.faults.world import gone, signalled


class KafkaAway(Fault):
    """Kafka is killed and comes back after minutes."""

    name = "kafka-away"
    expects = "both queries go on by themselves once it is back"
    bound_s = 240.0

    def strike(self, scene: Scene) -> None:
        pid = scene.world.pid("kafka")
        assert pid is not None
        signalled(pid, signal.SIGKILL)
        scene.until(lambda: gone(pid), "Kafka to be gone", 30.0)

    def heal(self, scene: Scene) -> None:
        time.sleep(scene.size.away_s)
        scene.world.services.up()


class KafkaRestart(Fault):
    """Kafka is stopped in order and started again at once."""

    name = "kafka-restart"

    def strike(self, scene: Scene) -> None:
        pid = scene.world.pid("kafka")
        assert pid is not None
        signalled(pid, signal.SIGTERM)
        scene.until(lambda: gone(pid), "Kafka to be gone", 60.0)

    def heal(self, scene: Scene) -> None:
        scene.world.services.up()


class LeaderLost(Fault):
    """Of three nodes the one that leads the control topic is killed, and stays away until others lead."""

    name = "kafka-leader-lost"
    expects = "another node leads, both queries go on by themselves; nothing is lost"
    nodes = 3
    bound_s = 120.0

    def strike(self, scene: Scene) -> None:
        pid = scene.world.pid("kafka")
        assert pid is not None
        signalled(pid, signal.SIGKILL)
        scene.until(lambda: gone(pid), "the node to be gone", 30.0)
        scene.routing_since(time.time(), self)  # while one of three is missing

    def heal(self, scene: Scene) -> None:
        scene.world.services.up()


class RedisEmptied(Fault):
    """FLUSHALL."""

    name = "redis-emptied"
    expects = "the index is written again"

    def strike(self, scene: Scene) -> None:
        scene.redis.flushall()


class RedisDump(Fault):
    """Redis is killed and comes back with a dump of some seconds ago."""

    name = "redis-dump"
    expects = "what the dump holds is not taken for the present"

    def prepare(self, scene: Scene) -> None:
        scene.redis.save()
        time.sleep(3.0)  # changes go on meanwhile

    def strike(self, scene: Scene) -> None:
        pid = scene.world.pid("redis")
        assert pid is not None
        signalled(pid, signal.SIGKILL)
        scene.until(lambda: gone(pid), "Redis to be gone", 30.0)

    def heal(self, scene: Scene) -> None:
        scene.world.services.up()
        scene.world.forget_dump()


class RedisStale(Fault):
    """Redis answers with everything as it was some seconds ago, as a primary does that had been demoted meanwhile."""

    name = "redis-stale"
    expects = "old contents are noticed; nothing that was fenced is lost"

    def prepare(self, scene: Scene) -> None:
        keys = list(scene.redis.scan_iter(count=1000))
        copies = [scene.redis.dump(key) for key in keys]
        scene.notes["copy"] = [(k, v) for k, v in zip(keys, copies, strict=True) if v is not None]
        time.sleep(4.0)
        scene.in_force()  # what changed meanwhile is promised

    def strike(self, scene: Scene) -> None:
        pipe = scene.redis.pipeline(transaction=True)
        pipe.flushall()
        for key, value in scene.notes["copy"]:  # type: ignore[attr-defined]
            pipe.restore(key, 0, value, replace=True)
        pipe.execute()


class RedisUnwilling(Fault):
    """Redis answers, and refuses writes, until it has refused some and a drawn while longer."""

    expects = "waits for a Redis that takes writes, and says so"
    error = ""

    def _refused(self, scene: Scene) -> int:
        told = scene.redis.info("errorstats").get(f"errorstat_{self.error}", {})
        return int(told.get("count", 0))

    def prepare(self, scene: Scene) -> None:
        scene.notes["refused"] = self._refused(scene)

    def heal(self, scene: Scene) -> None:
        scene.until(lambda: self._refused(scene) > scene.notes["refused"], "a write to be refused")  # type: ignore[operator]
        time.sleep(scene.rng.uniform(*scene.size.stop_s))
        self.undo(scene)

    def undo(self, scene: Scene) -> None:
        """Let it take writes again."""


class RedisReadonly(RedisUnwilling):
    """Redis becomes a replica of nobody."""

    name = "redis-readonly"
    error = "READONLY"

    def strike(self, scene: Scene) -> None:
        scene.redis.replicaof("127.0.0.1", "1")

    def undo(self, scene: Scene) -> None:
        scene.redis.replicaof("NO", "ONE")


class RedisFull(RedisUnwilling):
    """Redis has no memory left."""

    name = "redis-full"
    error = "OOM"

    def strike(self, scene: Scene) -> None:
        scene.redis.config_set("maxmemory", "1mb")

    def undo(self, scene: Scene) -> None:
        scene.redis.config_set("maxmemory", "0")


class RedisDamaged(Fault):
    """Some index entries are overwritten with other bytes."""

    name = "redis-damaged"
    expects = "damaged parts are noticed and written again"

    def strike(self, scene: Scene) -> None:
        keys = sorted(scene.redis.scan_iter(match=f"{scene.deployment.prefix}:*:index:*", count=1000))
        for key in scene.rng.sample(keys, min(3, len(keys))):
            value = bytearray(scene.redis.get(key) or b"")
            if value:
                value[scene.rng.randrange(len(value))] ^= 0x55
                scene.redis.set(key, bytes(value))


known(
    KafkaAway(),
    KafkaRestart(),
    LeaderLost(),
    RedisEmptied(),
    RedisDump(),
    RedisStale(),
    RedisReadonly(),
    RedisFull(),
    RedisDamaged(),
)
