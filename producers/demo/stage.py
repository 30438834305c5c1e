"""The stage: local services on free ports, the job as a child, and words while one waits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from infra.local.process import born
from infra.local.services import LocalServices
from infra.logs import message_of
from producers.commands.output import Style
from producers.commands.running import job_command
from producers.demo.cast import CONFIG
from state.config import Config, load
from state.errors import HilcastError

T = TypeVar("T")

FOLDER = Path("var/demo")
TELL_S = 1.8
READY_S = 300.0


class Narrator:
    """Says what happens; on a terminal the line of a running step counts the seconds in place."""

    def __init__(self) -> None:
        self.style = Style()
        self._tty = sys.stdout.isatty()
        self._began = time.monotonic()

    def title(self, text: str) -> None:
        print(f"\n{self.style('1', text)}", flush=True)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def during(self, what: str, do: Callable[[], T], news: Callable[[], str] = lambda: "") -> T:
        """Do something that takes a while, and say so at least every two seconds."""
        ended = threading.Event()
        began = time.monotonic()

        def tell() -> None:
            while not ended.wait(0.1 if self._tty else TELL_S):
                seconds = time.monotonic() - began
                line = f"  … {what} ({seconds:.0f} s) {self.style('2', news()[:60])}"
                print(f"\r\x1b[K{line}" if self._tty else line, end="" if self._tty else "\n", flush=True)

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            return do()
        finally:
            ended.set()
            teller.join()
            if self._tty:
                print("\r\x1b[K", end="")
            mark = self.style("31", "✗") if sys.exc_info()[0] else self.style("32", "✓")
            print(f"  {mark} {what} {self.style('2', f'{time.monotonic() - began:.1f} s')}", flush=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


class Stage:
    """Kafka, Redis and the job in a folder of this run; whatever was started is stopped at the end of `with`."""

    def __init__(self, narrator: Narrator, keep: bool) -> None:
        self._narrator = narrator
        self._keep = keep
        FOLDER.mkdir(parents=True, exist_ok=True)
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix="run-", dir=FOLDER)).resolve()
        (self.folder / "owner").write_text(f"{_self()}\n", encoding="utf-8")
        self._services = LocalServices.on_free_ports(self.folder / "services")
        self._job: subprocess.Popen[bytes] | None = None
        self.path = self.folder / "hilcast.toml"
        self.log, self._out = self.folder / "job.log", self.folder / "job.out"

    def __enter__(self) -> Stage:
        try:
            self._narrator.during("Kafka and Redis", self._services.up)
            text = CONFIG.format(kafka=self._services.kafka, redis=self._services.redis)
            self.path.write_text(text, encoding="utf-8")
            self._narrator.during("the streaming job on Spark", self._start_job, self._last_words)
        except BaseException:
            self._stop()
            self._narrator.say(f"  logs are in {self.folder}")
            raise
        return self

    @property
    def config(self) -> Config:
        return load(self.path)

    def _start_job(self) -> None:
        command, environment = job_command(self.path)
        with self.log.open("wb") as log, self._out.open("wb") as out:
            self._job = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=environment,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for us; we stop it in order
                preexec_fn=_die_with_parent,
            )
        deadline = time.monotonic() + READY_S
        while b"ready" not in self._out.read_bytes():
            if self._job.poll() is not None:
                raise HilcastError("job-failed", f"the job ended at once; its last words:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise HilcastError("job-failed", f"the job is not ready after {READY_S:.0f} s; see {self.log}")
            time.sleep(0.1)

    def _last_words(self) -> str:
        """The last line that the job itself has said; Java's libraries talk a lot."""
        lines = self._tail(200).splitlines() if self.log.exists() else []
        own = [said for line in lines if (said := message_of(line)) is not None]
        return own[-1] if own else ""

    def _tail(self, lines: int = 12) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._narrator.during("stopping what was started", self._stop)
        if kind is None and not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self._narrator.say(f"  data and logs are in {self.folder}")

    def keep(self) -> None:
        """Leave the folder for whoever wants to look."""
        self._keep = True

    def _stop(self) -> None:
        if self._job is not None and self._job.poll() is None:
            self._job.send_signal(signal.SIGTERM)
            try:
                self._job.wait(60.0)
            except subprocess.TimeoutExpired:
                self._job.kill()
                self._job.wait(30.0)
        self._services.down()


def _self() -> str:
    return f"{os.getpid()} {born(os.getpid())}"


def _sweep() -> None:
    """Remove what earlier runs left whose process is gone."""
    for folder in FOLDER.glob("run-*"):
        try:
            pid, birth = (folder / "owner").read_text(encoding="utf-8").split()
        except (OSError, ValueError):
            continue
        if born(int(pid)) != birth:
            shutil.rmtree(folder, ignore_errors=True)


def _die_with_parent() -> None:
    """Ask Linux to end the job if the demo is killed; elsewhere the job then lives until it is stopped."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
