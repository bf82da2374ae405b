"""The processes of a worker's pool find its table of leases. No other processes do."""

from __future__ import annotations

import gc
import itertools
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from celery_sqs_heartbeat import NoLease, SqsHeartbeatError
from celery_sqs_heartbeat.current import sharing
from celery_sqs_heartbeat.current.sharing import VARIABLE, shared_table, unshare_table
from celery_sqs_heartbeat.current.table import Mark, key_of
from celery_sqs_heartbeat.leases.lease import LeaseStatus
from tests.support.leases import lease_of, share_board
from tests.support.workers import ROOT

#: How often a record is read while it is changed as fast as possible.
READS = 20_000
READ = """
from celery_sqs_heartbeat.current.table import key_of
from celery_sqs_heartbeat.current.sharing import shared_table
print(shared_table().read(key_of("a")).expires_at)
"""

nameless = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux has it")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing is shared before or after a test. Files are created in the test's own folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sharing, "SHARED_MEMORY", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    yield tmp_path
    unshare_table()
    assert list(tmp_path.iterdir()) == []


def run(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_the_table_exists_until_it_is_removed() -> None:
    with pytest.raises(NoLease, match="--heartbeat-sqs"):
        shared_table()
    board = share_board(8)
    lease = lease_of("a")
    board.show(lease)
    assert shared_table().read(key_of("a")).mark is Mark.HELD
    unshare_table()
    unshare_table()
    with pytest.raises(NoLease):
        shared_table()
    # Its keeper's last calls may still be answered.
    board.show(lease)
    board.remove(lease)


def test_a_second_worker_of_the_process_has_a_table_of_its_own_as_large_as_it_needs() -> None:
    first = share_board(8)
    first.show(lease_of("a"))
    share_board(100_000)
    assert shared_table().read(key_of("a")).mark is Mark.GIVEN_BACK
    assert shared_table().places >= 400_000


def open_files() -> int:
    # What earlier tests left is closed when it is collected, which may happen in between.
    gc.collect()
    return len(os.listdir("/dev/fd"))


@nameless
def test_no_cleaner_of_temporary_files_finds_the_table(folder: Path) -> None:
    before = open_files()
    board = share_board(8)
    board.show(lease_of("a", expires_at=42.5))
    assert list(folder.iterdir()) == []
    # A fresh process, which inherits nothing.
    assert run(READ).communicate()[0] == "42.5\n"
    unshare_table()
    del board
    assert open_files() == before


SHARE = """
from celery_sqs_heartbeat.current.sharing import VARIABLE
from tests.support.leases import share_board
import os, sys
share_board(8)
print(os.environ[VARIABLE], flush=True)
sys.stdin.read()
"""


@nameless
def test_only_the_user_can_use_the_file_and_a_killed_worker_leaves_nothing_behind() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SHARE],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout
        path = Path(worker.stdout.readline().strip())
        assert path.exists()
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        worker.kill()
    assert not path.exists()
    assert path.is_relative_to("/proc")


def no_memory_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)


def no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "DESCRIPTORS", "/gone/{pid}")


def descriptors_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid() + 1
    monkeypatch.setattr(sharing.os, "geteuid", lambda: user)


@pytest.mark.parametrize("system", [no_memory_files, no_descriptors, descriptors_of_root])
def test_on_other_systems_the_file_has_a_name_and_only_the_user_can_use_it(
    system: Callable[[pytest.MonkeyPatch], None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system(monkeypatch)
    board = share_board(8)
    board.show(lease_of("a", expires_at=42.5))
    (file,) = folder.iterdir()
    assert os.environ[VARIABLE] == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run(READ).communicate()[0] == "42.5\n"


@pytest.mark.parametrize(("leases", "size"), [(0, "1,704,000"), (100_000, "41,600,064")])
def test_a_worker_that_can_not_share_a_table_is_refused_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, leases: int, size: str
) -> None:
    def full(*arguments: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(sharing, "mmap", full)
    before = open_files()
    with pytest.raises(SqsHeartbeatError, match=rf"{size} bytes: No space left.*/dev/shm"):
        sharing.share_table(leases)
    assert VARIABLE not in os.environ
    assert open_files() == before
    with pytest.raises(NoLease):
        shared_table()
    monkeypatch.setenv(VARIABLE, "/gone")
    with pytest.raises(NoLease, match=r"can't be read: .*gone"):
        shared_table()


FORK = """
import os
from celery_sqs_heartbeat.current.table import key_of
from celery_sqs_heartbeat.current.sharing import shared_table, unshare_table
from tests.support.leases import share_board
from tests.support.leases import lease_of

board = share_board(8)
begin, go = os.pipe()
child = os.fork()
if not child:
    os.read(begin, 1)
    unshare_table()  # It is not the child's to take back.
    print(shared_table().read(key_of("after the fork")).expires_at, flush=True)
    os._exit(0)
board.show(lease_of("after the fork", expires_at=42.5))
os.write(go, b".")
os.waitpid(child, 0)
"""


def test_a_forked_child_sees_what_is_shown_after_the_fork() -> None:
    assert run(FORK).communicate()[0] == "42.5\n"


HAMMERED = """
import sys
from celery_sqs_heartbeat.current.table import key_of
from celery_sqs_heartbeat.current.sharing import shared_table

table, key, seen, reads = shared_table(), key_of("a"), set(), 0
while reads < int(sys.argv[1]) or len(seen) < 3:
    mark, expires_at, visibility_timeout, threshold, *_ = table.read(key)
    assert (visibility_timeout, threshold) == (expires_at // 2, expires_at / 4), expires_at
    assert mark.name == ("LOST" if expires_at % 2 else "HELD"), expires_at
    seen.add(expires_at)
    reads += 1
"""


def test_a_process_that_reads_while_another_writes_never_sees_half_a_record() -> None:
    board = share_board(8)
    lease = lease_of("a")

    def change(number: int) -> None:
        lease.expires_at = float(number)
        lease.terms = replace(lease.terms, visibility_timeout=number // 2, threshold=number / 4)
        lease.status = LeaseStatus.LOST if number % 2 else LeaseStatus.OWNED
        board.show(lease)

    change(0)
    with run(HAMMERED, str(READS)) as reader:
        for number in itertools.count(1):
            change(number)
            if number % 1_000 == 0 and reader.poll() is not None:
                break
    assert reader.returncode == 0
