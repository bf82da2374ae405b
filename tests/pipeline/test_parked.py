"""No table counts messages that waited at SQS until their tasks were due as a problem."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from celery_sqs_heartbeat.leases.events import DUE_LATER
from celery_sqs_heartbeat.pipeline.report.queries import ends
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.duplicates import duplicates_of
from celery_sqs_heartbeat.pipeline.tables.recoveries import recoveries_of
from tests.pipeline.builders import DAY, SECOND, events_frame, message, rows_of, workers_frame
from tests.pipeline.builders import rejects_frame as rejects_of

HOUR = 3600
WORKERS = (
    {"last_seen": DAY + 3 * HOUR * SECOND},
    {"wid": "w2", "last_seen": DAY + 3 * HOUR * SECOND},
)


def parked(msg: str, rc: int, at: float, *, ev: str = "message-released") -> list[dict[str, Any]]:
    """Return the receive of a message that waits at SQS for an hour."""
    own = {"msg": msg, "dlv": f"{msg}{rc}", "rc": rc, "max_rc": 3}
    return [
        message("message-received", at, vt=60, cause="new", **own),
        message(ev, at + 0.1, vt=HOUR, cause=DUE_LATER, **own),
    ]


def run(msg: str, rc: int, at: float) -> list[dict[str, Any]]:
    """Return the receive of a message whose task succeeds, on another worker."""
    own = {"msg": msg, "dlv": f"{msg}{rc}", "rc": rc, "max_rc": 3, "wid": "w2"}
    return [
        message("message-received", at, vt=60, cause="new", **own),
        message("task-started", at + 1, **own),
        message("message-deleted", at + 2, ended_us=0, **own),
    ]


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    rows = [
        *parked("once", 1, 1), *run("once", 2, HOUR + 2),
        *parked("twice", 1, 1), *parked("twice", 2, HOUR + 2), *run("twice", 3, 2 * HOUR + 3),
        *parked("lapsed", 1, 1, ev="message-lapsing"), *run("lapsed", 2, 60),
        *parked("waits", 1, 1),
        *parked("dead", 3, 1),
    ]  # fmt: skip
    return events_frame(spark, *sorted(rows, key=lambda row: int(row["ts"])))


@pytest.fixture(scope="module")
def attempts(spark: SparkSession, events: DataFrame) -> DataFrame:
    return attempts_of(events, workers_frame(spark, *WORKERS)).cache()


def test_they_are_counted_apart_from_released_messages(attempts: DataFrame) -> None:
    assert rows_of(ends(attempts), "ended_as", "attempts") == {
        ("parked", 5),
        ("lapsed", 1),
        ("deleted", 3),
    }


def test_none_of_them_has_to_recover_but_one_that_became_a_dead_letter(
    spark: SparkSession, attempts: DataFrame
) -> None:
    found = recoveries_of(attempts, workers_frame(spark, *WORKERS))
    assert rows_of(found, "msg", "is_dead_letter") == {("dead", True)}


def test_none_of_them_was_executed_twice(
    spark: SparkSession, events: DataFrame, attempts: DataFrame
) -> None:
    # That message's first receives are in no journal, so it shows nothing here.
    of_others = attempts.where("msg <> 'dead'")
    found = duplicates_of(of_others, events, workers_frame(spark, *WORKERS), rejects_of(spark))
    assert found.count() == 0
