"""Which message stopped its group, for how long, and what waited behind it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from celery_sqs_heartbeat.pipeline.tables.group_stops import group_stops_of
from tests.pipeline.builders import DAY, SECOND, attempts_frame, workers_frame

pytestmark = pytest.mark.thorough

Attempt = dict[str, Any]
#: When a stop began and ended, for how long it was, and how many messages waited.
Stop = tuple[float, float | None, float, int]

QUEUE = "orders.fifo"
END = 1_000.0


def at(seconds: float) -> int:
    return DAY + round(seconds * SECOND)


def attempt(begin: float, end: float, ended_as: str = "released", **values: Any) -> Attempt:
    """Return an attempt of message `m1` of group `A`, whose task ran all the time."""
    rc = values.get("rc", 1)
    msg = values.get("msg", "m1")
    return {
        "queue": QUEUE,
        "grp": "A",
        "msg": msg,
        "rc": rc,
        "dlv": f"{msg}-{rc}",
        "task_id": f"t-{msg}",
        "received": at(begin),
        "started": at(begin),
        "finished": None if ended_as == "abandoned" else at(end),
        "ended": None if ended_as in ("abandoned", "running") else at(end),
        "last_event": at(end),
        "ended_as": ended_as,
        "cause": "failed" if ended_as == "released" else None,
        "last_vt": 5,
        **values,
    }


def waits(begin: float, end: float, msg: str, **values: Any) -> Attempt:
    """Return an attempt that was released because its group was stopped."""
    return attempt(begin, end, msg=msg, cause="group stopped", started=None, **values)


#: The end of an attempt, and whether it stops its group.
STOPPING: list[tuple[str, Attempt, bool]] = [
    ("failed", {"cause": "failed"}, True),
    ("failed, before it started", {"cause": "failed", "started": None}, True),
    ("given back by kombu's policy", {"cause": "backoff policy"}, True),
    ("the delete was refused", {"cause": "delete refused"}, True),
    ("cut off", {"cause": "cancelled"}, True),
    ("a cause of the user's", {"cause": "other"}, True),
    ("its worker died", {"cause": "worker died"}, True),
    ("its worker died, and it waited", {"cause": "worker died", "started": None}, False),
    ("left to its timeout", {"ended_as": "lapsed", "cause": None, "started": None}, True),
    ("left to its timeout at the end", {"ended_as": "lapsed", "cause": "shutdown"}, False),
    ("left to its timeout by its policy", {"ended_as": "lapsed", "cause": "kept"}, True),
    ("nothing is known of its end", {"ended_as": "abandoned", "cause": None}, True),
    ("lost while it waited", {"ended_as": "lost", "cause": None, "started": None}, False),
    ("lost", {"ended_as": "lost", "cause": None}, True),
    ("capped", {"ended_as": "capped", "cause": None}, True),
    ("waited behind another", {"cause": "group stopped", "started": None}, False),
    ("waited for too long", {"cause": "waited long", "started": None}, False),
    ("found no room to wait", {"cause": "no room to wait", "started": None}, False),
    ("asked for it", {"cause": "asked by task"}, True),
    ("is retried", {"cause": "retried"}, True),
    ("not due yet", {"cause": "due later", "started": None}, False),
    ("a cold shutdown", {"cause": "shutdown"}, False),
    ("a connection lost", {"cause": "consumer closed", "started": None}, False),
    ("not delivered", {"cause": "not delivered", "started": None}, False),
    ("it still runs", {"ended_as": "running", "cause": None}, False),
    ("deleted at once", {"ended_as": "deleted", "cause": None}, False),
    ("no group", {"grp": None}, False),
    ("a fair queue's group", {"queue": "tenants"}, False),
]

#: Attempts, the outcome of each message that stopped its group, and its stop.
SCENARIOS: dict[str, tuple[list[Attempt], list[tuple[str, Stop]]]] = {
    "succeeds at last": (
        [
            attempt(10, 12),
            attempt(17, 19, rc=2),
            attempt(24, 30, "deleted", rc=3),
            attempt(31, 32, "deleted", msg="m2"),
        ],
        [("succeeded", (12, 30, 18, 0))],
    ),
    "others wait, each once, for the stop that they waited in": (
        [
            # For m1.
            attempt(10, 12),
            waits(10, 12, "m2"),
            waits(10, 12, "m3"),
            attempt(17, 19, rc=2),
            waits(17, 19, "m2", rc=2),
            attempt(24, 30, "deleted", rc=3),
            # For m2, which was received with m3.
            attempt(31, 33, msg="m2", rc=3),
            waits(31, 33, "m3", rc=2),
            attempt(40, 41, "deleted", msg="m2", rc=4),
            attempt(42, 43, "deleted", msg="m3", rc=3),
            # For none that is known.
            waits(50, 51, "m5"),
            waits(17, 19, "m6", grp="B"),
            waits(17, 19, "m7", queue="other.fifo"),
        ],
        [("succeeded", (12, 30, 18, 2)), ("succeeded", (33, 41, 8, 1))],
    ),
    "an orderly end before": (
        [
            attempt(1, 2, cause="shutdown"),
            attempt(10, 12, rc=2),
            attempt(20, 21, "deleted", rc=3),
        ],
        [("succeeded", (12, 21, 9, 0))],
    ),
    "a dead letter": (
        [
            attempt(10, 12, max_rc=2),
            waits(10, 12, "m2"),
            attempt(17, 19, rc=2, max_rc=2),
            attempt(24.5, 25, "deleted", msg="m2", rc=2),
            attempt(26, 27, "deleted", msg="m3"),
        ],
        [("dead letter", (12, 24.5, 12.5, 1))],
    ),
    # SQS moves it after its delay, when the queue is polled again.
    "a dead letter alone": ([attempt(10, 12, max_rc=1)], [("dead letter", (12, None, 5, 0))]),
    "not seen again": ([attempt(10, 12, max_rc=3)], [("unknown", (12, None, END - 12, 0))]),
    "runs again": (
        [attempt(10, 12, max_rc=3), attempt(17, 40, "running", rc=2)],
        [("unknown", (12, None, END - 12, 0))],
    ),
    # A later message shows that it is gone: a worker without a journal may have deleted it. One
    # received with it shows nothing.
    "gone": (
        [
            attempt(10, 12),
            waits(10, 12, "m2"),
            waits(13, 14, "m5"),
            attempt(60, 61, "deleted", msg="m2", rc=2),
            attempt(62, 63, "deleted", msg="m3"),
            attempt(20, 21, "deleted", msg="m4", grp="B"),
        ],
        [("unknown", (12, 60, 48, 2))],
    ),
    "a receive was not read": (
        [attempt(10, 12, grp=None), attempt(17, 19, "deleted", rc=2)],
        [("succeeded", (12, 19, 7, 0))],
    ),
}
ALL = {
    **{name: [attempt(10, 12, **values)] for name, values, _ in STOPPING},
    **{name: attempts for name, (attempts, _) in SCENARIOS.items()},
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, list[Row]]:
    """Return the stops of all scenarios, made at once, in the order of time."""
    attempts = [
        row | {"msg": f"{row['msg']}/{scenario}", "grp": row["grp"] and f"{row['grp']}/{scenario}"}
        for scenario, rows in ALL.items()
        for row in rows
    ]
    workers = workers_frame(spark, {"last_seen": at(END)})
    rows = group_stops_of(attempts_frame(spark, *attempts), workers).collect()
    stops: dict[str, list[Row]] = {scenario: [] for scenario in ALL}
    for row in sorted(rows, key=lambda row: int(row.stopped_at)):
        stops[row.msg.partition("/")[2]].append(row)
    return stops


@pytest.mark.parametrize(("name", "is_stop"), [(name, it) for name, _, it in STOPPING])
def test_a_failure_stops_a_group_and_an_orderly_end_does_not(
    found: dict[str, list[Row]], name: str, is_stop: bool
) -> None:
    assert len(found[name]) == is_stop


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_stop_lasts_until_the_delete_or_the_next_message_of_the_group(
    found: dict[str, list[Row]], scenario: str
) -> None:
    rows = found[scenario]
    assert [row.grp for row in rows] == [f"A/{scenario}"] * len(rows)
    assert [
        (row.outcome, row.stopped_at, row.resumed_at, row.seconds, row.waiting) for row in rows
    ] == [
        (outcome, at(begin), None if end is None else at(end), seconds, waiting)
        for outcome, (begin, end, seconds, waiting) in SCENARIOS[scenario][1]
    ]
