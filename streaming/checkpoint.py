"""The checkpoint directory: one job at a time, and which generation its state belongs to.

CHECKPOINT/lock               held by the driver; names its process, its JVM and the boot of its host, or `closed`
CHECKPOINT/generation.json    generation, fingerprint of the configuration, where the control query begins, and
                              the sample of publications that pruning decides by
CHECKPOINT/attempt.json       the generation that was begun last, whether it came to anything or not
CHECKPOINT/topics.json        Kafka's ids of the topics that it belongs to
CHECKPOINT/followed.json      the same of the topics that patterns matched, whether they are still there or not
CHECKPOINT/quarantine.json    records that a query cannot be got past, by query: topic, partition and offset
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
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from infra.logs import logger
from state.errors import HilcastError

JVM_PATIENCE_S = 20.0
_log = logger("checkpoint")


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
        self._lock.seek(0)
        self._last = self._lock.read().split()
        self._outlive_jvm(self._last)

    def _outlive_jvm(self, words: list[str]) -> None:
        """Wait for the JVM of a killed predecessor: it goes on for seconds after its driver died."""
        if len(words) < 2 or not words[1].isdigit() or self.power_lost():
            return
        deadline = time.monotonic() + JVM_PATIENCE_S
        while _is_java(int(words[1])):
            if time.monotonic() > deadline:
                raise HilcastError("checkpoint-locked", f"the JVM {words[1]} of a stopped job still runs; end it")
            time.sleep(0.1)

    def record(self, jvm: int) -> None:
        """Write down who holds the lock."""
        self._write(f"{os.getpid()} {jvm} {_boot()}\n")

    def _write(self, line: str) -> None:
        self._lock.truncate(0)
        self._lock.write(line)
        self._lock.flush()
        os.fsync(self._lock.fileno())

    def power_lost(self) -> bool:
        """Whether the host went down under the last job: what Spark wrote last may not have reached the disk.

        A batch that was written and is forgotten would be planned anew, with other records under the same numbers.
        """
        return len(self._last) == 3 and self._last[2] != _boot()

    def generation(self) -> Generation | None:
        """The generation whose state is here, if any."""
        try:
            return Generation(**json.loads((self.path / "generation.json").read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            _log.error("generation.json is damaged, everything is rebuilt from the registry: %s", error)
            return None

    def begin(self, generation: Generation) -> None:
        """Make this the generation of the directory, and drop the state of earlier ones."""
        self._replace("generation.json", asdict(generation))
        for old in self.path.glob("control-*"):
            if old.name != f"control-{generation.number}":
                shutil.rmtree(old, ignore_errors=True)

    def attempt(self, number: int) -> None:
        """A generation is begun: its number is used up."""
        self._replace("attempt.json", number)

    def attempted(self) -> int:
        """The last number that is used up, 0 if none is."""
        try:
            return int(json.loads((self.path / "attempt.json").read_text()))
        except FileNotFoundError:
            return 0
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

    def _ids(self, name: str) -> dict[str, str]:
        try:
            return {str(topic): str(id) for topic, id in json.loads((self.path / name).read_text()).items()}
        except FileNotFoundError:
            return {}
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
            found: list[tuple[str, int, int]] = json.loads((self.path / "quarantine.json").read_text()).get(query, [])
            return found
        except FileNotFoundError:
            return []
        except (ValueError, AttributeError) as error:
            _log.error("quarantine.json is damaged: what no query gets past is found again: %s", error)
            return []

    def _replace(self, name: str, content: object) -> None:
        """Write a file whole, or not at all, whenever the power goes."""
        temporary = self.path / f"{name}.new"
        with temporary.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path / name)
        _sync(self.path)

    def control(self, generation: int) -> str:
        return str(self.path / f"control-{generation}")

    def route(self, topics: Mapping[str, str]) -> str:
        """One per set of input topics, by name and id: Spark refuses to go on when a topic has left the set, and would
        go on in one that was made again as if it were the old one.
        """
        name = hashlib.sha256("\n".join(f"{topic} {id}" for topic, id in topics.items()).encode()).hexdigest()[:12]
        for old in self.path.glob("route-*"):
            if old.name != f"route-{name}":
                shutil.rmtree(old, ignore_errors=True)
        return str(self.path / f"route-{name}")

    def close(self) -> None:
        """Let another job in. What was written is on the disk before it says so."""
        if self._lock.closed:
            return
        os.sync()
        self._write("closed\n")
        self._lock.close()


def _boot() -> str:
    """The id of this host's boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"  # not on Linux: then nobody can tell


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_java(pid: int) -> bool:
    try:
        return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
