"""How Redis is reached: at one address, or in a cluster at the node that holds our slot.

    redis://HOST:PORT/DB  rediss://  unix://           one Redis
    redis+cluster://HOST:PORT,HOST:PORT  rediss+cluster://    a cluster: any of its nodes tells who holds the slot

In a cluster all keys of a prefix bear its tag, `{hilcast}:...`, and so lie in one slot: what a script writes together
is on one node, and that node is asked for everything. So whoever answers is one Redis, with one run id, as elsewhere. A
connection finds the node when it is made. Where the slot has moved, or the node is no primary any more, it is closed,
and the next one asks again. Another node is another run: what it holds counts for nothing until it is written again.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import redis
from redis.crc import key_slot

from state.config import Config

_CLUSTER = re.compile(r"(rediss?)\+cluster://(?:(?:([^:/@]*):)?([^/@]*)@)?([^/@?]+)/?")
_MOVED = (redis.exceptions.AskError, redis.exceptions.ClusterDownError, redis.exceptions.ReadOnlyError)
"""What a node says whose slot is elsewhere, or going there; `MovedError` is an `AskError`."""


def key_prefix(config: Config) -> str:
    """What every key begins with.

    >>> from state.config import parse
    >>> text = '[overlay]\\nbrokers = ["b1"]\\n[types.t.attributes]\\nx = { kind = "int" }\\n[deployment]\\nredis = '
    >>> [key_prefix(parse(text + url)) for url in ('"redis://h:1/0"', '"redis+cluster://h:1,i:2"')]
    ['hilcast', '{hilcast}']
    """
    prefix = config.deployment.prefix
    return f"{{{prefix}}}" if _CLUSTER.fullmatch(config.deployment.redis) else prefix


def open_redis(config: Config, **settings: Any) -> Any:
    """A client of the Redis of a configuration; `settings` go before those of `[redis]`."""
    found = _CLUSTER.fullmatch(config.deployment.redis)
    wanted = settings | dict(config.redis)
    if found is None:
        return redis.Redis.from_url(config.deployment.redis, **wanted)
    scheme, user, password, nodes = found.groups()
    who = {"username": user, "password": password}
    wanted |= {name: unquote(text) for name, text in who.items() if text}
    pool = redis.ConnectionPool(
        connection_class=_SecureSlotConnection if scheme == "rediss" else _SlotConnection,
        seeds=tuple(_address(node) for node in nodes.split(",")),
        slot=key_slot(key_prefix(config).encode()),
        **wanted,
    )
    return redis.Redis(connection_pool=pool)


def _address(node: str) -> tuple[str, int]:
    host, _, port = node.strip().rpartition(":")
    return host.strip("[]"), int(port)


class _OfSlot:
    """A connection to the primary that holds a slot when the connection is made."""

    plain: Any
    """The class of connections to a given address."""

    def __init__(self, *, seeds: tuple[tuple[str, int], ...], slot: int, **settings: Any) -> None:
        self._seeds, self._slot, self._settings = seeds, slot, settings
        super().__init__(host=seeds[0][0], port=seeds[0][1], **settings)  # type: ignore[call-arg]

    def _connect(self) -> Any:
        self.host, self.port = self._holder()
        return super()._connect()  # type: ignore[misc]

    def _holder(self) -> tuple[str, int]:
        """Who holds the slot now, as the first node says that answers."""
        why = "no node of the cluster answers"
        for host, port in self._seeds:
            asked = self.plain(host=host, port=port, **self._settings)
            try:
                asked.connect()
                asked.send_command("CLUSTER", "SLOTS")
                for first, last, primary, *_ in asked.read_response():
                    if first <= self._slot <= last:
                        # a node that does not know its own address leaves it out
                        return (bytes(primary[0] or b"").decode() or host), int(primary[1])
                why = f"CLUSTERDOWN: nobody holds slot {self._slot}"
            except redis.RedisError as error:
                why = f"no node of the cluster answers: {type(error).__name__}"
            finally:
                asked.disconnect()
        raise redis.ConnectionError(why)

    def read_response(self, *args: Any, **settings: Any) -> Any:
        try:
            return super().read_response(*args, **settings)  # type: ignore[misc]
        except _MOVED as error:
            self.disconnect()  # type: ignore[attr-defined]
            raise redis.ConnectionError(f"the slot is held by another node now: {type(error).__name__}") from error


class _SlotConnection(_OfSlot, redis.Connection):
    plain = redis.Connection


class _SecureSlotConnection(_OfSlot, redis.SSLConnection):
    plain = redis.SSLConnection
