"""Changing some subscriptions among many while events flow: what is touched, and what routing notices of it.

    python -m benchmarks.updates [--subscriptions 5000 100000] [--per-event 0.2 2] [--changes 1000] [--brokers 7]
        [--rate 500] [--seconds 20] [--cubes N]

A real job on real services for each size, and for narrow and wide filters (matching subscriptions per event). All
subscriptions are registered through Kafka and in force; events are published at a fixed rate, first with nothing else
going on, then while some subscriptions of one corner of the content space are replaced. Printed for each: parts of the
index that were written beside those that the changed filters touch, p50 and p99 from publication to the first copy in
both stretches, and the work that was counted (`hilcast status`): entries touched, bytes of state unpacked and packed,
bytes of index written. Then all of them in one table, and pictures.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks.live import SETTLE_S, WARM_S, in_force, latency, publish_at, start_job, subscribe, until_in_force
from benchmarks.pipeline import CLIENTS, SYMBOLS, Drawn, configuration, on_services, subscriptions
from benchmarks.report import plot, show, table
from infra.local.services import LocalServices
from state.config import Config, parse
from state.filters.geometry import geometry
from state.filters.grammar import parse as parse_filter
from state.keys import Key, is_wide, wide_part
from state.redis_index import RedisIndex
from state.space.grid import Grid
from state.tuning import wanted_cubes


def install(config: Config, count: int, per_event: float) -> float:
    """Register all subscriptions through Kafka; return the seconds until they are in force."""
    started = time.monotonic()
    subscribe(config, 0, count, per_event)
    until_in_force(config)
    took = time.monotonic() - started
    print(f"{count} subscriptions in force after {took:.1f} s", flush=True)
    return took


def cornered(config: Config, count: int, changes: int, per_event: float) -> dict[str, Drawn]:
    """The subscriptions nearest to the corner of low prices and volumes, each for another symbol than it had."""
    drawn = list(enumerate(subscriptions(config, count, per_event, seed=0)))
    drawn.sort(key=lambda item: max(item[1].price[0] / 1000, item[1].volume[0] / 1_000_000))
    changed = {}
    for i, one in drawn[:changes]:
        symbol = f"S{(int(one.symbol[1:]) + 1) % SYMBOLS}"
        changed[f"s{i}"] = one._replace(symbol=symbol)
    return changed


def replace(config: Config, changed: Mapping[str, Drawn]) -> float:
    """Send the replacements; return the seconds until they are in force."""
    started = time.monotonic()
    producer = Producer({"bootstrap.servers": config.deployment.kafka, "linger.ms": 10})
    for id, one in changed.items():
        key = f"{config.overlay.brokers[one.broker]}/quote/{id}"
        value = json.dumps({"client": one.client, "filter": one.text})
        producer.produce(config.topics.subscriptions, key=key, value=value)
        producer.poll(0)
    producer.flush()
    in_force(config, 300.0)
    return time.monotonic() - started


def concerned(config: Config, changed: Mapping[str, Drawn]) -> set[str]:
    """The parts that these filters touch."""
    event_type = config.types["quote"]
    grid = Grid.of(event_type)
    parts = set()
    for id, one in changed.items():
        cubes = grid.cubes_of(geometry(parse_filter(one.text, event_type), event_type).boxes)
        wide = is_wide(len(cubes), event_type.cubes)
        parts |= {wide_part(id, config)} if wide else {f"cube:{cube}" for cube in cubes.tolist()}
    return parts


def versions(config: Config) -> dict[Key, str]:
    """The version of every part of the index."""
    index = RedisIndex(config)
    _, generation = index.current()
    assert generation is not None, "a generation is in force"
    _, vector = index.vector(generation)
    return {Key.parse(key): version.epoch for key, version in vector.items() if "//" not in key}


COUNTED = ("entries_touched", "state_bytes_read", "state_bytes_written", "index_bytes_written")


class Found(NamedTuple):
    """What one job showed."""

    subscriptions: int
    per_event: float
    installed_s: float
    replaced_s: float
    p99_quiet_ms: float
    p99_changing_ms: float
    counted: Mapping[str, float]

    @property
    def row(self) -> list[object]:
        ratio = self.p99_changing_ms / self.p99_quiet_ms
        times = [self.installed_s, self.replaced_s, self.p99_quiet_ms, self.p99_changing_ms, ratio]
        return [self.subscriptions, self.per_event, *times, *(int(self.counted[name]) for name in COUNTED)]


HEAD = (
    *("subscriptions", "per event", "all in force, s", "replaced, s", "p99 ms", "p99 changing", "ratio"),
    *("entries", "state read", "state written", "index written"),
)


def counts(config: Config) -> dict[str, float]:
    """The work that the job has counted so far."""
    figures = RedisIndex(config).figures()
    return {name: float(figures.get(name, 0)) for name in COUNTED}


def measure(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """Both stretches on one job; what is found is added to `options.found`."""
    cubes = options.cubes or wanted_cubes(options.subscriptions, options.brokers)
    _, path = configuration(services, folder, options.brokers, options.reduction, cubes=cubes)
    path.write_text(path.read_text().replace("max_offsets_per_trigger = 100000\n", "").replace("local[2]", "local[4]"))
    config = parse(path.read_text())
    changed = cornered(config, options.subscriptions, options.changes, options.per_event)
    job = start_job(path)
    try:
        installed = install(config, options.subscriptions, options.per_event)
        publish_at(config, options.rate, WARM_S, "warm-")
        time.sleep(SETTLE_S)
        publish_at(config, options.rate, options.seconds, "quiet-")
        time.sleep(SETTLE_S)
        before, work = versions(config), counts(config)
        took: list[tuple[float, float]] = []
        changing = threading.Thread(target=lambda: took.append((replace(config, changed), 1000 * time.time())))
        changing.start()
        rounds = 0
        while changing.is_alive() or rounds == 0:
            publish_at(config, options.rate, options.seconds, f"changing-{rounds}-")
            rounds += 1
        changing.join()
        time.sleep(SETTLE_S)
        after, done = versions(config), counts(config)
    finally:
        job.terminate()
        job.wait(60.0)
    quiet, changing = report(config, options, before, after, concerned(config, changed), *took[0])
    counted = {name: done[name] - work[name] for name in COUNTED}
    found = Found(options.subscriptions, options.per_event, installed, took[0][0], quiet, changing, counted)
    table(HEAD, [found.row])
    options.found.append(found)


def report(
    config: Config,
    options: argparse.Namespace,
    before: Mapping[Key, str],
    after: Mapping[Key, str],
    touched: set[str],
    took: float,
    until_ms: float,
) -> tuple[float, float]:
    """Print what was written and how long events took; return p99 before and while they change."""
    written = {key for key, version in after.items() if before[key] != version}
    beyond = sorted(str(key) for key in written if key.part not in touched)
    of = len({key.part for key in after})
    print(f"{options.changes} of {options.subscriptions} replaced: in force everywhere after {took:.1f} s")
    print(f"they touch {len(touched)} of {of} parts; written anew: {len(written)} of {len(after)} parts of all brokers")
    assert not beyond, f"written though no changed filter touches them: {beyond[:5]}"
    delivery = [config.topics.deliver(f"c{i}") for i in range(CLIENTS)]
    quiet, changing = latency(config, delivery, "quiet-"), latency(config, delivery, "changing-", until_ms)
    print(f"{options.rate} events/s; p50 and p99 from publication to the first copy, ms")
    for label, (count, p50, p99) in (("quiet", quiet), ("changing", changing)):
        print(f"{label:<10}{count:>8} delivered {p50:>8.0f} {p99:>8.0f}")
    print(f"p99 while they change / p99 before = {changing[2] / quiet[2]:.2f}")
    return quiet[2], changing[2]


def conclude(found: Sequence[Found]) -> None:
    """All jobs side by side, and how time and work grow with the subscriptions."""
    show("replacing some subscriptions among many", HEAD, [one.row for one in found])
    by_width: dict[float, list[Found]] = {}
    for one in found:
        by_width.setdefault(one.per_event, []).append(one)
    for what, value in (
        ("seconds", lambda one: one.replaced_s),
        ("bytes", lambda one: sum(one.counted[name] for name in COUNTED[1:])),
    ):
        lines = {
            f"{width} matching per event": ([float(one.subscriptions) for one in some], [value(one) for one in some])
            for width, some in by_width.items()
        }
        plot(f"updates-{what}", lines, "subscriptions", f"{what} of the replacement", log="xy")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[5000, 100_000])
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--brokers", type=int, default=7)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--cubes", type=int, help="as many as the router would choose by itself, unless given")
    parser.add_argument(
        "--per-event", type=float, nargs="+", default=[0.2, 2.0], help="matching subscriptions per event: their width"
    )
    parser.add_argument("--reduction", default="covering")
    options = parser.parse_args()
    found: list[Found] = []
    for per_event in options.per_event:
        for count in options.subscriptions:
            one = {**vars(options), "subscriptions": count, "per_event": per_event, "found": found}
            on_services(measure, argparse.Namespace(**one))
    conclude(found)


if __name__ == "__main__":
    main()
