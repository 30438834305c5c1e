"""The control query: inboxes and the control topic into the stateful core, and out again in one pass.

    subscriptions, advertisements, control ──key──> applyInPandasWithState(handle) ──> one Kafka sink, by topic column
                                                          └──> Redis, before the batch ends

Each record goes to the key that owns it; what becomes of a key's records is `key_step.py`, and in the end
`state.control.handle.handle`. Nothing here decides anything.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from state.config import Config
from state.keys import UNROUTABLE
from state.limits import CLIPPED_BYTES, HEADER_OVERHEAD_BYTES, INBOX_BYTES_MAX, OUTPUT_BYTES_MAX
from state.messages import TRUNCATED
from state.names import NAME, TYPE_NAME
from streaming.boot import Boot
from streaming.inbox_source import NAME as INBOXES
from streaming.inbox_source import source_of
from streaming.key_step import FIELDS, RECORD, STATE, TOPIC_ID, step
from streaming.settings import OUTPUT, sink_options, source_options

_NAME, _TYPE_NAME = NAME.pattern, TYPE_NAME.pattern


def start(
    spark: SparkSession,
    boot: Boot,
    starting_offsets: str,
    checkpoint: str,
    name: str = "control",
    *,
    lossy: bool = False,
) -> StreamingQuery:
    """Start the control query; `lossy`: it goes on where Kafka has deleted what it has not read."""
    config = boot.config
    outputs = (
        keyed(clipped(_records(spark, config, starting_offsets, lossy=lossy), config), config)
        .groupBy("state_key")
        .applyInPandasWithState(
            partial(step, boot),
            outputStructType=OUTPUT,
            stateStructType=STATE,
            outputMode="update",
            timeoutConf=GroupStateTimeout.NoTimeout,
        )
    )
    return (
        outputs.writeStream.format("kafka")
        .options(**sink_options(config))
        .option("checkpointLocation", checkpoint)
        .queryName(name)
        .outputMode("update")
        .trigger(processingTime=f"{config.settings.trigger_ms} milliseconds")
        .start()
    )


def _records(spark: SparkSession, config: Config, starting_offsets: str, *, lossy: bool) -> DataFrame:
    """The inboxes and the control topic: by Spark's own source, or where clients have their own by ours."""
    topics = config.topics
    if config.security.own:
        spark.dataSource.register(source_of(config, starting_offsets, lossy=lossy))
        return spark.readStream.format(INBOXES).load()
    return (
        spark.readStream.format("kafka")
        .options(**source_options(config, lossy=lossy))
        .option("subscribe", ",".join([topics.subscriptions, topics.advertisements, topics.control]))
        .option("startingOffsets", starting_offsets)
        # Spark counts records, not bytes; `clipped` sees to it that none is large
        .option("maxOffsetsPerTrigger", config.settings.control_records_per_batch)
        .load()
        .withColumn("timestamp_ms", F.unix_millis("timestamp"))
    )


def clipped(records: DataFrame, config: Config) -> DataFrame:
    """Cut what is larger than any record that is taken, as `state.fitting.clipped` does, before it is shuffled."""
    headers = F.coalesce("headers", F.array())
    of_headers = F.aggregate(
        headers, F.lit(0), lambda total, h: total + _size(h["key"]) + _size(h["value"]) + HEADER_OVERHEAD_BYTES
    )
    limit = F.when(F.col("topic") == config.topics.control, OUTPUT_BYTES_MAX).otherwise(INBOX_BYTES_MAX)
    large = _size(F.col("key")) + _size(F.col("value")) + of_headers > limit
    long = {"value": _size(F.col("value")) > CLIPPED_BYTES, "headers": F.size(headers) > 0}
    long["key"] = _size(F.col("key")) > CLIPPED_BYTES
    said = F.concat_ws(",", *(F.when(was, F.lit(name)) for name, was in long.items())).cast("binary")
    mark = F.array(F.struct(F.lit(TRUNCATED).alias("key"), said.alias("value")))
    left = {name: F.substring(name, 1, CLIPPED_BYTES) for name in ("key", "value")} | {"headers": mark}
    return records.withColumns({name: F.when(large, some).otherwise(F.col(name)) for name, some in left.items()})


def _size(column: Column) -> Column:
    """Bytes of a text or of bytes; of null none."""
    return F.coalesce(F.octet_length(column), F.lit(0))


def keyed(records: DataFrame, config: Config) -> DataFrame:
    """Give each record the key that owns it, and keep those that this deployment answers.

    What names no valid broker belongs to the deployment that hosts the overlay's first broker.
    """
    hosts = list(config.deployment.hosts)
    brokers, types = list(config.overlay.brokers), list(config.types)
    first = config.overlay.brokers[0] in hosts
    text = F.coalesce(F.col("key").cast("string"), F.lit(""))
    inbox = f"^({_NAME})/({_TYPE_NAME})/({_NAME})\\z"
    internal = f"^({_NAME})/({_TYPE_NAME})/((?:home|cube|wide):[0-9]{{1,9}})\\z"
    broker, type_name = F.regexp_extract(text, inbox, 1), F.regexp_extract(text, inbox, 2)
    id = F.regexp_extract(text, inbox, 3)
    # a client's own inbox is in its own namespace, all of which has one home (`keys.home_shard`)
    owner = F.substring_index(F.col("topic"), ".", -1) if config.security.own else id
    home = F.concat(
        broker,
        F.lit("/"),
        type_name,
        F.lit("/home:"),
        F.crc32(owner.cast("binary")) % config.settings.home_shards,
    )
    is_control = F.col("topic") == config.topics.control
    target = F.regexp_extract(text, internal, 1)
    own_control = target.isin(hosts) & F.regexp_extract(text, internal, 2).isin(types)
    own_inbox = broker.isin(hosts) | (F.lit(first) & ~broker.isin(brokers))
    routable = broker.isin(hosts) & type_name.isin(types)
    return records.where(F.when(is_control, own_control).otherwise(own_inbox)).select(
        F.when(is_control, text).when(routable, home).otherwise(F.lit(UNROUTABLE)).alias("state_key"),
        _packed(own=config.security.own).alias(RECORD),
    )


def _packed(*, own: bool) -> Column:
    """A record in one column, in the order of `key_step.FIELDS`, then names and values of its headers.

    PySpark makes a Series of each column for each key: nine of them cost 1.0 ms, one and the key 0.2 ms.
    """
    texts = [F.col(name).cast("string") for name in FIELDS if name not in ("key", "value", TOPIC_ID)]
    id = F.col(TOPIC_ID) if own else F.lit(None).cast("string")
    fields = [*(text.cast("binary") for text in texts), F.col("key"), F.col("value"), id.cast("binary")]
    headers = F.coalesce("headers", F.array())
    names = F.transform(headers, lambda h: h["key"].cast("binary"))
    return F.concat(F.array(*fields), names, F.transform(headers, lambda h: h["value"]))
