"""The attributes of simulated queues, in the strings that SQS speaks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.queue import SimulatedQueue

if TYPE_CHECKING:
    from celery_sqs_heartbeat.testing.sqs import SimulatedSqs

ACCOUNT = "000000000000"
REGION = "us-east-1"


def arn(queue: SimulatedQueue) -> str:
    """Return a queue's ARN."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue.name}"


def get_attributes(queue: SimulatedQueue, now: float) -> dict[str, str]:
    """Return a queue's attributes."""
    options = queue.options
    delayed = sum(m.visible_at > now and not m.receive_count for m in queue.messages.values())
    attributes = {
        "QueueArn": arn(queue),
        "VisibilityTimeout": str(options.visibility_timeout),
        "ApproximateNumberOfMessages": str(queue.visible(now)),
        "ApproximateNumberOfMessagesNotVisible": str(queue.in_flight(now)),
        "ApproximateNumberOfMessagesDelayed": str(delayed),
    }
    if queue.is_fifo:
        attributes["FifoQueue"] = "true"
        attributes["ContentBasedDeduplication"] = str(options.content_based_deduplication).lower()
    if options.dead_letters is not None and options.max_receive_count is not None:
        attributes["RedrivePolicy"] = json.dumps(
            {
                "deadLetterTargetArn": arn(options.dead_letters),
                "maxReceiveCount": options.max_receive_count,
            }
        )
    return attributes


def set_attributes(sqs: SimulatedSqs, queue: SimulatedQueue, attributes: Mapping[str, Any]) -> None:
    """Take over the attributes that the simulation knows; others are ignored.

    Raises:
        SqsError: A value is not one that SQS takes.
    """
    if "VisibilityTimeout" in attributes:
        timeout = attributes["VisibilityTimeout"]
        if not str(timeout).isdecimal() or int(timeout) > 43_200:
            raise errors.out_of_range("VisibilityTimeout", timeout, "Must be 0 to 43200")
        queue.options.visibility_timeout = int(timeout)
    if "ContentBasedDeduplication" in attributes:
        asked = str(attributes["ContentBasedDeduplication"]).lower()
        queue.options.content_based_deduplication = asked == "true"
    if policy := attributes.get("RedrivePolicy"):
        try:
            read = json.loads(policy)
            target = sqs.queue(str(read["deadLetterTargetArn"]).replace(":", "/"))
            count = int(read["maxReceiveCount"])
        except (KeyError, TypeError, ValueError):
            raise errors.out_of_range("RedrivePolicy", policy, "It can't be read") from None
        queue.options.dead_letters, queue.options.max_receive_count = target, count
