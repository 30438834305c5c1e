"""The checkpoint directory: one job at a time, and which generation its state belongs to.

CHECKPOINT/lock               held by the driver; names its process and its JVM
CHECKPOINT/generation.json    generation, fingerprint of the configuration, where the control query begins, and
                              the sample of publications that pruning decides by
CHECKPOINT/control-N/         Spark's own, one per generation
CHECKPOINT/route-HASH/        Spark's own, one per set of input topics
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from state.errors import HilcastError

JVM_PATIENCE_S = 20.0


@dataclass(frozen=True)
class Generation:
    """What `generation.json` says."""

    number: int
    fingerprint: str
    starting_offsets: str
    samples: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    """Publications by type as they were when it began: what pruning decides by, in every batch and every replay."""


class Checkpoint:
    """A locked checkpoint directory; close it to let another job in."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise HilcastError(
                "checkpoint-locked", f"another job runs on {self.path}; stop it, or choose another checkpoint"
            ) from None
        self._outlive_jvm()

    def _outlive_jvm(self) -> None:
        """Wait for the JVM of a killed predecessor: it goes on for seconds after its driver died."""
        self._lock.seek(0)
        words = self._lock.read().split()
        if len(words) != 2 or not words[1].isdigit():
            return
        deadline = time.monotonic() + JVM_PATIENCE_S
        while _is_java(int(words[1])):
            if time.monotonic() > deadline:
                raise HilcastError("checkpoint-locked", f"the JVM {words[1]} of a stopped job still runs; end it")
            time.sleep(0.1)

    def record(self, jvm: int) -> None:
        """Write down who holds the lock."""
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()} {jvm}\n")
        self._lock.flush()

    def generation(self) -> Generation | None:
        """The generation whose state is here, if any."""
        try:
            return Generation(**json.loads((self.path / "generation.json").read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise HilcastError(
                "checkpoint-damaged",
                f"{self.path / 'generation.json'} cannot be read ({error}); delete the checkpoint: "
                "everything is rebuilt from the registry",
            ) from None

    def begin(self, generation: Generation) -> None:
        """Make this the generation of the directory, and drop the state of earlier ones."""
        temporary = self.path / "generation.json.new"
        temporary.write_text(json.dumps(asdict(generation)))
        os.replace(temporary, self.path / "generation.json")
        for old in self.path.glob("control-*"):
            if old.name != f"control-{generation.number}":
                shutil.rmtree(old, ignore_errors=True)

    def control(self, generation: int) -> str:
        return str(self.path / f"control-{generation}")

    def route(self, topics: list[str]) -> str:
        """One per set of input topics: Spark refuses to go on when a topic has left the set."""
        name = hashlib.sha256("\n".join(topics).encode()).hexdigest()[:12]
        for old in self.path.glob("route-*"):
            if old.name != f"route-{name}":
                shutil.rmtree(old, ignore_errors=True)
        return str(self.path / f"route-{name}")

    def close(self) -> None:
        self._lock.close()


def _is_java(pid: int) -> bool:
    try:
        return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
