"""Every Spark and Kafka setting that matters, with the reason beside it; `[spark]` in hilcast.toml overrides any.

The figures beside them are medians of a batch on 2 cores.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from infra.kafka.dialects import java
from state.config import Config
from state.limits import OUTPUT_BYTES_MAX
from streaming.dying import DRIVER_VARIABLE

WARM_VARIABLE = "HILCAST_WARM"
"""Holds the configuration (what deployments have in common of it) for which workers prepare before they begin."""
WARM_BYTES_MAX = 100_000
"""Linux takes no longer variable than 128 KiB; workers of a larger configuration warm as they work."""
QUERY_VARIABLE = "HILCAST_QUERY"
"""Names the query whose workers these are: each query has a daemon, and so workers, of its own."""
OUTPUT = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"
"""The rows that the control query hands to its Kafka sink."""
ROUTED = f"{OUTPUT}, partition int"
"""Those of the route query, each with its lane; null: Kafka chooses."""
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
SPARK = {
    # 200 shuffle partitions, the default, cost 13 s a batch; frozen into the checkpoint at first start
    "spark.sql.shuffle.partitions": "{shuffle_partitions}",
    # the default file manager starts child processes for each log file: 92 ms against 23 ms a batch (local paths)
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # state commit 98 ms -> 1 ms
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # a key's state is sent again with every Arrow batch of its rows: one batch must hold them all
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.sql.adaptive.enabled": "false",
    # no timeouts are used, so a batch without data has nothing to do
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # without fair pools a control batch starves routing: p99 10 s against 0.7 s
    "spark.scheduler.mode": "FAIR",
    # caches of the index live in the Python workers
    "spark.python.worker.reuse": "true",
    # workers are forked from a process that has imported everything and compiled the kernels
    "spark.python.daemon.module": "streaming.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.driver.memory": "2g",
    # writing the event log of every batch for ever would fill the heap
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.redaction.regex": "(?i)secret|password|token|jaas|passphrase|credential",
}

LOCAL = {
    # on one machine everything stays on loopback
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

SINK = {
    # one open batch per topic and partition must fit the buffer: wrong values cost 5x at 200 topics
    "kafka.batch.size": str(64 * 1024),
    "kafka.buffer.memory": str(256 * 1024 * 1024),
    "kafka.linger.ms": "5",
    "kafka.compression.type": "lz4",
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.max.request.size": str(OUTPUT_BYTES_MAX),
    # a deleted delivery topic must come to light before Spark's own patience ends
    "kafka.max.block.ms": "60000",
    "kafka.delivery.timeout.ms": "120000",
}

SOURCE = {
    "includeHeaders": "true",
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "kafka.fetch.max.wait.ms": "100",
}


def source_options(config: Config, *, lossy: bool = False) -> dict[str, str]:
    """Options of every Kafka source; `lossy`: it goes on where Kafka has deleted what it has not read."""
    given = {f"kafka.{name}": value for name, value in java(config).items()}
    # what a producer took back must not be routed, whatever else was set
    ours = {
        "failOnDataLoss": str(not lossy).lower(),
        "kafka.isolation.level": "read_committed",
        # groups under the prefix are what the job has rights on
        "groupIdPrefix": f"{config.deployment.prefix}.spark",
    }
    return SOURCE | given | ours


def sink_options(config: Config) -> dict[str, str]:
    """Options of every Kafka sink; the topic comes from the column, never from an option."""
    return SINK | {f"kafka.{name}": value for name, value in java(config).items()}


def session(config: Config) -> SparkSession:
    """The Spark session of one deployment."""
    is_local = config.settings.master.startswith("local")
    warm = {WARM_VARIABLE: config.shared.decode()} if len(config.shared) <= WARM_BYTES_MAX else {}
    os.environ.update(warm)
    os.environ[DRIVER_VARIABLE] = str(os.getpid())
    # workers must have the same packages; where executors have them elsewhere, PYSPARK_PYTHON says so
    if is_local or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(f"hilcast {config.deployment.name}").master(config.settings.master)
    settings = {
        name: value.format(shuffle_partitions=config.settings.shuffle_partitions) for name, value in SPARK.items()
    }
    jars = os.environ.get("HILCAST_SPARK_JARS")
    settings |= {"spark.jars": jars} if jars else {"spark.jars.packages": CONNECTOR}
    if is_local:
        settings |= LOCAL
    else:
        settings |= {f"spark.executorEnv.{name}": value for name, value in warm.items()}
    settings |= dict(config.spark)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
