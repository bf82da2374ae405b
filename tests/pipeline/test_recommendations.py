"""The measurements from the tables, and the rows that result."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from celery_sqs_heartbeat.leases.lease import DEFAULT_MAX_LEASE_SECONDS, LeaseTerms
from celery_sqs_heartbeat.pipeline.schema import DURATIONS, RECOMMENDATIONS
from celery_sqs_heartbeat.pipeline.tables.bins import bin_of
from celery_sqs_heartbeat.pipeline.tuning.advice import recommend
from celery_sqs_heartbeat.pipeline.tuning.histogram import Histogram
from celery_sqs_heartbeat.pipeline.tuning.measured import Measured
from celery_sqs_heartbeat.pipeline.tuning.recommendations import recommendations_of
from celery_sqs_heartbeat.pipeline.tuning.replay import Worth, replay
from celery_sqs_heartbeat.pipeline.tuning.running_settings import running_interval, running_terms
from celery_sqs_heartbeat.pipeline.tuning.survey import Survey, survey
from celery_sqs_heartbeat.pipeline.tuning.verdicts import verdicts_of
from celery_sqs_heartbeat.settings import Rules
from tests.pipeline.builders import (
    DAY,
    SECOND,
    attempts_frame,
    events_frame,
    frame_of,
    message,
    workers_frame,
)

_DAYS = (datetime.date(2026, 3, 14), datetime.date(2026, 3, 15))
_SETTINGS = {
    "rules": repr(Rules(visibility_timeout=1800, threshold=900, max_lease=7200)),
    "queues": repr({"other": Rules(visibility_timeout=60, release_delay=(1, 2))}),
    "interval": "0.5",
}


def _durations(
    queue: str, task: str, seconds: Iterable[float], vt: int = 1800, day: int = 0
) -> list[dict[str, Any]]:
    bins = Counter(bin_of(each * SECOND) for each in seconds)
    return [
        {
            "queue": queue,
            "task": task,
            "measure": measure,
            "vt": vt,
            "bin": number,
            "spans": count,
            "censored": 0,
            "dt": _DAYS[day],
        }
        for measure in ("held", "run")
        for number, count in bins.items()
    ]


def _tables(spark: SparkSession) -> tuple[Any, ...]:
    chance = random.Random(5)
    short = [chance.expovariate(1 / 20) for _ in range(12_000)]
    long = [chance.uniform(6_000, 9_000) for _ in range(1_500)]
    durations = [
        *_durations("work", "proj.short", short[:6_000]),
        *_durations("work", "proj.short", short[6_000:], day=1),
        *_durations("rare", "proj.rare", [1.0, 2.0], vt=30),
        *_durations("work", "proj.long", long, vt=60),
    ]
    answered = {"call": 1, "lat_us": 80_000}
    events = [
        *(message("lease-extended", 1, batch=4, **answered) for _ in range(40)),
        message("extension-failed", 2, batch=1, **answered, err="failed"),
        message("message-deleted", 3, batch=1, **answered),
        message("lease-lost", 3),
        {"ev": "keeper-late", "ts": DAY, "late_us": 3 * SECOND},
    ]
    return (
        frame_of(spark, DURATIONS, durations),
        attempts_frame(
            spark,
            {"task": "proj.short", "ended_as": "abandoned"},
            {"task": "proj.long", "ended_as": "abandoned"},
            {"ended_as": "deleted"},
        ),
        events_frame(spark, *events),
        workers_frame(
            spark,
            {"wid": "w1", "last_seen": DAY + 600 * SECOND, "concurrency": 8},
            {"wid": "w1", "first_seen": DAY + 3000 * SECOND, "last_seen": DAY + 3600 * SECOND},
            {
                "wid": "w2",
                "first_seen": DAY + SECOND,
                "last_seen": DAY + SECOND,
                "concurrency": 2,
                "settings": _SETTINGS,
            },
        ),
    )


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Survey:
    return survey(*_tables(spark))


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> list[Row]:
    frame = recommendations_of(*_tables(spark))
    assert tuple(frame.columns) == RECOMMENDATIONS.names
    return frame.collect()


def test_a_queue_is_measured_over_all_days_and_tasks(found: Survey) -> None:
    work = found.queues[1]
    assert [each.queue for each in found.queues] == ["rare", "work"]
    assert (work.messages, work.crashes) == (13_500, 2)
    assert work.timeouts == {1800: 12_000, 60: 1_500}


def test_calls_that_extend_are_measured_each_once(found: Survey) -> None:
    work = found.queues[1]
    assert work.latency.spans == {bin_of(80_000): 11}
    assert work.entries_per_call == pytest.approx(41 / 11)


def test_the_fleet_is_measured_over_all_workers(found: Survey) -> None:
    fleet = found.queues[0].fleet
    assert (fleet.worker_us, fleet.concurrency) == (3600 * SECOND, 8)
    assert fleet.stalls.spans == {bin_of(3 * SECOND): 1}
    assert found.settings == _SETTINGS


def test_only_tasks_with_enough_messages_are_measured(found: Survey) -> None:
    tasks = {queue: [each.task for each in tasks] for queue, tasks in found.tasks.items()}
    assert tasks == {"work": ["proj.long", "proj.short"]}
    assert [each.crashes for each in found.tasks["work"]] == [1, 1]


def test_each_queue_has_a_recommendation_a_curve_and_what_runs(rows: list[Row]) -> None:
    ranks = sorted(row.rank for row in rows if (row.queue, row.task) == ("work", None))
    assert ranks == [-1, 0, *range(1, len(ranks) - 1)]
    assert len(ranks) > 5


def test_a_task_that_differs_from_its_queue_has_its_own_recommendation(rows: list[Row]) -> None:
    recommended = {(row.queue, row.task): row for row in rows if row.rank == 0}
    assert set(recommended) == {("work", None), ("rare", None), ("work", "proj.short")}
    timeouts = [recommended["work", task].visibility_timeout for task in ("proj.short", None)]
    assert timeouts[0] < timeouts[1]
    # The longest of them takes 9,000 s, so 7,200 s are too short, and three times that is too long
    # to be set for tasks of a minute.
    assert recommended["work", None].max_lease > 20_000
    assert recommended["work", "proj.short"].max_lease == 7200


def test_the_running_settings_are_those_of_most_messages(rows: list[Row]) -> None:
    (running,) = [row for row in rows if row.rank == -1 and row.queue == "work"]
    found = (running.visibility_timeout, running.threshold, running.interval, running.max_lease)
    assert found == (1800, 900, 0.5, 7200)


def test_the_recommendation_is_no_worse_than_what_runs(rows: list[Row]) -> None:
    by_rank = {row.rank: row for row in rows if (row.queue, row.task) == ("work", None)}
    assert by_rank[0].objective <= by_rank[-1].objective


def test_thin_data_gives_a_recommendation_of_low_confidence(rows: list[Row]) -> None:
    (rare,) = [row for row in rows if row.rank == 0 and row.queue == "rare"]
    assert (rare.confidence, rare.messages) == ("low", 2)
    assert rare.reason.startswith("There is too little data to recommend a change. ")
    assert rare.reason.endswith(
        "Confidence is low: 2 attempts have ended, 1,000 are needed for medium."
    )


def test_from_thin_data_no_change_is_recommended(rows: list[Row]) -> None:
    by_rank = {row.rank: row for row in rows if row.queue == "rare"}
    assert {_settings(by_rank[rank]) for rank in (0, -1)} == {(30, 10.0, 0.5, 7200.0)}


def _queue(seconds: Iterable[float], timeout: int) -> Measured:
    held = Histogram(Counter(bin_of(each * SECOND) for each in seconds))
    latency = Histogram({bin_of(50_000): 10_000})
    return Measured(
        queue="work",
        task=None,
        held=held,
        run=held,
        latency=latency,
        timeouts={timeout: held.ended},
    )


def _exponential(number: int) -> list[float]:
    chance = random.Random(7)
    return [chance.expovariate(1 / 60) for _ in range(number)]


def _rules(timeout: int, threshold: float, max_lease: float | None = None) -> dict[str, str]:
    return {
        "rules": repr(Rules(visibility_timeout=timeout, threshold=threshold, max_lease=max_lease))
    }


@pytest.mark.parametrize(
    ("number", "rules", "why"),
    [
        # Thin data.
        (4, (6, 2), "There is too little data to recommend a change."),
        # Whatever it says.
        (4, (36_000, 12_000), "There is too little data to"),
        # Good.
        (20_000, (80, 20), "No candidate is clearly better than the c"),
        # Expensive.
        (20_000, (36_000, 12_000), "With the current settings, calls, waits "),
        # Risky.
        (20_000, (6, 0.1), "With the current settings, extensions "),
        # Cut off.
        (20_000, (80, 20, 120), "With the current settings, max_lease=120 "),
    ],
)
def test_settings_change_where_the_check_finds_them_worse_and_for_its_reason(
    number: int, rules: tuple[Any, ...], why: str
) -> None:
    measured = _queue(_exponential(number) if number > 4 else [1.8] * number, rules[0])
    found = Survey(queues=[measured], tasks={}, settings=_rules(*rules))
    by_rank = {row.rank: row for row in recommend(found, Worth())}
    recommended, running = by_rank[0], by_rank[-1]
    terms = LeaseTerms(
        visibility_timeout=rules[0],
        threshold=rules[1],
        max_lease=rules[2] if len(rules) > 2 else DEFAULT_MAX_LEASE_SECONDS,
    )
    (verdict,) = verdicts_of(found, lambda *_: terms, Worth())
    is_kept = recommended.is_of(
        replay(measured, running_terms(found.settings, "work", rules[0]), Worth())
    )
    assert recommended.reason.startswith(why)
    assert is_kept is (not verdict.fault or "max_lease" in verdict.fault)
    assert (recommended.max_lease > running.max_lease) is ("max_lease" in verdict.fault)
    assert recommended.max_lease >= running.max_lease
    assert recommended.objective <= running.objective


def test_the_recommendation_is_not_repeated_among_the_candidates(rows: list[Row]) -> None:
    for key in {(row.queue, row.task) for row in rows}:
        shown = [row for row in rows if (row.queue, row.task) == key and row.rank >= 0]
        assert len({_settings(row)[:2] for row in shown}) == len(shown) > 1


def _settings(row: Row) -> tuple[Any, ...]:
    return row.visibility_timeout, row.threshold, row.interval, row.max_lease


def test_rows_are_of_the_last_day_that_was_read(rows: list[Row]) -> None:
    assert {row.dt for row in rows} == {_DAYS[1]}


def test_a_double_column_never_gets_an_integer(found: Survey) -> None:
    # Spark would not accept it, for example from candidates with timeouts beyond max_lease.
    doubles = [column.name for column in RECOMMENDATIONS.columns if column.type == "double"]
    for row in recommend(found, Worth()):
        assert all(type(getattr(row, name)) is float for name in doubles)


def test_no_durations_give_no_rows(spark: SparkSession) -> None:
    nothing = (
        frame_of(spark, DURATIONS, []),
        attempts_frame(spark),
        events_frame(spark),
        workers_frame(spark),
    )
    assert recommendations_of(*nothing).collect() == []


@pytest.mark.parametrize(
    ("queue", "timeout", "expected"),
    [
        ("work", 1800, LeaseTerms(visibility_timeout=1800, threshold=900, max_lease=7200)),
        ("other", 60, LeaseTerms(visibility_timeout=60, threshold=20, max_lease=7200)),
        # Received with a timeout other than the reported one, to which the threshold did not apply.
        ("work", 300, LeaseTerms(visibility_timeout=300, threshold=100, max_lease=7200)),
    ],
)
def test_running_settings_are_read_as_the_journal_has_them(
    queue: str, timeout: int, expected: LeaseTerms
) -> None:
    assert running_terms(_SETTINGS, queue, timeout) == expected


def test_unknown_settings_are_the_defaults() -> None:
    terms = running_terms({}, "work", 30)
    assert terms == LeaseTerms.of(30)
    assert running_interval({}, terms) == 1.0
