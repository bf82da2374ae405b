"""Histograms of run times and waits."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.tables.bins import bin_of
from celery_sqs_heartbeat.pipeline.tables.durations import durations_of
from tests.pipeline.builders import DAY, SECOND, attempts_frame


def _attempt(task: str, **seconds: float) -> dict[str, Any]:
    at = {name: DAY + round(value * SECOND) for name, value in seconds.items()}
    row: dict[str, Any] = {"task": task, "vt": 30, **at}
    row.setdefault("last_event", max(at.values()))
    if "started" in at:
        row["wait_us"] = at["started"] - at["received"]
        if "finished" in at:
            row["run_us"] = at["finished"] - at["started"]
    return row


_ATTEMPTS = [
    _attempt("done", received=0, started=2, finished=12),
    _attempt("done", received=0, started=2, finished=12),
    {**_attempt("running", received=0, started=5), "ended_as": "running"},
    {**_attempt("queued", received=80), "ended_as": "running"},
    {**_attempt("cut off", received=0, started=5, last_event=25), "ended_as": "abandoned"},
    _attempt("released", received=0, finished=3),
    _attempt("instant", received=0, started=0, finished=0),
    {**_attempt("continued", received=0, started=5, last_event=25), "ended_as": "continued"},
    _attempt("end of data", received=0, started=1, finished=100),
]


@pytest.fixture(scope="module")
def histograms(spark: SparkSession) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    rows = durations_of(attempts_frame(spark, *_ATTEMPTS)).collect()
    assert {(row.queue, row.vt, str(row.dt)) for row in rows} == {("work", 30, "2026-03-14")}
    return {(row.task, row.measure): (row.bin, row.spans, row.censored, row.sum_us) for row in rows}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("done", {"wait": (2, 2, 0), "run": (10, 2, 0), "held": (12, 2, 0)}),
        ("running", {"wait": (5, 1, 0), "run": (95, 0, 1), "held": (100, 0, 1)}),
        ("queued", {"wait": (20, 0, 1), "held": (20, 0, 1)}),
        ("cut off", {"wait": (5, 1, 0), "run": (20, 0, 1), "held": (25, 0, 1)}),
        ("continued", {"wait": (5, 1, 0), "held": (25, 0, 1)}),
        ("released", {"held": (3, 1, 0)}),
        ("instant", {"wait": (0, 1, 0), "run": (0, 1, 0), "held": (0, 1, 0)}),
    ],
)
def test_a_task_that_ended_is_a_span_and_one_that_continued_is_censored(
    histograms: dict[tuple[str, str], tuple[int, int, int, int]],
    task: str,
    expected: dict[str, tuple[int, int, int]],
) -> None:
    found = {measure: row for (name, measure), row in histograms.items() if name == task}
    assert found == {
        measure: (bin_of(seconds * SECOND), spans, censored, seconds * SECOND * (spans + censored))
        for measure, (seconds, spans, censored) in expected.items()
    }
