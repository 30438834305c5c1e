"""Publishing: CloudEvents in binary mode onto `PREFIX.publications`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import TracebackType

import msgspec

from infra.kafka import Name, Transport, open_transport
from infra.kafka.transport import missing_topic
from producers.client.encoding import Encoder
from producers.client.inbox import require_own
from state.config import Config
from state.errors import HilcastError
from state.messages import Output
from state.space.places import placed
from state.topics import inbox

SOURCE = "hilcast"
"""Of events whose publisher names none."""
Event = Mapping[str, object] | bytes | str
"""The document as subscribers get it, or its JSON, which is then forwarded byte for byte."""


class Publisher:
    """Publishes events of one source.

    `broker`, `type` and `source` given here are what `publish` uses where it is given none. Events are handed over
    in the background: `flush`, and the end of `with`, return when Kafka has them all, or say what failed.
    Where clients have inboxes of their own, events go to that of `client`; without one, the source is a client's name.
    Without a source they are of the client's first.

        with Publisher(config, broker="b1", type="stock.quote", source="exchange") as publisher:
            publisher.publish({"symbol": "IBM", "price": 99.5})

    What is published is the document, as it is. Where the type has attributes elsewhere than at its top,
    `publish_attributes` takes them by name and puts each in its place: below other members, in a header, in the key.
    """

    def __init__(
        self,
        config: Config,
        *,
        broker: str | None = None,
        type: str | None = None,
        source: str | None = None,
        client: str | None = None,
        transport: Transport | Name = "confluent",
    ) -> None:
        self._types = config.types
        own = config.security.own
        self._client = (client or source or SOURCE) if own else None
        given = source or (config.security.source_of(self._client) if self._client else None)
        self._broker, self._type, self.source = broker, type, given or SOURCE
        topics = config.topics
        self._topic = topics.publications if self._client is None else topics.inbox("publications", self._client)
        self._kept = inbox(config, "publications")
        self._owned = isinstance(transport, str)
        self._transport = open_transport(config, transport) if isinstance(transport, str) else transport
        self._encoder = Encoder(config)
        self._known = False

    def publish(
        self,
        event: Event,
        *,
        id: str | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        broker: str | None = None,
        type: str | None = None,
        source: str | None = None,
    ) -> str:
        """Hand over one event and return its id; without one it gets an id of its own.

        Events of equal `key` stand in one partition and are routed in order. Two events of one source and id are
        one event to every subscriber. `headers` travel with it. Attributes and JSON text are written in the format of
        the type; bytes are sent as they are.
        """
        broker, type = broker or self._broker, type or self._type
        if broker is None or type is None:
            raise HilcastError("bad-event", "an event needs the broker it enters at and a type")
        if not self._known:
            self._require_topic()
        id, value = id or str(uuid.uuid4()), _json(event)
        said: dict[str, str | bytes] = {
            "ce_specversion": "1.0",
            "ce_id": id,
            "ce_source": source or self.source,
            "ce_type": type,
            "ce_broker": broker,
            **self._encoder.headers(type),
            **(headers or {}),
        }
        given = tuple((name, _bytes(text)) for name, text in said.items())
        raw_key = None if key is None else _bytes(key)
        if not isinstance(event, bytes) and not self._encoder.is_json(type):
            value = self._encoder.written(type, value)
        self._transport.send(Output(self._topic, raw_key, value, given))
        return id

    def publish_attributes(
        self,
        attributes: Mapping[str, object],
        *,
        id: str | None = None,
        key: str | bytes | None = None,
        broker: str | None = None,
        type: str | None = None,
        source: str | None = None,
    ) -> str:
        """Hand over an event given by the attributes of its type: each is put where the configuration says it is.

        What is no attribute becomes a member of its own name. `key` is for types that have no attribute there.
        """
        type = type or self._type
        if type not in self._types:
            raise HilcastError("unknown-type", f"{type!r} is none of {', '.join(self._types)}")
        try:
            document, headers, own_key = placed(self._types[type], attributes)
        except ValueError as error:
            raise HilcastError("bad-event", str(error)) from error
        if key is not None and own_key is not None:
            raise HilcastError("bad-event", "the key is an attribute of this type, and another one is given")
        key = key if own_key is None else own_key
        return self.publish(document, id=id, key=key, headers=dict(headers), broker=broker, type=type, source=source)

    def _require_topic(self) -> None:
        if self._client is not None:
            require_own(self._transport, self._client, self._topic, self._kept)
        elif not self._transport.partitions(self._topic):
            raise missing_topic(self._topic)
        self._known = True

    def flush(self, timeout_s: float = 30.0) -> None:
        """Return when Kafka has everything; `kafka-send` names the first event that it did not take."""
        self._transport.flush(timeout_s)

    def close(self) -> None:
        """Flush and end."""
        try:
            self.flush()
        finally:
            if self._owned:
                self._transport.close()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _json(event: Event) -> bytes:
    if isinstance(event, bytes):
        return event
    return event.encode() if isinstance(event, str) else msgspec.json.encode(event)
