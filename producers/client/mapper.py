"""Mapping on the client's side ([MICS09] §6.1): the ranges of a subscription.

                      configuration ──┐
                                      ├── grid ── filter ──> member `ranges`
    Redis PREFIX:grid:TYPE (fetched) ─┘

The encoding is that of `state/space/mapping.py`. Nothing is believed: the router checks that ranges cover their filter.

Differs: the paper has clients map events too; reading an event takes the router less time than reading and checking a
header (`python -m benchmarks.decode`).
"""

from __future__ import annotations

from typing import Literal

import redis

from state.config import Config
from state.errors import FilterError, HilcastError
from state.filters.cloudevents import read_filter
from state.filters.geometry import geometry
from state.redis_index import RedisIndex, away
from state.space.event_type import EventType
from state.space.grid import Grid
from state.space.mapping import map_subscription

GridFrom = Literal["configuration", "redis"]

RANGES_MAX = 256
"""Ranges of a subscription; beyond that the smallest gaps are closed, which the router accepts."""


class Mapper:
    """Maps filters of any type, on grids of the configuration or of the running router.

    A grid is made or fetched when its type is first used, and kept until `forget`.

    >>> from state.config import load
    >>> mapper = Mapper(load("hilcast.toml"))
    >>> grid = mapper.grid("sensor.reading")
    >>> mapper.ranges("sensor.reading", "celsius > 20").startswith("hs1." + grid.hash)
    True
    """

    def __init__(self, config: Config, grid_from: GridFrom = "configuration") -> None:
        self.grid_from = grid_from
        self._config = config
        self._known: dict[str, Grid] = {}

    def ranges(self, type: str, filter: object) -> str | None:
        """The ranges of a filter; None for one that cannot be read: the router says what is wrong with it."""
        grid = self.grid(type)
        event_type = EventType(type, grid.attributes)
        try:
            boxes = geometry(read_filter(filter, event_type), event_type).boxes
        except FilterError:
            return None
        return map_subscription(grid, boxes, RANGES_MAX)

    def grid(self, type: str) -> Grid:
        """The grid of a type. Raises HilcastError `unknown-type`, or `redis-away`."""
        if type not in self._known:
            self._known[type] = self._fetched(type) if self.grid_from == "redis" else self._configured(type)
        return self._known[type]

    def forget(self, type: str) -> None:
        """Make or fetch the grid of a type again when it is next used."""
        self._known.pop(type, None)

    def _configured(self, type: str) -> Grid:
        if type not in self._config.types:
            raise HilcastError("unknown-type", f"{type!r} is none of {', '.join(self._config.types)}")
        return Grid.of(self._config.types[type])

    def _fetched(self, type: str) -> Grid:
        index = RedisIndex(self._config)
        try:
            grid = index.grid(type)
        except redis.RedisError as error:
            raise away(error) from error
        finally:
            index.close()
        if grid is None:
            place = f"{self._config.deployment.prefix}:grid:{type}"
            raise HilcastError("unknown-type", f"no grid under {place} in Redis: is the job running (`hilcast run`)?")
        return grid
