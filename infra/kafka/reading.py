"""Reading topics for commands that look: whole ones, or the newest records first."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from infra.kafka import Transport
from infra.kafka.transport import Partition
from state.messages import Record

CHUNK = 10_000
"""Records of a partition that are read at a time on the way back."""
PATIENCE_S = 5.0
"""A mark of a transaction at the very end of a partition is never given: so long it is waited for."""


def every(transport: Transport, topic: str) -> Iterator[Record]:
    """Every record of a topic up to its end now, of each partition in order."""
    spans = {(topic, p): transport.span(topic, p) for p in transport.partitions(topic)}
    return between(transport, spans)


def newest(transport: Transport, topics: Iterable[str], chunk: int = CHUNK) -> Iterator[Record]:
    """The records of these topics from the newest back, as far as times tell; read only as far as they are asked for.

    Guarantee: newest first within a partition, and across partitions within a chunk of each.
    """
    spans = {(topic, p): transport.span(topic, p) for topic in topics for p in transport.partitions(topic)}
    while any(low < end for low, end in spans.values()):
        window = {partition: (max(low, end - chunk), end) for partition, (low, end) in spans.items()}
        found = list(between(transport, window))
        yield from sorted(found, key=lambda record: (record.timestamp_ms, record.offset), reverse=True)
        spans = {partition: (low, window[partition][0]) for partition, (low, _) in spans.items()}


def between(
    transport: Transport, spans: Mapping[Partition, tuple[int, int]], patience_s: float = PATIENCE_S
) -> Iterator[Record]:
    """What stands from the first offset of each span to before its last; ends when nothing came for `patience_s`."""
    left = {partition: end for partition, (low, end) in spans.items() if low < end}
    if not left:
        return
    reader = transport.read({partition: spans[partition][0] for partition in left})
    heard = time.monotonic()
    try:
        while left and time.monotonic() - heard < patience_s:
            for record in reader.poll(0.5):
                heard = time.monotonic()
                partition = (record.topic, record.partition)
                end = left.get(partition)
                if end is None:
                    continue
                if record.offset < end:
                    yield record
                if record.offset + 1 >= end:
                    del left[partition]
    finally:
        reader.close()
