"""Two drivers, a driver whose clock is off, and a driver that comes back with another configuration."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.faults.kind import Fault, known
from benchmarks.faults.load import Sent
from benchmarks.faults.scene import Scene
from benchmarks.faults.world import Job

OFF_S = 600
CLOCK = """\
import time
_true = time.time
_true_ns = time.time_ns
time.time = lambda: _true() + {off}
time.time_ns = lambda: _true_ns() + {off} * 10**9
"""
"""A `sitecustomize`, which Python runs before anything else: the clock of the job's Python from its first line on."""


class SecondOnCheckpoint(Fault):
    """A second `hilcast run` of the same configuration, while the first one runs."""

    name = "two-drivers-one-checkpoint"
    expects = "the second is refused, the first goes on"

    def strike(self, scene: Scene) -> None:
        second = Job(scene.deployment.path, scene.deployment.folder / "second.log")
        scene.extra_jobs.append(second)
        second.start()

    def heal(self, scene: Scene) -> None:
        second = scene.extra_jobs.pop()
        deadline = time.monotonic() + scene.size.patience_s
        while second.alive and not second.ready and time.monotonic() < deadline:
            time.sleep(0.2)
        if second.alive or "checkpoint-locked" not in second.said():
            scene.outcome.findings.append(f"the second driver was not refused: {second.said()[-200:]!r}")
        second.end()


class SecondElsewhere(Fault):
    """A second job of the same name with a checkpoint of its own, as on another host."""

    name = "two-drivers-two-checkpoints"
    expects = "the superseded one stops itself and says so"
    bound_s = 120.0
    ends = True

    def strike(self, scene: Scene) -> None:
        folder = scene.deployment.folder / f"second-{scene.rng.randrange(10**6)}"
        folder.mkdir()
        path = folder / "hilcast.toml"
        path.write_text(scene.deployment.text(folder / "checkpoint"))
        second = Job(path, folder / "job.log")
        scene.extra_jobs.append(second)
        second.start()
        scene.until(lambda: second.ready or not second.alive, "the second driver to be ready")

    def heal(self, scene: Scene) -> None:
        second = scene.extra_jobs.pop()
        deadline = time.monotonic() + 30.0
        while scene.job.alive and second.alive and time.monotonic() < deadline:
            scene.load.some(5)
            time.sleep(0.5)
        if scene.job.alive and second.alive:
            scene.outcome.findings.append("two drivers of one deployment ran side by side for 30 s")
        scene.job.end()
        second.end()
        scene.restart()


class ClockOff(Fault):
    """The clock of the job's Python is ten minutes off for a while, then right again: a step each way."""

    ends = True
    bound_s = 120.0

    def __init__(self, name: str, off_s: int) -> None:
        self.name = f"clock-{name}"
        self.off_s = off_s
        self.expects = "leases are judged by Kafka's clock, groups by their order; nothing is lost"

    def prepare(self, scene: Scene) -> None:
        name = scene.deployment.types[0]
        value = {"client": "mallory", "filter": "symbol = 'mallory'", "ttl_ms": OFF_S * 1000 // 2}
        keys = [f"b{n}/{name}/clock{scene.rng.randrange(10**6)}" for n in range(1, 6)]
        scene.notes["leases"] = [scene.load.send("subscriptions", key, value) for key in keys]

    def strike(self, scene: Scene) -> None:
        folder = Path(scene.deployment.folder / f"clock{self.off_s}")
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(CLOCK.format(off=self.off_s))
        scene.job.end()
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        scene.restart(PYTHONPATH=path)
        scene.routing_since(time.time(), self)
        time.sleep(3.0)

    def heal(self, scene: Scene) -> None:
        scene.job.end()
        scene.restart()

    def after(self, scene: Scene) -> list[str]:
        leases = scene.notes["leases"]
        assert isinstance(leases, list)
        early = [sent for sent in leases if isinstance(sent, Sent) and scene.judge.is_over(sent)]
        return [f"{len(early)} leases lapsed minutes early"] if early else []


class Reconfigured(Fault):
    """The job is stopped in order and comes back with other reductions or more cubes."""

    ends = True
    bound_s = 120.0

    def __init__(self, what: str) -> None:
        self.what = what
        self.name = f"config-{what}"
        self.expects = "a new generation, no subscription lost"

    def strike(self, scene: Scene) -> None:
        code = scene.job.stop()
        if code != 0:
            scene.outcome.findings.append(f"the job did not stop in order: {code}")
            scene.job.end()
        if self.what == "cubes":
            scene.deployment.cubes += 1
        else:
            scene.deployment.turn += 1
        scene.deployment.configure()

    def heal(self, scene: Scene) -> None:
        scene.restart()


known(
    SecondOnCheckpoint(),
    SecondElsewhere(),
    ClockOff("ahead", OFF_S),
    ClockOff("behind", -OFF_S),
    Reconfigured("reduction"),
    Reconfigured("cubes"),
)
