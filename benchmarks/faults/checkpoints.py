"""The checkpoint deleted, damaged, or without room to grow."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.faults.kind import Fault, known
from benchmarks.faults.scene import Broken, Scene

WATCHED_S = 10.0
"""How long after `ready` a job is watched that was started on a damaged checkpoint."""
REFUSED = "it is started again"
ROOM = "192m"


class CheckpointDeleted(Fault):
    """The job is killed and its checkpoint is gone."""

    name = "checkpoint-deleted"
    expects = "everything is rebuilt from the registry"
    bound_s = 90.0
    ends = True

    def strike(self, scene: Scene) -> None:
        scene.job.end()
        scene.deployment.fallen()

    def heal(self, scene: Scene) -> None:
        scene.restart()


class CheckpointDamaged(Fault):
    """A file of the checkpoint is cut in half while the job is stopped.

    Recovering by itself is well; so is refusing, for then a person deletes the checkpoint as the runbook says.
    """

    bound_s = 180.0
    ends = True

    def __init__(self, name: str, pattern: str) -> None:
        self.name = f"checkpoint-damaged-{name}"
        self.pattern = pattern
        self.expects = "recovers, or refuses and is rebuilt after the checkpoint was deleted by hand"

    def strike(self, scene: Scene) -> None:
        # a generation that has only begun has not written all of them
        scene.until(lambda: bool(self._files(scene)), f"a file {self.pattern} in the checkpoint")
        scene.job.stop()
        newest = max(self._files(scene), key=lambda path: (path.stat().st_mtime, path.name))
        os.truncate(newest, newest.stat().st_size // 2)

    def _files(self, scene: Scene) -> list[Path]:
        found = [path for path in scene.deployment.checkpoint.glob(self.pattern) if path.is_file()]
        return [path for path in found if not path.name.startswith(".")]

    def heal(self, scene: Scene) -> None:
        told = scene.job.log.stat().st_size
        scene.restart()
        refused = lambda: not scene.job.alive or REFUSED in scene.job.said(told)  # noqa: E731
        scene.until(lambda: scene.job.ready or refused(), "the job to be ready, or to refuse")
        deadline = time.monotonic() + WATCHED_S
        while not refused() and time.monotonic() < deadline:
            time.sleep(0.2)
        if refused():
            scene.outcome.remarks.append("by hand: the checkpoint was deleted")
            scene.job.end()
            scene.deployment.fallen()
            scene.restart()


class FileLimit(Fault):
    """The JVM may write no file beyond a few bytes for a while, as under a quota; needs no rights."""

    name = "file-limit"
    expects = "the queries fail, are started again, and go on once there is room"
    bound_s = 120.0

    def _limit(self, scene: Scene, size: int) -> None:
        for pid in scene.job.processes()["jvm"]:
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))

    def strike(self, scene: Scene) -> None:
        self._limit(scene, 64)

    def heal(self, scene: Scene) -> None:
        time.sleep(scene.rng.uniform(*scene.size.stop_s))
        self._limit(scene, resource.RLIM_INFINITY)


class DiskFull(Fault):
    """The checkpoint lies on a small file system, which fills up; needs root to mount one."""

    name = "disk-full"
    expects = "the queries fail, are started again, and go on once there is room"
    bound_s = 120.0

    def impossible(self) -> str | None:
        return None if os.geteuid() == 0 and shutil.which("mount") else "needs root to mount a small tmpfs"

    def prepare(self, scene: Scene) -> None:
        """Move the checkpoint to a tmpfs; the deployment keeps it there from now on."""
        place: Path = scene.deployment.checkpoint
        if not os.path.ismount(place):
            scene.job.stop()
            aside = place.with_name("aside")
            place.rename(aside)
            place.mkdir()
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place)], check=False)
            if done.returncode != 0:
                raise Broken("a tmpfs cannot be mounted here")
            shutil.copytree(aside, place, dirs_exist_ok=True)
            shutil.rmtree(aside)
            scene.restart()
            scene.routing_since(time.time(), self)

    def strike(self, scene: Scene) -> None:
        filler = scene.deployment.checkpoint / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            except OSError:
                pass

    def heal(self, scene: Scene) -> None:
        time.sleep(scene.rng.uniform(*scene.size.stop_s))
        (scene.deployment.checkpoint / "filler").unlink()


known(
    CheckpointDeleted(),
    CheckpointDamaged("offsets", "control-*/offsets/*"),
    CheckpointDamaged("commits", "control-*/commits/*"),
    CheckpointDamaged("state", "control-*/state/0/*/*"),
    CheckpointDamaged("route", "route-*/offsets/*"),
    CheckpointDamaged("generation", "generation.json"),
    FileLimit(),
    DiskFull(),
)
