"""Workers that have done everything once before the job says `ready`.

    a small Spark job under the name of each query ──> its daemon ──> as many workers as its tasks will have
        wake      they import everything and load the kernels, while a generation is built
        route     reads the index that is in force, whole
        control   makes its grids and its connections

    and later, before another generation is in force:
        route     one of them on each executor loads its index, which the others of its host then map

Without it the first records of a new job would wait for all of that. Spark keeps these workers for the queries, as both
are told apart by their environment alone.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from state.routing.envelope import input_topics
from streaming.boot import Boot
from streaming.index_cache import cache
from streaming.key_step import prepare

TOGETHER_S = 0.3
"""How long a task stays: the next one is then given another worker, not this one again."""


def warming(spark: SparkSession, boot: Boot | None, query: str, tasks: int) -> DataFrame:
    """A job that makes so many workers of a query ready, or without `boot` wakes them.

    Spark's environment must name the query.
    """
    return spark.range(0, tasks, 1, tasks).mapInArrow(partial(_warm, boot, query), "id long")


def preparing(spark: SparkSession, boot: Boot, tasks: int) -> DataFrame:
    """A job that has so many workers of the route query hold a generation which is about to be in force.

    Its rows say which executor that was, and whether it does. Spark gives each executor that has room a task before it
    gives one a second task: with as many tasks as executors, all that are not busy with other tasks have one.
    """
    return spark.range(0, tasks, 1, tasks).mapInArrow(partial(_prepare, boot), "executor string, held boolean")


def _prepare(boot: Boot, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held = cache(boot).prepare(boot.generation, boot.config.shared)
    time.sleep(TOGETHER_S)
    # our parent is the daemon of this query, of which an executor has one
    said = [pa.array([f"{socket.gethostname()} {os.getppid()}"]), pa.array([held])]
    for batch in batches:
        for _ in range(batch.num_rows):
            yield pa.RecordBatch.from_arrays(said, names=["executor", "held"])


def _warm(boot: Boot | None, query: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if boot is None:
        pass
    elif query == "route":
        cache(boot).snapshot(input_topics(boot.config))
    else:
        prepare(boot)
    time.sleep(TOGETHER_S)
    yield from batches
