"""A Spark standalone cluster on this machine: a master and workers, each with a directory of its own.

What its hosts have, and what comes to them, is as docs/operations.md says: a Python with the packages of `router` and
nothing of ours, a secret in a file of properties, and our code by the driver.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path

import pyspark

from infra.local import class_archive, jars
from infra.local.ports import free_port
from infra.secret_files import write_secret

HOME = Path(pyspark.__file__).parent
QUICK = " ".join(class_archive.options(class_archive.path("spark")))
"""An image would have an archive of its own; it fits a JVM whose class path begins as that one's did."""


class SparkCluster:
    """Started empty; `add` workers, `lose` them; `close` ends what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.ui = free_port(), free_port()
        self.secret = secrets.token_hex(16)
        self.python = bare_python(folder / "image")
        self._properties = folder / "spark.properties"
        write_secret(self._properties, f"spark.authenticate true\nspark.authenticate.secret {self.secret}\n".encode())
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._master = self._start(
            "master.Master", "--port", str(self.port), "--webui-port", str(self.ui), name="master"
        )
        self._until("URL: spark://")

    @property
    def settings(self) -> dict[str, str]:
        """What a driver must be told of this cluster: `[spark]`."""
        return {
            "spark.authenticate": "true",
            "spark.authenticate.secret": self.secret,
            "spark.executor.cores": "2",
            "spark.cores.max": "4",
            "spark.executor.memory": "1g",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.executor.extraClassPath": jars.spark_class_path(),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }

    def told(self) -> list[str]:
        """Command lines of this machine that tell the secret."""
        lines = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().decode(errors="replace")
                except OSError:
                    continue
                lines += [line] if self.secret in line else []
        return lines

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def add(self, name: str, cores: int = 2) -> None:
        """One more worker, as on a host of its own."""
        work = self.folder / name
        arguments = (
            "--cores",
            str(cores),
            "--memory",
            "1500m",
            "--work-dir",
            str(work),
            "--webui-port",
            str(free_port()),
        )
        alive = self.page().count("ALIVE")
        self.workers[name] = self._start("worker.Worker", *arguments, self.master, name=name)
        self._until("ALIVE", alive + 1)

    def lose(self, name: str) -> None:
        """`kill -9` of a worker and of its executors, at once."""
        process = self.workers.pop(name)
        for pid in [*self.executors(name), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait(30.0)

    def executors(self, name: str) -> list[int]:
        """The processes of the executors that a worker started."""
        work = str(self.folder / name)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    cwd, command = os.readlink(entry / "cwd"), (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if cwd.startswith(work) and b"CoarseGrainedExecutorBackend" in command:
                    found.append(int(entry.name))
        return found

    def page(self) -> str:
        """What the master says of its workers and applications."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ui}/json/", timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def close(self) -> None:
        for process in (*self.workers.values(), self._master):
            process.terminate()
            try:
                process.wait(30.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30.0)

    def _start(self, what: str, *arguments: str, name: str) -> subprocess.Popen[bytes]:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_DAEMON_CLASSPATH": jars.spark_class_path(),
        }
        command = [
            str(HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{what}",
            "--host",
            "127.0.0.1",
            "--properties-file",
            str(self._properties),
            *arguments,
        ]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)

    def _until(self, text: str, count: int = 1) -> None:
        deadline = time.monotonic() + 60
        log = self.folder / "master.log"
        while self.page().count(text.removeprefix("URL: ")) < count:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.2)


def bare_python(folder: Path) -> Path:
    """A Python with the packages of the one that runs, and without what is installed from this checkout."""
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (folder / "bin").mkdir()
    python = folder / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    done = subprocess.run([python, "-c", "import numba, streaming"], cwd=folder, capture_output=True, text=True)
    assert "No module named 'streaming'" in done.stderr, done.stderr
    return python
