"""How long messages wait after an attempt that did not succeed."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.recoveries import recoveries_of
from tests.pipeline.builders import (
    DAY,
    SECOND,
    attempts_frame,
    events_frame,
    message,
    rows_of,
    workers_frame,
)


def at(seconds: float) -> int:
    return DAY + round(seconds * SECOND)


FIRST = {"received": at(0), "vt": 30, "last_vt": 30, "last_event": at(10), "ended": None}
NEXT = {
    "dlv": "d2", "rc": 2, "wid": "w2", "received": at(45), "ended_as": "deleted", "ended": at(50),
    "last_event": at(50),
}  # fmt: skip

CASES: list[tuple[str, dict[str, Any], int, int]] = [
    ("abandoned", {}, 35, 20),
    ("abandoned", {"last_extended": at(10)}, 35, 30),
    ("abandoned", {"vt": 43_200}, 35, 43_190),
    ("abandoned", {"last_extended": at(10), "last_vt": 43_200}, 35, 43_200),
    ("released", {"ended": at(12), "cause": "failed", "last_vt": 25}, 33, 25),
    ("released", {"ended": at(12), "cause": "backoff policy", "last_vt": 43_200}, 33, 43_200),
    ("released", {"ended": at(12), "cause": "shutdown", "last_vt": 0}, 33, 0),
    ("lapsed", {"ended": at(12)}, 33, 18),
    ("lost", {"ended": at(31)}, 14, 0),
    ("capped", {"ended": at(20)}, 25, 10),
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, Row]:
    """Return the recoveries, by message; that of `alone` is not received again."""
    attempts = [{**FIRST, "ended_as": "abandoned", "msg": "alone"}]
    for number, (ended_as, first, _, _) in enumerate(CASES):
        own = {"msg": f"m{number}"}
        attempts += [{**FIRST, **first, "ended_as": ended_as, **own}, {**NEXT, **own}]
    workers = workers_frame(spark, {"last_seen": at(100)})
    rows = recoveries_of(attempts_frame(spark, *attempts), workers).collect()
    assert len(rows) == len(CASES) + 1
    return {row.msg: row for row in rows}


def test_the_promised_time_is_the_time_the_lease_had_left(found: dict[str, Row]) -> None:
    for number, (_, _, recovery, promised) in enumerate(CASES):
        row = found[f"m{number}"]
        assert (row.next_wid, row.is_censored) == ("w2", False)
        assert (row.recovery_us, row.promised_us) == (recovery * SECOND, promised * SECOND)


def test_a_message_that_is_not_received_again_is_censored_at_the_end_of_the_data(
    found: dict[str, Row],
) -> None:
    row = found["alone"]
    assert (row.next_received, row.recovery_us, row.is_censored) == (None, 90 * SECOND, True)


def test_nothing_is_claimed_about_a_next_receive_that_is_in_no_journal(spark: SparkSession) -> None:
    """It may have been long before the one that is; nor is it known how this attempt ended."""
    attempts = [
        {**FIRST, "ended_as": "abandoned", "rc": 1},
        {**NEXT, "rc": 3, "ended_as": "released", "cause": "failed", "last_vt": 5},
        {**NEXT, "rc": 4, "dlv": "d4", "received": at(60)},
    ]
    workers = workers_frame(spark, {"last_seen": at(100)})
    rows = {
        row.rc: row for row in recoveries_of(attempts_frame(spark, *attempts), workers).collect()
    }
    assert rows.keys() == {1, 3}
    unknown = ("next_received", "next_wid", "recovery_us", "promised_us", "excess_us")
    assert [rows[1][name] for name in unknown] == [None] * len(unknown)
    assert (rows[1].is_censored, rows[1].is_dead_letter) == (False, False)
    assert (rows[3].recovery_us, rows[3].promised_us) == (10 * SECOND, 5 * SECOND)


@pytest.mark.parametrize(
    ("rc", "max_rc", "is_dead_letter"),
    [(2, 3, False), (3, 3, True), (4, 3, True), (9, None, False)],
)
def test_a_message_received_as_often_as_its_queue_allows_is_a_dead_letter(
    spark: SparkSession, rc: int, max_rc: int | None, is_dead_letter: bool
) -> None:
    """It is not a late one: SQS moves it instead of its next receive."""
    attempt = {**FIRST, "ended_as": "released", "ended": at(12), "rc": rc, "max_rc": max_rc}
    workers = workers_frame(spark, {"last_seen": at(100)})
    (row,) = recoveries_of(attempts_frame(spark, attempt), workers).collect()
    assert (row.is_dead_letter, row.is_censored) == (is_dead_letter, not is_dead_letter)
    assert row.recovery_us == (None if is_dead_letter else 88 * SECOND)
    assert (row.excess_us is None) is is_dead_letter


def test_a_message_that_came_again_is_no_dead_letter(spark: SparkSession) -> None:
    """As after a redrive of the dead-letter queue, or a change of the policy."""
    first = {**FIRST, "ended_as": "released", "ended": at(12), "rc": 1, "max_rc": 1}
    workers = workers_frame(spark, {"last_seen": at(100)})
    (row,) = recoveries_of(attempts_frame(spark, first, NEXT), workers).collect()
    assert (row.is_dead_letter, row.recovery_us) == (False, 33 * SECOND)


def test_a_release_promises_the_delay_that_it_asked_for(spark: SparkSession) -> None:
    """Without a delay, as in old lines, it promises that the message is visible at once."""
    ends = {
        "delayed": ("message-released", {"vt": 5, "cause": "failed"}),
        "at once": ("message-released", {"vt": 0, "cause": "shutdown"}),
        "old line": ("message-released", {"cause": "failed"}),
        "lapsing": ("message-lapsing", {"cause": "failed"}),
    }
    told = []
    for msg, (ev, fields) in ends.items():
        own = {"msg": msg, "dlv": msg}
        told += [
            message("message-received", 0, vt=60, cause="new", **own),
            message("lease-extended", 20, vt=30, slack_us=SECOND, **own),
            message(ev, 25, **own, **fields),
        ]
    workers = workers_frame(spark, {"last_seen": at(100)})
    frame = recoveries_of(attempts_of(events_frame(spark, *told), workers), workers)
    assert rows_of(frame, "msg", "promised_us") == {
        ("delayed", 5 * SECOND),
        ("at once", 0),
        ("old line", 0),
        ("lapsing", 25 * SECOND),
    }
