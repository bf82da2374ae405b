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
    eta = (datetime.now(timezone.utc) + timedelta(seconds=due_in)).isoformat()
    headers = {"task": "t", "id": body, "eta": eta}
    desk.connection.Producer().publish({"body": body}, routing_key=desk.name, headers=headers)


def test_messages_that_are_due_later_take_no_slot_and_return_when_they_are_due(
    new_desk: Callable[..., ChannelHarness],  # noqa: F811
) -> None:
    desk = new_desk(hold_eta=1)
    for number in range(5):
        publish(desk, f"late {number}", due_in=4.5)
    publish(desk, "soon", due_in=0.5)
    taken: list[Any] = []
    desk.consume(taken.append)
    desk.drain_polls()
    assert [message.payload["body"] for message in taken] == ["soon"]
    wait_until(lambda: len(desk.keeper) == 1)
    assert len(slots_taken(desk.channel)) == 1
    asked = [e["VisibilityTimeout"] for call in desk.proxy.calls(CHANGE) for e in call.entries]
    # Delays are rounded down: a message may arrive a little early, and is then held, but not late.
    # The same call may extend the lease on the other message.
    assert all(1 <= each <= 4 for each in asked if each != 30)
    desk.drain_until(lambda: len(taken) == 6)
    for message in taken:
        message.ack()
    assert desk.keeper.flush(PATIENCE)
    assert desk.counts() == (0, 0)
