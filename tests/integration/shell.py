"""A shell that types blocks of the documentation, one after the other, as a reader would."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Shell:
    """One bash that ends at the first command that fails; what it says is in `log`.

    In its folder stand `.venv` and, where this machine has none, a `kcat`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "shell.log"
        self._typed = 0
        (folder / ".venv").symlink_to(Path(sys.prefix))
        programs = folder / "bin"
        programs.mkdir()
        if shutil.which("kcat") is None:
            stand_in = f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests/integration/kcat.py"} "$@"\n'
            (programs / "kcat").write_text(stand_in)
            (programs / "kcat").chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                ["bash", "-euo", "pipefail"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=self.environment,
                start_new_session=True,
            )

    def type(self, block: str, timeout_s: float = 480.0) -> str:
        """Type a block; return what was said meanwhile."""
        self._typed += 1
        script, done = self.folder / f"block{self._typed}.sh", self.folder / f"block{self._typed}.done"
        script.write_text(block)
        before = self.log.stat().st_size
        assert self.process.stdin is not None
        self.process.stdin.write(f". ./{script.name} < /dev/null\ntouch {done.name}\n".encode())
        self.process.stdin.flush()
        deadline = time.monotonic() + timeout_s
        while not done.exists():
            said = self.log.read_text(errors="replace")[before:]
            assert self.process.poll() is None, f"{block}\n{said}"
            assert time.monotonic() < deadline, f"{block}\n{said}"
            time.sleep(0.1)
        return self.log.read_text(errors="replace")[before:]

    def end(self) -> None:
        """Leave nothing of it running, whatever happened."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(60)
