"""What it costs to grow: throughput, memory, Redis and a rebuild, by cores, executors and subscriptions; and a fit.

    python -m benchmarks.scale [--subscriptions 10000 100000] [--cores 1 2 4] [--events 200000] [--write | --add]
    python -m benchmarks.scale --profile [--subscriptions 100000]

The router beside the identity pipeline with the same cores, as in `benchmarks.pipeline`: by tasks of one process, by
subscriptions, and by executors of one core each, processes of their own that are sent our code as on a cluster
(`local-cluster[N,1,...]`). What an event costs is processor time, so that a machine with other work tells it, too.
A new generation is rebuilt from registrations (`--rebuilt`), in this process. Lines are fitted by least squares on
relative errors; `--write` puts measurements and lines where `hilcast size` reads them, `--add` beside those that are
there, so that what takes long can be measured in pieces. `--profile` starts no services: it tells where the time of one
event goes between Kafka's bytes and the rows out, in processor time of one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import redis
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark import cloudpickle

from benchmarks import pipeline
from benchmarks.pipeline import (
    CLIENTS,
    Pipeline,
    configuration,
    events,
    identity_batches,
    in_bulk,
    install,
    living,
    memory,
    on_services,
    publish,
    rebuilt,
    routed_batches,
    rows_written,
    run,
    spent_s,
    subscriptions,
    text,
)
from infra.kafka.topic_keeper import TopicKeeper
from infra.local.services import LocalServices
from infra.local.toml_text import written
from producers.commands.size import DATA
from state.compiled_part import CompiledPart, load_part
from state.config import Config, parse
from state.routing import route as door
from state.routing.envelope import INPUT
from state.routing.junction import Junction
from state.routing.snapshot import Snapshot
from state.sizing import Line
from state.space.grid import Grid
from state.warm import warm
from streaming.boot import Boot
from streaming.settings import session

LANES = 4
"""Partitions of the publications: as many tasks there may be at once."""
EXECUTOR_MB = 1024


@dataclass(frozen=True)
class Measured:
    """One run of the router and of the identity over the same events."""

    subscriptions: int
    brokers: int
    cores: int
    executors: int
    """0: tasks of one process."""
    router: int
    """Events a second."""
    identity: int
    router_us: float
    """Processor time of an event, in Spark's JVMs and its workers: other work on the machine changes little of it."""
    identity_us: float
    index_mb: int
    """The index that the route workers share."""
    worker_mb: int
    """The largest route worker, beside that."""
    redis_mb: float


@contextlib.contextmanager
def spark_of(config: Config, cores: int, executors: int) -> Iterator[object]:
    """A session with so many cores: in this process, or one to an executor."""
    master = f"local-cluster[{executors},1,{EXECUTOR_MB}]" if executors else f"local[{cores}]"
    memory = {"spark.executor.memory": f"{EXECUTOR_MB}m", "spark.driver.host": "127.0.0.1"}
    spark = session(replace(config, settings=replace(config.settings, master=master), spark={**config.spark, **memory}))
    try:
        yield spark
    finally:
        spark.stop()


def measure(
    config: Config, folder: Path, options: argparse.Namespace, count: int, cores: int, executors: int, redis_mb: float
) -> Measured:
    """Both sides in turn, a few rounds; the first warms up. The best round of each counts."""
    links = [config.topics.link(a, b) for pair in config.overlay.links for a, b in (pair, pair[::-1])]
    topics = sorted([*links, *(config.topics.deliver(f"c{i}") for i in range(CLIENTS))])
    for path in folder.glob("first.*"):
        path.unlink()
    here = folder / f"{count}-{cores}-{executors}"
    ours: Pipeline = partial(routed_batches, Boot(config, 1), str(folder))
    before = rows_written(config, topics)
    best = {"router": (math.inf, math.inf), "identity": (math.inf, math.inf)}
    cloudpickle.register_pickle_by_value(pipeline)  # executors have our packages, and no benchmarks
    with spark_of(config, cores, executors) as spark:
        run(spark, config, ours, str(here / "first"))
        rows = (rows_written(config, topics) - before) / options.events
        sides: dict[str, Pipeline] = {"router": ours, "identity": partial(identity_batches, topics, rows)}
        for number in range(options.rounds):
            for label, function in sides.items():
                before_s = spent_s()
                took, counted = run(spark, config, function, str(here / f"{label}{number}"))
                work = (spent_s() - before_s) / options.events
                best[label] = min(best[label][0], took / counted), min(best[label][1], work)
        told = [memory(pid) for pid in living(folder)]
    index, worker = (round(max(one[what] for one in told)) for what in ("shared", "own"))
    brokers = len(config.overlay.brokers)
    (router, router_us), (identity, identity_us) = (
        (round(1 / wall), round(1e6 * work, 2)) for wall, work in (best["router"], best["identity"])
    )
    found = Measured(
        count, brokers, cores, executors, router, identity, router_us, identity_us, index, worker, round(redis_mb, 1)
    )
    print(found, flush=True)
    return found


def grown(services: LocalServices, folder: Path, options: argparse.Namespace) -> list[Measured]:
    """By cores and by subscriptions in one process, then by executors, each with one core, at the first number."""
    config, _ = configuration(services, folder, options.brokers, "none", options.cubes)
    warm(config)
    TopicKeeper(config).ensure_needed()
    admin = AdminClient({"bootstrap.servers": services.kafka})
    there = len(admin.list_topics(timeout=10.0).topics[config.topics.publications].partitions)
    if there < LANES:
        admin.create_partitions([NewPartitions(config.topics.publications, LANES)])[config.topics.publications].result()
    publish(config, options.events, seed=2)
    first, found = options.subscriptions[0], []
    for count in options.subscriptions:
        redis_mb = installed(config, count, options)
        cores = options.cores if count == first else [os.cpu_count() or 1]
        found += [measure(config, folder, options, count, n, 0, redis_mb) for n in cores]
    if options.executors:
        redis_mb = installed(config, first, options)
        found += [measure(config, folder, options, first, n, n, redis_mb) for n in options.executors]
    return found


def installed(config: Config, count: int, options: argparse.Namespace) -> float:
    """Put the index of so many subscriptions into an empty Redis; the MB that it takes there."""
    kept = redis.Redis.from_url(config.deployment.redis)
    kept.flushall()
    empty = int(kept.info("memory")["used_memory"])
    install(config, subscriptions(config, count, options.per_event, seed=1), bulk=True)
    taken = (int(kept.info("memory")["used_memory"]) - empty) / 1e6
    kept.close()
    return taken


def rebuild_s(count: int, options: argparse.Namespace) -> float:
    """Seconds of this process for a new generation of so many registrations, with the default reduction."""
    config = parse(text("127.0.0.1:1", "redis://127.0.0.1:1/0", Path("."), options.brokers, "covering", options.cubes))
    warm(config)
    began = time.process_time()
    for _ in rebuilt(config, subscriptions(config, count, options.per_event, seed=1)):
        pass
    return round(time.process_time() - began, 2)


def fitted(points: list[tuple[float, float]]) -> Line:
    """The line through points, by least squares on relative errors; neither base nor slope is below 0."""
    x, y = (np.array(column, float) for column in zip(*points, strict=True))
    weighed = np.stack([1 / y, x / y], axis=1)
    base, slope = np.linalg.lstsq(weighed, np.ones(len(y)), rcond=None)[0]
    if slope < 0 or len({*x}) == 1:
        base, slope = float(np.exp(np.log(y).mean())), 0.0
    elif base < 0:
        base, slope = 0.0, float((1 / (x / y)).mean())
    error = float(np.abs((base + slope * x) / y - 1).max())
    return Line(round(float(base), 3), round(float(slope), 4), round(error, 3), len({*x}))


def fit(found: list[Measured], rebuilds: list[tuple[int, float]], cores: int) -> dict[str, object]:
    """The lines of `state/sizing.py`; more tasks than the machine has `cores` count as no more cores."""
    entries = [one.subscriptions * one.brokers / 1e6 for one in found]
    lines = {
        "index": fitted([(e, one.index_mb) for e, one in zip(entries, found, strict=True)]),
        "worker": fitted([(e, one.worker_mb) for e, one in zip(entries, found, strict=True)]),
        "redis": fitted([(e, one.redis_mb) for e, one in zip(entries, found, strict=True)]),
        "event": fitted([(math.log10(one.subscriptions), one.router_us) for one in found]),
        "rebuild": fitted([(count / 1e3, seconds) for count, seconds in rebuilds]),
    }
    most = {
        "subscriptions": max(one.subscriptions for one in found),
        "entries": max(one.subscriptions * one.brokers for one in found),
        "cores": max(one.cores for one in found if one.cores <= cores),
    }
    return {**{name: asdict(line) for name, line in lines.items()}, "measured": most}


def growth(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """Measure, print, fit, and write what was found where it is asked for."""
    rebuilds = [(count, rebuild_s(count, options)) for count in options.rebuilt]
    found = grown(services, folder, options)
    print(f"{'subscriptions':>14}{'executors':>11}{'cores':>7}{'router/s':>10}{'identity/s':>12}{'ratio':>7}", end="")
    print(f"{'router us':>11}{'identity us':>13}{'index MB':>10}{'worker MB':>11}{'Redis MB':>10}")
    for one in found:
        where = str(one.executors) if one.executors else "one process"
        print(f"{one.subscriptions:>14,}{where:>11}{one.cores:>7}{one.router:>10.0f}{one.identity:>12.0f}", end="")
        print(f"{one.router / one.identity:>7.2f}{one.router_us:>11.2f}{one.identity_us:>13.2f}", end="")
        print(f"{one.index_mb:>10}{one.worker_mb:>11}{one.redis_mb:>10.1f}")
    for count, seconds in rebuilds:
        print(f"a generation of {count:,} rebuilt: {seconds:.1f} s of one core")
    if options.write or options.add:
        write(found, rebuilds, options)


def write(found: list[Measured], rebuilds: list[tuple[int, float]], options: argparse.Namespace) -> None:
    """Measurements and lines, where `hilcast size` reads them; of the same measured again, the last counts."""
    cores = os.cpu_count() or 1
    machine = {"cores": cores, "load": round(os.getloadavg()[1], 1), "python": sys.version.split()[0]}
    machine["events"] = options.events
    if options.add:
        kept = tomllib.loads(DATA.read_text())
        every = [*(Measured(**one) for one in kept["route"]), *found]
        by_place = {(one.subscriptions, one.brokers, one.cores, one.executors): one for one in every}
        found = [by_place[place] for place in sorted(by_place)]
        rebuilds = sorted(({one["subscriptions"]: one["seconds"] for one in kept["rebuild"]} | dict(rebuilds)).items())
        machine["load"] = max(machine["load"], kept["machine"]["load"])
    lines = fit(found, rebuilds, cores)
    for name, line in lines.items():
        print(f"{name}: {line}")
    tables = {
        "machine": machine,
        "fit": lines,
        "route": [asdict(one) for one in found],
        "rebuild": [{"subscriptions": count, "seconds": seconds} for count, seconds in rebuilds],
    }
    DATA.write_text(HEAD + written(tables))
    print(f"written: {DATA}")


STAGES = {
    "read": "headers to columns",
    "claim": "which events are ours, by type",
    "examine": "JSON values to ranks",
    "sweep": "links and filters of all brokers",
    "unite": "one delivery a client",
    "_write_links": "rows of links, as numbers",
    "write_deliveries": "delivery ids, reasons, rows as numbers",
    "batches": "rows out, as Arrow",
    "rest": "log, figures, the rest",
}
"""What `state/routing/route.py` calls, in order, and what that does."""


def profile(options: argparse.Namespace) -> None:
    """Where the time of an event goes, for each number of subscriptions: the least of several batches."""
    config = parse(text("127.0.0.1:1", "redis://127.0.0.1:1/0", Path("."), options.brokers, "none", options.cubes))
    drawn = [*events(config, min(options.events, 100_000), seed=2)]
    rows = [
        {"topic": config.topics.publications, "partition": 0, "offset": i, "key": None, "value": value.encode()}
        | {"headers": [{"key": key, "value": said} for key, said in headers]}
        for i, (value, headers) in enumerate(drawn)
    ]
    batch = pa.RecordBatch.from_pylist(rows, INPUT)
    for count in options.subscriptions:
        parts: dict[str, list[CompiledPart]] = {}
        for key, blob in in_bulk(config, subscriptions(config, count, options.per_event, seed=1)):
            parts.setdefault(key.broker, []).append(load_part(blob))
        grid = Grid.of(config.types["quote"])
        junctions = {broker: Junction.join(config.types["quote"], grid, some) for broker, some in parts.items()}
        snapshot = Snapshot(config, "1.1", {"quote": junctions})
        runs = [_stages(snapshot, batch) for _ in range(options.rounds + 2)]
        least = {name: min(run[name] for run in runs) * 1e9 / batch.num_rows for name in STAGES}
        out = runs[0]["rows"] / batch.num_rows
        print(f"{count:,} subscriptions, {options.brokers} brokers, {out:.2f} rows out an event: ns an event")
        for name, what in STAGES.items():
            print(f"{what:<42}{least[name]:>8.0f}{least[name] / sum(least.values()):>7.0%}")
        print(f"{'all':<42}{sum(least.values()):>8.0f}", flush=True)


def _stages(snapshot: Snapshot, batch: pa.RecordBatch) -> dict[str, float]:
    """Seconds of this thread in each stage of one batch, and the rows that came out."""
    spent = dict.fromkeys(STAGES, 0.0)
    kept = {name: getattr(door, name) for name in STAGES if hasattr(door, name)}

    def timed(name: str) -> Callable[..., object]:
        def run(*given: object, **named: object) -> object:
            began = time.thread_time()
            try:
                return kept[name](*given, **named)
            finally:
                spent[name] += time.thread_time() - began

        return run

    began = time.thread_time()
    for name in kept:
        setattr(door, name, timed(name))
    try:
        routing = door.route(snapshot, batch)
    finally:
        for name, function in kept.items():
            setattr(door, name, function)
    middle = time.thread_time()
    spent["rows"] = sum(out.num_rows for out in routing.batches())
    spent["batches"] = time.thread_time() - middle
    spent["rest"] = middle - began - sum(spent[name] for name in kept)
    return spent


HEAD = "# Measured and fitted by `python -m benchmarks.scale --write`; read by `hilcast size` (`state/sizing.py`).\n"


def main() -> None:
    """Grow, and say what it cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rebuilt", type=int, nargs="*", default=[2000, 10_000], help="registrations of a generation")
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2, 4], help="tasks of one process")
    parser.add_argument("--executors", type=int, nargs="*", default=[1, 2, 4], help="of one core each")
    parser.add_argument("--brokers", type=int, default=5)
    parser.add_argument("--cubes", type=int, default=16)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--per-event", type=float, default=1.0, help="matching subscriptions per event, about")
    parser.add_argument("--write", action="store_true", help="where `hilcast size` reads it")
    parser.add_argument("--add", action="store_true", help="the same, beside what is written there")
    parser.add_argument("--profile", action="store_true", help="where the time of an event goes; no services")
    options = parser.parse_args()
    if options.profile:
        profile(options)
    else:
        on_services(growth, options)


if __name__ == "__main__":
    main()
