"""Which executions are duplicates, and the rules for their causes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

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
from tests.support.golden import golden

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
    """Two executions, and the journals about them.

    Attributes:
        torn: Workers of which a segment is torn.
    """

    attempts: list[Fields]
    events: tuple[Fields, ...]
    workers: tuple[Fields, ...]
    torn: tuple[str, ...]


def case(
    *events: Fields,
    second: Fields | None = None,
    workers: tuple[Fields, ...] = (),
    torn: tuple[str, ...] = (),
    **first: Any,
) -> Case:
    return Case([FIRST | first, SECOND_RUN | (second or {})], events, workers, torn)


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
    "again early": case(second={"received": at(20), "started": at(20)}),
    "released": case(**ended("released", "shutdown")),
    "killed, and released": case(**ended("released", "worker died")),
    "killed": case(**GONE),
    "killed, then a receive that is in no journal": case(second={"rc": 3}, **GONE),
    "killed after its end": case(**GONE | {"finished": at(4)}),
    "refused": case(**ended("lapsed", "delete refused", 35)),
    "capped": case(message("lease-capped", 20)),
    "extended and capped at once": case(extended(5, 25), message("lease-capped", 5)),
    "late keeper": case({"ev": "keeper-late", "ts": at(90), "late_us": 80 * SECOND}),
    "late extension": case(extended(35, -5)),
    "no answer": case(failed(29, "unknown")),
    "throttled": case(failed(29, "throttled")),
    "failed call": case(failed(29, "failed")),
    "unsure": case(failed(29, "unsure")),
    "slow": case(extended(45, -15, 25 * SECOND)),
    "denied": case(failed(29, "denied")),
    "no queue": case(failed(29, "no-queue")),
    # The journal reports it for another message, and this one is not tried.
    "denied to another message": case(
        message("permission-denied", 9, msg="m9", dlv="d9", act="extend")
    ),
    # Of failures, the last counts.
    "denied at last": case(failed(19, "unknown"), failed(29, "denied")),
    "no answer at last": case(failed(19, "denied"), failed(29, "unknown")),
    "opted out": case(second=SLOW, **SLOW),
    # A worker that lists the task as opted out, but still extends it, is not the cause.
    "opted out, and extended": case(failed(29, "failed"), second=SLOW, **SLOW),
    "nothing known": case(),
    "lost": case(ended_as="lost"),
    "delete denied": case(message("permission-denied", 9, act="delete")),
    "granted again": case(
        message("permission-denied", 9, act="extend"),
        message("permission-granted", 10, act="extend"),
    ),
    # Two were planned after the last extension in time and before the next receive.
    "calls": case(
        failed(9, "throttled"),
        extended(10, 20),
        failed(30, "throttled"),
        failed(35, "throttled"),
        extended(48, -8),
        failed(49, "throttled"),
        second={"received": at(45), "started": at(45)},
    ),
    "a timeout of twelve hours": case(
        extended(1, 1, vt=HOURS),
        second={"received": at(HOURS + 5), "started": at(HOURS + 6), "finished": None},
        **GONE | {"vt": HOURS},
    ),
    "its end is missing from its numbers": case(
        *hole(5, 90), workers=(lines("w1", 90, missing=True),), **GONE
    ),
    "its extensions are missing from its numbers": case(
        *hole(5, 35), workers=(lines("w1", 99, missing=True, stopped=True),)
    ),
    "its last segment is torn": case(workers=(lines("w1", 5),), torn=("w1",), **GONE),
    "another worker's segment is torn": case(
        workers=(lines("w1", 5), lines("w3", 5)), torn=("w3",), **GONE
    ),
    "another worker's numbers are missing then": case(
        *hole(5, 38, wid="w3", dlv="d9"),
        workers=(lines("w1", 5), lines("w3", 38, missing=True)),
        **GONE,
    ),
    "it lived on, and lacks no line": case(workers=(lines("w1", 90),), **GONE),
    "a retry": case(**ended("released", "failed", 30)),
    "a retry after its timeout": case(**ended("lapsed", "kept", 30)),
    "failed after a success": case(
        second={"ended_as": "released", "cause": "failed"},
        **ended("deleted", "", 30),
    ),
}


def own(row: Fields, name: str) -> Fields:
    texts = {"wid": "w1", "msg": "m1", "dlv": "d1"} | row
    return row | {key: f"{texts[key]}@{name}" for key in ("wid", "msg", "dlv")}


def test_the_first_rule_that_holds_names_the_cause_and_its_evidence(spark: SparkSession) -> None:
    """Each case has its own message and workers. After a failed execution there is no duplicate."""
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
    rows = duplicates_of(
        attempts_frame(spark, *attempts),
        events_frame(spark, *events),
        workers_frame(spark, *workers),
        rejects_frame(spark, *torn),
    ).collect()
    found: dict[str, list[str]] = {name: [] for name in CASES}
    for row in rows:
        overlap = "?" if row.overlap_us is None else f"{row.overlap_us / SECOND:g}"
        evidence = row.evidence.replace(f"@{row.msg.partition('@')[2]}", "")
        said = f"{row.cause}, together for {overlap} s, both succeeded: {row.both_succeeded}"
        found[row.msg.partition("@")[2]].append(f"{said}: {evidence}")
    lines = [f"{name}: {'; '.join(each) or 'no duplicate'}\n" for name, each in found.items()]
    golden("duplicates.txt", "".join(lines))
    assert {row.cause for row in rows} == set(CAUSES)
