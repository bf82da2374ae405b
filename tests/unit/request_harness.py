"""Leased requests without Celery, for tests of what happens to them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.leases.lease import LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.recent import RecentKeys
from celery_sqs_heartbeat.transport.orphaned_messages import OrphanedMessages
from celery_sqs_heartbeat.transport.settling import TaskFailure
from celery_sqs_heartbeat.worker.requests import LeasedRequest
from tests.support.linked import Linked, message_of


class _Request:
    """The part of a Celery request that these tests need."""

    name = "work"
    task: Any = SimpleNamespace(Strategy="celery.worker.strategy:default", acks_late=False)
    acknowledged = False
    time_start = None

    def __init__(self, message: Any) -> None:
        self.time_limits, self.kwargs = (None, None), {}
        self.message = message
        self.id = message.delivery_tag
        self.rejects: list[bool] = []

    def revoked(self) -> bool:
        return False

    def on_accepted(self, pid: Any, time_accepted: Any) -> None: ...

    def acknowledge(self) -> None:
        self.acknowledged = True

    def reject(self, requeue: bool = False) -> None:
        self.acknowledged = True
        self.rejects.append(requeue)


class Request(LeasedRequest, _Request):
    """A request whose channel is the desk."""

    rejects: list[bool]


@dataclass
class RequestHarness:
    """A worker's heartbeat and channel, as far as requests know them.

    Attributes:
        freed: Tags whose prefetch slots were freed.
        rejected: Tags that were rejected, with the goal that follows.
        failures: How their tasks failed, in the same order.
    """

    on_lost_setting: str = "warn"
    has_processes: bool = False
    requests: dict[Any, Any] = field(default_factory=dict)
    freed: list[str] = field(default_factory=list)
    rejected: list[tuple[str, bool]] = field(default_factory=list)
    failures: list[TaskFailure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._linked = Linked(0.0)
        self.keeper = self._linked.worker
        self.qos = SimpleNamespace(ack=self.freed.append)
        self.orphaned = OrphanedMessages(self.keeper)
        self.leased = SimpleNamespace(
            rules_of=lambda lease: SimpleNamespace(on_lost=self.on_lost_setting)
        )
        self.settled: RecentKeys[str] = RecentKeys()
        self.note_run = bool

    def receive(self, tag: str = "h", task: Any = None, *, in_order: bool = False) -> Request:
        """Receive a message, of a group if it is kept in order, and make its request."""
        message, terms = message_of(tag, tag, 1), replace(LeaseTerms.of(30), in_order=in_order)
        if in_order:
            message["Attributes"] |= {"MessageGroupId": "g", "SequenceNumber": "1"}
        self._linked.receive("https://sqs/1/q", message, terms, 30, 0.0)
        request = Request(SimpleNamespace(delivery_tag=tag, channel=self))
        request.task = task or request.task
        return request

    def set_status(self, tag: str, status: LeaseStatus) -> None:
        """Have the keeper show that a lease has this status."""
        keeper = self._linked.elsewhere.keeper
        lease = keeper.find(tag)
        assert lease is not None
        lease.status = status
        if status is LeaseStatus.EXPIRED:
            lease.expires_at = keeper.now()
        keeper.change(lambda book, _: book.show(lease))

    def reject(self, tag: str, *, requeue: bool, failure: TaskFailure) -> None:
        self.rejected.append((tag, requeue))
        self.failures.append(failure)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> RequestHarness:
    desk = RequestHarness()
    monkeypatch.setattr("celery_sqs_heartbeat.worker.starts.bound", lambda: desk)
    return desk
