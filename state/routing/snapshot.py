"""What routing knows: the whole index at one moment, as plain data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from state.config import Config
from state.routing.junction import Junction
from state.routing.sharing import Sharing
from state.routing.sweep import Tree
from state.space.encodings.schemas import NO_SCHEMAS, Schemas


@dataclass(frozen=True)
class Snapshot:
    """One configuration and the index that is in force; everything that `route` goes by."""

    config: Config
    epoch: str
    """The version of the index, stamped on what is routed with it."""
    junctions: Mapping[str, Mapping[str, Junction]]
    """By type, then by hosted broker."""
    sharing: Mapping[str, Sharing] = field(default_factory=dict)
    """By broker: who may be served through shared topics."""
    stale: bool = False
    """Whether something newer may be in force; deliveries say so."""
    schemas: Schemas = NO_SCHEMAS
    """Where schemas are had that events name."""
    closed: Mapping[str, str] = field(default_factory=dict)
    """Destinations that nothing can be written to now, with the reason: what was for them becomes dead letters."""

    quarantined: frozenset[tuple[str, int, int]] = frozenset()
    """Events, by topic, partition and offset, that are not routed: they become dead letters `internal`."""

    def reading(self, topics: Collection[str]) -> Snapshot:
        """The same, with these topics among the sources as far as patterns match them (`Config.with_topics`)."""
        config = self.config.with_topics(topics)
        return self if config is self.config else replace(self, config=config)

    @cached_property
    def hosts(self) -> frozenset[str]:
        """The brokers that are routed here."""
        return frozenset(self.config.deployment.hosts)

    @property
    def tree(self) -> Tree:
        """The overlay, hung up."""
        return Tree.of(self.config.overlay)
