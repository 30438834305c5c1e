"""Reading the registry: the facts from which everything can be rebuilt, and the generation of each deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.kafka.settings import librdkafka
from state.config import Config
from state.control.facts import Fact, decode_fact
from streaming.patience import retried

FactKey = tuple[str, str, str, str]
"""Kind (`subscription` or `advertisement`), broker, type, id."""


class RegistryReader:
    """Follows the registry from its beginning; the last record of a key is its fact."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.facts: dict[FactKey, Fact] = {}
        self.generations: dict[str, int] = {}
        self._consumer = Consumer(
            {
                **librdkafka(config),
                "group.id": f"{config.deployment.prefix}.registry-reader",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": "100",
            }
        )
        self._partition = TopicPartition(config.topics.registry, 0, 0)
        self._consumer.assign([self._partition])

    def catch_up(self, progress: Callable[[int, int], None] = lambda done, total: None) -> list[FactKey]:
        """Read to the present end; return the keys that changed."""
        _, end = retried(lambda: self._consumer.get_watermark_offsets(self._partition, timeout=10.0))
        changed: dict[FactKey, None] = {}
        while self._position() < end:
            for key, value in self._poll():
                touched = self._take(key, value)
                if touched is not None:
                    changed[touched] = None
            progress(self._position(), end)
        return list(changed)

    def _position(self) -> int:
        return max(0, int(self._consumer.position([self._partition])[0].offset))

    def _poll(self) -> Iterator[tuple[bytes, bytes | None]]:
        for message in self._consumer.consume(10_000, timeout=0.5):
            if message.error():
                raise KafkaException(message.error())
            yield message.key() or b"", message.value()

    def _take(self, key: bytes, value: bytes | None) -> FactKey | None:
        kind, *rest = key.decode().split("/")
        if kind == "generation" and value is not None:
            self.generations[rest[0]] = int(msgspec.json.decode(value)["generation"])
            return None
        if kind not in ("subscription", "advertisement") or len(rest) != 3:
            return None
        fact_key = (kind, rest[0], rest[1], rest[2])
        if value is None:
            self.facts.pop(fact_key, None)
        else:
            self.facts[fact_key] = decode_fact(value)
        return fact_key

    def close(self) -> None:
        self._consumer.close()


def generation_record(deployment: str, generation: int, fingerprint: str) -> tuple[bytes, bytes]:
    """Key and value of the record by which a deployment claims a generation."""
    value = {"generation": generation, "fingerprint": fingerprint}
    return f"generation/{deployment}".encode(), msgspec.json.encode(value)
