"""A request settles its message on a real channel, whatever has happened to the lease."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from celery.utils.log import get_logger

from celery_sqs_heartbeat.worker.requests import LeasedRequest
from tests.integration.test_transport import ChannelHarness, desk, new_desk  # noqa: F401
from tests.support.insides import slots_taken
from tests.support.waiting import PATIENCE, wait_until

logger = get_logger(__name__)


class _Request:
    """Behaves as Celery's request when its task is rejected."""

    task = SimpleNamespace(Strategy="celery.worker.strategy:default")
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


class Starting(Request):
    """A thread of the pool starts its task right after its consumer has looked whether it has."""

    def outlives_consumer(self) -> bool:
        assert self.claim_start()
        return False


def delivered(desk: ChannelHarness, kind: type[Request] = Request) -> Request:  # noqa: F811
    desk.publish("a")
    taken: list[Request] = []
    desk.consume(lambda message: taken.append(kind(message)))
    desk.drain_until(lambda: taken)
    (request,) = taken
    return request


@pytest.mark.parametrize("ends", [None, "release", "let_expire", "disown"])
def test_a_task_that_fails_deletes_nothing_whether_or_not_its_lease_has_ended(
    desk: ChannelHarness,  # noqa: F811
    ends: str | None,
) -> None:
    # Without a dead-letter queue, kombu deletes messages that are rejected without requeue.
    request = delivered(desk)
    if ends is not None:
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


def test_a_task_that_starts_as_its_consumer_is_closed_keeps_its_message(
    desk: ChannelHarness,  # noqa: F811
) -> None:
    request = delivered(desk, Starting)
    desk.channel.close()
    assert request.is_held()


def test_a_message_is_not_released_if_its_task_began_before_its_delivery_failed(
    desk: ChannelHarness,  # noqa: F811
) -> None:
    def begin(message: Any) -> None:
        begun.append(Request(message))
        begun[0].begin()
        raise LookupError

    begun: list[Request] = []
    desk.publish("a")
    desk.consume(begin)
    desk.drain_until(lambda: begun)
    wait_until(lambda: len(desk.keeper) == 0)
    assert desk.proxy.calls("ChangeMessageVisibilityBatch") == []
    assert slots_taken(desk.channel) == set()
