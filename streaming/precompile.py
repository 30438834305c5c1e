"""Kernels before they are needed: compiled once on a machine, in two processes side by side, then kept on disk.

    python -m streaming.precompile CONFIG      all that a job of this configuration needs

Where they are kept: `state/kernels.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from infra.logs import logger, set_up
from state.config import Config, from_shared, load
from state.warm import CONTROL, ROUTING, warm
from streaming.settings import WARM_BYTES_MAX, WARM_VARIABLE

ROOT = Path(__file__).parents[1]
_log = logger("job")


def kept() -> bool:
    """Whether kernels were kept here before: what is missing now is some that changed, or that were never needed."""
    return any((ROOT / "state").rglob("*.nbi"))


def prepare(config: Config) -> None:
    """Have every kernel in this process; where none was kept, half of them are compiled by another one meanwhile."""
    if kept() or len(config.shared) > WARM_BYTES_MAX:
        warm(config)
        return
    _log.info("compiling the kernels, once: a minute or less")
    command = [sys.executable, "-m", "streaming.precompile"]
    environment = {**os.environ, WARM_VARIABLE: config.shared.decode(), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) as other:
        warm(config, half=ROUTING)
        other.wait()
    warm(config)  # what the other one could not do is done here


def main(arguments: list[str]) -> int:
    """Compile for a configuration file; without one, control's half for whoever has asked."""
    if arguments:
        config = load(arguments[0])
        set_up(config, "job")
        prepare(config)
    else:
        warm(from_shared(os.environ[WARM_VARIABLE].encode()), half=CONTROL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
