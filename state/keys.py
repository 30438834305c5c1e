"""The three kinds of key that own state, and who owns what.

    b1/stock.quote/home:3    ids whose hash falls there: version, owner, cubes, expiry
    b1/stock.quote/cube:17   geometry of one cube: what each interface asked for, what was forwarded
    b1/stock.quote/wide:0    the same for filters that would touch more than 1/8 of the cubes

A key is also the key of its messages on the control topic, so that they arrive in order.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from state.config import Config
from state.names import parted

UNROUTABLE = "!"
"""The key that answers control events whose own key names no broker of the overlay."""


class Key(NamedTuple):
    """Broker, event type, and the part of its state: `home:n`, `cube:n` or `wide:n`.

    >>> str(Key("b1", "stock.quote", "cube:4"))
    'b1/stock.quote/cube:4'
    """

    broker: str
    type: str
    part: str

    def __str__(self) -> str:
        return f"{self.broker}/{self.type}/{self.part}"

    @property
    def is_home(self) -> bool:
        return self.part.startswith("home:")

    @property
    def is_wide(self) -> bool:
        return self.part.startswith("wide:")

    @property
    def number(self) -> int:
        return int(self.part.split(":")[1])

    def at(self, broker: str) -> Key:
        """The same part of the same type at another broker."""
        return Key(broker, self.type, self.part)

    @classmethod
    def parse(cls, text: str) -> Key:
        broker, type_name, part = text.split("/")
        return cls(broker, type_name, part)


def shard(id: str, shards: int) -> int:
    """Which shard owns an id: CRC-32, because Spark's SQL has the same function."""
    return zlib.crc32(id.encode()) % shards


def home_shard(id: str, shards: int) -> int:
    """Which home key owns an id: all of a client's namespace have one, so that it can be counted what he has.

    >>> home_shard("alice:s1", 8) == home_shard("alice:s2", 8) == shard("alice", 8)
    True
    """
    return shard(parted(id)[0] or id, shards)


def home_key(broker: str, type_name: str, id: str, config: Config) -> Key:
    return Key(broker, type_name, f"home:{home_shard(id, config.settings.home_shards)}")


def wide_part(id: str, config: Config) -> str:
    """The part of every broker and type that holds a wide filter of this id."""
    return f"wide:{shard(id, config.settings.wide_shards)}"


def is_wide(touched: int, cubes: int) -> bool:
    """Whether a filter that touches so many of a type's cubes goes to a wide key."""
    return touched > max(1, cubes // 8)


def index_parts(config: Config, type_name: str) -> list[str]:
    """Every part that owns an index, cubes first; each has an entry in Redis even when it is empty."""
    cubes = [f"cube:{i}" for i in range(config.types[type_name].cubes)]
    return cubes + [f"wide:{i}" for i in range(config.settings.wide_shards)]


def index_keys(config: Config, brokers: tuple[str, ...]) -> list[Key]:
    """Every key of these brokers that owns an index, in a fixed order."""
    return [Key(b, t, part) for b in brokers for t in config.types for part in index_parts(config, t)]
