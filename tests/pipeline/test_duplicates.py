"""Which executions are duplicates, and the rules for their causes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

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

pytestmark = pytest.mark.thorough


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

OPTED_OUT = "proj.slow"
#: As in the first lines of workers.
TASKS = (
    "{'proj.add': Rules(visibility_timeout=None, release_delay=(1, 2), extend=None), "
    "'proj.slow': Rules(visibility_timeout=None, release_delay=None, extend=False)}"
)

Event = dict[str, Any]
CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[Event]]] = [
    ("second-delivery", {}, {"received": at(20), "started": at(20)}, []),
    (
        "released-while-running",
        {"ended_as": "released", "cause": "shutdown", "finished": at(39), "ended": at(39)},
        {},
        [],
    ),
    (
        "died-while-running",
        {"ended_as": "released", "cause": "worker died", "finished": at(39), "ended": at(39)},
        {},
        [],
    ),
    # A receive between the two that is in no journal changes nothing.
    ("died-while-running", GONE, {"rc": 3}, []),
    ("died-after-success", {**GONE, "finished": at(4)}, {}, []),
    (
        "delete-refused",
        {"ended_as": "lapsed", "cause": "delete refused", "finished": at(29), "ended": at(35)},
        {},
        [],
    ),
    ("died-while-running", GONE, {}, []),
    ("capped", {}, {}, [message("lease-capped", 20)]),
    (
        "capped",
        {},
        {},
        [
            message("lease-extended", 5, vt=30, slack_us=25 * SECOND, lat_us=20_000),
            message("lease-capped", 5),
        ],
    ),
    ("keeper-starved", {}, {}, [{"ev": "keeper-late", "ts": at(90), "late_us": 80 * SECOND}]),
    (
        "keeper-starved",
        {},
        {},
        [message("lease-extended", 35, vt=30, slack_us=-5 * SECOND, lat_us=20_000)],
    ),
    ("network", {}, {}, [message("extension-failed", 29, lat_us=5 * SECOND, err="unknown")]),
    ("sqs-errors", {}, {}, [message("extension-failed", 29, lat_us=20_000, err="throttled")]),
    ("sqs-errors", {}, {}, [message("extension-failed", 29, lat_us=20_000, err="failed")]),
    ("sqs-errors", {}, {}, [message("extension-failed", 29, lat_us=20_000, err="unsure")]),
    (
        "sqs-slow",
        {},
        {},
        [message("lease-extended", 45, vt=30, slack_us=-15 * SECOND, lat_us=25 * SECOND)],
    ),
    ("not-permitted", {}, {}, [message("extension-failed", 29, lat_us=20_000, err="denied")]),
    ("not-permitted", {}, {}, [message("extension-failed", 29, lat_us=20_000, err="no-queue")]),
    # The journal reports it for another message, and this one is not tried.
    ("not-permitted", {}, {}, [message("permission-denied", 9, msg="m9", dlv="d9", act="extend")]),
    # Of failures, the last counts.
    (
        "not-permitted",
        {},
        {},
        [
            message("extension-failed", 19, lat_us=20_000, err="unknown"),
            message("extension-failed", 29, lat_us=20_000, err="denied"),
        ],
    ),
    (
        "network",
        {},
        {},
        [
            message("extension-failed", 19, lat_us=20_000, err="denied"),
            message("extension-failed", 29, lat_us=20_000, err="unknown"),
        ],
    ),
    ("opted-out", {"task": OPTED_OUT}, {"task": OPTED_OUT}, []),
    # A worker that lists the task as opted out, but still extends it, is not the cause.
    (
        "sqs-errors",
        {"task": OPTED_OUT},
        {"task": OPTED_OUT},
        [message("extension-failed", 29, lat_us=20_000, err="failed")],
    ),
    ("unknown", {}, {}, []),
    ("unknown", {"ended_as": "lost"}, {}, []),
    ("unknown", {}, {}, [message("permission-denied", 9, act="delete")]),
    (
        "unknown",
        {},
        {},
        [
            message("permission-denied", 9, act="extend"),
            message("permission-granted", 10, act="extend"),
        ],
    ),
]


#: Only two of them were planned after the last extension in time and before the next receive.
REFUSED = {"lat_us": 20_000, "err": "throttled"}
CALLS = [
    message("extension-failed", 9, **REFUSED),
    message("lease-extended", 10, vt=30, slack_us=20 * SECOND, lat_us=20_000),
    message("extension-failed", 30, **REFUSED),
    message("extension-failed", 35, **REFUSED),
    message("lease-extended", 48, vt=30, slack_us=-8 * SECOND, lat_us=20_000),
    message("extension-failed", 49, **REFUSED),
]
HOURS = 12 * 3600

#: Attempts and events. Each has its own message and workers, so one run covers all of them.
SCENARIOS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    **{
        f"case {number}": ([FIRST | first, SECOND_RUN | second], told)
        for number, (_, first, second, told) in enumerate(CASES)
    },
    "calls": ([FIRST, SECOND_RUN | {"received": at(45), "started": at(45)}], CALLS),
    "failed": (
        [
            FIRST
            | {"ended_as": "released", "cause": "failed", "finished": at(30), "ended": at(30)},
            SECOND_RUN,
        ],
        [],
    ),
    "failed, and left to its timeout": (
        [
            FIRST | {"ended_as": "lapsed", "cause": "kept", "finished": at(30), "ended": at(30)},
            SECOND_RUN,
        ],
        [],
    ),
    "failed after a success": (
        [
            FIRST | {"finished": at(30), "ended": at(30)},
            SECOND_RUN | {"ended_as": "released", "cause": "failed"},
        ],
        [],
    ),
    "in no journal": ([SECOND_RUN, SECOND_RUN | {"msg": "m2", "dlv": "d4", "rc": 4}], []),
    "overlap": ([FIRST, SECOND_RUN], []),
    "hours": (
        [
            {**FIRST, **GONE, "vt": HOURS},
            {**SECOND_RUN, "received": at(HOURS + 5), "started": at(HOURS + 6), "finished": None},
        ],
        [message("lease-extended", 1, vt=HOURS, slack_us=SECOND, lat_us=20_000)],
    ),
    "a thousand": (
        [
            {**FIRST, "dlv": f"d{n}", "rc": n, "wid": f"w{n}", "received": at(n), "started": at(n)}
            for n in range(1, 1001)
        ],
        [],
    ),
}


#: Duplicates whose explaining lines may be lost: the cause, the first execution, events, the lines
#: of workers, and whose segment is torn.
LOST: dict[str, tuple[str, dict[str, Any], list[Event], list[dict[str, Any]], list[str]]] = {
    "its end is missing from its numbers": (
        "lines-lost",
        GONE,
        [message("task-started", 5, seq=1), message("task-started", 90, seq=9)],
        [{"last_seen": at(90), "first_seq": 1, "last_seq": 9, "lines": 2}],
        [],
    ),
    "its last segment is torn": ("lines-lost", GONE, [], [{"last_seen": at(5)}], ["w1"]),
    "another worker's segment is torn": (
        "died-while-running",
        GONE,
        [],
        [{"last_seen": at(5)}, {"wid": "w3", "last_seen": at(5)}],
        ["w3"],
    ),
    "another worker's numbers are missing then": (
        "died-while-running",
        GONE,
        [
            message("task-started", 5, seq=1, wid="w3", dlv="d9"),
            message("task-started", 38, seq=9, wid="w3", dlv="d9"),
        ],
        [
            {"last_seen": at(5)},
            {"wid": "w3", "last_seen": at(38), "first_seq": 1, "last_seq": 9, "lines": 2},
        ],
        [],
    ),
    "it lived on, and lacks no line": ("unknown", GONE, [], [{"last_seen": at(90)}], []),
    "its extensions are missing from its numbers": (
        "lines-lost",
        {},
        [message("task-started", 5, seq=1), message("task-started", 35, seq=9)],
        [{"last_seen": at(99), "stopped": at(99), "first_seq": 1, "last_seq": 9, "lines": 2}],
        [],
    ),
}
SCENARIOS |= {
    name: ([FIRST | first, SECOND_RUN], told) for name, (_, first, told, *_) in LOST.items()
}


def _own(row: dict[str, Any], name: str) -> dict[str, Any]:
    texts = {"wid": "w1", "msg": "m1", "dlv": "d1"} | row
    return row | {key: f"{texts[key]}@{name}" for key in ("wid", "msg", "dlv")}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, list[Row]]:
    """Return the duplicates of each scenario."""
    attempts = [_own(row, name) for name, (rows, _) in SCENARIOS.items() for row in rows]
    events = [_own(row, name) for name, (_, rows) in SCENARIOS.items() for row in rows]
    # The end of the data, and the settings of the first worker of each pair.
    workers = [
        {"wid": "other", "last_seen": at(2 * HOURS), "stopped": at(2 * HOURS)},
        *({"wid": f"w1@{name}", "settings": {"tasks": TASKS}} for name in SCENARIOS),
        *(
            {**row, "wid": f"{row.get('wid', 'w1')}@{name}"}
            for name, (*_, rows, _) in LOST.items()
            for row in rows
        ),
    ]
    torn = [f"{wid}@{name}" for name, (*_, wids) in LOST.items() for wid in wids]
    frame = duplicates_of(
        attempts_frame(spark, *attempts),
        events_frame(spark, *events),
        workers_frame(spark, *workers),
        rejects_frame(spark, *torn),
    )
    rows: dict[str, list[Row]] = {name: [] for name in SCENARIOS}
    for row in frame.collect():
        rows[row.msg.partition("@")[2]].append(row)
    return rows


def test_the_first_rule_that_holds_names_the_cause(found: dict[str, list[Row]]) -> None:
    for number, (cause, *_) in enumerate(CASES):
        rows = [row for row in found[f"case {number}"] if row.second_wid.startswith("w2@")]
        assert [row.cause for row in rows] == [cause]
        assert rows[0].evidence


def test_lost_lines_are_the_cause_only_if_they_are_the_workers_own(
    found: dict[str, list[Row]],
) -> None:
    causes = {name: [row.cause for row in found[name]] for name in LOST}
    assert causes == {name: [cause] for name, (cause, *_) in LOST.items()}
    assert "lines of its worker w1@" in found["its last segment is torn"][0].evidence


def test_only_calls_since_the_last_extension_in_time_and_before_the_next_receive_count(
    found: dict[str, list[Row]],
) -> None:
    assert [(row.cause, row.evidence) for row in found["calls"]] == [
        (
            "sqs-errors",
            "SQS answered 2 calls with errors since the last extension, 2 of them throttled",
        )
    ]


def test_one_call_is_not_many(found: dict[str, list[Row]]) -> None:
    evidence = [row.evidence for name, rows in found.items() for row in rows if "case" in name]
    assert "SQS did not answer 1 call since the last extension" in evidence
    assert "SQS refused 1 call to extend it: not permitted" in evidence
    assert not [each for each in evidence if "1 calls" in each]


def test_an_execution_after_one_that_failed_is_no_duplicate(found: dict[str, list[Row]]) -> None:
    assert found["failed"] == []
    assert found["failed, and left to its timeout"] == []


def test_a_receive_that_is_in_no_journal_is_no_execution(found: dict[str, list[Row]]) -> None:
    assert found["in no journal"] == []


def test_an_execution_after_one_that_succeeded_is_a_duplicate_though_it_fails(
    found: dict[str, list[Row]],
) -> None:
    (row,) = found["failed after a success"]
    assert (row.overlap_us, row.both_succeeded) == (0, False)


def test_the_overlap_is_the_time_in_which_both_ran(found: dict[str, list[Row]]) -> None:
    assert [(row.overlap_us, row.both_succeeded) for row in found["overlap"]] == [
        (9 * SECOND, True)
    ]


def test_a_timeout_of_twelve_hours_is_no_more_than_a_number(found: dict[str, list[Row]]) -> None:
    assert [row.cause for row in found["hours"]] == ["died-while-running"]


def test_a_message_received_a_thousand_times_is_one_pair_for_each_next_one(
    found: dict[str, list[Row]],
) -> None:
    assert len(found["a thousand"]) == 999
