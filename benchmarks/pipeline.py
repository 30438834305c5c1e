"""The router against the same pipeline without matching, in one run: same source, mapInArrow, same sink, same rows out.

    python -m benchmarks.pipeline [--subscriptions 10000] [--brokers 5] [--events 400000] [--reduction covering]

Both sides read the same publications topic on a real Kafka in batches of 100,000, JSON decoding included for the
router; the identity writes as many rows per event as the router did, to as many topics. The index is built in bulk by
the core and published to a real Redis; the events take the real path. Prints rows and events per second and the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from infra.local import jars
from infra.local.services import LocalServices
from state.broker.context import Context
from state.broker.home import Fact
from state.broker.keys import Key
from state.broker.rebuild import rebuild
from state.config import Config, parse
from state.redis_index import RedisIndex
from streaming import route
from streaming.boot import Boot
from streaming.settings import session, sink_options
from streaming.topics import TopicKeeper

CLIENTS = 100
SYMBOLS = 2000


def configuration(services: LocalServices, folder: Path, brokers: int, reduction: str) -> tuple[Config, Path]:
    """A line of brokers with one type; batches of 100,000."""
    names = [f"b{i + 1}" for i in range(brokers)]
    links = [[a, b] for a, b in pairwise(names)]
    text = f"""
[deployment]
prefix = "bench"
kafka = "{services.kafka}"
redis = "{services.redis}"
checkpoint = "{folder / "checkpoint"}"
[overlay]
brokers = {json.dumps(names)}
links = {json.dumps(links)}
[settings]
max_offsets_per_trigger = 100000
master = "local[2]"
[types.quote]
reduction = "{reduction}"
cubes = 64
index = ["price", "volume"]
[types.quote.attributes]
symbol = {{ kind = "text" }}
price = {{ kind = "float", min = 0, max = 1000 }}
volume = {{ kind = "int", min = 0, max = 1000000 }}
side = {{ kind = "category", values = ["buy", "sell"] }}
halted = {{ kind = "boolean" }}
"""
    path = folder / "hilcast.toml"
    path.write_text(text)
    return parse(text), path


def subscriptions(config: Config, count: int, per_event: float, rng: random.Random) -> Iterator[Fact]:
    """Filters of three predicates; widths chosen so that about `per_event` of them hold for an event."""
    share = min(1.0, per_event * SYMBOLS / count)
    side = share**0.5
    for i in range(count):
        low, volume = rng.random() * (1 - side) * 1000, rng.random() * (1 - side) * 1_000_000
        text = (
            f"symbol = 'S{rng.randrange(SYMBOLS)}' AND price BETWEEN {low:.3f} AND {low + side * 1000:.3f} "
            f"AND volume BETWEEN {int(volume)} AND {int(volume + side * 1_000_000)}"
        )
        yield Fact(
            version=1, owner=f"c{rng.randrange(CLIENTS)}", filter=json.dumps(text), ttl_ms=None, expires_ms=None,
            sink=None, content=b"", topic="bench", partition=0, offset=i, timestamp_ms=0, live=True,
        )  # fmt: skip


def install(config: Config, count: int, per_event: float, seed: int) -> None:
    """Build the index in bulk and publish it to Redis."""
    rng = random.Random(seed)
    brokers = config.overlay.brokers
    facts = [
        ("subscription", rng.choice(brokers), "quote", f"s{i}", fact)
        for i, fact in enumerate(subscriptions(config, count, per_event, rng))
    ]
    started = time.monotonic()
    rebuilt = rebuild(facts, Context(config, 1, 0))
    TopicKeeper(config).ensure(rebuilt.topics)
    RedisIndex(config).publish({Key.parse(key): blob for key, blob in rebuilt.indexes.items()}, 1, 0)
    size = sum(map(len, rebuilt.indexes.values())) / 1e6
    print(f"index of {count} subscriptions built in {time.monotonic() - started:.1f} s, {size:.1f} MB in Redis")


def publish(config: Config, count: int, seed: int) -> None:
    """Fill the publications topic."""
    rng = random.Random(seed)
    producer = Producer({"bootstrap.servers": config.deployment.kafka, "linger.ms": 20, "compression.type": "lz4"})
    for i in range(count):
        event = {
            "symbol": f"S{rng.randrange(SYMBOLS)}", "price": round(rng.random() * 1000, 2),
            "volume": rng.randrange(1_000_000), "side": "buy", "halted": False, "note": "x" * 60,
        }  # fmt: skip
        headers = [
            ("ce_specversion", b"1.0"), ("ce_id", str(i).encode()), ("ce_source", b"bench"),
            ("ce_type", b"quote"), ("ce_broker", rng.choice(config.overlay.brokers).encode()),
        ]  # fmt: skip
        while True:
            try:
                producer.produce(config.topics.publications, json.dumps(event), headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def identity_batches(topics: list[str], rows: float, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each event to `rows` topics on average, round robin, headers and value as they came: no decoding, no matching."""
    names = pa.array(topics, pa.string())
    for batch in batches:
        n = batch.num_rows
        total = round(n * rows)
        gather = pa.array(np.arange(total) % n)
        target = np.sort(np.arange(total) % len(topics))
        yield pa.RecordBatch.from_arrays(
            [names.take(pa.array(target)), *(batch.column(c).take(gather) for c in ("key", "value", "headers"))],
            names=["topic", "key", "value", "headers"],
        )


def run(spark: SparkSession, config: Config, function: object, checkpoint: str) -> tuple[float, int]:
    """Run one pipeline over the whole topic; seconds of the batches after the first two, events in them."""
    query = (
        route.records(spark, config, "earliest")
        .mapInArrow(function, route.OUTPUT)  # type: ignore[arg-type]
        .writeStream.format("kafka")
        .options(**sink_options(config))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p["numInputRows"] > 0][2:]
    return sum(p["batchDuration"] for p in batches) / 1000, sum(p["numInputRows"] for p in batches)


def rows_written(config: Config, topics: list[str]) -> int:
    """Records in these topics."""
    consumer = Consumer({"bootstrap.servers": config.deployment.kafka, "group.id": "bench"})
    total = 0
    for topic in topics:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10.0)
        total += high - low
    consumer.close()
    return total


def main() -> None:
    """Race both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=5)
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--per-event", type=float, default=2.0, help="matching subscriptions per event, about")
    parser.add_argument("--reduction", default="covering")
    on_services(race, parser.parse_args())


def on_services(
    measure: Callable[[LocalServices, Path, argparse.Namespace], None], options: argparse.Namespace
) -> None:
    """Measure on a Kafka and a Redis of our own, in a folder that is gone afterwards."""
    os.environ["HILCAST_SPARK_JARS"] = jars.spark_jars()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with LocalServices.on_free_ports(folder / "services") as services:
            measure(services, folder, options)


def race(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """Both sides twice, the second time counts."""
    config, path = configuration(services, folder, options.brokers, options.reduction)
    TopicKeeper(config).ensure_needed()
    install(config, options.subscriptions, options.per_event, seed=1)
    publish(config, options.events, seed=2)
    spark = session(config, str(path))
    spark.sparkContext.setLogLevel("ERROR")
    links = [config.topics.link(a, b) for pair in config.overlay.links for a, b in (pair, pair[::-1])]
    topics = sorted([*links, *(config.topics.deliver(f"c{i}") for i in range(CLIENTS))])
    before = rows_written(config, topics)
    routed_s, events = run(spark, config, partial(route.route_batches, Boot(config, 1)), str(folder / "r"))
    rows = (rows_written(config, topics) - before) / options.events
    identity_s, same = run(spark, config, partial(identity_batches, topics, rows), str(folder / "i"))
    assert events == same
    print(f"{rows:.2f} rows out per event over {len(topics)} topics, {events} events timed")
    print(f"{'pipeline':<10}{'events/s':>12}{'rows/s':>12}")
    for label, seconds in (("identity", identity_s), ("router", routed_s)):
        print(f"{label:<10}{events / seconds:>12.0f}{events * rows / seconds:>12.0f}")
    print(f"router / identity = {identity_s / routed_s:.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
