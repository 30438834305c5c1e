"""Lines of the topic `progress`, as everybody reads them who looks at a deployment from outside.

Only the driver writes there. What is not like a line of its own, somebody else wrote: nobody trips over it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from state.formats import UNREADABLE
from state.messages import Record


class ProgressLine(msgspec.Struct):
    """One batch of either query."""

    deployment: str
    query: str
    hosts: list[str]
    offsets: dict[str, dict[int, int]]
    """By topic and partition, how far it read."""
    batch_ms: float = 0
    lag: float = 0
    rows: float = 0
    epoch: str = ""
    began: str = ""
    configuration: int | None = None
    """The version by which the deployment went when it wrote this; None: it did not say, or was still going over."""

    def plain(self, record: Record) -> dict[str, Any]:
        """The line as JSON has it, with its time."""
        return {**msgspec.to_builtins(self, str_keys=True), "time_ms": record.timestamp_ms}


_DECODER = msgspec.json.Decoder(ProgressLine)


def progress_lines(records: Iterable[Record]) -> Iterator[tuple[Record, ProgressLine]]:
    """The lines among these records, each with its record.

    >>> list(progress_lines([Record("hilcast.progress", 0, 0, 0, None, b"not a line")]))
    []
    """
    for record in records:
        with contextlib.suppress(*UNREADABLE):
            yield record, _DECODER.decode(record.value or b"")
