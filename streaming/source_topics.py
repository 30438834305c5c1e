"""Topics of existing producers that a pattern matches: which there are now, and whether they are still the same.

They come and go as their owners like, and nobody is asked: one that is new is read from its beginning, one that is gone
is left. One that was deleted and made again has the old name and other offsets, so Kafka's ids are compared, not names.
"""

from __future__ import annotations

from collections.abc import Collection

from infra.kafka.topic_keeper import TopicKeeper
from state.config import Config


def followed(config: Config, topics: TopicKeeper, taken: Collection[str]) -> tuple[Config, dict[str, str]]:
    """The configuration with the topics that its patterns match now, and Kafka's ids of these.

    `taken`: the sinks of live subscriptions, which are never among them.
    """
    if not config.patterns:
        return config, {}
    named = {source.topic for source in config.sources}
    matched = [source.topic for source in config.with_topics(topics.existing(), taken).sources]
    ids = topics.ids(topic for topic in matched if topic not in named)
    return config.with_topics(ids, taken), ids
