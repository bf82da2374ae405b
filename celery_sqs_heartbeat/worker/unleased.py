"""Reports messages that Celery received without the keeper."""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.worker.versions import installed

logger = get_logger(__name__)


def report_unleased(heartbeat: Heartbeat, message: Any, request: Any) -> None:
    """Log a message of a leased queue that has no lease, once for each queue.

    A message that the keeper once knew is not logged: its lease may have ended before its
    request was made.
    """
    info = message.delivery_info or {}
    if str(message.delivery_tag) in heartbeat.received:
        return
    queue = heartbeat.leased.names.get(str(info.get("sqs_queue")))
    if queue is None or not heartbeat.once.first_time(f"no lease {queue}"):
        return
    logger.error(
        "sqs-heartbeat: message %s of queue %s, task %s[%s], has no lease: kombu bypassed the "
        "heartbeat when it delivered the message, and may do so with all messages of the queue. "
        "A task that runs for longer than the visibility timeout then runs again. Installed: %s. "
        "Install tested versions, or raise the queue's visibility timeout and start workers with "
        "--no-heartbeat-sqs",
        (info.get("sqs_message") or {}).get("MessageId"),
        queue,
        request.name,
        request.id,
        installed(),
    )
