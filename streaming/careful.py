"""How workers handle a batch that has failed again and again: one piece at a time, with a note of what is in hand.

The note is one key in Redis for all workers of a query, so that never more than one piece is in hand. Who dies leaves
it behind, and the driver reads there what it died of (`last_resort.py`). Outputs are written here, not by the sink of
Spark: then what Kafka will not take is known by its piece.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import redis
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from infra.kafka.dialects import librdkafka
from state.config import Config
from state.errors import ENVIRONMENT, HilcastError
from state.limits import OUTPUT_BYTES_MAX
from state.messages import Output
from state.redis_index import RedisIndex
from state.redis_retry import redis_retried
from streaming.boot import Place

POLL_S = 0.02
PIECE = 256
"""Records that are handled together, as long as none of them is suspect."""
WRITE_S = 120.0
KAFKA_CHOOSES = -1
_OF_THE_RECORD = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_MSG,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)
"""What Kafka says of a record that it would say again."""


class Hand:
    """The one hand of a query: what is in it is noted until it is done."""

    def __init__(self, config: Config, index: RedisIndex, query: str) -> None:
        self._redis, self._query = index, query
        ours = {"enable.idempotence": "true", "message.timeout.ms": int(WRITE_S * 1000)}
        self._producer = Producer({**librdkafka(config), **ours, "message.max.bytes": OUTPUT_BYTES_MAX})

    def take(self, places: Sequence[Place]) -> None:
        """Wait until nothing is in hand, and note these."""
        while not redis_retried(lambda: self._redis.take_in_hand(self._query, places), say=lambda line: None):
            time.sleep(POLL_S)

    def put_down(self) -> None:
        """It is done."""
        redis_retried(lambda: self._redis.put_down(self._query), say=lambda line: None)

    def failed(self, error: BaseException) -> None:
        """It is not done; unless the record is to blame, nobody is suspect for it."""
        away = isinstance(error, KafkaException) and error.args[0].code() not in _OF_THE_RECORD
        if away or isinstance(error, (*ENVIRONMENT, HilcastError, redis.RedisError)):
            self.put_down()

    def write(self, outputs: Iterable[Output]) -> None:
        """Write these, and return once Kafka has them all; `KafkaException` with the first that it does not take."""
        refused: list[KafkaError] = []

        def noted(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error)

        for output in outputs:
            headers = list(output.headers)
            while True:
                try:
                    self._producer.produce(
                        output.topic,
                        key=output.key,
                        value=output.value,
                        headers=headers,
                        on_delivery=noted,
                        partition=KAFKA_CHOOSES if output.partition is None else output.partition,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        if self._producer.flush(WRITE_S) > 0:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if refused:
            blamed = [error for error in refused if error.code() in _OF_THE_RECORD]
            raise KafkaException((blamed or refused)[0])


def pieces(places: Sequence[Place], suspects: frozenset[Place]) -> list[range]:
    """Rows of a batch that are handled together: suspects alone, all others some at a time.

    >>> pieces([("t", 0, n) for n in range(5)], frozenset({("t", 0, 2)}))
    [range(0, 2), range(2, 3), range(3, 5)]
    """
    found: list[range] = []
    for row, place in enumerate(places):
        alone = place in suspects
        last = found[-1] if found else range(0)
        joins = found and not alone and len(last) < PIECE and places[last[0]] not in suspects
        if joins:
            found[-1] = range(last.start, row + 1)
        else:
            found.append(range(row, row + 1))
    return found
