"""Processes killed with -9 or stopped for a while: of the job, Kafka, Redis."""

from __future__ import annotations

import signal
import time

from benchmarks.faults.kind import Fault, known
from benchmarks.faults.scene import Scene
from benchmarks.faults.world import gone, signalled

OF_JOB = ("driver", "jvm", "daemon", "worker")
OF_SERVICES = ("kafka", "redis")
DYING_S = 90.0
"""So long a driver may need to notice that its JVM is gone."""


def victim(scene: Scene, role: str) -> int:
    """One process of this role, drawn where there are several."""
    if role in OF_SERVICES:
        pid = scene.world.pid(role)
        assert pid is not None, role
        return pid
    found = scene.job.processes()
    if role == "daemon" and not found[role] and found["worker"]:
        # all were killed before, and their workers live on: Spark begins another daemon when it lacks a worker
        signalled(scene.rng.choice(found["worker"]), signal.SIGKILL)
    scene.until(lambda: scene.job.processes()[role], f"a {role}", 60.0)
    return scene.rng.choice(scene.job.processes()[role])


class Kill(Fault):
    """`kill -9` of one process."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"kill-{role}"
        self.ends = role in ("driver", "jvm")
        self.expects = "started again, goes on" if self.ends or role in OF_SERVICES else "goes on by itself"

    def strike(self, scene: Scene) -> None:
        time.sleep(scene.rng.uniform(0.0, 1.0))
        pid = victim(scene, self.role)
        signalled(pid, signal.SIGKILL)
        scene.until(lambda: gone(pid), f"the {self.role} to be gone", 30.0)  # dying takes a moment

    def heal(self, scene: Scene) -> None:
        if self.role in OF_SERVICES:
            scene.world.services.up()
        if self.role == "driver":
            scene.restart()
        if self.role == "jvm":
            deadline = time.monotonic() + DYING_S
            while scene.job.alive and time.monotonic() < deadline:
                time.sleep(0.2)
            if scene.job.alive:
                scene.outcome.findings.append(f"the driver lives on, {DYING_S:.0f} s after its JVM was killed")
                scene.job.end()
            scene.restart()


class Stop(Fault):
    """SIGSTOP of one process, and SIGCONT a drawn while later: it comes back as a ghost of before."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"stop-{role}"
        self.expects = "goes on by itself"
        self.ends = role == "driver"  # the JVM may give its driver up

    def strike(self, scene: Scene) -> None:
        scene.notes["pid"] = pid = victim(scene, self.role)
        signalled(pid, signal.SIGSTOP)

    def heal(self, scene: Scene) -> None:
        time.sleep(scene.rng.uniform(*scene.size.stop_s))
        pid = scene.notes["pid"]
        assert isinstance(pid, int)
        signalled(pid, signal.SIGCONT)


known(*(Kill(role) for role in (*OF_JOB, *OF_SERVICES)), *(Stop(role) for role in (*OF_JOB, *OF_SERVICES)))
