"""The Makefile and what CI runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(*arguments: str, folder: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=folder,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_make_alone_prints_the_targets() -> None:
    """`make` lists every target of the contract, and does nothing."""
    done = make()
    assert done.returncode == 0
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert {"setup", "demo", "test", "check", "bench", "soak", "campaign", "clean"} <= listed


def test_ci_runs_make_check() -> None:
    """`.ci/run` is a program that runs `make check` and stops at the first fault."""
    text = (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "set -euo pipefail" in text
    assert text.rstrip().endswith("make check")


@pytest.mark.parametrize("target", ["check", "test", "demo"])
def test_targets_begin_with_the_setup(target: str) -> None:
    """Nothing runs before the set-up, so one command is enough on a fresh clone."""
    done = make("--dry-run", target)
    assert done.returncode == 0
    commands = [line for line in done.stdout.splitlines() if not line.startswith("make ")]
    assert "-m infra.local setup" in commands[0] or "pip install" in done.stdout


def test_bench_runs_every_benchmark_and_nothing_else() -> None:
    """Without a name `make bench` runs each module that is a command, but not the soak and the campaign."""
    commands = {path.name for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()}
    done = make("--dry-run", "bench")
    assert set(re.findall(r"benchmarks/(\w+\.py)", done.stdout)) == commands - {"soak.py", "campaign.py"}


def test_no_python_is_told(tmp_path: Path) -> None:
    """Without a fitting Python the message says which one is needed, and nothing is left behind."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    bare = tmp_path / "bin"
    bare.mkdir()
    for tool in ("make", "sh", "rm"):
        (bare / tool).symlink_to(shutil.which(tool) or "")
    old = bare / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = make("setup", folder=tmp_path, PATH=str(bare))
    assert done.returncode != 0
    assert "no Python 3.11 or 3.12 found" in done.stderr
    assert not (tmp_path / ".venv").exists()
