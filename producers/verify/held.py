"""What is held of topics with very many records: their bytes one behind the other, and columns; no object for each.

    Held          the records of an inbox    each is made anew when it is come to
    Receipts      the answers to them        found by the place of what they answer
    HeldTimes     offset and time alone      of the topics of the control plane

Pure: records in, the same records out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from infra.kafka.transport import Partition, Place
from producers.client.inbox import Receipt
from state.arrays import Floats
from state.formats import UNREADABLE
from state.messages import Headers, Record

_NONE = -1
"""The length of what is not there."""
_UNSAID = -(2**63)
"""The version of a receipt that names none."""


class Held:
    """The records of one partition, in order.

    Guarantee: what was added comes out, equal and in order. Cost: the bytes of key and value and 32 more a record; its
    headers where it has any.

    >>> held = Held([Record("in", 0, 3, 10, b"k", None), Record("in", 0, 5, 11, None, b"v", (("a", b"1"),))])
    >>> list(held)[1], held.time_of(3), held.time_of(4)
    (Record(topic='in', partition=0, offset=5, timestamp_ms=11, key=None, value=b'v', headers=(('a', b'1'),)), 10, None)
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._of: Partition | None = None
        self._bytes = bytearray()
        self._ends = array("q")
        self._offsets, self.times_ms = array("q"), array("q")
        self._keys, self._values = array("i"), array("i")
        """Lengths."""
        self._headers: dict[int, Headers] = {}
        self.add(records)

    def add(self, records: Iterable[Record]) -> None:
        """Hold these, too; they stand behind those before."""
        for record in records:
            place = record.topic, record.partition
            assert self._of in (None, place), "one topic with one partition, as every inbox has (`state/topics.py`)"
            self._of = place
            if record.headers:
                self._headers[len(self)] = record.headers
            for part, lengths in ((record.key, self._keys), (record.value, self._values)):
                lengths.append(_NONE if part is None else len(part))
                self._bytes += part or b""
            self._ends.append(len(self._bytes))
            self._offsets.append(record.offset)
            self.times_ms.append(record.timestamp_ms)

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, range(len(self)))

    def _record(self, n: int) -> Record:
        assert self._of is not None, "one was added"
        (topic, partition), end, value = self._of, self._ends[n], self._values[n]
        middle = end - max(value, 0)
        key = self._keys[n]
        return Record(
            topic,
            partition,
            self._offsets[n],
            self.times_ms[n],
            None if key == _NONE else bytes(self._bytes[middle - key : middle]),
            None if value == _NONE else bytes(self._bytes[middle:end]),
            self._headers.get(n, ()),
        )

    @property
    def first(self) -> int:
        """The first offset; 0 where nothing is held."""
        return self._offsets[0] if self._offsets else 0

    @property
    def end(self) -> int | None:
        """The offset behind the last one."""
        return self._offsets[-1] + 1 if self._offsets else None

    def at(self, offset: int) -> Record | None:
        """The record of an offset."""
        n = self._number(offset)
        return None if n is None else self._record(n)

    def time_of(self, offset: int) -> int | None:
        """When the record of an offset was written; None where none is held."""
        n = self._number(offset)
        return None if n is None else self.times_ms[n]

    def _number(self, offset: int) -> int | None:
        n = bisect_left(self._offsets, offset)
        return n if n < len(self) and self._offsets[n] == offset else None


class Answer(NamedTuple):
    """One receipt, as far as it is judged by."""

    at_ms: float
    kind: str
    version: int | None
    key: str | None


class _Answers:
    """The receipts of one partition, in order of what they answer."""

    def __init__(self) -> None:
        self.offsets, self.times_ms, self.versions = array("q"), array("q"), array("q")
        self.kinds = array("i")
        self._keys, self._ends = bytearray(), array("q")
        self._unnamed: set[int] = set()
        """Those without a key, which only a few have that are refused."""
        self._order: array[int] | None = None
        self._sorted = array("q")

    def add(self, offset: int, at_ms: int, kind: int, version: int | None, key: str | None) -> None:
        said = _UNSAID if version is None else version
        array("q", (offset, said))  # numbers that no control query writes: nothing is added
        self.offsets.append(offset)
        self.versions.append(said)
        self.times_ms.append(at_ms)
        self.kinds.append(kind)
        if key is None:
            self._unnamed.add(len(self._ends))
        self._keys += (key or "").encode("utf-8", "surrogatepass")
        self._ends.append(len(self._keys))
        self._order = None

    def of(self, offset: int) -> list[int]:
        """The numbers of the receipts for an offset, in the order in which they were written."""
        if self._order is None:
            order = np.argsort(np.array(self.offsets), kind="stable")
            self._order, self._sorted = array("q", order.tobytes()), array("q", np.array(self.offsets)[order].tobytes())
        low = bisect_left(self._sorted, offset)
        return list(self._order[low : bisect_right(self._sorted, offset, low)])

    def key(self, n: int) -> str | None:
        start = self._ends[n - 1] if n else 0
        named = self._keys[start : self._ends[n]].decode("utf-8", "surrogatepass")
        return None if n in self._unnamed else named


class Receipts:
    """Receipts by the input that they answer, in the order in which they were written.

    Cost: the bytes of the key and 40 more a receipt; a few binary searches for the receipts of a place.

    >>> receipts = Receipts()
    >>> receipts.add(("in", 0, 7), Answer(12.0, "accepted", 1, "b1/t/s"))
    >>> receipts.of(("in", 0, 7)), receipts.of(("in", 0, 8))
    ((Answer(at_ms=12.0, kind='accepted', version=1, key='b1/t/s'),), ())
    """

    def __init__(self) -> None:
        self._partitions: dict[Partition, _Answers] = defaultdict(_Answers)
        self._kinds: list[str] = []

    def add(self, place: Place, answer: Answer) -> None:
        """Take in one; OverflowError where its numbers are none that Kafka has."""
        if answer.kind not in self._kinds:
            self._kinds.append(answer.kind)
        topic, partition, offset = place
        kind = self._kinds.index(answer.kind)
        self._partitions[topic, partition].add(offset, int(answer.at_ms), kind, answer.version, answer.key)

    def of(self, place: Place) -> tuple[Answer, ...]:
        """The receipts for what stands at a place."""
        held = self._partitions.get(place[:2])
        return () if held is None else tuple(self._answer(held, n) for n in held.of(place[2]))

    def _answer(self, held: _Answers, n: int) -> Answer:
        version = held.versions[n]
        said = None if version == _UNSAID else version
        return Answer(float(held.times_ms[n]), self._kinds[held.kinds[n]], said, held.key(n))

    def __len__(self) -> int:
        return sum(len(held.offsets) for held in self._partitions.values())

    def __iter__(self) -> Iterator[tuple[Place, Answer]]:
        """All of them, those of a place in order."""
        for (topic, partition), held in self._partitions.items():
            for n, offset in enumerate(held.offsets):
                yield (topic, partition, offset), self._answer(held, n)

    def times_ms(self) -> Floats:
        """When they were written, in no order."""
        held = [np.array(one.times_ms, np.float64) for one in self._partitions.values()]
        return np.concatenate([np.empty(0), *held])


def read_receipts(records: Iterable[Record]) -> Receipts:
    """The receipts among some records."""
    found = Receipts()
    decoder = msgspec.json.Decoder(Receipt)
    for record in records:
        try:
            receipt = decoder.decode(record.value or b"")
            answer = Answer(float(record.timestamp_ms), receipt.kind, receipt.version, receipt.key)
            found.add(receipt.place, answer)
        except (*UNREADABLE, OverflowError):
            continue  # not written by a control query
    return found


def held_times(records: Iterable[Record]) -> Floats:
    """Offset and time of each record."""
    pairs = array("d")
    for record in records:
        pairs.extend((record.offset, record.timestamp_ms))
    return np.array(pairs, np.float64).reshape(-1, 2)
