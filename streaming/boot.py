"""What a query's workers are told at start: the configuration and the generation. Shipped with the code, by Spark."""

from __future__ import annotations

from dataclasses import dataclass

from state.config import Config


@dataclass(frozen=True)
class Boot:
    """One life of the queries."""

    config: Config
    generation: int

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.config.deployment.hosts
