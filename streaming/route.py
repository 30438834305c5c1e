"""The route query: publications through the cached index to links and clients, stateless, by Arrow batches.

    publications, [[sources]], links from other deployments ──> state.routing.route ──> one Kafka sink
                                                                       ▲
                                                   Redis ──> index cache: a snapshot per task

`mapInArrow` rows reach Kafka at the end of the task, together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from infra.logs import logger
from state.config import Config
from state.limits import OUTPUT_BYTES_MAX
from state.routing.assemble import outputs_of, row_bytes
from state.routing.envelope import input_topics, own_publications
from state.routing.route import places, route
from state.routing.snapshot import Snapshot
from streaming import dying
from streaming.boot import Boot, Place
from streaming.careful import Hand, pieces
from streaming.index_cache import cache
from streaming.settings import ROUTED, routing_tasks, sink_options, source_options

_log = logger("route")


def records(spark: SparkSession, config: Config, starting_offsets: str, *, lossy: bool = False) -> DataFrame:
    """The input of the route query."""
    own, named = own_publications(config), input_topics(config)
    # clients' own topics come while it runs: Spark looks before every batch, and reads a new one from its beginning
    pattern = None if own is None else "|".join([*map(re.escape, named), own])
    reader = (
        spark.readStream.format("kafka")
        .options(**source_options(config, lossy=lossy))
        .option("subscribe" if pattern is None else "subscribePattern", pattern or ",".join(named))
        .option("startingOffsets", starting_offsets)
    )
    if config.settings.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", config.settings.max_offsets_per_trigger)
    return reader.load().select("topic", "partition", "offset", "key", "value", "headers")


def start(
    spark: SparkSession,
    boot: Boot,
    starting_offsets: str,
    checkpoint: str,
    name: str = "route",
    *,
    lossy: bool = False,
) -> StreamingQuery:
    """Start the route query; `lossy`: it goes on where Kafka has deleted what it has not read."""
    return (
        records(spark, boot.config, starting_offsets, lossy=lossy)
        .coalesce(routing_tasks(spark))
        .mapInArrow(partial(route_batches, boot), ROUTED)
        .writeStream.format("kafka")
        .options(**sink_options(boot.config))
        .option("checkpointLocation", checkpoint)
        # the log of offsets is written beside the batch, not before it; a crash repeats more, loses nothing
        .option("asyncProgressTrackingEnabled", "true")
        .queryName(name)
        .start()
    )


def route_batches(boot: Boot, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Route the Arrow batches of one task with the index that is in force at its start."""
    worker = cache(boot)
    snapshot: Snapshot | None = None
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if snapshot is None:
            snapshot = worker.snapshot(input_topics(boot.config))
            if boot.quarantined:
                snapshot = replace(snapshot, quarantined=boot.quarantined)
        if boot.careful:
            _route_carefully(boot, snapshot, batch)
            continue
        dying.of(partial(_values, batch), boot.quarantined)
        routing = route(snapshot, batch)
        for out in routing.batches():
            assert (row_bytes(out) <= OUTPUT_BYTES_MAX).all(), "what Kafka would not take must not reach its sink"
            yield out
            dying.at("route-mid-sink")
        for line in routing.faults:
            _log.error("%s", line)
        worker.count(routing.figures)
        del routing  # its columns are large, and the next batch needs the room
    dying.at("route-after-sink", after_s=0.2)  # the log of offsets is written a second later


def _route_carefully(boot: Boot, snapshot: Snapshot, batch: pa.RecordBatch) -> None:
    """Route a batch piece by piece, each written before the next is taken in hand (`careful.py`)."""
    worker, where = cache(boot), places(batch)
    hand = Hand(boot.config, worker.redis, "route")
    for rows in pieces(where, boot.suspects):
        hand.take([where[row] for row in rows])
        try:
            piece = batch.slice(rows.start, len(rows))
            dying.of(partial(_values, piece), boot.quarantined)
            routing = route(snapshot, piece)
            hand.write(output for out in routing.batches() for output in outputs_of(out))
        except Exception as error:
            hand.failed(error)
            raise
        hand.put_down()
        for line in routing.faults:
            _log.error("%s", line)
        worker.count(routing.figures)


def _values(batch: pa.RecordBatch) -> Iterator[tuple[Place, bytes | None]]:
    return zip(places(batch), batch.column("value").to_pylist(), strict=True)
