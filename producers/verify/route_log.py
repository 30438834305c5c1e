"""When each publication was routed, and whether that is done: from the routing log and the progress topic."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated

import msgspec
import numpy as np

from infra.kafka.transport import Partition, Place
from producers.progress_lines import ProgressLine, progress_lines
from state.arrays import Floats
from state.flooding import NEVER, Progress
from state.formats import UNREADABLE
from state.messages import Record
from state.set_aside import place_of


class _Slice(msgspec.Struct):
    """What is read of a line of `routed`."""

    topic: str
    partition: int
    first: Annotated[int, msgspec.Meta(ge=0)]
    last: int


def control_progress(records: Iterable[Record]) -> list[Progress]:
    """What the control queries said of themselves."""
    return [
        Progress(
            float(record.timestamp_ms),
            line.deployment,
            tuple(line.hosts),
            {topic: by.get(0, 0) for topic, by in line.offsets.items()},
        )
        for record, line in progress_lines(records)
        if line.query == "control"
    ]


class Asides:
    """Events that were set aside until their schema could be had: by where they were sent to, what became of them."""

    def __init__(self, log: RouteLog, waiting: Iterable[Record], waited: Iterable[Record]) -> None:
        self._set_aside: dict[Place, int] = {}
        """When it last was."""
        self._given_back: dict[Place, list[Record]] = defaultdict(list)
        for record in waiting:
            if (place := place_of(record)) is not None:
                self._set_aside[place] = max(record.timestamp_ms, self._set_aside.get(place, 0))
        back = [(place, record) for record in waited if (place := place_of(record)) is not None]
        ends: dict[Partition, int] = {}
        for place, record in back:
            self._given_back[place].append(record)
            ends[record.topic, record.partition] = record.offset + 1
        self._log, self._times = log, {partition: log.routed_ms(partition, end) for partition, end in ends.items()}

    def passed(self, place: Place, broker: str) -> tuple[float, bool]:
        """When the event of a place was last routed after it waited, and whether nothing of it is still to come."""
        routed_ms, done = -NEVER, True
        for record in self._given_back[place]:
            partition = (record.topic, record.partition)
            at_ms = float(self._times[partition][record.offset])
            done &= at_ms < NEVER and self._log.done(partition, record.offset, broker)
            routed_ms = max(routed_ms, at_ms)
        last_ms = max((record.timestamp_ms for record in self._given_back[place]), default=-1)
        return routed_ms, done and self._set_aside.get(place, -1) <= last_ms


class RouteLog:
    """Where routing stands, by input partition."""

    def __init__(self, progress: Iterable[Record]) -> None:
        self._done: dict[Partition, dict[str, int]] = defaultdict(dict)
        for _, line in progress_lines(progress):
            if line.query == "route":
                self._take(line)
        self._slices: dict[Partition, list[tuple[float, int, int]]] = defaultdict(list)

    def _take(self, line: ProgressLine) -> None:
        for topic, by_partition in line.offsets.items():
            for partition, offset in by_partition.items():
                done = self._done[topic, partition]
                for broker in line.hosts:
                    done[broker] = max(done.get(broker, 0), offset)

    def add(self, routed: Iterable[Record]) -> None:
        """Take in the routing log."""
        decoder = msgspec.json.Decoder(_Slice)
        for record in routed:
            with contextlib.suppress(*UNREADABLE):  # who wrote that was not the router
                line = decoder.decode(record.value or b"")
                self._slices[line.topic, line.partition].append((float(record.timestamp_ms), line.first, line.last))

    def topics(self) -> set[str]:
        """Every topic that some route query reads."""
        return {topic for topic, _ in self._done}

    def done(self, partition: Partition, offset: int, broker: str) -> bool:
        """Whether the deployment that hosts this broker has written all that this record leads to."""
        return self._done[partition].get(broker, 0) > offset

    def routed_ms(self, partition: Partition, end: int) -> Floats:
        """For each offset below `end`: when it was last routed, by whoever; `NEVER` if it was not."""
        times = np.full(end, -NEVER)
        for time_ms, first, last in self._slices[partition]:
            span = slice(first, min(last + 1, end))
            times[span] = np.maximum(times[span], time_ms)
        times[times == -NEVER] = NEVER
        return times
