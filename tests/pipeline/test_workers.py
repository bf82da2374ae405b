from __future__ import annotations

import datetime

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.report.queries import worker_sums
from celery_sqs_heartbeat.pipeline.tables.workers import with_reported, workers_of
from tests.pipeline.builders import DAY, SECOND, events_frame, message, rows_of, workers_frame

pytestmark = pytest.mark.thorough

NEXT_DAY = DAY + 24 * 3600 * SECOND
TODAY, TOMORROW = datetime.date(2026, 3, 14), datetime.date(2026, 3, 15)
YESTERDAY = datetime.date(2026, 3, 13)


def test_a_worker_is_known_by_its_first_and_last_lines_of_the_day(spark: SparkSession) -> None:
    started = {
        "ev": "worker-started",
        "ts": DAY,
        "host": "h1",
        "pid": 7,
        "node": "celery@h1",
        "pool": "prefork",
        "concurrency": 4,
        "settings": {"threshold": "20"},
        "versions": {"celery": "5.6"},
    }
    events = events_frame(
        spark,
        started,
        message("task-started", 1),
        {"ev": "keeper-late", "ts": DAY + 2 * SECOND, "late_us": 300, "seq": 6},
        {"ev": "keeper-late", "ts": DAY + 3 * SECOND, "late_us": 200, "seq": 7},
        {"ev": "worker-stopped", "ts": DAY + 9 * SECOND, "seq": 8},
    )
    (worker,) = workers_of(events).collect()
    assert worker.asDict() == {
        **{name: value for name, value in started.items() if name not in ("ev", "ts")},
        "wid": "w1",
        "first_seen": DAY,
        "last_seen": DAY + 9 * SECOND,
        "stopped": DAY + 9 * SECOND,
        "lines": 5,
        "first_seq": 1,
        "last_seq": 8,
        "late_count": 2,
        "late_max_us": 300,
        "dt": TODAY,
    }


def test_each_day_of_a_worker_has_a_row_of_that_day_alone(spark: SparkSession) -> None:
    events = events_frame(
        spark,
        {"ev": "worker-started", "ts": DAY, "host": "h1"},
        {"ev": "worker-stopped", "ts": NEXT_DAY, "seq": 4},
    )
    assert rows_of(workers_of(events), "dt", "host", "first_seq", "last_seq", "stopped") == {
        (TODAY, "h1", 1, 1, None),
        (TOMORROW, None, 4, 4, NEXT_DAY),
    }


def test_what_a_worker_reported_at_its_start_is_known_on_later_days(spark: SparkSession) -> None:
    days = workers_frame(
        spark,
        {"host": "h1", "settings": {"threshold": "20"}},
        {"first_seen": NEXT_DAY, "last_seen": NEXT_DAY},
        {"wid": "w2", "first_seen": NEXT_DAY},
    )
    told = with_reported(days.where(f"dt = '{TOMORROW}'"), days)
    assert {(row.wid, row.host, str(row.settings), row.last_seen) for row in told.collect()} == {
        ("w1", "h1", "{'threshold': '20'}", NEXT_DAY),
        ("w2", None, "None", None),
    }


def test_lines_are_missing_within_days_and_between_them_and_before_only_where_all_was_read(
    spark: SparkSession,
) -> None:
    days = workers_frame(
        spark,
        {"first_seq": 100, "last_seq": 110, "lines": 9},
        {
            "first_seen": NEXT_DAY,
            "first_seq": 114,
            "last_seq": 120,
            "lines": 7,
            "stopped": NEXT_DAY,
        },
        {"wid": "w2", "first_seq": 1, "last_seq": 5, "lines": 5, "late_count": 2},
    )
    counted = {"starts": 2, "stopped": 1, "missing": 5, "late_count": 2}
    for first, before in ((None, 99), (YESTERDAY, 99), (TODAY, None)):
        (sums,) = worker_sums(days, first).collect()
        assert sums.asDict() == {**counted, "before": before}
