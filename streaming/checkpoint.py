"""The checkpoint: one job at a time, and which generation its state belongs to.

CHECKPOINT/lock               held by the driver; names host, boot, process and JVM (`Holder`), or `closed`
CHECKPOINT/owner              the deployment it belongs to, outside the directories of a host (`folders.py`)
CHECKPOINT/generation.json    generation, fingerprint of the configuration, where the control query begins, and
                              the sample of publications that pruning decides by
CHECKPOINT/attempt.json       the generation that was begun last, whether it came to anything or not
CHECKPOINT/topics.json        Kafka's ids of the topics that it belongs to
CHECKPOINT/followed.json      the same of the topics that patterns matched, whether they are still there or not
CHECKPOINT/quarantine.json    records that a query cannot be got past, by query: topic, partition and offset
CHECKPOINT/control-N/         Spark's own, one per generation
CHECKPOINT/route-HASH/        Spark's own, one per set of input topics

Outside the directories of a host files have a number behind their name (`folders.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from infra.logs import logger
from state.errors import HilcastError
from streaming.folders import LOCK, Folder

JVM_ENDS_S = 20.0
_log = logger("checkpoint")


@dataclass(frozen=True)
class Generation:
    """What `generation.json` says."""

    number: int
    fingerprint: str
    starting_offsets: str
    samples: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    """Publications by type as they were when it began: what pruning decides by, in every batch and every replay."""


@dataclass(frozen=True)
class Holder:
    """Who holds, or held, the checkpoint. A process id alone says little: pods begin with the same ones."""

    host: str
    boot: str
    """The id of the host's boot."""
    pid: int
    started: str
    """When the process began, as the kernel counts since boot."""
    jvm: int
    jvm_started: str

    def jvm_lives(self) -> bool:
        """Whether its JVM runs still, on this host."""
        here = (self.host, self.boot) == (socket.gethostname(), _boot())
        return here and self.jvm_started == _started(self.jvm) != "" and _is_java(self.jvm)


class Checkpoint:
    """A locked checkpoint; close it to let another job in."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._last = self._holder()
        self._outlive_jvm()

    def _holder(self) -> Holder | None:
        """Who had it last and did not close it; None where nobody did, or what is written says nothing."""
        try:
            return Holder(**json.loads(self._folder.read(LOCK) or "null"))
        except (ValueError, TypeError):
            return None

    def _outlive_jvm(self) -> None:
        """Wait for the JVM of a killed predecessor: it goes on for seconds after its driver died."""
        deadline = time.monotonic() + JVM_ENDS_S
        while self._last is not None and self._last.jvm_lives():
            if time.monotonic() > deadline:
                raise HilcastError("checkpoint-locked", f"the JVM {self._last.jvm} of a stopped job still runs; end it")
            time.sleep(0.1)

    def record(self, jvm: int) -> None:
        """Write down who holds the lock."""
        pid = os.getpid()
        holder = Holder(socket.gethostname(), _boot(), pid, _started(pid), jvm, _started(jvm))
        self._folder.hold(json.dumps(asdict(holder)) + "\n")

    def power_lost(self) -> bool:
        """Whether the host went down under the last job: what Spark wrote last may not have reached the disk.

        A batch that was written and is forgotten would be planned anew, with other records under the same numbers.
        """
        return self._last is not None and self._last.boot != _boot() and not self._folder.outlives_power

    def generation(self) -> Generation | None:
        """The generation whose state is here, if any."""
        try:
            text = self._folder.read("generation.json")
            return None if text is None else Generation(**json.loads(text))
        except (ValueError, TypeError) as error:
            _log.error("generation.json is damaged, everything is rebuilt from the registry: %s", error)
            return None

    def begin(self, generation: Generation) -> None:
        """Make this the generation of the directory, and drop the state of earlier ones."""
        self._replace("generation.json", asdict(generation))
        self._keep_one("control", str(generation.number))

    def attempt(self, number: int) -> None:
        """A generation is begun: its number is used up."""
        self._replace("attempt.json", number)

    def attempted(self) -> int:
        """The last number that is used up, 0 if none is."""
        try:
            return int(json.loads(self._folder.read("attempt.json") or "0"))
        except (ValueError, TypeError) as error:
            _log.error("attempt.json is damaged, it is not known which generation was begun last: %s", error)
            return 0

    def topics(self) -> dict[str, str]:
        """Kafka's ids of the topics that the state here belongs to; nothing where they are not known."""
        return self._ids("topics.json")

    def keep_topics(self, ids: Mapping[str, str]) -> None:
        """Write down to which topics the state here belongs."""
        if self.topics() != dict(ids):
            self._replace("topics.json", dict(ids))

    def followed(self) -> dict[str, str]:
        """Kafka's ids of topics that patterns matched, as of when the route query last read them."""
        return self._ids("followed.json")

    def keep_followed(self, ids: Mapping[str, str]) -> None:
        """Write down which topics the offsets of the route query belong to."""
        if self.followed() != dict(ids):
            self._replace("followed.json", dict(ids))

    def idle(self) -> dict[str, int]:
        """By delivery topic: since when its client has held nothing, by Kafka's clock."""
        return {topic: int(since) for topic, since in self._ids("idle.json").items() if since.isdecimal()}

    def keep_idle(self, since: Mapping[str, int]) -> None:
        """Write down since when clients hold nothing."""
        if self.idle() != dict(since):
            self._replace("idle.json", dict(since))

    def _ids(self, name: str) -> dict[str, str]:
        try:
            text = self._folder.read(name)
            return {} if text is None else {str(topic): str(id) for topic, id in json.loads(text).items()}
        except (ValueError, AttributeError) as error:
            _log.error("%s is damaged, it is not known whether topics were made again: %s", name, error)
            return {}

    def quarantined(self, query: str) -> list[tuple[str, int, int]]:
        """The records that a query leaves out, because it cannot be got past them."""
        return [(topic, partition, offset) for topic, partition, offset in self._quarantine(query)]

    def quarantine(self, query: str, places: Iterable[tuple[str, int, int]]) -> None:
        """Write down what a query leaves out."""
        others = {other: self._quarantine(other) for other in ("control", "route") if other != query}
        self._replace("quarantine.json", {**others, query: sorted(places)})

    def _quarantine(self, query: str) -> list[tuple[str, int, int]]:
        try:
            text = self._folder.read("quarantine.json")
            found: list[tuple[str, int, int]] = [] if text is None else json.loads(text).get(query, [])
            return found
        except (ValueError, AttributeError) as error:
            _log.error("quarantine.json is damaged: what no query gets past is found again: %s", error)
            return []

    def _replace(self, name: str, content: object) -> None:
        self._folder.replace(name, json.dumps(content))

    def control(self, generation: int) -> str:
        return self._folder.place(f"control-{generation}")

    def route(self, topics: Mapping[str, str]) -> str:
        """One per set of input topics, by name and id: Spark refuses to go on when a topic has left the set, and would
        go on in one that was made again as if it were the old one.
        """
        name = hashlib.sha256("\n".join(f"{topic} {id}" for topic, id in topics.items()).encode()).hexdigest()[:12]
        self._keep_one("route", name)
        self._drop_early_commits(f"route-{name}")
        return self._folder.place(f"route-{name}")

    def _drop_early_commits(self, query: str) -> None:
        """Drop commits of batches that the offsets do not know.

        Spark writes both of the route query beside its batches (`asyncProgressTrackingEnabled`): where a full disk
        took the commit of a batch alone, Spark would repeat a batch, find its commit there, and fail, for ever.
        """
        begun = max(self._batches(f"{query}/offsets"), default=-1)
        for batch in self._batches(f"{query}/commits"):
            if batch > begun:
                _log.warning("batch %d of the route query has ended, and is not known to have begun: repeated", batch)
                self._folder.remove(f"{query}/commits/{batch}")

    def _batches(self, log: str) -> list[int]:
        return sorted(int(name) for name in self._folder.names(log) if name.isdecimal())

    def _keep_one(self, query: str, kept: str) -> None:
        for name in self._folder.names():
            if name.startswith(f"{query}-") and name != f"{query}-{kept}":
                self._folder.remove(name)

    def close(self) -> None:
        """Let another job in."""
        self._folder.close()


def _boot() -> str:
    """The id of this host's boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"  # not on Linux: then nobody can tell


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks since boot; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_java(pid: int) -> bool:
    try:
        return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
