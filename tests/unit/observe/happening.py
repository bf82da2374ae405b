"""Events of every kind, as a keeper would report them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome
from celery_sqs_heartbeat.leases.lease import Action

QUEUE = "https://sqs.eu-west-1.example/123456789012/orders"
FIFO = f"{QUEUE}.fifo"

_OF_CALLS = {
    EventKind.LEASE_EXTENDED: (Action.EXTEND, Outcome.DONE),
    EventKind.EXTENSION_FAILED: (Action.EXTEND, Outcome.THROTTLED),
    EventKind.LEASE_LOST: (Action.EXTEND, Outcome.LOST),
    EventKind.MESSAGE_RELEASED: (Action.RELEASE, Outcome.DONE),
    EventKind.MESSAGE_DELETED: (Action.DELETE, Outcome.DONE),
    EventKind.DELETE_FAILED: (Action.DELETE, Outcome.FAILED),
    EventKind.DELETE_ABANDONED: (Action.DELETE, Outcome.MALFORMED),
    EventKind.PERMISSION_DENIED: (Action.EXTEND, Outcome.DENIED),
    EventKind.PERMISSION_GRANTED: (Action.EXTEND, Outcome.DONE),
}
_CAUSES = {EventKind.MESSAGE_RECEIVED: "new", EventKind.MESSAGE_RELEASED: "failed"}


def event(kind: EventKind, **values: Any) -> Event:
    """Return an event of that kind: by default of message m, at 1000 s."""
    action, outcome = _OF_CALLS.get(kind, (None, None))
    of_call = {"call_number": 1, "batch": 2, "seconds": 0.2} if action else {}
    defaults = {
        "at": 1000.0,
        "queue_url": QUEUE,
        "message_id": "m",
        "task": "shop.pay",
        "task_id": "t",
        "receive_count": 1,
        "slack": 12.0,
        "held_for": 90.0,
        "receipt_handle": "SECRET-HANDLE",
        "visibility_timeout": 60,
        "cause": _CAUSES.get(kind, ""),
        "action": action,
        "outcome": outcome,
        **of_call,
    }
    return Event(kind=kind, **{**defaults, **values})


def one_of_each() -> Iterator[Event]:
    """Yield an event of every kind. Each event that results from a call has its own call.

    The release stops a message group.
    """
    for number, kind in enumerate(EventKind, 1):
        of_call = {"call_number": number} if kind in _OF_CALLS else {}
        of_group = {}
        if kind is EventKind.MESSAGE_RELEASED:
            of_group = {"group": "A17", "stops_group": True}
        yield event(kind, **of_call, **of_group)
