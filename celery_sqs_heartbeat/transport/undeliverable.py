"""Logs a message that can't be delivered to its consumer."""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger

logger = get_logger(__name__)


def log_undeliverable(queue: str, message_id: Any) -> None:
    """Log the error that is being handled, for a message that is given up."""
    logger.exception(
        "sqs-heartbeat: message %s of %s can't be delivered, and is released like that of a "
        "failed task",
        message_id,
        queue,
    )
