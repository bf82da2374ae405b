"""Logs a message that can't be delivered to its consumer."""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger

logger = get_logger(__name__)


def log_undeliverable(queue: str, message_id: Any) -> None:
    """Log the error that is being handled, for a message that stays at SQS."""
    logger.exception(
        "sqs-heartbeat: message %s of %s can't be delivered: it is left in the queue and becomes "
        "visible again when its visibility timeout ends",
        message_id,
        queue,
    )
