"""A keeper that is unfit for its work exits, so that its worker starts another."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from unittest.mock import ANY, Mock, call

import pytest

from celery_sqs_heartbeat.current.sharing import SharedFile
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.link import keeper_main
from celery_sqs_heartbeat.link.deliveries import Outlet, delivery_sockets
from celery_sqs_heartbeat.link.messages import Hello
from celery_sqs_heartbeat.link.serving import KeeperEnd
from celery_sqs_heartbeat.link.watching import WatchedProcess
from celery_sqs_heartbeat.receiving.reception import Reception
from tests.support.waiting import PATIENCE
from tests.unit.link.pairs import Far, pack


@pytest.fixture
def far() -> Iterator[tuple[Far, int]]:
    """A worker's end of a link, and the descriptor of its keeper's end."""
    ours, theirs = socket.socketpair()
    far = Far(ours)
    far.send(pack([Hello(pid=os.getpid()).message()]))
    yield far, theirs.detach()
    far.close()


def run(link: int) -> int:
    """Be a keeper until it exits, and return its exit status."""
    worker, keeper = delivery_sockets()
    outlets: list[Outlet] = []

    def note(*args: int) -> Outlet:
        outlets.append(Outlet(*args))
        return outlets[-1]

    with pytest.MonkeyPatch.context() as noting, closing(SharedFile(Table.size_for(8))) as file:
        noting.setattr(keeper_main, "Outlet", note)
        status = keeper_main.run(link, keeper.detach(), file.descriptor, logs=False)
    # Its process would end here. Its thread ends with the worker.
    worker.close()
    for thread in threading.enumerate():
        if thread.name == "sqs-heartbeat-rooms":
            thread.join(PATIENCE)
    for outlet in outlets:
        outlet._socket.close()
    return status


def test_a_keeper_whose_thread_has_died_exits_with_an_error(
    far: tuple[Far, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def die(keeper: ThreadKeeper) -> float:
        raise SystemExit("on purpose")

    monkeypatch.setattr(ThreadKeeper, "step", die)
    assert run(far[1]) == 1
    assert "the keeper's thread has died, and extends no more leases" in caplog.text


def test_a_keeper_that_is_to_stop_exits_without_an_error(far: tuple[Far, int]) -> None:
    far[0].send(pack([("stop", 5.0)]))
    assert run(far[1]) == 0


def test_a_keeper_whose_link_has_closed_receives_no_more(
    far: tuple[Far, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Reception] = []
    monkeypatch.setattr(keeper_main, "_ORPHAN_SECONDS", 0.0)
    monkeypatch.setattr(Reception, "end", lambda reception: ended.append(reception))
    far[0].close()
    assert run(far[1]) == 0
    assert ended
    ended[0]._keeper.stop(0)


def test_a_keeper_that_is_late_writes_no_tick(
    far: tuple[Far, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def look(_: ThreadKeeper) -> bool:
        seen.append("late" if len(seen) < 5 else "in time")
        if seen[-1] == "in time":
            far[0].send(pack([("stop", 5.0)]))
        return seen[-1] == "late"

    monkeypatch.setattr(ThreadKeeper, "is_late", property(look))
    monkeypatch.setattr(Table, "tick", property(fset=lambda *_: seen.append("tick")))
    assert run(far[1]) == 0
    assert seen.index("tick") > seen.index("in time")


def test_what_a_dead_worker_wrote_last_counts_before_its_messages_are_released(
    far: tuple[Far, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Mock()
    monkeypatch.setattr(WatchedProcess, "has_ended", True)
    monkeypatch.setattr(ThreadKeeper, "start", lambda *_: far[0].send(pack([("done", "m-1")])))
    monkeypatch.setattr(KeeperEnd, "take", end.take)
    monkeypatch.setattr(KeeperEnd, "release_all_held", end.release_all_held)
    assert run(far[1]) == 0
    assert end.mock_calls == [call.take(["done", "m-1"]), call.release_all_held(ANY)]
