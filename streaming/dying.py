"""Death at a named point, for tests: HILCAST_DIE_AT=POINT[:N] has the job killed at its N-th pass of the point.

HILCAST_DIE_AT=@FILE: at the point that the file names when it is passed, so that a job that runs can be asked.

    driver ── JVM ── daemon ── worker          from whichever of them the point is in, up to the driver: all of them

HILCAST_DIE_OF=TEXT has a worker die, itself alone, of every record whose value has this text in it.

Points that nobody sees from outside can be hit no other way (`benchmarks/faults/points.py`). Not set, it costs a
comparison.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

VARIABLE = "HILCAST_DIE_AT"
DRIVER_VARIABLE = "HILCAST_DRIVER"
"""The process of the driver, for its workers."""

POISON_VARIABLE = "HILCAST_DIE_OF"

_poison = os.environ.get(POISON_VARIABLE, "").encode()
_point, _, _nth = os.environ.get(VARIABLE, "").partition(":")
_file = Path(_point[1:]) if _point.startswith("@") else None
_left = int(_nth or 1)


def at(point: str, after_s: float = 0.0) -> None:
    """Die here, if it was asked for; `after_s`: what happens so long after this place is what is meant."""
    global _left
    if point != (_point if _file is None else _named(_file)):
        return
    _left -= 1
    if _left == 0:
        threading.Timer(after_s, _die).start() if after_s else _die()


def _named(file: Path) -> str:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def of(records: Callable[[], Iterable[tuple[object, bytes | None]]], spared: Collection[object]) -> None:
    """Die of a record, given by its place and its value, if that was asked for and it is not spared."""
    if _poison and any(_poison in (value or b"") for place, value in records() if place not in spared):
        os.kill(os.getpid(), signal.SIGKILL)


def _die() -> None:
    for process in reversed(_line(os.getpid(), int(os.environ.get(DRIVER_VARIABLE, os.getpid())))):
        os.kill(process, signal.SIGKILL)


def _line(process: int, driver: int) -> list[int]:
    """A process and those that it descends from, up to the driver; itself alone, if it descends from another."""
    line = [process]
    while line[-1] != driver and line[-1] > 1:
        line.append(_parent(line[-1]))
    return line if line[-1] == driver else [process]


def _parent(process: int) -> int:
    # the second field is the name, which may hold anything
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
