"""What a query's workers are told at start: the configuration and the generation. Shipped with the code, by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from state.config import Config
from state.control.samples import Sample

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


@dataclass(frozen=True)
class Boot:
    """One life of the queries."""

    config: Config
    generation: int
    samples: Mapping[str, Sample] = field(default_factory=dict, repr=False)
    """Publications by type as they were when the generation began."""

    topic_ids: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's ids of the topics that must not be lost: one that is deleted and made again has another."""

    followed_ids: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The same of topics that patterns of sources match (`source_topics.py`): these may come and go."""
    careful: bool = False
    """Whether records are handled piece by piece, with a note of what is in hand (`careful.py`)."""
    suspects: frozenset[Place] = frozenset()
    """Records that are then handled one by one."""
    quarantined: frozenset[Place] = frozenset()
    """Records that are not handled any more: they become dead letters (`last_resort.py`)."""

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.config.deployment.hosts
