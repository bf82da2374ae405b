"""Queries the tables for the report: sums and the worst rows, never events."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celery_sqs_heartbeat.leases.group_order import GROUP_STOPPED
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
        progress: Is called with the name of each table.
    """

    def table(which: Table) -> DataFrame:
        progress(which.name.replace("_", " "))
        return warehouse.read(which, first, last)

    attempts = table(schema.ATTEMPTS)
    overview, ends = _one(queries.overview(attempts)), _rows(queries.ends(attempts))
    seen = table(schema.WORKERS)
    days, workers = queries.days(seen), _one(queries.worker_sums(seen, first))
    duplicates = table(schema.DUPLICATES)
    causes = _rows(queries.causes(duplicates))
    # A message behind another one has no promised time: it returns when its group continues.
    recoveries = table(schema.RECOVERIES).where(~F.col("cause").eqNullSafe(GROUP_STOPPED))
    stops = table(schema.GROUP_STOPS)
    durations = table(schema.DURATIONS)
    tasks = _rows(run_queries.tasks(durations))
    shown = run_queries.of(durations, tasks)
    return Findings(
        days=days,
        overview=overview,
        ends=ends,
        workers=workers,
        causes=causes,
        duplicates=_top(duplicates, F.desc("overlap_us"), "second_started", "second_rc"),
        recoveries=_rows(queries.recovery_sums(recoveries)),
        slowest=_top(recoveries, F.desc_nulls_last("excess_us"), "failed", "rc"),
        grouped=_one(group_queries.grouped(attempts)),
        stop_sums=_one(group_queries.stop_sums(stops)),
        stopped_groups=_rows(group_queries.stopped_groups(stops)),
        group_stops=_top(stops, F.desc("seconds"), "stopped_at", "grp"),
        tasks=tasks,
        bins=_rows(run_queries.bins(shown)),
        quantiles=_rows(quantiles_of(shown, parts=PARTS)),
        tails=_rows(tails_of(shown)),
        in_flight=timeline.points(table(schema.IN_FLIGHT)),
        calls=_rows(queries.calls(table(schema.CALLS))),
        recommendations=_rows(queries.latest(table(schema.RECOMMENDATIONS))),
        rejects=_rows(queries.rejects(table(schema.REJECTS))),
    )


def _rows(frame: DataFrame) -> Rows:
    return [row.asDict() for row in frame.collect()]


def _top(frame: DataFrame, *order: Column | str) -> Rows:
    """Return the first rows. The message decides the order of otherwise equal rows."""
    return _rows(frame.orderBy(*order, "queue", "msg").limit(SHOWN))


def _one(frame: DataFrame) -> Mapping[str, Any]:
    return _rows(frame)[0]
