"""Many clients, each with a delivery topic of its own: what a topic costs.

    python -m benchmarks.clients [--clients 1000] [--events 2000] [--per-event 10]

One job on a real Kafka, Redis and Spark, two brokers; every client has one subscription, and every event is for
`--per-event` clients that follow each other, so that all topics are written to in turn. Printed: seconds until all
subscriptions are in force, their topics created; seconds from a first event to its delivery; deliveries a second while
all events are routed; memory of the driver's JVM, which holds the sink, and of the job's Python processes;
seconds until a job that is started again on all of that is ready, and its first delivery.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.live import in_force, start_job
from benchmarks.pipeline import on_services
from infra.local.services import LocalServices
from state.config import Config, parse

PATIENCE_S = 3600.0
LOOK_S = 0.05
ASKED_MAX = 2000
"""Topics whose ends are asked for at once."""

CONFIG = """
[deployment]
prefix = "bench"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "{checkpoint}"
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
cubes = 16
[types.t.attributes]
x = {{ kind = "int", min = 0, max = {most} }}
"""


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--per-event", type=int, default=10)
    on_services(measure, parser.parse_args())


def measure(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """One job, and the same again on what it left."""
    path = folder / "hilcast.toml"
    most = options.clients + options.per_event
    text = CONFIG.format(kafka=services.kafka, redis=services.redis, checkpoint=folder / "checkpoint", most=most)
    path.write_text(text)
    config, seen = parse(text), Deliveries(parse(text), options.clients)
    began = time.monotonic()
    job = start_job(path)
    print(f"{options.clients} clients, {options.events} events to {options.per_event} of them each")
    print(f"ready with none            {time.monotonic() - began:8.1f} s")
    try:
        subscribe(config, options.clients, options.per_event)
        print(f"all in force, topics made  {in_force(config, PATIENCE_S):8.1f} s")
        print(f"first delivery             {first(config, seen):8.1f} s")
        before, began = seen.count(), time.monotonic()
        publish(config, options.events, options.clients, options.per_event)
        wanted = before + options.events * options.per_event
        until(lambda: seen.count() >= wanted)
        seconds = time.monotonic() - began
        print(f"deliveries a second        {options.events * options.per_event / seconds:8.0f}, {seconds:.1f} s")
        for name, megabytes in memory(job).items():
            print(f"{name:<26} {megabytes:8.0f} MB")
    finally:
        job.terminate()
        job.wait(PATIENCE_S)
    began = time.monotonic()
    job = start_job(path)
    try:
        print(f"ready again                {time.monotonic() - began:8.1f} s")
        print(f"first delivery again       {first(config, seen):8.1f} s")
    finally:
        job.terminate()
        job.wait(PATIENCE_S)


def subscribe(config: Config, clients: int, width: int) -> None:
    """One subscription for each client: client i wants x from i to before i + width."""
    producer = Producer({"bootstrap.servers": config.deployment.kafka, "linger.ms": 10})
    for i in range(clients):
        value = json.dumps({"client": f"c{i}", "filter": f"x >= {i} AND x < {i + width}"})
        producer.produce(config.topics.subscriptions, key=f"b{1 + i % 2}/t/s{i}", value=value)
        producer.poll(0)
    producer.flush()


def publish(config: Config, events: int, clients: int, width: int) -> None:
    """Events for `width` clients each, every client in its turn."""
    producer = Producer({"bootstrap.servers": config.deployment.kafka, "linger.ms": 5})
    stamp = time.time_ns()
    for i in range(events):
        headers = [("ce_specversion", b"1.0"), ("ce_id", f"{stamp}.{i}".encode()), ("ce_source", b"clients")]
        headers += [("ce_type", b"t"), ("ce_broker", b"b1")]
        x = width - 1 + (i * width) % max(1, clients - width + 1)
        producer.produce(config.topics.publications, json.dumps({"x": x}), headers=headers)
        producer.poll(0)
    producer.flush()


def first(config: Config, seen: Deliveries) -> float:
    """Seconds from one event to its delivery."""
    before, began = seen.of(0), time.monotonic()
    publish(config, 1, 1, 1)
    until(lambda: seen.of(0) > before)
    return time.monotonic() - began


def until(holds: Callable[[], bool]) -> None:
    """Return when it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it does not get on"
        time.sleep(LOOK_S)


class Deliveries:
    """Counts what stands in the delivery topics."""

    def __init__(self, config: Config, clients: int) -> None:
        self._config, self._clients = config, clients
        self._admin = AdminClient({"bootstrap.servers": config.deployment.kafka})

    def of(self, *clients: int) -> int:
        """Deliveries of these clients."""
        names = [self._config.topics.deliver(f"c{client}") for client in clients]
        asked = {TopicPartition(name, 0): OffsetSpec.latest() for name in names}
        return sum(int(f.result().offset) for f in self._admin.list_offsets(asked, request_timeout=60.0).values())

    def count(self) -> int:
        """Deliveries of all clients."""
        some = [range(i, min(i + ASKED_MAX, self._clients)) for i in range(0, self._clients, ASKED_MAX)]
        return sum(self.of(*clients) for clients in some)


def memory(job: subprocess.Popen[bytes]) -> dict[str, float]:
    """Megabytes of a job's processes: its JVM, and all that is Python; what several share counts once."""
    found = {"memory of the sink's JVM": 0.0, "memory of Python": 0.0}
    for process in _tree(job.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            name = Path(f"/proc/{process}/comm").read_text().strip()
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            held = next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)
            found["memory of the sink's JVM" if name == "java" else "memory of Python"] += held
    return found


def _tree(process: int) -> list[int]:
    """A process and all below it, whichever thread of it has begun them."""
    below: list[int] = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            below += map(int, children.read_text().split())
    return [process, *(one for child in below for one in _tree(child))]


if __name__ == "__main__":
    main()
