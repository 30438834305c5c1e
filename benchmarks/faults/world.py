"""The services, and one deployment after another on them, as somebody outside sees them: processes, files, commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import redis
from confluent_kafka.admin import AdminClient

from benchmarks.faults.nodes import ThreeNodes
from infra.local.services import LocalServices

ROOT = Path(__file__).parents[2]
HOOK, POISON = "HILCAST_DIE_AT", "HILCAST_DIE_OF"
DEADLY = "deadly"
"""A worker dies of every record whose value has this in it; only the faults of that name send any."""
BROKERS = ["b1", "b2", "b3", "b4", "b5"]
LINKS = [["b1", "b2"], ["b2", "b3"], ["b2", "b4"], ["b4", "b5"]]
VARIANTS = [
    ("none", ""),
    ("covering", ""),
    ("mics", ""),
    ("negative-space", ""),
    ("hybrid", ""),
    ("probabilistic", "error = 0.001"),
    ("mics", 'merging = "imperfect"\nbudget = 0.3'),
    ("mics", 'mode = "indexed"'),
    ("negative-space", 'mode = "approximate"\nk = 3'),
]
"""Reductions with their parameters; type number i uses the one at i plus the turn."""
GROUPS = "[distribution.b2]\ngroups = 3\nregroup_s = 2\n[distribution.b5]\ngroups = 2\nbroadcast = 0.4\nregroup_s = 2\n"
ATTRIBUTES = {
    "symbol": {"kind": "text"},
    "price": {"kind": "float", "min": 0, "max": 1000},
    "volume": {"kind": "int", "min": 0, "max": 1000000},
    "side": {"kind": "category", "values": ["buy", "sell", "none"]},
}


@dataclass(frozen=True)
class Size:
    """How much of everything: full runs, and short ones for a test."""

    stop_s: tuple[float, float] = (5.0, 60.0)
    away_s: float = 120.0
    leases: int = 20_000
    lease_ms: int = 60_000
    rate: int = 80
    """Events a second, all types together."""
    burst: int = 1_200
    """Events sent at once around each fault."""
    changes: float = 4.0
    """Changes of subscriptions a second."""
    variants: int = len(VARIANTS)
    """So many of the variants; the first six are all reductions there are."""
    both: bool = True
    """Every variant with and without advertisements; else every other one with."""
    settle_s: float = 2.0
    """How long events are sent while nothing changes, before they are judged."""
    leg: int = 10
    """Faults that one deployment lives through, if none breaks it."""
    verify: bool = True
    """Ask `hilcast verify` after every fault; else only after the last one."""
    nodes: int = 1
    """Of Kafka: one, or three."""
    trigger_ms: int = 200
    tasks: int = 2
    """Of the control query."""
    at_once: int = 1
    """Hostile records of a list that are sent before a probe must come through."""
    patience_s: float = 300.0
    """A pause longer than this after everything was healed counts as for ever."""


FULL = Size()
SHORT = Size(
    stop_s=(2.0, 5.0),
    away_s=30.0,
    leases=2_000,
    lease_ms=15_000,
    rate=20,
    burst=1_000,
    changes=1.0,
    variants=3,
    both=False,
    settle_s=0.5,
    leg=100,
    verify=False,
    at_once=20,
    trigger_ms=500,
    tasks=1,
)
"""For a machine that others need as well: three types, whose reductions each deployment draws anew."""

TEST = Size(
    stop_s=(1.0, 2.0),
    rate=20,
    burst=20,
    changes=2.0,
    variants=2,
    both=False,
    settle_s=0.3,
    leg=100,
    verify=False,
    patience_s=120.0,
)
"""Part of `make test`: one job, a type with advertisements and one without."""


class Job:
    """`hilcast run` on a configuration file, and every process that came of it."""

    def __init__(self, path: Path, log: Path) -> None:
        self.path, self.log = path, log
        self.output = log.with_suffix(".out")
        self.dies_at = log.with_suffix(".dies")
        """Names the point at which the job is to die, if there is one (`streaming/dying.py`)."""
        self.process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []

    def start(self, **environment: str) -> None:
        """Start it, in a session of its own, and do not wait for it."""
        command = [sys.executable, "-m", "producers.cli", "run", "--config", str(self.path)]
        environment = {HOOK: f"@{self.dies_at}", POISON: DEADLY, **environment}
        with self.log.open("ab") as log, self.output.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=log, cwd=ROOT, env={**os.environ, **environment}, start_new_session=True
            )
        self._sessions.append(self.process.pid)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def ready(self) -> bool:
        return self.alive and b"ready" in self.output.read_bytes()

    def processes(self) -> dict[str, list[int]]:
        """Process ids by role (driver, jvm, daemon, worker), of every life of this job."""
        found: dict[str, list[int]] = {"driver": [], "jvm": [], "daemon": [], "worker": []}
        alive = {pid: about for pid in _pids() if (about := _about(pid)) and about[1] in self._sessions}
        for pid, (_, _, words) in sorted(alive.items()):
            if pid in self._sessions:
                found["driver"].append(pid)
            elif words and words[0].endswith("java"):
                found["jvm"].append(pid)
        for pid, (parent, _, words) in sorted(alive.items()):
            # the command of the JVM names the module of the daemon, too
            if pid not in found["jvm"] and any(word.endswith(".daemon") for word in words):
                found["daemon" if parent in found["jvm"] else "worker"].append(pid)
        return found

    def stop(self, timeout_s: float = 120.0) -> int | None:
        """SIGTERM; its exit code, or None if it did not end in time."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self, *roles: str) -> None:
        """`kill -9` of all processes of these roles, at one moment as nearly as can be."""
        by_role = self.processes()
        for role in roles:
            for pid in by_role[role]:
                signalled(pid, signal.SIGKILL)
        if self.process is not None and "driver" in roles:
            self.process.wait(30.0)

    def end(self) -> None:
        """Leave nothing running, whatever happened."""
        if self.process is None:
            return
        for pids in self.processes().values():
            for pid in pids:
                signalled(pid, signal.SIGKILL)
        self.process.wait(30.0)
        deadline = time.monotonic() + 20.0
        while any(self.processes().values()) and time.monotonic() < deadline:
            time.sleep(0.1)

    def said(self, since: int = 0) -> str:
        """What it wrote to its log from a position on."""
        with self.log.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")


def signalled(pid: int, number: signal.Signals) -> bool:
    """Send a signal; whether there was somebody to get it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    return _about(pid) is None


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _about(pid: int) -> tuple[int, int, list[str]] | None:
    """Parent, session and command of a process that is alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    state, parent, _, session = stat[stat.rindex(")") + 2 :].split()[:4]
    return None if state in "ZX" else (int(parent), int(session), words)


@dataclass
class Deployment:
    """One prefix, one checkpoint, one job; `turn` and `cubes` are what a changed configuration changes."""

    services: LocalServices | ThreeNodes
    folder: Path
    prefix: str
    size: Size
    turn: int = 0
    cubes: int = 2
    lossy: set[str] = field(default_factory=set)
    """Types that used the probabilistic reduction at some time."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.path = self.folder / "hilcast.toml"
        self.checkpoint = self.folder / "checkpoint"
        self.configure()
        self.job = Job(self.path, self.folder / "job.log")

    @property
    def types(self) -> list[str]:
        """Names of all types; those with advertisements end in `.adv`."""
        if self.size.both:
            return [f"q{i}{end}" for i in range(self.size.variants) for end in ("", ".adv")]
        return [f"q{i}{'.adv' if i % 2 else ''}" for i in range(self.size.variants)]

    def configure(self) -> None:
        """Write the configuration as it should be now."""
        self.path.write_text(self.text(self.checkpoint))

    def text(self, checkpoint: Path) -> str:
        """The configuration, for a job with this checkpoint."""
        where = {"prefix": self.prefix, "kafka": self.services.kafka, "redis": self.services.redis}
        lines = ["[deployment]", *(f"{k} = {json.dumps(v)}" for k, v in where.items())]
        lines += [f"checkpoint = {json.dumps(str(checkpoint))}", "[overlay]", f"brokers = {json.dumps(BROKERS)}"]
        lines += [f"links = {json.dumps(LINKS)}", "[settings]", "home_shards = 1", "wide_shards = 1"]
        lines += ['on_data_loss = "continue"', 'master = "local[2]"']
        # many short batches, so that a fault meets each part of one
        lines += [f"trigger_ms = {self.size.trigger_ms}", f"shuffle_partitions = {self.size.tasks}", GROUPS]
        for name in self.types:
            reduction, parameters = VARIANTS[(int(name[1]) + self.turn) % len(VARIANTS)]
            if reduction == "probabilistic":
                self.lossy.add(name)
            lines += [f'[types."{name}"]', f'reduction = "{reduction}"', f"cubes = {self.cubes}"]
            lines += [f"advertisements = {str(name.endswith('.adv')).lower()}", 'index = ["price", "volume"]']
            lines += [f'[types."{name}".parameters]', parameters, f'[types."{name}".attributes]']
            for attribute, about in ATTRIBUTES.items():
                lines.append(f"{attribute} = {{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in about.items())} }}")
        return "\n".join(lines)

    def asked(self, *words: str) -> subprocess.Popen[str]:
        """One command of the command line on this configuration; what it says comes through one pipe."""
        command = [sys.executable, "-m", "producers.cli", *words, "--config", str(self.path)]
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=ROOT, text=True, **both)  # type: ignore[call-overload, no-any-return]

    def fallen(self) -> None:
        """Delete the checkpoint, as an operator would; where it is a file system of its own, what is in it."""
        for each in list(self.checkpoint.iterdir()) if self.checkpoint.is_dir() else []:
            shutil.rmtree(each) if each.is_dir() else each.unlink()


class World:
    """One Kafka, of one node or three, and one Redis on free ports of loopback, and the deployments made on them."""

    def __init__(self, folder: Path, size: Size) -> None:
        self.folder, self.size = folder, size
        data = folder / "services"
        self.services = LocalServices.on_free_ports(data) if size.nodes == 1 else ThreeNodes(data)
        self._count = 0

    def __enter__(self) -> World:
        self.services.up()
        self.redis = redis.Redis.from_url(self.services.redis, socket_timeout=30.0)
        self.admin = AdminClient({"bootstrap.servers": self.services.kafka, "log_level": 0})
        return self

    def __exit__(self, *_: object) -> None:
        self.services.down()

    def deployment(self, turn: int = 0) -> Deployment:
        """A fresh one: another prefix, another checkpoint; its types begin with the reduction of this number."""
        self._count += 1
        prefix = f"f{os.getpid()}x{self._count}"
        return Deployment(self.services, self.folder / prefix, prefix, self.size, turn % len(VARIANTS))

    def retire(self, old: Deployment) -> None:
        """End a deployment; its topics and keys go, its log stays."""
        old.job.end()
        self.mend()
        mine = [name for name in self.admin.list_topics(timeout=30.0).topics if name.startswith(old.prefix)]
        if mine:
            for future in self.admin.delete_topics(mine, request_timeout=60.0).values():
                future.exception()
        self.redis.flushall()
        old.fallen()
        if old.checkpoint.is_mount():
            subprocess.run(["umount", str(old.checkpoint)], check=False)

    def pid(self, name: str) -> int | None:
        """The process of `kafka` or `redis`, if one was started and not stopped in order."""
        if name == "kafka" and isinstance(self.services, ThreeNodes):
            return self.services.pid()
        try:
            return int(json.loads((self.folder / "services" / name / f"{name}.pid").read_text())["pid"])
        except FileNotFoundError:
            return None

    def mend(self) -> None:
        """Kafka and Redis run and are as they should be, whatever was done to them."""
        for name in ("kafka", "redis"):
            if pid := self.pid(name):
                signalled(pid, signal.SIGCONT)
        self.forget_dump()
        self.services.up()
        self.redis.config_set("maxmemory", "0")
        self.redis.replicaof("NO", "ONE")

    def forget_dump(self) -> None:
        """Let the next Redis begin empty."""
        (self.folder / "services" / "redis" / "dump.rdb").unlink(missing_ok=True)
