"""Logs the messages whose delete or release SQS did not confirm in time."""

from __future__ import annotations

from collections.abc import Sequence

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.leases.lease import Goal, Lease

logger = get_logger(__name__)

#: At most this many messages get a line each. The others are only counted.
_LISTED = 100


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
            "sqs-heartbeat: the %s of message %s of %s, task %s[%s], is not confirmed after %s",
            "delete" if lease.goal is Goal.DELETE else "release",
            lease.message_id,
            lease.queue_url,
            lease.task,
            lease.task_id,
            counted(lease.attempts, "failed try", "failed tries"),
        )
    if len(leases) > _LISTED:
        logger.warning(
            "sqs-heartbeat: the same for %s", counted(len(leases) - _LISTED, "more message")
        )
