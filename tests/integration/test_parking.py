"""A channel releases messages whose tasks are due later than the worker may hold them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from tests.integration.test_transport import ChannelHarness, new_desk  # noqa: F401
from tests.support.insides import slots_taken
from tests.support.waiting import PATIENCE, wait_until

CHANGE = "ChangeMessageVisibilityBatch"


def publish(desk: ChannelHarness, body: str, *, due_in: float) -> None:
    headers = {"task": "t", "id": body, "eta": (now() + timedelta(seconds=due_in)).isoformat()}
    desk.connection.Producer().publish({"body": body}, routing_key=desk.name, headers=headers)


def now() -> datetime:
    return datetime.now(timezone.utc)


def test_messages_that_are_due_later_are_released_until_then_and_take_no_slot(
    new_desk: Callable[..., ChannelHarness],  # noqa: F811
) -> None:
    desk = new_desk(hold_eta=600)
    began = now()
    for number in range(5):
        publish(desk, f"late {number}", due_in=3600)
    publish(desk, "soon", due_in=300)
    taken: list[Any] = []
    desk.consume(taken.append)
    desk.drain_polls()
    assert [message.payload["body"] for message in taken] == ["soon"]
    wait_until(lambda: len(desk.keeper) == 1)
    assert len(slots_taken(desk.channel)) == 1
    entries = [entry for call in desk.proxy.calls(CHANGE) for entry in call.entries]
    # The same call may extend the lease on the other message, to 30 s.
    released = [entry for entry in entries if entry["VisibilityTimeout"] != 30]
    # A release that is answered late is repeated.
    assert len({entry["ReceiptHandle"] for entry in released}) == 5
    delays = [entry["VisibilityTimeout"] for entry in released]
    # All of the time that is left, rounded down: no message may return late.
    assert max(delays) < 3600
    assert min(delays) >= 3600 - (now() - began).total_seconds() - 1
    taken[0].ack()
    assert desk.keeper.flush(PATIENCE)
    assert desk.counts() == (0, 5)


def test_messages_that_are_due_later_return_when_they_are_due(
    new_desk: Callable[..., ChannelHarness],  # noqa: F811
) -> None:
    desk = new_desk(hold_eta=1)
    for number in range(5):
        publish(desk, f"late {number}", due_in=3.5)
    taken: list[Any] = []
    waits: list[timedelta] = []

    def take(message: Any) -> None:
        waits.append(datetime.fromisoformat(message.headers["eta"]) - now())
        taken.append(message)

    desk.consume(take)
    desk.drain_until(lambda: len(taken) == 5)
    # A message may return a little early, and is then held.
    assert max(waits) <= timedelta(seconds=1)
    for message in taken:
        message.ack()
    assert desk.keeper.flush(PATIENCE)
    assert desk.counts() == (0, 0)
