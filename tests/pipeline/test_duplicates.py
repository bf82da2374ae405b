"""Which executions are duplicates, and the rules for their causes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row, SparkSession

from celery_sqs_heartbeat.pipeline.tables.duplicates import CAUSES, duplicates_of
from tests.pipeline.builders import (
    DAY,
    SECOND,
    attempts_frame,
    events_frame,
    message,
    rejects_frame,
    workers_frame,
)

pytestmark = pytest.mark.thorough

Fields = dict[str, Any]
HOURS = 12 * 3600
#: As in the first lines of workers.
TASKS = (
    "{'proj.add': Rules(visibility_timeout=None, release_delay=(1, 2), extend=None), "
    "'proj.slow': Rules(visibility_timeout=None, release_delay=None, extend=False)}"
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
SLOW = {"task": "proj.slow"}


class Case(NamedTuple):
    """Two executions, the journals about them, and the cause; empty if they are no duplicate.

    Attributes:
        torn: Workers of which a segment is torn.
    """

    cause: str
    attempts: list[Fields]
    events: tuple[Fields, ...]
    workers: tuple[Fields, ...]
    torn: tuple[str, ...]


def case(
    cause: str,
    /,
    *events: Fields,
    second: Fields | None = None,
    workers: tuple[Fields, ...] = (),
    torn: tuple[str, ...] = (),
    **first: Any,
) -> Case:
    return Case(cause, [FIRST | first, SECOND_RUN | (second or {})], events, workers, torn)


def ended(ended_as: str, cause: str, second: float = 39) -> Fields:
    times = {"finished": at(second), "ended": at(second), "last_event": at(second)}
    return {"ended_as": ended_as, "cause": cause, **times}


def failed(second: float, err: str) -> Fields:
    return message("extension-failed", second, lat_us=20_000, err=err)


def extended(second: float, slack: float, lat_us: int = 20_000, vt: int = 30) -> Fields:
    return message("lease-extended", second, vt=vt, slack_us=slack * SECOND, lat_us=lat_us)


def lines(wid: str, last: float, *, missing: bool = False, stopped: bool = False) -> Fields:
    """Return what is known of a worker: until when it wrote, and whether lines are missing."""
    numbers = {"first_seq": 1, "last_seq": 9, "lines": 2} if missing else {}
    return {"wid": wid, "last_seen": at(last), "stopped": at(last) if stopped else None, **numbers}


def hole(begin: float, end: float, **fields: Any) -> tuple[Fields, Fields]:
    """Return the lines before and after missing ones."""
    return (
        message("task-started", begin, seq=1, **fields),
        message("task-started", end, seq=9, **fields),
    )


CASES: dict[str, Case] = {
    "again early": case("second-delivery", second={"received": at(20), "started": at(20)}),
    "released": case("released-while-running", **ended("released", "shutdown")),
    "killed, and released": case("died-while-running", **ended("released", "worker died")),
    "killed": case("died-while-running", **GONE),
    "killed, then a receive that is in no journal": case(
        "died-while-running", second={"rc": 3}, **GONE
    ),
    "killed after its end": case("died-after-success", **GONE | {"finished": at(4)}),
    "refused": case("delete-refused", **ended("lapsed", "delete refused", 35)),
    "capped": case("capped", message("lease-capped", 20)),
    "extended and capped at once": case("capped", extended(5, 25), message("lease-capped", 5)),
    "late keeper": case(
        "keeper-starved", {"ev": "keeper-late", "ts": at(90), "late_us": 80 * SECOND}
    ),
    "late extension": case("keeper-starved", extended(35, -5)),
    "no answer": case("network", failed(29, "unknown")),
    "throttled": case("sqs-errors", failed(29, "throttled")),
    "failed call": case("sqs-errors", failed(29, "failed")),
    "unsure": case("sqs-errors", failed(29, "unsure")),
    "slow": case("sqs-slow", extended(45, -15, 25 * SECOND)),
    "denied": case("not-permitted", failed(29, "denied")),
    "no queue": case("not-permitted", failed(29, "no-queue")),
    # The journal reports it for another message, and this one is not tried.
    "denied to another message": case(
        "not-permitted", message("permission-denied", 9, msg="m9", dlv="d9", act="extend")
    ),
    # Of failures, the last counts.
    "denied at last": case("not-permitted", failed(19, "unknown"), failed(29, "denied")),
    "no answer at last": case("network", failed(19, "denied"), failed(29, "unknown")),
    "opted out": case("opted-out", second=SLOW, **SLOW),
    # A worker that lists the task as opted out, but still extends it, is not the cause.
    "opted out, and extended": case("sqs-errors", failed(29, "failed"), second=SLOW, **SLOW),
    "nothing known": case("unknown"),
    "lost": case("unknown", ended_as="lost"),
    "delete denied": case("unknown", message("permission-denied", 9, act="delete")),
    "granted again": case(
        "unknown",
        message("permission-denied", 9, act="extend"),
        message("permission-granted", 10, act="extend"),
    ),
    # Two were planned after the last extension in time and before the next receive.
    "calls": case(
        "sqs-errors",
        failed(9, "throttled"),
        extended(10, 20),
        failed(30, "throttled"),
        failed(35, "throttled"),
        extended(48, -8),
        failed(49, "throttled"),
        second={"received": at(45), "started": at(45)},
    ),
    "a timeout of twelve hours": case(
        "died-while-running",
        extended(1, 1, vt=HOURS),
        second={"received": at(HOURS + 5), "started": at(HOURS + 6), "finished": None},
        **GONE | {"vt": HOURS},
    ),
    "its end is missing from its numbers": case(
        "lines-lost", *hole(5, 90), workers=(lines("w1", 90, missing=True),), **GONE
    ),
    "its extensions are missing from its numbers": case(
        "lines-lost", *hole(5, 35), workers=(lines("w1", 99, missing=True, stopped=True),)
    ),
    "its last segment is torn": case("lines-lost", workers=(lines("w1", 5),), torn=("w1",), **GONE),
    "another worker's segment is torn": case(
        "died-while-running", workers=(lines("w1", 5), lines("w3", 5)), torn=("w3",), **GONE
    ),
    "another worker's numbers are missing then": case(
        "died-while-running",
        *hole(5, 38, wid="w3", dlv="d9"),
        workers=(lines("w1", 5), lines("w3", 38, missing=True)),
        **GONE,
    ),
    "it lived on, and lacks no line": case("unknown", workers=(lines("w1", 90),), **GONE),
    "a retry": case("", **ended("released", "failed", 30)),
    "a retry after its timeout": case("", **ended("lapsed", "kept", 30)),
    "failed after a success": case(
        "unknown",
        second={"ended_as": "released", "cause": "failed"},
        **ended("deleted", "", 30),
    ),
}
EVIDENCE = {
    "calls": "SQS answered 2 calls with errors since the last extension, 2 of them throttled",
    "no answer": "SQS did not answer 1 call since the last extension",
    "denied": "SQS refused 1 call to extend it: not permitted",
    "denied to another message": "SQS refused 0 calls to extend it: not permitted; it refused them "
    "for the whole queue from 31.0 s before the next receive",
    "again early": "received again 10.0 s before the lease could end",
    "its last segment is torn": "lines of its worker w1@its last segment is torn are missing from "
    "that time",
}


def own(row: Fields, name: str) -> Fields:
    texts = {"wid": "w1", "msg": "m1", "dlv": "d1"} | row
    return row | {key: f"{texts[key]}@{name}" for key in ("wid", "msg", "dlv")}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, list[Row]]:
    """Return the duplicates of each case. Each has its own message and workers."""
    attempts = [own(row, name) for name, case in CASES.items() for row in case.attempts]
    events = [own(row, name) for name, case in CASES.items() for row in case.events]
    # The end of the data, and the settings of the first worker of each pair.
    workers = [
        {"wid": "other", "last_seen": at(2 * HOURS), "stopped": at(2 * HOURS)},
        *({"wid": f"w1@{name}", "settings": {"tasks": TASKS}} for name in CASES),
        *(
            row | {"wid": f"{row['wid']}@{name}"}
            for name, case in CASES.items()
            for row in case.workers
        ),
    ]
    torn = [f"{wid}@{name}" for name, case in CASES.items() for wid in case.torn]
    frame = duplicates_of(
        attempts_frame(spark, *attempts),
        events_frame(spark, *events),
        workers_frame(spark, *workers),
        rejects_frame(spark, *torn),
    )
    rows: dict[str, list[Row]] = {name: [] for name in CASES}
    for row in frame.collect():
        rows[row.msg.partition("@")[2]].append(row)
    return rows


@pytest.mark.parametrize("name", CASES)
def test_the_first_rule_that_holds_names_the_cause(found: dict[str, list[Row]], name: str) -> None:
    """An execution after one that failed is no duplicate."""
    assert [row.cause for row in found[name]] == ([CASES[name].cause] if CASES[name].cause else [])


def test_each_cause_has_a_case() -> None:
    assert {each.cause for each in CASES.values()} - {""} == set(CAUSES)


@pytest.mark.parametrize("name", EVIDENCE)
def test_the_evidence_counts_only_what_shows_the_cause(
    found: dict[str, list[Row]], name: str
) -> None:
    assert [row.evidence for row in found[name]] == [EVIDENCE[name]]


def test_the_overlap_is_the_time_in_which_both_ran(found: dict[str, list[Row]]) -> None:
    values = {name: [(row.overlap_us, row.both_succeeded) for row in found[name]] for name in found}
    assert values["nothing known"] == [(9 * SECOND, True)]
    assert values["failed after a success"] == [(0, False)]
    assert values["killed"] == [(None, False)]
