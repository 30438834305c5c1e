"""How commands print: JSON on one line, or tables for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

import msgspec


def print_json(value: object) -> None:
    """One line of JSON."""
    print(msgspec.json.encode(value).decode(), flush=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], indent: str = "") -> str:
    """Columns under their heads, numbers to the right.

    >>> print(table(["broker", "boxes"], [["b1", 12], ["b10", 7]]))
    broker  boxes
    b1         12
    b10         7
    """
    shown = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*[list(heads), *shown], strict=True)]
    right = [bool(rows) and all(isinstance(row[k], int | float) for row in rows) for k in range(len(heads))]
    lines = [heads, *shown]
    return "\n".join(
        (indent + "  ".join(_padded(c, w, r) for c, w, r in zip(line, widths, right, strict=True))).rstrip()
        for line in lines
    )


def _shown(cell: object) -> str:
    if isinstance(cell, bool) or cell is None:
        return {True: "yes", False: "no", None: "-"}[cell]
    return f"{cell:,.1f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)


def _padded(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


class Style:
    """Colours, where they are wanted: on a terminal, unless NO_COLOR is set."""

    def __init__(self, out: TextIO | None = None) -> None:
        out = sys.stdout if out is None else out
        self.on = out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, code: str, text: str) -> str:
        """Text in an SGR code, such as `1` (bold), `32` (green), `2` (faint)."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text
