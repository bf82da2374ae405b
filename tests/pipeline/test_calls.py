"""What the lines show of workers and their calls to SQS."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.report.queries import ask
from celery_sqs_heartbeat.pipeline.tables.events import calls_of, with_reported, workers_of
from tests.pipeline.builders import DAY, SECOND, events_frame, message, rows_of, workers_frame
from tests.support.golden import golden

pytestmark = pytest.mark.thorough

NEXT_DAY = DAY + 24 * 3600 * SECOND
TODAY, TOMORROW = datetime.date(2026, 3, 14), datetime.date(2026, 3, 15)


def answers(ev: str, batch: int, **fields: Any) -> list[dict[str, Any]]:
    """Return the events of a call with so many entries, one for each entry."""
    return [message(ev, 1, call=1, batch=batch, lat_us=1000, **fields) for _ in range(batch)]


def received(queue: str, asked: float, *waits: float, **fields: Any) -> list[dict[str, Any]]:
    """Return what one receive brought, each message so long after it was asked for, in seconds.

    The times of lines are rounded separately, so some are off by a microsecond.
    """
    slacks = [round((30 - wait) * 1e6) + number % 2 for number, wait in enumerate(waits)]
    return [
        message("message-received", asked + wait, queue=queue, vt=30, slack_us=slack, **fields)
        for wait, slack in zip(waits, slacks, strict=True)
    ]


EVENTS = [
    *answers("lease-extended", 10),
    *answers("lease-extended", 7),
    *answers("lease-lost", 3, err="lost"),
    *answers("lease-capped", 1, err="capped"),
    *answers("extension-failed", 6, err="throttled"),
    *answers("message-released", 2),
    *answers("message-deleted", 7, queue="orders.fifo"),
    *answers("delete-failed", 3, queue="orders.fifo", err="failed"),
    *answers("lease-extended", 4, wid="w9"),
    # Without a call.
    message("lease-lost", 2),
    message("message-lapsing", 2),
    message("permission-denied", 2, call=9, act="extend"),
    message("task-started", 4),
    *(message("message-received", 3) for _ in range(25)),
    *received("polled", 10, 0.5, 0.5, 0.6),
    *received("polled", 11, 4.0),
    *received("polled", 15, 0.1),
    # Of another worker, asked for at the very moment of its first.
    *received("polled", 10, 0.1, wid="w2"),
    *received("polled full", 20, *[0.1] * 10),
    *received("polled full", 21, *[0.2] * 2),
]


def test_each_call_counts_once_and_has_its_price(spark: SparkSession) -> None:
    """Lines that do not say when they were asked for are the fewest calls for so many messages."""
    versions = {"celery-sqs-heartbeat": "1.2", "celery": "5.6"}
    workers = workers_frame(spark, {"wid": "w1", "versions": versions})
    lines = [
        f"{row.queue}, version {row.version}: {row.kind}: {row.calls:g} calls with {row.entries} "
        f"entries, {row.failed} failed: {row.cost_usd * 1e6:.4g} µUSD, saved "
        f"{row.saved_usd * 1e6:.4g}\n"
        for row in calls_of(events_frame(spark, *EVENTS), workers).collect()
    ]
    golden("calls.txt", "".join(sorted(lines)))


def test_a_worker_has_a_row_for_each_day_with_that_day_s_lines(spark: SparkSession) -> None:
    events = events_frame(
        spark,
        {"ev": "worker-started", "ts": DAY, "host": "h1", "settings": {"threshold": "20"}},
        {"ev": "keeper-late", "ts": DAY + 2 * SECOND, "late_us": 300, "seq": 6},
        {"ev": "keeper-late", "ts": DAY + 3 * SECOND, "late_us": 200, "seq": 7},
        {"ev": "worker-stopped", "ts": NEXT_DAY, "seq": 8},
    )
    days = workers_of(events)
    columns = ("dt", "host", "first_seq", "last_seq", "lines", "late_count", "late_max_us")
    assert rows_of(days, *columns, "first_seen", "last_seen", "stopped") == {
        (TODAY, "h1", 1, 7, 3, 2, 300, DAY, DAY + 3 * SECOND, None),
        (TOMORROW, None, 8, 8, 1, 0, None, NEXT_DAY, NEXT_DAY, NEXT_DAY),
    }
    reported = with_reported(days.where(f"dt = '{TOMORROW}'"), days)
    assert rows_of(reported, "host", "first_seq") == {("h1", 8)}


def test_lines_are_missing_within_days_and_between_them_and_before_only_where_all_was_read(
    spark: SparkSession,
) -> None:
    stopped = {"first_seen": NEXT_DAY, "stopped": NEXT_DAY}
    days = workers_frame(
        spark,
        {"first_seq": 100, "last_seq": 110, "lines": 9},
        {**stopped, "first_seq": 114, "last_seq": 120, "lines": 7},
        {"wid": "w2", "first_seq": 1, "last_seq": 5, "lines": 5, "late_count": 2},
    )
    counted = {"starts": 2, "stopped": 1, "missing": 5, "late_count": 2}
    for first, before in ((None, 99), (TODAY - datetime.timedelta(1), 99), (TODAY, None)):
        assert ask("workers", {"workers": days}, first) == [{**counted, "before": before}]
