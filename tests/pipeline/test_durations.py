"""How long messages took, and how many were in flight at once.

`test_referee` compares the messages in flight, and the slots, with another implementation.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.tables.durations import (
    Histogram,
    bin_of,
    durations_of,
    in_flight_of,
    middle_of,
)
from tests.pipeline.builders import DAY, MINUTE, SECOND, attempts_frame, workers_frame


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


@pytest.mark.thorough
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


@pytest.mark.parametrize(
    ("spans", "censored", "median", "longest"),
    [
        ([1, 2, 3], [], 2, 3),
        # Those that have not ended count among those that reached their bin.
        ([1, 2, 3], [2.5], 2, 3),
        ([1, 2], [30, 40], 2, None),
        ([1], [30, 40], None, None),
        ([], [], None, None),
    ],
)
def test_a_quantile_is_unknown_where_no_end_was_seen_that_late(
    spans: list[float], censored: list[float], median: float | None, longest: float | None
) -> None:
    histogram = Histogram(
        {bin_of(each * SECOND): 1 for each in spans},
        {bin_of(each * SECOND): 1 for each in censored},
    )
    expected = [None if it is None else middle_of(bin_of(it * SECOND)) for it in (median, longest)]
    assert [histogram.quantile(part) for part in (0.5, 0.999)] == expected
    assert sum(share for _, share in histogram.distribution()) == pytest.approx(
        1.0 if spans else 0.0
    )


def stay(queue: str, begin: float, end: float, **fields: Any) -> dict[str, Any]:
    last = DAY + round(end * SECOND)
    base = {"queue": queue, "received": DAY + round(begin * SECOND), "vt": 30, "last_vt": 30}
    return {**base, "ended": last, "last_event": last, "ended_as": "deleted", **fields}


#: By queue: who held a message from when to when, and by minute the peak and the mean.
STAYS: dict[str, tuple[list[dict[str, Any]], dict[int, tuple[int, float]]]] = {
    "long": ([stay("long", 30, 210)], {0: (1, 0.5), 1: (1, 1.0), 2: (1, 1.0), 3: (1, 0.5)}),
    # No row of a minute with nothing.
    "idle": ([stay("idle", 0, 6), stay("idle", 180, 192)], {0: (1, 0.1), 3: (1, 0.2)}),
    # One leaves when the next comes.
    "one by one": ([stay("one by one", n, n + 1) for n in range(3)], {0: (1, 0.05)}),
    "together": ([stay("together", n, 6 - n) for n in range(3)], {0: (3, 0.2)}),
    # Until its lease ends.
    "abandoned": (
        [
            stay(
                "abandoned",
                0,
                24,
                ended=None,
                ended_as="abandoned",
                last_extended=DAY + 24 * SECOND,
            )
        ],
        {0: (1, 0.9)},
    ),
    # Until the data ends.
    "running": (
        [stay("running", 30, 30, ended=None, ended_as="running")],
        {0: (1, 0.5), 1: (1, 1.0), 2: (1, 1.0), 3: (1, 0.5)},
    ),
}


@pytest.mark.thorough
def test_a_minute_has_its_peak_and_mean(spark: SparkSession) -> None:
    rows = [row for rows, _ in STAYS.values() for row in rows]
    workers = workers_frame(spark, {"concurrency": 4, "last_seen": DAY + 210 * SECOND})
    found: dict[str, dict[int, tuple[int, float]]] = {}
    for row in in_flight_of(attempts_frame(spark, *rows), workers).collect():
        minute = (row.minute - DAY) // MINUTE
        found.setdefault(row.queue, {})[minute] = (row.peak, round(row.mean, 9))
        assert (row.slots, row.quota_share) == (4, row.peak / 120_000)
    assert found == {queue: minutes for queue, (_, minutes) in STAYS.items()}
