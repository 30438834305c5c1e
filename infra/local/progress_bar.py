"""A plain progress bar on standard error; off a terminal, a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

_WIDTH = 30
_QUIET_S = 5.0


class Progress:
    """Counts steps towards `total` and shows them.

    >>> import io
    >>> out = io.StringIO()
    >>> bar = Progress("fetching", total=2, out=out)
    >>> bar.step("a.jar"); bar.step("b.jar"); bar.done()
    >>> print(out.getvalue().strip())
    fetching: 2 of 2, 0 s
    """

    def __init__(
        self,
        title: str,
        total: int,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert total > 0
        self._title, self._total = title, total
        self._out = sys.stderr if out is None else out
        self._clock = clock
        self._tty = self._out.isatty()
        self._began = self._shown = clock()
        self._count = 0

    def step(self, label: str = "") -> None:
        """Count one step; more of them than `total` leave the bar full."""
        self._count = min(self._count + 1, self._total)
        now = self._clock()
        if self._tty:
            filled = _WIDTH * self._count // self._total
            bar = "#" * filled + "-" * (_WIDTH - filled)
            self._write(f"\r\x1b[K{self._title} [{bar}] {self._count}/{self._total} {label[:36]}")
        elif now - self._shown >= _QUIET_S:
            self._shown = now
            self._write(f"{self._title}: {self._count} of {self._total}, {now - self._began:.0f} s\n")

    def done(self) -> None:
        """Leave one line that says how long it took."""
        line = f"{self._title}: {self._count} of {self._total}, {self._clock() - self._began:.0f} s\n"
        self._write(("\r\x1b[K" if self._tty else "") + line)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
