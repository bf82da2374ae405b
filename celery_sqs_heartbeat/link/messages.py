"""The messages of the link, as both ends write and read them.

A worker's: hello, gap, reach, started, done, release, drop, finished, unanswered, resume, consume,
cancel, close, end, worker, pool, loop, tick, connected, level, stop. Its keeper's: kept,
again, over, event, log, stats. The first field is the kind. A lease is identified by the number
that its first keeper gave it. Messages for the worker's tasks go another way, see `deliveries`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Action, Lease, LeaseTerms
from celery_sqs_heartbeat.link.frames import BrokenLink, Message
from celery_sqs_heartbeat.link.held_message import HeldMessage
from celery_sqs_heartbeat.sqs.consumed_queue import ConsumedQueue

#: Increased with each change of a message, or of the table that both ends use. Both ends must have
#: the same version. They may differ if the package is replaced while the worker runs, because a new
#: keeper loads the new package.
VERSION = 13

_TERMS = tuple(field.name for field in fields(LeaseTerms))
_EVENT = tuple(field.name for field in fields(Event))
_LEASE = (
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
_terms_of = attrgetter(*_TERMS)
_event_of = attrgetter(*_EVENT)
_lease_of = attrgetter(*_LEASE)


def lease_fields(lease: Lease) -> Message:
    """Return what one end learns from the other about a lease, except its goal and its status."""
    return (*_lease_of(lease), _terms_of(lease.terms))


def read_lease(values: list[Any]) -> Lease:
    """Return a lease of these fields that is held."""
    *plain, terms = values
    lease = Lease(terms=read_terms(terms), **dict(zip(_LEASE, plain, strict=True)))
    lease.more_handles = tuple(lease.more_handles)
    return lease


def again(number: int, lease: Lease) -> Message:
    """Return the message for another receive of a message that its worker has."""
    return (
        "again",
        number,
        lease.receipt_handle,
        lease.receive_count,
        lease.last_timeout,
        lease.received_at,
    )


def consume(channel: int, queues: Iterable[ConsumedQueue]) -> Message:
    """Return the message that makes a keeper receive from queues for a channel."""
    return ("consume", channel, [_plain(queue) for queue in queues])


def _plain(queue: ConsumedQueue) -> dict[str, Any]:
    plain = {field.name: getattr(queue, field.name) for field in fields(ConsumedQueue)}
    plain["terms"] = _terms_of(queue.terms)
    plain["task_terms"] = {name: _terms_of(each) for name, each in queue.task_terms.items()}
    return plain


def read_queue(plain: dict[str, Any]) -> ConsumedQueue:
    """Return the queue of such a message."""
    task_terms = {name: read_terms(each) for name, each in plain["task_terms"].items()}
    return ConsumedQueue(**{**plain, "terms": read_terms(plain["terms"]), "task_terms": task_terms})


def read_terms(values: list[Any]) -> LeaseTerms:
    """Return terms from their fields, in their order."""
    return LeaseTerms(**dict(zip(_TERMS, values, strict=True)))


def resume(held: HeldMessage, *, was_releasing: bool) -> Message:
    """Return the message that makes a new keeper continue a lease."""
    lease = held.lease
    state = (lease.goal.value, lease.status.value, lease_fields(lease))
    return ("resume", held.number, was_releasing, held.pid, *state)


def event(number: int, happened: Event) -> Message:
    """Return the message for an event of a lease."""
    # Enums are sent by their values.
    return ("event", number, [getattr(each, "value", each) for each in _event_of(happened)])


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
