"""The table of leases in shared memory: what a task reads of its lease is never half or another's.

Each lease has its place until it ends, also over its keeper's death. In a full table none counts as
lost. The processes of a worker's pool find the table, and no other processes do.
"""

from __future__ import annotations

import gc
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from mmap import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_sqs_heartbeat import NoLease, SqsHeartbeatError
from celery_sqs_heartbeat.current import sharing
from celery_sqs_heartbeat.current.sharing import VARIABLE, shared_table, unshare_table
from celery_sqs_heartbeat.current.table import (
    REACH,
    Flag,
    LeaseBoard,
    Mark,
    Record,
    Table,
    key_of,
)
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus
from tests.fuzz.shapes import FUZZ
from tests.support.leases import TERMS, lease_of, share_board
from tests.support.workers import ROOT


class Shown:
    """A table, its board, and the leases that it shows. By default all compete for one row."""

    def __init__(self, places: int = REACH) -> None:
        self.memory = mmap(-1, Table.size_for(places))
        self.table = Table(self.memory)
        self.leases: dict[str, Lease] = {}
        self.replace_keeper()

    def replace_keeper(self) -> None:
        """Let the keeper die. Its leases are those of the next one, which has shown none yet."""
        self.board = LeaseBoard(self.table)

    def show(self, *handles: str) -> int | None:
        """Show leases. Return the place of the last."""
        for handle in handles:
            self.board.show(self.leases.setdefault(handle, lease_of(handle)))
        return self.place(handles[-1])

    def show_all(self) -> None:
        """Do what a new keeper does first."""
        for handle in self.leases:
            self.show(handle)
        self.board.note_all_shown()

    def remove(self, handle: str) -> None:
        self.board.remove(self.leases.pop(handle))

    def place(self, handle: str) -> int | None:
        return self.table.place_of(key_of(handle))

    def record(self, handle: str) -> Record:
        return self.table.read(key_of(handle))

    def mark(self, handle: str) -> Mark:
        return self.record(handle).mark

    def fill(self, count: int = REACH) -> list[int | None]:
        return [self.show(f"f{number}") for number in range(count)]


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.mark.parametrize(
    ("changes", "mark", "afterwards"),
    [
        ({}, Mark.HELD, Mark.GIVEN_BACK),
        ({"status": LeaseStatus.EXPIRED}, Mark.HELD, Mark.GIVEN_BACK),
        ({"status": LeaseStatus.LOST}, Mark.LOST, Mark.GIVEN_BACK),
        ({"status": LeaseStatus.CAPPED}, Mark.CAPPED, Mark.GIVEN_BACK),
        ({"status": LeaseStatus.REFUSED}, Mark.REFUSED, Mark.GIVEN_BACK),
        ({"terms": replace(TERMS, extend=False)}, Mark.OPTED_OUT, Mark.GIVEN_BACK),
        ({"goal": Goal.RELEASE}, Mark.GIVEN_BACK, Mark.GIVEN_BACK),
        ({"goal": Goal.DELETE}, Mark.ACKED, Mark.ACKED),
    ],
)
def test_a_lease_shows_its_state_and_how_it_ended_until_its_place_is_needed(
    shown: Shown, changes: dict[str, object], mark: Mark, afterwards: Mark
) -> None:
    place = shown.show("a")
    for name, value in changes.items():
        setattr(shown.leases["a"], name, value)
    shown.show("a")
    assert shown.mark("a") is mark
    shown.remove("a")
    assert shown.mark("a") is afterwards
    assert shown.record("a").flags & Flag.OVER
    shown.fill(REACH - 1)
    assert shown.mark("a") is afterwards
    assert shown.show("last") == place
    assert (shown.place("a"), shown.mark("a")) == (None, Mark.GIVEN_BACK)


def test_in_a_full_table_no_lease_counts_as_lost(shown: Shown) -> None:
    places = shown.fill()
    assert sorted(place for place in places if place is not None) == list(range(REACH))
    assert shown.show("late") is None
    assert shown.mark("late") is Mark.UNKNOWN
    assert {shown.mark(f"f{number}") for number in range(REACH)} == {Mark.HELD}
    shown.remove("f0")
    assert shown.table.is_short
    shown.remove("late")
    assert not shown.table.is_short
    assert shown.mark("late") is Mark.GIVEN_BACK
    # One that ended before it was shown takes nothing.
    shown.board.remove(lease_of("never"))
    assert (shown.place("never"), shown.table.is_short) == (None, False)


def test_a_record_that_is_half_written_is_not_read(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.show("a")
    before = shown.memory[:]
    lease = shown.leases["a"]
    lease.expires_at, lease.status = 2.0, LeaseStatus.LOST
    shown.show("a")
    after, slept = shown.memory[:], 0.0

    def sleep(seconds: float) -> None:
        # Its writer gets its CPU back after 50 ms.
        nonlocal slept
        slept += seconds
        if slept >= 0.05:
            shown.memory[:] = after

    # A CPU writes word by word, and another CPU may see the words in any order.
    changed = [at for at in range(0, len(after), 4) if before[at : at + 4] != after[at : at + 4]]
    assert len(changed) >= 3
    for at in changed:
        shown.memory[:] = before
        shown.memory[at : at + 4] = after[at : at + 4]
        assert shown.mark("a") is Mark.UNKNOWN
    monkeypatch.setattr(time, "sleep", sleep)
    assert shown.mark("a") is Mark.LOST


changes = st.tuples(
    st.sampled_from(["show", "show", "show", "remove", "die"]),
    st.integers(0, 3 * REACH),
    st.sampled_from(LeaseStatus),
    st.sampled_from(Goal),
)


@FUZZ
@given(places=st.integers(REACH, 2 * REACH), changes=st.lists(changes, max_size=100))
def test_the_table_behaves_like_a_dict_also_over_deaths(
    places: int, changes: list[tuple[str, int, LeaseStatus, Goal]]
) -> None:
    shown, ended, most = Shown(places), set[str](), 0
    for number, (change, which, status, goal) in enumerate(changes):
        handle = f"handle-{which}"
        if change == "show":
            ended.discard(handle)
            lease = shown.leases.setdefault(handle, lease_of(handle))
            lease.status, lease.goal, lease.expires_at = status, goal, float(number)
            shown.show(handle)
        elif change == "die":
            had = {each: shown.place(each) for each in shown.leases}
            shown.replace_keeper()
            shown.show_all()
            for each, place in had.items():
                assert place in (None, shown.place(each))
        elif handle in shown.leases:
            ended.add(handle)
            shown.remove(handle)
        most = max(most, len(shown.leases))
        taken = [shown.place(each) for each in shown.leases if shown.mark(each) is not Mark.UNKNOWN]
        assert len(taken) == len(set(taken))
        is_short = len(taken) < len(shown.leases)
        assert shown.table.is_short == is_short
        assert most > REACH or not is_short
        for each, lease in shown.leases.items():
            assert shown.record(each) == Record.of(lease) or shown.mark(each) is Mark.UNKNOWN
        assert {shown.mark(each) for each in ended} <= {Mark.GIVEN_BACK, Mark.ACKED, Mark.UNKNOWN}


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
