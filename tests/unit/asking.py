"""A worker's board, and tasks that ask about their lease, in one process and at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from celery_sqs_heartbeat import NoLease, current_lease
from celery_sqs_heartbeat.current.table import LeaseBoard
from tests.support.leases import lease_of
from tests.support.tasks import run_in_task, sqs_message

NOW = 1000.0
MESSAGE = sqs_message("a", message_id="the-message", receive_count=3)


class Worker:
    """The board of this process's worker, and the lease of the task that runs in it."""

    def __init__(self, board: LeaseBoard) -> None:
        self.board = board
        self.lease = lease_of("a", expires_at=NOW + 20)
        board.show(self.lease)

    def change(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self.lease, name, value)
        self.board.show(self.lease)

    def run(
        self,
        ask: Callable[[], Any],
        message: Mapping[str, Any] | None = MESSAGE,
        **options: Any,
    ) -> Any:
        return run_in_task(ask, message, **options)

    def remaining(self) -> float:
        return float(self.run(lambda: current_lease.remaining()))

    def ensure_valid(self, *min_remaining: Any) -> None:
        self.run(lambda: current_lease.ensure_valid(*min_remaining))


def why_not(ask: Callable[[], Any]) -> str:
    """Return the error text of a question that is asked without a lease."""
    with pytest.raises(NoLease) as raised:
        ask()
    return str(raised.value)
