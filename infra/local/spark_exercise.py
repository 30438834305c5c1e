"""What a job has Spark do, on no service: a session, a query with state, one without, each for a few batches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run() -> None:
    """Start a session, run both queries to an end, stop it."""
    with tempfile.TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
            .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        counted = (
            rows.selectExpr("value % 3 AS k")
            .groupBy("k")
            .applyInPandasWithState(_count, "n long", "n long", "append", GroupStateTimeout.NoTimeout)
        )
        plain = rows.selectExpr("cast(value as string) as value").mapInArrow(_same, "value string")
        queries = [
            frame.writeStream.format("noop").option("checkpointLocation", f"{folder}/{name}").start()
            for name, frame in (("counted", counted), ("plain", plain))
        ]
        for query in queries:
            while query.isActive and (query.lastProgress or {"batchId": 0})["batchId"] < 2:
                query.awaitTermination(0.2)
            query.stop()
        spark.stop()


def _count(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n = (state.get[0] if state.exists else 0) + sum(map(len, frames))
    state.update((n,))
    yield pd.DataFrame({"n": [n]})


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
