from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from celery_sqs_heartbeat.pipeline.schema import ATTEMPTS, ENDS
from celery_sqs_heartbeat.pipeline.tables.attempts import attempts_of
from celery_sqs_heartbeat.pipeline.tables.workers import workers_of
from tests.pipeline.builders import DAY, SECOND, events_frame, message

pytestmark = pytest.mark.thorough

Event = dict[str, Any]
#: By scenario, then by delivery.
Attempts = dict[str, dict[str, Any]]


def received(at: float, **fields: Any) -> Event:
    return message("message-received", at, **{"vt": 30, "cause": "new", "held_us": 0, **fields})


def deleted(at: float, **fields: Any) -> Event:
    return message("message-deleted", at, **{"ended_us": SECOND, **fields})


STARTED = message("task-started", 2)
STOPPED = {"ev": "worker-stopped", "ts": DAY + 99 * SECOND}
#: The data ends an hour after midnight. A worker without such a line is silent.
HOUR = 3600 * SECOND
HEARD = {"ev": "keeper-late", "ts": DAY + HOUR, "late_us": 1}
SILENT = {"ev": "keeper-late", "ts": DAY + HOUR, "late_us": 1, "wid": "other"}
AGAIN = received(60, dlv="d2", rc=2, wid="w2", cause="new")
SAME = {"dlv": "d2", "rc": 2, "cause": "redelivered"}


CASES: list[tuple[str, float | None, list[Event]]] = [
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
    ("abandoned", None, [STARTED, STOPPED]),
    ("abandoned", None, [STARTED, SILENT]),
    # Its lease may last for longer than its worker has been silent.
    ("running", None, [STARTED, message("lease-extended", 20, vt=43_200), SILENT]),
    ("running", None, [STARTED, HEARD]),
]


A_THOUSAND = [received(at, dlv=f"d{at}", rc=at, wid=f"w{at % 3}") for at in range(1, 1001)]
random.Random(1).shuffle(A_THOUSAND)

SCENARIOS: dict[str, list[Event]] = {
    **{f"case {case}": [received(1), *rows] for case, (_, _, rows) in enumerate(CASES)},
    "all columns": [
        received(1, sent=DAY - SECOND, first=DAY + SECOND, grp="A17", sn="00188"),
        STARTED,
        message("extension-failed", 10, vt=40, err="throttled", lat_us=90_000, slack_us=9_000_000),
        message("lease-extended", 11, vt=40, lat_us=20_000, slack_us=8_000_000),
        message("lease-extended", 31, vt=50, lat_us=30_000, slack_us=7_000_000),
        message("lease-cap-near", 32, slack_us=1),
        message("lease-expired", 90, slack_us=-1),
        message("lease-capped", 91),
        message("delete-failed", 94, err="failed", ended_us=2 * SECOND, lat_us=5),
        deleted(95, ended_us=3 * SECOND, err="lost"),
    ],
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
    "a thousand": [*A_THOUSAND, *({**HEARD, "wid": f"w{number}"} for number in range(3))],
}


@pytest.fixture(scope="module")
def attempts(spark: SparkSession) -> Attempts:
    """Return the attempts of all scenarios, made at once."""
    events = [
        event
        | {key: f"{event[key]}/{name}" for key in ("msg", "dlv") if key in event}
        | {"wid": f"{event.get('wid', 'w1')}/{name}"}
        for name, scenario in SCENARIOS.items()
        for event in scenario
    ]
    frame = events_frame(spark, *events)
    found: Attempts = {}
    for row in attempts_of(frame, workers_of(frame)).collect():
        dlv, name = row["dlv"].split("/")
        named = {key: row[key].removesuffix(f"/{name}") for key in ("msg", "dlv", "wid")}
        found.setdefault(name, {})[dlv] = row.asDict() | named
    return found


def test_each_way_to_end(attempts: Attempts) -> None:
    found = [attempts[f"case {case}"]["d1"] for case in range(len(CASES))]
    assert [(row["ended_as"], row["ended"]) for row in found] == [
        (ended_as, None if ended is None else DAY + ended * SECOND) for ended_as, ended, _ in CASES
    ]
    assert {ended_as for ended_as, _, _ in CASES} == set(ENDS)


def test_the_row_has_all_that_the_events_tell(attempts: Attempts) -> None:
    expected = {
        "queue": "work",
        "msg": "m1",
        "wid": "w1",
        "task": "proj.add",
        "task_id": "t1",
        "grp": "A17",
        "sn": "00188",
        "rc": 1,
        "received_as": "new",
        "sent": DAY - SECOND,
        "first": DAY + SECOND,
        "received": DAY + SECOND,
        "started": DAY + 2 * SECOND,
        "finished": DAY + 92 * SECOND,
        "ended": DAY + 95 * SECOND,
        "last_event": DAY + 95 * SECOND,
        "ended_as": "deleted",
        "cause": None,
        "vt": 30,
        "last_vt": 50,
        "last_extended": DAY + 31 * SECOND,
        "extensions": 2,
        "failures": 1,
        "expired": DAY + 90 * SECOND,
        "lost": None,
        "capped": DAY + 91 * SECOND,
        "min_slack_us": 7_000_000,
        "max_latency_us": 90_000,
        "last_error": "lost",
        "wait_us": SECOND,
        "run_us": 90 * SECOND,
    }
    row = attempts["all columns"]["d1"]
    assert {name: row[name] for name in expected} == expected
    assert tuple(row) == ATTEMPTS.names


def test_a_continued_task_is_measured_once_from_its_start_to_its_end(attempts: Attempts) -> None:
    rows = [attempts["continued"][dlv] for dlv in ("d1", "d2", "d3")]
    assert [row["ended_as"] for row in rows] == ["continued", "continued", "deleted"]
    assert [row["run_us"] for row in rows] == [None, None, 88 * SECOND]
    assert [row["wait_us"] for row in rows] == [SECOND, None, None]


def test_a_finished_message_that_comes_again_after_its_delete_did_not_run_again(
    attempts: Attempts,
) -> None:
    rows = attempts["finished, again"]
    assert (rows["d1"]["ended_as"], rows["d2"]["ended_as"]) == ("deleted", "deleted")
    assert (rows["d1"]["run_us"], rows["d2"]["run_us"]) == (6 * SECOND, None)


def test_an_unconfirmed_delete_continues_under_the_next_delivery(attempts: Attempts) -> None:
    rows = attempts["unconfirmed"]
    assert rows["d1"]["ended_as"] == "continued"
    assert (rows["d1"]["run_us"], rows["d2"]["run_us"]) == (None, 6 * SECOND)


def test_a_receive_whose_line_is_missing_is_guessed_from_the_others(attempts: Attempts) -> None:
    row = attempts["no receive"]["d1"]
    assert row["received"] == DAY + SECOND
    assert row["received_as"] is None


def test_a_message_received_a_thousand_times_has_as_many_attempts(attempts: Attempts) -> None:
    rows = attempts["a thousand"]
    assert [rows[f"d{at}"]["ended_as"] for at in (1, 500, 1000)] == [
        "abandoned",
        "abandoned",
        "running",
    ]
    assert len(rows) == 1000
