"""Writes what happened to leases to the log."""

from __future__ import annotations

import logging

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.calls import Outcome
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Action

logger = get_logger("celery_sqs_heartbeat")

_PERMISSION = {
    Action.EXTEND: "sqs:ChangeMessageVisibility",
    Action.RELEASE: "sqs:ChangeMessageVisibility",
    Action.DELETE: "sqs:DeleteMessage",
}
_WITHOUT = {
    Action.EXTEND: "it is probed, and its leases may expire meanwhile",
    Action.RELEASE: "it is probed, and its leases may expire meanwhile",
    Action.DELETE: "messages whose task has ended stay in it, and their deletes are tried again",
}
_LEVELS = {
    EventKind.MESSAGE_RECEIVED: logging.DEBUG,
    EventKind.TASK_STARTED: logging.DEBUG,
    EventKind.LEASE_EXTENDED: logging.DEBUG,
    EventKind.EXTENSION_FAILED: logging.INFO,
    EventKind.LEASE_EXPIRED: logging.WARNING,
    EventKind.LEASE_LOST: logging.WARNING,
    EventKind.LEASE_CAPPED: logging.WARNING,
    EventKind.LEASE_CAP_NEAR: logging.WARNING,
    EventKind.MESSAGE_RELEASED: logging.DEBUG,
    EventKind.MESSAGE_LAPSING: logging.INFO,
    EventKind.MESSAGE_DELETED: logging.DEBUG,
    EventKind.DELETE_FAILED: logging.INFO,
    EventKind.DELETE_ABANDONED: logging.ERROR,
    EventKind.PERMISSION_DENIED: logging.ERROR,
    EventKind.PERMISSION_GRANTED: logging.WARNING,
}


#: Nothing went wrong with a message that is given back for these.
_NO_FAILURES = frozenset({"shutdown", "consumer closed"})


def log_event(event: Event) -> None:
    """Log one event, at the level that its kind deserves."""
    level = _LEVELS[event.kind]
    if event.kind is EventKind.DELETE_ABANDONED and event.outcome is Outcome.LOST:
        # Its lease had run out: the message comes back, and is deleted then.
        level = logging.WARNING
    is_stop = event.stops_group and event.cause not in _NO_FAILURES
    if is_stop:
        level = logging.INFO
    if not logger.isEnabledFor(level):
        return
    if is_stop:
        _log_stop(level, event)
    elif event.action and event.kind is EventKind.PERMISSION_DENIED:
        logger.log(
            level,
            "sqs-heartbeat: permission %s is missing on queue %s%s: %s until it is granted",
            _PERMISSION[event.action],
            event.queue_url,
            ", or the queue does not exist" if event.outcome is Outcome.NO_QUEUE else "",
            _WITHOUT[event.action],
        )
    elif event.action and event.kind is EventKind.PERMISSION_GRANTED:
        logger.log(
            level,
            "sqs-heartbeat: permission %s on queue %s works again",
            _PERMISSION[event.action],
            event.queue_url,
        )
    else:
        logger.log(
            level,
            "sqs-heartbeat: %s: message %s of %s, task %s[%s], receive %d, held for %.0f s, "
            "%.1f s left%s%s",
            event.kind.value,
            event.message_id,
            event.queue_url,
            event.task,
            event.task_id,
            event.receive_count,
            event.held_for,
            event.slack,
            f", SQS answered {event.outcome.value}" if event.outcome else "",
            f" ({event.cause})" if event.cause else "",
        )


def _log_stop(level: int, event: Event) -> None:
    if event.kind is EventKind.MESSAGE_RELEASED:
        when = f"in {event.visibility_timeout} s"
    else:
        when = "when its visibility timeout is over"
    most = event.max_receive_count
    if most is not None and event.receive_count >= most:
        what = f"becomes a dead letter {when}, and the rest of its group goes on without it"
    else:
        what = f"comes again {when}, and the rest of its group waits for it"
    logger.log(
        level,
        "sqs-heartbeat: %s: group %s of %s stopped (%s): message %s, task %s[%s], receive %d, %s",
        event.kind.value,
        event.group,
        event.queue_url,
        event.cause or "no reason given",
        event.message_id,
        event.task,
        event.task_id,
        event.receive_count,
        what,
    )
