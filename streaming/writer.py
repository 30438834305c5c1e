"""What the driver itself writes to Kafka: control messages, seeds of states, claims of generations, spans of groups."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message, Producer

from infra.kafka.dialects import librdkafka
from infra.kafka.transport import away, not_sent
from infra.logs import logger
from infra.signing_keys import SigningKeys
from state.config import Config
from state.control.protocol import Message as ControlMessage
from state.control.protocol import encode
from state.errors import HilcastError
from state.limits import OUTPUT_BYTES_MAX
from state.messages import Headers, Output
from state.signing import all_signed

FLUSH_S = 60.0
_log = logger("kafka")


class DriverWriter:
    """A producer that hands over at once and waits when it is told to."""

    def __init__(self, config: Config) -> None:
        self._topics = config.topics
        self.keys = SigningKeys(config)
        self._address = config.deployment.kafka
        self._failed: list[HilcastError] = []
        self._producer = Producer(
            {
                **librdkafka(config),
                "enable.idempotence": "true",
                "linger.ms": "5",
                "message.max.bytes": str(OUTPUT_BYTES_MAX),
                "delivery.report.only.error": True,
                "on_delivery": self._report,
            }
        )

    def send(self, key: str, message: ControlMessage) -> None:
        """A control message to a key."""
        self.produce(self._topics.control, key.encode(), encode(message))

    def produce(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """A record; one that must be signed is."""
        (output,) = all_signed([Output(topic, key, value, headers)], self._topics, self.keys.current())
        while True:
            try:
                self._producer.produce(topic, key=key, value=value, headers=list(output.headers))
                return
            except BufferError:
                self._producer.poll(0.1)

    def flush(self) -> None:
        """Return when everything that was handed over is written.

        Guarantee: raises `kafka-send` if something was not written since the last call, `kafka-away` if something may
        not be written yet.
        """
        left = self._producer.flush(FLUSH_S)
        failed, self._failed = self._failed, []
        if failed:
            raise failed[0]
        if left:
            raise away(self._address, f"{left} records wait to be written")

    def nudge(self, timeout_s: float) -> None:
        """Give what was handed over some time to be written."""
        self._producer.flush(timeout_s)

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            _log.error("a record for %r was not written: %s", message.topic(), error.str())
            self._failed.append(not_sent(str(message.topic()), error.str()))
