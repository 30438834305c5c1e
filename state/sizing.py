"""How much of everything a router needs: one formula, with figures that were measured and fitted (`benchmarks.scale`).

    entries    what the brokers of a deployment hold: each subscription once at its own broker, and once more at each
               other one for the link towards it, as far as neighbours are told it (`forwarded`)
    the index  index_base + index_entry * entries             one per host, shared by its workers
    a worker   worker_base + worker_entry * entries           one per core that routes, beside that index
    Redis      redis_base + redis_entry * entries
    an event   event_base + event_decade * log10(subscriptions), of one core
    a rebuild  rebuild * subscriptions, of one core: a new generation from the registry, while routing goes on

Nothing is measured beyond `measured`: what is larger is extrapolated along these lines, and said to be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

DRIVER_HEAP, EXECUTOR_HEAP = 2048, 1024
"""MB of the two JVMs, as `streaming/settings.py` and the manifests have them."""
JVM_BESIDE = 512
"""MB that a JVM uses outside its heap."""
CONTROL_WORKER = 400
"""MB of a worker of the control query, which holds the state of one batch."""
HEADROOM = 0.7
"""The share of a core that routing may take on average: the rest is for bursts and what was missed."""
INDEX_MAX = 16_000
"""MB that the index of a host may take before brokers are split over more deployments."""
CORES_OF_EXECUTOR = 4
LINES = ("index", "worker", "redis", "event", "rebuild")


@dataclass(frozen=True)
class Line:
    """A fitted line, and how far measurements lie from it at most, as a share of them."""

    base: float
    slope: float
    error: float
    points: int
    """At how many places it was measured: two say nothing of how straight it is."""

    def at(self, x: float) -> float:
        return self.base + self.slope * x


@dataclass(frozen=True)
class Fit:
    """What `benchmarks.scale` measured, as lines."""

    index: Line
    """MB of the index that the workers of a host share, by million entries."""
    worker: Line
    """MB of a route worker beside it, by million entries."""
    redis: Line
    """MB in Redis, by million entries."""
    event: Line
    """Microseconds of a core for one event, by log10 of the subscriptions."""
    rebuild: Line
    """Seconds of one core for a new generation, by thousands of subscriptions."""
    measured: Mapping[str, float]
    """The largest `subscriptions`, `entries` and `cores` that were measured."""

    @classmethod
    def read(cls, table: Mapping[str, Mapping[str, float]]) -> Fit:
        """From the table `fit` of the data file."""
        lines: dict[str, Line] = {name: Line(**table[name]) for name in LINES}  # type: ignore[arg-type]
        return cls(**lines, measured=table["measured"])


@dataclass(frozen=True)
class Asked:
    """What a router is to carry."""

    subscriptions: int
    events_per_s: float
    brokers: int
    forwarded: float = 1.0
    """The share of the subscriptions that neighbours are told: 1 where nothing is reduced."""
    deployments: int | None = None
    """None: as few as there must be."""


@dataclass(frozen=True)
class Size:
    """What that takes. Memory in MB; errors as shares."""

    deployments: int
    brokers_each: int
    entries_each: int
    """That the brokers of one deployment hold."""
    route_cores: int
    """Of one deployment; every event may pass all of them."""
    executors: int
    executor_cores: int
    executor_mb: int
    """Of one that is a host, or a pod, of its own: on one with others they share the index."""
    driver_mb: int
    index_mb: int
    worker_mb: int
    redis_mb: int
    partitions: int
    """Of `publications`: a task each."""
    rebuild_s: int
    """For a new generation of one deployment."""
    errors: dict[str, float]
    points: dict[str, int]
    """By line: at how many places it was measured."""
    extrapolated: list[str] = field(default_factory=list)
    """What lies beyond all measurements."""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def size(asked: Asked, fit: Fit) -> Size:
    """What a router needs."""
    deployments = asked.deployments or _deployments(asked, fit)
    brokers = math.ceil(asked.brokers / deployments)
    entries = entries_of(asked, brokers)
    index, worker = round(fit.index.at(entries / 1e6)), round(fit.worker.at(entries / 1e6))
    micros = fit.event.at(math.log10(max(10, asked.subscriptions)))
    cores = max(1, math.ceil(asked.events_per_s * micros / 1e6 / HEADROOM))
    each = min(cores, CORES_OF_EXECUTOR)
    executors = math.ceil(cores / each)
    return Size(
        deployments=deployments,
        brokers_each=brokers,
        entries_each=entries,
        route_cores=cores,
        executors=executors,
        executor_cores=each,
        executor_mb=executor_mb(index, worker, each, 1),
        driver_mb=DRIVER_HEAP + JVM_BESIDE,
        index_mb=index,
        worker_mb=worker,
        redis_mb=round(fit.redis.at(entries / 1e6)),
        partitions=executors * each,
        rebuild_s=round(fit.rebuild.at(asked.subscriptions / 1e3)),
        errors={name: getattr(fit, name).error for name in LINES},
        points={name: getattr(fit, name).points for name in LINES},
        extrapolated=_beyond(asked, fit, entries, cores),
    )


def entries_of(asked: Asked, brokers: int) -> int:
    """What so many brokers hold together."""
    own = asked.subscriptions / asked.brokers
    return round(brokers * (own + (asked.subscriptions - own) * asked.forwarded))


def executor_mb(index: int, worker: int, route_workers: int, control_workers: int, heap: int = EXECUTOR_HEAP) -> int:
    """The memory of one executor, or of driver and executor in one: heap, what lies beside it, the index, its workers.

    >>> executor_mb(500, 200, 4, 2, DRIVER_HEAP)
    4660
    """
    return heap + JVM_BESIDE + index + route_workers * worker + control_workers * CONTROL_WORKER


def _deployments(asked: Asked, fit: Fit) -> int:
    """As few as let a host hold the brokers of one; at most one broker each."""
    for deployments in range(1, asked.brokers + 1):
        brokers = math.ceil(asked.brokers / deployments)
        if fit.index.at(entries_of(asked, brokers) / 1e6) <= INDEX_MAX:
            return deployments
    return asked.brokers


def _beyond(asked: Asked, fit: Fit, entries: int, cores: int) -> list[str]:
    """In words: what is larger than anything that was measured."""
    found = {"subscriptions": asked.subscriptions, "entries": entries, "cores": cores}
    return [
        f"{name}: {found[name]:,} against {round(most):,} measured"
        for name, most in fit.measured.items()
        if found[name] > most
    ]
