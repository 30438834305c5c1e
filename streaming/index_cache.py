"""The index as a route worker holds it: loaded from Redis, checked by version, changed in place between tasks.

Before its first row a task reads which generation is in force, and its version vector: it goes by one generation from
its first row to its last. Another one is loaded whole before it replaces the one that is held. A part is used only if
the cached version is the one in the vector, written under the Redis that is up now; otherwise it is loaded, or the task
waits and says so. It also waits where Redis holds less than the driver has committed to Kafka (`state/index_mark.py`).
One worker of a host loads it for all (`host_index.py`); each maps what that one made once it is what its own look at
the vector asks for. Where there is no room for that, or who builds is stopped, a worker has an index of its own, and
says so.
So a lost, old or damaged index can delay a publication, never misroute it.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import redis
from confluent_kafka import KafkaException, Producer

from infra.kafka.dialects import librdkafka
from infra.logs import logger, set_up
from infra.schema_registry import beside_schemas
from infra.signing_keys import SigningKeys
from state.config import Config
from state.control.protocol import Republish, encode
from state.distribution.assignment import Assignment
from state.index_mark import Mark
from state.keys import Key, index_keys
from state.messages import Output
from state.redis_index import (
    CLOSED,
    Holding,
    Loaded,
    Look,
    RedisIndex,
    Version,
    groups_field,
    version_beside,
)
from state.redis_retry import trouble
from state.routing.junction import Junction
from state.routing.sharing import Sharing
from state.routing.snapshot import Snapshot
from state.signing import signed
from state.space.encodings.schemas import Schemas
from state.space.grid import Grid
from streaming import allocator
from streaming.boot import Boot
from streaming.host_index import HostIndex, Place, folder_for
from streaming.progress import Committed
from streaming.schema_shelf import RedisShelf

_log = logger("route")

POLL_S = 0.1
ASK_AGAIN_S = 2.0
BUSY = "another worker of this host builds the index"
PREPARED_S = 300.0
"""How long a generation is tried to be had before it is in force."""
STALE_AFTER_S = 3.0
"""With `stale = "route"`: how long a task waits for Redis before it goes on with what it has."""


class Held:
    """The index of one generation, as far as it is loaded."""

    def __init__(self, config: Config, generation: int, schemas: Schemas) -> None:
        self.config = config
        self.schemas = schemas
        self.generation = generation
        self.keys = index_keys(config, config.deployment.hosts)
        self._by_field = {str(key): key for key in self.keys}
        self.grids = {name: Grid.of(event_type) for name, event_type in config.types.items()}
        self.sharing: dict[str, tuple[str, Sharing]] = {}
        """By broker: version and assignment."""
        self.closed: tuple[str, dict[str, str]] = ("", {})
        """Version and destinations that nothing can be written to now."""
        self.faults = 0
        """Entries that were left out since it was last counted."""
        self.snapshot: Snapshot | None = None
        self.look: Look | None = None
        """The vector that all that is held is of; None: it has to be read anew."""
        self.run = ""
        """Under which run of Redis the parts were loaded that are held."""
        self._batch = 0
        """The newest control batch of the parts that are held."""
        self._parts: dict[Key, tuple[str, Holding]] = {}
        """Epoch and state of each part that is joined."""
        self._junctions: dict[Place, Junction] = {}
        self._places: dict[Place, list[Key]] = defaultdict(list)
        for key in self.keys:
            self._places[key.broker, key.type].append(key)
        self.host: HostIndex | None = None
        """Where the workers of this host share it; None: it is held here alone."""
        self.alone = False
        """Whether it cannot be shared."""
        self.own = False
        """Whether what is held was changed here: it is another one than this host has."""
        self._names: dict[Place, str] = {}
        """By junction that is shared: what it was opened by."""

    def stale(self, look: Look) -> list[Key] | None:
        """The parts that are not held as the vector has them; None where it is not complete.

        Cost: the fields that changed, where the vector that is held is known; all parts otherwise.
        """
        found = []
        for key in self._asked(look):
            version = look.versions.get(str(key))
            if version is None or version.run != look.run:
                return None
            known = self._parts.get(key)
            if known is None or known[0] != version.epoch:
                found.append(key)
        return found

    def _asked(self, look: Look) -> Iterable[Key]:
        """The parts whose version may be another one than that which is held."""
        if look.changed is None:
            return self.keys
        return [key for field in sorted(look.changed) if (key := self._by_field.get(field)) is not None]

    def behind(self, host: HostIndex, look: Look, exact: bool) -> dict[Place, list[Key]]:
        """The parts of each junction that a host has not got as the vector has them.

        `exact`: newer ones are not good either. Otherwise they are: somebody has looked later.
        """
        asked: dict[Place, list[Key]] = defaultdict(list)
        for key in self._asked(look):
            asked[key.broker, key.type].append(key)
        found = {}
        for place, keys in self._places.items():
            here, known = host.parts(place), place in self._names and host.names.get(place) == self._names[place]
            some = [
                key
                for key in (asked[place] if known else keys)
                if (one := here.get(key.part)) is None
                or _batch(one[0]) < look.versions[str(key)].batch
                or (exact and one[0] != look.versions[str(key)].epoch)
            ]
            if some:
                found[place] = some
        return found

    def adopt(self, host: HostIndex) -> None:
        """Go by what a host has, all or nothing."""
        # numbers of an index of one's own stand for something else
        before = {} if self.own else self._junctions
        opened = {
            place: host.opened(self.config, self.grids[place[1]], place, before.get(place))
            for place, name in host.names.items()
            if self._names.get(place) != name
        }
        self.own = False
        self._junctions |= opened
        self._names = dict(host.names)
        for place in opened:
            self._parts.update({Key(*place, part): one for part, one in host.parts(place).items()})
        if opened:
            self.snapshot = None

    def leave(self) -> None:
        """Share nothing any more; what is mapped stays."""
        if self.host is not None:
            self.host.close()
        self.host, self._names = None, {}

    def part_ways(self) -> None:
        """Change what is held here from now on, until all of it can be had from the host again."""
        self.own, self._names = True, {}

    def is_older(self, key: Key, run: str, epoch: str) -> bool:
        """Whether something older than what is held stands in its place: one Redis never goes back by itself."""
        known = self._parts.get(key)
        return known is not None and run == self.run and _batch(epoch) < _batch(known[0])

    def holding(self, key: Key, run: str) -> Holding | None:
        """Which state of a part is held, if that was loaded from the same run of Redis."""
        return self._parts[key][1] if key in self._parts and run == self.run else None

    def join(self, loaded: Mapping[Key, Loaded]) -> None:
        """Take in all that changed: a part that is held counts as joined."""
        self._update(loaded)
        self._parts.update({key: (one.epoch, one.holding) for key, one in loaded.items()})

    def take(self, sharing: dict[str, tuple[str, Sharing]], look: Look) -> None:
        """What is held is now what this vector says, with these assignments beside it."""
        if {b: version for b, (version, _) in sharing.items()} != {b: v for b, (v, _) in self.sharing.items()}:
            self.snapshot = None
        self.sharing = sharing
        newest = max((look.versions[str(key)].batch for key in self._asked(look)), default=0)
        # a version never goes back under one run of Redis
        self._batch = newest if look.changed is None else max(newest, self._batch)
        self.look = look
        self._publish(f"{self.generation}.{self._batch}")

    def close(self, version: str, closed: dict[str, str]) -> None:
        """Go by another set of closed destinations."""
        if version != self.closed[0]:
            self.closed, self.snapshot = (version, closed), None

    def _update(self, loaded: Mapping[Key, Loaded]) -> None:
        """Join what changed; between tasks nobody reads."""
        gc.unfreeze()
        changed: dict[Place, dict[Key, Loaded]] = defaultdict(dict)
        for key, one in loaded.items():
            changed[key.broker, key.type][key] = one
        for (broker, type_name), some in sorted(changed.items()):
            if (broker, type_name) not in self._junctions:
                junction = Junction(self.config.types[type_name], self.grids[type_name])
                self._junctions[broker, type_name] = junction
            junction = self._junctions[broker, type_name]
            _join(junction, some, {key: self._parts[key][1] for key in some if key in self._parts})
            self.say_faults((broker, type_name), junction)
        self.snapshot = None
        # the worker collects garbage after every task: keep the index out of its sight
        gc.collect()
        gc.freeze()

    def say_faults(self, place: Place, junction: Junction) -> None:
        """Log what had to be left out, and count it."""
        for line in junction.faults:
            _log.error("%s/%s: %s: it is left out", *place, line)
        self.faults += len(junction.faults)
        junction.faults.clear()

    def _publish(self, epoch: str) -> None:
        if self.snapshot is not None and self.snapshot.epoch == epoch:
            return
        by_type: dict[str, dict[str, Junction]] = {t: {} for t in self.config.types}
        for (broker, type_name), junction in self._junctions.items():
            by_type[type_name][broker] = junction
        sharing = {broker: held for broker, (_, held) in self.sharing.items()}
        self.snapshot = Snapshot(self.config, epoch, by_type, sharing, schemas=self.schemas, closed=self.closed[1])


def _join(junction: Junction, loaded: Mapping[Key, Loaded], held: Mapping[Key, Holding]) -> None:
    """Have a junction take in what was read of its parts; deltas only from the state that was said to be held."""
    led = {key: one.deltas for key, one in loaded.items() if one.part is None}
    assert all(key in held and junction.stamp(key) == held[key].stamp for key in led), "another index than is held"
    junction.update({key: one.whole() for key, one in loaded.items() if one.part is not None})
    junction.change(led)
    assert all(junction.stamp(key) == one.holding.stamp for key, one in loaded.items()), "not what was read"


def _batch(epoch: str) -> int:
    return int(epoch.partition(".")[2])


class IndexCache:
    """One per Python worker, kept in this module so that it outlives tasks."""

    def __init__(self, boot: Boot) -> None:
        self.config = boot.config
        self.keys = SigningKeys(boot.config)
        self.redis = RedisIndex(boot.config, keys=self.keys.current)
        self._counted = 0
        """How much of what was met in Redis and is not genuine has been counted."""
        self._held: Held | None = None
        self._coming: Held | None = None
        """Another generation, as long as it is not complete."""
        self._asked: dict[Key, float] = {}
        self._schemas = beside_schemas(boot.config, RedisShelf(self.redis, boot.config))
        self._producer: Producer | None = None
        self._committed = Committed(boot.config)

    def snapshot(self, topics: Collection[str] = ()) -> Snapshot:
        """The index that is in force now; waits until it is complete.

        `topics`: what the query reads. Which of them are sources by a pattern, the configuration in force says.
        """
        return self._complete().reading(topics)

    def _complete(self) -> Snapshot:
        started, told = time.monotonic(), ""
        while True:
            why = self._refresh()
            held = None if self._held is None else self._held.snapshot
            if not why and held is not None:
                if told:
                    _log.info("routing goes on")
                return held
            waited = time.monotonic() - started
            if self.config.deployment.stale == "route" and held is not None and waited > STALE_AFTER_S:
                # nobody may be served by an old assignment: its readers may have left
                return replace(held, sharing={}, stale=True)
            if why != told and waited > 1.0:
                _log.warning("routing waits: %s", why)
                told = why
            time.sleep(POLL_S)

    def _refresh(self) -> str:
        """Bring the cache up to what is in force; return why that is not possible, or nothing."""
        try:
            # read before the index is: what was said to be in force by now, that must have
            committed = self._committed.mark()
            if self._held is None:
                _, generation = self.redis.current()
            else:
                look = self.redis.look(self._held.generation, self._held.look)
                generation = look.in_force
                if generation == self._held.generation:
                    return self._load(self._held, look, committed)
            return "the index in redis is not complete" if generation is None else self._take_up(generation, committed)
        except redis.RedisError as error:
            return f"redis is away ({trouble(error)})"
        except KafkaException as error:
            return f"kafka does not say what is in force ({error.args[0].name()})"

    def _take_up(self, generation: int, committed: Mark | None) -> str:
        """Go over to another generation, whole; what is held stays until then."""
        shared = self.redis.configuration(generation)
        if shared is None:
            return "the index in redis is not complete"
        why = self._approach(generation, shared, committed)
        if not why:
            if self._held is not None:
                _log.info("routing by generation %d", generation)
                self._held.leave()
            self._held, self._coming = self._coming, None
        return why

    def _approach(self, generation: int, shared: bytes, committed: Mark | None) -> str:
        """Hold another generation as its vector is now; return why that is not possible, or nothing."""
        if self._coming is None or self._coming.generation != generation:
            self._forget_coming()
            self._coming = Held(self.config.adopting(shared), generation, self._schemas)
        return self._load(self._coming, self.redis.look(generation), committed)

    def prepare(self, generation: int, shared: bytes, patience_s: float = PREPARED_S) -> bool:
        """Hold a generation, of this configuration, that is about to be in force; return whether it is held now.

        Nothing goes by it yet. What this host shares of it then, others map when it is in force, and need not wait.
        """
        until, why = time.monotonic() + patience_s, ""
        while time.monotonic() < until:
            try:
                why = self._approach(generation, shared, None)
            except redis.RedisError as error:
                why = f"redis is away ({trouble(error)})"
            if not why:
                return True
            time.sleep(POLL_S)
        _log.warning("generation %d is not loaded before it is in force: %s", generation, why)
        return False

    def _forget_coming(self) -> None:
        if self._coming is not None:
            self._coming.leave()
        self._coming = None

    def _load(self, held: Held, look: Look, committed: Mark | None) -> str:
        """Bring one generation up to its vector, unless that is behind what was committed."""
        run, vector = look.run, look.versions
        if Mark.of(held.generation, run, vector).is_behind(committed):
            return "redis holds an older index than was in force"
        if look.changed is not None and not look.changed and held.snapshot is not None:
            return ""  # nothing was written since
        # until all of it is taken in, what is held is of no vector
        held.look = None
        stale = held.stale(look)
        if stale is None:
            return "the index in redis is not complete"
        closed, sharing = self._closed(held, run, vector), self._assignments(held, run, vector)
        why = self._bring(held, look, stale) if stale else ""
        if why:
            return why
        held.run = run
        held.close(*closed)
        held.take(sharing, look)
        if held.faults:
            self.count({"internal": held.faults})
            held.faults = 0
        return ""

    def _bring(self, held: Held, look: Look, stale: list[Key]) -> str:
        """Have the parts that are stale as the vector has them, by what this host shares or here alone."""
        try:
            host = self._host(held, look)
            if host is not None:
                why = self._share(held, host, look)
                if why != BUSY or not host.is_stuck():
                    return why
                if not held.own:
                    self._say_own("the worker that builds it is stopped, or waits for something")
                held.part_ways()
        except FileNotFoundError:
            return "the index of this host has changed meanwhile"
        except OSError as error:
            held.leave()
            held.part_ways()
            held.alone = True
            self._say_own(error)
        wanted = {key: held.holding(key, look.run) for key in stale}
        loaded = self._loaded(held, wanted, look, held.is_older)
        if isinstance(loaded, str):
            return loaded
        held.join(loaded)
        return ""

    def _say_own(self, why: object) -> None:
        _log.error("the index cannot be shared on this host (%s): this worker makes one of its own", why)
        self.count({"own_index": 1})

    def _host(self, held: Held, look: Look) -> HostIndex | None:
        """Where this lineage is shared on this host."""
        if held.alone:
            return None
        folder = folder_for(held.config, look)
        if held.host is not None and held.host.folder != folder:
            held.leave()
        if held.host is None and folder is not None:
            held.host = HostIndex(folder)
        return held.host

    def _share(self, held: Held, host: HostIndex, look: Look) -> str:
        """Go by what this host has, once it has what the vector says; build that, if nobody does."""
        exact = self.keys.current() is not None
        with contextlib.suppress(FileNotFoundError):  # what is gone meanwhile is looked for under the lock
            host.refresh()
            if not held.behind(host, look, exact):
                held.adopt(host)
                return ""
        with host.building() as mine:
            if not mine:
                return BUSY
            try:
                why = self._build(held, host, look, held.behind(host, look, exact))
                if not why:
                    held.adopt(host)
            except (OSError, AssertionError):
                host.clear()  # whatever stands there, nobody builds on it again
                raise
        return why

    def _build(self, held: Held, host: HostIndex, look: Look, behind: Mapping[Place, list[Key]]) -> str:
        """Bring junctions of this host up to the vector, each for itself: what is done need not be done again."""
        for place, keys in sorted(behind.items()):
            here = host.parts(place)  # all of the same run of Redis: another one has another folder
            known = {key: here[key.part][1] for key in keys if key.part in here}

            def is_older(key: Key, run: str, epoch: str, here: Mapping[str, tuple[str, Holding]] = here) -> bool:
                return key.part in here and _batch(epoch) < _batch(here[key.part][0])

            loaded = self._loaded(held, {key: known.get(key) for key in keys}, look, is_older)
            if isinstance(loaded, str):
                return loaded
            junction = host.opened(held.config, held.grids[place[1]], place)
            _join(junction, loaded, known)
            held.say_faults(place, junction)
            host.put(place, junction, {**here, **{key.part: (one.epoch, one.holding) for key, one in loaded.items()}})
            del junction, loaded
            allocator.give_back()
        return ""

    def _loaded(
        self,
        held: Held,
        wanted: Mapping[Key, Holding | None],
        look: Look,
        is_older: Callable[[Key, str, str], bool],
    ) -> dict[Key, Loaded] | str:
        """What leads to parts as Redis has them, from the states of them that are held, or all of them; or why they
        cannot be had: then they are asked for.
        """
        loaded = {}
        for key, part in zip(wanted, self.redis.follow(wanted, held.generation, look.run), strict=True):
            # base and deltas are written together with the vector: what is behind it has lost something
            if (
                part is None
                or _batch(part.epoch) < look.versions[str(key)].batch
                or (self.keys.current() is not None and is_older(key, look.run, part.epoch))
            ):
                self._ask(key)
                return "a part of the index in redis is lost or damaged, or is not genuine"
            loaded[key] = part
        return loaded

    def close(self) -> None:
        """Be used no more."""
        self._forget_coming()
        if self._held is not None:
            self._held.leave()

    def _assignments(self, held: Held, run: str, vector: Mapping[str, Version]) -> dict[str, tuple[str, Sharing]]:
        """By broker: the assignment that is in force; a lost one means unicast."""
        found = {}
        for broker in held.config.distribution:
            version = version_beside(vector, groups_field(broker), run, held.generation)
            known = held.sharing.get(broker)
            if version is None:
                continue
            if known is not None and known[0] == version.epoch:
                found[broker] = known
            elif (loaded := self.redis.load_groups(broker, held.generation, run)) is not None:
                found[broker] = loaded[0], Sharing(Assignment.decode(loaded[1]))
        return found

    def _closed(self, held: Held, run: str, vector: Mapping[str, Version]) -> tuple[str, dict[str, str]]:
        """Version and destinations that nothing can be written to; where that is lost, none: their sink would fail."""
        version = version_beside(vector, CLOSED, run, held.generation)
        if version is None:
            return "", {}
        if held.closed[0] == version.epoch:
            return held.closed
        return self.redis.load_closed(held.generation, run) or ("", {})

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
        if self.redis.forged > self._counted:
            _log.error("%s: what redis has of it was not signed by this deployment, and is not used", key)
            self.count({"forged": 1})
            self._counted = self.redis.forged
        if self._producer is None:
            self._producer = Producer(librdkafka(self.config))
        request = signed(
            Output(self.config.topics.control, str(key).encode(), encode(Republish())), self.keys.current()
        )
        self._producer.produce(request.topic, key=request.key, value=request.value, headers=list(request.headers))
        self._producer.flush(5.0)


_caches: dict[str, IndexCache] = {}


def cache(boot: Boot) -> IndexCache:
    """The cache of this worker; it outlives the query, whose next life may have another configuration."""
    identity = repr(boot.config.deployment)
    if identity not in _caches:
        set_up(boot.config, "route")
        for one in _caches.values():
            one.close()
        _caches.clear()
        _caches[identity] = IndexCache(boot)
    return _caches[identity]
