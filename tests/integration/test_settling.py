"""A request settles its message on a real channel, whatever has happened to the lease."""

from __future__ import annotations

from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from celery.utils.log import get_logger

from celery_sqs_heartbeat.worker.requests import LeasedRequest
from tests.integration.test_transport import ChannelHarness, desk, new_desk  # noqa: F401
from tests.support.insides import slots_taken
from tests.support.waiting import PATIENCE

logger = get_logger(__name__)


class _Request:
    """Behaves as Celery's request when its task is rejected."""

    acknowledged = False

    def __init__(self, message: Any) -> None:
        self.time_limits, self.kwargs = (None, None), {}
        self.message = message

    def reject(self, requeue: bool = False) -> None:
        self.message.reject_log_error(logger, (), requeue)

    def on_failure(self, exc_info: ExceptionInfo) -> None:
        self.reject()


class Request(LeasedRequest, _Request):
    pass


@pytest.mark.parametrize("ends", ["release", "let_expire", "disown"])
def test_a_task_that_fails_after_its_lease_has_ended_deletes_nothing(
    desk: ChannelHarness,  # noqa: F811
    ends: str,
) -> None:
    # Without a dead-letter queue, kombu deletes messages that are rejected without requeue.
    desk.publish("a")
    taken: list[Request] = []
    desk.consume(lambda message: taken.append(Request(message)))
    desk.drain_until(lambda: taken)
    (request,) = taken
    getattr(desk.joined.worker, ends)(request.message.delivery_tag)
    assert desk.keeper.flush(PATIENCE)
    assert desk.keeper.find(request.message.delivery_tag) is None
    try:
        raise LookupError
    except LookupError:
        request.on_failure(ExceptionInfo())
    assert desk.keeper.flush(PATIENCE)
    assert sum(desk.counts()) == 1
    assert desk.proxy.calls("DeleteMessage") == []
    assert desk.proxy.calls("DeleteMessageBatch") == []
    # Its prefetch slot is free.
    assert slots_taken(desk.channel) == set()
