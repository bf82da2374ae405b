"""The release of one message, found in a proxy's record by its id and receive count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.proxy import FaultProxy
from tests.support.recording import Call
from tests.support.waiting import wait_until

CHANGE = "ChangeMessageVisibilityBatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A confirmed change of a message's visibility timeout: an extension, or a release.

    Attributes:
        receive_count: The receive count of the receive whose handle the call used.
        held: How long after that receive's answer the call reached the server, in seconds.
        timeout: For how long it hides the message, in seconds.
    """

    message_id: str
    receive_count: int
    held: float
    timeout: int


def changes(calls: Sequence[Call]) -> list[Change]:
    """Return the confirmed changes of messages whose receive is on record, in order."""
    received = {
        message["ReceiptHandle"]: (message, call.answered_at)
        for call in calls
        if call.operation == "ReceiveMessage" and call.answered_at is not None
        for message in (call.answer or {}).get("Messages", ())
    }
    return [
        Change(
            message_id=message["MessageId"],
            receive_count=int(message["Attributes"]["ApproximateReceiveCount"]),
            held=call.forwarded_at - answered_at,
            timeout=entry["VisibilityTimeout"],
        )
        for call in calls
        if call.operation == CHANGE and call.forwarded_at is not None
        for entry in confirmed(call)
        if entry["ReceiptHandle"] in received
        for message, answered_at in [received[entry["ReceiptHandle"]]]
    ]


def confirmed(call: Call) -> list[dict[str, Any]]:
    """Return the entries of a batch call that were done."""
    done = {entry["Id"] for entry in (call.answer or {}).get("Successful", ())}
    return [entry for entry in call.entries if entry["Id"] in done]


def wait_for_release(
    proxy: FaultProxy, *, receive_count: int, delay: int, message_id: str | None = None
) -> Change:
    """Return the release of a message after this receive, once it is confirmed.

    Args:
        delay: The longest. It distinguishes the release from an extension, which must request more
            seconds. Jitter may take half of it. Some of the rest may have passed before the call,
            but no more than the message was held.
        message_id: None if there is only one message.

    Raises:
        TimeoutError: It was not released, or not with that delay.
    """
    found: list[Change] = []

    def is_released() -> bool:
        found[:] = [
            change
            for change in changes(proxy.calls())
            if change.receive_count == receive_count
            and delay / 2 - change.held <= change.timeout <= delay
            and message_id in (None, change.message_id)
        ]
        return bool(found)

    wait_until(is_released, tell=lambda: changes(proxy.calls()))
    (release,) = found
    return release
