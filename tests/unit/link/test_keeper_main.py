"""A keeper that is unfit for its work exits, so that its worker starts another."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from celery_sqs_heartbeat.current.sharing import SharedFile
from celery_sqs_heartbeat.current.table import Table
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.link import keeper_main
from celery_sqs_heartbeat.link.deliveries import Outlet, delivery_sockets
from celery_sqs_heartbeat.link.messages import Hello
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
