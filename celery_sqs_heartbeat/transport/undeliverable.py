"""What is logged of a message that does not get to its consumer."""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger

logger = get_logger(__name__)


def log_undeliverable(queue: str, message_id: Any) -> None:
    """Log the error that is being handled, of a message that is left to SQS."""
    logger.exception(
        "sqs-heartbeat: message %s of %s can't be delivered: it is left in the queue and comes "
        "back when its visibility timeout ends",
        message_id,
        queue,
    )
