"""What a job has Spark do, in small: a session, a query with state and one without, from Kafka and back to it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

STREAMING = "org.apache.spark.sql.execution.streaming"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.checkpointFileManagerClass": f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
TOPICS = ("in", "out")
BATCHES = 2
OUTPUT = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"


def run(kafka: str) -> None:
    """Start a session, run both queries for some batches, stop it."""
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        admin = AdminClient({"bootstrap.servers": kafka})  # to be held: its answers end with it
        for future in admin.create_topics([NewTopic(name, 1) for name in TOPICS]).values():
            future.result(60.0)
        producer = Producer({"bootstrap.servers": kafka})
        records = _records(spark, kafka)
        counted = (
            _keyed(records)
            .groupBy("k")
            .applyInPandasWithState(_count, OUTPUT, "n binary", "update", GroupStateTimeout.NoTimeout)
        )
        plain = records.select("topic", "partition", "offset", "timestamp", "key", "value", "headers")
        plain = plain.mapInArrow(_same, OUTPUT)
        queries = [
            frame.writeStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": kafka, "kafka.compression.type": "lz4"})
            .option("checkpointLocation", f"{folder}/{name}")
            .outputMode(mode)
            .trigger(processingTime="100 milliseconds")
            .start()
            for name, frame, mode in (("counted", counted, "update"), ("plain", plain, "append"))
        ]
        for query in queries:
            while query.isActive and (query.lastProgress or {"batchId": 0})["batchId"] < BATCHES:
                producer.produce(TOPICS[0], b"next", key=b"a/b/c", headers=[("name", b"value")])
                producer.flush(60.0)
                query.awaitTermination(0.2)
            query.stop()
        spark.stop()


def _records(spark: SparkSession, kafka: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": kafka, "subscribe": TOPICS[0], "startingOffsets": "earliest"}
    return spark.readStream.format("kafka").options(**options).option("includeHeaders", "true").load()


def _keyed(records: DataFrame) -> DataFrame:
    """By expressions of the kinds that the control query has."""
    text = F.coalesce(F.col("key").cast("string"), F.lit(""))
    headers = F.coalesce("headers", F.array())
    names = F.transform(headers, lambda h: h["key"].cast("binary"))
    size = F.aggregate(headers, F.lit(0), lambda total, h: total + F.octet_length(h["value"]))
    part = F.concat(F.regexp_extract(text, "^([a-z]+)/", 1), F.lit("/"), F.crc32(F.col("value")) % 3)
    packed = F.concat(F.array(F.col("key"), F.unix_millis("timestamp").cast("string").cast("binary")), names)
    return records.where(F.when(size > 0, text.isin("", "a/b/c")).otherwise(F.lit(True))).select(
        F.when(F.col("topic") == TOPICS[0], part).otherwise(F.substring_index("topic", ".", -1)).alias("k"),
        packed.alias("record"),
    )


def _count(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n = (int(bytes(state.get[0])) if state.exists else 0) + sum(map(len, frames))
    state.update((str(n).encode(),))
    yield pd.DataFrame(
        {"topic": [TOPICS[1]], "key": [b"k"], "value": [str(n).encode()], "headers": [None]}, dtype=object
    )


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        headers = pa.nulls(batch.num_rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
        topic = pa.array([TOPICS[1]] * batch.num_rows)
        columns = [topic, batch.column("key"), batch.column("value"), headers]
        yield pa.RecordBatch.from_arrays(columns, ["topic", "key", "value", "headers"])
