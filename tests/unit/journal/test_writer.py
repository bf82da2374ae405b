"""Segments: when the writer begins and closes them, and their contents."""

from __future__ import annotations

import datetime
import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from celery_sqs_heartbeat.journal import folder as folders
from celery_sqs_heartbeat.journal import segments
from celery_sqs_heartbeat.journal.reading import read_journal, unpack
from celery_sqs_heartbeat.journal.segments import SegmentWriter, recover
from tests.support.workers import ROOT
from tests.unit.journal.samples import (
    DAY,
    WALL,
    Clocks,
    Disk,
    fail,
    files_in,
    frames_of,
    line_at,
    own,
)

WORKER = f"dt={DAY}/worker=w"
MIDNIGHT = round(datetime.datetime(2026, 3, 15, tzinfo=datetime.timezone.utc).timestamp() * 1e6)


def writer_of(
    folder: Path, clocks: Clocks | None = None, on_fault: Callable[[OSError], None] = fail
) -> SegmentWriter:
    return SegmentWriter(own(folder), "w", (clocks or Clocks()).clock, on_fault)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(folders, "FileIO", disk)
    return disk


def texts(folder: Path) -> list[str]:
    return [fields["text"] for fields in read_journal(folder)]


def test_lines_are_plain_until_the_segment_is_closed(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    assert writer.write([line_at(WALL, "a"), line_at(WALL, "b")]) == 2
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.open"]
    plain = b"".join(line for _, line in (line_at(WALL, "a"), line_at(WALL, "b")))
    assert (tmp_path / WORKER / "seg-1.jsonl.open").read_bytes() == plain
    assert texts(tmp_path) == ["a", "b"]

    writer.close()
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.zst"]
    assert frames_of(tmp_path / WORKER / "seg-1.jsonl.zst") == [plain]
    assert texts(tmp_path) == ["a", "b"]


def test_a_worker_without_lines_makes_no_file(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    assert writer.write([]) == 0
    writer.close()
    writer.close_if_old()
    assert files_in(tmp_path) == []


def test_no_segment_grows_beyond_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 200)
    writer = writer_of(tmp_path)
    for number in range(10):
        writer.write([line_at(WALL, f"{number}-{part}") for part in range(3)])
    writer.close()
    paths = [tmp_path / name for name in files_in(tmp_path)]
    assert len(paths) > 5
    assert all(len(b"".join(frames_of(path))) <= 200 for path in paths)
    assert texts(tmp_path) == [f"{number}-{part}" for number in range(10) for part in range(3)]


def test_a_write_beyond_the_size_gets_its_own_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 100)
    writer = writer_of(tmp_path)
    for text in ("a", "b" * 500, "c"):
        writer.write([line_at(WALL, text)])
    writer.close()
    assert len(files_in(tmp_path)) == 3
    assert texts(tmp_path) == ["a", "b" * 500, "c"]


def test_a_segment_is_closed_at_its_age(tmp_path: Path) -> None:
    clocks = Clocks()
    writer = writer_of(tmp_path, clocks)
    writer.write([line_at(WALL)])
    clocks.now += 299.9
    writer.close_if_old()
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.open"]
    clocks.now += 0.1
    writer.close_if_old()
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.zst"]


def test_each_day_has_its_folder(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.write([line_at(MIDNIGHT - 1, "old"), line_at(MIDNIGHT, "new")])
    assert files_in(tmp_path) == [
        f"{WORKER}/seg-1.jsonl.zst",
        "dt=2026-03-15/worker=w/seg-2.jsonl.open",
    ]
    writer.write([line_at(MIDNIGHT - 1, "late")])
    writer.close()
    assert texts(tmp_path) == ["old", "new", "late"]
    assert len(files_in(tmp_path)) == 2


def test_each_frame_of_a_segment_can_be_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "FRAME_BYTES", 100)
    writer = writer_of(tmp_path)
    writer.write([line_at(WALL, str(number)) for number in range(20)])
    writer.close()
    (name,) = files_in(tmp_path)
    frames = frames_of(tmp_path / name)
    assert len(frames) > 5
    assert all(frame.endswith(b"}\n") for frame in frames)
    assert list(unpack(tmp_path / name)) == [line_at(WALL, str(n))[1] for n in range(20)]

    # A segment that is cut short can be read up to its last whole frame.
    data = (tmp_path / name).read_bytes()
    for end in range(0, len(data), 7):
        (tmp_path / name).write_bytes(data[:end])
        got = texts(tmp_path)
        assert got == [str(number) for number in range(len(got))]
    assert len(got) >= 15


def test_a_full_disk_costs_lines_but_tears_none(tmp_path: Path, disk: Disk) -> None:
    disk.room = 100
    faults: list[OSError] = []
    writer = writer_of(tmp_path, on_fault=faults.append)
    assert writer.write([line_at(WALL, "a")]) == 1
    for _ in range(3):
        # Only a part of the line fits. The writer removes it again.
        assert writer.write([line_at(WALL, "b" * 100)]) == 0
        assert faults.pop().errno == errno.ENOSPC
    disk.room = 1_000
    assert writer.write([line_at(WALL, "c")]) == 1
    writer.close()
    assert texts(tmp_path) == ["a", "c"]
    # There was no room to compress the first, so the next search for leftovers does it.
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.open", f"{WORKER}/seg-4.jsonl.zst"]
    assert recover(own(tmp_path)) == (1, 0)
    assert texts(tmp_path) == ["a", "c"]


def test_a_disk_that_is_full_from_the_start_is_not_littered(tmp_path: Path, disk: Disk) -> None:
    disk.room = 0
    faults: list[OSError] = []
    writer = writer_of(tmp_path, on_fault=faults.append)
    for _ in range(3):
        assert writer.write([line_at(WALL)]) == 0
    assert files_in(tmp_path) == []


def test_a_segment_that_cannot_be_compressed_stays_plain(tmp_path: Path, disk: Disk) -> None:
    faults: list[OSError] = []
    writer = writer_of(tmp_path, on_fault=faults.append)
    writer.write([line_at(WALL, "a")])
    disk.room = 5
    writer.close()
    assert faults
    assert files_in(tmp_path) == [f"{WORKER}/seg-1.jsonl.open"]
    disk.room = 1_000
    assert writer.write([line_at(WALL, "b")]) == 1
    writer.close()
    assert texts(tmp_path) == ["a", "b"]


def test_lines_go_elsewhere_when_a_file_takes_no_more(tmp_path: Path, disk: Disk) -> None:
    disk.error = errno.EFBIG
    faults: list[OSError] = []
    writer = writer_of(tmp_path, on_fault=faults.append)
    assert writer.write([line_at(WALL, "a")]) == 1
    disk.room = 0
    assert writer.write([line_at(WALL, "lost")]) == 0
    disk.room = 1_000
    assert writer.write([line_at(WALL, "b")]) == 1
    writer.close()
    assert texts(tmp_path) == ["a", "b"]


def test_a_folder_that_is_a_file_costs_lines(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    faults: list[OSError] = []
    writer = writer_of(tmp_path / "journal", on_fault=faults.append)
    assert writer.write([line_at(WALL)]) == 0
    assert len(faults) == 1


def test_a_cleaner_of_old_files_does_no_harm(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.write([line_at(WALL, "a")])
    (tmp_path / WORKER / "seg-1.jsonl.open").unlink()
    (tmp_path / WORKER).rmdir()
    writer.write([line_at(WALL, "b")])
    writer.close()
    assert texts(tmp_path) == ["a", "b"]


#: Writes lines of 100 bytes under a limit of 10,000 bytes per file.
LIMITED = """
import resource, sys
from pathlib import Path
from celery_sqs_heartbeat.journal.folder import Root
from celery_sqs_heartbeat.journal.segments import SegmentWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
root, faults = Root(Path(sys.argv[1]), is_private=False), []
writer = SegmentWriter(root, "w", lambda: 0.0, faults.append)
written = 0
for number in range(1_000):
    line = b'{"v":1,"text":"%080d"}\\n' % number
    written += writer.write([(0, line)])
writer.close()
print(written)
"""


def test_a_real_limit_on_files_costs_one_line_per_file(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    numbers = [int(text) for text in texts(tmp_path)]
    assert len(numbers) == int(run.stdout) == len(set(numbers))
    assert numbers == sorted(numbers)
    assert 980 <= len(numbers) < 1_000
    assert all(name.endswith(".zst") for name in files_in(tmp_path))
