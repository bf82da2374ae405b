"""A journal stays safe in folders in which another user of the machine has set traps."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from celery_sqs_heartbeat.common.journal_facts import WorkerInfo
from celery_sqs_heartbeat.common.threads import CallerThreads
from celery_sqs_heartbeat.journal import folders
from celery_sqs_heartbeat.journal.journal import Journal
from celery_sqs_heartbeat.journal.opening import open_journal
from celery_sqs_heartbeat.journal.reading import read_journal
from celery_sqs_heartbeat.journal.rooted import Root
from tests.support.waiting import PATIENCE
from tests.unit.journal.samples import DAY, WALL, Clocks, event_of, line_at

#: Another user of the machine.
OTHER = 65_534
SECRET = b'{"v":1,"ts":1,"secret":"of mine"}\n'
#: Lines of the worker's start and end.
ENDS = 2
OPEN, CLOSED = "seg-7.jsonl.open", "seg-7.jsonl.zst"
WORKER = f"dt={DAY}/worker=dead"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Bucket:
    """The part of an S3 client that a shipper uses."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        self.objects[Key] = Body

    def text(self) -> bytes:
        unpacked = zstandard.ZstdDecompressor().decompressobj
        return b"".join(unpacked().decompress(body) for body in self.objects.values())


class Scene:
    """A folder for temporary files that other users write to, and journals that use it."""

    def __init__(self, home: Path) -> None:
        self.temporary = home / "tmp"
        self.temporary.mkdir(mode=0o777)
        self.temporary.chmod(0o1777)
        self.mine = home / "mine"
        self.mine.mkdir(mode=0o700)
        self.root = self.temporary / f"celery-sqs-heartbeat-journal-{os.geteuid()}"
        self.bucket = Bucket()
        self.journals: list[Journal] = []

    def spool(self, root: Path) -> Path:
        return root / socket.gethostname() / "b" / "prefix"

    def secrets(self, folder: Path) -> dict[Path, bytes]:
        """Put segments into a folder that must not be closed or shipped."""
        place = folder / WORKER
        place.mkdir(parents=True)
        (place / OPEN).write_bytes(SECRET)
        (place / CLOSED).write_bytes(zstandard.compress(SECRET))
        return contents(folder)

    def journal(self, target: str = "s3://b/prefix") -> Journal:
        clocks = Clocks()
        journal = open_journal(
            target, clock=clocks.clock, wall=clocks.wall, new_client=lambda: self.bucket
        )
        self.journals.append(journal)
        return journal

    def round(self, journal: Journal) -> None:
        journal(event_of())
        journal.step()

    def end(self, journal: Journal) -> None:
        journal.start(WorkerInfo())
        journal.close(PATIENCE)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(scene.temporary))
    # Jobs run in the caller's thread: a step ends only when all is shipped.
    monkeypatch.setattr(CallerThreads, "submit", lambda threads, job: job())
    before = os.umask(0o022)
    yield scene
    os.umask(before)


def linked(scene: Scene) -> Path:
    scene.root.symlink_to(scene.mine)
    return scene.mine


def foreign(scene: Scene) -> Path:
    scene.root.mkdir(mode=0o700)
    os.chown(scene.root, OTHER, OTHER)
    return scene.root


def open_to_all(scene: Scene) -> Path:
    scene.root.mkdir()
    scene.root.chmod(0o777)
    return scene.root


def open_to_a_group(scene: Scene) -> Path:
    scene.root.mkdir()
    scene.root.chmod(0o750)
    return scene.root


ROOTS = [linked, pytest.param(foreign, marks=as_root), open_to_all, open_to_a_group]


@pytest.mark.parametrize("trap", ROOTS)
def test_a_spool_that_other_users_can_access_is_left_alone(
    trap: Callable[[Scene], Path], scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    folder = trap(scene)
    before = scene.secrets(scene.spool(folder))
    journal = scene.journal()
    for _ in range(3):
        scene.round(journal)
    scene.end(journal)
    assert scene.bucket.objects == {}
    assert contents(folder) == before
    assert (journal.stats.written, journal.stats.dropped) == (0, 3 + ENDS)
    (warning,) = warnings(caplog)
    assert str(scene.root) in warning
    assert "set TMPDIR to a folder" in warning


def test_a_file_in_the_place_of_the_spool_is_left_alone(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.root.write_bytes(SECRET)
    journal = scene.journal()
    scene.round(journal)
    assert scene.root.read_bytes() == SECRET
    (warning,) = warnings(caplog)
    assert "set TMPDIR to a folder" in warning


def test_the_journal_continues_once_the_trap_is_gone(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    linked(scene)
    journal = scene.journal()
    scene.round(journal)
    scene.root.unlink()
    scene.round(journal)
    scene.end(journal)
    assert stat.S_IMODE(scene.root.stat().st_mode) == 0o700
    assert journal.stats.written == 1 + ENDS
    assert len(scene.bucket.objects) == 1
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


FILES = [symlinked, fifo, hard_linked, pytest.param(given_away, marks=as_root)]


@pytest.mark.parametrize("name", [OPEN, CLOSED])
@pytest.mark.parametrize("trap", FILES)
def test_a_segment_that_is_not_a_file_of_this_user_is_left_alone(
    trap: Callable[[Path, Path], None], name: str, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    place = scene.spool(scene.root) / WORKER
    scene.root.mkdir(mode=0o700)
    place.mkdir(parents=True)
    secret = scene.mine / "secret"
    data = SECRET if name == OPEN else zstandard.compress(SECRET)
    secret.write_bytes(data)
    trap(place / name, secret)
    journal = scene.journal()
    for _ in range(2):
        scene.round(journal)
    scene.end(journal)
    assert b"secret" not in scene.bucket.text()
    assert secret.read_bytes() == data
    assert [path.name for path in place.iterdir()] == [name]
    # Its own lines are still uploaded.
    assert journal.stats.written == 2 + ENDS
    assert b"message-received" in scene.bucket.text()
    told = [line for line in warnings(caplog) if "does not touch a file or folder" in line]
    assert len(told) == 1
    assert name in told[0]


@pytest.mark.parametrize("depth", [1, 2], ids=["day", "worker"])
def test_a_folder_that_is_a_link_is_left_alone(
    depth: int, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    before = scene.secrets(scene.mine)
    spool = scene.spool(scene.root)
    scene.root.mkdir(mode=0o700)
    link = spool / "/".join(WORKER.split("/")[:depth])
    link.parent.mkdir(parents=True)
    link.symlink_to(scene.mine / "/".join(WORKER.split("/")[:depth]))
    journal = scene.journal()
    scene.round(journal)
    scene.end(journal)
    assert contents(scene.mine) == before
    assert b"secret" not in scene.bucket.text()
    assert any("is a symbolic link" in line for line in warnings(caplog))


@pytest.mark.parametrize("target", ["s3://b/prefix", "folder"])
def test_nothing_is_written_through_a_link_in_place_of_a_draft(target: str, scene: Scene) -> None:
    folder = scene.spool(scene.root) if "//" in target else scene.mine / "journal"
    scene.root.mkdir(mode=0o700)
    place = folder / WORKER
    place.mkdir(parents=True)
    (place / OPEN).write_bytes(line_at(WALL, "left behind")[1])
    secret = scene.mine / "secret"
    secret.write_bytes(SECRET)
    (place / f".{CLOSED}").symlink_to(secret)
    journal = scene.journal(target if "//" in target else str(folder))
    scene.round(journal)
    assert secret.read_bytes() == SECRET
    scene.end(journal)
    # The link was treated as a leftover draft, and the segment was closed.
    if "//" in target:
        assert b"left behind" in scene.bucket.text()
    else:
        assert [line["text"] for line in read_journal(folder) if "text" in line] == ["left behind"]


@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_tree_that_is_swapped_after_its_check_is_not_entered(
    when: int, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = scene.secrets(scene.spool(scene.mine))
    own = scene.spool(scene.root) / WORKER
    scene.root.mkdir(mode=0o700)
    own.mkdir(parents=True)
    (own / OPEN).write_bytes(line_at(WALL, "mine")[1])
    status, checks = folders.Folder.status, []

    def swap_after(folder: folders.Folder) -> Any:
        found = status(folder)
        checks.append(folder.path)
        if len(checks) == when:
            scene.root.rename(scene.temporary / "moved")
            scene.root.symlink_to(scene.mine)
        return found

    monkeypatch.setattr(folders.Folder, "status", swap_after)
    journal = scene.journal()
    for _ in range(3):
        scene.round(journal)
    scene.end(journal)
    assert (scene.temporary / "moved").exists()
    assert contents(scene.mine) == before
    assert b"secret" not in scene.bucket.text()


# Up to the first segment that is shipped: after that its folder is gone.
@pytest.mark.parametrize("when", range(1, 7))
@pytest.mark.parametrize("target", ["s3://b/prefix", "folder"])
def test_a_folder_that_is_swapped_after_it_was_found_is_not_entered(
    target: str, when: int, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_shipped = "//" in target
    before = scene.secrets(scene.mine)
    folder = scene.spool(scene.root) if is_shipped else scene.temporary / "journal"
    scene.root.mkdir(mode=0o700)
    # Files with the same names as the secrets.
    scene.secrets(folder)
    for path in contents(folder):
        path.write_bytes(b"")
    opened, times = Root.opened, itertools.count(1)

    def swap_before(root: Root, *parts: str, make: bool = False) -> Any:
        if next(times) == when:
            (folder / WORKER).rename(folder / "moved")
            (folder / WORKER).symlink_to(scene.mine / WORKER)
        return opened(root, *parts, make=make)

    monkeypatch.setattr(Root, "opened", swap_before)
    journal = scene.journal(target if is_shipped else str(folder))
    for _ in range(3):
        scene.round(journal)
    scene.end(journal)
    assert (folder / "moved").exists()
    assert contents(scene.mine) == before
    assert b"secret" not in scene.bucket.text()


@as_root
def test_another_users_world_writable_folder_is_left_alone(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    folder = scene.temporary / "journal"
    folder.mkdir()
    folder.chmod(0o777)
    before = scene.secrets(folder)
    os.chown(folder, OTHER, OTHER)
    journal = scene.journal(str(folder))
    for _ in range(2):
        scene.round(journal)
    scene.end(journal)
    assert contents(folder) == before
    (warning,) = warnings(caplog)
    assert "chmod o-w" in warning


#: Owner, group and mode of folders that people use: one made by hand, a Kubernetes volume with an
#: fsGroup, one without (emptyDir), a folder for temporary files, and a folder that another user
#: shares with a group.
SHARED = [
    (0, 0, 0o755),
    (0, OTHER, 0o2775),
    (0, 0, 0o777),
    (0, 0, 0o1777),
    (OTHER, 0, 0o2775),
]


@as_root
@pytest.mark.parametrize(("user", "group", "mode"), SHARED)
def test_a_folder_that_is_shared_in_a_known_way_is_used(
    user: int, group: int, mode: int, scene: Scene
) -> None:
    folder = scene.temporary / "journal"
    folder.mkdir()
    os.chown(folder, user, group)
    folder.chmod(mode)
    journal = scene.journal(str(folder))
    scene.round(journal)
    assert len(list(read_journal(folder))) == 1
    scene.end(journal)


def test_a_setting_may_name_a_link_to_the_folder(scene: Scene) -> None:
    (scene.temporary / "journal").symlink_to(scene.mine)
    journal = scene.journal(str(scene.temporary / "journal"))
    scene.round(journal)
    scene.end(journal)
    assert "message-received" in [line["ev"] for line in read_journal(scene.mine)]


@as_root
def test_another_users_link_is_not_followed(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    link = scene.temporary / "journal"
    link.symlink_to(scene.mine)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    before = scene.secrets(scene.mine)
    journal = scene.journal(str(link))
    scene.round(journal)
    scene.end(journal)
    assert contents(scene.mine) == before
    (warning,) = warnings(caplog)
    assert "to the folder itself" in warning


@pytest.mark.parametrize("trap", FILES)
def test_a_shared_folder_does_not_lead_to_other_files(
    trap: Callable[[Path, Path], None], scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    folder = scene.temporary / "journal"
    place = folder / WORKER
    place.mkdir(parents=True)
    secret = scene.mine / "secret"
    secret.write_bytes(SECRET)
    trap(place / OPEN, secret)
    journal = scene.journal(str(folder))
    scene.round(journal)
    scene.end(journal)
    assert secret.read_bytes() == SECRET
    assert [path.name for path in place.iterdir()] == [OPEN]
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_others_may_not_read_a_journal_whatever_the_umask(mask: int, scene: Scene) -> None:
    os.umask(mask)
    folder = scene.mine / "journal"
    journal = scene.journal(str(folder))
    scene.round(journal)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()]
    scene.end(journal)
    modes += [stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()]
    assert modes == [0o640 & ~mask] * 2
    inner = [path for path in (folder, *folder.rglob("*")) if path.is_dir()]
    assert len(inner) == 3
    assert all(not path.stat().st_mode & 0o007 for path in inner)
