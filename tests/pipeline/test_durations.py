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
from tests.support.golden import golden


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


@pytest.mark.thorough
def test_a_task_that_ended_is_a_span_and_one_that_continued_is_censored(
    spark: SparkSession,
) -> None:
    rows = durations_of(attempts_frame(spark, *_ATTEMPTS)).collect()
    assert {(row.queue, row.vt, str(row.dt)) for row in rows} == {("work", 30, "2026-03-14")}
    lines = [
        f"{row.task}: {row.measure} in the bin of {middle_of(row.bin) / SECOND:.3g} s: "
        f"{row.spans} ended, {row.censored} did not, together {row.sum_us / SECOND:g} s\n"
        for row in rows
    ]
    golden("durations.txt", "".join(sorted(lines)))


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


UNTIL = {"last_extended": DAY + 24 * SECOND}
#: By queue: who held a message from when to when.
STAYS: dict[str, list[dict[str, Any]]] = {
    "long": [stay("long", 30, 210)],
    # No row of a minute with nothing.
    "idle": [stay("idle", 0, 6), stay("idle", 180, 192)],
    # One leaves when the next comes.
    "one by one": [stay("one by one", n, n + 1) for n in range(3)],
    "together": [stay("together", n, 6 - n) for n in range(3)],
    # Until its lease ends.
    "abandoned": [stay("abandoned", 0, 24, ended=None, ended_as="abandoned", **UNTIL)],
    # Until the data ends.
    "running": [stay("running", 30, 30, ended=None, ended_as="running")],
}


@pytest.mark.thorough
def test_a_minute_has_its_peak_and_mean(spark: SparkSession) -> None:
    attempts = attempts_frame(spark, *(row for rows in STAYS.values() for row in rows))
    workers = workers_frame(spark, {"concurrency": 4, "last_seen": DAY + 210 * SECOND})
    rows = in_flight_of(attempts, workers).collect()
    assert [row for row in rows if (row.slots, row.quota_share) != (4, row.peak / 120_000)] == []
    lines = [
        f"{row.queue}, minute {(row.minute - DAY) // MINUTE}: {row.peak}, mean {row.mean:.6g}\n"
        for row in rows
    ]
    golden("in_flight.txt", "".join(sorted(lines)))
