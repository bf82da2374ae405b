"""What calls to SQS were made, and what they cost."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.core.calls import MAX_BATCH_ENTRIES
from celery_sqs_heartbeat.journal.events import CALLED, RECEIVED
from celery_sqs_heartbeat.pipeline.prices import price_column
from celery_sqs_heartbeat.pipeline.schema import CALLS, PARTITION
from celery_sqs_heartbeat.pipeline.tables.shaping import shape

PACKAGE = "celery-sqs-heartbeat"

_RELEASES = ("message-released", "message-lapsing")
_DELETES = ("message-deleted", "delete-failed", "delete-abandoned")
#: The parts of a call that are counted: a whole number of them is an entry's share of a
#: call of 1 to 10 entries, so that the sum is exact in any order.
CALL_PARTS = 2520


def entry_parts() -> Column:
    """Return an entry's share of its call, in CALL_PARTS."""
    return (F.lit(CALL_PARTS) / F.greatest(F.col("batch"), F.lit(1))).cast("bigint")


def is_entry() -> Column:
    """Return whether an event is what SQS answered to an entry of a call."""
    return F.col("ev").isin(*sorted(CALLED)) & F.col("batch").isNotNull()


def calls_of(events: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the calls by day, queue, version and kind.

    An entry is the part of a call that it shares with the others of its batch, so that
    each call counts once. Messages received count a tenth: no call brings more than ten.
    """
    entries = events.where(is_entry() | F.col("ev").isin(*RECEIVED))
    by_worker = entries.groupBy(PARTITION, "queue", "wid", _kind().alias("kind")).agg(
        F.sum(F.when(is_entry(), entry_parts()).otherwise(CALL_PARTS // MAX_BATCH_ENTRIES)).alias(
            "parts"
        ),
        F.count("*").alias("entries"),
        F.count("err").alias("failed"),
    )
    by_version = (
        by_worker.join(F.broadcast(_versions_of(workers)), "wid", "left")
        .groupBy(PARTITION, "queue", "version", "kind")
        .agg(*(F.sum(name).alias(name) for name in ("parts", "entries", "failed")))
        .withColumn("calls", F.col("parts") / F.lit(CALL_PARTS))
    )
    price = price_column(F.col("queue"))
    saved = F.when(F.col("kind") == "receive", 0).otherwise(F.col("entries") - F.col("calls"))
    priced = by_version.withColumns(
        {"cost_usd": F.col("calls") * price, "saved_usd": saved * price}
    )
    return shape(priced, CALLS)


def _versions_of(workers: DataFrame) -> DataFrame:
    return workers.groupBy("wid").agg(F.max(F.col("versions")[PACKAGE]).alias("version"))


def _kind() -> Column:
    return (
        F.when(F.col("ev").isin(*RECEIVED), "receive")
        .when(F.col("ev").isin(*_RELEASES), "release")
        .when(F.col("ev").isin(*_DELETES), "delete")
        .otherwise("extend")
    )
