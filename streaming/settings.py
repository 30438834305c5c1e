"""Every Spark and Kafka setting that matters, with the reason beside it; `[spark]` in hilcast.toml overrides any.

The figures beside them are medians of a batch on 2 cores.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from infra.kafka.dialects import java
from infra.secret_files import write_secret
from state.config import Config
from state.limits import OUTPUT_BYTES_MAX
from streaming import code_archive
from streaming.dying import DRIVER_VARIABLE
from streaming.host_index import FOLDER_VARIABLE

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set where `spark-submit` has started the driver, and its JVM before it."""
SUBMIT_ARGUMENTS, SHELL = "PYSPARK_SUBMIT_ARGS", "pyspark-shell"

WARM_VARIABLE = "HILCAST_WARM"
"""Holds the configuration (what deployments have in common of it) for which workers prepare before they begin."""
WARM_BYTES_MAX = 100_000
"""Linux takes no longer variable than 128 KiB; workers of a larger configuration warm as they work."""
QUERY_VARIABLE = "HILCAST_QUERY"
"""Names the query whose workers these are: each query has a daemon, and so workers, of its own."""
TRACEBACK_VARIABLE = "SPARK_SIMPLIFIED_TRACEBACK"
"""Spark sets it for workers that SQL uses, and not for those of other jobs, by which generations are built."""
OUTPUT = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"
"""The rows that the control query hands to its Kafka sink."""
ROUTED = f"{OUTPUT}, partition int"
"""Those of the route query, each with its lane; null: Kafka chooses."""
BESIDE_HEAP = "8g"
"""What a JVM may take beside its heap, where Arrow has what goes to Python and back; by default as much as the heap.

All states that a task touches go in one piece, which doubles as it grows: 2 GB were not enough for 1,000,000
subscriptions. It is memory only while it is used.
"""
CLASS_PATH = "spark.driver.extraClassPath"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
SPARK = {
    # 200 shuffle partitions, the default, cost 13 s a batch; frozen into the checkpoint at first start
    "spark.sql.shuffle.partitions": "{shuffle_partitions}",
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
    # the sink's producer, with all that it knows of topics, outlives an hour without events
    "spark.kafka.producer.cache.timeout": "1h",
    "spark.driver.memory": "2g",
    # writing the event log of every batch for ever would fill the heap
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # how soon an idle query looks again: at 10 ms it took a quarter of a core here and in Kafka, at 50 ms a tenth
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.redaction.regex": "(?i)secret|password|token|jaas|passphrase|credential",
}

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
DIRECTORY = {
    # where the checkpoint is a directory: the default file manager starts child processes for each log file, 92 ms
    # against 23 ms a batch. Elsewhere the default one counts: only that one renames on HDFS
    FILE_MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
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
    # the first copy to a topic waits for Kafka to tell of it, the longer the more topics are known (4 ms with 5,000):
    # what is known is kept for an hour, not 5 minutes. No longer: of a topic that is gone it would ask again and again
    "kafka.metadata.max.idle.ms": "3600000",
    "kafka.delivery.timeout.ms": "120000",
}

SOURCE = {
    "includeHeaders": "true",
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "kafka.fetch.max.wait.ms": "100",
    # a task holds so many records unpacked, each of up to 1 MB and more: 500, the default, of each of three tasks were
    # more than the heap
    "kafka.max.poll.records": "100",
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


def roomy(master: str) -> str:
    """A local master with one thread more than it names: the one that routing never takes (`routing_tasks`).

    >>> roomy("local[4]"), roomy("local"), roomy("local[2,3]"), roomy("spark://host:7077")
    ('local[5]', 'local[2]', 'local[3,3]', 'spark://host:7077')
    """
    found = re.fullmatch(r"local(?:\[(\d+|\*)(,\d+)?\])?", master)
    if found is None:
        return master
    threads = (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
    return f"local[{threads + 1}{found[2] or ''}]"


def routing_tasks(spark: SparkSession) -> int:
    """How many tasks of the route query may run at once: all but one of those that Spark has room for.

    A route task waits for the index that the control query writes. If such tasks had all the room, nobody would write
    it: after Redis was emptied everything would stand still for ever.
    """
    return max(1, spark.sparkContext.defaultParallelism - 1)


def executors(spark: SparkSession) -> int:
    """How many processes run tasks now: on a cluster those beside the driver."""
    known: int = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    return max(1, known - (not is_local(spark.sparkContext.master)))


def session(config: Config) -> SparkSession:
    """The Spark session of one deployment."""
    given = SparkConf(_jvm=open_jvm(config).jvm)
    submitted = SUBMITTED in os.environ
    # whoever submits says where it runs, and may say more; the deployment's own table has the last word
    master = str(given.get("spark.master")) if submitted else config.settings.master
    settings = spark_settings(config, master)
    if submitted:
        settings = {name: value for name, value in settings.items() if not given.contains(name)} | dict(config.spark)
    if not is_local(master):
        settings |= _shipped(settings.get("spark.archives") or str(given.get("spark.archives", "")))
    # workers must have the same packages; where executors have them elsewhere, PYSPARK_PYTHON says so
    if is_local(master) or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Spark tells workers apart by their environment. Were it another one, the first build of a generation would start a
    # daemon of its own: seconds of the processor, during which Spark gives no task of any query a worker
    spark.sparkContext.environment[TRACEBACK_VARIABLE] = "1"
    return spark


def spark_settings(config: Config, master: str) -> dict[str, str]:
    """Every setting of Spark for a deployment: ours, and over them those of its `[spark]`."""
    warm = {WARM_VARIABLE: config.shared.decode()} if len(config.shared) <= WARM_BYTES_MAX else {}
    told = {**warm, **({FOLDER_VARIABLE: config.settings.index_folder} if config.settings.index_folder else {})}
    os.environ.update(told)
    os.environ[DRIVER_VARIABLE] = str(os.getpid())
    settings = {
        name: value.format(shuffle_partitions=config.settings.shuffle_partitions) for name, value in SPARK.items()
    }
    settings |= {"spark.app.name": f"hilcast {config.deployment.name}", "spark.master": roomy(master)}
    jars = os.environ.get("HILCAST_SPARK_JARS")
    settings |= _connector(jars, config, master) if jars else {"spark.jars.packages": CONNECTOR}
    options = [f"-XX:MaxDirectMemorySize={BESIDE_HEAP}"]
    settings["spark.executor.extraJavaOptions"] = options[0]
    if archive := os.environ.get("HILCAST_SPARK_CLASSES"):  # the JVM starts in half the time
        options += [f'"-XX:SharedArchiveFile={archive}"', '"-Xlog:cds*=off"']
    settings["spark.driver.extraJavaOptions"] = " ".join(options)
    if is_local(master):
        settings |= LOCAL
    if not is_remote(config.deployment.checkpoint):
        settings |= DIRECTORY
    settings |= {f"spark.executorEnv.{name}": value for name, value in told.items()}
    return settings | dict(config.spark)


def _connector(jars: str, config: Config, master: str) -> dict[str, str]:
    """Where Spark finds what reads and writes Kafka: in the class path of the driver, and sent to executors.

    Why not sent to all: only what is in its class path can be in the archive of a JVM; 2,000 classes more would be
    read at each start.
    """
    alone = is_local(master) and SUBMITTED not in os.environ and CLASS_PATH not in config.spark
    return {CLASS_PATH: jars.replace(",", os.pathsep)} | ({} if alone else {"spark.jars": jars})


def is_remote(path: str) -> bool:
    """Whether a checkpoint lies outside the directories of this host.

    >>> [is_remote(path) for path in ("var/checkpoint", "/a:/b", "file:///a", "hdfs://h/a", "s3a://b/a")]
    [False, False, False, True, True]
    """
    return re.match(r"(?!file:)[A-Za-z][\w+.-]*:/", path) is not None


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master.startswith("local[") or master == "local"


def open_jvm(config: Config) -> JavaGateway:
    """The driver's JVM, started now unless it runs: no context yet.

    It reads its settings from a file that only its owner can read and that is gone once it runs. As arguments they
    would be seen by everybody who can list processes, secrets and all.
    """
    # the JVM itself asks a Python what data sources there are: the one that has our packages, not the first of the path
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if SparkContext._gateway is None and SUBMITTED not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "spark.properties")
            write_secret(path, properties(spark_settings(config, config.settings.master)).encode())
            given = os.environ.get(SUBMIT_ARGUMENTS)
            try:
                os.environ[SUBMIT_ARGUMENTS] = f"--load-spark-defaults --properties-file {path} {given or SHELL}"
                SparkContext._ensure_initialized()
            finally:
                os.environ.pop(SUBMIT_ARGUMENTS)
                os.environ.update({} if given is None else {SUBMIT_ARGUMENTS: given})
    SparkContext._ensure_initialized()
    return SparkContext._gateway


def properties(settings: Mapping[str, str]) -> str:
    r"""Settings as a file of Java properties.

    >>> properties({"spark.a": "1", "spark.b": " C:\\x\n=y"})
    'spark.a=1\nspark.b=\\u0020C:\\\\x\\u000a=y\n'
    """
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    plain = "".join(f"\\u{ord(c):04x}" if c < " " else "\\\\" if c == "\\" else c for c in value)
    return f"\\u0020{plain[1:]}" if plain.startswith(" ") else plain


def _shipped(archives: str) -> dict[str, str]:
    """Settings that bring our code to executors, beside the archives that there are."""
    folder = tempfile.mkdtemp(prefix="hilcast-code-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors that come later fetch it, too
    path = Path(folder, f"{code_archive.FOLDER}.tar.gz")
    code_archive.pack(path)
    ours = f"{path}#{code_archive.FOLDER}"
    return {
        "spark.archives": f"{archives},{ours}" if archives else ours,
        "spark.executorEnv.PYTHONPATH": code_archive.FOLDER,
    }
