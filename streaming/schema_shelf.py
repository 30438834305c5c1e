"""Schemas that some worker has had, kept in Redis: a worker that is new reads events while the registry is away.

A copy only: without Redis, or after it was emptied, the registry is asked.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence

import redis

from state.config import Config
from state.redis_index import RedisIndex
from state.schema_settings import CACHED
from state.secrets import redacted
from state.space.encodings.schemas import Schema, packed, unpacked


class RedisShelf:
    """Of one registry: ids mean nothing in another one."""

    def __init__(self, index: RedisIndex, config: Config) -> None:
        url = "" if config.schemas is None else redacted(config.schemas.url)
        self._most = CACHED if config.schemas is None else config.schemas.cached
        self._index, self._registry = index, hashlib.blake2b(url.encode(), digest_size=8).hexdigest()

    def had(self, ids: Sequence[int]) -> dict[int, Schema]:
        """What is kept of these; what is damaged there is not."""
        try:
            blobs = self._index.schemas(self._registry, ids)
        except redis.RedisError:
            return {}
        found = {}
        for id, blob in blobs.items():
            with contextlib.suppress(ValueError):
                found[id] = unpacked(blob)
        return found

    def put(self, had: Mapping[int, Schema]) -> None:
        """Keep these, each perhaps in the place of another; the registry has them, too."""
        with contextlib.suppress(redis.RedisError):
            for id, schema in had.items():
                self._index.keep_schema(self._registry, id, packed(schema), self._most)
