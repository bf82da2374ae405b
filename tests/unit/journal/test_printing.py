"""The command that prints a journal for people."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from celery_sqs_heartbeat.common.exits import DONE, FOUND
from celery_sqs_heartbeat.journal.__main__ import main
from celery_sqs_heartbeat.journal.fields import WORKER_STARTED, fields_of, line_of
from celery_sqs_heartbeat.journal.segments import SegmentWriter
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Action
from tests.unit.journal.samples import ORIGIN, STARTED, WALL, Clocks, answered, event_of, fail, own

RECEIVED = event_of(sent_time=WALL / 1e6, cause="new")
DELETED = answered(EventKind.MESSAGE_DELETED, Action.DELETE, Outcome.DONE, at=STARTED + 4)
OTHER = event_of(
    EventKind.LEASE_EXPIRED,
    at=STARTED + 3,
    message_id="x-9",
    queue_url="https://sqs/1/other",
    task=None,
    task_id=None,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    started = ORIGIN.stamp(WORKER_STARTED, STARTED, 1)
    started |= {"host": "h", "pid": 4, "settings": {"on_lost": "warn"}}
    # The later event is in the segment that is read first.
    for wid, events in (("a", (DELETED,)), ("b", (RECEIVED, OTHER))):
        writer = SegmentWriter(own(tmp_path), wid, Clocks().clock, fail)
        lines = [fields_of(event, number, ORIGIN) for number, event in enumerate(events, 2)]
        lines = [started, *lines] if wid == "b" else lines
        writer.write([(fields["ts"], line_of(fields)) for fields in lines])
        writer.close()
    return tmp_path


def printed(*arguments: object) -> list[str]:
    result = CliRunner().invoke(main, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == (DONE if result.stdout else FOUND)
    return result.stdout.splitlines()


def test_it_prints_one_line_per_event_in_order_of_time(folder: Path) -> None:
    assert printed(folder) == [
        "2026-03-14 15:09:26.000Z  worker-started      host h, pid 4, settings on_lost=warn  "
        "worker 0123456789ab #1",
        "2026-03-14 15:09:28.500Z  message-received    m-1 of work, task proj.add[t-1]  "
        "rc 2, sent 2.500 s before, vt 30, slack 20.250 s, held 0.500 s, cause new  "
        "worker 0123456789ab #2",
        "2026-03-14 15:09:29.000Z  lease-expired       x-9 of other, task -[-]  "
        "rc 2, slack 20.250 s, held 0.500 s  worker 0123456789ab #3",
        "2026-03-14 15:09:30.000Z  message-deleted     m-1 of work, task proj.add[t-1]  "
        "rc 2, slack 20.250 s, held 0.500 s, call 7, batch 4, lat 0.012 s  "
        "worker 0123456789ab #2",
    ]


@pytest.mark.parametrize(
    ("options", "events"),
    [
        (["--message", "m-"], [RECEIVED, DELETED]),
        (["--message", "m-12"], []),
        (["--queue", "other"], [OTHER]),
        (["--task", "proj.add"], [RECEIVED, DELETED]),
        (["--task", "t-1", "--message", "m-1"], [RECEIVED, DELETED]),
        (["--task", "t-1", "--queue", "other"], []),
        (["--queue", "other", "--from", "2026-03-14", "--to", "2026-03-14"], [OTHER]),
        (["--from", "2026-03-15"], []),
        (["--to", "2026-03-13"], []),
    ],
)
def test_options_select_events(folder: Path, options: list[str], events: list[Event]) -> None:
    lines = printed(folder, *options)
    assert [line.split()[2] for line in lines] == [event.kind.value for event in events]


def test_a_missing_folder_is_reported() -> None:
    result = CliRunner().invoke(main, ["/nowhere"])
    assert result.exit_code == 2
    assert "'/nowhere' does not exist" in result.output
