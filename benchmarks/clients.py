"""Many clients, each with a delivery topic of its own: what a topic costs.

    python -m benchmarks.clients [--clients 1000 5000 20000] [--events 20000] [--per-event 10] [--lanes 2]

For each number of clients a job of its own on a real Kafka, Redis and Spark, two brokers; every client has one
subscription, and every event is for `--per-event` clients that follow each other, so that all topics are written to in
turn. Printed: seconds until all subscriptions are in force, their topics created; seconds from a first event to its
delivery; deliveries a second while each client gets its first one, and while `--events` more are routed; memory of the
driver's JVM, which holds the sink, and of the job's Python processes; seconds until a job that is started again on all
of that is ready, and its first delivery. At the end a table of all.

Kafka has a file open for each topic: where one node may not have so many, more nodes are started.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.kafka_nodes import further_nodes, nodes_for
from benchmarks.live import in_force, start_job
from benchmarks.pipeline import on_services
from infra.kafka.retry import retried
from infra.local.kafka_broker import HEAP_MB
from infra.local.services import LocalServices
from state.config import Config, parse

PATIENCE_S = 3600.0
LOOK_S = 0.05
PATIENT_S = 120.0
"""With a Kafka that does not say how far a topic is: a node that is busy with thousands of them is away for moments."""
RESTS = 4
"""What is counted is looked at so many times shorter than it is left alone: to look at all topics is work for Kafka."""
IN_HAND_MAX = 50_000
"""Events that the publisher holds at most: librdkafka takes 100,000."""
TOPIC_KB = 75
"""Heap of each node of Kafka for each topic of all."""
ASKED_MAX = 2000
"""Topics whose ends are asked for at once."""

CONFIG = """
[deployment]
prefix = "bench"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "{checkpoint}"
[settings]
master = "local[{lanes}]"
partitions = {lanes}
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
cubes = 16
[types.t.attributes]
x = {{ kind = "int", min = 0, max = {most} }}
"""


@dataclass(frozen=True)
class Measured:
    """What so many clients take: seconds, deliveries a second, and MB."""

    clients: int
    nodes: int
    """Of Kafka."""
    ready: float
    """Seconds of the first start, with no clients."""
    in_force: float
    first: float
    at_first: float
    """Deliveries a second while each client gets its first one."""
    steady: float
    sink: float
    """MB of the JVM of the driver, which is the executor, too."""
    python: float
    ready_again: float
    first_again: float


TITLES = {
    "clients": "clients", "nodes": "Kafka nodes", "ready": "ready with none, s", "in_force": "all in force, s",
    "first": "first delivery, s", "at_first": "deliveries/s, first to each", "steady": "deliveries/s after that",
    "sink": "JVM with the sink, MB", "python": "Python, MB", "ready_again": "ready again, s",
    "first_again": "first delivery again, s",
}  # fmt: skip


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--per-event", type=int, default=10)
    parser.add_argument("--lanes", type=int, default=2, help="route tasks, each of which asks of new topics")
    options = parser.parse_args()
    found: list[Measured] = []
    for clients in options.clients:
        options.number = clients
        options.heap_mb = HEAP_MB + clients * TOPIC_KB // 1024
        on_services(
            lambda services, folder, given: found.append(measure(services, folder, given)), options, options.heap_mb
        )
    print("| " + " | ".join(TITLES[field.name] for field in fields(Measured)) + " |")
    print("|" + "---|" * len(TITLES))
    for one in found:
        print("| " + " | ".join(_shown(getattr(one, field.name)) for field in fields(Measured)) + " |")


def _shown(value: float) -> str:
    """As few digits as are worth anything."""
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:.1f}"


def measure(services: LocalServices, folder: Path, options: argparse.Namespace) -> Measured:
    """One job, and the same again on what it left."""
    nodes = nodes_for(options.number)
    with further_nodes(services, nodes - 1, options.heap_mb):
        return grown(services, folder, options, nodes)


def grown(services: LocalServices, folder: Path, options: argparse.Namespace, nodes: int) -> Measured:
    """On so many nodes."""
    clients, width, path = options.number, options.per_event, folder / "hilcast.toml"
    checkpoint, most = folder / "checkpoint", clients + width
    lanes = options.lanes
    text = CONFIG.format(kafka=services.kafka, redis=services.redis, checkpoint=checkpoint, most=most, lanes=lanes)
    path.write_text(text)
    config, seen = parse(text), Deliveries(parse(text), clients)
    print(f"{clients} clients, {nodes} nodes of Kafka", flush=True)
    job, ready = started(path)
    try:
        subscribe(config, clients, width)
        all_in = say("all in force, their topics made", in_force(config, PATIENCE_S))
        one = say("the first delivery", first(config, seen))
        at_first = say("deliveries a second, first to each", rate(config, seen, -(-clients // width), clients, width))
        steady = say("deliveries a second after that", rate(config, seen, options.events, clients, width))
        sink, python = (say(name, megabytes) for name, megabytes in memory(job).items())
    finally:
        job.terminate()
        job.wait(PATIENCE_S)
    job, again = started(path)
    try:
        one_again = say("the first delivery again", first(config, seen))
    finally:
        job.terminate()
        job.wait(PATIENCE_S)
    return Measured(clients, nodes, ready, all_in, one, at_first, steady, sink, python, again, one_again)


def started(path: Path) -> tuple[subprocess.Popen[bytes], float]:
    """A job that is ready, and the seconds that this took."""
    began = time.monotonic()
    job = start_job(path)
    return job, say("ready", time.monotonic() - began)


def say(what: str, value: float) -> float:
    """Print a figure as soon as it is known: a run takes minutes."""
    print(f"  {what:<36}{value:10.1f}", flush=True)
    return value


def rate(config: Config, seen: Deliveries, events: int, clients: int, width: int) -> float:
    """Deliveries a second, from the first event that is sent to the last delivery."""
    wanted, began = seen.count() + events * width, time.monotonic()
    publish(config, events, clients, width)
    until(lambda: seen.count() >= wanted)
    return events * width / (time.monotonic() - began)


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
        while len(producer) >= IN_HAND_MAX:
            producer.poll(0.05)
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
    while True:
        began = time.monotonic()
        if holds():
            return
        assert began < deadline, "it does not get on"
        time.sleep(max(LOOK_S, RESTS * (time.monotonic() - began)))


class Deliveries:
    """Counts what stands in the delivery topics."""

    def __init__(self, config: Config, clients: int) -> None:
        self._config, self._clients = config, clients
        self._admin = self._opened()

    def _opened(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._config.deployment.kafka})

    def of(self, *clients: int) -> int:
        """Deliveries of these clients."""
        names = [self._config.topics.deliver(f"c{client}") for client in clients]
        asked = {TopicPartition(name, 0): OffsetSpec.latest() for name in names}

        def ends() -> int:
            try:
                return sum(
                    int(f.result().offset) for f in self._admin.list_offsets(asked, request_timeout=60.0).values()
                )
            except KafkaException:  # a busy node is taken for gone, for a moment; who leads is asked anew
                self._admin = self._opened()
                raise

        return retried(ends, PATIENT_S)

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
