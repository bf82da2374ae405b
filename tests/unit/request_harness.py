"""A leased request without Celery, for tests of what it passes on about its task's failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.transport.binding import OrphanedMessages
from celery_sqs_heartbeat.transport.settling import TaskFailure
from celery_sqs_heartbeat.worker.requests import LeasedRequest
from tests.support.leases import TERMS
from tests.support.linked import Linked, message_of


class _Request:
    """The part of a Celery request that these tests need."""

    task: Any = SimpleNamespace(acks_late=False)
    acknowledged = False

    def __init__(self, message: Any) -> None:
        self.time_limits, self.kwargs = (None, None), {}
        self.message = message

    def reject(self, requeue: bool = False) -> None:
        self.acknowledged = True


class Request(LeasedRequest, _Request):
    """A request whose channel is the desk."""


class RequestHarness:
    """A worker's heartbeat and channel, as far as requests know them.

    Attributes:
        rejected: Tags that were rejected, with the goal that follows.
        failures: How their tasks failed, in the same order.
    """

    has_processes = False

    def __init__(self) -> None:
        self._linked = Linked(0.0)
        self.keeper = self._linked.worker
        self.orphaned = OrphanedMessages(self.keeper)
        self.requests: dict[Any, Any] = {}
        self.settled: set[str] = set()
        self.rejected: list[tuple[str, bool]] = []
        self.failures: list[TaskFailure] = []

    def receive(self) -> Request:
        """Receive a message, and make its request."""
        self._linked.receive("https://sqs/1/q", message_of("h", "h", 1), TERMS, 30, 0.0)
        return Request(SimpleNamespace(delivery_tag="h", channel=self))

    def reject(self, tag: str, *, requeue: bool, failure: TaskFailure) -> None:
        self.rejected.append((tag, requeue))
        self.failures.append(failure)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> RequestHarness:
    desk = RequestHarness()
    monkeypatch.setattr("celery_sqs_heartbeat.worker.starts.bound", lambda: desk)
    return desk
