"""The messages of the link, as both ends write and read them.

A worker's: hello, gap, reach, received, started, done, release, send-again, drop, resume, worker,
pool, loop, tick, connected, poll, polled, level, stop. Its keeper's: over, event, log, stats.
The first field is the kind. A lease is identified by the number that its worker gave it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease, LeaseStatus, LeaseTerms
from celery_sqs_heartbeat.leases.received_as import Receive, ReceivedAs
from celery_sqs_heartbeat.link.frames import BrokenLink, Message
from celery_sqs_heartbeat.link.held_message import HeldMessage

#: Increased with each change of a message, or of the table that both ends use. Both ends must have
#: the same version. They may differ if the package is replaced while the worker runs, because a new
#: keeper loads the new package.
VERSION = 11

_RECEIVE = tuple(field.name for field in fields(Receive))
_TERMS = tuple(field.name for field in fields(LeaseTerms))
_EVENT = tuple(field.name for field in fields(Event))
_KEPT = (
    "queue_url",
    "message_id",
    "task",
    "task_id",
    "receipt_handle",
    "receive_count",
    "held_since",
    "received_at",
    "expires_at",
    "hidden_until",
    "last_timeout",
    "asked_at",
    "release_delay",
    "cause",
    "max_receive_count",
    "sent_time",
    "first_received_time",
    "group",
    "sequence_number",
    "started_at",
    "is_exclusive",
    "extensions",
    "more_handles",
    "has_place",
)


def received(held: HeldMessage, receipt: ReceivedAs, receive: Receive) -> Message:
    """Return the message for a receive of a message."""
    lease = held.lease
    return (
        "received",
        held.number,
        held.receives,
        held.place,
        receipt.value,
        # Not `astuple`, which copies deeply: it takes ten times as long.
        (
            receive.queue_url,
            receive.message_id,
            receive.receipt_handle,
            receive.receive_count,
            receive.hidden_for,
            receive.sent_at,
            receive.arrived_at,
            # From the lease: a message that arrives during shutdown is released with its headers
            # unread.
            lease.task,
            lease.task_id,
            receive.max_receive_count,
            receive.sent_time,
            receive.first_received_time,
            receive.group,
            receive.sequence_number,
        ),
        _terms(lease.terms),
        held.is_certain,
    )


def _terms(terms: LeaseTerms) -> Message:
    return (
        terms.visibility_timeout,
        terms.threshold,
        terms.max_lease,
        terms.extend,
        terms.extend_late,
        terms.in_order,
    )


def read_receive(values: list[Any]) -> Receive:
    """Return the receive of such a message."""
    return Receive(**dict(zip(_RECEIVE, values, strict=True)))


def read_terms(values: list[Any]) -> LeaseTerms:
    """Return terms from their fields, in their order."""
    return LeaseTerms(**dict(zip(_TERMS, values, strict=True)))


def resume(held: HeldMessage, *, was_releasing: bool) -> Message:
    """Return the message that makes a new keeper continue a lease."""
    lease = held.lease
    return (
        "resume",
        held.number,
        held.receives,
        held.place,
        was_releasing,
        held.pid,
        _terms(lease.terms),
        lease.goal.value,
        lease.status.value,
        {name: getattr(lease, name) for name in _KEPT},
    )


def read_lease(terms: list[Any], goal: str, status: str, kept: dict[str, Any]) -> Lease:
    """Return the lease of such a message."""
    kept = {**kept, "more_handles": tuple(kept["more_handles"])}
    return Lease(terms=read_terms(terms), goal=Goal(goal), status=LeaseStatus(status), **kept)


def event(number: int, happened: Event) -> Message:
    """Return the message for an event of a lease."""
    plain = {name: getattr(happened, name) for name in _EVENT}
    for name in ("kind", "action", "outcome"):
        if plain[name] is not None:
            plain[name] = plain[name].value
    return ("event", number, [plain[name] for name in _EVENT])


def read_event(values: list[Any]) -> Event:
    """Return the event of such a message.

    Raises:
        BrokenLink: It is not an event.
    """
    try:
        plain = dict(zip(_EVENT, values, strict=True))
        plain["kind"] = EventKind(plain["kind"])
        plain["action"] = plain["action"] and Action(plain["action"])
        plain["outcome"] = plain["outcome"] and Outcome(plain["outcome"])
        return Event(**plain)
    except (TypeError, ValueError) as error:
        raise BrokenLink(f"the link has an invalid event: {error}") from None
