"""One background process and the file that remembers it.

A number alone does not name a process: after a crash or a restart of the machine another program may have
it. The file therefore also holds when the process was born, and only a process with both is ever taken for
ours, or ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from state.errors import HilcastError

_POLL_S = 0.02


@dataclass(frozen=True)
class Running:
    """A process that is alive: its number, its birth (opaque text) and the address that it serves."""

    pid: int
    born: str
    address: str


def born(pid: int) -> str | None:
    """Return a text that differs between any two processes that ever have this number; None if none is alive.

    >>> import os
    >>> born(os.getpid()) == born(os.getpid()) is not None
    True
    """
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return None
        # The name of the program stands in brackets and may hold anything; the fields after it do not.
        fields = stat[stat.rindex(")") + 2 :].split()
        return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"
    done = subprocess.run(["ps", "-p", str(pid), "-o", "stat=,lstart="], capture_output=True, text=True)
    state, _, since = done.stdout.strip().partition(" ")
    return None if done.returncode != 0 or state.startswith("Z") else since.strip()


class Process:
    """A service in the background, found again through its pid file by any later program."""

    def __init__(self, name: str, pid_file: Path, log: Path) -> None:
        self.name = name
        self.pid_file = pid_file
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    def running(self) -> Running | None:
        """Return the recorded process if it is alive; a file whose process is gone is removed."""
        try:
            text = self.pid_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            known = Running(**json.loads(text))
        except (ValueError, TypeError):
            known = None  # half-written, or not written by us: it names nobody
        if self._child is not None:
            self._child.poll()  # a child that ended stays a zombie until it is asked
        if known is None or born(known.pid) != known.born:
            self.pid_file.unlink(missing_ok=True)
            return None
        return known

    def serves(self, address: str) -> bool:
        """Return whether it runs at this address; one that runs at another must be stopped first."""
        known = self.running()
        if known is not None and known.address != address:
            raise HilcastError(
                "services-moved",
                f"{self.name} of this data folder runs at {known.address} (pid {known.pid}), not at"
                f" {address}: run `hilcast down` before changing its address",
            )
        return known is not None

    def last_words(self, lines: int = 8) -> str:
        """Return the end of the log, for a message."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join("  " + line for line in text.splitlines()[-lines:])

    def bring_up(
        self, command: Sequence[str], address: str, folder: Path, answered: Callable[[], None], grace_s: float
    ) -> None:
        """Launch it and wait until `answered` returns; if that fails nothing is left running."""
        self.launch(command, address, folder)
        try:
            answered()
        except BaseException:
            self.stop(grace_s)
            raise

    def launch(self, command: Sequence[str], address: str, folder: Path) -> Running:
        """Start the command in a session of its own, which Ctrl-C in a terminal does not reach; record it."""
        assert self.running() is None, f"{self.name} already runs"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as out:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, start_new_session=True
            )
        try:
            known = Running(child.pid, born(child.pid) or "", address)
            aside = self.pid_file.with_suffix(".new")
            aside.write_text(json.dumps(asdict(known)) + "\n", encoding="utf-8")
            aside.rename(self.pid_file)
        except BaseException:
            child.kill()  # what is not recorded would never be stopped
            child.wait()
            raise
        self._child = child
        return known

    def stop(self, grace_s: float) -> bool:
        """End the recorded process: politely, and by force after `grace_s`; return whether there was one.

        Guarantee: on return the process is gone and its file with it.
        """
        known = self.running()
        if known is None:
            return False
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            if not self._signal(known, number) or self._gone(known, wait_s):
                self.pid_file.unlink(missing_ok=True)
                return True
        raise HilcastError("not-stopped", f"{self.name} (pid {known.pid}) is alive after SIGKILL: look at it with ps")

    def _signal(self, known: Running, number: signal.Signals) -> bool:
        if born(known.pid) != known.born:
            return False
        try:
            os.kill(known.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError as error:
            raise HilcastError("not-stopped", f"{self.name} (pid {known.pid}) belongs to another user") from error
        return True

    def _gone(self, known: Running, wait_s: float) -> bool:
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if self._child is not None:
                self._child.poll()
            if born(known.pid) != known.born:
                return True
            time.sleep(_POLL_S)
        return False
