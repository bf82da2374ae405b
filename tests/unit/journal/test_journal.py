"""The journal's observer: the events that it records, and its behaviour when something fails."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.common.journal_facts import Identity, WorkerInfo
from celery_sqs_heartbeat.journal import folder as folders
from celery_sqs_heartbeat.journal import journal as journals
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.reading import read_journal
from celery_sqs_heartbeat.journal.segments import SegmentWriter
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.settings.address import Destination, parse_target
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.journal.samples import DAY, ORIGIN, Clocks, Disk, event_of, files_in

INFO = WorkerInfo(node="celery@h", pool="prefork", concurrency=2, settings={"on_lost": "warn"})


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Callable[[Journal], None]:
    """No thread writes: the test calls each step, and then the whole of its life."""
    live = Journal._live
    monkeypatch.setattr(Journal, "_live", lambda journal: None)
    return live


def opened(folder: Path, **options: Any) -> Journal:
    clocks = Clocks()
    return Journal(str(folder), **{"clock": clocks.clock, "wall": clocks.wall, **options})


def end(journal: Journal, live: Callable[[Journal], None]) -> None:
    """Close the segment of a journal whose steps the test calls."""
    journal.start(INFO)
    journal.close()
    live(journal)


def test_the_events_of_a_worker_are_written_in_order(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.start(INFO)
    journal.start(INFO)
    for number in range(100):
        journal(event_of(message_id=f"m-{number}"))
    journal.note_late(1.5)
    journal.close(60)
    journal.close(60)
    lines = list(read_journal(tmp_path))
    assert [line["seq"] for line in lines] == list(range(1, 104))
    assert [line["ev"] for line in lines[:2]] == ["worker-started", "message-received"]
    assert [line["ev"] for line in lines[-2:]] == ["keeper-late", "worker-stopped"]
    assert lines[0]["settings"] == {"on_lost": "warn"}
    assert lines[0]["pid"] == os.getpid()
    assert "versions" not in lines[0]
    assert lines[-2]["late_us"] == 1_500_000
    assert len({line["wid"] for line in lines}) == 1
    assert lines[1]["ts"] == 2_500_000 + lines[0]["ts"]
    assert (journal.stats.written, journal.stats.dropped) == (103, 0)
    assert files_in(tmp_path) == [f"dt={DAY}/worker={lines[0]['wid']}/seg-1.jsonl.zst"]


def test_lines_are_on_disk_without_a_close(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.start(INFO)
    journal(event_of())
    wait_until(lambda: len(list(read_journal(tmp_path))) == 2)
    journal.close(60)


def test_many_threads_leave_no_gap(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.start(INFO)
    threads = [
        threading.Thread(target=lambda: [journal(event_of()) for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close(60)
    assert [line["seq"] for line in read_journal(tmp_path)] == list(range(1, 2_003))


def test_events_beyond_the_queue_are_dropped_counted_and_visible(
    tmp_path: Path,
    idle: Callable[[Journal], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journals, "QUEUE_LIMIT", 10)
    journal = opened(tmp_path)
    journal.start(INFO)
    for _ in range(14):
        journal(event_of())
    assert journal.stats.dropped == 5
    journal.step()
    journal(event_of())
    journal.step()
    lines = list(read_journal(tmp_path))
    # The gap shows what is missing.
    assert [line["seq"] for line in lines] == [*range(1, 11), 16]
    assert (journal.stats.written, journal.stats.dropped) == (11, 5)
    assert [record.message for record in caplog.records] == [
        "sqs-heartbeat: the journal does not work (more events than it can write). Messages are "
        "not affected, but some of their events are not recorded. Check the place that "
        "sqs_heartbeat_journal names",
        "sqs-heartbeat: the journal works again; lines lost so far: 5",
    ]
    journal.note_late(1)
    journal.step()
    assert list(read_journal(tmp_path))[-1]["dropped"] == 5
    end(journal, idle)


def test_the_thread_wakes_up_when_the_queue_is_half_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "QUEUE_LIMIT", 10)
    monkeypatch.setattr(journals, "WRITE_SECONDS", 3600)
    journal = opened(tmp_path)
    journal.start(INFO)
    wait_until(lambda: journal.stats.written == 1)
    for _ in range(6):
        journal(event_of())
    wait_until(lambda: journal.stats.written == 7)
    journal.close(60)


def test_a_full_disk_is_logged_once_and_its_end_once(
    tmp_path: Path,
    idle: Callable[[Journal], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk(room=0)
    monkeypatch.setattr(folders, "FileIO", disk)
    journal = opened(tmp_path)
    journal.start(INFO)
    for _ in range(3):
        journal(event_of())
        journal.step()
    disk.room = 100_000
    for _ in range(3):
        journal(event_of())
        journal.step()
    assert (journal.stats.written, journal.stats.dropped) == (3, 4)
    assert [line["seq"] for line in read_journal(tmp_path)] == [5, 6, 7]
    first, second = [record.message for record in caplog.records]
    assert str(errno.ENOSPC) in first
    assert "works again" in second
    end(journal, idle)


def test_an_event_that_cannot_be_written_costs_only_its_own_line(
    tmp_path: Path, idle: Callable[[Journal], None], caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(tmp_path)
    journal(event_of(at=float("nan")))
    journal(event_of())
    journal.step()
    assert [line["seq"] for line in read_journal(tmp_path)] == [2]
    assert journal.stats.dropped == 1
    assert "the journal does not work" in caplog.text
    end(journal, idle)


def test_an_error_of_its_own_does_not_end_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(tmp_path)
    write, faults = SegmentWriter.write, [LookupError("a bug")]

    def fails_once(writer: SegmentWriter, lines: Any) -> int:
        if faults:
            raise faults.pop()
        return write(writer, lines)

    monkeypatch.setattr(SegmentWriter, "write", fails_once)
    journal.start(INFO)
    wait_until(lambda: not faults)
    journal(event_of())
    journal.close(60)
    assert [line["seq"] for line in read_journal(tmp_path)] == [2, 3]
    assert journal.stats.dropped == 1
    assert "a bug of its own" in caplog.text


def test_a_worker_without_a_journal_thread_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    journal = opened(tmp_path)
    journal.start(INFO)
    journal(event_of())
    journal.close(60)
    assert "start a thread for the journal" in caplog.text
    assert files_in(tmp_path) == []


def test_a_disk_that_hangs_delays_no_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, entered = threading.Event(), threading.Event()

    def hang(*_: object) -> Any:
        entered.set()
        hanging.wait()
        raise OSError(errno.EIO, "at last")

    monkeypatch.setattr(folders.Folder, "create", hang)

    before = set(threading.enumerate())
    journal = opened(tmp_path)
    journal.start(INFO)
    (thread,) = set(threading.enumerate()) - before
    entered.wait()
    for _ in range(20):
        journal(event_of())
    journal.close(0.01)
    assert "not finish within 0.01 s" in caplog.text
    hanging.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert journal.stats.written == 0


def test_closing_before_the_start_or_after_the_end_does_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.close(60)
    journal.start(INFO)
    journal.close(60)
    journal(event_of())
    journal.note_late(1)
    journal.close(60)
    assert [line["ev"] for line in read_journal(tmp_path)] == ["worker-started", "worker-stopped"]


def test_segments_of_dead_workers_are_closed_at_the_start(
    tmp_path: Path, idle: Callable[[Journal], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "dt=2020-01-01" / "worker=dead" / "seg-3.jsonl.open"
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"v":1,"ts":1}\n{"v":')
    caplog.set_level(logging.INFO, "celery_sqs_heartbeat")
    journal = opened(tmp_path)
    journal.step()
    assert files_in(tmp_path) == ["dt=2020-01-01/worker=dead/seg-3.jsonl.zst"]
    assert journal.stats.torn == 1
    assert "closed 1 segment of dead workers in" in caplog.text


def test_leftovers_of_other_workers_are_looked_for_repeatedly(
    tmp_path: Path, idle: Callable[[Journal], None]
) -> None:
    clocks = Clocks()
    journal = opened(tmp_path, clock=clocks.clock, wall=clocks.wall)
    journal.step()
    for day in (DAY, "2020-01-01"):
        path = tmp_path / f"dt={day}" / "worker=dead" / "seg-1.jsonl.open"
        path.parent.mkdir(parents=True)
        path.write_bytes(b'{"v":1,"ts":1}\n')
    clocks.now += 599
    journal.step()
    assert all(name.endswith(".open") for name in files_in(tmp_path))
    clocks.now += 1
    journal.step()
    # Leftovers of earlier days wait for the next worker.
    assert files_in(tmp_path) == [
        "dt=2020-01-01/worker=dead/seg-1.jsonl.open",
        f"dt={DAY}/worker=dead/seg-1.jsonl.zst",
    ]


def test_times_follow_a_wall_clock_that_is_set(
    tmp_path: Path, idle: Callable[[Journal], None]
) -> None:
    clocks = Clocks()
    journal = opened(tmp_path, clock=clocks.clock, wall=clocks.wall)
    journal(event_of())
    journal.step()
    clocks.offset += 3_600_000_000
    journal(event_of())
    journal.step()
    first, second = read_journal(tmp_path)
    assert second["ts"] - first["ts"] == 3_600_000_000
    assert second["mono"] == first["mono"]
    end(journal, idle)


def test_a_second_keeper_continues_the_sequence_and_the_time_of_the_first(tmp_path: Path) -> None:
    identity = Identity.here(1)
    clocks, began_at = Clocks(), Clocks().clock() - 60
    for last in (0, 2):
        journal = opened(
            tmp_path, clock=clocks.clock, identity=identity, began_at=began_at, last=last
        )
        journal.start(INFO)
        journal.note_late(1.5)
        journal.close(60, has_stopped=False)
    lines = list(read_journal(tmp_path))
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert [line["ev"] for line in lines] == ["worker-started", "keeper-late", "keeper-late"]
    assert {line["mono"] for line in lines} == {60_000_000}
    assert {line["wid"] for line in lines} == {identity.wid}


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


@pytest.mark.parametrize("target", ["", "s3://", "s3:///a", "gs://a/b", "s3://a/../b", "s3://a//b"])
def test_any_other_target_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="must be a folder, or s3://BUCKET/PREFIX"):
        parse_target(target)


def test_every_kind_of_event_is_taken(tmp_path: Path, idle: Callable[[Journal], None]) -> None:
    journal = opened(tmp_path)
    for kind in EventKind:
        journal(event_of(kind))
    journal.step()
    assert [line["ev"] for line in read_journal(tmp_path)] == [kind.value for kind in EventKind]
    assert all(line["wid"] != ORIGIN.wid for line in read_journal(tmp_path))
    end(journal, idle)
