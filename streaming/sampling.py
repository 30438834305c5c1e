"""A sample of publications: what a generation begins with (`state/control/samples.py`), what choices are made by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.kafka import Transport
from infra.kafka.reading import between
from infra.schema_registry import prompt_schemas
from state.config import Config
from state.control.samples import pruned_types, samples_of
from state.messages import Record
from state.space.event_type import EventType
from state.topics import published

LOOK = 2000
"""Records at the end of each partition that are looked at."""


def sample(
    config: Config, transport: Transport, types: Mapping[str, EventType] | None = None
) -> dict[str, list[dict[str, object]]]:
    """The last publications of these types, or of every type that is pruned; nothing is read where there is none."""
    types = pruned_types(config) if types is None else types
    if not types:
        return {}
    config = config.with_topics(transport.topics())
    others = {source.topic for source in config.sources if source.type not in types}
    topics = [topic for topic in published(config) if topic not in others]
    return samples_of(_last(transport, topics), config, prompt_schemas(config, strict=False), types)


def _last(transport: Transport, topics: list[str]) -> Iterator[Record]:
    """The last records of each partition, one partition after the other."""
    for topic in topics:
        for number in transport.partitions(topic):
            low, end = transport.span(topic, number)
            yield from between(transport, {(topic, number): (max(low, end - LOOK), end)}, sample=True)
