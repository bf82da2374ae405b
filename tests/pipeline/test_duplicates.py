"""Which executions are duplicates, and the rules for their causes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.tables import evidence
from celery_sqs_heartbeat.pipeline.tables.duplicates import duplicates_of
from tests.pipeline.builders import (
    DAY,
    SECOND,
    attempts_frame,
    events_frame,
    message,
    workers_frame,
)


def at(seconds: float) -> int:
    return DAY + round(seconds * SECOND)


#: Received at 0 with 30 s, runs until 100; no extension is known.
FIRST = {
    "wid": "w1", "dlv": "d1", "rc": 1, "received_as": "new", "received": at(0), "started": at(0),
    "finished": at(100), "ended": at(100), "ended_as": "deleted", "vt": 30, "last_event": at(100),
}  # fmt: skip
#: Received at 40 elsewhere.
SECOND_RUN = {
    "wid": "w2", "dlv": "d2", "rc": 2, "received_as": "new", "received": at(40), "started": at(41),
    "finished": at(50), "ended": at(50), "ended_as": "deleted", "vt": 30, "last_event": at(50),
}  # fmt: skip
GONE = {"ended_as": "abandoned", "ended": None, "finished": None, "last_event": at(5)}

CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = [
    ("no-heartbeat", {"rc": 2}, {"rc": 4}, []),
    ("second-delivery", {}, {"received": at(20), "started": at(20)}, []),
    (
        "released-while-running",
        {"ended_as": "released", "cause": "shutdown", "finished": at(39), "ended": at(39)},
        {},
        [],
    ),
    ("died-after-success", {**GONE, "finished": at(4)}, {}, []),
    (
        "delete-refused",
        {"ended_as": "lapsed", "cause": "delete refused", "finished": at(29), "ended": at(35)},
        {},
        [],
    ),
    ("died-while-running", GONE, {}, []),
    ("capped", {}, {}, [message("lease-capped", 20)]),
    ("keeper-starved", {}, {}, [{"ev": "keeper-late", "ts": at(90), "late_us": 80 * SECOND}]),
    (
        "keeper-starved",
        {},
        {},
        [message("lease-extended", 35, vt=30, slack_us=-5 * SECOND, lat_us=20_000)],
    ),
    ("network", {}, {}, [message("extension-failed", 29, lat_us=5 * SECOND, err="unknown")]),
    ("sqs-slow", {}, {}, [message("extension-failed", 29, lat_us=20_000, err="throttled")]),
    (
        "sqs-slow",
        {},
        {},
        [message("lease-extended", 45, vt=30, slack_us=-15 * SECOND, lat_us=25 * SECOND)],
    ),
    ("unknown", {}, {}, []),
    ("unknown", {"ended_as": "lost"}, {}, []),
]


@pytest.mark.parametrize("most_broadcast", [evidence.MOST_BROADCAST, 0])
def test_the_first_rule_that_holds_names_the_cause(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most_broadcast: int
) -> None:
    """All cases in one run, each a message and a first worker of its own.

    So it does where there are too many pairs to broadcast.
    """
    monkeypatch.setattr(evidence, "MOST_BROADCAST", most_broadcast)
    attempts, events, workers = [], [message("task-started", 0, msg="other", dlv="other")], []
    for number, (_, first, second, told) in enumerate(CASES):
        own = {"msg": f"m{number}", "dlv": f"d{number}", "wid": f"w1-{number}"}
        attempts += [
            {**FIRST, **first, **own},
            {**SECOND_RUN, **second, "msg": own["msg"], "dlv": f"{own['dlv']} again"},
        ]
        of_worker = {"wid": own["wid"]}
        events += [{**each, **(own if "msg" in each else of_worker)} for each in told]
        workers.append({"wid": own["wid"], "last_seen": at(200)})
    frame = duplicates_of(
        attempts_frame(spark, *attempts),
        events_frame(spark, *events),
        workers_frame(spark, *workers),
    )
    rows = frame.where("second_wid = 'w2'").select("msg", "cause", "evidence").collect()
    assert {row.msg: row.cause for row in rows} == {
        f"m{number}": cause for number, (cause, *_) in enumerate(CASES)
    }
    assert all(row.evidence for row in rows)


def test_only_calls_since_the_last_extension_in_time_and_before_the_next_receive_count(
    spark: SparkSession,
) -> None:
    refused = {"lat_us": 20_000, "err": "throttled"}
    events = events_frame(
        spark,
        message("extension-failed", 9, **refused),
        message("lease-extended", 10, vt=30, slack_us=20 * SECOND, lat_us=20_000),
        message("extension-failed", 30, **refused),
        message("extension-failed", 35, **refused),
        message("lease-extended", 48, vt=30, slack_us=-8 * SECOND, lat_us=20_000),
        message("extension-failed", 49, **refused),
    )
    second = {**SECOND_RUN, "received": at(45), "started": at(45)}
    workers = workers_frame(spark, {"last_seen": at(200)})
    (row,) = duplicates_of(attempts_frame(spark, FIRST, second), events, workers).collect()
    assert (row.cause, row.evidence) == (
        "sqs-slow",
        "2 calls refused since the last extension",
    )


def test_an_execution_after_one_that_failed_is_no_duplicate(spark: SparkSession) -> None:
    failed = {"ended_as": "released", "cause": "failed", "finished": at(30), "ended": at(30)}
    attempts = attempts_frame(spark, {**FIRST, **failed}, SECOND_RUN)
    events = events_frame(spark, message("task-started", 0))
    assert duplicates_of(attempts, events, workers_frame(spark, {"last_seen": at(200)})).isEmpty()


def test_the_overlap_is_the_time_in_which_both_ran(spark: SparkSession) -> None:
    attempts = attempts_frame(spark, FIRST, SECOND_RUN)
    events = events_frame(spark, message("task-started", 0))
    row = duplicates_of(attempts, events, workers_frame(spark, {"last_seen": at(200)})).first()
    assert row is not None
    assert (row.overlap_us, row.both_succeeded) == (9 * SECOND, True)


def test_a_timeout_of_twelve_hours_is_no_more_than_a_number(spark: SparkSession) -> None:
    hours = 12 * 3600
    attempts = attempts_frame(
        spark,
        {**FIRST, **GONE, "vt": hours},
        {**SECOND_RUN, "received": at(hours + 5), "started": at(hours + 6), "finished": None},
    )
    extended = message("lease-extended", 1, vt=hours, slack_us=SECOND, lat_us=20_000)
    frame = duplicates_of(
        attempts, events_frame(spark, extended), workers_frame(spark, {"last_seen": at(2 * hours)})
    )
    assert [row.cause for row in frame.collect()] == ["died-while-running"]


def test_a_message_received_a_thousand_times_is_one_pair_for_each_next_one(
    spark: SparkSession,
) -> None:
    rows = [
        {**FIRST, "dlv": f"d{n}", "rc": n, "wid": f"w{n}", "received": at(n), "started": at(n)}
        for n in range(1, 1001)
    ]
    events = events_frame(spark, message("task-started", 0))
    workers = workers_frame(spark, {"last_seen": at(2000)})
    assert duplicates_of(attempts_frame(spark, *rows), events, workers).count() == 999
