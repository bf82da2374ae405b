"""How each receive ended, and how long after it the message was received again.

`test_referee` compares all columns of attempts with those of another implementation.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

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
from tests.support.golden import golden

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

#: What follows a receive at 1 s: the events of its end.
ENDS: dict[str, list[Fields]] = {
    "deleted": [STARTED, deleted(9)],
    "deleted after a loss": [STARTED, message("lease-lost", 5), deleted(9)],
    "deleted after the cap": [STARTED, message("lease-capped", 5), deleted(9)],
    "released": [STARTED, message("message-released", 9, cause="failed", ended_us=1)],
    "left to lapse": [STARTED, message("message-lapsing", 9, cause="failed", ended_us=1)],
    "its delete is given up": [STARTED, message("delete-abandoned", 9, ended_us=1)],
    "lost": [STARTED, message("lease-lost", 5)],
    "capped": [STARTED, message("lease-capped", 5)],
    "capped, then lost": [STARTED, message("lease-capped", 5), message("lease-lost", 6)],
    "received again": [STARTED, received(7, **SAME)],
    "received again after a loss": [STARTED, message("lease-lost", 5), received(7, **SAME)],
    "received again at its end": [STARTED, received(7, **SAME | {"cause": "finished"})],
    "received by another": [STARTED, HEARD, AGAIN],
    "received as a new one": [STARTED, HEARD, received(7, **SAME | {"cause": "new"})],
    "its worker stopped": [STARTED, {"ev": "worker-stopped", "ts": at(99)}],
    "its worker is silent": [STARTED, SILENT],
    # Its lease may last for longer than its worker has been silent.
    "silent, with a long lease": [STARTED, message("lease-extended", 20, vt=43_200), SILENT],
    "running": [STARTED, HEARD],
}
SCENARIOS: dict[str, list[Fields]] = {
    **{name: [received(1), *rows] for name, rows in ENDS.items()},
    # A task is measured once, from its start to its end.
    "continued twice": [
        received(1),
        STARTED,
        received(40, **SAME),
        received(80, dlv="d3", rc=3, cause="redelivered"),
        deleted(91, dlv="d3", rc=3),
    ],
    "received after its delete": [
        received(1),
        STARTED,
        deleted(9),
        received(40, dlv="d2", rc=2, cause="finished", ended_us=0),
        deleted(41, dlv="d2", rc=2),
    ],
    "its delete is not confirmed": [
        received(1),
        STARTED,
        message("delete-failed", 10, ended_us=2 * SECOND, err="failed"),
        received(40, dlv="d2", rc=2, cause="finished", ended_us=32 * SECOND),
        deleted(41, dlv="d2", rc=2, ended_us=33 * SECOND),
    ],
    # It is guessed from the others.
    "without the line of its receive": [
        message("lease-extended", 21, held_us=20 * SECOND),
        deleted(30),
    ],
}


def seconds(at: int | None) -> str:
    return "?" if at is None else f"{(at - DAY) / SECOND:g}"


def test_each_way_to_end(spark: SparkSession) -> None:
    """All scenarios are made at once. Each has its own message and workers."""
    events = [
        event
        | {key: f"{event[key]}/{name}" for key in ("msg", "dlv") if key in event}
        | {"wid": f"{event.get('wid', 'w1')}/{name}"}
        for name, scenario in SCENARIOS.items()
        for event in scenario
    ]
    frame = events_frame(spark, *events)
    found: dict[str, list[str]] = {name: [] for name in SCENARIOS}
    for row in attempts_of(frame, workers_of(frame)).orderBy("dlv").collect():
        run = "" if row.run_us is None else f", ran {row.run_us / SECOND:g} s"
        times = f"{seconds(row.received)} to {seconds(row.ended)}"
        said = f"{row.ended_as} ({row.received_as}, {times}{run})"
        found[row.dlv.partition("/")[2]].append(said)
    golden("attempts.txt", "".join(f"{name}: {'; '.join(it)}\n" for name, it in found.items()))


FIRST = {"received": at(0), "vt": 30, "last_vt": 30, "last_event": at(10), "ended": None}
RELEASED = {**FIRST, "ended_as": "released", "ended": at(12)}
NEXT = {
    "dlv": "d2", "rc": 2, "wid": "w2", "received": at(45), "ended_as": "deleted", "ended": at(50),
    "last_event": at(50),
}  # fmt: skip
#: By message: how its first attempt ended. It was received again at 45 s.
AGAIN_LATER: dict[str, Fields] = {
    "abandoned": {},
    "extended": {"last_extended": at(10)},
    "with a long timeout": {"vt": 43_200},
    "extended for long": {"last_extended": at(10), "last_vt": 43_200},
    "failed": {"ended_as": "released", "ended": at(12), "cause": "failed", "last_vt": 25},
    "given back for long": {**RELEASED, "cause": "backoff policy", "last_vt": 43_200},
    "given back at a shutdown": {**RELEASED, "cause": "shutdown", "last_vt": 0},
    "lapsed": {"ended_as": "lapsed", "ended": at(12)},
    "lost": {"ended_as": "lost", "ended": at(31)},
    "capped": {"ended_as": "capped", "ended": at(20)},
    # As after a redrive of the dead-letter queue, or a change of the policy.
    "redriven": {**RELEASED, "max_rc": 1},
}
#: The only attempt. At the limit of its queue it is a dead letter, and not a late one.
ALONE: dict[str, Fields] = {
    "below its limit": {"rc": 2, "max_rc": 3},
    "at its limit": {"rc": 3, "max_rc": 3},
    "above its limit": {"rc": 4, "max_rc": 3},
    "without a limit": {"rc": 9},
    # It waits at SQS until its task is due, so only a dead letter has something to recover from.
    "parked": {"cause": "due later", "last_vt": 900},
    "parked at its limit": {"cause": "due later", "rc": 3, "max_rc": 3},
}
GAP: list[Fields] = [
    {**FIRST, "ended_as": "abandoned", "msg": "gap"},
    # The receive in between is in no journal, so nothing is claimed about the first.
    {**NEXT, "msg": "gap", "rc": 3, "ended_as": "released", "cause": "failed", "last_vt": 5},
    {**NEXT, "msg": "gap", "rc": 4, "dlv": "d4", "received": at(60)},
]


def test_the_promised_time_is_the_time_the_lease_had_left(spark: SparkSession) -> None:
    rows = [*GAP, *({**RELEASED, **fields, "msg": msg} for msg, fields in ALONE.items())]
    for msg, fields in AGAIN_LATER.items():
        rows += [{**FIRST, "ended_as": "abandoned", **fields, "msg": msg}, {**NEXT, "msg": msg}]
    workers = workers_frame(spark, {"last_seen": at(100)})
    lines = []
    for row in recoveries_of(attempts_frame(spark, *rows), workers).collect():
        times = [
            "?" if it is None else f"{it / SECOND:g}" for it in (row.recovery_us, row.promised_us)
        ]
        kinds = ", dead letter" * row.is_dead_letter + ", censored" * row.is_censored
        said = f"after {times[0]} s of {times[1]}, by {row.next_wid}{kinds}"
        lines.append(f"{row.msg}, receive {row.rc}: {said}\n")
    golden("recoveries.txt", "".join(sorted(lines)))
