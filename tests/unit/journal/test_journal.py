"""What a journal writes, when it closes segments, and what it does when something fails."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from celery_sqs_heartbeat.common.journal_facts import Identity, WorkerInfo
from celery_sqs_heartbeat.journal import folder as folders
from celery_sqs_heartbeat.journal import journal as journals
from celery_sqs_heartbeat.journal.reading import read_journal
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.settings.address import Destination, parse_target
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.journal.samples import (
    DAY,
    WALL,
    Clocks,
    Disk,
    event_of,
    files_in,
    frames_of,
    journal_at,
    run_journal,
)

INFO = WorkerInfo(node="celery@h", pool="prefork", concurrency=2, settings={"on_lost": "warn"})
IDENTITY = Identity.here(1)
WORKER = f"dt={DAY}/worker={IDENTITY.wid}"
DEAD = f"dt={DAY}/worker=dead/seg-1.jsonl"
LINES = b'{"v":1,"ts":1}\n{"v":1,"ts":2}\n'


class Scene:
    """A worker's journal without its thread: the test calls each step, at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clocks = Clocks()
        self.journal = journal_at(folder, self.clocks, identity=IDENTITY)

    def write(self, count: int = 1, **values: Any) -> None:
        """Write these events at once."""
        for _ in range(count):
            self.journal(event_of(**values))
        self.journal.step()

    def step_after(self, seconds: float) -> None:
        self.clocks.now += seconds
        self.journal.step()

    def leave_behind(self, data: bytes = LINES, name: str = f"{DEAD}.open") -> Path:
        """Put a segment of a dead worker into the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    @property
    def files(self) -> list[str]:
        return files_in(self.folder)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return list(read_journal(self.folder))

    @property
    def numbers(self) -> list[int]:
        return [line["seq"] for line in self.lines]

    @property
    def counts(self) -> tuple[int, int]:
        return self.journal.stats.written, self.journal.stats.dropped


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.journal.start(INFO)
    scene.journal.close(PATIENCE)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(folders, "FileIO", disk)
    return disk


def test_the_events_of_a_worker_are_written_in_order(scene: Scene) -> None:
    journal = scene.journal
    journal.close(PATIENCE)
    for _ in range(2):
        journal.start(INFO)
    for kind in EventKind:
        journal(event_of(kind))
    journal.note_late(1.5)
    for _ in range(2):
        journal.close(PATIENCE)
    scene.write()
    first, second, *_, late, _ = lines = scene.lines
    kinds = [kind.value for kind in EventKind]
    written = ["worker-started", *kinds, "keeper-late", "worker-stopped"]
    assert [(line["seq"], line["ev"]) for line in lines] == list(enumerate(written, 1))
    assert (first["pid"], first["settings"]) == (os.getpid(), {"on_lost": "warn"})
    assert "versions" not in first
    assert late["late_us"] == 1_500_000
    assert second["ts"] == 2_500_000 + first["ts"]
    assert scene.counts == (len(lines), 0)
    assert scene.files == [f"{WORKER}/seg-1.jsonl.zst"]


def test_many_threads_leave_no_gap(scene: Scene) -> None:
    scene.journal.start(INFO)
    with ThreadPoolExecutor(4) as threads:
        for _ in range(2_000):
            threads.submit(scene.journal, event_of())
    scene.journal.close(PATIENCE)
    assert scene.numbers == list(range(1, 2_003))


def test_a_segment_is_plain_until_it_is_closed_at_its_age(scene: Scene) -> None:
    scene.journal.step()
    assert scene.files == []
    scene.write(2)
    scene.step_after(299.9)
    assert scene.files == [f"{WORKER}/seg-1.jsonl.open"]
    plain = (scene.folder / WORKER / "seg-1.jsonl.open").read_bytes()
    assert scene.numbers == [1, 2]
    scene.step_after(0.1)
    assert scene.files == [f"{WORKER}/seg-1.jsonl.zst"]
    assert frames_of(scene.folder / WORKER / "seg-1.jsonl.zst") == [plain]
    assert scene.numbers == [1, 2]


@pytest.mark.parametrize(("at_once", "segments"), [(1, 20), (10, 4)])
def test_no_segment_grows_beyond_its_size_unless_one_write_does(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, at_once: int, segments: int
) -> None:
    monkeypatch.setattr(folders, "SEGMENT_BYTES", 700)
    for _ in range(0, 40, at_once):
        scene.write(at_once, task="x" * 100)
    assert len(scene.files) == segments
    assert scene.numbers == list(range(1, 41))


def test_each_day_has_its_folder_and_a_late_line_stays_with_its_own(scene: Scene) -> None:
    day = 86_400_000_000
    midnight = scene.clocks.now + (day - WALL % day) / 1e6
    for at in (midnight - 1e-6, midnight):
        scene.journal(event_of(at=at))
    scene.write(at=midnight - 1e-6)
    assert scene.files == [
        f"{WORKER}/seg-1.jsonl.zst",
        f"dt=2026-03-15/worker={IDENTITY.wid}/seg-2.jsonl.open",
    ]
    assert scene.numbers == [1, 2, 3]


def test_events_beyond_the_queue_are_counted_logged_and_a_gap(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "QUEUE_LIMIT", 10)
    scene.write(15)
    scene.write()
    scene.journal.note_late(1)
    scene.journal.step()
    assert scene.numbers == [*range(1, 11), 16, 17]
    assert scene.lines[-1]["dropped"] == 5
    assert scene.counts == (12, 5)
    assert caplog.messages == [
        "sqs-heartbeat: the journal does not work (more events than it can write). Messages are "
        "not affected, but some of their events are not recorded. Check the place that "
        "sqs_heartbeat_journal names",
        "sqs-heartbeat: the journal works again; lines lost so far: 5",
    ]


def test_a_full_disk_costs_lines_tears_none_and_is_logged_once(
    scene: Scene, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.room = 300
    for _ in range(4):
        # One line fits. Of the next there is room for a part, which is removed again.
        scene.write()
    # There was no room to compress the segment, and files without a line are removed.
    assert scene.files == [f"{WORKER}/seg-1.jsonl.open"]
    disk.room = 100_000
    scene.write()
    assert scene.numbers == [1, 5]
    assert scene.counts == (2, 3)
    assert [message.split(" (")[0] for message in caplog.messages] == [
        "sqs-heartbeat: the journal does not work",
        "sqs-heartbeat: the journal works again; lines lost so far: 3",
    ]
    # The next search for leftovers closes it.
    scene.step_after(600)
    assert f"{WORKER}/seg-1.jsonl.zst" in scene.files
    assert scene.numbers == [1, 5]


def test_a_cleaner_of_old_files_does_no_harm(scene: Scene) -> None:
    scene.write()
    (path,) = scene.folder.rglob("*.open")
    path.unlink()
    path.parent.rmdir()
    scene.write()
    scene.step_after(300)
    assert scene.numbers == [1, 2]


def test_an_event_that_cannot_be_written_costs_only_its_own_line(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.journal(event_of(at=float("nan")))
    scene.write()
    assert scene.numbers == [2]
    assert scene.counts == (1, 1)
    assert "the journal does not work" in caplog.text


def test_a_bug_of_its_own_does_not_end_the_thread(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [LookupError("a bug")]

    def fails_once(ts: int) -> str:
        if faults:
            raise faults.pop()
        return DAY

    monkeypatch.setattr(folders, "day_of", fails_once)
    scene.journal.start(INFO)
    wait_until(lambda: not faults)
    scene.journal(event_of())
    scene.journal.close(PATIENCE)
    assert scene.numbers == [2, 3]
    assert scene.counts == (2, 1)
    assert "the journal does not work (a bug)" in caplog.text
    assert "Traceback" in caplog.text


def test_a_worker_without_a_journal_thread_still_works(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    run_journal(scene.folder)
    assert "start a thread for the journal" in caplog.text
    assert scene.files == []


def test_a_disk_that_hangs_delays_no_one(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, entered = threading.Event(), threading.Event()

    def hang(path: Path) -> Any:
        entered.set()
        hanging.wait()
        raise OSError(errno.EIO, "at last")

    monkeypatch.setattr(folders, "create", hang)
    before = set(threading.enumerate())
    scene.journal.start(INFO)
    (thread,) = set(threading.enumerate()) - before
    entered.wait()
    scene.journal(event_of())
    scene.journal.close(0.01)
    assert "not finish within 0.01 s" in caplog.text
    hanging.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert scene.counts[0] == 0


def test_times_follow_a_wall_clock_that_is_set(scene: Scene) -> None:
    scene.write()
    scene.clocks.offset += 3_600_000_000
    scene.write()
    first, second = scene.lines
    assert second["ts"] - first["ts"] == 3_600_000_000
    assert second["mono"] == first["mono"]


def test_a_second_keeper_continues_the_sequence_and_the_time_of_the_first(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "torn",
    [b"", b'{"v":1,"ts":17', b"\0\0\0\0", b'{"v":1,"ts":3}'],
)
@pytest.mark.parametrize("whole", [LINES, b""])
def test_the_segment_of_a_dead_worker_is_closed_without_its_torn_line(
    scene: Scene, whole: bytes, torn: bytes
) -> None:
    path = scene.leave_behind(whole + torn)
    # A leftover of another one that can't be closed, because a folder is in the way.
    blocked = scene.leave_behind(name="dt=2020-01-01/worker=a/seg-1.jsonl.open")
    blocked.with_name("seg-1.jsonl.zst").mkdir()
    scene.journal.step()
    assert blocked.exists()
    assert not path.exists()
    closed = path.with_name("seg-1.jsonl.zst")
    assert (frames_of(closed) if whole else closed.exists()) == ([LINES] if whole else False)


def test_a_worker_that_died_between_closing_and_removing_is_not_read_twice(scene: Scene) -> None:
    path = scene.leave_behind()
    scene.journal.step()
    path.write_bytes(LINES)
    for _ in range(2):
        assert [line["ts"] for line in scene.lines] == [1, 2]
        scene.step_after(600)
    assert scene.files == [f"{DEAD}.zst"]


def test_leftovers_of_two_days_are_looked_for_repeatedly(scene: Scene) -> None:
    scene.journal.step()
    path = scene.leave_behind()
    yesterday = scene.leave_behind(name="dt=2026-03-13/worker=dead/seg-1.jsonl.open")
    # It waits for the next worker, which looks at all days when it starts.
    earlier = scene.leave_behind(name="dt=2020-01-01/worker=dead/seg-1.jsonl.open")
    scene.step_after(599)
    assert path.exists()
    scene.step_after(1)
    assert not path.exists()
    assert not yesterday.exists()
    assert earlier.exists()
    Scene(scene.folder).journal.step()
    assert not earlier.exists()


def test_segments_of_a_live_worker_are_left_alone(scene: Scene) -> None:
    scene.write()
    Scene(scene.folder).journal.step()
    assert scene.files == [f"{WORKER}/seg-1.jsonl.open"]
    scene.write()
    assert scene.numbers == [1, 2]


def test_a_file_system_without_locks_is_written_to_but_no_segment_of_others_is_closed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    path = scene.leave_behind()
    monkeypatch.setattr(fcntl, "flock", no_locks)
    scene.write()
    assert path.exists()
    assert scene.counts == (1, 0)


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("journal", Path("journal")),
        ("~/journal", Path("~/journal").expanduser()),
        ("s3://bucket", Destination(bucket="bucket", prefix="")),
        ("s3://bucket/", Destination(bucket="bucket", prefix="")),
        ("s3://bucket/a/b/", Destination(bucket="bucket", prefix="a/b")),
    ],
)
def test_a_target_is_a_folder_or_a_prefix(target: str, place: object) -> None:
    assert parse_target(target) == place
