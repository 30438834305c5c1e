"""The router against the same pipeline without matching, in one run: same source, mapInArrow, same sink, same rows out.

    python -m benchmarks.pipeline [--subscriptions 100000] [--brokers 7] [--events 600000] [--bulk]

Both sides read the same publications topic on a real Kafka in batches of 100,000, JSON decoding included for the
router; the identity writes as many rows per event as the router did, to as many topics. The index is built by
the core and published to a real Redis; the events take the real path. Prints rows and events per second, the ratio,
the memory of the route workers, and how one begins: the first of a host, which builds the index from Redis, and one
that comes later and maps it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.bulk_index import Subscriptions, bulk_index
from infra.kafka.retry import retried
from infra.kafka.topic_keeper import TopicKeeper
from infra.local import class_archive
from infra.local.kafka_broker import HEAP_MB
from infra.local.services import LocalServices
from state.config import Config, parse
from state.control.context import Context
from state.control.facts import Fact
from state.control.rebuild import rebuild
from state.filters.geometry import geometry
from state.filters.grammar import parse as parse_filter
from state.keys import Key
from state.redis_index import RedisIndex
from state.routing.envelope import input_topics
from state.routing.route import route as route_one
from state.space.boxes import Boxes
from state.space.ranks import rank
from streaming import route
from streaming.boot import Boot
from streaming.index_cache import cache as cache_of
from streaming.settings import ROUTED, session, sink_options

Pipeline = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
CLIENTS = 100
SYMBOLS = 2000
FIRST_EVENTS = 1000
"""Events by which a worker that has begun shows that it routes."""
REBUILT_MAX = 200_000
"""Above this the index is built in bulk."""


def configuration(
    services: LocalServices, folder: Path, brokers: int, reduction: str, cubes: int = 16
) -> tuple[Config, Path]:
    """A line of brokers with one type on these services; batches of 100,000."""
    path = folder / "hilcast.toml"
    path.write_text(text(services.kafka, services.redis, folder, brokers, reduction, cubes))
    return parse(path.read_text()), path


def text(kafka: str, redis: str, folder: Path, brokers: int, reduction: str, cubes: int = 16) -> str:
    """The configuration."""
    names = [f"b{i + 1}" for i in range(brokers)]
    links = [[a, b] for a, b in pairwise(names)]
    return f"""
[deployment]
prefix = "bench"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "{folder / "checkpoint"}"
[overlay]
brokers = {json.dumps(names)}
links = {json.dumps(links)}
[settings]
max_offsets_per_trigger = 100000
master = "local[2]"
[types.quote]
reduction = "{reduction}"
cubes = {cubes}
index = ["price", "volume"]
[types.quote.attributes]
symbol = {{ kind = "text" }}
price = {{ kind = "float", min = 0, max = 1000 }}
volume = {{ kind = "int", min = 0, max = 1000000 }}
side = {{ kind = "category", values = ["buy", "sell"] }}
halted = {{ kind = "boolean" }}
"""


class Drawn(NamedTuple):
    """One subscription: three predicates, a client and a broker."""

    symbol: str
    price: tuple[float, float]
    volume: tuple[int, int]
    client: str
    broker: int

    @property
    def text(self) -> str:
        (low, high), (first, last) = self.price, self.volume
        return f"symbol = '{self.symbol}' AND price BETWEEN {low} AND {high} AND volume BETWEEN {first} AND {last}"


def subscriptions(config: Config, count: int, per_event: float, seed: int) -> Iterator[Drawn]:
    """Draw filters; widths chosen so that about `per_event` of them hold for an event."""
    rng = random.Random(seed)
    side = min(1.0, per_event * SYMBOLS / count) ** 0.5
    for _ in range(count):
        low, volume = rng.random() * (1 - side) * 1000, rng.random() * (1 - side) * 1_000_000
        yield Drawn(
            f"S{rng.randrange(SYMBOLS)}",
            (round(low, 3), round(low + side * 1000, 3)),
            (int(volume), int(volume + side * 1_000_000)),
            f"c{rng.randrange(CLIENTS)}",
            rng.randrange(len(config.overlay.brokers)),
        )


def install(config: Config, drawn: Iterable[Drawn], bulk: bool) -> None:
    """Build the index and publish it to Redis: by the rebuild of a generation, or in bulk."""
    started = time.monotonic()
    redis, size, topics = RedisIndex(config), 0, {config.topics.deliver(f"c{i}") for i in range(CLIENTS)}
    for i, (key, blob) in enumerate((in_bulk if bulk else rebuilt)(config, drawn)):
        redis.publish({key: blob}, 1, 0)
        size += len(blob)
        if i % 100 == 99:
            print(f"  {i + 1} parts written, {time.monotonic() - started:.0f} s", flush=True)
    redis.point(1, config.shared)
    TopicKeeper(config).ensure(topics)
    how = "in bulk" if bulk else "by rebuild"
    print(f"index built {how} in {time.monotonic() - started:.1f} s, {size / 1e6:.1f} MB in Redis", flush=True)


def rebuilt(config: Config, drawn: Iterable[Drawn]) -> Iterator[tuple[Key, bytes]]:
    facts = [
        ("subscription", config.overlay.brokers[one.broker], "quote", f"s{i}", _fact(i, one))
        for i, one in enumerate(drawn)
    ]

    def progress(what: str, done: int, total: int) -> None:
        if done % max(1, total // 10) == 0:
            print(f"  {done} of {total} {what}", flush=True)

    for key, blob in rebuild(facts, Context(config, 1, 0), progress).indexes.items():
        yield Key.parse(key), blob


def _fact(offset: int, one: Drawn) -> Fact:
    return Fact(
        version=1, owner=one.client, filter=json.dumps(one.text), ttl_ms=None, expires_ms=None, sink=None, content=b"",
        topic="bench", partition=0, offset=offset, timestamp_ms=0, live=True,
    )  # fmt: skip


def in_bulk(config: Config, drawn: Iterable[Drawn]) -> Iterator[tuple[Key, bytes]]:
    """The same filters as boxes, with no text to read; a sample is compared with what their text says."""
    every = list(drawn)
    event_type = config.types["quote"]
    attributes = {a.name: (i, a) for i, a in enumerate(event_type.attributes)}
    whole = Boxes.everything(event_type.d)
    lows, highs = (np.repeat(corner, len(every), axis=0) for corner in (whole.lows, whole.highs))
    spans: dict[str, Sequence[tuple[object, object]]] = {
        "symbol": [(one.symbol, one.symbol) for one in every],
        "price": [one.price for one in every],
        "volume": [one.volume for one in every],
    }
    for name, values in spans.items():
        column, attribute = attributes[name]
        known = cache(partial(rank, attribute))
        lows[:, column] = [known(low) for low, _ in values]
        highs[:, column] = [known(high) for _, high in values]
    boxes = Boxes(lows, highs)
    for i in range(0, len(every), max(1, len(every) // 100)):
        assert geometry(parse_filter(every[i].text, event_type), event_type).boxes == boxes.take(np.array([i]))
    brokers = np.array([one.broker for one in every])
    columns = Subscriptions(boxes, [f"s{i}" for i in range(len(every))], [one.client for one in every], brokers)
    return bulk_index(config, "quote", columns)


def publish(config: Config, count: int, seed: int) -> None:
    """Fill the publications topic."""
    producer = Producer({"bootstrap.servers": config.deployment.kafka, "linger.ms": 20, "compression.type": "lz4"})
    for value, headers in events(config, count, seed):
        while True:
            try:
                producer.produce(config.topics.publications, value, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def events(config: Config, count: int, seed: int) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Draw publications: values and headers."""
    rng = random.Random(seed)
    for i in range(count):
        event = {
            "symbol": f"S{rng.randrange(SYMBOLS)}", "price": round(rng.random() * 1000, 2),
            "volume": rng.randrange(1_000_000), "side": "buy", "halted": False, "note": "x" * 60,
        }  # fmt: skip
        headers = [
            ("ce_specversion", b"1.0"), ("ce_id", str(i).encode()), ("ce_source", b"bench"),
            ("ce_type", b"quote"), ("ce_broker", rng.choice(config.overlay.brokers).encode()),
        ]  # fmt: skip
        yield json.dumps(event), headers


def identity_batches(topics: list[str], rows: float, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each event to `rows` topics on average, round robin, headers and value as they came: no decoding, no matching."""
    names = pa.array(topics, pa.string())
    for batch in batches:
        n = batch.num_rows
        total = round(n * rows)
        gather = pa.array(np.arange(total) % n)
        target = np.sort(np.arange(total) % len(topics))
        yield pa.RecordBatch.from_arrays(
            [
                names.take(pa.array(target)),
                *(batch.column(c).take(gather) for c in ("key", "value", "headers")),
                pa.nulls(total, pa.int32()),
            ],
            names=["topic", "key", "value", "headers", "partition"],
        )


def routed_batches(boot: Boot, folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The route query's own function; in its first task a worker notes how it began."""
    noted = Path(folder, f"first.{os.getpid()}")
    if noted.exists():
        yield from route.route_batches(boot, batches)
    else:
        stages, began = {}, (time.monotonic(), time.process_time())

        def reached(stage: str) -> None:
            stages[stage] = time.monotonic() - began[0], time.process_time() - began[1]

        snapshot = cache_of(boot).snapshot(input_topics(boot.config))
        reached("index")
        first = list(islice(batches, 1))
        reached("input")
        for batch in first:
            list(route_one(snapshot, batch.slice(0, FIRST_EVENTS)).batches())
            reached("events")
        for batch in route.route_batches(boot, chain(first, batches)):
            if "rows" not in stages:
                reached("rows")
            yield batch
        noted.write_text(json.dumps(stages))


def memory(pid: int) -> dict[str, float]:
    """MB of a worker: its own, those of the index that it maps, and the most that it ever had of both.

    Asked of the system from outside: to look at all of its pages is no work of a router.
    """
    process = Path("/proc", str(pid))

    def told(name: str, what: str) -> float:
        return next(int(line.split()[1]) / 1000 for line in (process / name).read_text().splitlines() if what in line)

    mapped: dict[str, int] = {}
    for line in (process / "maps").read_text().splitlines():
        span, _, _, _, inode, *path = line.split()
        if path and "/hilcast-" in path[0]:
            first, end = (int(place, 16) for place in span.split("-"))
            mapped[inode] = max(mapped.get(inode, 0), end - first)
    shared = sum(mapped.values()) / 1e6
    return {"own": told("smaps_rollup", "Anonymous:"), "shared": shared, "peak": told("status", "VmHWM:")}


def run(spark: SparkSession, config: Config, function: Pipeline, checkpoint: str) -> tuple[float, int]:
    """Run one pipeline over the whole topic; seconds of the batches after the first, events in them."""
    query = (
        route.records(spark, config, "earliest")
        .mapInArrow(function, ROUTED)
        .writeStream.format("kafka")
        .options(**sink_options(config))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p["numInputRows"] > 0][1:]
    return sum(p["batchDuration"] for p in batches) / 1000, sum(p["numInputRows"] for p in batches)


def spent_s() -> float:
    """Seconds of processor time of Spark's JVM and of all that came from it: executors, daemons, workers."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            stats[int(path.parent.name)] = int(words[1]), sum(map(int, words[11:15]))
    family = {SparkContext._gateway.proc.pid}
    while more := {pid for pid, (parent, _) in stats.items() if parent in family} - family:
        family |= more
    return sum(stats[pid][1] for pid in family if pid in stats) / os.sysconf("SC_CLK_TCK")


def beginnings(folder: Path) -> dict[int, dict[str, tuple[float, float]]]:
    """By process of each route worker: seconds from the start of its first task, and those of its processor, to the
    index that it goes by, its first input, the first thousand events routed, and the first rows of a whole batch.
    """
    return {int(path.suffix[1:]): json.loads(path.read_text()) for path in sorted(folder.glob("first.*"))}


def living(folder: Path) -> list[int]:
    """The route workers that there are: Spark ends those that it has not needed for a minute."""
    return [pid for pid in beginnings(folder) if Path("/proc", str(pid), "maps").exists()]


def say_beginning(who: str, stages: dict[str, tuple[float, float]]) -> None:
    """Print when a worker routes, apart from what it waits for and from the size of its first batch."""
    index, given, events, rows = (stages[name] for name in ("index", "input", "events", "rows"))
    print(f"{who}: the index after {index[0]:.2f} s ({index[1]:.2f} s of its processor),", end=" ")
    print(f"then {FIRST_EVENTS} events routed in {events[0] - given[0]:.2f} s ({events[1] - given[1]:.2f});", end=" ")
    print(
        f"Spark's first batch waited for {given[0] - index[0]:.1f} s, its rows {rows[0] - events[0]:.1f} s", flush=True
    )


def rows_written(config: Config, topics: list[str]) -> int:
    """Records in these topics."""
    consumer = Consumer({"bootstrap.servers": config.deployment.kafka, "group.id": "bench"})
    total = 0
    for topic in topics:
        place = TopicPartition(topic, 0)
        low, high = retried(partial(consumer.get_watermark_offsets, place, timeout=10.0))
        total += high - low
    consumer.close()
    return total


def main() -> None:
    """Race both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=5)
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--per-event", type=float, default=1.0, help="matching subscriptions per event, about")
    parser.add_argument("--reduction", default="covering", help="of the rebuild; in bulk nothing is reduced")
    parser.add_argument("--bulk", action="store_true", help="build the index from columns, with no state beside it")
    on_services(race, parser.parse_args())


def on_services(
    measure: Callable[[LocalServices, Path, argparse.Namespace], None],
    options: argparse.Namespace,
    heap_mb: int = HEAP_MB,
) -> None:
    """Measure on a Kafka and a Redis of our own, in a folder that is gone afterwards."""
    os.environ |= class_archive.spark_environment()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with LocalServices.on_free_ports(folder / "services", heap_mb=heap_mb) as services:
            measure(services, folder, options)


def race(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """Both sides in turn, over the same topic; the first round warms the JVM, loads the index and does not count."""
    config, _ = configuration(services, folder, options.brokers, options.reduction)
    TopicKeeper(config).ensure_needed()
    bulk = options.bulk or options.subscriptions > REBUILT_MAX
    install(config, subscriptions(config, options.subscriptions, options.per_event, seed=1), bulk)
    publish(config, options.events, seed=2)
    spark = session(config)
    spark.sparkContext.setLogLevel("ERROR")
    links = [config.topics.link(a, b) for pair in config.overlay.links for a, b in (pair, pair[::-1])]
    topics = sorted([*links, *(config.topics.deliver(f"c{i}") for i in range(CLIENTS))])
    router: Pipeline = partial(routed_batches, Boot(config, 1), str(folder))
    _, events = run(spark, config, router, str(folder / "first"))
    rows = rows_written(config, topics) / options.events
    print(f"{rows:.2f} rows out per event over {len(topics)} topics", flush=True)
    sides: dict[str, Pipeline] = {"identity": partial(identity_batches, topics, rows), "router": router}
    run(spark, config, sides["identity"], str(folder / "warm"))
    seconds: dict[str, list[float]] = {label: [] for label in sides}
    work: dict[str, list[float]] = {label: [] for label in sides}
    for number in range(options.rounds):
        for label, function in sides.items():
            before = spent_s()
            took, same = run(spark, config, function, str(folder / f"{label}{number}"))
            assert same == events
            seconds[label].append(took)
            work[label].append(1e6 * (spent_s() - before) / options.events)
            print(f"round {number + 1}: {label} {events / took:.0f} events/s", end=", ")
            print(f"{work[label][-1]:.1f} us of the processor an event", flush=True)
    best = {label: min(took) for label, took in seconds.items()}
    print(f"best of {options.rounds}{'events/s':>12}{'rows/s':>12}")
    for label, took in best.items():
        print(f"{label:<9}{events / took:>12.0f}{events * rows / took:>12.0f}")
    firsts = beginnings(folder)
    told = [memory(pid) for pid in living(folder)]
    each = ", ".join(f"{one['own']:.0f} MB (at most {one['peak']:.0f} with what it maps)" for one in told)
    shared = max(one["shared"] for one in told)
    print(f"memory of each route worker: {each}; of the index that they share: {shared:.0f} MB")
    print(f"together: {shared + sum(one['own'] for one in told):.0f} MB")
    by_work = sorted(firsts.values(), key=lambda stages: -stages["index"][1])
    for place, stages in enumerate(by_work):
        say_beginning("a worker that waited for the index" if place else "the worker that built it", stages)
    os.kill(living(folder)[0], signal.SIGKILL)
    run(spark, config, router, str(folder / "later"))
    for pid, stages in beginnings(folder).items():
        if pid not in firsts:
            say_beginning("one that takes the place of another, which was killed", stages)
    print(f"{options.subscriptions} subscriptions, {options.brokers} brokers")
    ratios = [i / r for i, r in zip(seconds["identity"], seconds["router"], strict=True)]
    print(f"router / identity, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    ratios = [i / r for i, r in zip(work["identity"], work["router"], strict=True)]
    print(f"by what both take of the processor: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    print(f"router / identity = {best['identity'] / best['router']:.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
