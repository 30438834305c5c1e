"""The life of a router with very many subscriptions: registered, changed, killed, rebuilt, and all of it verified.

    python -m benchmarks.life [--subscriptions 1000000] [--brokers 7] [--rate 50]

One job on a real Kafka, Redis and Spark, every step by the way that users have: subscriptions through Kafka until they
are in force; some of them replaced under events; the driver killed (`kill -9`) and started again, and the same with its
checkpoint gone; a generation built beside the one in force (`hilcast rebuild`). Events flow at a low rate from the
first step to the last, so that what routing notices of each is seen: the longest pause of deliveries, and the delays.
In the end `hilcast verify` judges everything. Printed for each step: seconds, and memory of the job and of Redis.

The rate is low for the sake of the judge, which holds every event against every filter.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import numpy as np
import redis

from benchmarks.clients import memory
from benchmarks.generations import Publishing, Stretch, arrivals, delays_of, pause_of, sent
from benchmarks.live import start_job, subscribe, until_in_force
from benchmarks.pipeline import CLIENTS, configuration, on_services
from benchmarks.report import show
from benchmarks.starts import GONE_S, Probe, until
from benchmarks.updates import cornered, replace
from infra.local.services import LocalServices
from producers.cli import main as hilcast
from state.config import Config, parse
from state.tuning import wanted_cubes

PATIENCE_S = 7200.0
QUIET_S = 20.0
APART_S = 5.0
"""Between two steps, so that a pause is of one of them."""


class Life:
    """One job, from step to step."""

    def __init__(self, services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
        cubes = wanted_cubes(options.subscriptions, options.brokers)
        _, self.path = configuration(services, folder, options.brokers, options.reduction, cubes=cubes)
        text = self.path.read_text().replace("max_offsets_per_trigger = 100000\n", "")
        more = f"control_records_per_batch = {options.records_per_batch}\n[types.quote]"
        self.path.write_text(text.replace("local[2]", "local[4]").replace("[types.quote]", more, 1))
        self.config: Config = parse(self.path.read_text())
        self.options, self._redis = options, redis.Redis.from_url(services.redis)
        self.stretches: list[Stretch] = []
        self.rows: list[list[object]] = []
        self.job: Popen[bytes] = start_job(self.path)

    def step(self, name: str, act: Callable[[], None]) -> None:
        """Do something, and note what it took."""
        print(f"{name} …", flush=True)
        began = time.time()
        act()
        took = time.time() - began
        self.stretches.append(Stretch(name, 1000 * began, 1000 * (began + took)))
        held = [round(value) for value in memory(self.job).values()]
        in_redis = round(self._redis.info("memory")["used_memory"] / 1e6)
        self.rows.append([name, round(took, 1), *held, in_redis])
        print(f"  {took:.1f} s; MB of JVM, Python, Redis: {held[0]}, {held[1]}, {in_redis}", flush=True)
        time.sleep(APART_S)

    def settle(self) -> None:
        """Until all that was sent is in force."""
        until_in_force(self.config)

    def register(self) -> None:
        subscribe(self.config, 0, self.options.subscriptions, self.options.per_event)
        self.settle()

    def change(self) -> None:
        options = self.options
        replace(self.config, cornered(self.config, options.subscriptions, options.changes, options.per_event))

    def kill(self, probe: Probe, checkpoint: bool = True) -> None:
        """Kill the job, and start it again; until an event that was published meanwhile is delivered."""
        self.job.kill()
        self.job.wait()
        if not checkpoint:
            shutil.rmtree(self.config.deployment.checkpoint)
        probe.publish()
        time.sleep(GONE_S)
        self.job = start_job(self.path)
        until(probe.has_come, time.monotonic())

    def rebuild(self) -> None:
        assert hilcast(["rebuild", "--config", str(self.path), "--timeout", str(PATIENCE_S)]) == 0

    def verify(self) -> None:
        assert hilcast(["verify", "--config", str(self.path)]) == 0


def measure(services: LocalServices, folder: Path, options: argparse.Namespace) -> None:
    """All steps, and what routing noticed of each."""
    life = Life(services, folder, options)
    publishing, probe = Publishing(life.config, options.rate), Probe(life.config)
    try:
        probe.subscribe()
        life.settle()
        probe.publish()
        publishing.start()
        life.step("registered", life.register)
        life.step("nothing", lambda: time.sleep(QUIET_S))
        life.step("changed", life.change)
        life.step("killed", lambda: life.kill(probe))
        life.step("in force again", life.settle)
        life.step("rebuilt", life.rebuild)
        life.step("killed, its checkpoint gone", lambda: life.kill(probe, checkpoint=False))
        life.step("in force once more", life.settle)
        publishing.stopping.set()
        publishing.join()
        time.sleep(5)
        life.step("verified", life.verify)
    finally:
        publishing.stopping.set()
        life.job.terminate()
        life.job.wait(60.0)
        probe.close()
    report(life)


def report(life: Life) -> None:
    """Steps with what they took, and the pauses and delays of deliveries while they went on."""
    options, config = life.options, life.config
    events = sent(config)
    firsts: dict[str, int] = {}
    got = arrivals(config, [config.topics.deliver(f"c{i}") for i in range(CLIENTS)])
    for at, id, _ in got:
        firsts.setdefault(id, at)
    delays = [(events[id][0], at - events[id][0]) for id, at in firsts.items()]
    times = np.array([at for at, _, _ in got], np.float64)
    rows = []
    for stretch, row in zip(life.stretches, life.rows, strict=True):
        some = delays_of(stretch, delays)
        p50, p99 = np.percentile(some, [50, 99])
        rows.append([*row, pause_of(stretch, times), float(p50), float(p99), float(some.max())])
    head = ("step", "s", "JVM MB", "Python MB", "Redis MB", "pause ms", "p50 ms", "p99 ms", "slowest ms")
    show(f"{options.subscriptions:,} subscriptions, {options.brokers} brokers, {options.rate} events/s", head, rows)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--brokers", type=int, default=7)
    parser.add_argument("--rate", type=int, default=50)
    parser.add_argument("--per-event", type=float, default=2.0, help="matching subscriptions per event, about")
    parser.add_argument("--reduction", default="covering")
    parser.add_argument(
        "--records-per-batch",
        type=int,
        default=200_000,
        help="of control: each batch takes a step of nearly every part",
    )
    on_services(measure, parser.parse_args())


if __name__ == "__main__":
    main()
