"""Mapping on the client's side ([MICS09] §6.1): the header of an event, the ranges of a subscription.

                      configuration ──┐
                                      ├── grid ──┬── value  ──> header `hilcast_mapping`
    Redis PREFIX:grid:TYPE (fetched) ─┘          └── filter ──> member `ranges`

The encodings are those of `state/space/mapping.py`. Nothing is delivered on a client's word: the router judges the
event itself, whatever its header says, and checks that ranges cover their filter.

Differs: the paper has every client map. Here it is asked for: reading an event takes the router less time than reading
and checking its header (`python -m benchmarks.decode`), so that a header serves whoever reads the publications besides
the router; it is dropped on delivery like every `hilcast_*`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import redis

from state.config import Config
from state.errors import FilterError, HilcastError
from state.filters.cloudevents import read_filter
from state.filters.geometry import geometry
from state.messages import Headers, Record
from state.publications import beside_columns
from state.redis_index import RedisIndex, away
from state.space.decode import decode
from state.space.event_type import Attribute, EventType
from state.space.grid import Grid
from state.space.mapping import EVENT_HEADER, map_event, map_subscription

GridFrom = Literal["configuration", "redis"]

RANGES_MAX = 256
"""Ranges of a subscription; beyond that the smallest gaps are closed, which the router accepts."""
_ORDERED = ("int", "float", "timestamp")


class Mapper:
    """Maps events and filters of any type, on grids of the configuration or of the running router.

    A grid is made or fetched when its type is first used, and kept until `forget`.

    >>> from state.config import load
    >>> mapper = Mapper(load("hilcast.toml"))
    >>> grid = mapper.grid("sensor.reading")
    >>> ((name, text),) = mapper.headers("sensor.reading", b'{"celsius": 21.5}')
    >>> name, text.startswith(b"he1." + grid.hash.encode())
    ('hilcast_mapping', True)
    >>> mapper.ranges("sensor.reading", "celsius > 20").startswith("hs1." + grid.hash)
    True
    """

    def __init__(self, config: Config, grid_from: GridFrom = "configuration") -> None:
        self.grid_from = grid_from
        self._config = config
        self._known: dict[str, Grid] = {}

    def headers(self, type: str, value: bytes, given: Headers = (), key: bytes | None = None) -> Headers:
        """The header of an event; none where it is no point of its type: not an object, or with an interval in it.

        Where attributes are (`given`: the record's headers), the configuration says.
        """
        grid = self.grid(type)
        event_type = EventType(type, tuple(self._spreading(type, attribute) for attribute in grid.attributes))
        record = Record("", 0, 0, 0, key, value, given)
        batch = decode(event_type, [value], beside_columns(event_type, [record]))
        is_point = batch.valid[0] and batch.highs is None
        return ((EVENT_HEADER, map_event(grid, batch.ranks[0])),) if is_point else ()

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

    def _spreading(self, type: str, attribute: Attribute) -> Attribute:
        """The attribute where it is, open to intervals wherever its kind can be: a grid says neither."""
        known = self._config.types.get(type)
        if known is not None and attribute.name in known.dimension:
            place = known.attribute(attribute.name)
            attribute = replace(attribute, path=place.path, header=place.header, key=place.key)
        spreads = attribute.kind in _ORDERED and bool(attribute.members)
        return replace(attribute, imprecise="certain" if spreads else None)
