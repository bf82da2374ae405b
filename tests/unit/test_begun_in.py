"""In which process a task has begun, if the keeper must know it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.worker.requests import LeasedRequest
from tests.unit.request_harness import RequestHarness


class CelerysRequest:
    """The part of Celery's request that is notified when its task starts."""

    def __init__(self, message: Any) -> None:
        self.time_limits, self.kwargs = (None, None), {}
        self.message = message

    def on_accepted(self, pid: Any, time_accepted: Any) -> None: ...


class Request(LeasedRequest, CelerysRequest): ...


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
    desk.receive()
    request = Request(SimpleNamespace(delivery_tag="h", channel=desk))
    request.on_accepted(pid, 0.0)
    assert noted == [("h", process)]
