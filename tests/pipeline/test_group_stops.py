"""Which message stopped its group, for how long, and what waited behind it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.tables.group_stops import group_stops_of
from tests.pipeline.builders import DAY, SECOND, attempts_frame, workers_frame
from tests.support.golden import golden

pytestmark = pytest.mark.thorough

Attempt = dict[str, Any]
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


#: The end of an attempt that stops its group, or does not.
STOPPING: dict[str, Attempt] = {
    "failed": {"cause": "failed"},
    "failed, before it started": {"cause": "failed", "started": None},
    "given back by kombu's policy": {"cause": "backoff policy"},
    "the delete was refused": {"cause": "delete refused"},
    "cut off": {"cause": "cancelled"},
    "a cause of the user's": {"cause": "other"},
    "its worker died": {"cause": "worker died"},
    "its worker died, and it waited": {"cause": "worker died", "started": None},
    "left to its timeout": {"ended_as": "lapsed", "cause": None, "started": None},
    "left to its timeout at the end": {"ended_as": "lapsed", "cause": "shutdown"},
    "left to its timeout by its policy": {"ended_as": "lapsed", "cause": "kept"},
    "nothing is known of its end": {"ended_as": "abandoned", "cause": None},
    "lost while it waited": {"ended_as": "lost", "cause": None, "started": None},
    "lost": {"ended_as": "lost", "cause": None},
    "capped": {"ended_as": "capped", "cause": None},
    "waited behind another": {"cause": "group stopped", "started": None},
    "waited for too long": {"cause": "waited long", "started": None},
    "found no room to wait": {"cause": "no room to wait", "started": None},
    "asked for it": {"cause": "asked by task"},
    "is retried": {"cause": "retried"},
    "not due yet": {"cause": "due later", "started": None},
    "a cold shutdown": {"cause": "shutdown"},
    "a connection lost": {"cause": "consumer closed", "started": None},
    "not delivered": {"cause": "not delivered", "started": None},
    "it still runs": {"ended_as": "running", "cause": None},
    "deleted at once": {"ended_as": "deleted", "cause": None},
    "no group": {"grp": None},
    "a fair queue's group": {"queue": "tenants"},
}

SCENARIOS: dict[str, list[Attempt]] = {
    "succeeds at last": [
        attempt(10, 12),
        attempt(17, 19, rc=2),
        attempt(24, 30, "deleted", rc=3),
        attempt(31, 32, "deleted", msg="m2"),
    ],
    "others wait, each once, for the stop that they waited in": [
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
    "an orderly end before": [
        attempt(1, 2, cause="shutdown"),
        attempt(10, 12, rc=2),
        attempt(20, 21, "deleted", rc=3),
    ],
    "a dead letter": [
        attempt(10, 12, max_rc=2),
        waits(10, 12, "m2"),
        attempt(17, 19, rc=2, max_rc=2),
        attempt(24.5, 25, "deleted", msg="m2", rc=2),
        attempt(26, 27, "deleted", msg="m3"),
    ],
    # SQS moves it after its delay, when the queue is polled again.
    "a dead letter alone": [attempt(10, 12, max_rc=1)],
    "not seen again": [attempt(10, 12, max_rc=3)],
    "runs again": [attempt(10, 12, max_rc=3), attempt(17, 40, "running", rc=2)],
    # A later message shows that it is gone: a worker without a journal may have deleted it. One
    # received with it shows nothing.
    "gone": [
        attempt(10, 12),
        waits(10, 12, "m2"),
        waits(13, 14, "m5"),
        attempt(60, 61, "deleted", msg="m2", rc=2),
        attempt(62, 63, "deleted", msg="m3"),
        attempt(20, 21, "deleted", msg="m4", grp="B"),
    ],
    "a receive was not read": [attempt(10, 12, grp=None), attempt(17, 19, "deleted", rc=2)],
}


def test_which_message_stops_its_group_and_for_how_long(spark: SparkSession) -> None:
    """All scenarios are made at once. Each has its own groups and messages."""
    scenarios = {**SCENARIOS, **{name: [attempt(10, 12, **it)] for name, it in STOPPING.items()}}
    attempts = [
        row | {"msg": f"{row['msg']}/{scenario}", "grp": row["grp"] and f"{row['grp']}/{scenario}"}
        for scenario, rows in scenarios.items()
        for row in rows
    ]
    workers = workers_frame(spark, {"last_seen": at(END)})
    rows = group_stops_of(attempts_frame(spark, *attempts), workers).collect()
    stops: dict[str, list[str]] = {scenario: [] for scenario in scenarios}
    for row in sorted(rows, key=lambda row: int(row.stopped_at)):
        group, _, scenario = row.grp.partition("/")
        message = row.msg.partition("/")[0]
        resumed = "the end" if row.resumed_at is None else seconds(row.resumed_at)
        stops[scenario].append(
            f"{message} of {group}: {row.outcome}, from {seconds(row.stopped_at)} to {resumed}, "
            f"{row.seconds:g} s, {row.waiting} waited"
        )
    lines = [f"{scenario}: {'; '.join(each) or 'none'}\n" for scenario, each in stops.items()]
    golden("group_stops.txt", "".join(lines))


def seconds(at: int) -> str:
    return f"{(at - DAY) / SECOND:g}"
