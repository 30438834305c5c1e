"""What a newcomer waits for, and what routing misses after `kill -9`: starts of an empty router and of a full one.

    python -m benchmarks.starts [--subscriptions 100000] [--brokers 7] [--rounds 3]

A job on a real Kafka, Redis and Spark. First: seconds from `hilcast run` until it says `ready`, and until the first
subscription is in force. Then it is killed (`kill -9` of the driver), an event is published while nobody routes, and it
is started again: seconds until `ready`, and until that event is delivered. The same once all subscriptions are in
force. Wanted: routing goes on within 1.5 times the start of an empty router, by medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.live import in_force, is_ready, launch_job, start_job, subscribe
from benchmarks.pipeline import configuration, on_services
from benchmarks.report import show
from infra.local.services import LocalServices
from state.config import Config, parse
from state.tuning import wanted_cubes

PROBE = "probe"
SLOWER_MAX = 1.5
PATIENCE_S = 600.0
GONE_S = 3.0
"""Between `kill -9` and the next start: the JVM of the one that was killed has noticed by then."""


class Start(NamedTuple):
    """Seconds from the start of a job that was killed."""

    ready_s: float
    delivered_s: float


class Probe:
    """A client at the last broker that gets every event of the first one."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": config.deployment.kafka, "linger.ms": 0})
        self._consumer = Consumer({"bootstrap.servers": config.deployment.kafka, "group.id": PROBE})

    def subscribe(self) -> None:
        """Register it, for an event that no other filter asks for."""
        key = f"{self.config.overlay.brokers[-1]}/quote/{PROBE}"
        value = json.dumps({"client": PROBE, "filter": f"symbol = '{PROBE}'"})
        self._producer.produce(self.config.topics.subscriptions, key=key, value=value)
        self._producer.flush()

    def publish(self) -> None:
        """One event at the first broker."""
        self.sent += 1
        said = {"specversion": "1.0", "id": f"{PROBE}{self.sent}", "source": PROBE, "type": "quote"}
        said["broker"] = self.config.overlay.brokers[0]
        headers = [(f"ce_{name}", value.encode()) for name, value in said.items()]
        event = json.dumps({"symbol": PROBE, "price": 1.0, "volume": 1})
        self._producer.produce(self.config.topics.publications, event, headers=headers)
        self._producer.flush()

    def has_come(self) -> bool:
        """Whether the last event was delivered."""
        place = TopicPartition(self.config.topics.deliver(PROBE), 0)
        _, end = self._consumer.get_watermark_offsets(place, timeout=10.0)
        return bool(end >= self.sent)

    def close(self) -> None:
        self._consumer.close()


def until(happened: Callable[[], bool], since: float) -> float:
    """Seconds since then until something has happened."""
    while not happened():
        assert time.monotonic() - since < PATIENCE_S, "nothing happened"
        time.sleep(0.1)
    return time.monotonic() - since


def killed_and_started(job: Popen[bytes], path: Path, probe: Probe) -> tuple[Popen[bytes], Start]:
    """Kill a job, publish, start it again."""
    job.kill()
    job.wait()
    probe.publish()
    time.sleep(GONE_S)
    began = time.monotonic()
    job = launch_job(path)
    seen: dict[str, float] = {}

    def both() -> bool:
        if "ready" not in seen and is_ready(job, path):
            seen["ready"] = time.monotonic() - began
        if "delivered" not in seen and probe.has_come():
            seen["delivered"] = time.monotonic() - began
        return len(seen) == 2

    try:
        until(both, began)
    except BaseException:  # nobody else knows of this one
        job.terminate()
        raise
    return job, Start(seen["ready"], seen["delivered"])


def measure(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """An empty router, then a full one."""
    cubes = wanted_cubes(options.subscriptions, options.brokers)
    _, path = configuration(services, folder, options.brokers, options.reduction, cubes=cubes)
    path.write_text(path.read_text().replace("max_offsets_per_trigger = 100000\n", ""))
    config = parse(path.read_text())
    began = time.monotonic()
    job = start_job(path)
    first_ready = time.monotonic() - began
    probe = Probe(config)
    try:
        probe.subscribe()
        first_in_force = in_force(config, PATIENCE_S)
        print(
            f"ready after {first_ready:.1f} s; the first subscription in force {first_in_force:.1f} s later", flush=True
        )
        found: dict[int, list[Start]] = {}
        for count in (0, options.subscriptions):
            if count:
                subscribe(config, 0, count, options.per_event)
                print(f"{count} subscriptions in force after {in_force(config, PATIENCE_S):.0f} s", flush=True)
            for _ in range(options.rounds):
                job, start = killed_and_started(job, path, probe)
                found.setdefault(count, []).append(start)
                print(f"{count} subscriptions: {start.ready_s:.1f} s, delivered {start.delivered_s:.1f} s", flush=True)
    finally:
        job.terminate()
        job.wait(60.0)
        probe.close()
    report(found)


def report(found: dict[int, list[Start]]) -> None:
    """The medians side by side."""
    head = ("subscriptions", "ready, s", "routing goes on, s")
    medians = {
        count: [statistics.median(times) for times in zip(*starts, strict=True)] for count, starts in found.items()
    }
    show("from the start of a job that was killed", head, [[count, *times] for count, times in medians.items()])
    empty, full = (times[1] for times in medians.values())
    print(f"\n  full / empty: {full / empty:.2f} (wanted: at most {SLOWER_MAX})")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--brokers", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-event", type=float, default=0.2)
    parser.add_argument("--reduction", default="covering")
    on_services(measure, parser.parse_args())


if __name__ == "__main__":
    main()
