"""The messages in the answer to a receive."""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger

logger = get_logger(__name__)

#: A message as SQS returned it.
Message = dict[str, Any]


def readable(answer: Any) -> list[Message]:
    """Return the messages of an answer that can be leased: those with both ids.

    kombu turns a 5xx answer into an empty list.
    """
    return [
        message
        for message in _messages(answer)
        if isinstance(message, dict)
        and all(
            isinstance(each := message.get(name), str) and each
            for name in ("MessageId", "ReceiptHandle")
        )
    ]


def log_unreadable(queue: str, answer: Any, messages: list[Message]) -> None:
    """Log how many messages of an answer are not readable."""
    received = len(_messages(answer))
    if len(messages) < received:
        logger.error(
            "sqs-heartbeat: %d of %d messages received from %s have no message id or receipt "
            "handle: the worker ignores them, and they stay in the queue",
            received - len(messages),
            received,
            queue,
        )


def _messages(answer: Any) -> list[Any]:
    messages = answer.get("Messages") if isinstance(answer, dict) else None
    return messages if isinstance(messages, list) else []
