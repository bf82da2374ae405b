"""Whether a lease can last until its task's ETA."""

from __future__ import annotations

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.policy import lease_end, receives_until
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.once import Once

logger = get_logger(__name__)


def is_too_far(
    lease: Lease, wait: float, *, now: float, queues: QueueDirectory, once: Once
) -> bool:
    """Return whether an ETA `wait` seconds away is beyond what the lease may last.

    Logs that, and warns once of a queue that does not allow for the receives it takes.

    Args:
        now: In seconds of the keeper's clock.
    """
    lasts = lease_end(lease) - now
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
    most = queues.get(lease.queue_url).max_receive_count
    subject = f"too few receives {lease.queue_url} {lease.task}"
    if most is not None and receives > most and once.first_time(subject):
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
