"""Where a checkpoint lies: a directory of this host, or any file system that Spark reaches (`hdfs://`, `s3a://`, ...).

                  a directory, `file:`              another file system
a whole file      a new one, synced, renamed        Spark's own file manager: renamed, or put at once
one job at a time a lock of the kernel              who made the folder owns it; of that deployment's drivers the
                                                    lease chooses one (`lease.py`), which writes its name down and
                                                    is refused once another has
the power goes    what was not synced may be lost   what was written stays
"""

from __future__ import annotations

import fcntl
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from state.config import Config
from state.errors import HilcastError
from streaming.settings import FILE_MANAGER, is_remote, open_jvm

LOCK, OWNER = "lock", "owner"
LOOKS_MAX = 10
"""How often a file is looked for that was replaced meanwhile."""
_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager"


class Folder(ABC):
    """A few small files, each written whole or not at all, beside the folders that Spark keeps for itself."""

    outlives_power = False
    """Whether what was written stays, though the host of the driver goes down."""

    @abstractmethod
    def read(self, name: str) -> str | None:
        """What a file says; None where there is none."""

    @abstractmethod
    def replace(self, name: str, text: str) -> None:
        """Write a file whole, or not at all, whenever the power goes."""

    @abstractmethod
    def names(self, below: str = "") -> list[str]:
        """What is in the folder, or in one below it; nothing where there is none."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove what has this name, a file or a folder; there may be nothing."""

    @abstractmethod
    def place(self, name: str) -> str:
        """Where Spark finds a folder of the folder."""

    @abstractmethod
    def hold(self, text: str) -> None:
        """Write down who holds the lock."""

    @abstractmethod
    def close(self) -> None:
        """Let another job in."""


def open_folder(config: Config) -> Folder:
    """The folder of a deployment's checkpoint, locked: `checkpoint-locked` where another job has it."""
    path = config.deployment.checkpoint
    if not is_remote(path):
        return Directory(local_path(path))
    owner = f"{config.deployment.prefix} {config.deployment.name}"
    return SparkFolder(open_jvm(config), path, owner, config.spark)


def local_path(path: str) -> Path:
    """The directory that a path or a `file:` address names.

    >>> local_path("file:///a%20b/c"), local_path("a%20b")
    (PosixPath('/a b/c'), PosixPath('a%20b'))
    """
    return Path(unquote(urlsplit(path).path) if path.startswith("file:") else path)


class Directory(Folder):
    """A directory of this host, with a lock of the kernel that ends with its process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / LOCK).open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise HilcastError(
                "checkpoint-locked", f"another job runs on {self.path}; stop it, or choose another checkpoint"
            ) from None

    def read(self, name: str) -> str | None:
        try:
            return (self.path / name).read_text()
        except FileNotFoundError:
            return None

    def replace(self, name: str, text: str) -> None:
        temporary = self.path / f"{name}.new"
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path / name)
        _sync(self.path)

    def names(self, below: str = "") -> list[str]:
        place = self.path / below
        return [path.name for path in place.iterdir()] if place.is_dir() else []

    def remove(self, name: str) -> None:
        place = self.path / name
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            return
        place.unlink(missing_ok=True)
        place.with_name(f".{place.name}.crc").unlink(missing_ok=True)  # what Spark's file system keeps beside it

    def place(self, name: str) -> str:
        return str(self.path / name)

    def hold(self, text: str) -> None:
        self._lock.truncate(0)  # not replaced: what is locked is this very file
        self._lock.write(text)
        self._lock.flush()
        os.fsync(self._lock.fileno())

    def close(self) -> None:
        """Let another job in. What was written is on the disk before it says so."""
        if self._lock.closed:
            return
        os.sync()
        self.hold("closed\n")
        self._lock.close()


class SparkFolder(Folder):
    """A folder of any file system that Spark reaches, by the file manager that Spark's own checkpoints use."""

    outlives_power = True

    def __init__(self, gateway: JavaGateway, uri: str, owner: str, spark: Mapping[str, str] | None = None) -> None:
        """`spark`: settings of the deployment, which a JVM that `spark-submit` started has not heard of yet."""
        self.uri = uri.rstrip("/")
        self._jvm, self._held = gateway.jvm, ""
        settings = self._jvm.org.apache.spark.SparkConf()
        for name, value in (spark or {}).items():
            settings.set(name, value)
        hadoop = self._jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(settings)
        if settings.contains(FILE_MANAGER):
            hadoop.set(FILE_MANAGER, settings.get(FILE_MANAGER))
        found: object = self._jvm
        for word in _MANAGER.split("."):
            found = getattr(found, word)
        try:
            self._files = found.create(self._path(), hadoop)  # type: ignore[attr-defined]
            self._files.mkdirs(self._path())
            self._own(owner)
        except Py4JJavaError as error:
            reason = str(error.java_exception)
            raise HilcastError("checkpoint-away", f"{self.uri} cannot be used: {reason}") from None

    def _own(self, owner: str) -> None:
        """Be the deployment that this folder belongs to: of several that make it at once, one."""
        found = self.read(OWNER)
        if found is None:
            try:
                self._write(OWNER, 1, owner)
            except Py4JJavaError:
                found = self.read(OWNER)
                if found is None:
                    raise
            found = self.read(OWNER)
        if found != owner:
            raise HilcastError(
                "checkpoint-locked", f"{self.uri} is the checkpoint of {found!r}, not of {owner!r}; choose another"
            )

    def read(self, name: str) -> str | None:
        for _ in range(LOOKS_MAX):
            number = self._last(name)
            if number == 0:
                return None
            try:
                return self._read(name, number)
            except Py4JJavaError:
                if self._files.exists(self._path(f"{name}.{number}")):
                    raise  # else it was removed between the two looks: there is a newer one
        raise HilcastError("checkpoint-away", f"{self.uri}/{name} is never the same twice: who else writes there?")

    def _read(self, name: str, number: int) -> str:
        stream = self._files.open(self._path(f"{name}.{number}"))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode(errors="replace")
        finally:
            stream.close()

    def replace(self, name: str, text: str) -> None:
        if self._held and self.read(LOCK) != self._held:
            raise HilcastError("superseded", f"another driver holds {self.uri} now: this one stops")
        number = self._last(name)
        self._write(name, number + 1, text)
        if number:
            self._files.delete(self._path(f"{name}.{number}"))

    def _last(self, name: str) -> int:
        """The number of the file that counts; 0 where there is none."""
        numbers = (found.removeprefix(f"{name}.") for found in self.names() if found.startswith(f"{name}."))
        return max((int(number) for number in numbers if number.isdigit()), default=0)

    def _write(self, name: str, number: int, text: str) -> None:
        """Write a file that is not there yet; an error where it is."""
        stream = self._files.createAtomic(self._path(f"{name}.{number}"), False)
        try:
            stream.write(text.encode())
        except Py4JJavaError:
            stream.cancel()
            raise
        stream.close()

    def names(self, below: str = "") -> list[str]:
        place = self._path(below)
        if below and not self._files.exists(place):
            return []
        return [str(status.getPath().getName()) for status in self._files.list(place)]

    def remove(self, name: str) -> None:
        self._files.delete(self._path(name))

    def place(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def hold(self, text: str) -> None:
        self._held = ""
        self.replace(LOCK, text)
        self._held = text

    def close(self) -> None:
        if self._held:
            self.replace(LOCK, "closed\n")
            self._held = ""

    def _path(self, name: str = "") -> object:
        return self._jvm.org.apache.hadoop.fs.Path(self.place(name) if name else self.uri)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
