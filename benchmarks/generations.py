"""Generations: how fast one is built, and what routing notices while one takes the place of another.

    python -m benchmarks.generations                          both
    python -m benchmarks.generations rates [--scale 1.0]      facts a second and bytes of state a fact, by reduction
    python -m benchmarks.generations pauses [--rate 500]      the longest pause of deliveries while all changes

`rates`: a line of 7 brokers, 16 cubes, 24,000 subscriptions (`mics` and slower methods: 8,000) and some four times as
many, where what each build costs whatever its size counts less. `core` is the rebuild of the simulator and the tests in
one process; `Spark` the build of a running job, two tasks at once, with a real Kafka and Redis, index and seeds
included. `first` is that of a job whose workers are awake and have done nothing else yet; the other one is that of the
same facts once more, as in a job that has run for a while. `cores` is the processor time that this took of the driver,
its JVM, the workers, Kafka and Redis, by its seconds: beside other work there are many of these.

`pauses`: a real job under a steady rate of events. One after another a type, a link, the cubes and the reduction change
by `hilcast apply`. A pause is the time between two deliveries that follow each other, by Kafka's clock; beside it what
it was in the same job before the first change. All deliveries are compared with those of flooding, by plain comparisons
of numbers; then `hilcast verify` judges what was published since the last change.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from benchmarks.live import in_force, publish_at, start_job, subscribe
from benchmarks.pipeline import CLIENTS, _fact, configuration, on_services, subscriptions
from benchmarks.report import plot, show
from infra.kafka.topic_keeper import TopicKeeper
from infra.local.services import LocalServices
from producers.cli import main as hilcast
from state.config import Config, parse
from state.control.context import Context
from state.control.rebuild import FactOf, Rebuilt, by_home_key, parts_of, rebuild
from streaming.boot import Boot
from streaming.building import Spark
from streaming.settings import QUERY_VARIABLE, session
from streaming.warm_up import warming

BROKERS, CUBES = 7, 16
"""Cubes: as many as the router chooses for so few subscriptions."""
SIZES = {
    "none": (24_000, 100_000),
    "covering": (24_000, 100_000),
    "merging": (8_000,),
    "mics": (8_000, 32_000),
    "negative-space": (8_000,),
    "hybrid": (8_000,),
    "probabilistic": (8_000,),
}
"""Facts, by reduction, at scale 1."""
PER_EVENT = 0.2
WARM = 300


# ── rates ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rate:
    """One reduction and size."""

    reduction: str
    facts: int
    core_s: float
    first_s: float
    spark_s: float
    processor_s: float
    """Of the latter, by all processes."""
    state_bytes: int
    index_bytes: int

    def row(self) -> tuple[object, ...]:
        of = self.facts
        return (
            self.reduction,
            of,
            self.core_s,
            round(of / self.core_s),
            self.first_s,
            self.spark_s,
            round(of / self.spark_s),
            self.processor_s,
            round(self.processor_s / self.spark_s, 2),
            round(self.state_bytes / of),
            round(self.index_bytes / of),
        )


def facts_of(config: Config, count: int) -> list[FactOf]:
    """Subscriptions as the registry has them."""
    return [
        ("subscription", config.overlay.brokers[one.broker], "quote", f"s{i}", _fact(i, one))
        for i, one in enumerate(subscriptions(config, count, PER_EVENT, seed=0))
    ]


def in_core(config: Config, count: int) -> tuple[float, Rebuilt]:
    """Seconds of one processor, and what came of it."""
    rebuild(facts_of(config, WARM), Context(config, 1, 0))
    facts, began = facts_of(config, count), time.process_time()
    rebuilt = rebuild(facts, Context(config, 1, 0))
    return time.process_time() - began, rebuilt


def by_spark(spark: Spark, config: Config, facts: list[FactOf], number: int) -> tuple[float, float]:
    """Seconds until everything is written, and of the processor, in all processes that take part."""
    parts = parts_of(Context(config, number, 0))
    began, busy = time.monotonic(), processor_s()
    by_home, _ = by_home_key(facts, Context(config, number, 0))
    spark.built(by_home, parts, Boot(config, number), lambda what, done, total: None)
    return time.monotonic() - began, processor_s() - busy


def processor_s() -> float:
    """Seconds of the processor that this process, and all that it and these have started, have had so far."""
    parent, spent = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parent[int(stat.parent.name)] = int(fields[1])
        spent[int(stat.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def ours(process: int) -> bool:
        while process in parent and process != os.getpid():
            process = parent[process]
        return process == os.getpid()

    return sum(seconds for process, seconds in spent.items() if ours(process))


def rates(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """Every reduction, in the core and by Spark."""
    found, number = [], 1
    first, _ = configuration(services, folder, BROKERS, "covering", CUBES)
    session_of = session(first)

    @contextmanager
    def as_builder() -> Iterator[None]:
        session_of.sparkContext.environment[QUERY_VARIABLE] = "control"
        yield

    spark = Spark(session_of.sparkContext, as_builder, width=2)
    with as_builder():
        warming(session_of, None, "control", 2).count()
    for reduction in options.reductions or SIZES:
        config, _ = configuration(services, folder, BROKERS, reduction, CUBES)
        TopicKeeper(config).ensure_needed()
        for size in SIZES[reduction]:
            count = max(WARM, round(size * options.scale))
            core_s, rebuilt = in_core(config, count)
            states, indexes = (sum(map(len, blobs.values())) for blobs in (rebuilt.states, rebuilt.indexes))
            facts = facts_of(config, count)
            first_s, _ = by_spark(spark, config, facts, number)
            spark_s, busy_s = by_spark(spark, config, facts, number + 1)
            number += 2
            found.append(Rate(reduction, count, core_s, first_s, spark_s, busy_s, states, indexes))
            print(
                f"  {reduction}: {count} facts, core {core_s:.1f} s, Spark {first_s:.1f} and {spark_s:.1f} s",
                flush=True,
            )
    session_of.stop()
    show(
        f"rebuild of a generation: {BROKERS} brokers, {CUBES} cubes, filters of 3 predicates",
        (
            *(
                "reduction",
                "facts",
                "core s",
                "facts/s",
                "Spark, first s",
                "Spark s",
                "facts/s",
                "processor s",
                "cores",
            ),
            *("state bytes/fact", "index bytes/fact"),
        ),
        [rate.row() for rate in found],
    )
    xs = list(range(len(found)))
    lines = {
        "core, one processor": [r.facts / r.core_s for r in found],
        "Spark, two tasks at once": [r.facts / r.spark_s for r in found],
    }
    named = ", ".join(f"{i}: {r.reduction} {r.facts}" for i, r in enumerate(found))
    plot("generations_rates", {label: (xs, ys) for label, ys in lines.items()}, named, "facts/s", log="y")


# ── pauses ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Text = Callable[[str], str]


def _links(text: str) -> str:
    """The last broker hangs at the first one instead of at its neighbour."""
    return text.replace(f'["b{BROKERS - 1}", "b{BROKERS}"]', f'["b1", "b{BROKERS}"]')


CHANGES: dict[str, Text] = {
    "a type more": lambda text: text + '[types.more.attributes]\nx = { kind = "int" }\n',
    "a link elsewhere": _links,
    "64 cubes for 16": lambda text: text.replace(f"cubes = {CUBES}", "cubes = 64"),
    "mics for covering": lambda text: text.replace('reduction = "covering"', 'reduction = "mics"'),
    "covering for mics": lambda text: text.replace('reduction = "mics"', 'reduction = "covering"'),
}
"""What changes, one after another, each from the text that the one before left."""


class Publishing(threading.Thread):
    """Publishes at a steady rate until it is told to stop."""

    def __init__(self, config: Config, rate: int) -> None:
        super().__init__(daemon=True)
        self.config, self.rate, self.seconds = config, rate, 0
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            publish_at(self.config, self.rate, 1, f"e{self.seconds}-")
            self.seconds += 1


def arrivals(config: Config, topics: list[str]) -> list[tuple[int, str, str]]:
    """When each delivery was written, of which event, to which topic."""
    consumer = Consumer({"bootstrap.servers": config.deployment.kafka, "group.id": "generations"})
    known = set(consumer.list_topics(timeout=10.0).topics)
    left, found = {}, []
    for topic in sorted(set(topics) & known):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10.0)
        if low < high:
            left[topic] = high
    consumer.assign([TopicPartition(topic, 0, 0) for topic in left])
    while left:
        for message in consumer.consume(5000, timeout=1.0):
            if message.offset() + 1 >= left.get(message.topic(), 2**62):
                del left[message.topic()]
            id = dict(message.headers() or []).get("ce_id", b"").decode()
            found.append((message.timestamp()[1], id, message.topic()))
    consumer.close()
    return sorted(found)


def sent(config: Config) -> dict[str, tuple[int, dict[str, object]]]:
    """By id: when each event was published, and what it says."""
    consumer = Consumer({"bootstrap.servers": config.deployment.kafka, "group.id": "generations"})
    topic, events = config.topics.publications, {}
    places = [TopicPartition(topic, n) for n in consumer.list_topics(timeout=10.0).topics[topic].partitions]
    left = {}
    for place in places:
        place.offset, high = consumer.get_watermark_offsets(place, timeout=10.0)
        if place.offset < high:
            left[place.partition] = high
    consumer.assign(places)
    while left:
        for message in consumer.consume(5000, timeout=1.0):
            if message.offset() + 1 >= left.get(message.partition(), 2**62):
                del left[message.partition()]
            id = dict(message.headers() or [])["ce_id"].decode()
            events[id] = (message.timestamp()[1], json.loads(message.value()))
    consumer.close()
    return events


def flooded(
    config: Config, count: int, per_event: float, events: Mapping[str, tuple[int, dict[str, object]]]
) -> set[tuple[str, str]]:
    """Event and delivery topic of everything that must be delivered: all filters, all events."""
    drawn = list(subscriptions(config, count, per_event, seed=0))
    by_symbol: dict[str, list[tuple[tuple[float, float], tuple[int, int], str]]] = {}
    for one in drawn:
        by_symbol.setdefault(one.symbol, []).append((one.price, one.volume, config.topics.deliver(one.client)))
    wanted = set()
    for id, (_, event) in events.items():
        for price, volume, topic in by_symbol.get(str(event["symbol"]), ()):
            if (
                price[0] <= float(str(event["price"])) <= price[1]
                and volume[0] <= int(str(event["volume"])) <= volume[1]
            ):
                wanted.add((id, topic))
    return wanted


@dataclass(frozen=True)
class Stretch:
    """From when to when something was going on, in ms by the clock of this machine, which is Kafka's too."""

    name: str
    began_ms: float
    ended_ms: float


def pause_of(stretch: Stretch, times: np.ndarray) -> float:
    """The longest time without a delivery, in ms, that lies at least partly in a stretch."""
    inside = times[np.searchsorted(times, stretch.began_ms) - 1 : np.searchsorted(times, stretch.ended_ms) + 1]
    return float(np.diff(inside).max()) if len(inside) > 1 else float("nan")


def delays_of(stretch: Stretch, delays: list[tuple[int, int]]) -> np.ndarray:
    """ms from publication to delivery of what was published in a stretch."""
    inside = [delay for at, delay in delays if stretch.began_ms <= at <= stretch.ended_ms]
    return np.array(inside or [np.nan])


def pauses(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """One job, one life, all changes."""
    _, path = configuration(services, folder, BROKERS, "covering", CUBES)
    path.write_text(path.read_text().replace("max_offsets_per_trigger = 100000\n", "").replace("local[2]", "local[4]"))
    config = parse(path.read_text())
    job = start_job(path)
    publishing = Publishing(config, options.rate)
    stretches = []
    try:
        subscribe(config, 0, options.subscriptions, options.per_event)
        in_force(config, 600.0)
        publishing.start()
        time.sleep(5)
        stretches.append(_during("nothing", lambda: time.sleep(options.seconds)))
        for name, change in CHANGES.items():
            path.write_text(change(path.read_text()))
            stretches.append(_during(name, lambda: _apply(path)))
            print(
                f"  {name}: in force after {(stretches[-1].ended_ms - stretches[-1].began_ms) / 1000:.1f} s", flush=True
            )
            time.sleep(3)
        applied_ms = 1000 * time.time()
        time.sleep(5)
        publishing.stopping.set()
        publishing.join()
        time.sleep(10)
        assert job.poll() is None, "it is one life of the job"
        ago = (1000 * time.time() - applied_ms) / 1000
        assert hilcast(["verify", "--config", str(path), "--since", f"{ago:.1f}"]) == 0
    finally:
        publishing.stopping.set()
        job.terminate()
        job.wait(60.0)
    _report(config, options, stretches)


def _during(name: str, act: Callable[[], None]) -> Stretch:
    began = 1000 * time.time()
    act()
    return Stretch(name, began, 1000 * time.time())


def _apply(path: Path) -> None:
    assert hilcast(["apply", "--config", str(path), "--timeout", "600"]) == 0


def _report(config: Config, options: argparse.Namespace, stretches: list[Stretch]) -> None:
    events = sent(config)
    got = arrivals(config, [config.topics.deliver(f"c{i}") for i in range(CLIENTS)])
    wanted, had = flooded(config, options.subscriptions, options.per_event, events), {(id, to) for _, id, to in got}
    missing, wrong = len(wanted - had), len(had - wanted)
    print(f"{len(events)} events, {len(wanted)} deliveries by flooding: {missing} missing, {wrong} wrong")
    assert wanted == had, f"missing {sorted(wanted - had)[:5]}, wrong {sorted(had - wanted)[:5]}"
    times = np.array([at for at, _, _ in got], np.float64)
    firsts: dict[str, int] = {}
    for at, id, _ in got:
        firsts.setdefault(id, at)
    delays = [(events[id][0], at - events[id][0]) for id, at in firsts.items()]
    rows = []
    for stretch in stretches:
        some = delays_of(stretch, delays)
        took = (stretch.ended_ms - stretch.began_ms) / 1000
        p50, p99 = np.percentile(some, [50, 99])
        rows.append((stretch.name, took, pause_of(stretch, times), float(p50), float(p99), float(some.max())))
    show(
        f"{options.subscriptions} subscriptions, {options.rate} events/s: what changed, and what deliveries noticed",
        ("change", "in force after s", "longest pause ms", "p50 ms", "p99 ms", "slowest ms"),
        rows,
    )
    zero = min(at for at, _ in delays)
    seconds: dict[int, list[int]] = {}
    for at, delay in delays:
        seconds.setdefault((at - zero) // 1000, []).append(delay)
    xs = sorted(seconds)
    lines = {
        "slowest delivery": (xs, [max(seconds[x]) for x in xs]),
        "median": (xs, [float(np.median(seconds[x])) for x in xs]),
    }
    plot("generations_pauses", lines, "s, of publication", "ms to the first delivery", log="y")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["rates", "pauses", []], help="nothing: both")
    parser.add_argument("--scale", type=float, default=1.0, help="of the facts of `rates`")
    parser.add_argument("--reductions", nargs="*", choices=list(SIZES), help="of `rates`; nothing: all")
    parser.add_argument("--subscriptions", type=int, default=10_000, help="of `pauses`")
    parser.add_argument("--per-event", type=float, default=1.0, help="matching subscriptions per event, about")
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=15, help="of the stretch without a change")
    options = parser.parse_args()
    for name, measure in (("rates", rates), ("pauses", pauses)):
        if name in options.what or not options.what:
            on_services(measure, options)


if __name__ == "__main__":
    main()
