"""Reports messages that Celery got although they never came by the keeper."""

from __future__ import annotations

from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.worker.required_versions import running

logger = get_logger(__name__)


def report_unleased(heartbeat: Heartbeat, message: Any, request: Any) -> None:
    """Log a message of a leased queue that was received past us, once for each queue.

    Not one that the keeper knew: its lease may have ended before its request was made.
    """
    info = message.delivery_info or {}
    if str(message.delivery_tag) in heartbeat.received:
        return
    queue = heartbeat.leased.names.get(str(info.get("sqs_queue")))
    if queue is None or not heartbeat.once.first_time(f"no lease {queue}"):
        return
    logger.error(
        "sqs-heartbeat: message %s of queue %s, task %s[%s], has no lease: kombu delivered it "
        "past the heartbeat, and so it may all other messages of the queue; a task that runs for "
        "longer than the visibility timeout runs again. This is %s: install versions that are "
        "tested, or raise the queue's visibility timeout and start workers with "
        "--no-heartbeat-sqs",
        (info.get("sqs_message") or {}).get("MessageId"),
        queue,
        request.name,
        request.id,
        running(),
    )
