"""Which tasks start whose lease is not what it was."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat import LeaseKeeper
from celery_sqs_heartbeat.core.lease import Lease, Standing
from celery_sqs_heartbeat.testing import FakeClock
from celery_sqs_heartbeat.worker.requests import LeasedRequest

#: Whether a task starts, by the setting.
STARTS = {
    Standing.OURS: {"warn": True, "revoke": True, "terminate": True},
    Standing.UNLEASED: {"warn": True, "revoke": True, "terminate": True},
    Standing.EXPIRED: {"warn": True, "revoke": False, "terminate": False},
    Standing.CAPPED: {"warn": True, "revoke": False, "terminate": False},
    Standing.LOST: {"warn": False, "revoke": False, "terminate": False},
}


class _Request:
    """As much of a Celery request as knows its message."""

    name, id = "work", "1"

    def __init__(self, message: Any) -> None:
        self.message = message

    def revoked(self) -> bool:
        return False


class Request(LeasedRequest, _Request):
    pass


@dataclass
class Heartbeat:
    """As much of a heartbeat as a request asks."""

    keeper: LeaseKeeper
    setting: str
    requests: dict[Any, Any] = field(default_factory=dict)

    def on_lost(self, lease: Lease) -> str:
        return self.setting


@pytest.mark.parametrize(("standing", "starts"), STARTS.items())
@pytest.mark.parametrize("on_lost", ["warn", "revoke", "terminate"])
def test_a_task_starts_only_where_its_message_may_still_be_ours(
    monkeypatch: pytest.MonkeyPatch, standing: Standing, starts: dict[str, bool], on_lost: str
) -> None:
    keeper = LeaseKeeper(SimpleNamespace(), clock=FakeClock())  # type: ignore[arg-type]
    keeper.receive("https://sqs/1/q", {"MessageId": "m", "ReceiptHandle": "h"})
    heartbeat = Heartbeat(keeper, on_lost)
    monkeypatch.setattr("celery_sqs_heartbeat.worker.requests.bound", lambda: heartbeat)
    freed: list[str] = []
    channel = SimpleNamespace(qos=SimpleNamespace(ack=freed.append))
    request = Request(SimpleNamespace(delivery_tag="h", channel=channel))
    lease = keeper.find("h")
    assert lease is not None
    lease.standing = standing
    assert request.revoked() is not starts[on_lost]
    # One that is dropped frees its prefetch slot, and an ack that comes late deletes nothing.
    dropped = ["h"] if not starts[on_lost] else []
    assert freed == dropped
    assert keeper.is_disowned("h") is bool(dropped)
