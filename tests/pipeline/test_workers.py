from __future__ import annotations

import datetime

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.tables.workers import workers_of
from tests.pipeline.builders import DAY, SECOND, events_frame, message


def test_a_worker_is_told_by_its_first_and_last_lines(spark: SparkSession) -> None:
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
        "started": DAY,
        "last_seen": DAY + 9 * SECOND,
        "stopped": DAY + 9 * SECOND,
        "lines": 5,
        "missing": 3,
        "late_count": 2,
        "late_max_us": 300,
        "dt": datetime.date(2026, 3, 14),
    }


def test_a_worker_of_an_earlier_day_lacks_nothing_but_what_its_start_told(
    spark: SparkSession,
) -> None:
    events = events_frame(
        spark, message("task-started", 1, seq=100), message("task-started", 2, seq=101)
    )
    (worker,) = workers_of(events).collect()
    assert (worker["host"], worker["stopped"], worker["missing"]) == (None, None, 0)
    assert worker["started"] == DAY + SECOND
