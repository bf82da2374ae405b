"""How each receive ended, and how long after it the message was received again.

`test_referee` compares all columns of attempts with those of another implementation.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of, recoveries_of
from celery_sqs_heartbeat.pipeline.tables.events import workers_of
from tests.pipeline.builders import (
    DAY,
    SECOND,
    attempts_frame,
    events_frame,
    message,
    workers_frame,
)

pytestmark = pytest.mark.thorough

Fields = dict[str, Any]


def at(seconds: float) -> int:
    return DAY + round(seconds * SECOND)


def received(second: float, **fields: Any) -> Fields:
    return message("message-received", second, **{"vt": 30, "cause": "new", "held_us": 0, **fields})


def deleted(second: float, **fields: Any) -> Fields:
    return message("message-deleted", second, **{"ended_us": SECOND, **fields})


STARTED = message("task-started", 2)
#: The data ends an hour after midnight. A worker without such a line is silent.
HEARD = {"ev": "keeper-late", "ts": at(3600), "late_us": 1}
SILENT = HEARD | {"wid": "other"}
AGAIN = received(60, dlv="d2", rc=2, wid="w2")
SAME = {"dlv": "d2", "rc": 2, "cause": "redelivered"}

#: How the receive at 1 s ends, when, and the events that show it.
ENDS: list[tuple[str, float | None, list[Fields]]] = [
    ("deleted", 9, [STARTED, deleted(9)]),
    ("deleted", 9, [STARTED, message("lease-lost", 5), deleted(9)]),
    ("deleted", 9, [STARTED, message("lease-capped", 5), deleted(9)]),
    ("released", 9, [STARTED, message("message-released", 9, cause="failed", ended_us=1)]),
    ("lapsed", 9, [STARTED, message("message-lapsing", 9, cause="failed", ended_us=1)]),
    ("lapsed", 9, [STARTED, message("delete-abandoned", 9, ended_us=1)]),
    ("lost", 5, [STARTED, message("lease-lost", 5)]),
    ("capped", 5, [STARTED, message("lease-capped", 5)]),
    ("lost", 6, [STARTED, message("lease-capped", 5), message("lease-lost", 6)]),
    ("continued", 7, [STARTED, received(7, **SAME)]),
    ("continued", 7, [STARTED, message("lease-lost", 5), received(7, **SAME)]),
    ("continued", 7, [STARTED, received(7, **SAME | {"cause": "finished"})]),
    ("abandoned", None, [STARTED, HEARD, AGAIN]),
    ("abandoned", None, [STARTED, HEARD, received(7, **SAME | {"cause": "new"})]),
    ("abandoned", None, [STARTED, {"ev": "worker-stopped", "ts": at(99)}]),
    ("abandoned", None, [STARTED, SILENT]),
    # Its lease may last for longer than its worker has been silent.
    ("running", None, [STARTED, message("lease-extended", 20, vt=43_200), SILENT]),
    ("running", None, [STARTED, HEARD]),
]
SCENARIOS: dict[str, list[Fields]] = {
    **{f"case {case}": [received(1), *rows] for case, (_, _, rows) in enumerate(ENDS)},
    "continued": [
        received(1),
        STARTED,
        received(40, **SAME),
        received(80, dlv="d3", rc=3, cause="redelivered"),
        deleted(91, dlv="d3", rc=3),
    ],
    "finished, again": [
        received(1),
        STARTED,
        deleted(9),
        received(40, dlv="d2", rc=2, cause="finished", ended_us=0),
        deleted(41, dlv="d2", rc=2),
    ],
    "unconfirmed": [
        received(1),
        STARTED,
        message("delete-failed", 10, ended_us=2 * SECOND, err="failed"),
        received(40, dlv="d2", rc=2, cause="finished", ended_us=32 * SECOND),
        deleted(41, dlv="d2", rc=2, ended_us=33 * SECOND),
    ],
    "no receive": [message("lease-extended", 21, held_us=20 * SECOND), deleted(30)],
}


@pytest.fixture(scope="module")
def attempts(spark: SparkSession) -> dict[str, list[Row]]:
    """Return the attempts of all scenarios, made at once, in the order of deliveries."""
    events = [
        event
        | {key: f"{event[key]}/{name}" for key in ("msg", "dlv") if key in event}
        | {"wid": f"{event.get('wid', 'w1')}/{name}"}
        for name, scenario in SCENARIOS.items()
        for event in scenario
    ]
    frame = events_frame(spark, *events)
    found: dict[str, list[Row]] = {}
    for row in attempts_of(frame, workers_of(frame)).orderBy("dlv").collect():
        found.setdefault(row.dlv.partition("/")[2], []).append(row)
    return found


def test_each_way_to_end(attempts: dict[str, list[Row]]) -> None:
    found = [attempts[f"case {case}"][0] for case in range(len(ENDS))]
    assert [(row.ended_as, row.ended) for row in found] == [
        (ended_as, None if ended is None else at(ended)) for ended_as, ended, _ in ENDS
    ]


@pytest.mark.parametrize(
    ("scenario", "ends", "runs"),
    [
        ("continued", ["continued", "continued", "deleted"], [None, None, 88]),
        # It came again after its delete.
        ("finished, again", ["deleted", "deleted"], [6, None]),
        ("unconfirmed", ["continued", "deleted"], [None, 6]),
    ],
)
def test_a_task_is_measured_once_from_its_start_to_its_end(
    attempts: dict[str, list[Row]], scenario: str, ends: list[str], runs: list[int | None]
) -> None:
    rows = attempts[scenario]
    assert [row.ended_as for row in rows] == ends
    assert [row.run_us and row.run_us / SECOND for row in rows] == runs


def test_a_receive_whose_line_is_missing_is_guessed_from_the_others(
    attempts: dict[str, list[Row]],
) -> None:
    (row,) = attempts["no receive"]
    assert (row.received, row.received_as) == (at(1), None)


FIRST = {"received": at(0), "vt": 30, "last_vt": 30, "last_event": at(10), "ended": None}
RELEASED = {**FIRST, "ended_as": "released", "ended": at(12)}
NEXT = {
    "dlv": "d2", "rc": 2, "wid": "w2", "received": at(45), "ended_as": "deleted", "ended": at(50),
    "last_event": at(50),
}  # fmt: skip
#: How an attempt ended, the seconds until the next receive, and those that were promised.
RECOVERIES: list[tuple[str, Fields, int, int]] = [
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
OTHERS: list[Fields] = [
    *({**RELEASED, "msg": msg, "rc": rc, "max_rc": most} for msg, (rc, most, _) in DEAD.items()),
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
def recoveries(spark: SparkSession) -> dict[tuple[str, int], Row]:
    """Return the recoveries, by message and receive count."""
    rows = [*OTHERS]
    for number, (ended_as, first, _, _) in enumerate(RECOVERIES):
        own = {"msg": f"m{number}"}
        rows += [{**FIRST, **first, "ended_as": ended_as, **own}, {**NEXT, **own}]
    frame = recoveries_of(
        attempts_frame(spark, *rows), workers_frame(spark, {"last_seen": at(100)})
    )
    return {(row.msg, row.rc): row for row in frame.collect()}


def test_the_promised_time_is_the_time_the_lease_had_left(recoveries: dict[Any, Row]) -> None:
    for number, (_, _, recovery, promised) in enumerate(RECOVERIES):
        row = recoveries[f"m{number}", 1]
        assert (row.next_wid, row.is_censored) == ("w2", False)
        assert (row.recovery_us, row.promised_us) == (recovery * SECOND, promised * SECOND)


def test_nothing_is_claimed_about_a_next_receive_that_is_in_no_journal(
    recoveries: dict[Any, Row],
) -> None:
    """It may have been long before the one that is; nor is it known how this attempt ended."""
    unknown = ("next_received", "next_wid", "recovery_us", "promised_us", "excess_us")
    row = recoveries["gap", 1]
    assert [row[name] for name in unknown] == [None] * len(unknown)
    assert (row.is_censored, row.is_dead_letter) == (False, False)
    found = recoveries["gap", 3]
    assert (found.recovery_us, found.promised_us) == (10 * SECOND, 5 * SECOND)


def test_a_message_received_as_often_as_its_queue_allows_is_a_dead_letter(
    recoveries: dict[Any, Row],
) -> None:
    """It is not a late one: SQS moves it. Others are censored at the end of the data."""
    for msg, (rc, _, is_dead_letter) in DEAD.items():
        row = recoveries[msg, rc]
        assert (row.is_dead_letter, row.is_censored) == (is_dead_letter, not is_dead_letter)
        assert row.recovery_us == (None if is_dead_letter else 88 * SECOND)
    assert not recoveries["redriven", 1].is_dead_letter
    assert ("parked", 1) not in recoveries
    assert recoveries["parked, dead", 3].is_dead_letter
