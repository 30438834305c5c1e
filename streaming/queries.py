"""The two queries of a job as Spark runs them: started, each with workers of its own, and again when they fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from infra.logs import logger
from state.config import Config
from state.routing.envelope import input_topics
from streaming import control, route
from streaming.boot import Boot
from streaming.checkpoint import Checkpoint, Generation
from streaming.offsets import Offsets
from streaming.settings import QUERY_VARIABLE

RESTART_S = 2.0
RESTART_MAX_S = 30.0
_log = logger("queries")


class Queries:
    """The control query and the route query of one generation."""

    def __init__(
        self, spark: SparkSession, boot: Boot, generation: Generation, checkpoint: Checkpoint, offsets: Offsets
    ) -> None:
        self._spark = spark
        self._boot, self._checkpoint, self._offsets = boot, checkpoint, offsets
        self._starters: dict[str, Callable[[], StreamingQuery]] = {
            "control": lambda: control.start(
                spark,
                replace(boot, samples=generation.samples),
                generation.starting_offsets,
                checkpoint.control(generation.number),
            ),
            "route": self._start_route,
        }
        self._running: dict[str, StreamingQuery] = {}
        self._restart_at: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def start(self) -> None:
        for name in self._starters:
            self._begin(name)

    def _begin(self, name: str) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        # Spark keeps Python workers apart by their environment: a route task must not be given one that has no index
        # yet, while a control batch keeps the others busy
        self._spark.sparkContext.environment[QUERY_VARIABLE] = name
        self._running[name] = self._starters[name]()

    def _start_route(self) -> StreamingQuery:
        topics = input_topics(self._boot.config)
        starting = self._offsets.resume("route", topics)
        return route.start(self._spark, self._boot, starting, self._checkpoint.route(topics))

    def follow(self, config: Config) -> None:
        """Route what this configuration reads. Where that are other topics, the route query is started anew.

        It goes on where its group stands, and reads a topic that is new from its beginning. What it had begun is
        repeated, with equal delivery ids; nothing is left out.
        """
        if input_topics(config) == input_topics(self._boot.config):
            return
        before, after = set(input_topics(self._boot.config)), set(input_topics(config))
        _log.info("sources changed: new %s, gone %s", sorted(after - before), sorted(before - after))
        self._boot = replace(self._boot, config=config)
        self._running["route"].stop()
        self._restart_at["route"] = time.monotonic()

    def all_run(self) -> bool:
        return all(query.isActive for query in self._running.values())

    def restart_failed(self) -> None:
        """Start again what stopped, a little later each time."""
        now = time.monotonic()
        for name, query in list(self._running.items()):
            if query.isActive:
                continue
            if name not in self._restart_at:
                self._failures[name] = self._failures.get(name, 0) + 1
                wait_s = min(RESTART_S * 1.5 ** self._failures[name], RESTART_MAX_S)
                self._restart_at[name] = now + wait_s
                _log.error("the %s query stopped and is started again in %.0f s: %s", name, wait_s, _reason(query))
            elif now >= self._restart_at[name]:
                del self._restart_at[name]
                self._begin(name)

    def stop(self) -> None:
        for query in self._running.values():
            if query.isActive:
                query.stop()


def _reason(query: StreamingQuery) -> str:
    error = query.exception()
    return "no reason given" if error is None else " ".join(str(error).split())[:500]
