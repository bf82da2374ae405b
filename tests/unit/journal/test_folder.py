"""A journal stays safe in folders in which another user of the machine has set traps."""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from celery_sqs_heartbeat.common.journal_facts import WorkerInfo
from celery_sqs_heartbeat.journal.folder import RefusedError, Root
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.reading import read_journal
from tests.support.waiting import PATIENCE
from tests.unit.journal.samples import WALL, Clocks, event_of, files_in, frames_of, line_at

#: Another user of the machine.
OTHER = 65_534
SECRET = b'{"v":1,"ts":1,"secret":"of mine"}\n'
#: Lines of the worker's start and end.
ENDS = 2
OPEN, CLOSED = "seg-7.jsonl.open", "seg-7.jsonl.zst"
WORKER = "dt=2026-03-13/worker=dead"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Bucket:
    """The part of an S3 client that a shipper uses."""

    def __init__(self) -> None:
        self.text = b""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        self.text += zstandard.ZstdDecompressor().decompressobj().decompress(Body)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The top folder of a spool, which does not exist yet."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"celery-sqs-heartbeat-journal-{os.geteuid()}"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of this user outside of the journal."""
    path = tmp_path / "mine" / OPEN
    path.parent.mkdir(mode=0o700)
    path.write_bytes(SECRET)
    return path


def spool_in(top: Path) -> Path:
    return top / socket.gethostname() / "b" / "prefix"


def run(target: str | Path, bucket: Bucket | None = None) -> Journal:
    """Run a journal, which recovers and uploads what it finds, and records one event."""
    clocks = Clocks()
    journal = Journal(str(target), clock=clocks.clock, wall=clocks.wall, new_client=lambda: bucket)
    journal.start(WorkerInfo())
    journal(event_of())
    journal.close(PATIENCE)
    return journal


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def linked(top: Path) -> None:
    folder = top.with_name("elsewhere")
    folder.mkdir(mode=0o700)
    top.symlink_to(folder)


def foreign(top: Path) -> None:
    top.mkdir(mode=0o700)
    os.chown(top, OTHER, OTHER)


def foreign_and_open(top: Path) -> None:
    foreign(top)
    top.chmod(0o777)


def foreign_link(top: Path) -> None:
    linked(top)
    os.chown(top, OTHER, OTHER, follow_symlinks=False)


def open_to_a_group(top: Path) -> None:
    top.mkdir(mode=0o700)
    top.chmod(0o750)


def file(top: Path) -> None:
    top.write_bytes(SECRET)


#: Folders that are refused, and whether as a spool or as the folder of a setting.
REFUSED = [
    (linked, True),
    pytest.param(foreign, True, marks=as_root),
    (open_to_a_group, True),
    (file, True),
    pytest.param(foreign_and_open, False, marks=as_root),
    pytest.param(foreign_link, False, marks=as_root),
]


@pytest.mark.parametrize(("trap", "is_private"), REFUSED)
def test_a_folder_that_another_user_could_have_made_is_left_alone(
    trap: Callable[[Path], None],
    is_private: bool,
    top: Path,
    bucket: Bucket,
    caplog: pytest.LogCaptureFixture,
) -> None:
    trap(top)
    if top.is_dir():
        place = (spool_in(top) if is_private else top) / WORKER
        place.mkdir(parents=True)
        (place / OPEN).write_bytes(SECRET)
        (place / CLOSED).write_bytes(zstandard.compress(SECRET))
    before = files_in(top.parent)
    journal = run("s3://b/prefix" if is_private else top, bucket)
    assert bucket.text == b""
    assert files_in(top.parent) == before
    assert (journal.stats.written, journal.stats.dropped) == (0, 1 + ENDS)
    (warning,) = warnings(caplog)
    assert str(top) in warning
    assert ("set TMPDIR to a folder" if is_private else "chmod o-w") in warning


#: Owner, group and mode of folders that people use: one made by hand, a Kubernetes volume with an
#: fsGroup, one without (emptyDir), a folder for temporary files, and a folder that another user
#: shares with a group.
SHARED = [(0, 0, 0o755), (0, OTHER, 0o2775), (0, 0, 0o777), (0, 0, 0o1777), (OTHER, 0, 0o2775)]


@as_root
@pytest.mark.parametrize(("user", "group", "mode"), SHARED)
def test_a_folder_that_is_shared_in_a_known_way_is_used(
    user: int, group: int, mode: int, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    os.chown(folder, user, group)
    folder.chmod(mode)
    run(folder)
    assert len(list(read_journal(folder))) == 1 + ENDS


def test_a_setting_may_name_a_link_to_the_folder(tmp_path: Path) -> None:
    linked(tmp_path / "journal")
    run(tmp_path / "journal")
    assert len(list(read_journal(tmp_path / "elsewhere"))) == 1 + ENDS


def swapped(top: Path, monkeypatch: pytest.MonkeyPatch, name: str, owner: object) -> None:
    """Let a call for the status of a folder be followed by another user's trap in its place."""
    look = getattr(owner, name)

    def look_and_swap(*place: Any) -> os.stat_result:
        monkeypatch.undo()
        status: os.stat_result = look(*place)
        top.rename(top.with_name("moved"))
        linked(top)
        return status

    monkeypatch.setattr(owner, name, look_and_swap)


def test_a_folder_that_is_swapped_before_it_is_opened_is_refused(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top.mkdir(mode=0o700)
    swapped(top, monkeypatch, "lstat", Path)
    with pytest.raises(OSError, match=str(top)), Root(top, is_private=True).opened():
        pass


def test_a_folder_that_opens_up_before_it_is_opened_is_refused(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top.mkdir(mode=0o700)
    lstat = Path.lstat

    def look_and_open_up(path: Path) -> os.stat_result:
        status = lstat(path)
        top.chmod(0o777)
        return status

    monkeypatch.setattr(Path, "lstat", look_and_open_up)
    with pytest.raises(RefusedError), Root(top, is_private=True).opened():
        pass


def test_a_folder_that_is_swapped_after_it_was_opened_is_not_entered(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "dt=1").mkdir(parents=True)
    top.chmod(0o700)
    swapped(top, monkeypatch, "fstat", os)
    with Root(top, is_private=True).opened("dt=1") as folder:
        folder.create("seg-1").close()
    assert files_in(top) == []
    assert files_in(top.with_name("moved")) == ["dt=1/seg-1"]


def test_the_journal_continues_once_the_trap_is_gone(
    top: Path, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    linked(top)
    clocks = Clocks()
    journal = Journal(
        "s3://b/prefix", clock=clocks.clock, wall=clocks.wall, new_client=lambda: bucket
    )
    journal(event_of())
    journal.step()
    top.unlink()
    journal.start(WorkerInfo())
    journal.close(PATIENCE)
    assert stat.S_IMODE(top.stat().st_mode) == 0o700
    assert journal.stats.written == ENDS
    assert bucket.text.count(b"\n") == ENDS
    assert "works again" in warnings(caplog)[-1]


def symlinked(place: Path, secret: Path) -> None:
    place.symlink_to(secret)


def fifo(place: Path, secret: Path) -> None:
    os.mkfifo(place)


def hard_linked(place: Path, secret: Path) -> None:
    place.hardlink_to(secret)


def given_away(place: Path, secret: Path) -> None:
    place.write_bytes(secret.read_bytes())
    os.chown(place, OTHER, OTHER)


def linked_worker(place: Path, secret: Path) -> None:
    place.parent.rmdir()
    place.parent.symlink_to(secret.parent)


def linked_day(place: Path, secret: Path) -> None:
    linked_worker(place, secret)
    place.parent.rename(secret.parent / "worker=dead")
    place.parent.parent.rmdir()
    place.parent.parent.symlink_to(secret.parent)


TRAPS = [
    symlinked,
    fifo,
    hard_linked,
    pytest.param(given_away, marks=as_root),
    linked_worker,
    linked_day,
]


@pytest.mark.parametrize("target", ["s3://b/prefix", "folder"])
@pytest.mark.parametrize("name", [OPEN, CLOSED])
@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_not_a_file_of_this_user_is_left_alone(
    trap: Callable[[Path, Path], None],
    name: str,
    target: str,
    top: Path,
    secret: Path,
    bucket: Bucket,
    caplog: pytest.LogCaptureFixture,
) -> None:
    top.mkdir(mode=0o700)
    folder = spool_in(top) if "//" in target else top
    place = folder / WORKER / name
    place.parent.mkdir(parents=True)
    data = SECRET if name == OPEN else zstandard.compress(SECRET)
    secret = secret.rename(secret.with_name(name))
    secret.write_bytes(data)
    trap(place, secret)
    journal = run(target if "//" in target else top, bucket)
    # Its own lines are still written and uploaded.
    assert journal.stats.written == 1 + ENDS
    assert bucket.text.count(b"\n") == (1 + ENDS if "//" in target else 0)
    assert b"secret" not in bucket.text
    assert secret.read_bytes() == data
    assert os.listdir(secret.parent) in ([name], [name, "worker=dead"], ["worker=dead", name])
    refused = [line for line in warnings(caplog) if "does not touch a file or folder" in line]
    is_used = name == OPEN or "//" in target
    assert len(refused) == is_used
    assert not is_used or str(folder) in refused[0]


def test_nothing_is_written_through_a_link_in_place_of_a_draft(
    tmp_path: Path, secret: Path
) -> None:
    place = tmp_path / "journal" / WORKER
    place.mkdir(parents=True)
    (place / OPEN).write_bytes(line_at(WALL, "left behind")[1])
    (place / f".{CLOSED}").symlink_to(secret)
    run(tmp_path / "journal")
    assert secret.read_bytes() == SECRET
    # The link was treated as a leftover draft, and the segment was closed.
    assert b"left behind" in frames_of(place / CLOSED)[0]


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_others_may_not_read_a_journal_whatever_the_umask(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    clocks = Clocks()
    journal = Journal(str(tmp_path / "journal"), clock=clocks.clock, wall=clocks.wall)
    journal(event_of())
    journal.step()
    inner = [tmp_path / "journal", *(tmp_path / "journal").rglob("*")]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in inner if path.is_file()]
    journal.start(WorkerInfo())
    journal.close(PATIENCE)
    os.umask(before)
    inner = [tmp_path / "journal", *(tmp_path / "journal").rglob("*")]
    modes += [stat.S_IMODE(path.stat().st_mode) for path in inner if path.is_file()]
    assert modes == [0o640 & ~mask] * 2
    folders = [path for path in inner if path.is_dir()]
    assert len(folders) == 3
    assert all(not path.stat().st_mode & 0o007 for path in folders)
