"""A journal is read and printed as far as possible, and what can't be read is counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result

from celery_sqs_heartbeat.common.exits import DONE, FOUND, REFUSED
from celery_sqs_heartbeat.journal.__main__ import main
from celery_sqs_heartbeat.journal.fields import WORKER_STARTED, fields_of, line_of
from celery_sqs_heartbeat.journal.reading import Unread, is_complete, read_journal, read_segments
from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action
from tests.unit.journal.samples import DAY, ORIGIN, STARTED, WALL, answered, event_of

LINES = [line_of(fields_of(event_of(kind), seq, ORIGIN)) for seq, kind in enumerate(EventKind, 1)]
ALL = b"".join(LINES)


def frame(data: bytes, *, checksum: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=checksum).compress(data)


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]


WHOLE, MANY = frame(ALL), frame(os.urandom(300_000))
WRONG_LINES = b"this is not json\n[1,2,3]\n" + LINES[1][:9] + b"\n\n"
#: By kind of closed segment: its bytes, whether it is whole, the number of lines read, and
#: the numbers of torn segments and of corrupt lines.
CLOSED: dict[str, tuple[bytes, bool, int, int, int]] = {
    "whole": (WHOLE, True, len(LINES), 0, 0),
    "without a checksum": (frame(ALL, checksum=False), True, len(LINES), 0, 0),
    "of two frames": (WHOLE + frame(LINES[0]), True, len(LINES) + 1, 0, 0),
    "of one byte again and again": (frame(b"\n" * 300_000), True, 0, 0, 0),
    "with wrong lines": (frame(LINES[0] + WRONG_LINES + LINES[2]), True, 2, 0, 3),
    "empty": (b"", False, 0, 1, 0),
    "an empty frame": (frame(b""), True, 0, 0, 0),
    "cut": (WHOLE[:-20], False, 0, 1, 0),
    "cut by a byte": (WHOLE[:-1], False, len(LINES), 1, 0),
    "cut in its second frame": (WHOLE + frame(ALL)[:99], False, len(LINES), 1, 0),
    "cut in its second frame's header": (WHOLE + WHOLE[:3], False, len(LINES), 1, 0),
    "cut in a later block": (MANY[:200_000], False, 0, 1, -1),
    "of a cut line": (frame(ALL + LINES[0][:-1]), False, len(LINES), 1, 0),
    "flipped": (flipped(WHOLE), False, 0, 1, 0),
    "no zstd": (b"what is that", False, 0, 1, 0),
    "followed by what is no zstd": (WHOLE + b"what is that", False, len(LINES), 1, 0),
}


def put(journal: Path, data: bytes, name: str = "seg-1.jsonl.zst", wid: str = "w1") -> Path:
    path = journal / f"dt={DAY}" / f"worker={wid}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("what", CLOSED)
def test_a_closed_segment_is_read_as_far_as_possible(tmp_path: Path, what: str) -> None:
    data, has_all_frames, lines, segments, others = CLOSED[what]
    path, unread = put(tmp_path, data), Unread()
    assert is_complete(path) is has_all_frames
    assert len(list(read_segments(tmp_path, unread))) == lines
    assert unread.counts["segment"] == segments
    assert unread.counts["line"] == others or others < 0
    assert unread.first == (path if segments or others else None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", ""),
        (ALL, ""),
        (ALL + LINES[0][:9], "1 segment"),
        (LINES[0] + b"what\n", "1 line"),
        (b"what\n" * 2 + b"and more", "1 segment and 2 lines"),
    ],
)
def test_an_open_segment_may_be_empty_and_lacks_an_unfinished_line(
    tmp_path: Path, data: bytes, said: str
) -> None:
    put(tmp_path, data, "seg-1.jsonl.open")
    unread = Unread()
    lines = list(read_segments(tmp_path, unread))
    assert len(lines) == data.count(b'"v":1') - (LINES[0][:9] == data[-9:])
    assert str(unread) == said


def test_a_pipe_in_place_of_a_segment_is_not_waited_for(tmp_path: Path) -> None:
    path = put(tmp_path, b"")
    path.unlink()
    os.mkfifo(path)
    assert not is_complete(path)
    assert list(read_journal(tmp_path)) == []


def run(journal: Path | str, *options: str) -> Result:
    return CliRunner().invoke(main, [str(journal), *options], catch_exceptions=False)


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
    received, other, deleted = (fields_of(each, 2, ORIGIN) for each in (RECEIVED, OTHER, DELETED))
    # The later event is in the segment that is read first.
    put(tmp_path, frame(line_of(deleted)), wid="a")
    put(tmp_path, frame(line_of(started) + line_of(received) + line_of(other)), wid="b")
    return tmp_path


def test_it_prints_one_line_per_event_in_order_of_time(folder: Path) -> None:
    assert run(folder).stdout.splitlines() == [
        "2026-03-14 15:09:26.000Z  worker-started      host h, pid 4, settings on_lost=warn  "
        "worker 0123456789ab #1",
        "2026-03-14 15:09:28.500Z  message-received    m-1 of work, task proj.add[t-1]  "
        "rc 2, sent 2.500 s before, vt 30, slack 20.250 s, held 0.500 s, cause new  "
        "worker 0123456789ab #2",
        "2026-03-14 15:09:29.000Z  lease-expired       x-9 of other, task -[-]  "
        "rc 2, slack 20.250 s, held 0.500 s  worker 0123456789ab #2",
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
    result = run(folder, *options)
    assert result.exit_code == (DONE if events else FOUND)
    named = [line.split()[2] for line in result.stdout.splitlines()]
    assert named == [event.kind.value for event in events]


EVENT = '{"v":1,"ts":1773500968500000,"seq":1,"ev":"task-started","wid":"w"'


@pytest.mark.parametrize(
    "line",
    [
        EVENT.replace(',"wid":"w"', "}"),
        EVENT.replace("1773500968500000", '"x"') + "}",
        EVENT.replace("1773500968500000", "999999999999999999") + "}",
        EVENT + ',"lat_us":"long"}',
    ],
)
def test_a_line_that_is_not_an_event_is_counted_and_not_printed(tmp_path: Path, line: str) -> None:
    put(tmp_path, frame(f"{line}\n".encode() + LINES[0]))
    result = run(tmp_path)
    assert (result.exit_code, len(result.stdout.splitlines())) == (DONE, 1)
    assert result.stderr == (
        f"Warning: 1 line of the journal {str(tmp_path)!r} could not be read, the first in "
        f"dt={DAY}/worker=w1/seg-1.jsonl.zst\n"
    )


def test_a_line_without_optional_fields_is_printed(tmp_path: Path) -> None:
    put(tmp_path, frame(EVENT.encode() + b',"msg":"m","rc":null}\n'))
    result = run(tmp_path)
    assert (result.exit_code, result.stderr) == (DONE, "")
    assert "m of -, task -[-]" in result.stdout


def test_unreadable_data_is_reported_when_nothing_is_found(tmp_path: Path) -> None:
    put(tmp_path, WHOLE + b"cut")
    put(tmp_path, frame(b"what\n" + LINES[0]), wid="w2")
    result = run(tmp_path, "--message", "none", "--task", "proj.add", "--to", "2020-01-01")
    assert result.exit_code == FOUND
    assert result.stderr == (
        f"Error: the journal {str(tmp_path)!r} has no lines of message 'none', task 'proj.add' "
        "up to 2020-01-01; 1 segment and 1 line of it could not be read\n"
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"no zstd", "1 segment"), (frame(b"what\n" * 3), "3 lines")],
)
def test_a_journal_of_which_nothing_can_be_read_exits_with_2(
    tmp_path: Path, data: bytes, said: str
) -> None:
    put(tmp_path, data)
    result = run(tmp_path, "--message", "any")
    assert result.exit_code == REFUSED
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: nothing of the journal {str(tmp_path)!r} can be read: {said};")
