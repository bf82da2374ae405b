"""Queries the tables for the report: sums and the worst rows, never events."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.message import GROUP_STOPPED
from celery_sqs_heartbeat.pipeline import schema
from celery_sqs_heartbeat.pipeline.report import group_queries, queries, run_queries, timeline
from celery_sqs_heartbeat.pipeline.report.queries import PARTS, SHOWN, Rows
from celery_sqs_heartbeat.pipeline.schema import Table
from celery_sqs_heartbeat.pipeline.storage.warehouse import Warehouse
from celery_sqs_heartbeat.pipeline.tables.quantiles import quantiles_of, tails_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The report's rows by section. Columns have the names of their tables."""

    days: Sequence[datetime.date]
    overview: Mapping[str, Any]
    ends: Rows
    receives: Rows
    workers: Mapping[str, Any]
    causes: Rows
    duplicates: Rows
    recoveries: Rows
    slowest: Rows
    grouped: Mapping[str, Any]
    stop_sums: Mapping[str, Any]
    stopped_groups: Rows
    group_stops: Rows
    tasks: Rows
    bins: Rows
    quantiles: Rows
    tails: Rows
    in_flight: Rows
    calls: Rows
    recommendations: Rows
    rejects: Rows


def collect(
    warehouse: Warehouse,
    first: datetime.date | None = None,
    last: datetime.date | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Findings:
    """Query the warehouse's tables of those days for the report.

    Args:
        progress: Is called with the step, in a few words.
    """

    def table(which: Table) -> DataFrame:
        return warehouse.read(which, first, last)

    attempts, seen = table(schema.ATTEMPTS), table(schema.WORKERS)
    duplicates, stops = table(schema.DUPLICATES), table(schema.GROUP_STOPS)
    # A message behind another one has no promised time: it returns when its group continues.
    recoveries = table(schema.RECOVERIES).where(~F.col("cause").eqNullSafe(GROUP_STOPPED))
    durations = table(schema.DURATIONS)
    progress("querying the tables")
    # While one query is planned, another one uses the other core.
    with ThreadPoolExecutor(os.cpu_count()) as threads:

        def rows(frame: DataFrame) -> Future[Rows]:
            return threads.submit(_rows, frame)

        tasks = rows(run_queries.tasks(durations))
        overview, ends = rows(queries.overview(attempts)), rows(queries.ends(attempts))
        receives = rows(queries.receives(attempts, first))
        workers = rows(queries.worker_sums(seen, first))
        days = threads.submit(queries.days, seen)
        in_flight = threads.submit(timeline.points, table(schema.IN_FLIGHT))
        causes = rows(queries.causes(duplicates))
        pairs = rows(_top(duplicates, F.desc("overlap_us"), "second_started", "second_rc"))
        recovered = rows(queries.recovery_sums(recoveries))
        slowest = rows(_top(recoveries, F.desc_nulls_last("excess_us"), "failed", "rc"))
        grouped = rows(group_queries.grouped(attempts))
        stop_sums = rows(group_queries.stop_sums(stops))
        stopped_groups = rows(group_queries.stopped_groups(stops))
        group_stops = rows(_top(stops, F.desc("seconds"), "stopped_at", "grp"))
        calls = rows(queries.calls(table(schema.CALLS)))
        recommendations = rows(queries.latest(table(schema.RECOMMENDATIONS)))
        rejects = rows(queries.rejects(table(schema.REJECTS)))
        shown = run_queries.of(durations, tasks.result())
        bins = rows(run_queries.bins(shown))
        quantiles = rows(quantiles_of(shown, parts=PARTS))
        tails = rows(tails_of(shown))
    return Findings(
        days=days.result(),
        overview=overview.result()[0],
        ends=ends.result(),
        receives=receives.result(),
        workers=workers.result()[0],
        causes=causes.result(),
        duplicates=pairs.result(),
        recoveries=recovered.result(),
        slowest=slowest.result(),
        grouped=grouped.result()[0],
        stop_sums=stop_sums.result()[0],
        stopped_groups=stopped_groups.result(),
        group_stops=group_stops.result(),
        tasks=tasks.result(),
        bins=bins.result(),
        quantiles=quantiles.result(),
        tails=tails.result(),
        in_flight=in_flight.result(),
        calls=calls.result(),
        recommendations=recommendations.result(),
        rejects=rejects.result(),
    )


def _rows(frame: DataFrame) -> Rows:
    return [row.asDict() for row in frame.collect()]


def _top(frame: DataFrame, *order: Column | str) -> DataFrame:
    """Return the first rows. The message decides the order of otherwise equal rows."""
    return frame.orderBy(*order, "queue", "msg").limit(SHOWN)
