"""The README's tour, typed as it is printed, on services of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local.services import free_port
from tests.house.test_documentation import blocks

ROOT = Path(__file__).parents[2]


def typed(script: str, folder: Path, environment: dict[str, str], log: Path) -> int:
    """Run the blocks in one shell, and leave nothing of it running whatever happens."""
    with log.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return shell.wait(timeout=480)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
        down = [str(folder / ".venv/bin/hilcast"), "down"]
        subprocess.run(down, cwd=folder, env=environment, check=False, capture_output=True, timeout=120)


@pytest.mark.services
def test_the_tour_works_as_printed(tmp_path):
    """A stranger who types the README's blocks one after the other sees Alice's delivery, and Bob's, whose events come
    from a topic that was taken over; the oracle agrees.
    """
    text = "\n".join(code for kind, code in blocks(ROOT / "README.md") if kind == "bash")
    kafka, redis = f"127.0.0.1:{free_port()}", free_port()
    config = (ROOT / "hilcast.toml").read_text().replace("127.0.0.1:9092", kafka).replace(":6379", f":{redis}")
    (tmp_path / "hilcast.toml").write_text(config)
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    script = text.replace("127.0.0.1:9092", kafka).replace("make setup\n", "")
    programs = tmp_path / "bin"
    programs.mkdir()
    if shutil.which("kcat") is None:
        (programs / "kcat").write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests/integration/kcat.py"} "$@"\n')
        (programs / "kcat").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    log = tmp_path / "tour.log"
    code = typed(script, tmp_path, environment, log)
    said = log.read_text()
    job = (tmp_path / "var" / "job.log").read_text()[-2000:]
    assert code == 0, said + job
    assert '"kind":"accepted","key":"b1/stock.quote/s1"' in said
    assert '"price": 42.5' in said
    assert "hilcast_subscriptions=s1" in said
    assert "hilcast_code=filter-syntax" in said
    assert '"country": "DE"' in said
    assert "ce_source=kafka:shop.orders" in said
    assert '"country": "FR"' not in said
