"""Building a generation: its homes, then its parts, by Spark where there are many, in the driver where there are few.

    facts by home key ──restore──┬─> seeds of the homes (Kafka)
                                 ├─> receipts, topics, faults ──> the driver
                                 └─> what parts are told ──the driver──settle──┬─> their index (Redis), aside
                                                                               └─> their seeds (Kafka)

Both ways go through the same `Builder`, and leave the same bytes (`state/control/rebuild.py`). By Spark the driver
holds the facts, which it has anyway, what parts are told, compressed and less than these, and what it must say itself.
A task that is done again writes the same again: a seed counts once, an index stands under its version. Homes and parts
are done a few at a time, each by a job of its own: so many as leave a core to routing, and it is known how far all is.

Why jobs of single partitions: Spark has no bound for how many tasks of one job run, and a task that has begun keeps its
core. Why not a shuffle: it goes through Python once more, and its first stage is all chunks at once; and what a job is
given is in the JVM as long as that job.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
import pyarrow
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
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
CHUNK_FACTS = 6_000
"""Facts of a task that restores homes; a home is not divided. A task takes some 60 ms of the processor besides,
mostly in the JVM; one of so many holds its place for about half a second."""
TASKS_MAX = 256
"""Tasks that settle parts, at most: some for each that runs at once, and more where there are many facts."""
TASKS_EACH = 2
"""So many for each that runs at once."""
SUPERSEDED = "index-superseded"
"""The code of a newer index in Redis, which no other way of building would mend."""
_log = logger("generation")

Facts = Mapping[Key, list[tuple[Name, Fact]]]
Part = tuple[str, str]
"""Type and part."""
Progress = Callable[[str, int, int], None]
Home = tuple[str, bytes]
"""A home key and its facts, packed."""
Packed = tuple[int, bytes]
"""Something packed: its length, and its compressed bytes."""
F = TypeVar("F")
G = TypeVar("G")
_facts = msgspec.msgpack.Decoder(list[tuple[str, str, Fact]])
_told = msgspec.msgpack.Decoder(list[tuple[str, bytes]])
_codec = pyarrow.Codec("zstd", compression_level=1)


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
        with _uncollected():
            home = restored(key, facts, self.everyone)
        if key.broker in self.context.hosts:
            self._seed(key, home.state)
            rest.add(home)
        return home.told

    def settle(self, part: Part, told: Iterable[Told]) -> None:
        """Make a part at all brokers of ours, put its index aside, and seed it."""
        with _uncollected():
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


@contextmanager
def _uncollected() -> Iterator[None]:
    """Have nobody look for garbage while a home or a part is made.

    Its entries are very many objects that refer to nothing that refers to them. To look at all of them again and again
    took up to a seventh of the time of a generation, in some runs nothing.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


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
        tasks = min(len(parts), TASKS_MAX, TASKS_EACH * self.width + len(chunks))
        rest, done = Rest(), 0
        told: list[list[Packed]] = [[] for _ in range(tasks)]
        try:
            homes = ([_packed(key, facts[key]) for key in chunk] for chunk in chunks)
            for n, (found, packed) in self._each(partial(_restore, boot, parts, tasks), homes):
                for number, some in packed:
                    told[number].append(some)
                rest.add(found)
                done += sum(len(facts[key]) for key in chunks[n])
                progress("registrations", done, total)
            done, given = 0, (_taken(told, n) for n in range(tasks))
            for _, settled_parts in self._each(partial(_settle, boot, parts, tasks), given):
                done += settled_parts
                progress("parts", done, len(parts))
        except (Py4JError, PySparkException) as error:
            if SUPERSEDED in str(error):
                raise HilcastError(SUPERSEDED, _reason(error)) from error
            raise
        return rest

    def _each(self, task: Callable[[G], F], given: Iterable[G]) -> Iterator[tuple[int, F]]:
        """What a task makes of each, and its number, as they are done; what is given is made in its turn, one ahead."""
        ahead, stopping = iter(enumerate(given)), threading.Event()

        def run(rdd: RDD[F]) -> F | None:
            if stopping.is_set():
                return None
            self.context.setLocalProperty("spark.scheduler.pool", "build")
            return cast(F, _only(self.context, rdd))

        with ThreadPoolExecutor(self.width) as pool:
            running: dict[Future[F | None], int] = {}
            try:
                while True:
                    while len(running) <= self.width and (one := next(ahead, None)) is not None:
                        running[pool.submit(run, self._job(task, one[1]))] = one[0]
                    if not running:
                        return
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        found = future.result()
                        assert found is not None, "nothing is stopped before this has ended"
                        yield running.pop(future), found
            finally:
                stopping.set()

    def _job(self, task: Callable[[G], F], one: G) -> RDD[F]:
        """One task on one thing."""
        with self.as_builder():
            rdd = self.context.parallelize([one], 1).map(task)
            rdd.getNumPartitions()  # what workers it is for is settled here
        return rdd


def _only(context: SparkContext, rdd: RDD[Any]) -> Any:
    """Its one element; as `SparkContext.runJob`, which would choose the workers anew."""
    where = context._jvm.PythonRDD.runJob(context._jsc.sc(), rdd._jrdd, [0])
    with _load_from_socket(where, rdd._jrdd_deserializer) as elements:
        (found,) = elements
    return found


def _taken(told: list[list[Packed]], number: int) -> tuple[int, list[Packed]]:
    """What is for one task, which the driver keeps no longer."""
    mine, told[number] = told[number], []
    return number, mine


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


def _restore(
    boot: Boot, parts: Sequence[Part], tasks: int, homes: Iterable[Home]
) -> tuple[Rest, list[tuple[int, Packed]]]:
    """Make some homes; and what each of the tasks that settle parts is told."""
    builder, rest, numbers = _builder(boot), Rest(), {part: n for n, part in enumerate(parts)}
    told: dict[int, list[tuple[str, bytes]]] = defaultdict(list)
    for text, packed in homes:
        facts = [(Name(Kind(kind), id), fact) for kind, id, fact in _facts.decode(packed)]
        for target, change in builder.restore(Key.parse(text), facts, rest):
            to = Key.parse(target)
            told[numbers[to.type, to.part] % tasks].append((target, encode(change)))
    builder.writer.flush()
    return rest, [(number, _compressed(msgspec.msgpack.encode(some))) for number, some in told.items()]


def _settle(boot: Boot, parts: Sequence[Part], tasks: int, given: tuple[int, list[Packed]]) -> int:
    """Settle every part that is this task's, whether anything was said to it or not; how many they are."""
    builder, by_part = _builder(boot), defaultdict(list)
    number, told = given
    for some in told:
        for target, packed in _told.decode(_expanded(some)):
            to, change = Key.parse(target), decode(packed)
            assert isinstance(change, Change)
            by_part[to.type, to.part].append((target, change))
    mine = parts[number::tasks]
    for part in mine:
        builder.settle(part, by_part.pop(part, []))
    builder.writer.flush()
    return len(mine)


def _compressed(packed: bytes) -> Packed:
    return len(packed), _codec.compress(packed, asbytes=True)


def _expanded(some: Packed) -> bytes:
    size, compressed = some
    found: bytes = _codec.decompress(compressed, size, asbytes=True)
    return found


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
