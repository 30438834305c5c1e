"""The inboxes of the control plane: sending control events, and finding the one receipt that answers each.

subscribe ──> inbox ── place (topic, partition, offset) ──┐
                                                          ├── equal: that is the answer
receipts <── control query ── receipt names its input ────┘
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from infra.kafka import Name, Transport, open_transport
from infra.kafka.transport import Place, Reader, Sending, missing_topic
from state.config import Config
from state.errors import HilcastError
from state.formats import UNREADABLE
from state.messages import Headers, Output
from state.names import NAME
from state.topics import Inbox as Inboxes
from state.topics import Kept
from state.topics import inbox as inbox_kept

TIMEOUT_S = 60.0

Filter = str | dict[str, object] | list[object]
"""Text, or the CloudEvents JSON form."""


class Receipt(msgspec.Struct, frozen=True):
    """The answer to one control event (`docs/messages.md`); `topic`, `partition` and `offset` name the event."""

    kind: str
    """`accepted`, `replaced`, `withdrawn`, `expired` or `refused`."""
    key: str | None
    version: int | None
    broker: str | None
    epoch: str | None
    code: str | None
    reason: str | None
    topic: str
    partition: int
    offset: int

    @property
    def refused(self) -> bool:
        return self.kind == "refused"

    @property
    def place(self) -> Place:
        return (self.topic, self.partition, self.offset)

    def json(self) -> str:
        """The receipt as the one line of JSON that it came as."""
        return msgspec.json.encode(self).decode()


class RefusedError(HilcastError):
    """A control event was refused; `receipt` says why."""

    def __init__(self, receipt: Receipt) -> None:
        super().__init__(receipt.code or "refused", receipt.reason or f"{receipt.key} was refused")
        self.receipt = receipt


class UnansweredError(HilcastError):
    """A control event was sent and no receipt came in time; it may still be answered."""

    def __init__(self, place: Place, timeout_s: float) -> None:
        topic, partition, offset = place
        super().__init__(
            "unanswered",
            f"sent, unanswered: {topic}/{partition} offset {offset} has no receipt after {timeout_s:g} s; "
            "is the job running (`hilcast run`, `hilcast status`)?",
        )
        self.place = place


@dataclass(eq=False)
class Request:
    """A control event on its way; ask for its `receipt` when it is needed."""

    key: str
    _inbox: Inbox
    _sending: Sending

    @property
    def id(self) -> str:
        return self.key.rsplit("/", 1)[1]

    def receipt(self, timeout_s: float = TIMEOUT_S) -> Receipt:
        """Wait for the answer. Raises `RefusedError`, or `UnansweredError` at the timeout; it may be asked again."""
        return self._inbox.answer(self, self._sending.place(), timeout_s)


class Inbox:
    """One inbox, and the receipts that answer it."""

    def __init__(self, config: Config, transport: Transport, kind: Inboxes, client: str) -> None:
        """`client`: whose own inbox it is, where clients have some."""
        topics, own = config.topics, config.security.own
        self._transport = transport
        self._client = client if own else None
        self._topic = topics.inbox(kind, client) if own else getattr(topics, kind)
        self._receipts = topics.receipts_of(client) if own else topics.receipts
        self._kept = inbox_kept(config, kind)
        self._begun: int | None = None
        """Where the receipts ended before the first event was sent."""
        self._reader: Reader | None = None
        self._open: set[Request] = set()
        self._seen: dict[Place, Receipt] = {}

    def send(
        self, broker: str, type_name: str, id: str | None, value: dict[str, object] | None, version: int | None = None
    ) -> Request:
        """Send a control event; None as the value withdraws. Nothing is judged here: the receipt has the answer."""
        self._begin()
        key = f"{broker}/{type_name}/{id or new_id()}"
        headers: Headers = ()
        if value is None and version is not None:
            headers = (("hilcast_version", str(version).encode()),)
        elif value is not None and version is not None:
            value = {**value, "version": version}
        body = None if value is None else msgspec.json.encode(value)
        request = Request(key, self, self._transport.send(Output(self._topic, key.encode(), body, headers)))
        self._open.add(request)
        return request

    def _begin(self) -> None:
        """Note where the receipts end before the first event is sent: its answer can only come later."""
        if self._begun is not None:
            return
        if self._client is not None:
            require_own(self._transport, self._client, self._topic, self._kept)
        for topic in (self._topic, self._receipts) if self._client is None else ():
            if not self._transport.partitions(topic):
                raise missing_topic(topic)
        self._begun = self._transport.span(self._receipts, 0)[1] if self._transport.partitions(self._receipts) else 0
        self._look()

    def _look(self) -> bool:
        """Read the receipts, if there are any: the first answer makes the topic of a client's own."""
        if self._reader is None and self._begun is not None and self._transport.partitions(self._receipts):
            self._reader = self._transport.read({(self._receipts, 0): self._begun})
        return self._reader is not None

    def answer(self, request: Request, place: Place, timeout_s: float) -> Receipt:
        """Wait for the receipt of a place. The first one counts: a later one tells of an expiry, or is a repeat."""
        assert self._begun is not None, "a request begins the reading"
        deadline = time.monotonic() + timeout_s
        while (receipt := self._seen.get(place)) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise UnansweredError(place, timeout_s)
            if not self._look() or self._reader is None:
                time.sleep(min(left, 0.1))
                continue
            for record in self._reader.poll(min(left, 0.5)):
                self._take(record.value)
        self._open.discard(request)
        if not self._open:
            self._seen.clear()
        if receipt.refused:
            raise RefusedError(receipt)
        return receipt

    def _take(self, value: bytes | None) -> None:
        try:
            receipt = msgspec.json.decode(value or b"", type=Receipt)
        except UNREADABLE:
            return  # not written by a control query of ours
        if receipt.topic == self._topic:
            self._seen.setdefault(receipt.place, receipt)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class Registrant:
    """What subscribers and advertisers have in common: an inbox, withdrawing, and an end.

    A transport that was given stays open, one that was named is closed.
    """

    def __init__(self, config: Config, kind: Inboxes, client: str, transport: Transport | Name) -> None:
        self._owned = isinstance(transport, str)
        self._transport = open_transport(config, transport) if isinstance(transport, str) else transport
        self._inbox = Inbox(config, self._transport, kind, client)

    def withdraw(
        self, broker: str, type: str, id: str, *, version: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> Receipt:
        """Withdraw what was registered under this id and wait for the receipt."""
        return self._inbox.send(broker, type, id, None, version).receipt(timeout_s)

    def close(self) -> None:
        self._inbox.close()
        if self._owned:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def require_own(transport: Transport, client: str, topic: str, kept: Kept) -> None:
    """Have a client's own inbox: it makes it itself where Kafka lets it, else an operator must have."""
    if not NAME.fullmatch(client):
        raise HilcastError("bad-value", f"clients have inboxes of their own, and {client!r} is no client: say whose")
    if transport.partitions(topic):
        return
    try:
        transport.create({topic: kept})
    except HilcastError as error:
        raise HilcastError(
            "kafka-topic",
            f"{client} has no inbox {topic!r} that this principal may use, nor may it make one ({error.reason}): "
            f"an operator does, with `hilcast client add {client}`",
        ) from error


def new_id() -> str:
    """An id that nobody else has."""
    return uuid.uuid4().hex[:16]
