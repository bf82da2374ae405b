"""The calls to SQS, and their price."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.journal.fields import CALLED, RECEIVED
from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.pipeline.schema import CALLS, PARTITION
from celery_sqs_heartbeat.pipeline.tables.shaping import shape, us_of

PACKAGE = "celery-sqs-heartbeat"
#: A request to a standard queue: $0.40 per million, up to 100 billion a month, in us-east-1
#: (list price of Amazon SQS). The free first million of each month is ignored.
_STANDARD_USD = 0.40 / 1_000_000
#: A request to a FIFO queue, likewise.
_FIFO_USD = 0.50 / 1_000_000
#: The end of a FIFO queue's name.
_FIFO_SUFFIX = ".fifo"

_RELEASES = ("message-released", "message-lapsing")
_DELETES = ("message-deleted", "delete-failed", "delete-abandoned")
#: Calls are counted in this many parts. An entry's share of a call of 1 to 10 entries is a whole
#: number of parts, so the sum is exact in any order.
CALL_PARTS = 2520
#: Messages that were requested within this time, in microseconds, belong to one receive: each line
#: rounds the same moment on its own. A worker's next receive comes after the answer.
_ONE_RECEIVE_US = 10


def entry_parts() -> Column:
    """Return an entry's share of its call, in CALL_PARTS."""
    return (F.lit(CALL_PARTS) / F.greatest(F.col("batch"), F.lit(1))).cast("bigint")


def is_entry() -> Column:
    """Return whether an event is SQS's answer to an entry of a call."""
    return F.col("ev").isin(*CALLED) & F.col("batch").isNotNull()


def calls_of(events: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the calls by day, queue, version and kind.

    An entry counts as its share of its batch, so each call counts once.
    """
    entries = events.where(is_entry()).withColumns({"kind": _kind(), "parts": entry_parts()})
    by_worker = _by_worker(entries).unionByName(_by_worker(_receives(events)))
    by_version = (
        by_worker.join(F.broadcast(_versions_of(workers)), "wid", "left")
        .groupBy(PARTITION, "queue", "version", "kind")
        .agg(*(F.sum(name).alias(name) for name in ("parts", "entries", "failed")))
        .withColumn("calls", F.col("parts") / F.lit(CALL_PARTS))
    )
    price = _price_of(F.col("queue"))
    saved = F.when(F.col("kind") == "receive", 0).otherwise(F.col("entries") - F.col("calls"))
    priced = by_version.withColumns(
        {"cost_usd": F.col("calls") * price, "saved_usd": saved * price}
    )
    return shape(priced, CALLS)


def _receives(events: DataFrame) -> DataFrame:
    """Return the received messages. The first one of each call has all of the call's parts.

    A lease counts from the moment when its receive was requested, which identifies the call. If a
    line does not have it, the message counts as a tenth of a call: no call returns more than ten.
    """
    asked = F.col("mono") + F.col("slack_us") - us_of(F.col("vt"))
    in_order = Window.partitionBy(PARTITION, "queue", "wid").orderBy("asked")
    since_last = F.col("asked") - F.lag("asked").over(in_order)
    return (
        events.where(F.col("ev").isin(*RECEIVED))
        .select(PARTITION, "queue", "wid", "err", asked.alias("asked"))
        .withColumn("is_same", F.coalesce(since_last <= _ONE_RECEIVE_US, F.lit(False)))
        .withColumn("kind", F.lit("receive"))
        .withColumn(
            "parts",
            F.when(F.col("asked").isNull(), CALL_PARTS // SQS.most_entries)
            .when(F.col("is_same"), 0)
            .otherwise(CALL_PARTS),
        )
    )


def _by_worker(entries: DataFrame) -> DataFrame:
    return entries.groupBy(PARTITION, "queue", "wid", "kind").agg(
        F.sum("parts").alias("parts"),
        F.count("*").alias("entries"),
        F.count("err").alias("failed"),
    )


def _versions_of(workers: DataFrame) -> DataFrame:
    return workers.groupBy("wid").agg(F.max(F.col("versions")[PACKAGE]).alias("version"))


def _kind() -> Column:
    return (
        F.when(F.col("ev").isin(*_RELEASES), "release")
        .when(F.col("ev").isin(*_DELETES), "delete")
        .otherwise("extend")
    )


def _price_of(queue: Column) -> Column:
    """Return the price of a request to each queue of a column."""
    return F.when(queue.endswith(_FIFO_SUFFIX), F.lit(_FIFO_USD)).otherwise(F.lit(_STANDARD_USD))
