"""A worker's board, channel and requests, a simulated SQS, and clocks that tests move."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from celery_sqs_heartbeat.current import current_lease as current
from celery_sqs_heartbeat.current.sharing import VARIABLE, unshare_table
from tests.support.leases import share_board
from tests.unit.asking import NOW, Worker
from tests.unit.scene import new_scene as new_scene
from tests.unit.scene import scene as scene
from tests.unit.simulating import clock as clock
from tests.unit.simulating import sqs as sqs


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock, which does not move otherwise."""
    monkeypatch.setattr(current, "now", lambda: NOW)
    return lambda time: monkeypatch.setattr(current, "now", lambda: time)


@pytest.fixture
def worker(at: Callable[[float], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker with a task whose lease has 20 s left."""
    monkeypatch.delenv(VARIABLE, raising=False)
    board = share_board(8)
    yield Worker(board)
    unshare_table()
