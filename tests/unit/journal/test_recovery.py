"""The next worker closes segments that dead workers left open."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from celery_sqs_heartbeat.journal.reading import read_journal
from celery_sqs_heartbeat.journal.segments import SegmentWriter, recover
from tests.unit.journal.samples import DAY, WALL, fail, files_in, frames_of, line_at, own


def left_behind(folder: Path, data: bytes, worker: str = "dead", day: str = DAY) -> Path:
    path = folder / f"dt={day}" / f"worker={worker}" / "seg-1.jsonl.open"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def lines(*names: str) -> bytes:
    return b"".join(line_at(WALL, name)[1] for name in names)


def test_a_leftover_is_closed(tmp_path: Path) -> None:
    path = left_behind(tmp_path, lines("a", "b"))
    assert recover(own(tmp_path)) == (1, 0)
    assert files_in(tmp_path) == [f"dt={DAY}/worker=dead/seg-1.jsonl.zst"]
    assert frames_of(path.with_name("seg-1.jsonl.zst")) == [lines("a", "b")]
    assert recover(own(tmp_path)) == (0, 0)


@pytest.mark.parametrize("torn", [b'{"v":1,"ts":17', b"\0\0\0\0", lines("c")[:-1]])
def test_a_torn_line_is_left_out_and_counted(tmp_path: Path, torn: bytes) -> None:
    path = left_behind(tmp_path, lines("a", "b") + torn)
    assert recover(own(tmp_path)) == (1, 1)
    assert frames_of(path.with_name("seg-1.jsonl.zst")) == [lines("a", "b")]


@pytest.mark.parametrize(("data", "torn"), [(b"", 0), (b'{"v"', 1)])
def test_a_leftover_without_a_line_is_removed(tmp_path: Path, data: bytes, torn: int) -> None:
    left_behind(tmp_path, data)
    assert recover(own(tmp_path)) == (1, torn)
    assert files_in(tmp_path) == []


def test_segments_of_a_live_worker_are_left_alone(tmp_path: Path) -> None:
    writer = SegmentWriter(own(tmp_path), "live", lambda: 0.0, fail)
    writer.write([line_at(WALL, "a")])
    assert recover(own(tmp_path)) == (0, 0)
    writer.write([line_at(WALL, "b")])
    writer.close()
    assert [fields["text"] for fields in read_journal(tmp_path)] == ["a", "b"]


def test_a_worker_that_died_between_closing_and_removing_is_not_read_twice(tmp_path: Path) -> None:
    path = left_behind(tmp_path, lines("a"))
    recover(own(tmp_path))
    path.write_bytes(lines("a"))
    assert [fields["text"] for fields in read_journal(tmp_path)] == ["a"]
    assert recover(own(tmp_path)) == (1, 0)
    assert [fields["text"] for fields in read_journal(tmp_path)] == ["a"]


def test_one_leftover_that_cannot_be_closed_does_not_keep_others_open(tmp_path: Path) -> None:
    blocked = left_behind(tmp_path, lines("a"), worker="a")
    left_behind(tmp_path, lines("b"), worker="b")
    # A folder in the place of the new file.
    blocked.with_name("seg-1.jsonl.zst").mkdir()
    assert recover(own(tmp_path)) == (1, 0)
    assert blocked.exists()


def test_only_the_days_that_are_asked_for_are_looked_at(tmp_path: Path) -> None:
    left_behind(tmp_path, lines("a"), day="2020-01-01")
    assert recover(own(tmp_path), [DAY]) == (0, 0)
    assert recover(own(tmp_path), ["2020-01-01", DAY]) == (1, 0)


def test_nothing_is_touched_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(95, "not supported")

    path = left_behind(tmp_path, lines("a"))
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert recover(own(tmp_path)) == (0, 0)
    assert path.exists()
    # A worker can still write there.
    writer = SegmentWriter(own(tmp_path), "w", lambda: 0.0, fail)
    assert writer.write([line_at(WALL, "b")]) == 1
    writer.close()
