"""What time it is to Kafka: leases run from the time at which Kafka appended a record, so Kafka's clock ends them.

The clocks of driver and broker may be hours apart, and either may be set. The driver's own clock only says when it may
be worth asking. To ask is to write a line to the progress topic and to read the time that Kafka gave it.
"""

from __future__ import annotations

import json
import time

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, Producer

from infra.kafka.dialects import librdkafka
from infra.kafka.transport import away, not_sent
from state.config import Config

ANSWER_S = 10.0
ASK_AGAIN_S = 30.0
"""So long an answer is extrapolated: the broker's clock may be set as well."""


class BrokerClock:
    """Kafka's time, asked for when something may be due by it."""

    def __init__(self, config: Config) -> None:
        self._topic = config.topics.progress
        self._address = config.deployment.kafka
        self._line = json.dumps({"deployment": config.deployment.name, "clock": True}).encode()
        self._producer = Producer({**librdkafka(config), "message.timeout.ms": str(int(ANSWER_S * 1000))})
        self._heard: tuple[int, float] | None = None

    def due(self, at_ms: int) -> int | None:
        """Kafka's time, if it is `at_ms` or later; else None.

        Guarantee: never a time that Kafka has not reached. Without an answer `kafka-away` or `kafka-send`: nothing is
        due. Cost: nothing, unless the last answer is old or its time has come; then a record.
        """
        if self._heard is not None:
            told_ms, then = self._heard
            elapsed_s = time.monotonic() - then
            if elapsed_s < ASK_AGAIN_S and told_ms + elapsed_s * 1000 < at_ms:
                return None
        now_ms = self._ask()
        self._heard = now_ms, time.monotonic()
        return now_ms if now_ms >= at_ms else None

    def now_ms(self) -> int:
        """Kafka's time. Cost: a record."""
        return self._ask()

    def _ask(self) -> int:
        answers: list[int] = []
        failed: list[str] = []

        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error.str())
                return
            kind, stamp_ms = message.timestamp()
            if kind != TIMESTAMP_LOG_APPEND_TIME:
                failed.append("it does not have message.timestamp.type=LogAppendTime")
            answers.append(stamp_ms)

        self._producer.produce(self._topic, value=self._line, on_delivery=report)
        self._producer.flush(ANSWER_S)
        if failed:
            raise not_sent(self._topic, failed[0])
        if not answers:
            raise away(self._address, "it does not say what time it is")
        return answers[0]

    def close(self) -> None:
        self._producer.flush(1.0)
