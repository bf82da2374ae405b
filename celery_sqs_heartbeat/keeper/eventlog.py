"""Writes the events of leases to the log, and what SQS did not confirm in time."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from celery_sqs_heartbeat.common.escaping import counted, get_logger
from celery_sqs_heartbeat.leases.events import Event, EventKind, Outcome, named
from celery_sqs_heartbeat.leases.lease import Action, Goal, Lease
from celery_sqs_heartbeat.leases.policy import CALL_KIND

logger = get_logger("celery_sqs_heartbeat")

#: Of all other kinds: DEBUG.
_LEVELS = {
    EventKind.EXTENSION_FAILED: logging.INFO,
    EventKind.LEASE_EXPIRED: logging.WARNING,
    EventKind.LEASE_LOST: logging.WARNING,
    EventKind.LEASE_CAPPED: logging.WARNING,
    EventKind.LEASE_CAP_NEAR: logging.WARNING,
    EventKind.MESSAGE_LAPSING: logging.INFO,
    EventKind.DELETE_FAILED: logging.INFO,
    EventKind.DELETE_ABANDONED: logging.ERROR,
    EventKind.PERMISSION_DENIED: logging.ERROR,
    EventKind.PERMISSION_GRANTED: logging.WARNING,
}

#: Causes of a release that are not failures of the message.
_NO_FAILURES = frozenset({"shutdown", "consumer closed"})
#: At most this many messages get a line each. The others are only counted.
_LISTED = 100


def log_event(event: Event) -> None:
    """Log one event, at the level of its kind."""
    level = _LEVELS.get(event.kind, logging.DEBUG)
    if event.kind is EventKind.DELETE_ABANDONED and event.outcome is Outcome.LOST:
        # The lease had expired. The message becomes visible, and is deleted at its next receive.
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
            "sqs-heartbeat: permission sqs:%s is missing on queue %s%s. Until it is granted, %s",
            CALL_KIND[event.action].value,
            event.queue_url,
            ", or the queue does not exist" if event.outcome is Outcome.NO_QUEUE else "",
            "messages of finished tasks stay in the queue, and the keeper retries deletes"
            if event.action is Action.DELETE
            else "the keeper probes the queue, and its leases may expire",
        )
    elif event.action and event.kind is EventKind.PERMISSION_GRANTED:
        logger.log(
            level,
            "sqs-heartbeat: permission sqs:%s on queue %s works again",
            CALL_KIND[event.action].value,
            event.queue_url,
        )
    else:
        logger.log(
            level,
            "sqs-heartbeat: %s: %s, receive %d, held for %.0f s, %.1f s left%s%s",
            event.kind.value,
            named(event),
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
        when = "when its visibility timeout expires"
    most = event.max_receive_count
    if most is not None and event.receive_count >= most:
        what = f"becomes a dead letter {when}, and the rest of its group continues without it"
    else:
        what = f"becomes visible {when}, and the rest of its group waits for it"
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


def log_unconfirmed(leases: Sequence[Lease], waited: float) -> None:
    """Log the messages whose delete or release is not confirmed, if any.

    Args:
        waited: How long the keeper has waited for SQS, in seconds.
    """
    if not leases:
        return
    logger.warning(
        "sqs-heartbeat: SQS did not confirm the delete or release of %s within %g s: %s",
        counted(len(leases), "message"),
        waited,
        "it becomes visible again" if len(leases) == 1 else "they become visible again",
    )
    for lease in leases[:_LISTED]:
        logger.warning(
            "sqs-heartbeat: the %s of %s, is not confirmed after %s",
            "delete" if lease.goal is Goal.DELETE else "release",
            named(lease),
            counted(lease.attempts, "failed try", "failed tries"),
        )
    if len(leases) > _LISTED:
        logger.warning(
            "sqs-heartbeat: the same for %s", counted(len(leases) - _LISTED, "more message")
        )
