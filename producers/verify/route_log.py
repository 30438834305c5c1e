"""When each publication was routed, and whether that is done: from the routing log and the progress topic."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from infra.kafka.transport import Partition
from state.arrays import Floats
from state.flooding import NEVER, Progress
from state.messages import Record


def _json(record: Record) -> dict[str, Any] | None:
    try:
        value = json.loads(record.value or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def control_progress(records: Iterable[Record]) -> list[Progress]:
    """What the control queries said of themselves."""
    found = []
    for record in records:
        line = _json(record)
        if line is not None and line.get("query") == "control":
            offsets = {topic: int(by.get("0", 0)) for topic, by in line["offsets"].items()}
            found.append(Progress(float(record.timestamp_ms), line["deployment"], tuple(line["hosts"]), offsets))
    return found


class RouteLog:
    """Where routing stands, by input partition."""

    def __init__(self, progress: Iterable[Record]) -> None:
        self._done: dict[Partition, dict[str, int]] = defaultdict(dict)
        for record in progress:
            line = _json(record)
            if line is not None and line.get("query") == "route":
                self._take(line)
        self._slices: dict[Partition, list[tuple[float, int, int]]] = defaultdict(list)

    def _take(self, line: dict[str, Any]) -> None:
        for topic, by_partition in line["offsets"].items():
            for partition, offset in by_partition.items():
                done = self._done[topic, int(partition)]
                for broker in line["hosts"]:
                    done[broker] = max(done.get(broker, 0), int(offset))

    def add(self, routed: Iterable[Record]) -> None:
        """Take in the routing log."""
        for record in routed:
            line = _json(record)
            if line is not None:
                slice = (float(record.timestamp_ms), int(line["first"]), int(line["last"]))
                self._slices[line["topic"], int(line["partition"])].append(slice)

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
