"""Kafka behind one small protocol, with two clients to choose from.

`confluent` (confluent-kafka, on librdkafka) is the default; `kafka-python`, an extra, needs no compiled library. Both
read the same `kafka.*` settings of the configuration and behave alike: the tests run over both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from infra.extras import require
from infra.kafka.transport import Place, Reader, Sending, Transport
from state.config import Config
from state.errors import HilcastError

__all__ = ["Name", "Place", "Reader", "Sending", "Transport", "open_transport"]

Name = Literal["confluent", "kafka-python"]


def open_transport(config: Config, name: Name = "confluent") -> Transport:
    """Open a transport to the configuration's Kafka; close it when done."""
    return _opener(name)(config)


def _opener(name: str) -> Callable[[Config], Transport]:
    """The client is imported only when it is chosen."""
    if name == "confluent":
        from infra.kafka.confluent import ConfluentTransport

        return ConfluentTransport
    if name == "kafka-python":
        require("kafka-python")
        from infra.kafka.kafka_python import KafkaPythonTransport

        return KafkaPythonTransport
    raise HilcastError("unknown-transport", f"{name!r} is none of {', '.join(get_args(Name))}")
