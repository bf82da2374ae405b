"""The messages in the answer to a receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger

logger = get_logger(__name__)

#: A message as SQS returned it.
Message = dict[str, Any]


def received(answer: Any) -> list[Any]:
    """Return the messages of an answer, of whatever shape it is."""
    messages = answer.get("Messages") if isinstance(answer, dict) else None
    return messages if isinstance(messages, list) else []


def readable(messages: Sequence[Any]) -> list[Message]:
    """Return the messages that can be leased: those with both ids."""
    return [
        message
        for message in messages
        if isinstance(message, dict)
        and all(
            isinstance(each := message.get(name), str) and each
            for name in ("MessageId", "ReceiptHandle")
        )
    ]


def log_unreadable(queue: str, count: int, received: int) -> None:
    """Log how many of the received messages are not readable, if there are any."""
    if count:
        logger.error(
            "sqs-heartbeat: %d of %d messages received from %s have no message id or receipt "
            "handle: the worker ignores them, and they stay in the queue",
            count,
            received,
            queue,
        )
