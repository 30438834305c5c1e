"""Death at a named point: the whole line of processes up to the driver, and only at that point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from streaming import dying

# a driver that has a child, that has a worker which passes points
WORKER = "from streaming import dying; [dying.at(p) for p in ('a', 'b', 'a', 'b')]; print('alive', flush=True)"
DRIVER = f"""
import os, subprocess, sys
os.environ["{dying.DRIVER_VARIABLE}"] = str(os.getpid())
middle = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
subprocess.run([sys.executable, "-c", middle, {WORKER!r}])
print("driver lives", flush=True)
"""


def run(point):
    environment = {**os.environ, dying.VARIABLE: point}
    return subprocess.run([sys.executable, "-c", DRIVER], env=environment, capture_output=True, text=True, timeout=60)


def test_the_line_dies_at_the_point_and_pass():
    """Worker, what is between, and driver are killed at the second pass; another point or pass kills nobody."""
    died = run("b:2")
    assert died.returncode == -signal.SIGKILL
    assert died.stdout == ""
    for point in ("c", "b:3", ""):
        assert run(point).stdout == "alive\ndriver lives\n"


def test_a_job_that_runs_can_be_asked(tmp_path):
    """With a file the point is what it names at the moment; no file, or another point in it, kills nobody."""
    file = tmp_path / "dies"
    assert run(f"@{file}").stdout == "alive\ndriver lives\n"
    file.write_text("c")
    assert run(f"@{file}").stdout == "alive\ndriver lives\n"
    file.write_text("b\n")
    assert run(f"@{file}").returncode == -signal.SIGKILL


def test_a_process_without_the_driver_above_it_dies_alone():
    """Who is not of the driver's family kills nobody else."""
    assert dying._line(os.getpid(), 2**22 + 1) == [os.getpid()]
    assert dying._line(os.getpid(), os.getppid()) == [os.getpid(), os.getppid()]


def test_nothing_is_asked_for_when_it_is_not_set(monkeypatch):
    """Unset, a point does nothing, now or later."""
    monkeypatch.setattr(dying, "_die", lambda: (_ for _ in ()).throw(AssertionError("died")))
    dying.at("control-after-sink", after_s=0.001)
    dying.at("control-after-redis")
    time.sleep(0.01)
