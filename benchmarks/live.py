"""The running job: how fast subscriptions are in force, and how long an event takes beside the identity pipeline.

    python -m benchmarks.live [--subscriptions 10000] [--rate 1000] [--seconds 20]

A job of 5 brokers in a line (diameter 4) on a real Kafka, Redis and Spark. Printed: seconds until one subscription is
in force everywhere (`hilcast wait`), seconds until all are, and p50 and p99 from publication to delivery, by the
broker's own timestamps, for the router and for the identity pipeline (same source, mapInArrow, same sink).
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.pipeline import (
    CLIENTS,
    SYMBOLS,
    configuration,
    identity_batches,
    on_services,
    rows_written,
    subscriptions,
)
from infra.local.services import LocalServices
from producers.fence import Fence
from state.config import Config, parse
from streaming import route
from streaming.settings import ROUTED, session, sink_options

WARM_S = 5
SETTLE_S = 10.0
SAID_S = 60.0


def start_job(path: Path) -> subprocess.Popen[bytes]:
    """`hilcast run`, until it says ready."""
    job = launch_job(path)
    while not is_ready(job, path):
        time.sleep(0.2)
    return job


def launch_job(path: Path) -> subprocess.Popen[bytes]:
    """`hilcast run`, and no waiting."""
    with path.with_suffix(".out").open("wb") as stdout, path.with_suffix(".log").open("wb") as stderr:
        return subprocess.Popen([sys.executable, "-m", "streaming", str(path)], stdout=stdout, stderr=stderr)


def is_ready(job: subprocess.Popen[bytes], path: Path) -> bool:
    """Whether a job that was launched has said so."""
    assert job.poll() is None, path.with_suffix(".log").read_text()[-2000:]
    return b"ready" in path.with_suffix(".out").read_bytes()


def in_force(config: Config, timeout_s: float) -> float:
    """Seconds until everything sent so far is in force everywhere."""
    started = time.monotonic()
    fence = Fence(config)
    behind = fence.wait(timeout_s)
    fence.close()
    assert not behind, "; ".join(map(str, behind))
    return time.monotonic() - started


def until_in_force(config: Config) -> None:
    """However long it takes; it says who is behind."""
    started = time.monotonic()
    while True:
        try:
            in_force(config, SAID_S)
            return
        except AssertionError as behind:
            print(f"  {time.monotonic() - started:.0f} s: {str(behind)[:100]}", flush=True)


def subscribe(config: Config, first: int, count: int, per_event: float) -> None:
    """Send subscriptions at random brokers."""
    producer = Producer({"bootstrap.servers": config.deployment.kafka, "linger.ms": 10})
    for i, one in enumerate(subscriptions(config, count, per_event, seed=first)):
        value = json.dumps({"client": one.client, "filter": one.text})
        key = f"{config.overlay.brokers[one.broker]}/quote/s{first + i}"
        producer.produce(config.topics.subscriptions, key=key, value=value)
        producer.poll(0)
    producer.flush()


def publish_at(config: Config, rate: int, seconds: int, label: str) -> int:
    """Send `rate` events a second; return how many."""
    rng = random.Random(label)
    producer = Producer({"bootstrap.servers": config.deployment.kafka, "linger.ms": 1})
    started = time.monotonic()
    total = rate * seconds
    for i in range(total):
        event = {"symbol": f"S{rng.randrange(SYMBOLS)}", "price": rng.random() * 1000, "volume": rng.randrange(10**6)}
        headers = [("ce_specversion", b"1.0"), ("ce_id", f"{label}{i}".encode()), ("ce_source", b"live")]
        headers += [("ce_type", b"quote"), ("ce_broker", rng.choice(config.overlay.brokers).encode())]
        producer.produce(config.topics.publications, json.dumps(event), headers=headers)
        producer.poll(0)
        ahead = started + (i + 1) / rate - time.monotonic()
        if ahead > 0.002:
            time.sleep(ahead)
    producer.flush()
    return total


def timestamps(config: Config, topics: list[str], label: str) -> dict[str, int]:
    """The first log-append time of each labelled event in these topics."""
    consumer = Consumer({"bootstrap.servers": config.deployment.kafka, "group.id": "live"})
    known = consumer.list_topics(timeout=10.0).topics
    places = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
    left = {}
    for place in places:
        place.offset, end = consumer.get_watermark_offsets(place, timeout=10.0)
        if place.offset < end:
            left[place.topic, place.partition] = end
    consumer.assign([place for place in places if (place.topic, place.partition) in left])
    seen: dict[str, int] = {}
    while left:
        for message in consumer.consume(5000, timeout=1.0):
            place = (message.topic(), message.partition())
            if message.offset() + 1 >= left.get(place, 2**62):
                del left[place]
            id = dict(message.headers() or []).get("ce_id", b"").decode()
            if id.startswith(label):
                seen[id] = min(seen.get(id, 2**62), message.timestamp()[1])
    consumer.close()
    return seen


def latency(config: Config, topics: list[str], label: str, until_ms: float = float("inf")) -> tuple[int, float, float]:
    """Events that arrived, and p50 and p99 in milliseconds from publication, before `until_ms`, to the first copy."""
    sent = timestamps(config, [config.topics.publications], label)
    got = timestamps(config, topics, label)
    delays = np.array([got[id] - sent[id] for id in got if sent[id] <= until_ms])
    assert len(delays), f"none of the {len(sent)} events sent as {label} was delivered"
    return len(delays), float(np.percentile(delays, 50)), float(np.percentile(delays, 99))


def identity(
    config: Config, path: Path, folder: Path, topics: list[str], rows: float, options: argparse.Namespace
) -> None:
    """The same at the same rate through the identity pipeline, in this process, with the job's settings."""
    spark = session(config)
    query = (
        route.records(spark, config, "latest")
        .mapInArrow(partial(identity_batches, topics, rows), ROUTED)
        .writeStream.format("kafka")
        .options(**sink_options(config))
        .option("checkpointLocation", str(folder / "identity"))
        .option("asyncProgressTrackingEnabled", "true")
        .start()
    )
    while not query.recentProgress:  # it plans its first batch from where the topic ends by then
        assert query.isActive, query.exception()
        publish_at(config, options.rate, 1, "first-identity-")
    publish_at(config, options.rate, WARM_S, "warm-identity-")
    publish_at(config, options.rate, options.seconds, "identity-")
    time.sleep(SETTLE_S)
    assert query.isActive, query.exception()
    query.stop()
    spark.stop()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--reduction", default="covering")
    on_services(measure, parser.parse_args())


def measure(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """One job, then the identity."""
    _, path = configuration(services, folder, 5, options.reduction)
    path.write_text(path.read_text().replace("max_offsets_per_trigger = 100000\n", "").replace("local[2]", "local[4]"))
    config = parse(path.read_text())
    job = start_job(path)
    try:
        subscribe(config, 10**6, 1, 2.0)
        in_force(config, 120.0)
        for i in range(3):
            subscribe(config, 10**6 + 1 + i, 1, 2.0)
            print(f"one subscription in force everywhere after {in_force(config, 120.0):.1f} s")
        subscribe(config, 0, options.subscriptions, 2.0)
        print(f"{options.subscriptions} subscriptions in force after {in_force(config, 900.0):.1f} s")
        links = [config.topics.link(a, b) for pair in config.overlay.links for a, b in (pair, pair[::-1])]
        delivery = [config.topics.deliver(f"c{i}") for i in range(CLIENTS)]
        topics = [*links, *delivery]
        publish_at(config, options.rate, WARM_S, "warm-router-")
        time.sleep(SETTLE_S)
        before = rows_written(config, topics)
        total = publish_at(config, options.rate, options.seconds, "router-")
        time.sleep(SETTLE_S)
    finally:
        job.terminate()
        job.wait(60.0)
    rows = (rows_written(config, topics) - before) / total
    routed = latency(config, delivery, "router-")
    identity(config, path, folder, topics, rows, options)
    plain = latency(config, topics, "identity-")
    print(f"{options.rate} events/s, {total} events, {rows:.2f} rows out per event")
    print("p50 and p99 from publication to the first copy, ms")
    for label, (count, p50, p99) in (("identity", plain), ("router", routed)):
        print(f"{label:<10}{count:>8} delivered {p50:>8.0f} {p99:>8.0f}")
    print(f"router / identity: p50 {routed[1] / plain[1]:.2f}, p99 {routed[2] / plain[2]:.2f}")


if __name__ == "__main__":
    main()
