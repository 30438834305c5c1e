"""What a client has to read of group and broadcast topics, as the topic `groups` tells it.

    groups:  b1/alice -> group.b1.0 from 5 to 9, group.b1.2 from 7 on
                             │                          │
    group.b1.0  0 . . . . [5 6 7 8] 9 . .   group.b1.2  . . [7 8 9 ...

A message concerns the clients that it names, wherever it stands, so reading too much is harmless. Reading too little is
not: a span is announced before the first message that it can hold is written, and ended after the last [STREE03 §4].

Left out: which group a client is in, and why. That is the router's business (`state/distribution/`).
"""

from __future__ import annotations

import time
from bisect import bisect_right

from infra.kafka.transport import Partition, Reader, Transport
from state.messages import Span, read_reader, read_spans

LOOK_S = 5.0
"""How often the topic is looked for while it does not exist; late is not too late, for spans say where to begin."""
SILENCE_S = 5.0
"""An end that is not reached, because what stood there was compacted away, is not waited for longer than this."""
OPEN = float("inf")
_NONE: tuple[list[int], list[float]] = ([], [])


class Spans:
    """The spans of one client at all brokers; the router keeps ended ones for as long as Kafka holds their messages.

    >>> spans = Spans()
    >>> spans.replace("b1", [Span("g", 5, 9), Span("g", 12)])
    True
    >>> [spans.next(("g", 0), position) for position in (0, 7, 9, 30)]
    [5, 7, 12, 30]
    """

    def __init__(self) -> None:
        self._by_broker: dict[str, list[Span]] = {}
        self._by_place: dict[Partition, tuple[list[int], list[float]]] = {}
        """Firsts and ends of each partition's spans, joined where they touch, in order."""

    def replace(self, broker: str, spans: list[Span]) -> bool:
        """Take what a broker says now instead of what it said before; tell whether it differs."""
        if self._by_broker.get(broker, []) == spans:
            return False
        self._by_broker[broker] = spans
        self._by_place = {}
        every = (span for of in self._by_broker.values() for span in of)
        for span in sorted(every, key=lambda span: span.first):
            end = OPEN if span.end is None else span.end
            if end > span.first:
                firsts, ends = self._by_place.setdefault((span.topic, span.partition), ([], []))
                if ends and span.first <= ends[-1]:
                    ends[-1] = max(ends[-1], end)
                else:
                    firsts.append(span.first)
                    ends.append(end)
        return True

    def places(self) -> list[Partition]:
        """Every partition with a span that is not empty, ended ones too, sorted."""
        return sorted(self._by_place)

    def next(self, place: Partition, position: int) -> int | None:
        """The first offset from `position` on that has to be read; None if every span ends before.

        Cost: O(log spans).
        """
        firsts, ends = self._by_place.get(place, _NONE)
        ahead = bisect_right(ends, position)
        return max(firsts[ahead], position) if ahead < len(ends) else None

    def end(self, place: Partition) -> int | None:
        """Where the last span of a partition ends; None while one is open."""
        last = self._by_place[place][1][-1]
        return None if last == OPEN else int(last)


class Following:
    """Follows the topic `groups` for one client, from its beginning; it may appear later."""

    def __init__(self, transport: Transport, topic: str, client: str) -> None:
        self.spans = Spans()
        self._transport, self._topic = transport, topic
        self._client = client
        self._reader: Reader | None = None
        self._at = 0
        self._looked = float("-inf")

    def poll(self) -> bool:
        """Take notice of what has come, without waiting; tell whether spans changed."""
        return self._look() and self._take(0.0)

    def catch_up(self) -> bool:
        """Take notice of everything that the topic holds now; tell whether spans changed.

        Guarantee: every message written before this call that names the client lies in a span that is then known.
        """
        self._looked = float("-inf")
        if not self._look():
            return False
        end = self._transport.span(self._topic, 0)[1]
        changed, heard = False, time.monotonic()
        while self._at < end and time.monotonic() - heard < SILENCE_S:
            before = self._at
            changed |= self._take(0.1)
            if self._at != before:
                heard = time.monotonic()
        self._at = max(self._at, end)
        return changed

    def _look(self) -> bool:
        """Whether the topic is being read; looks for it now and then."""
        now = time.monotonic()
        if self._reader is None and now - self._looked >= LOOK_S:
            self._looked = now
            if self._transport.partitions(self._topic):
                self._reader = self._transport.read({(self._topic, 0): 0})
        return self._reader is not None

    def _take(self, timeout_s: float) -> bool:
        assert self._reader is not None
        changed = False
        for record in self._reader.poll(timeout_s):
            self._at = record.offset + 1
            broker, client = read_reader(record)
            if client == self._client:
                changed |= self.spans.replace(broker, read_spans(record))
        return changed

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
