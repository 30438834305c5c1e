"""Building a generation: its homes, then its parts, by Spark where there are many, in the driver where there are few.

    facts by home key ──restore──┬─> seeds of the homes (Kafka)
                                 ├─> receipts, topics, faults ──> the driver
                                 └─> what parts are told ──shuffle by part──settle──┬─> their index (Redis), aside
                                                                                    └─> their seeds (Kafka)

Both ways go through the same `Builder`, and leave the same bytes (`state/control/rebuild.py`). By Spark the driver
holds the facts, which it has anyway, and of the rest what it must say itself. A task that is done again writes the same
again: a seed counts once, an index stands under its version. Homes and parts are done a few at a time, each by a job of
its own: so many as leave a core to routing, and it is known how far all is.

Why jobs of single partitions: Spark has no bound for how many tasks of one job run, and a task that has begun keeps its
core.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext, StorageLevel
from pyspark.errors import PySparkException
from pyspark.util import _load_from_socket

from infra.logs import logger
from infra.signing_keys import SigningKeys
from state.control.context import Context
from state.control.facts import Fact, Kind, Name
from state.control.overlap import Sides
from state.control.protocol import Change, decode, encode
from state.control.rebuild import Restored, Settled, Told, parts_of, restored, settled
from state.control.streams import seeds
from state.errors import HilcastError
from state.keys import Key
from state.messages import Output
from state.redis_index import RedisIndex
from state.redis_retry import redis_retried
from streaming import dying
from streaming.boot import Boot
from streaming.writer import DriverWriter

HERE_MAX = 2_000
"""Facts and parts, counted at each broker, up to which the driver builds by itself: about a second."""
CHUNK_FACTS = 1_000
"""Facts of a task that restores homes; a home is not divided."""
TASKS_MAX = 256
"""Tasks that settle parts, at most: some for each that runs at once, and more where there are many facts."""
SUPERSEDED = "index-superseded"
"""The code of a newer index in Redis, which no other way of building would mend."""
_log = logger("generation")

Facts = Mapping[Key, list[tuple[Name, Fact]]]
Part = tuple[str, str]
"""Type and part."""
Progress = Callable[[str, int, int], None]
Home = tuple[str, bytes]
"""A home key and its facts, packed."""
_facts = msgspec.msgpack.Decoder(list[tuple[str, str, Fact]])


@dataclass
class Rest:
    """What the driver itself must do for the homes of a generation."""

    outputs: list[Output] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Rest | Restored) -> None:
        self.outputs += other.outputs
        self.topics |= other.topics
        self.faults += other.faults


class Builder:
    """What one process builds with."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.context = Context(boot.config, boot.generation, 0, samples=boot.samples, topic_ids=boot.topic_ids)
        self.everyone = self.context.of_everyone()
        self.redis = RedisIndex(boot.config, keys=SigningKeys(boot.config).current)
        self.writer = DriverWriter(boot.config)

    def restore(self, key: Key, facts: Iterable[tuple[Name, Fact]], rest: Rest) -> list[Told]:
        """Make a home key, seed it if it is ours, and return what parts are told."""
        home = restored(key, facts, self.everyone)
        if key.broker in self.context.hosts:
            self._seed(key, home.state)
            rest.add(home)
        return home.told

    def settle(self, part: Part, told: Iterable[Told]) -> None:
        """Make a part at all brokers of ours, put its index aside, and seed it."""
        made = list(settled(part, told, self.context, self.everyone))
        self._publish(made)
        dying.at("generation-indexed")
        for one in made:
            if one.state is not None:
                self._seed(one.key, one.state)
        dying.at("generation-half-seeded")
        self.context.sides = self.everyone.sides = Sides()  # what decided overlaps of this part

    def _publish(self, made: Sequence[Settled]) -> None:
        indexes = {one.key: one.index for one in made}
        forwarding = {one.key: one.forwarding for one in made}
        reduced = {one.key: one.reduced for one in made}
        number = self.boot.generation
        redis_retried(lambda: self.redis.publish(indexes, number, 0, forwarding, reduced), say=_log.warning)

    def _seed(self, key: Key, state: bytes) -> None:
        for seed in seeds(self.boot.generation, state):
            self.writer.send(str(key), seed)

    def close(self) -> None:
        self.redis.close()


def build(facts: Facts, boot: Boot, spark: Spark | None, progress: Progress) -> Rest:
    """Make the homes and parts of a generation, seed them, and put their index aside; return what is left to do.

    Guarantee: when it returns everything is written. What Spark does not carry out the driver does, and says so: from
    the same facts come the same bytes, so that what was written already does no harm.
    """
    parts = parts_of(Context(boot.config, boot.generation, 0))
    few = sum(map(len, facts.values())) + len(parts) * len(boot.config.overlay.brokers) <= HERE_MAX
    if spark is None or few:
        return _built_here(facts, parts, boot, progress)
    try:
        return spark.built(facts, parts, boot, progress)
    except HilcastError:
        raise
    except Exception as error:  # whatever it is that Spark has: without a generation nothing goes on
        _log.error("Spark could not build the generation, the driver does: %s", _reason(error))
        return _built_here(facts, parts, boot, progress)


def _built_here(facts: Facts, parts: Sequence[Part], boot: Boot, progress: Progress) -> Rest:
    builder, rest, told = Builder(boot), Rest(), defaultdict(list)
    done, total = 0, sum(map(len, facts.values()))
    for key in sorted(facts):
        for one in builder.restore(key, facts[key], rest):
            to = Key.parse(one[0])
            told[to.type, to.part].append(one)
        done += len(facts[key])
        progress("registrations", done, total)
    for n, part in enumerate(parts):
        builder.settle(part, told.pop(part, []))
        progress("parts", n + 1, len(parts))
    builder.writer.flush()
    builder.close()
    return rest


# ── by Spark ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Spark:
    """A Spark that builds beside what it does already."""

    context: SparkContext
    as_builder: Callable[[], AbstractContextManager[None]]
    """While it is entered, what this thread makes for Spark is made for workers that may build."""
    width: int
    """How many tasks may run at once."""

    def built(self, facts: Facts, parts: Sequence[Part], boot: Boot, progress: Progress) -> Rest:
        """The same as in the driver."""
        chunks, total = _chunks(facts), sum(map(len, facts.values()))
        sizes = [sum(len(facts[key]) for key in chunk) for chunk in chunks]
        tasks = min(len(parts), TASKS_MAX, 4 * self.width + len(chunks))
        with self.as_builder():
            packed = self.context.parallelize(
                [[_packed(key, facts[key]) for key in chunk] for chunk in chunks], len(chunks)
            )
            homes = packed.mapPartitions(partial(_restore, boot, parts, tasks)).persist(StorageLevel.DISK_ONLY)
            rests = homes.filter(_is_rest)
            told = homes.filter(_is_told).partitionBy(tasks, int)
            done = told.mapPartitionsWithIndex(partial(_settle, boot, parts, tasks))
            for rdd in (rests, done):
                rdd.getNumPartitions()  # what workers it is for is settled here
        rest = Rest()
        try:
            restored = 0
            for n, (_, found) in self._each(rests):
                restored += sizes[n]
                rest.add(found)
                progress("registrations", restored, total)
            settled_parts = 0
            for _, n in self._each(done):
                settled_parts += n
                progress("parts", settled_parts, len(parts))
        except (Py4JError, PySparkException) as error:
            if SUPERSEDED in str(error):
                raise HilcastError(SUPERSEDED, _reason(error)) from error
            raise
        finally:
            homes.unpersist()
        return rest

    def _each(self, rdd: RDD[Any]) -> Iterator[tuple[int, Any]]:
        """The one element of each partition, and its number, as they are done."""
        ahead, stopping = iter(range(rdd.getNumPartitions())), threading.Event()

        def run(n: int) -> Any:
            if stopping.is_set():
                return None
            self.context.setLocalProperty("spark.scheduler.pool", "build")
            return _only(self.context, rdd, n)

        with ThreadPoolExecutor(self.width) as pool:
            running: dict[Future[Any], int] = {}
            try:
                while True:
                    while len(running) < self.width and (n := next(ahead, None)) is not None:
                        running[pool.submit(run, n)] = n
                    if not running:
                        return
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        yield running.pop(future), future.result()
            finally:
                stopping.set()


def _only(context: SparkContext, rdd: RDD[Any], n: int) -> Any:
    """The one element of a partition; as `SparkContext.runJob`, which would choose the workers anew."""
    where = context._jvm.PythonRDD.runJob(context._jsc.sc(), rdd._jrdd, [n])
    with _load_from_socket(where, rdd._jrdd_deserializer) as elements:
        (found,) = elements
    return found


def _chunks(facts: Facts) -> list[list[Key]]:
    """Home keys, so many together as have some facts."""
    chunks: list[list[Key]] = [[]]
    size = 0
    for key in sorted(facts):
        if size >= CHUNK_FACTS:
            chunks.append([])
            size = 0
        chunks[-1].append(key)
        size += len(facts[key])
    return chunks


def _packed(key: Key, facts: Iterable[tuple[Name, Fact]]) -> Home:
    return str(key), msgspec.msgpack.encode([(str(name.kind), name.id, fact) for name, fact in facts])


def _is_rest(element: tuple[int, Any]) -> bool:
    return element[0] < 0


def _is_told(element: tuple[int, Any]) -> bool:
    return element[0] >= 0


def _restore(
    boot: Boot, parts: Sequence[Part], tasks: int, chunks: Iterable[list[Home]]
) -> Iterator[tuple[int, Rest | tuple[str, bytes]]]:
    """Make some homes; what parts are told goes to the tasks that settle them."""
    builder, rest, numbers = _builder(boot), Rest(), {part: n for n, part in enumerate(parts)}
    for text, packed in (home for chunk in chunks for home in chunk):
        facts = [(Name(Kind(kind), id), fact) for kind, id, fact in _facts.decode(packed)]
        for target, change in builder.restore(Key.parse(text), facts, rest):
            to = Key.parse(target)
            yield numbers[to.type, to.part] % tasks, (target, encode(change))
    builder.writer.flush()
    yield -1, rest


def _settle(
    boot: Boot, parts: Sequence[Part], tasks: int, number: int, told: Iterable[tuple[int, tuple[str, bytes]]]
) -> Iterator[int]:
    """Settle every part that is this task's, whether anything was said to it or not; how many they are."""
    builder, by_part = _builder(boot), defaultdict(list)
    for _, (target, packed) in told:
        to, change = Key.parse(target), decode(packed)
        assert isinstance(change, Change)
        by_part[to.type, to.part].append((target, change))
    mine = parts[number::tasks]
    for part in mine:
        builder.settle(part, by_part.pop(part, []))
    builder.writer.flush()
    yield len(mine)


_builders: dict[object, Builder] = {}


def _builder(boot: Boot) -> Builder:
    """What this worker builds with, from task to task of one generation."""
    identity = (repr(boot.config), boot.generation)
    if identity not in _builders:
        for old in _builders.values():
            old.close()
        _builders.clear()
        _builders[identity] = Builder(boot)
    return _builders[identity]


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[-500:]


class Estimate:
    """Says every few seconds how far a build is, and what is left of it by what it took so far."""

    EVERY_S = 5.0

    def __init__(self, say: Callable[[str], None] = _log.info, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._said = clock()
        self._began: dict[str, float] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        """`done` of `total` are; both count for what is going on now."""
        now = self._clock()
        began = self._began.setdefault(what, self._said if not self._began else now)
        if now - self._said < self.EVERY_S:
            return
        self._said = now
        left = f"; about {(now - began) / done * (total - done):.0f} s left of this" if done and now > began else ""
        self._say(f"rebuilding: {done} of {total} {what}{left}")
