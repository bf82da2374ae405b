"""The message of a task that Celery has cancelled is released, and does not count as failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo

from celery_sqs_heartbeat.worker.requests import LeasedRequest
from tests.unit.request_harness import RequestHarness


class CelerysRequest:
    """The part of Celery's request that cancels a task and is notified of its end."""

    acknowledged = False
    error: type[Exception] | None = None

    def __init__(self, message: Any, time_start: float | None) -> None:
        self.time_limits, self.kwargs = (None, None), {}
        self.message = message
        self.time_start = time_start
        self.failures: list[ExceptionInfo] = []

    def cancel(self, pool: Any) -> None:
        if self.time_start and self.error is not None:
            raise self.error

    def on_failure(self, exc_info: ExceptionInfo) -> None:
        self.failures.append(exc_info)


class Request(LeasedRequest, CelerysRequest):
    failures: list[ExceptionInfo]


@pytest.mark.parametrize(
    ("time_start", "error", "is_green", "is_given_back"),
    [
        pytest.param(1.0, None, False, True, id="it ran"),
        pytest.param(1.0, None, True, True, id="it ran in a greenlet"),
        pytest.param(None, None, False, False, id="it had not begun"),
        pytest.param(1.0, NotImplementedError, False, False, id="its pool cannot stop it"),
    ],
)
def test_the_end_of_a_cancelled_task_is_a_failure_unless_celery_has_announced_it(
    desk: RequestHarness,
    time_start: float | None,
    error: type[Exception] | None,
    is_green: bool,
    is_given_back: bool,
) -> None:
    released: list[str] = []
    channel = SimpleNamespace(release=lambda tag, *, cause: released.append(f"{tag} {cause}"))
    desk.receive()
    request = Request(SimpleNamespace(delivery_tag="h", channel=channel), time_start)
    request.error = error
    request.cancel(SimpleNamespace(is_green=is_green))
    if is_green:
        # Celery takes it for a task that succeeded.
        request.acknowledge()
    else:
        try:
            raise LookupError
        except LookupError:
            request.on_failure(ExceptionInfo())
    assert released == (["h cancelled"] if is_given_back else [])
    assert len(request.failures) == (0 if is_given_back else 1)
