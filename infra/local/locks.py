"""One program at a time in a folder, through a lock that the kernel drops with its holder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state.errors import HilcastError


@contextmanager
def alone_in(folder: Path, advice: str) -> Iterator[None]:
    """Make the folder and hold it; others wait. Raise `bad-data` with the advice if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".lock").touch()
    except OSError as error:
        raise HilcastError("bad-data", f"cannot write to {folder} ({error}): {advice}") from error
    with open(folder / ".lock", "w", encoding="ascii") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
