"""The sample of publications that a generation begins with (`state/control/samples.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from infra.kafka import Transport
from infra.kafka.reading import between
from infra.schema_registry import open_schemas
from state.config import Config
from state.control.samples import pruned_types, samples_of
from state.messages import Record

LOOK = 2000
"""Records at the end of each partition that are looked at."""


def sample(config: Config, transport: Transport) -> dict[str, list[dict[str, object]]]:
    """The last publications of every type that is pruned; nothing is read where there is none."""
    types = pruned_types(config)
    if not types:
        return {}
    config = config.with_topics(transport.topics())
    topics = [config.topics.publications, *(source.topic for source in config.sources if source.type in types)]
    return samples_of(_last(transport, topics), config, open_schemas(config))


def _last(transport: Transport, topics: list[str]) -> Iterator[Record]:
    """The last records of each partition, one partition after the other."""
    for topic in topics:
        for number in transport.partitions(topic):
            low, end = transport.span(topic, number)
            yield from between(transport, {(topic, number): (max(low, end - LOOK), end)}, sample=True)
