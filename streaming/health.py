"""Whether the job lives and is ready, for whoever starts and watches it: /live and /ready, beside /metrics.

    live     the driver answers and its JVM runs; 503: start it again
    ready    a generation is in force, both queries read their input, and the driver said so not long ago; 503: wait

Nothing outside the job makes it dead: while Kafka or Redis is away it waits, and a new life would wait, too. Lag and
the age of the last batch are told and not judged: where nothing is published no batch ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SILENT_S = 60.0
"""After so long without a word from the driver it is not known whether it is ready."""
LIVE, READY = "/live", "/ready"


@dataclass
class Health:
    """What the driver last said of itself; read by other threads."""

    clock: Callable[[], float] = time.monotonic
    jvm: int | None = None
    """Its process; None: not started yet."""
    _said: dict[str, object] = field(default_factory=lambda: {"stage": "starting"})
    _at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, stage: str, generation: int = 0, queries: Mapping[str, Mapping[str, object]] | None = None) -> None:
        """The driver is there; `ready` is the stage at which it routes as it should."""
        with self._lock:
            self._said = {"stage": stage, "generation": generation, "queries": dict(queries or {})}
            self._at = self.clock()

    def answer(self, path: str) -> tuple[bool, dict[str, object]]:
        """Whether all is well, and what there is to say of it."""
        with self._lock:
            said, age = dict(self._said), self.clock() - self._at
        if path == LIVE:
            runs = self.jvm is None or _runs(self.jvm)
            return runs, {"live": runs, "jvm": self.jvm}
        ready = said["stage"] == "ready" and age < SILENT_S
        return ready, {"ready": ready, **said, "said_s": round(age, 1)}


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self/stat").exists()  # not on Linux: then nobody can tell
