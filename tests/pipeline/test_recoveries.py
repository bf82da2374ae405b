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

pytestmark = pytest.mark.thorough


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


#: By message: its only receive count, its queue's limit, and whether it is a dead letter.
DEAD: dict[str, tuple[int, int | None, bool]] = {
    "below": (2, 3, False),
    "as often": (3, 3, True),
    "more often": (4, 3, True),
    "no limit": (9, None, False),
}
RELEASED = {**FIRST, "ended_as": "released", "ended": at(12)}
OTHERS: list[dict[str, Any]] = [
    {**FIRST, "ended_as": "abandoned", "msg": "alone"},
    *(
        {**RELEASED, "msg": msg, "rc": rc, "max_rc": max_rc}
        for msg, (rc, max_rc, _) in DEAD.items()
    ),
    # As after a redrive of the dead-letter queue, or a change of the policy.
    {**RELEASED, "msg": "redriven", "max_rc": 1},
    {**NEXT, "msg": "redriven"},
    # The receive in between is in no journal.
    {**FIRST, "ended_as": "abandoned", "msg": "gap"},
    {**NEXT, "msg": "gap", "rc": 3, "ended_as": "released", "cause": "failed", "last_vt": 5},
    {**NEXT, "msg": "gap", "rc": 4, "dlv": "d4", "received": at(60)},
    # It waits at SQS until its task is due, so only a dead letter has something to recover from.
    {**RELEASED, "msg": "parked", "cause": "due later", "last_vt": 900},
    {**RELEASED, "msg": "parked, dead", "cause": "due later", "rc": 3, "max_rc": 3},
]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[tuple[str, int], Row]:
    """Return the recoveries, by message and receive count."""
    attempts = [*OTHERS]
    for number, (ended_as, first, _, _) in enumerate(CASES):
        own = {"msg": f"m{number}"}
        attempts += [{**FIRST, **first, "ended_as": ended_as, **own}, {**NEXT, **own}]
    workers = workers_frame(spark, {"last_seen": at(100)})
    rows = recoveries_of(attempts_frame(spark, *attempts), workers).collect()
    return {(row.msg, row.rc): row for row in rows}


def test_the_promised_time_is_the_time_the_lease_had_left(found: dict[Any, Row]) -> None:
    for number, (_, _, recovery, promised) in enumerate(CASES):
        row = found[f"m{number}", 1]
        assert (row.next_wid, row.is_censored) == ("w2", False)
        assert (row.recovery_us, row.promised_us) == (recovery * SECOND, promised * SECOND)


def test_a_message_that_is_not_received_again_is_censored_at_the_end_of_the_data(
    found: dict[Any, Row],
) -> None:
    row = found["alone", 1]
    assert (row.next_received, row.recovery_us, row.is_censored) == (None, 90 * SECOND, True)


def test_nothing_is_claimed_about_a_next_receive_that_is_in_no_journal(
    found: dict[Any, Row],
) -> None:
    """It may have been long before the one that is; nor is it known how this attempt ended."""
    unknown = ("next_received", "next_wid", "recovery_us", "promised_us", "excess_us")
    row = found["gap", 1]
    assert [row[name] for name in unknown] == [None] * len(unknown)
    assert (row.is_censored, row.is_dead_letter) == (False, False)
    assert (found["gap", 3].recovery_us, found["gap", 3].promised_us) == (10 * SECOND, 5 * SECOND)


def test_a_message_received_as_often_as_its_queue_allows_is_a_dead_letter(
    found: dict[Any, Row],
) -> None:
    """It is not a late one: SQS moves it instead of its next receive."""
    for msg, (rc, _, is_dead_letter) in DEAD.items():
        row = found[msg, rc]
        assert (row.is_dead_letter, row.is_censored) == (is_dead_letter, not is_dead_letter)
        assert row.recovery_us == (None if is_dead_letter else 88 * SECOND)
    assert not found["redriven", 1].is_dead_letter
    assert found["redriven", 1].recovery_us == 33 * SECOND
    assert ("parked", 1) not in found
    assert found["parked, dead", 3].is_dead_letter


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
