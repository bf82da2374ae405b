"""How long a message is hidden for when it is given back after a failure."""

from __future__ import annotations

import logging

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.policy import poison_delay
from celery_sqs_heartbeat.settings.rules import UnusableDelay
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport.lease_rules import LeaseRules
from celery_sqs_heartbeat.transport.once import Once

logger = get_logger(__name__)


def failure_delay(lease: Lease, *, rules: LeaseRules, queues: QueueDirectory, once: Once) -> float:
    """Return the release delay after the lease's task failed, in seconds."""
    try:
        delay = rules.release_delay(lease)
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
    attributes = queues.get(lease.queue_url)
    if delay or attributes.max_receive_count is not None:
        return delay
    if attributes.is_known and once.first_time(f"no dead-letter queue {lease.queue_url}"):
        logger.warning(
            "sqs-heartbeat: queue %s has no dead-letter queue: a message that always fails "
            "comes back for ever, each time later, up to its visibility timeout; give the "
            "queue a redrive policy",
            lease.queue_url,
        )
    timeout = lease.terms.visibility_timeout
    return poison_delay(lease.receive_count, visibility_timeout=timeout)
