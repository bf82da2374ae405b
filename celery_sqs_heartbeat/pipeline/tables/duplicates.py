"""Duplicates, as `causes` defines them, and their causes.

Only messages that were received more than once matter. They are few, and the others are kept out of
every shuffle. Each new execution is paired with the attempt that ran the task before it, both by
their `task-started`. A receive that is in no journal is no execution: whether a task ran in it is
not known. SQS's receive count orders them, so wrong clocks do not matter. An interrupted execution
(its worker died, or released the message while it ran) has no end in the journal, so the overlap of
its pair is not known.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celery_sqs_heartbeat.pipeline.schema import DUPLICATES, PARTITION
from celery_sqs_heartbeat.pipeline.tables.cause_rules import (
    DELETE_REFUSED,
    verdict,
    was_released_while_running,
)
from celery_sqs_heartbeat.pipeline.tables.evidence import with_evidence
from celery_sqs_heartbeat.pipeline.tables.shaping import day_of, frame_of, having, shape
from celery_sqs_heartbeat.pipeline.tables.workers import data_end

_OF_FIRST = (
    "wid", "rc", "dlv", "received", "started", "finished", "ended", "ended_as", "cause", "vt",
    "last_event",
)  # fmt: skip
#: Columns of the pair, and of the second execution.
_OF_PAIR = (
    "queue", "msg", "task", "task_id", "wid", "rc", "started", "finished", "ended_as",
    "first", "next_received", "overlap_us", "both_succeeded", PARTITION,
)  # fmt: skip


def duplicates_of(
    attempts: DataFrame,
    events: DataFrame,
    workers: DataFrame,
    rejects: DataFrame,
) -> DataFrame:
    """Return the pairs with their causes.

    Args:
        rejects: Rejects of the segments that the events are from.
    """
    again = having(attempts, "msg", attempts.where(F.col("rc") > 1))
    # Read several times below. They are few.
    pairs = _pairs(_in_order(again), workers).persist()
    if pairs.isEmpty():
        return frame_of(pairs.sparkSession, [], DUPLICATES.ddl)
    known = with_evidence(pairs, events, workers, rejects)
    judged = known.withColumn("judged", verdict())
    return shape(judged.withColumns(_columns_of_verdict()), DUPLICATES)


def _columns_of_verdict() -> dict[str, Column]:
    """Return the columns of the cause, of the first execution and of the second."""
    columns = {name: F.col("judged")[name] for name in ("cause", "evidence")}
    for name in ("wid", "rc", "started", "finished", "ended_as"):
        columns[f"first_{name}"] = F.col(f"first.{name}")
        columns[f"second_{name}"] = F.col(name)
    return columns


def _in_order(attempts: DataFrame) -> DataFrame:
    """Add the receive after each attempt, and the attempt that ran the task before it."""
    receives = Window.partitionBy("queue", "msg").orderBy("rc", "received", "dlv")
    before = receives.rowsBetween(Window.unboundedPreceding, -1)
    one_execution = Window.partitionBy("queue", "msg", "wid", "started")
    finished = F.when(F.col("started").isNotNull(), F.max("finished").over(one_execution))
    with_next = attempts.withColumn("finished", F.coalesce(finished, F.col("finished"))).withColumn(
        "next_received", F.lead("received").over(receives)
    )
    ran = F.when(F.col("started").isNotNull(), F.struct(*_OF_FIRST, "next_received"))
    return with_next.withColumn("first", F.last(ran, ignorenulls=True).over(before))


def _pairs(attempts: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the new executions that are part of a duplicate, with the earlier attempt."""
    is_new = F.col("started").isNotNull() & (
        F.coalesce(F.col("received_as") == "new", F.lit(True))
        | (F.col("started") >= F.col("received"))
    )
    overlap = F.least(_end("first."), _end("")) - F.greatest("first.started", "started")
    is_cut_off = was_released_while_running("first") | (
        (F.col("first.ended_as") == "abandoned") & F.col("first.finished").isNull()
    )
    has_succeeded = _succeeded("first.") & ~is_cut_off
    candidates = attempts.where(is_new & F.col("first").isNotNull())
    return (
        candidates.crossJoin(F.broadcast(data_end(workers)))
        .withColumn("overlap_us", F.when(~is_cut_off, F.greatest(overlap, F.lit(0))))
        .withColumn("both_succeeded", has_succeeded & _succeeded(""))
        .where(is_cut_off | (F.col("overlap_us") > 0) | has_succeeded)
        .withColumn("next_received", F.col("first.next_received"))
        .withColumn(PARTITION, day_of(F.col("started")))
        .select(*_OF_PAIR)
    )


def _end(prefix: str) -> Column:
    """Return when an execution ended; for an interrupted one, its last event."""
    is_over = F.col(f"{prefix}ended_as") == "abandoned"
    last = F.when(is_over, F.col(f"{prefix}last_event")).otherwise(F.col("data_end"))
    return F.coalesce(F.col(f"{prefix}finished"), last)


def _succeeded(prefix: str) -> Column:
    cause = F.col(f"{prefix}cause")
    is_back = F.coalesce(cause != DELETE_REFUSED, F.lit(False)) & F.col(f"{prefix}ended_as").isin(
        "released", "lapsed"
    )
    return F.col(f"{prefix}finished").isNotNull() & ~is_back
