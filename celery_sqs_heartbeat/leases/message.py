"""Reads the attributes of a received message."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.leases.events import HANDED_ON
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.received_as import Receive

#: How the names of FIFO queues end (SQS API reference, CreateQueue, QueueName).
FIFO_SUFFIX = ".fifo"


def receive_of(
    queue_url: str,
    message: Mapping[str, Any],
    *,
    hidden_for: int,
    sent_at: float,
    arrived_at: float,
    task: str | None,
    task_id: str | None,
    max_receive_count: int | None,
) -> Receive:
    """Return the receive of a message as SQS returned it; see `Receive` for the arguments."""
    return Receive(
        queue_url=queue_url,
        message_id=str(message["MessageId"]),
        receipt_handle=str(message["ReceiptHandle"]),
        receive_count=receive_count_of(message),
        hidden_for=hidden_for,
        sent_at=sent_at,
        arrived_at=arrived_at,
        task=task,
        task_id=task_id,
        max_receive_count=max_receive_count,
        sent_time=time_of(message, "SentTimestamp"),
        first_received_time=time_of(message, "ApproximateFirstReceiveTimestamp"),
        group=group_of(message),
        sequence_number=sequence_number_of(message),
    )


def receive_count_of(message: Mapping[str, Any]) -> int:
    """Return how often SQS had delivered the message by then; 1 if SQS did not return it."""
    try:
        return int(message["Attributes"]["ApproximateReceiveCount"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 1


def time_of(message: Mapping[str, Any], attribute: str) -> float | None:
    """Return a timestamp of the message from SQS, in Unix seconds; None without it."""
    try:
        return int(message["Attributes"][attribute]) / 1000
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def group_of(message: Mapping[str, Any]) -> str | None:
    """Return the message's group; None without one. For a fair queue, it is the tenant."""
    return _text_of(message, "MessageGroupId")


def sequence_number_of(message: Mapping[str, Any]) -> str | None:
    """Return the digits that grow within a message group of a FIFO queue; None without them."""
    digits = _text_of(message, "SequenceNumber")
    return digits if digits and digits.isascii() and digits.isdigit() else None


def content_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what its sender put into a message, as plain values: its body and attributes."""
    attributes: dict[str, dict[str, Any]] = message.get("MessageAttributes") or {}
    return {
        "MessageBody": message["Body"],
        "MessageAttributes": {
            name: {
                # boto3 returns binary values as bytes, and kombu's event loop as SQS encodes them.
                key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
                for key, value in each.items()
                if key in ("DataType", "StringValue", "BinaryValue")
            }
            for name, each in attributes.items()
        },
    }


def is_sent_again(lease: Lease, message: Mapping[str, Any], cause: str) -> bool:
    """Return whether a message must be sent again instead of being released, for a cause.

    SQS would move it to the dead-letter queue, although its task never started, and nothing is
    known to be wrong with it. A FIFO queue would put the copy behind the others of its group.
    """
    is_new = lease.is_last_receive and lease.started_at is None
    can_be_sent = bool(message.get("Body")) and not is_fifo(lease.queue_url)
    return is_new and can_be_sent and cause in HANDED_ON


def _text_of(message: Mapping[str, Any], attribute: str) -> str | None:
    try:
        text = message["Attributes"][attribute]
    except (KeyError, TypeError):
        return None
    return text if text and isinstance(text, str) else None


def is_fifo(queue: str) -> bool:
    """Return whether a queue, by its name or URL, is a FIFO queue."""
    return queue.rstrip("/").endswith(FIFO_SUFFIX)


def queue_name(queue_url: str) -> str:
    """Return a queue's name, which is the end of its URL."""
    return queue_url.rstrip("/").rpartition("/")[2]
