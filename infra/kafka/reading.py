"""Reading topics to their end: whole ones, spans of them, the newest records first, or one that is followed.

    every     all that topics hold now           whole: an end that cannot be reached is an error
    between   what stands in given spans         whole, unless it is only a sample
    newest    from the end back                  as far as it is asked for
    Follower  from the beginning, and on         whole, each time it catches up

Where a partition ends is what Kafka says when the reading begins. Whether it was reached is what the reader says:
transactions and compaction leave offsets that hold no record, also at the very end, so records alone cannot tell.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from infra.kafka.transport import Partition, Reader, Transport, missing_topic
from state.errors import HilcastError
from state.messages import Record

CHUNK = 10_000
"""Records of a partition that are read at a time on the way back."""
SILENCE_S = 30.0
"""For so long Kafka may give nothing before an end is reached; then what must be whole cannot be read."""
SAMPLE_SILENCE_S = 2.0
"""The same for a sample, which then has to do with what it got."""
_POLL_S = 0.5


def every(transport: Transport, *topics: str) -> Iterator[Record]:
    """Every record of these topics up to their ends now, of each partition in order.

    Guarantee: all of them, or a HilcastError. A topic that does not exist holds nothing.
    """
    return between(transport, _spans(transport, topics))


def between(
    transport: Transport, spans: Mapping[Partition, tuple[int, int]], *, sample: bool = False
) -> Iterator[Record]:
    """What stands from the first offset of each span to before its last, of each partition in order.

    Guarantee: all that Kafka still holds of it, or `kafka-read`; a `sample` ends early instead.
    """
    ends = {partition: end for partition, (low, end) in spans.items() if low < end}
    if not ends:
        return
    reader = transport.read({partition: spans[partition][0] for partition in ends})
    try:
        for records in _until(reader, ends, SAMPLE_SILENCE_S if sample else SILENCE_S):
            for record in records:
                if record.offset < ends[record.topic, record.partition]:
                    yield record
    except _SilentError:
        if not sample:
            raise
    finally:
        reader.close()


def newest(transport: Transport, topics: Iterable[str], chunk: int = CHUNK) -> Iterator[Record]:
    """The records of these topics from the newest back, as far as times tell; read only as far as they are asked for.

    Guarantee: newest first within a partition, and across partitions within a chunk of each; none is left out.
    """
    spans = _spans(transport, topics)
    while any(low < end for low, end in spans.values()):
        window = {partition: (max(low, end - chunk), end) for partition, (low, end) in spans.items()}
        found = list(between(transport, window))
        yield from sorted(found, key=lambda record: (record.timestamp_ms, record.offset), reverse=True)
        spans = {partition: (low, window[partition][0]) for partition, (low, _) in spans.items()}


class Follower:
    """Reads a topic from its beginning, and each time it is asked what has come since.

    Its reader stays open: to catch up with nothing costs one question to Kafka for each partition.
    """

    def __init__(self, transport: Transport, topic: str) -> None:
        self._transport = transport
        spans = _spans(transport, [topic])
        if not spans:
            raise missing_topic(topic)
        self._partitions = list(spans)
        self._reader = transport.read({partition: low for partition, (low, _) in spans.items()})

    def catch_up(self) -> Iterator[Record]:
        """Every record up to the present end that was not given before, perhaps some beyond it.

        Guarantee: all of them, or a HilcastError, after which it may be asked again and goes on where it was.
        """
        ends = {partition: self._transport.span(*partition)[1] for partition in self._partitions}
        for records in _until(self._reader, ends, SILENCE_S):
            yield from records

    def close(self) -> None:
        self._reader.close()


class _SilentError(HilcastError):
    """Kafka gave nothing for too long."""


def _spans(transport: Transport, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
    return {(topic, p): transport.span(topic, p) for topic in topics for p in transport.partitions(topic)}


def _until(reader: Reader, ends: Mapping[Partition, int], silence_s: float) -> Iterator[list[Record]]:
    """What the reader gives until every partition has been given up to its end."""
    heard = time.monotonic()
    left = list(ends)
    while left := [partition for partition in left if reader.position(partition) < ends[partition]]:
        records = reader.poll(_POLL_S)
        if records:
            heard = time.monotonic()
            yield records
        elif time.monotonic() - heard > silence_s:
            topic, number = left[0]
            at = f"{reader.position(left[0])} of {ends[left[0]]}"
            raise _SilentError("kafka-read", f"cannot read {topic!r}/{number} to its end: {at} for {silence_s:g} s")
