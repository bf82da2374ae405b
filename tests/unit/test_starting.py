"""Which tasks still start when their lease has changed since its receive."""

from __future__ import annotations

import pytest

from celery_sqs_heartbeat.leases.lease import LeaseStatus
from tests.unit.request_harness import RequestHarness

#: Whether a task starts, by the setting.
STARTS = {
    LeaseStatus.OWNED: {"warn": True, "revoke": True, "terminate": True},
    LeaseStatus.REFUSED: {"warn": True, "revoke": True, "terminate": True},
    LeaseStatus.EXPIRED: {"warn": True, "revoke": False, "terminate": False},
    LeaseStatus.CAPPED: {"warn": True, "revoke": False, "terminate": False},
    LeaseStatus.LOST: {"warn": False, "revoke": False, "terminate": False},
}


@pytest.mark.parametrize(("status", "starts"), STARTS.items())
@pytest.mark.parametrize("on_lost", ["warn", "revoke", "terminate"])
def test_a_task_starts_only_if_its_message_may_still_be_ours(
    desk: RequestHarness,
    status: LeaseStatus,
    starts: dict[str, bool],
    on_lost: str,
) -> None:
    desk.on_lost_setting = on_lost
    request = desk.receive("h")
    desk.set_status("h", status)
    assert request.revoked() is not starts[on_lost]
    # A message that is let expire frees its prefetch slot, and a late ack deletes nothing.
    dropped = ["h"] if not starts[on_lost] else []
    assert desk.freed == dropped
    assert desk.keeper.is_disowned("h") is bool(dropped)
