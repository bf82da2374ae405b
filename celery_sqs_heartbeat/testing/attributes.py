"""The attributes of simulated queues, as the strings that SQS uses.

The ranges come from the SQS API reference, CreateQueue. The errors are AWS's answers to
LocalStack's test suite, or from public reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery_sqs_heartbeat.testing.errors import SqsError, invalid, unknown_attribute
from celery_sqs_heartbeat.testing.queue import QueueOptions, SimulatedQueue

#: By name.
Queues = Mapping[str, SimulatedQueue]

ACCOUNT = "000000000000"
REGION = "us-east-1"
#: Whole numbers: the field of `QueueOptions`, the least and the most.
_NUMBERS = {
    "VisibilityTimeout": ("visibility_timeout", 0, 43_200),
    "DelaySeconds": ("delay", 0, 900),
    "MaximumMessageSize": ("largest_message", 1_024, 1_048_576),
    "MessageRetentionPeriod": ("retention", 60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": ("wait", 0, 20),
}
#: The field of `QueueOptions`, and the values for False and True.
_CHOICES = {
    "ContentBasedDeduplication": ("content_based_deduplication", ("false", "true")),
    "DeduplicationScope": ("deduplicates_by_group", ("queue", "messageGroup")),
}
#: Accepted, kept and shown, without effect. An empty string unsets one.
_ENCRYPTION = ("KmsDataKeyReusePeriodSeconds", "KmsMasterKeyId", "SqsManagedSseEnabled")
_KEPT = (*_ENCRYPTION, "FifoThroughputLimit", "Policy", "RedriveAllowPolicy")
_FIFO_ONLY = (*_CHOICES, "FifoQueue", "FifoThroughputLimit")


def arn(name: str) -> str:
    """Return the ARN of a queue of that name."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


def show(options: QueueOptions, *, is_fifo: bool) -> dict[str, str]:
    """Return the attributes that can be set."""
    shown = {name: str(getattr(options, field)) for name, (field, _, _) in _NUMBERS.items()}
    if is_fifo:
        shown |= {"FifoQueue": "true", "FifoThroughputLimit": "perQueue"}
        for name, (field, values) in _CHOICES.items():
            shown[name] = values[getattr(options, field)]
    if options.dead_letters is not None and options.max_receive_count is not None:
        target, count = arn(options.dead_letters.name), options.max_receive_count
        shown["RedrivePolicy"] = json.dumps(
            {"deadLetterTargetArn": target, "maxReceiveCount": count}
        )
    return {**shown, **options.kept}


def counts(queue: SimulatedQueue, now: float) -> dict[str, str]:
    """Return how many messages a queue has, as attributes."""
    visible, in_flight = queue.visible(now), queue.in_flight(now)
    return {
        "ApproximateNumberOfMessages": str(visible),
        "ApproximateNumberOfMessagesNotVisible": str(in_flight),
        "ApproximateNumberOfMessagesDelayed": str(len(queue.messages) - visible - in_flight),
    }


def change(
    options: QueueOptions, given: Mapping[str, Any], queues: Queues, *, is_fifo: bool
) -> QueueOptions:
    """Return the options with other attributes.

    Args:
        queues: By name: the possible dead-letter queues.
        is_fifo: Whether the queue is a FIFO queue.

    Raises:
        SqsError: SQS knows no such attribute, or does not accept its value.
    """
    fields: dict[str, Any] = {}
    kept = dict(options.kept)
    for name, value in given.items():
        text = str(value)
        if name in _FIFO_ONLY and not is_fifo:
            raise unknown_attribute(name)
        if name == "RedrivePolicy":
            target, count = _read_redrive(text, queues, is_fifo=is_fifo)
            fields |= {"dead_letters": target, "max_receive_count": count}
        elif name in _NUMBERS:
            field, low, high = _NUMBERS[name]
            fields[field] = _read_number(name, text, low, high)
        elif name in _CHOICES:
            field, values = _CHOICES[name]
            fields[field] = _read_choice(name, text, values)
        elif name in _KEPT:
            kept[name] = text
        elif name != "FifoQueue":
            raise unknown_attribute(name)
        elif not _read_choice(name, text, ("false", "true")):
            raise _wrong(name, "Modifying queue type is not supported")
    return replace(options, kept={name: text for name, text in kept.items() if text}, **fields)


def _wrong(name: str, reason: str = "") -> SqsError:
    """A value that the attribute can't have (LocalStack's AWS snapshots)."""
    text = f"Invalid value for the parameter {name}."
    return SqsError("InvalidAttributeValue", f"{text} Reason: {reason}." if reason else text)


def _read_choice(name: str, text: str, values: tuple[str, str]) -> bool:
    lower = [value.lower() for value in values]
    if text.lower() not in lower:
        raise _wrong(name)
    return text.lower() == lower[True]


def _read_number(name: str, text: str, low: int, high: int) -> int:
    if not text.isdecimal() or not low <= int(text) <= high:
        raise _wrong(name, f"Must be between {low} and {high}")
    return int(text)


def _read_redrive(
    policy: str, queues: Queues, *, is_fifo: bool
) -> tuple[SimulatedQueue | None, int | None]:
    """Return the dead-letter queue and the maxReceiveCount; an empty policy unsets both."""
    if not policy:
        return None, None
    try:
        read = json.loads(policy)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise _wrong("RedrivePolicy", "Redrive policy is not a valid JSON map")
    # AWS also accepts the count as a string, and shows the number.
    count = str(read.get("maxReceiveCount"))
    if not count.isdecimal() or not 1 <= int(count) <= 1_000:
        reason = f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both"
        raise invalid("RedrivePolicy", policy, f"{reason} inclusive")
    wanted = read.get("deadLetterTargetArn")
    target = next((each for each in queues.values() if arn(each.name) == wanted), None)
    if target is None:
        raise invalid("RedrivePolicy", policy, "Dead letter target does not exist")
    if target.is_fifo is not is_fifo:
        reason = "Dead-letter queue must be same type of queue as the source"
        raise invalid("RedrivePolicy", policy, reason)
    return target, int(count)
