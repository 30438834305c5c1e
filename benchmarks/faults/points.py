"""Kills at named points of a batch, of a generation, of a change of groups.

A point is recognised from outside where it leaves a trace: a file of the checkpoint, a record in Kafka, a command that
Redis was sent. For points without one the job may be asked to die by itself, by HILCAST_DIE_AT; such a kind is left out
as long as the product's text does not name the point. Every job of the campaign runs with HILCAST_DIE_AT=@FILE, so that
one that runs can be asked: one start less for each fault.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from confluent_kafka import KafkaException

from benchmarks.faults.kind import Fault, known
from benchmarks.faults.scene import Scene
from benchmarks.faults.world import HOOK, ROOT

HOOKS = (
    "control-after-redis",  # the index is written, the state is not
    "control-after-sink",  # outputs are in Kafka, the batch is not in the commit log
    "route-after-sink",
    "route-mid-sink",  # some outputs of a task are in Kafka
    "generation-claimed",  # in the registry, nothing else
    "generation-indexed",  # Redis has the new index of a part, control no seed of it
    "generation-half-seeded",
    "generation-seeded",  # generation.json still names the old one
    "generation-amended",  # what the registry said meanwhile is told; the new control query does not run
    "generation-recorded",
    "generation-in-force",
    "groups-announced",  # spans are open, Redis has the old assignment
    "groups-switched",  # the old spans are still open
    "groups-closed",
)
BESIDE = 0.7
"""How often a generation is asked for by `hilcast rebuild`."""
SEEN_S = 30.0
"""So long a point is waited for; then the job is killed wherever it is, which is said."""

Look = Callable[[Scene], bool]


class Point(Fault):
    """The job is killed, driver and JVM, as soon as it is seen to be at a point; then it is started again."""

    expects = "started again, goes on; at most a batch is repeated"
    ends = True
    bound_s = 90.0

    def __init__(self, name: str, watch: Callable[[Scene], Look]) -> None:
        self.name = f"point-{name}"
        self.watch = watch

    def strike(self, scene: Scene) -> None:
        self.kill_when(scene, self.watch(scene), SEEN_S)

    def kill_when(self, scene: Scene, seen: Look, timeout_s: float) -> None:
        """Kill the job at the moment that `seen` holds."""
        deadline = time.monotonic() + timeout_s
        while not seen(scene):
            if time.monotonic() > deadline:
                scene.outcome.remarks.append("the point was not seen")
                break
        scene.job.kill("jvm", "driver")
        scene.job.end()

    def heal(self, scene: Scene) -> None:
        scene.restart()


class GenerationPoint(Point):
    """The same while a generation begins, because the checkpoint is gone."""

    expects = "started again, the generation begins anew"

    def __init__(self, name: str, watch: Callable[[Scene], Look]) -> None:
        super().__init__(f"generation-{name}", watch)

    def strike(self, scene: Scene) -> None:
        scene.job.end()
        scene.deployment.fallen()
        seen = self.watch(scene)
        scene.restart()
        self.kill_when(scene, seen, scene.size.patience_s)


class HookPoint(Point):
    """The job is asked to die at a point that nobody can see from outside."""

    def __init__(self, point: str) -> None:
        self.name, self.point = f"hook-{point}", point

    def impossible(self) -> str | None:
        texts = (path.read_text() for folder in ("streaming", "state") for path in (ROOT / folder).rglob("*.py"))
        known_points = "".join(text for text in texts if HOOK in text or f'"{self.point}"' in text)
        named = HOOK in known_points and f'"{self.point}"' in known_points
        return None if named else f"the job does not know {HOOK}={self.point}"

    def strike(self, scene: Scene) -> None:
        """Ask it; a generation begins beside the one in force, or because the checkpoint is gone."""
        job, rebuilding = scene.job, None
        job.dies_at.write_text(self.point)
        if self.point.startswith("generation"):
            if scene.rng.random() < BESIDE:
                scene.outcome.remarks.append("beside the one in force")
                rebuilding = scene.deployment.asked("rebuild")
            else:
                job.end()
                scene.deployment.fallen()
                scene.restart()
        deadline = time.monotonic() + scene.size.patience_s
        while job.alive and time.monotonic() < deadline:
            time.sleep(0.1)
        if job.alive:
            scene.outcome.remarks.append("the point was not reached")
        job.end()
        job.dies_at.unlink()
        if rebuilding is not None:
            rebuilding.kill()
            rebuilding.communicate()


# ── what can be seen ────────────────────────────────────────────────────────────────────────────────────────────────


def planned(query: str) -> Callable[[Scene], Look]:
    """A batch is in the offset log and not in the commit log."""

    def watch(scene: Scene) -> Look:
        def newest(log: str) -> int:
            names = (path.name for path in scene.deployment.checkpoint.glob(f"{query}-*/{log}/*"))
            return max((int(name) for name in names if name.isdigit()), default=-1)

        first = newest("commits")
        return lambda scene: newest("offsets") > max(newest("commits"), first)

    return watch


def written(topic: str) -> Callable[[Scene], Look]:
    """A record came to a topic: the sink writes, the batch is not committed."""

    def watch(scene: Scene) -> Look:
        before = scene.end_of(topic)

        def seen(scene: Scene) -> bool:
            try:
                return scene.end_of(topic) > before
            except KafkaException:
                return False

        return seen

    return watch


def commanded(*words: bytes) -> Callable[[Scene], Look]:
    """Redis was sent a command that holds all these words: the batch has published, its state is not saved."""

    def watch(scene: Scene) -> Look:
        address = urlsplit(scene.world.services.redis)
        link = socket.create_connection((address.hostname, address.port), timeout=0.5)
        link.sendall(b"MONITOR\r\n")
        wanted = (scene.deployment.prefix.encode(), *words)
        rest = b""

        def seen(scene: Scene) -> bool:
            nonlocal rest
            try:
                *lines, rest = (rest + link.recv(1 << 20)).split(b"\r\n")
            except TimeoutError:
                return False
            return any(all(word in line for word in wanted) for line in lines)

        return seen

    return watch


def exists(pattern: str) -> Callable[[Scene], Look]:
    """The checkpoint has such a file."""

    def watch(scene: Scene) -> Look:
        folder: Path = scene.deployment.checkpoint
        return lambda scene: next(folder.glob(pattern), None) is not None

    return watch


known(
    Point("control-planned", planned("control")),
    Point("route-planned", planned("route")),
    Point("control-sink", written("receipts")),
    Point("control-sent", written("control")),
    Point("route-sink", written("routed")),
    Point("redis-before-state", commanded(b"EVALSHA", b":index")),
    Point("groups-announced", written("groups")),
    Point("groups-switched", commanded(b"EVALSHA", b":groups:index")),
    GenerationPoint("claimed", written("registry")),
    GenerationPoint("indexed", commanded(b"EVALSHA", b":index")),
    GenerationPoint("seeded", written("control")),
    GenerationPoint("recorded", exists("generation.json")),
    GenerationPoint("planned", exists("control-*/offsets/0")),
    GenerationPoint("committed", exists("control-*/commits/0")),
    *(HookPoint(point) for point in HOOKS),
)
