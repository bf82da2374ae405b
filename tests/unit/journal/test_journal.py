"""What a journal writes, when it closes segments, and what it does when something fails."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.common.journal_facts import Identity, WorkerInfo
from celery_sqs_heartbeat.journal import folder as folders
from celery_sqs_heartbeat.journal import journal as journals
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.reading import read_journal
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.settings.address import Destination, parse_target
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.journal import samples
from tests.unit.journal.samples import (
    DAY,
    WALL,
    Clocks,
    Disk,
    event_of,
    files_in,
    frames_of,
    run_journal,
)

NewJournal = Callable[..., Journal]
INFO = WorkerInfo(node="celery@h", pool="prefork", concurrency=2, settings={"on_lost": "warn"})
IDENTITY = Identity.here(1)
WORKER = f"dt={DAY}/worker={IDENTITY.wid}"
DEAD = f"dt={DAY}/worker=dead/seg-1.jsonl"
LINES = b'{"v":1,"ts":1}\n{"v":1,"ts":2}\n'


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(folders, "FileIO", disk)
    return disk


@pytest.fixture
def journal_at() -> Iterator[NewJournal]:
    """Makes journals whose steps the test calls. They end after the test."""
    made: list[Journal] = []

    def new(*place: Any, **options: Any) -> Journal:
        made.append(samples.journal_at(*place, **options))
        return made[-1]

    yield new
    for journal in made:
        journal.start(INFO)
        journal.close(PATIENCE)


def numbers(folder: Path) -> list[int]:
    return [line["seq"] for line in read_journal(folder)]


def write(journal: Journal, count: int = 1, **values: Any) -> None:
    """Let a journal write these events at once."""
    for _ in range(count):
        journal(event_of(**values))
    journal.step()


def test_the_events_of_a_worker_are_written_in_order(
    journal_at: NewJournal, tmp_path: Path
) -> None:
    journal = journal_at(tmp_path)
    journal.close(PATIENCE)
    journal.start(INFO)
    journal.start(INFO)
    for kind in EventKind:
        journal(event_of(kind))
    journal.note_late(1.5)
    journal.close(PATIENCE)
    journal.close(PATIENCE)
    write(journal)
    lines = list(read_journal(tmp_path))
    kinds = [kind.value for kind in EventKind]
    assert [line["seq"] for line in lines] == list(range(1, len(kinds) + 4))
    assert [line["ev"] for line in lines] == [
        "worker-started",
        *kinds,
        "keeper-late",
        "worker-stopped",
    ]
    assert (lines[0]["pid"], lines[0]["settings"]) == (os.getpid(), {"on_lost": "warn"})
    assert "versions" not in lines[0]
    assert lines[-2]["late_us"] == 1_500_000
    assert lines[1]["ts"] == 2_500_000 + lines[0]["ts"]
    assert (journal.stats.written, journal.stats.dropped) == (len(lines), 0)
    assert files_in(tmp_path) == [f"dt={DAY}/worker={lines[0]['wid']}/seg-1.jsonl.zst"]


def test_many_threads_leave_no_gap(tmp_path: Path) -> None:
    journal = samples.journal_at(tmp_path)
    journal.start(INFO)
    with ThreadPoolExecutor(4) as threads:
        for _ in range(2_000):
            threads.submit(journal, event_of())
    journal.close(PATIENCE)
    assert numbers(tmp_path) == list(range(1, 2_003))


def test_a_segment_is_plain_until_it_is_closed_at_its_age(
    journal_at: NewJournal, tmp_path: Path
) -> None:
    clocks = Clocks()
    journal = journal_at(tmp_path, clocks, identity=IDENTITY)
    journal.step()
    assert files_in(tmp_path) == []
    write(journal, 2)
    clocks.now += 299.9
    journal.step()
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.open"]
    plain = (tmp_path / WORKER / "seg-1.jsonl.open").read_bytes()
    assert numbers(tmp_path) == [1, 2]
    clocks.now += 0.1
    journal.step()
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.zst"]
    assert frames_of(tmp_path / WORKER / "seg-1.jsonl.zst") == [plain]
    assert numbers(tmp_path) == [1, 2]


@pytest.mark.parametrize(("at_once", "segments"), [(1, 20), (10, 4)])
def test_no_segment_grows_beyond_its_size_unless_one_write_does(
    journal_at: NewJournal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    segments: int,
) -> None:
    monkeypatch.setattr(folders, "SEGMENT_BYTES", 700)
    journal = journal_at(tmp_path)
    for _ in range(0, 40, at_once):
        write(journal, at_once, task="x" * 100)
    assert len(files_in(tmp_path)) == segments
    assert numbers(tmp_path) == list(range(1, 41))


def test_each_day_has_its_folder_and_a_late_line_stays_with_its_own(
    journal_at: NewJournal, tmp_path: Path
) -> None:
    clocks = Clocks()
    journal = journal_at(tmp_path, clocks, identity=IDENTITY)
    midnight = clocks.now + (folders.DAY_MICROSECONDS - WALL % folders.DAY_MICROSECONDS) / 1e6
    for at in (midnight - 1e-6, midnight):
        journal(event_of(at=at))
    journal.step()
    write(journal, at=midnight - 1e-6)
    assert files_in(tmp_path) == [
        f"{WORKER}/seg-1.jsonl.zst",
        f"dt=2026-03-15/worker={IDENTITY.wid}/seg-2.jsonl.open",
    ]
    assert numbers(tmp_path) == [1, 2, 3]


def test_events_beyond_the_queue_are_counted_logged_and_a_gap(
    journal_at: NewJournal,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journals, "QUEUE_LIMIT", 10)
    journal = journal_at(tmp_path)
    write(journal, 15)
    write(journal)
    journal.note_late(1)
    journal.step()
    lines = list(read_journal(tmp_path))
    assert [line["seq"] for line in lines] == [*range(1, 11), 16, 17]
    assert lines[-1]["dropped"] == 5
    assert (journal.stats.written, journal.stats.dropped) == (12, 5)
    assert [record.message for record in caplog.records] == [
        "sqs-heartbeat: the journal does not work (more events than it can write). Messages are "
        "not affected, but some of their events are not recorded. Check the place that "
        "sqs_heartbeat_journal names",
        "sqs-heartbeat: the journal works again; lines lost so far: 5",
    ]


def test_a_full_disk_costs_lines_tears_none_and_is_logged_once(
    journal_at: NewJournal, tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    clocks = Clocks()
    journal = journal_at(tmp_path, clocks, identity=IDENTITY)
    disk.room = 300
    for _ in range(4):
        # One line fits. Of the next there is room for a part, which is removed again.
        write(journal)
    # There was no room to compress the segment, and files without a line are removed.
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.open"]
    disk.room = 100_000
    write(journal)
    assert numbers(tmp_path) == [1, 5]
    assert (journal.stats.written, journal.stats.dropped) == (2, 3)
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        "sqs-heartbeat: the journal does not work",
        "sqs-heartbeat: the journal works again; lines lost so far: 3",
    ]
    # The next search for leftovers closes it.
    clocks.now += 600
    journal.step()
    assert f"{WORKER}/seg-1.jsonl.zst" in files_in(tmp_path)
    assert numbers(tmp_path) == [1, 5]


def test_a_cleaner_of_old_files_does_no_harm(journal_at: NewJournal, tmp_path: Path) -> None:
    clocks = Clocks()
    journal = journal_at(tmp_path, clocks)
    write(journal)
    (path,) = tmp_path.rglob("*.open")
    path.unlink()
    path.parent.rmdir()
    write(journal)
    clocks.now += 300
    journal.step()
    assert numbers(tmp_path) == [1, 2]


def test_an_event_that_cannot_be_written_costs_only_its_own_line(
    journal_at: NewJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = journal_at(tmp_path)
    journal(event_of(at=float("nan")))
    write(journal)
    assert numbers(tmp_path) == [2]
    assert journal.stats.dropped == 1
    assert "the journal does not work" in caplog.text


def test_a_bug_of_its_own_does_not_end_the_thread(
    journal_at: NewJournal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = [LookupError("a bug")]

    def fails_once(ts: int) -> str:
        if faults:
            raise faults.pop()
        return DAY

    monkeypatch.setattr(folders, "day_of", fails_once)
    journal = journal_at(tmp_path)
    journal.start(INFO)
    wait_until(lambda: not faults)
    journal(event_of())
    journal.close(PATIENCE)
    assert numbers(tmp_path) == [2, 3]
    assert journal.stats.dropped == 1
    assert "a bug of its own" in caplog.text


def test_a_worker_without_a_journal_thread_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    run_journal(tmp_path)
    assert "start a thread for the journal" in caplog.text
    assert files_in(tmp_path) == []


def test_a_disk_that_hangs_delays_no_one(
    journal_at: NewJournal,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging, entered = threading.Event(), threading.Event()

    def hang(path: Path) -> Any:
        entered.set()
        hanging.wait()
        raise OSError(errno.EIO, "at last")

    monkeypatch.setattr(folders, "create", hang)
    before = set(threading.enumerate())
    journal = journal_at(tmp_path)
    journal.start(INFO)
    (thread,) = set(threading.enumerate()) - before
    entered.wait()
    journal(event_of())
    journal.close(0.01)
    assert "not finish within 0.01 s" in caplog.text
    hanging.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert journal.stats.written == 0


def test_times_follow_a_wall_clock_that_is_set(journal_at: NewJournal, tmp_path: Path) -> None:
    clocks = Clocks()
    journal = journal_at(tmp_path, clocks)
    write(journal)
    clocks.offset += 3_600_000_000
    write(journal)
    first, second = read_journal(tmp_path)
    assert second["ts"] - first["ts"] == 3_600_000_000
    assert second["mono"] == first["mono"]


def test_a_second_keeper_continues_the_sequence_and_the_time_of_the_first(
    journal_at: NewJournal, tmp_path: Path
) -> None:
    noted: list[int] = []
    for last in (0, 2):
        clocks = Clocks()
        options = {"began_at": clocks.now - 60, "last": last, "note": noted.append}
        journal = journal_at(tmp_path, clocks, identity=IDENTITY, **options)
        journal.start(INFO)
        journal.note_late(1.5)
        journal.close(PATIENCE, has_stopped=False)
    lines = list(read_journal(tmp_path))
    assert [line["seq"] for line in lines] == noted == [1, 2, 3]
    assert [line["ev"] for line in lines] == ["worker-started", "keeper-late", "keeper-late"]
    assert {(line["mono"], line["wid"]) for line in lines} == {(60_000_000, IDENTITY.wid)}


def left_behind(folder: Path, data: bytes = LINES, name: str = f"{DEAD}.open") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("torn", "count"),
    [(b"", 0), (b'{"v":1,"ts":17', 1), (b"\0\0\0\0", 1), (b'{"v":1,"ts":3}', 1)],
)
@pytest.mark.parametrize("whole", [LINES, b""])
def test_the_segment_of_a_dead_worker_is_closed_without_its_torn_line(
    journal_at: NewJournal,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    whole: bytes,
    torn: bytes,
    count: int,
) -> None:
    caplog.set_level(logging.INFO, "celery_sqs_heartbeat")
    path = left_behind(tmp_path, whole + torn)
    # A leftover of another one that can't be closed, because a folder is in the way.
    blocked = left_behind(tmp_path, name="dt=2020-01-01/worker=a/seg-1.jsonl.open")
    blocked.with_name("seg-1.jsonl.zst").mkdir()
    journal = journal_at(tmp_path)
    journal.step()
    assert blocked.exists()
    assert not path.exists()
    closed = path.with_name("seg-1.jsonl.zst")
    assert (frames_of(closed) if whole else closed.exists()) == ([LINES] if whole else False)
    assert journal.stats.torn == count
    assert (
        f"closed 1 segment of dead workers in the journal; unfinished lines left out: {count}"
        in (caplog.text)
    )


def test_a_worker_that_died_between_closing_and_removing_is_not_read_twice(
    journal_at: NewJournal, tmp_path: Path
) -> None:
    path = left_behind(tmp_path)
    journal_at(tmp_path).step()
    path.write_bytes(LINES)
    for _ in range(2):
        assert [line["ts"] for line in read_journal(tmp_path)] == [1, 2]
        journal_at(tmp_path).step()
    assert files_in(tmp_path) == [f"{DEAD}.zst"]


def test_leftovers_of_two_days_are_looked_for_repeatedly(
    journal_at: NewJournal, tmp_path: Path
) -> None:
    clocks = Clocks()
    journal = journal_at(tmp_path, clocks)
    journal.step()
    path = left_behind(tmp_path)
    # It waits for the next worker, which looks at all days when it starts.
    earlier = left_behind(tmp_path, name="dt=2020-01-01/worker=dead/seg-1.jsonl.open")
    clocks.now += 599
    journal.step()
    assert path.exists()
    clocks.now += 1
    journal.step()
    assert not path.exists()
    assert earlier.exists()
    journal_at(tmp_path).step()
    assert not earlier.exists()


def test_segments_of_a_live_worker_are_left_alone(journal_at: NewJournal, tmp_path: Path) -> None:
    live = journal_at(tmp_path, identity=IDENTITY)
    write(live)
    journal_at(tmp_path).step()
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.open"]
    write(live)
    assert numbers(tmp_path) == [1, 2]


def test_a_file_system_without_locks_is_written_to_but_no_segment_of_others_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    path = left_behind(tmp_path)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    journal = run_journal(tmp_path)
    assert path.exists()
    assert journal.stats.written == 3


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("/var/journal", Path("/var/journal")),
        ("journal", Path("journal")),
        ("~/journal", Path("~/journal").expanduser()),
        ("s3://bucket", Destination(bucket="bucket", prefix="")),
        ("s3://bucket/", Destination(bucket="bucket", prefix="")),
        ("s3://bucket/a/b/", Destination(bucket="bucket", prefix="a/b")),
    ],
)
def test_a_target_is_a_folder_or_a_prefix(target: str, place: object) -> None:
    assert parse_target(target) == place
