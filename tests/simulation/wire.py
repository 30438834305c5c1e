"""Publications and their copies as they stand in topics: how a client writes one, and how it reads what came of it.

    Event ──publication──> record ──batch_of──> Arrow ── state.routing.route ──> Arrow ──outputs_of──> records
                              └──────── mark, a header of the world's own ────────────────> Outcome

Every header that is not ours passes through, so the mark of a publication is on each of its copies. In the same way a
record is stamped while it is in a slice: a slice may have one publication several times, by several links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from state.config import Topics
from state.messages import Output, Record, read_members
from state.routing.envelope import INPUT
from state.routing.route import Routing
from state.space.places import Placed

MARK = "mark"
STAMP = "stamp"
NOBODY = "nobody"
"""A publisher that advertises nothing."""


@dataclass(frozen=True)
class Event:
    """One publication."""

    id: str
    type: str
    broker: str
    value: bytes
    source: str = ""
    """The publisher; without one, NOBODY."""
    beside: Placed | None = None
    """Where some attributes are in headers or in the key: those; the key is then nothing else."""
    encoded: bytes | None = None
    """The value in the format of its type, where that is not JSON."""

    @property
    def attributes(self) -> dict[str, str]:
        """What CloudEvents says of it, and the broker it enters at."""
        named = {"specversion": "1.0", "id": self.id, "source": self.source or NOBODY}
        return named | {"type": self.type, "broker": self.broker}

    def publication(self, topics: Topics) -> Output:
        """In binary mode: the attributes are headers."""
        headers = tuple((f"ce_{name}", value.encode()) for name, value in self.attributes.items())
        key = self.id.encode() if self.beside is None else self.beside.key
        return Output(topics.publications, key, self._written, headers + self._more)

    def plain(self, topic: str) -> Output:
        """As an existing producer writes it: without any of the attributes."""
        return Output(topic, None if self.beside is None else self.beside.key, self._written, self._more)

    @property
    def _written(self) -> bytes:
        return self.value if self.encoded is None else self.encoded

    @property
    def _more(self) -> tuple[tuple[str, bytes], ...]:
        return () if self.beside is None else self.beside.headers

    def structured(self, topics: Topics) -> Output:
        """In structured mode: the attributes are in the value, which is JSON whatever the type says."""
        value = msgspec.json.encode(self.attributes | {"data": msgspec.Raw(self.value)})
        headers = (("Content-Type", b"application/cloudevents+json; charset=utf-8"),)
        return Output(
            topics.publications, None if self.beside is None else self.beside.key, value, headers + self._more
        )


@dataclass(frozen=True)
class Delivery:
    """One copy that a client got."""

    client: str
    destination: str
    """The topic that its subscriptions name, even where it came `through` one that it shares with others."""
    subscriptions: tuple[str, ...]
    id: str
    """Equal on every repeat; of a shared message: that of the event."""
    through: str
    """The topic that it stands in."""


@dataclass
class Outcome:
    """What became of one publication."""

    record: Record
    deliveries: list[Delivery] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    """Codes of its dead letters."""

    @property
    def refused(self) -> bool:
        return bool(self.letters)

    def add(self, copy: Record, topics: Topics) -> None:
        """Take note of a record that came of it."""
        headers = dict(copy.headers)
        if copy.topic == topics.deadletter:
            self.letters.append(_text(headers, "hilcast_code"))
        elif copy.topic.startswith(f"{topics.prefix}.link."):
            origin, target = copy.topic.split(".")[-2:]
            self.links.append((origin, target))
        elif "hilcast_members" in headers:
            for client, ids in read_members(headers["hilcast_members"] or b"").items():
                event, own = _text(headers, "hilcast_event"), topics.deliver(client)
                self.deliveries.append(Delivery(client, own, tuple(ids.split(",")), event, copy.topic))
        else:
            ids = tuple(_text(headers, "hilcast_subscriptions").split(","))
            client, id = _text(headers, "hilcast_client"), _text(headers, "hilcast_delivery")
            self.deliveries.append(Delivery(client, copy.topic, ids, id, copy.topic))


def _text(headers: Mapping[str, bytes | None], name: str) -> str:
    return (headers[name] or b"").decode()


def mark_of(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """Which publication of the world a record is a copy of; None: of none."""
    return next((int(value or b"") for name, value in headers if name == MARK), None)


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    """Records as the route query is given them, each stamped with its place among them."""
    rows = [
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in ((STAMP, str(i).encode()), *record.headers)],
        }
        for i, record in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, INPUT)


def outputs_of(routing: Routing) -> list[tuple[int | None, Output]]:
    """Everything that is to be written, in order, with the place of the record it came of; the stamps are taken off."""
    found = []
    for batch in routing.batches():
        for row in batch.to_pylist():
            headers = [(h["key"], h["value"]) for h in row["headers"]]
            stamp = next((int(value) for name, value in headers if name == STAMP), None)
            kept = tuple(header for header in headers if header[0] != STAMP)
            found.append((stamp, Output(row["topic"], row["key"], row["value"], kept, row["partition"])))
    return found
