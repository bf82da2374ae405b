"""Which tasks still start when their lease has changed since its receive, and in which process."""

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
@pytest.mark.parametrize("in_order", [False, True])
def test_a_task_starts_only_if_its_message_may_still_be_ours(
    desk: RequestHarness,
    status: LeaseStatus,
    starts: dict[str, bool],
    on_lost: str,
    *,
    in_order: bool,
) -> None:
    desk.on_lost_setting = on_lost
    request = desk.receive("h", in_order=in_order)
    desk.set_status("h", status)
    # In order, other messages of its group may run before it by now.
    may_start = starts["revoke" if in_order else on_lost]
    assert request.revoked() is not may_start
    # A message that is let expire frees its prefetch slot, and a late ack deletes nothing.
    dropped = [] if may_start else ["h"]
    assert desk.freed == dropped
    assert desk.keeper.is_disowned("h") is bool(dropped)


@pytest.mark.parametrize(
    ("has_processes", "pid", "process"),
    [
        pytest.param(True, 4711, 4711, id="prefork"),
        pytest.param(False, 4711, None, id="threads: its own process"),
        pytest.param(False, 139_872_313_442_304, None, id="gevent: the number of a greenlet"),
    ],
)
def test_only_a_pool_of_processes_reports_the_process_of_a_task(
    desk: RequestHarness,
    monkeypatch: pytest.MonkeyPatch,
    has_processes: bool,
    pid: int,
    process: int | None,
) -> None:
    noted: list[tuple[str, int | None]] = []
    monkeypatch.setattr(desk.keeper, "note_start", lambda *started: noted.append(started))
    desk.has_processes = has_processes
    desk.receive().on_accepted(pid, 0.0)
    assert noted == [("h", process)]
