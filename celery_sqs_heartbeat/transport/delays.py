"""How long a message is hidden for when it is given back."""

from __future__ import annotations

import logging

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.policy import lease_end, poison_delay, receives_until
from celery_sqs_heartbeat.settings.rules import UnusableDelay
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.keeping import KeptLease

logger = get_logger(__name__)


def failure_delay(heartbeat: Heartbeat, lease: KeptLease) -> float:
    """Return the release delay after the lease's task failed, in seconds."""
    try:
        delay = heartbeat.release_delay(lease)
    except Exception as error:
        logger.log(
            logging.ERROR,
            "sqs-heartbeat: sqs_heartbeat_release_delay failed for message %s of task %s; "
            "it is released without a delay: %s",
            lease.message_id,
            lease.task,
            error,
            # Only an error of the user's own function needs its place in the code.
            exc_info=not isinstance(error, UnusableDelay),
        )
        delay = 0.0
    attributes = heartbeat.queues.get(lease.queue_url)
    if delay or attributes.max_receive_count is not None:
        return delay
    if attributes.is_known and heartbeat.first_time(f"no dead-letter queue {lease.queue_url}"):
        logger.warning(
            "sqs-heartbeat: queue %s has no dead-letter queue: a message that always fails "
            "comes back for ever, each time later, up to its visibility timeout; give the "
            "queue a redrive policy",
            lease.queue_url,
        )
    timeout = lease.terms.visibility_timeout
    return poison_delay(lease.receive_count, visibility_timeout=timeout)


def is_too_far(heartbeat: Heartbeat, lease: KeptLease, wait: float) -> bool:
    """Return whether an ETA `wait` seconds away is beyond what the lease may last.

    Says so, and warns once of a queue that does not allow for the receives it takes.
    """
    lasts = lease_end(lease) - heartbeat.keeper.now()
    if wait <= lasts:
        return False
    receives = lease.receive_count + receives_until(wait, lasts=lasts)
    logger.info(
        "sqs-heartbeat: message %s, task %s[%s], is due in %.0f s and may be held for %.0f s: "
        "it is handed back to SQS until then, and will be at receive %d",
        lease.message_id,
        lease.task,
        lease.task_id,
        wait,
        lasts,
        receives,
    )
    most = heartbeat.queues.get(lease.queue_url).max_receive_count
    told = f"too few receives {lease.queue_url} {lease.task}"
    if most is not None and receives > most and heartbeat.first_time(told):
        logger.warning(
            "sqs-heartbeat: task %s is due in %.0f s, which takes %d receives, and queue %s "
            "allows %d (maxReceiveCount): SQS will move the message to the dead-letter queue "
            "unrun; allow more, or send it later",
            lease.task,
            wait,
            receives,
            lease.queue_url,
            most,
        )
    return True
