"""A journal stays safe in folders in which another user of the machine has set traps."""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from celery_sqs_heartbeat.journal.reading import read_journal
from tests.support.waiting import PATIENCE
from tests.unit.journal.samples import Bucket, files_in, frames_of, journal_at, run_journal
from tests.unit.journal.test_journal import INFO

#: Another user of the machine.
OTHER = 65_534
SECRET = b'{"v":1,"ts":1,"secret":"of mine"}\n'
#: Lines of `run_journal`.
ALL_LINES = 3
OPEN, CLOSED = "seg-7.jsonl.open", "seg-7.jsonl.zst"
WORKER = "dt=2026-03-13/worker=dead"
S3 = "s3://b/prefix"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The top folder of a spool, which anyone may make, and which does not exist yet."""
    tmp_path.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"celery-sqs-heartbeat-journal-{os.geteuid()}"


def spool_in(top: Path) -> Path:
    return top / socket.gethostname() / "b" / "prefix"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def linked(top: Path) -> None:
    folder = top.with_name("elsewhere")
    folder.mkdir(mode=0o700)
    top.symlink_to(folder)


def folder_of(user: int, mode: int) -> Callable[[Path], None]:
    def make(top: Path) -> None:
        top.mkdir()
        os.chown(top, user, user)
        top.chmod(mode)

    return make


def foreign_link(top: Path) -> None:
    linked(top)
    os.chown(top, OTHER, OTHER, follow_symlinks=False)


#: Folders that are refused, and whether as a spool or as the folder of a setting.
REFUSED = {
    "a spool that is a link": (linked, True),
    "a spool of another user": pytest.param(folder_of(OTHER, 0o755), True, marks=as_root),
    "a folder of another user, open to all": pytest.param(
        folder_of(OTHER, 0o777), False, marks=as_root
    ),
    "a link of another user": pytest.param(foreign_link, False, marks=as_root),
}


@pytest.mark.parametrize(("trap", "is_spool"), REFUSED.values(), ids=REFUSED)
def test_a_folder_that_another_user_could_have_made_is_left_alone(
    trap: Callable[[Path], None],
    is_spool: bool,
    top: Path,
    bucket: Bucket,
    caplog: pytest.LogCaptureFixture,
) -> None:
    trap(top)
    if top.is_dir():
        place = (spool_in(top) if is_spool else top) / WORKER
        place.mkdir(parents=True)
        (place / OPEN).write_bytes(SECRET)
        (place / CLOSED).write_bytes(zstandard.compress(SECRET))
    before = files_in(top.parent)
    target = S3 if is_spool else top
    journal = run_journal(target, new_client=lambda: bucket)
    assert bucket.text == b""
    assert files_in(top.parent) == before
    assert (journal.stats.written, journal.stats.dropped) == (0, ALL_LINES)
    (warning,) = warnings(caplog)
    assert str(top) in warning
    assert "chmod o-w" in warning


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
    # A setting may name one's own link to it.
    (tmp_path / "link").symlink_to(folder)
    run_journal(tmp_path / "link")
    assert len(list(read_journal(folder))) == ALL_LINES


def test_the_journal_continues_once_the_trap_is_gone(
    top: Path, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    linked(top)
    journal = journal_at(S3, new_client=lambda: bucket)
    journal.note_late(1)
    journal.step()
    top.unlink()
    journal.start(INFO)
    journal.close(PATIENCE)
    assert not stat.S_IMODE(top.stat().st_mode) & 0o007
    assert journal.stats.written == bucket.text.count(b"\n") == 2
    assert "works again" in warnings(caplog)[-1]


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


TRAPS = {
    "a link": lambda place, secret: place.symlink_to(secret),
    "a pipe": lambda place, secret: os.mkfifo(place),
    "a hard link": lambda place, secret: place.hardlink_to(secret),
    "a file of another user": pytest.param(given_away, marks=as_root),
    "a worker that is a link": linked_worker,
    "a day that is a link": linked_day,
}


@pytest.mark.parametrize("is_spool", [True, False])
@pytest.mark.parametrize("name", [OPEN, CLOSED])
@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_what_is_not_a_file_of_this_user_is_left_alone(
    trap: Callable[[Path, Path], None],
    name: str,
    is_spool: bool,
    top: Path,
    bucket: Bucket,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = spool_in(top) if is_spool else top
    place = folder / WORKER / name
    secret = top.with_name("mine") / name
    for path in (*reversed(place.parents), secret.parent):
        path.mkdir(mode=0o700, exist_ok=True)
    data = SECRET if name == OPEN else zstandard.compress(SECRET)
    secret.write_bytes(data)
    trap(place, secret)
    journal = run_journal(S3 if is_spool else top, new_client=lambda: bucket)
    # Its own lines are still written and uploaded.
    assert journal.stats.written == ALL_LINES
    assert bucket.text.count(b"\n") == (ALL_LINES if is_spool else 0)
    assert b"secret" not in bucket.text
    assert secret.read_bytes() == data
    assert set(os.listdir(secret.parent)) <= {name, "worker=dead"}
    # What is never uploaded stays in the spool.
    assert len(warnings(caplog)) == (is_spool and name == CLOSED)


def test_nothing_is_written_through_a_link_in_place_of_a_draft(tmp_path: Path) -> None:
    place = tmp_path / "journal" / WORKER
    place.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_bytes(b"of mine")
    (place / OPEN).write_bytes(SECRET)
    (place / f".{CLOSED}").symlink_to(secret)
    run_journal(tmp_path / "journal")
    assert secret.read_bytes() == b"of mine"
    # The link was treated as a leftover draft, and the segment was closed.
    assert frames_of(place / CLOSED) == [SECRET]


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_others_may_not_read_a_journal_whatever_the_umask(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        journal = journal_at(tmp_path / "journal")
        journal.note_late(1)
        journal.step()
        opened = [path.stat().st_mode for path in tmp_path.rglob("*.open")]
        journal.start(INFO)
        journal.close(PATIENCE)
    finally:
        os.umask(before)
    closed = [path.stat().st_mode for path in tmp_path.rglob("*.zst")]
    assert [stat.S_IMODE(mode) for mode in opened + closed] == [0o640 & ~mask] * 2
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert [path.stat().st_mode & 0o007 for path in folders] == [0, 0, 0]
