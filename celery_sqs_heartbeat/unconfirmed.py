"""Names the messages whose delete or release SQS did not confirm in time."""

from __future__ import annotations

from collections.abc import Sequence

from celery_sqs_heartbeat.core.lease import Lease, State
from celery_sqs_heartbeat.escaping import get_logger

logger = get_logger(__name__)

#: So many messages get a line each; the others are counted.
_LISTED = 100


def log_unconfirmed(leases: Sequence[Lease], waited: float) -> None:
    """Log what was waited for in vain, if anything.

    Args:
        waited: For how long, in seconds.
    """
    if not leases:
        return
    logger.warning(
        "sqs-heartbeat: %d deletes and releases were not confirmed within %g s; "
        "those messages will come back",
        len(leases),
        waited,
    )
    for lease in leases[:_LISTED]:
        logger.warning(
            "sqs-heartbeat: the %s of message %s of %s, task %s[%s], is not confirmed after %d "
            "failed tries",
            "delete" if lease.state is State.DONE else "release",
            lease.message_id,
            lease.queue_url,
            lease.task,
            lease.task_id,
            lease.attempts,
        )
    if len(leases) > _LISTED:
        logger.warning("sqs-heartbeat: and so for %d more messages", len(leases) - _LISTED)
