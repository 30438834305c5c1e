"""Two drivers, a driver whose clock is off, and a driver that comes back with another configuration."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from benchmarks.faults.kind import Fault, known
from benchmarks.faults.load import Sent
from benchmarks.faults.scene import Scene
from benchmarks.faults.world import Job, signalled

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
    """A second job of the same name with a checkpoint of its own, as on another host; then the first one is killed."""

    name = "two-drivers-two-checkpoints"
    expects = "the second stands by, and takes over when the first is gone"
    bound_s = 120.0
    ends = True

    def second(self, scene: Scene) -> Job:
        """Start another driver, and return once it stands by."""
        folder = scene.deployment.folder / f"second-{scene.rng.randrange(10**6)}"
        folder.mkdir()
        path = folder / "hilcast.toml"
        path.write_text(scene.deployment.text(folder / "checkpoint"))
        second = Job(path, folder / "job.log")
        scene.extra_jobs.append(second)
        second.start()
        scene.until(lambda: "standing by" in second.said() or second.ready, "the second driver to stand by")
        if second.ready:
            scene.outcome.findings.append("two drivers of one deployment are ready")
        return second

    def strike(self, scene: Scene) -> None:
        second = self.second(scene)
        scene.job.kill("jvm", "driver")
        scene.until(lambda: second.ready or not second.alive, "the second driver to take over")

    def heal(self, scene: Scene) -> None:
        second = scene.extra_jobs.pop()
        if not second.ready:
            scene.outcome.findings.append(f"the second driver did not take over: {second.said()[-200:]!r}")
        scene.load.some(50)
        scene.routing_by(second)
        scene.job.end()
        second.end()
        scene.restart()


class PausedDriver(SecondElsewhere):
    """The driver is paused, JVM and all, until another one has taken over; then it comes back."""

    name = "two-drivers-one-paused"
    expects = "the superseded one stops itself and says so"

    def strike(self, scene: Scene) -> None:
        second = self.second(scene)
        paused = [pid for pids in scene.job.processes().values() for pid in pids]
        for pid in paused:
            signalled(pid, signal.SIGSTOP)
        scene.until(lambda: second.ready or not second.alive, "the second driver to take over")
        for pid in paused:
            signalled(pid, signal.SIGCONT)
        scene.until(lambda: not scene.job.alive, "the superseded driver to stop", 60.0)
        if not re.search("superseded|lease", scene.job.said()[-4000:]):
            scene.outcome.findings.append(f"the superseded driver did not say so: {scene.job.said()[-200:]!r}")


class Changed(Fault):
    """The job's Python is another one for a while: `text` is run before anything else in each of its processes."""

    ends = True
    bound_s = 120.0
    text = ""

    def strike(self, scene: Scene) -> None:
        folder = Path(scene.deployment.folder / self.name)
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(self.text)
        scene.job.end()
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        scene.restart(PYTHONPATH=path)
        scene.routing_since(time.time(), self)
        time.sleep(3.0)

    def heal(self, scene: Scene) -> None:
        scene.job.end()
        scene.restart()


class ClockOff(Changed):
    """The clock of the job's Python is ten minutes off for a while, then right again: a step each way."""

    def __init__(self, name: str, off_s: int) -> None:
        self.name, self.text = f"clock-{name}", CLOCK.format(off=off_s)
        self.expects = "leases are judged by Kafka's clock, groups by their order; nothing is lost"

    def prepare(self, scene: Scene) -> None:
        name = scene.deployment.types[0]
        value = {"client": "mallory", "filter": "symbol = 'mallory'", "ttl_ms": OFF_S * 1000 // 2}
        keys = [f"b{n}/{name}/clock{scene.rng.randrange(10**6)}" for n in range(1, 6)]
        scene.notes["leases"] = [scene.load.send("subscriptions", key, value) for key in keys]

    def after(self, scene: Scene) -> list[str]:
        leases = scene.notes["leases"]
        assert isinstance(leases, list)
        early = [sent for sent in leases if isinstance(sent, Sent) and scene.judge.is_over(sent)]
        return [f"{len(early)} leases lapsed minutes early"] if early else []


class FormatChanged(Changed):
    """A version that writes states, messages or the index otherwise takes over, and is taken back afterwards."""

    def __init__(self, what: str, module: str) -> None:
        self.name, self.text = f"format-{what}", f"import {module} as changed\nchanged.FORMAT += 1\n"
        self.expects = "a new generation each time; what the other version wrote is not guessed at"

    def after(self, scene: Scene) -> list[str]:
        begun = scene.job.said().count("building generation")
        return [] if begun >= 2 else ["another format was taken for the same"]


class Reconfigured(Fault):
    """The job is stopped in order and comes back with other reductions or more cubes."""

    ends = True
    bound_s = 120.0

    def __init__(self, what: str) -> None:
        self.what = what
        self.name = f"config-{what}"
        self.expects = "a new generation, no subscription lost"

    def strike(self, scene: Scene) -> None:
        ran = scene.job.alive  # else a fault at the same time has ended it
        code = scene.job.stop()
        if ran and code != 0:
            scene.outcome.findings.append(f"the job did not stop in order: {code}")
            scene.job.end()
        if self.what == "cubes":
            scene.deployment.cubes = 2 if scene.deployment.cubes > 8 else 2 * scene.deployment.cubes
        else:
            scene.deployment.turn += 1
        scene.deployment.configure()

    def heal(self, scene: Scene) -> None:
        scene.restart()


known(
    SecondOnCheckpoint(),
    SecondElsewhere(),
    PausedDriver(),
    ClockOff("ahead", OFF_S),
    ClockOff("behind", -OFF_S),
    FormatChanged("state", "state.control.home"),
    FormatChanged("index", "state.compiled_part"),
    Reconfigured("reduction"),
    Reconfigured("cubes"),
)
