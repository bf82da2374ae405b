"""Duplicates whose explaining lines are lost."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.tables.duplicates import duplicates_of
from celery_sqs_heartbeat.pipeline.tables.root_causes import CAUSES
from tests.pipeline.builders import (
    DAY,
    SECOND,
    attempts_frame,
    events_frame,
    message,
    rejects_frame,
    workers_frame,
)

Row = dict[str, Any]


def at(seconds: float) -> int:
    return DAY + round(seconds * SECOND)


#: Received at 0 by `w1` for 30 s, and never heard of again.
CUT_OFF = {
    "wid": "w1", "rc": 1, "received_as": "new", "received": at(0), "started": at(0), "vt": 30,
    "ended_as": "abandoned", "last_event": at(5), "last_vt": 30,
}  # fmt: skip
DONE = CUT_OFF | {"ended_as": "deleted", "finished": at(99), "ended": at(99), "last_event": at(99)}
#: The next receive in a journal, at 40 by `w2`.
NEXT = {
    "wid": "w2", "dlv": "d2", "received_as": "new", "received": at(40), "started": at(41),
    "finished": at(50), "ended": at(50), "ended_as": "deleted", "vt": 30, "last_event": at(50),
}  # fmt: skip
SECOND_RECEIVE, THIRD_RECEIVE = NEXT | {"rc": 2}, NEXT | {"rc": 3}
#: Another worker of the queue, known by another message.
SERVES = DONE | {"wid": "w3", "msg": "m3", "dlv": "d3", "started": None}


def worker(wid: str, last: float, *, stopped: bool = False, **fields: Any) -> Row:
    return {
        "wid": wid, "last_seen": at(last), "stopped": at(last) if stopped else None, **fields,
    }  # fmt: skip


#: Numbers 3 and 4 are missing, from the time after the first lease.
NUMBERS = [(1, -30), (2, 25), (5, 38), (6, 50)]
GAP = {"first_seq": 1, "last_seq": 6, "lines": 4, "stopped": at(70), "last_seen": at(70)}


def lines(wid: str, later: float = 0) -> list[Row]:
    return [
        message("task-started", ts + later, wid=wid, msg="m9", dlv="d9", seq=seq)
        for seq, ts in NUMBERS
    ]


#: By name: the cause, what its evidence has, attempts, events, workers, and who has a torn segment.
SCENARIOS: dict[str, tuple[str, str, list[Row], list[Row], list[Row], list[str]]] = {
    "killed while it held a lease": (
        "lines-lost",
        "receive 2 of the message is in no journal; worker w1 was killed then",
        [CUT_OFF, THIRD_RECEIVE],
        [],
        [worker("w1", 5)],
        [],
    ),
    "alive after its lease was over": (
        "no-heartbeat",
        "receive 2 of the message is in no journal",
        [CUT_OFF, THIRD_RECEIVE],
        [],
        [worker("w1", 90)],
        [],
    ),
    "stopped by itself": (
        "no-heartbeat",
        "receive 2",
        [CUT_OFF, THIRD_RECEIVE],
        [],
        [worker("w1", 5, stopped=True)],
        [],
    ),
    # The missing receive was at least 30 s before the next one.
    "killed too late for it": (
        "no-heartbeat",
        "receive 2",
        [CUT_OFF | {"last_event": at(38)}, THIRD_RECEIVE],
        [],
        [worker("w1", 38)],
        [],
    ),
    "killed in another queue": (
        "no-heartbeat",
        "receive 2",
        [DONE, THIRD_RECEIVE, CUT_OFF | {"wid": "w3", "msg": "m3", "dlv": "d3", "queue": "other"}],
        [],
        [worker("w1", 99, stopped=True), worker("w3", 5)],
        [],
    ),
    "the first receive, when SQS says that it was": (
        "lines-lost",
        "receive 1 of the message is in no journal; worker w3 was killed then",
        [SECOND_RECEIVE | {"first": at(3)}, CUT_OFF | {"wid": "w3", "msg": "m3", "dlv": "d3"}],
        [],
        [worker("w3", 2)],
        [],
    ),
    "the first receive, long before that": (
        "no-heartbeat",
        "receive 1",
        [SECOND_RECEIVE | {"first": at(-9)}, CUT_OFF | {"wid": "w3", "msg": "m3", "dlv": "d3"}],
        [],
        [worker("w3", 2)],
        [],
    ),
    "numbers of another worker are missing then": (
        "lines-lost",
        "; lines of worker w3 are missing then",
        [DONE, THIRD_RECEIVE, SERVES],
        lines("w3"),
        [worker("w1", 99, stopped=True), GAP | {"wid": "w3"}],
        [],
    ),
    "numbers of another worker are missing later": (
        "no-heartbeat",
        "receive 2",
        [DONE, THIRD_RECEIVE, SERVES],
        lines("w3", 70),
        [worker("w1", 99, stopped=True), GAP | {"wid": "w3"}],
        [],
    ),
    "the last segment of another worker is torn": (
        "lines-lost",
        "; lines of worker w3 are missing then",
        [DONE, THIRD_RECEIVE, SERVES],
        [],
        [worker("w1", 99, stopped=True), worker("w3", -100)],
        ["w3"],
    ),
    "the first segment of another worker is torn": (
        "lines-lost",
        "; lines of worker w3 are missing then",
        [DONE, THIRD_RECEIVE, SERVES],
        [],
        [
            worker("w1", 99, stopped=True),
            worker("w3", 99, stopped=True, first_seen=at(60), first_seq=7, last_seq=7),
        ],
        ["w3"],
    ),
    "its own end is missing from its numbers": (
        "lines-lost",
        "lines of its worker w1 are missing from that time",
        [CUT_OFF, SECOND_RECEIVE],
        [message("task-started", 5, seq=1), message("task-started", 90, msg="m8", seq=9)],
        [worker("w1", 90, first_seq=1, last_seq=9, lines=2)],
        [],
    ),
    "it lived on, and lacks no line": (
        "unknown",
        "nothing in the journals",
        [CUT_OFF, SECOND_RECEIVE],
        [],
        [worker("w1", 90)],
        [],
    ),
    "its extensions are missing from its numbers": (
        "lines-lost",
        "lines of its worker w1 are missing from that time",
        [DONE, SECOND_RECEIVE],
        [message("task-started", 5, seq=1), message("task-started", 35, seq=9)],
        [worker("w1", 99, stopped=True, first_seq=1, last_seq=9, lines=2)],
        [],
    ),
}


def _own(row: Row, name: str) -> Row:
    """Return a row with its own texts, so that one run covers all scenarios."""
    texts = {"wid": "w1"} | ({"queue": "work", "msg": "m1", "dlv": "d1"} if "rc" in row else {})
    return row | {key: f"{text}@{name}" for key, text in (texts | row).items() if key in texts}


def found(spark: SparkSession, names: list[str], *unheard: str) -> dict[str, tuple[str, str]]:
    """Return cause and evidence of each scenario's second execution by `w2`."""
    chosen = {name: SCENARIOS[name] for name in names}
    workers = [_own(row, name) for name, (*_, rows, _) in chosen.items() for row in rows]
    torn = [f"{wid}@{name}" for name, (*_, wids) in chosen.items() for wid in wids]
    frame = duplicates_of(
        attempts_frame(spark, *(_own(row, n) for n, case in chosen.items() for row in case[2])),
        events_frame(spark, *(_own(row, n) for n, case in chosen.items() for row in case[3])),
        workers_frame(spark, *workers, worker("other", 100, stopped=True)),
        rejects_frame(spark, *torn, *unheard),
    )
    rows = [row for row in frame.collect() if row.second_wid.startswith("w2@")]
    judged = {row.msg.partition("@")[2]: (row.cause, row.evidence) for row in rows}
    assert len(judged) == len(rows)
    return judged


def test_lines_that_are_lost_are_the_cause_where_they_may_be_about_it(spark: SparkSession) -> None:
    judged = found(spark, list(SCENARIOS))
    assert {name: cause for name, (cause, _) in judged.items()} == {
        name: cause for name, (cause, *_) in SCENARIOS.items()
    }
    for name, (_, evidence, *_) in SCENARIOS.items():
        assert evidence in judged[name][1].replace(f"@{name}", ""), name
    assert {cause for cause, *_ in SCENARIOS.values()} <= set(CAUSES)


@pytest.mark.parametrize(("unheard", "cause"), [("w9", "lines-lost"), ("", "no-heartbeat")])
def test_a_worker_of_which_no_line_could_be_read_may_have_served_any_queue(
    spark: SparkSession, unheard: str, cause: str
) -> None:
    name = "stopped by itself"
    judged = found(spark, [name], *filter(None, [unheard]))
    assert judged[name][0] == cause
    assert ("lines of worker w9 are missing then" in judged[name][1]) is bool(unheard)


def test_a_worker_that_is_silent_for_long_was_killed(spark: SparkSession) -> None:
    """Even if it held nothing: it may have received something in its last second."""
    silent = worker("w3", 2) | {"wid": "w3"}
    rows = [SECOND_RECEIVE | {"first": at(3)}, SERVES | {"last_event": at(1), "ended": at(1)}]
    for heard, cause in ((800, "no-heartbeat"), (1000, "lines-lost")):
        frame = duplicates_of(
            attempts_frame(spark, *rows),
            events_frame(spark),
            workers_frame(spark, silent, worker("other", heard, stopped=True)),
            rejects_frame(spark),
        )
        assert [row.cause for row in frame.collect()] == [cause]


def test_a_large_fleets_pairs_are_not_compared_with_every_killed_worker(
    spark: SparkSession,
) -> None:
    """Thousands of workers are killed in a day, and thousands of receives are in no journal."""
    frame = duplicates_of(
        attempts_frame(spark, CUT_OFF, THIRD_RECEIVE),
        events_frame(spark),
        workers_frame(spark, worker("w1", 5), worker("other", 100, stopped=True)),
        rejects_frame(spark),
    )
    assert [row.cause for row in frame.collect()] == ["lines-lost"]
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastNestedLoopJoin BuildRight, Inner" not in plan
