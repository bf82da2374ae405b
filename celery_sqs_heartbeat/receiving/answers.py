"""Reads the answer to a receive: its messages, and the task in each."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
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


def task_of(message: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the task's name and id; None for each that can't be read.

    kombu's body is a JSON object, encoded with Base64 unless the producer has turned that off
    (kombu/transport/SQS.py, `_put`). Celery's protocol 2, the default since 4.0, has both in its
    headers.
    """
    try:
        payload = json.loads(_decoded(message["Body"]))
        # Without properties it is not kombu's, and kombu ignores its headers.
        headers = payload["headers"] if "properties" in payload else {}
        task, task_id = headers.get("task"), headers.get("id")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None, None
    return (
        task if isinstance(task, str) else None,
        task_id if isinstance(task_id, str) else None,
    )


def _decoded(body: str) -> str | bytes:
    # A JSON object is no Base64.
    return body if body[:1] == "{" else base64.b64decode(body)
