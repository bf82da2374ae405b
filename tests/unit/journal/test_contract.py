"""The journal's data contract: the exact bytes of each line."""

from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat.common.journal_facts import Identity, WorkerInfo
from celery_sqs_heartbeat.journal.fields import (
    CALLED,
    EVENTS,
    FIELDS,
    KEEPER_LATE,
    OF_MESSAGES,
    OF_WORKERS,
    PERMISSIONS,
    WORKER_STARTED,
    WORKER_STOPPED,
    delivery_id,
    fields_of,
    fields_of_start,
    line_of,
    microseconds,
)
from celery_sqs_heartbeat.journal.reading import parse
from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action
from tests.fuzz.shapes import FUZZ
from tests.unit.journal.samples import ORIGIN, STARTED, answered, event_of

ROOT = Path(__file__).parents[3]
DLV = hashlib.sha256(b"handle-1").hexdigest()[:16]
HEAD = '{"v":1,"ts":1773500968500000,"mono":2500000,"seq":9,"ev":"'
WID = '","wid":"0123456789ab",'
MESSAGE = f'"queue":"work","msg":"m-1","dlv":"{DLV}","rc":2,"task":"proj.add","task_id":"t-1",'
LEASE = '"slack_us":20250000,"held_us":500000'
CALL = '"call":7,"batch":4,"lat_us":12000'
K, A, OUT = EventKind, Action, Outcome

GOLDEN: dict[EventKind, tuple[Event, str]] = {
    K.MESSAGE_RECEIVED: (
        event_of(
            K.MESSAGE_RECEIVED,
            cause="new",
            max_receive_count=5,
            sent_time=1_773_500_960.123,
            first_received_time=1_773_500_961.456,
            group="A17",
            sequence_number="18850000000000000001",
        ),
        f'{MESSAGE}"max_rc":5,"sent":1773500960123000,"first":1773500961456000,'
        f'"grp":"A17","sn":"18850000000000000001","vt":30,{LEASE},'
        '"cause":"new"',
    ),
    K.TASK_STARTED: (event_of(K.TASK_STARTED, sent_time=1.0, group="A17"), f"{MESSAGE}{LEASE}"),
    K.LEASE_EXTENDED: (
        answered(K.LEASE_EXTENDED, A.EXTEND, OUT.DONE),
        f'{MESSAGE}"vt":30,{LEASE},{CALL}',
    ),
    K.EXTENSION_FAILED: (
        answered(K.EXTENSION_FAILED, A.EXTEND, OUT.THROTTLED),
        f'{MESSAGE}"vt":30,{LEASE},{CALL},"err":"throttled"',
    ),
    K.LEASE_EXPIRED: (
        event_of(K.LEASE_EXPIRED, slack=-0.5),
        f'{MESSAGE}"slack_us":-500000,"held_us":500000',
    ),
    K.LEASE_LOST: (
        answered(K.LEASE_LOST, A.EXTEND, OUT.LOST),
        f'{MESSAGE}{LEASE},{CALL},"err":"lost"',
    ),
    K.LEASE_CAPPED: (
        answered(K.LEASE_CAPPED, A.EXTEND, OUT.CAPPED),
        f'{MESSAGE}{LEASE},{CALL},"err":"capped"',
    ),
    K.LEASE_CAP_NEAR: (event_of(K.LEASE_CAP_NEAR), f"{MESSAGE}{LEASE}"),
    K.MESSAGE_RELEASED: (
        answered(
            K.MESSAGE_RELEASED,
            A.RELEASE,
            OUT.DONE,
            visibility_timeout=0,
            ended_for=0.25,
            cause="failed",
        ),
        f'{MESSAGE}"vt":0,{LEASE},"ended_us":250000,"cause":"failed",{CALL}',
    ),
    K.MESSAGE_LAPSING: (
        event_of(K.MESSAGE_LAPSING, ended_for=0.0, cause="shutdown"),
        f'{MESSAGE}{LEASE},"ended_us":0,"cause":"shutdown"',
    ),
    K.MESSAGE_DELETED: (
        answered(K.MESSAGE_DELETED, A.DELETE, OUT.DONE, ended_for=0.05),
        f'{MESSAGE}{LEASE},"ended_us":50000,{CALL}',
    ),
    K.DELETE_FAILED: (
        answered(K.DELETE_FAILED, A.DELETE, OUT.UNKNOWN, ended_for=0.05),
        f'{MESSAGE}{LEASE},"ended_us":50000,{CALL},"err":"unknown"',
    ),
    K.DELETE_ABANDONED: (
        answered(K.DELETE_ABANDONED, A.DELETE, OUT.MALFORMED, ended_for=0.05),
        f'{MESSAGE}{LEASE},"ended_us":50000,{CALL},"err":"malformed"',
    ),
    K.PERMISSION_DENIED: (
        answered(K.PERMISSION_DENIED, A.EXTEND, OUT.DENIED),
        f'{MESSAGE}{LEASE},"act":"extend","call":7',
    ),
    K.PERMISSION_GRANTED: (
        answered(K.PERMISSION_GRANTED, A.DELETE, OUT.DONE),
        f'{MESSAGE}{LEASE},"act":"delete","call":7',
    ),
}


def stamp(ev: str) -> dict[str, Any]:
    return ORIGIN.stamp(ev, STARTED + 2.5, 9)


IDENTITY = Identity(host="h", pid=4, boot="b", started=1)
INFO = WorkerInfo(
    node="celery@h",
    pool="prefork",
    concurrency=8,
    settings={"threshold": "10"},
    versions={"celery": "5.7.0"},
)
WORKERS: dict[str, tuple[dict[str, Any], str]] = {
    WORKER_STARTED: (
        stamp(WORKER_STARTED) | fields_of_start(IDENTITY, INFO),
        '"host":"h","pid":4,"boot":"b","node":"celery@h","pool":"prefork","concurrency":8,'
        '"settings":{"threshold":"10"},"versions":{"celery":"5.7.0"}',
    ),
    WORKER_STOPPED: (stamp(WORKER_STOPPED) | {"dropped": 3}, '"dropped":3'),
    KEEPER_LATE: (stamp(KEEPER_LATE) | {"late_us": 2_000_000}, '"late_us":2000000'),
}


@pytest.mark.parametrize("kind", EventKind)
def test_an_event_has_exactly_this_line(kind: EventKind) -> None:
    event, rest = GOLDEN[kind]
    line = line_of(fields_of(event, 9, ORIGIN)).decode()
    assert line == f"{HEAD}{kind.value}{WID}{rest}}}\n"


@pytest.mark.parametrize("ev", WORKERS)
def test_a_worker_event_has_exactly_this_line(ev: str) -> None:
    fields, rest = WORKERS[ev]
    assert line_of(fields).decode() == f"{HEAD}{ev}{WID}{rest}}}\n"


def test_lines_have_the_events_and_fields_of_the_table_and_no_others() -> None:
    lines = [fields_of(event, 9, ORIGIN) for event, _ in GOLDEN.values()]
    lines += [fields for fields, _ in WORKERS.values()]
    assert {line["ev"] for line in lines} == set(EVENTS)
    allowed = {field.name: field.events for field in FIELDS}
    assert not [name for line in lines for name in line if line["ev"] not in allowed[name]]
    assert {name for line in lines for name in line} == set(allowed)


#: How the page names the events that may have a field, unless it lists them.
NAMED = {
    EVENTS: "all",
    OF_WORKERS: "all worker events",
    OF_MESSAGES: "all message events",
    CALLED: "results of calls",
    (*CALLED, *PERMISSIONS): "results of calls, `permission-...`",
    PERMISSIONS: "`permission-...`",
}


def test_the_documented_table_is_that_of_the_code() -> None:
    rows = [
        f"| `{field.name}` | {field.type} | {field.unit} | {field.meaning} "
        f"| {NAMED.get(field.events) or ', '.join(f'`{event}`' for event in field.events)} |"
        for field in FIELDS
    ]
    text = (ROOT / "docs" / "journal.md").read_text(encoding="utf-8")
    assert "\n".join(["", "|---|---|---|---|---|", *rows, ""]) in text


def test_only_the_hash_of_a_receipt_handle_is_written() -> None:
    line = line_of(fields_of(event_of(receipt_handle="AQEBsecret"), 1, ORIGIN))
    assert b"AQEBsecret" not in line
    assert delivery_id("AQEBsecret") != delivery_id("AQEBsecreu")
    assert delivery_id("") is None


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, None), (0.0, 0), (-1.5, -1_500_000), (math.inf, None), (math.nan, None), (1e30, None)],
)
def test_times_are_whole_microseconds_that_fit(seconds: float | None, expected: int | None) -> None:
    assert microseconds(seconds) == expected


def test_a_worker_has_an_id_for_each_start() -> None:
    first = Identity.here(started=1)
    assert re.fullmatch("w[0-9a-f]{11}", first.wid)
    assert first.wid == Identity.here(started=1).wid != Identity.here(started=2).wid


events = st.builds(
    Event,
    at=st.floats(0, 1e9),
    task=st.none() | st.text(st.characters()),
    receipt_handle=...,
    held_for=...,
    ended_for=...,
    cause=...,
    sent_time=...,
    first_received_time=...,
    group=...,
    action=...,
    outcome=...,
    seconds=...,
)


@FUZZ
@given(events, st.integers(1, 2**62))
def test_any_event_can_be_read_from_its_line(event: Event, seq: int) -> None:
    written = fields_of(event, seq, ORIGIN)
    line = line_of(written)
    assert line.count(b"\n") == 1
    fields = parse(line)
    assert fields == written
    assert None not in fields.values()
    types = {field.name: field.type for field in FIELDS}
    for name, value in fields.items():
        assert type(value) is (str if types[name] == "string" else int)
        assert event.kind.value in next(f.events for f in FIELDS if f.name == name)


@FUZZ
@given(events, st.data())
def test_a_torn_line_is_not_read(event: Event, data: st.DataObject) -> None:
    line = line_of(fields_of(event, 1, ORIGIN))
    assert parse(line[: data.draw(st.integers(0, len(line) - 1))]) is None


def test_the_contract_is_imported_without_anything_heavy() -> None:
    code = (
        "import sys, celery_sqs_heartbeat.journal.fields;"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"boto3", "botocore", "celery", "kombu", "zstandard", "click"} & set(loaded)
