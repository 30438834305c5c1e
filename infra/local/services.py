"""Kafka and Redis of one configuration, together: started, looked at, stopped.

with LocalServices(Path("var/local"), kafka="127.0.0.1:9092", redis="redis://127.0.0.1:6379/0"):
    ...
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from infra.local.credentials import Credentials
from infra.local.kafka_broker import HEAP_MB, LocalKafka
from infra.local.locks import alone_in
from infra.local.ports import free_port
from infra.local.redis_server import Guard, LocalRedis

__all__ = ["LocalServices", "ServiceStatus", "free_port"]

DATA = Path("var/local")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class ServiceStatus:
    """What is known of one service; `pid` is None when it is stopped."""

    name: str
    address: str
    running: bool
    answers: bool
    pid: int | None
    log: Path


class LocalServices:
    """One Kafka and one Redis on loopback, whose pids, data and logs are in the folder `data`.

    Guarantee: `up` and `down` may be repeated, by different programs too, which wait for one another; `down`
    ends exactly the processes that `up` recorded in this folder; `with` stops only what it started itself.
    Services that are `tied` end with the program that started them, even if it is killed with -9.
    """

    def __init__(
        self,
        data: Path = DATA,
        *,
        kafka: str = "127.0.0.1:9092",
        redis: str = "redis://127.0.0.1:6379/0",
        say: Callable[[str], None] = lambda line: None,
        tied: bool = False,
        guarded: tuple[str, str] | None = None,
        heap_mb: int = HEAP_MB,
    ) -> None:
        """`guarded`: nobody enters without a password; the user of Redis that writes, and the prefix of its keys.

        `heap_mb`: what the JVM of Kafka may take for its objects.
        """
        self.data = data.absolute()
        self.kafka = kafka
        self._given = redis
        self._say = say
        self.credentials = None if guarded is None else Credentials(self.data)
        guard = None if guarded is None or self.credentials is None else Guard(self.credentials, *guarded)
        self._kafka = LocalKafka(self.data, kafka, self.credentials, heap_mb=heap_mb)
        self._redis = LocalRedis(self.data, redis, guard)
        self._started: list[LocalKafka | LocalRedis] = []
        self._tied = tied
        self._watch: subprocess.Popen[bytes] | None = None

    @classmethod
    def on_free_ports(
        cls,
        data: Path,
        say: Callable[[str], None] = lambda line: None,
        guarded: tuple[str, str] | None = None,
        heap_mb: int = HEAP_MB,
    ) -> LocalServices:
        """Return services at ports that nobody uses now, tied to this program: for the demo and the tests."""
        kafka, redis = f"127.0.0.1:{free_port()}", f"redis://127.0.0.1:{free_port()}/0"
        return cls(data, kafka=kafka, redis=redis, say=say, tied=True, guarded=guarded, heap_mb=heap_mb)

    @property
    def redis(self) -> str:
        """The address of Redis as `hilcast.toml` has it, once it is up; a secured one without user and password."""
        return self._given if self.credentials is None else self._redis.url

    def up(self) -> None:
        """Start what does not run; both answer when this returns. After an error neither is left over."""
        with alone_in(self.data, "choose another folder with --data"):
            started: list[LocalKafka | LocalRedis] = []
            try:
                self._tie()
                if self.credentials is not None:
                    self.credentials.prepare()
                for service in (self._redis, self._kafka):
                    fresh = service.start()
                    if fresh:
                        started.append(service)
                    name = service.process.name
                    self._say(f"{name} {'started' if fresh else 'already runs'} at {service.address}")
            except BaseException:
                for service in started:
                    service.stop()
                if not self._started:
                    self._untie()
                raise
            self._started += started

    def down(self) -> None:
        """Stop what runs. Data and logs stay."""
        with alone_in(self.data, "choose another folder with --data"):
            self._stop([self._kafka, self._redis])

    def status(self) -> list[ServiceStatus]:
        """Return what is known of both."""
        return [
            self._status(self._kafka, self._kafka.log),
            self._status(self._redis, self._redis.process.log),
        ]

    def __enter__(self) -> LocalServices:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with alone_in(self.data, "choose another folder with --data"):
            self._stop(self._started[::-1])

    def _stop(self, services: list[LocalKafka | LocalRedis]) -> None:
        for service in services:
            name = service.process.name
            self._say(f"{name} stopped" if service.stop() else f"{name} was not running")
        self._started = [each for each in self._started if each not in services]
        if not self._started:
            self._untie()

    def _tie(self) -> None:
        """Start a watcher at the other end of a pipe: it reads the end of file when this program is gone."""
        if not self._tied or self._watch is not None:
            return
        command = [sys.executable, "-m", "infra.local", "watch", "--data", str(self.data)]
        self._watch = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=_ROOT, start_new_session=True
        )

    def _untie(self) -> None:
        if self._watch is not None:
            self._watch.kill()
            self._watch.communicate()
            self._watch = None

    def _status(self, service: LocalKafka | LocalRedis, log: Path) -> ServiceStatus:
        known = service.process.running()
        return ServiceStatus(
            name=service.process.name,
            address=str(service.address) if known is None else known.address,
            running=known is not None,
            answers=service.answers(),
            pid=None if known is None else known.pid,
            log=log,
        )
