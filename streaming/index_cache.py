"""The index as a route worker holds it: loaded from Redis, checked by version, changed in place between tasks.

Before its first row a task reads the version vector. A part is used only if the cached version is the one in the
vector, written under the Redis that is up now; otherwise it is loaded, or the task waits and says so. So a lost, old or
damaged index can delay a publication, never misroute it.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import redis
from confluent_kafka import Producer

from infra.kafka.dialects import librdkafka
from infra.logs import logger, set_up
from infra.schema_registry import open_schemas
from state.compiled_part import CompiledPart
from state.control.protocol import Republish, encode
from state.distribution.assignment import Assignment
from state.keys import Key, index_keys
from state.redis_index import RedisIndex, Version, groups_version
from state.routing.junction import Junction
from state.routing.sharing import Sharing
from state.routing.snapshot import Snapshot
from state.space.grid import Grid
from streaming.boot import Boot

_log = logger("route")

POLL_S = 0.1
ASK_AGAIN_S = 2.0
STALE_AFTER_S = 3.0
"""With `stale = "route"`: how long a task waits for Redis before it goes on with what it has."""


class IndexCache:
    """One per Python worker, kept in this module so that it outlives tasks."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.config = boot.config
        self.keys = index_keys(boot.config, boot.hosts)
        self.redis = RedisIndex(boot.config)
        self.grids = {name: Grid.of(event_type) for name, event_type in boot.config.types.items()}
        self._parts: dict[Key, tuple[str, CompiledPart]] = {}
        self._junctions: dict[tuple[str, str], Junction] = {}
        self._sharing: dict[str, tuple[str, Sharing]] = {}
        """By broker: version and assignment."""
        self._snapshot: Snapshot | None = None
        self._asked: dict[Key, float] = {}
        self._schemas = open_schemas(boot.config)
        self._producer: Producer | None = None

    def snapshot(self) -> Snapshot:
        """The index that is in force now; waits until it is complete."""
        started, told = time.monotonic(), ""
        while True:
            why = self._refresh()
            if not why and self._snapshot is not None:
                if told:
                    _log.info("routing goes on")
                return self._snapshot
            waited = time.monotonic() - started
            if self.config.deployment.stale == "route" and self._snapshot is not None and waited > STALE_AFTER_S:
                # nobody may be served by an old assignment: its readers may have left
                return replace(self._snapshot, sharing={}, stale=True)
            if why != told and waited > 1.0:
                _log.warning("routing waits: %s", why)
                told = why
            time.sleep(POLL_S)

    def _refresh(self) -> str:
        """Bring the cache up to the vector; return why that is not possible, or nothing."""
        try:
            run, vector = self.redis.vector()
            return self._load(run, vector)
        except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ResponseError) as error:
            return f"redis is away ({type(error).__name__})"

    def _load(self, run: str, vector: Mapping[str, Version]) -> str:
        stale, batch = [], 0
        for key in self.keys:
            version = vector.get(str(key))
            if version is None or version.run != run or version.generation != self.boot.generation:
                return "the index in redis is not complete"
            batch = max(batch, version.batch)
            held = self._parts.get(key)
            if held is None or held[0] != version.epoch:
                stale.append(key)
        loaded = {}
        for key, part in zip(stale, self.redis.load(stale), strict=True):
            if part is None:
                self._ask(key)
                return "a part of the index in redis is lost or damaged"
            loaded[key] = part
        if self._load_groups(run, vector):
            self._snapshot = None
        # all or nothing: a part that is held counts as joined
        self._parts.update(loaded)
        if loaded:
            self._update(stale)
        self._publish(f"{self.boot.generation}.{batch}")
        return ""

    def _load_groups(self, run: str, vector: Mapping[str, Version]) -> bool:
        """Bring the assignments up to the vector; a lost one means unicast. Tell whether anything changed."""
        before = {broker: version for broker, (version, _) in self._sharing.items()}
        for broker in self.config.distribution:
            version = groups_version(vector, broker, run, self.boot.generation)
            held = self._sharing.get(broker)
            if version is None:
                self._sharing.pop(broker, None)
            elif held is None or held[0] != version.epoch:
                loaded = self.redis.load_groups(broker)
                self._sharing.pop(broker, None)
                if loaded is not None:
                    self._sharing[broker] = loaded[0], Sharing(Assignment.decode(loaded[1]))
        return before != {broker: version for broker, (version, _) in self._sharing.items()}

    def _update(self, stale: list[Key]) -> None:
        """Take in the parts that changed; between tasks nobody reads."""
        gc.unfreeze()
        changed: dict[tuple[str, str], dict[Key, CompiledPart]] = defaultdict(dict)
        for key in stale:
            changed[key.broker, key.type][key] = self._parts[key][1]
        for (broker, type_name), parts in sorted(changed.items()):
            if (broker, type_name) not in self._junctions:
                junction = Junction(self.config.types[type_name], self.grids[type_name])
                self._junctions[broker, type_name] = junction
            self._junctions[broker, type_name].update(parts)
        self._snapshot = None
        # the worker collects garbage after every task: keep the index out of its sight
        gc.collect()
        gc.freeze()

    def _publish(self, epoch: str) -> None:
        if self._snapshot is not None and self._snapshot.epoch == epoch:
            return
        by_type: dict[str, dict[str, Junction]] = {t: {} for t in self.config.types}
        for (broker, type_name), junction in self._junctions.items():
            by_type[type_name][broker] = junction
        sharing = {broker: held for broker, (_, held) in self._sharing.items()}
        self._snapshot = Snapshot(self.config, epoch, by_type, sharing, schemas=self._schemas)

    def count(self, figures: Mapping[str, int]) -> None:
        """Add to the live figures; they are for people, so an absent Redis costs nothing but the figures."""
        try:
            self.redis.count(figures)
        except redis.RedisError as error:
            _log.warning("figures lost: %s", type(error).__name__)

    def _ask(self, key: Key) -> None:
        """Ask for a part to be written again, by a producer of our own: rows of a task reach Kafka only at its end."""
        if time.monotonic() - self._asked.get(key, -ASK_AGAIN_S) < ASK_AGAIN_S:
            return
        self._asked[key] = time.monotonic()
        if self._producer is None:
            self._producer = Producer(librdkafka(self.config))
        self._producer.produce(self.config.topics.control, key=str(key).encode(), value=encode(Republish()))
        self._producer.flush(5.0)


_caches: dict[tuple[str, int], IndexCache] = {}


def cache(boot: Boot) -> IndexCache:
    """The cache of this worker for this life of the queries."""
    identity = (repr(boot.config), boot.generation)
    if identity not in _caches:
        set_up(boot.config, "route")
        _caches.clear()
        _caches[identity] = IndexCache(boot)
    return _caches[identity]
