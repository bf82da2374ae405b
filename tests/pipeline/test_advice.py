"""What is measured for the advice, and what it says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS, LeaseTerms
from celery_sqs_heartbeat.pipeline.advice import Row, best_terms, expected, recommend, verdicts_of
from celery_sqs_heartbeat.pipeline.schema import CALLS, DURATIONS
from celery_sqs_heartbeat.pipeline.survey import Measured, Survey, running_terms, survey
from celery_sqs_heartbeat.pipeline.tables.durations import Histogram, bin_of
from celery_sqs_heartbeat.settings import Rules
from tests.pipeline.builders import DAY, SECOND, attempts_frame, frame_of, workers_frame
from tests.support.golden import golden

SETTINGS = {
    "rules": repr(Rules(visibility_timeout=1800, threshold=900, max_lease=7200)),
    "queues": repr({"other": Rules(visibility_timeout=60, release_delay=(1, 2))}),
    "interval": "0.5",
}


def histogram(seconds: dict[float, int]) -> Histogram:
    spans = Counter[int]()
    for each, number in seconds.items():
        spans[bin_of(each * SECOND)] += number
    return Histogram(spans)


def measured(seconds: dict[float, int], **fields: Any) -> Measured:
    """Return a queue with the default threshold of 30 s, whose extensions took nothing."""
    number = sum(seconds.values())
    base: dict[str, Any] = {"queue": "work", "task": None, "timeouts": Counter({30: number})}
    return Measured(held=histogram(seconds), **{**base, **fields})


SHORT, MINUTES, HOURS = {2.0: 2_000}, {60.0: 1_900, 270.0: 100}, {3_000.0: 1_900, 9_000.0: 100}
MEASURED: dict[str, Measured] = {
    "short tasks keep SQS's own": measured(SHORT),
    "long ones need few extensions": measured(MINUTES),
    "tasks of hours": measured(HOURS),
    "nearly all of the threshold is used": measured(SHORT, slacks={30: 1.0}),
    "less than half is used": measured(SHORT, slacks={30: 6.0}),
    "slack at another timeout says nothing": measured(SHORT, slacks={600: 1.0}),
    "extensions come too late": measured(SHORT, late={30: 1}),
    "one of many is accepted": measured({2.0: 20_000}, late={30: 1}),
    "more than the keeper can do": measured(SHORT, concurrency=2_000),
    "too little data": measured({2.0: 999}, late={30: 900}),
}
#: What was measured with some settings. They are worse only by a margin.
IN_USE: dict[str, tuple[Measured, LeaseTerms]] = {
    "good": (measured(SHORT), LeaseTerms.of(30)),
    "four times as long is still good": (measured(SHORT), LeaseTerms.of(120)),
    "far too long": (measured(SHORT), LeaseTerms.of(1800)),
    "far too short": (measured(HOURS), LeaseTerms.of(60)),
    "late": (measured(SHORT, late={30: 4}), LeaseTerms.of(30)),
    "nearly late": (measured(SHORT, slacks={30: 1.0}), LeaseTerms.of(30)),
    "max_lease": (measured(MINUTES), replace(LeaseTerms.of(60), max_lease=200)),
    "too little data for a fault": (measured({2.0: 999}, late={30: 900}), LeaseTerms.of(1800)),
}


def test_the_best_settings_have_room_and_a_fault_says_why_others_are_worse() -> None:
    lines = []
    for name, found in MEASURED.items():
        best = best_terms(found)
        lines.append(f"{name}: {best.visibility_timeout} s, threshold {best.threshold:g} s\n")
    for name, (found, terms) in IN_USE.items():
        (verdict,) = verdicts_of(Survey(queues=[found], tasks={}), lambda *_, it=terms: it)
        lines.append(f"{name}: {verdict.fault or 'not worse'}\n")
    golden("advice.txt", "".join(lines))


def rows_of(found: Measured, tasks: tuple[Measured, ...] = ()) -> dict[Any, Row]:
    survey_ = Survey(queues=[found], tasks={"work": tasks})
    return {(row.task, row.rank): row for row in recommend(survey_)}


def test_good_settings_stay_and_worse_ones_change_with_the_reason() -> None:
    kept = rows_of(measured(SHORT))[None, 0]
    assert (kept.visibility_timeout, kept.confidence) == (30, "high")
    assert kept.reason.startswith("No other settings are clearly better than the current ones.")
    rows = rows_of(measured(SHORT, late={30: 4}))
    assert (rows[None, -1].visibility_timeout, rows[None, 0].visibility_timeout) == (30, 60)
    assert rows[None, 0].reason.startswith("With the current settings, extensions came too late ")
    assert "0 extension calls instead of 0." in rows[None, 0].reason
    assert {row.visibility_timeout for row in rows.values()} >= {30, 60, 120, 240}


def test_max_lease_is_raised_and_never_lowered() -> None:
    settings = {"rules": repr(Rules(max_lease=200))}
    raised = rows_of(measured(MINUTES, settings=settings))[None, 0]
    assert (raised.visibility_timeout, raised.max_lease) == (30, 840)
    assert rows_of(measured(SHORT, settings=settings))[None, 0].max_lease == 200
    unknown = rows_of(measured(SHORT, timeouts=Counter()))
    assert unknown.keys() >= {(None, 0), (None, 1)}
    assert unknown[None, 0].max_lease == DEFAULT_MAX_LEASE_SECONDS


def test_a_task_that_differs_from_its_queue_has_its_own_recommendation() -> None:
    queue, own = measured(HOURS), measured(SHORT, task="proj.short")
    alike = measured({2_900.0: 2_000}, task="proj.alike")
    alike.held = queue.held
    assert {task for task, _ in rows_of(queue, (own, alike))} == {None, "proj.short"}


@pytest.mark.parametrize(
    ("seconds", "calls", "recovery"),
    # Between two extensions pass 20 s, so half of the attempts of 30 s have one.
    [({10.0: 4}, 0, 25), ({30.0: 4}, 1000, 30 - 250 / 30), ({10.0: 2, 30.0: 2}, 500, 22.5)],
)
def test_calls_and_recovery_follow_from_the_times(
    seconds: dict[float, int], calls: float, recovery: float
) -> None:
    found = expected(measured(seconds), LeaseTerms.of(30, 10.0))
    assert found == (pytest.approx(calls), pytest.approx(recovery, rel=0.02))


@pytest.mark.parametrize(
    ("queue", "timeout", "terms"),
    [
        ("work", 1800, (1800, 900, 7200)),
        # The timeout has changed since.
        ("work", 30, (30, 10, 7200)),
        ("other", 60, (60, 20, 7200)),
    ],
)
def test_a_worker_s_first_line_shows_the_settings_in_use(
    queue: str, timeout: int, terms: tuple[float, ...]
) -> None:
    found = running_terms(SETTINGS, queue, timeout)
    assert (found.visibility_timeout, found.threshold, found.max_lease) == terms


@pytest.mark.thorough
def test_a_fleet_is_measured_over_all_days_tasks_and_workers(spark: SparkSession) -> None:
    spans = {"queue": "work", "measure": "held", "vt": 1800, "censored": 0, "sum_us": 0}
    durations = [
        {**spans, "task": "proj.a", "bin": bin_of(SECOND), "spans": 900},
        {**spans, "task": "proj.a", "bin": bin_of(SECOND), "spans": 600, "vt": 60},
        {**spans, "task": "proj.b", "bin": bin_of(9 * SECOND), "spans": 600, "censored": 3},
        {**spans, "task": "proj.b", "bin": bin_of(9 * SECOND), "spans": 9, "measure": "run"},
    ]
    late = {"vt": 60, "extensions": 1, "min_slack_us": 5 * SECOND, "expired": DAY}
    attempts = [
        {**late, "task": "proj.a"},
        {**late, "task": "proj.a", "min_slack_us": 4 * SECOND, "lost": DAY},
        # Delivered twice by SQS.
        {**late, "task": "proj.a", "expired": None, "lost": DAY},
        # No extension was tried, it was refused, or the lease had reached its longest time.
        {**late, "task": "proj.a", "extensions": 0, "failures": 0, "min_slack_us": None},
        {**late, "task": "proj.a", "last_error": "denied"},
        {**late, "task": "proj.b", "capped": DAY},
    ]
    calls = [
        {"queue": "work", "kind": "extend", "calls": 2.0, "entries": 9},
        {"queue": "work", "kind": "extend", "calls": 1.0, "entries": 3},
        {"queue": "work", "kind": "delete", "calls": 9.0, "entries": 9},
    ]
    workers = [
        {"wid": "w1", "concurrency": 8, "settings": {"interval": "9"}},
        {"wid": "w2", "concurrency": 2, "settings": SETTINGS, "first_seen": DAY + 1},
        {"wid": "w3", "first_seen": DAY + 2},
    ]
    found = survey(
        frame_of(spark, DURATIONS, durations),
        attempts_frame(spark, *attempts),
        frame_of(spark, CALLS, calls),
        workers_frame(spark, *workers),
    )
    (queue,) = found.queues
    assert (queue.held.ended, queue.held.count) == (2_100, 2_103)
    assert queue.timeouts == {1800: 1_503, 60: 600}
    assert (queue.late, queue.slacks) == ({60: 2}, {60: 4.0})
    assert (queue.entries_per_call, queue.concurrency, queue.settings) == (4.0, 8, SETTINGS)
    assert [each.task for each in found.tasks["work"]] == ["proj.a"]
