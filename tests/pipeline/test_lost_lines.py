"""Duplicates whose explaining lines are lost."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.tables.duplicates import duplicates_of
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


#: Received at 0 by `w1` for 30 s, with no end in the journal.
CUT_OFF = {
    "wid": "w1", "rc": 1, "received_as": "new", "received": at(0), "started": at(0), "vt": 30,
    "ended_as": "abandoned", "last_event": at(5), "last_vt": 30,
}  # fmt: skip
DONE = CUT_OFF | {"ended_as": "deleted", "finished": at(99), "ended": at(99), "last_event": at(99)}
#: The next receive in a journal, at 40 by `w2`.
NEXT = {
    "wid": "w2", "dlv": "d2", "rc": 2, "received_as": "new", "received": at(40), "started": at(41),
    "finished": at(50), "ended": at(50), "ended_as": "deleted", "vt": 30, "last_event": at(50),
}  # fmt: skip


def worker(wid: str, last: float, *, stopped: bool = False, **fields: Any) -> Row:
    return {
        "wid": wid, "last_seen": at(last), "stopped": at(last) if stopped else None, **fields,
    }  # fmt: skip


#: By name: the cause, what its evidence has, attempts, events, workers, and who has a torn segment.
SCENARIOS: dict[str, tuple[str, str, list[Row], list[Row], list[Row], list[str]]] = {
    "its end is missing from its numbers": (
        "lines-lost",
        "lines of its worker w1 are missing from that time",
        [CUT_OFF, NEXT],
        [message("task-started", 5, seq=1), message("task-started", 90, msg="m8", seq=9)],
        [worker("w1", 90, first_seq=1, last_seq=9, lines=2)],
        [],
    ),
    "its last segment is torn": (
        "lines-lost",
        "lines of its worker w1 are missing from that time",
        [CUT_OFF, NEXT],
        [],
        [worker("w1", 5)],
        ["w1"],
    ),
    "another worker's segment is torn": (
        "died-while-running",
        "its worker w1 was silent",
        [CUT_OFF, NEXT],
        [],
        [worker("w1", 5), worker("w3", 5)],
        ["w3"],
    ),
    "another worker's numbers are missing then": (
        "died-while-running",
        "its worker w1 was silent",
        [CUT_OFF, NEXT],
        [
            message("task-started", 5, seq=1, wid="w3", msg="m9", dlv="d9"),
            message("task-started", 38, seq=9, wid="w3", msg="m9", dlv="d9"),
        ],
        [worker("w1", 5), worker("w3", 38, first_seq=1, last_seq=9, lines=2)],
        [],
    ),
    "it lived on, and lacks no line": (
        "unknown",
        "nothing in the journals",
        [CUT_OFF, NEXT],
        [],
        [worker("w1", 90)],
        [],
    ),
    "its extensions are missing from its numbers": (
        "lines-lost",
        "lines of its worker w1 are missing from that time",
        [DONE, NEXT],
        [message("task-started", 5, seq=1), message("task-started", 35, seq=9)],
        [worker("w1", 99, stopped=True, first_seq=1, last_seq=9, lines=2)],
        [],
    ),
}


def _own(row: Row, name: str) -> Row:
    """Return a row with its own texts, so that one run covers all scenarios."""
    texts = {"wid": "w1"} | ({"queue": "work", "msg": "m1", "dlv": "d1"} if "rc" in row else {})
    return row | {key: f"{text}@{name}" for key, text in (texts | row).items() if key in texts}


def test_lost_lines_are_the_cause_only_if_they_are_the_workers_own(spark: SparkSession) -> None:
    workers = [_own(row, name) for name, (*_, rows, _) in SCENARIOS.items() for row in rows]
    torn = [f"{wid}@{name}" for name, (*_, wids) in SCENARIOS.items() for wid in wids]
    frame = duplicates_of(
        attempts_frame(spark, *(_own(row, n) for n, case in SCENARIOS.items() for row in case[2])),
        events_frame(spark, *(_own(row, n) for n, case in SCENARIOS.items() for row in case[3])),
        workers_frame(spark, *workers, worker("other", 100, stopped=True)),
        rejects_frame(spark, *torn),
    )
    rows = frame.collect()
    judged = {row.msg.partition("@")[2]: row for row in rows}
    assert len(judged) == len(rows)
    assert {name: row.cause for name, row in judged.items()} == {
        name: cause for name, (cause, *_) in SCENARIOS.items()
    }
    for name, (_, evidence, *_) in SCENARIOS.items():
        assert evidence in judged[name].evidence.replace(f"@{name}", ""), name
