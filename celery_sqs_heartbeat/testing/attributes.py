"""The attributes of simulated queues, in the strings that SQS speaks.

The ranges are those of the SQS API reference, CreateQueue; the errors those that AWS answered to
LocalStack's test suite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from celery_sqs_heartbeat.testing import errors
from celery_sqs_heartbeat.testing.queue import SimulatedQueue

if TYPE_CHECKING:
    from celery_sqs_heartbeat.testing.sqs import SimulatedSqs

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
#: Taken, kept and shown, and of no effect: the values that SQS takes.
_KEPT = {
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
    "KmsDataKeyReusePeriodSeconds": range(60, 86_401),
    "KmsMasterKeyId": None,
    "Policy": None,
    "RedriveAllowPolicy": None,
    "SqsManagedSseEnabled": ("true", "false"),
}
_FIFO_ONLY = {
    "FifoQueue",
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "FifoThroughputLimit",
}
_SHOWN_ONLY = {
    "All",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
}
_SET = {*_NUMBERS, *_KEPT, *_FIFO_ONLY, "RedrivePolicy"}
_SCOPES = ("queue", "messageGroup")


def arn(queue: SimulatedQueue) -> str:
    """Return a queue's ARN."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue.name}"


def get_attributes(queue: SimulatedQueue, now: float) -> dict[str, str]:
    """Return a queue's attributes, but its timestamps."""
    options = queue.options
    visible, in_flight = queue.visible(now), queue.in_flight(now)
    delayed = sum(m.visible_at > now and not m.receive_count for m in queue.messages.values())
    attributes = {
        "QueueArn": arn(queue),
        **{name: str(getattr(options, field)) for name, (field, _, _) in _NUMBERS.items()},
        "ApproximateNumberOfMessages": str(visible),
        "ApproximateNumberOfMessagesNotVisible": str(in_flight),
        "ApproximateNumberOfMessagesDelayed": str(delayed),
        **options.kept,
    }
    if queue.is_fifo:
        attributes["FifoQueue"] = "true"
        attributes["ContentBasedDeduplication"] = str(options.content_based_deduplication).lower()
        attributes["DeduplicationScope"] = _SCOPES[options.deduplicates_by_group]
    if options.dead_letters is not None and options.max_receive_count is not None:
        attributes["RedrivePolicy"] = json.dumps(
            {
                "deadLetterTargetArn": arn(options.dead_letters),
                "maxReceiveCount": options.max_receive_count,
            }
        )
    return attributes


def check_names(names: Any) -> None:
    """Refuse to show attributes that SQS does not know.

    Raises:
        SqsError: There are such.
    """
    for name in names:
        if name not in _SET | _SHOWN_ONLY:
            raise errors.unknown_attribute(name)


def set_attributes(sqs: SimulatedSqs, queue: SimulatedQueue, attributes: Mapping[str, Any]) -> None:
    """Change a queue's attributes: all that are given, or none.

    Raises:
        SqsError: SQS knows no such attribute, or does not take its value.
    """
    changed: dict[str, Any] = {}
    kept = dict(queue.options.kept)
    for name, given in attributes.items():
        value = str(given)
        if name not in _SET or (name in _FIFO_ONLY and not queue.is_fifo):
            raise errors.unknown_attribute(name)
        if name in _NUMBERS:
            field, low, high = _NUMBERS[name]
            changed[field] = _number(name, value, low, high)
        elif name in _KEPT:
            allowed = _KEPT[name]
            if isinstance(allowed, range):
                _number(name, value, allowed.start, allowed.stop - 1)
            elif allowed is not None and value not in allowed:
                raise errors.wrong_attribute(name)
            kept[name] = value
        elif name == "ContentBasedDeduplication":
            changed["content_based_deduplication"] = _flag(name, value)
        elif name == "DeduplicationScope":
            if value not in _SCOPES:
                raise errors.wrong_attribute(name)
            changed["deduplicates_by_group"] = value == "messageGroup"
        elif name == "FifoQueue":
            if not _flag(name, value):
                raise errors.wrong_attribute(name)
        else:
            target, count = _redrive(sqs, queue, value)
            changed |= {"dead_letters": target, "max_receive_count": count}
    for field, value in {**changed, "kept": kept}.items():
        setattr(queue.options, field, value)


def difference(queue: SimulatedQueue, attributes: Mapping[str, Any]) -> str | None:
    """Return the name of an attribute that a queue has another value of, or None."""
    has = get_attributes(queue, 0.0)
    for name, value in attributes.items():
        if name == "RedrivePolicy" and name in has and value:
            if json.loads(has[name]) != _parse_policy(str(value)):
                return name
        elif has.get(name, "").lower() != str(value).lower():
            return name
    return None


def _number(name: str, value: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
        raise errors.wrong_attribute(name)
    return int(value)


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise errors.wrong_attribute(name)
    return value.lower() == "true"


def _redrive(
    sqs: SimulatedSqs, queue: SimulatedQueue, policy: str
) -> tuple[SimulatedQueue | None, int | None]:
    if not policy:
        return None, None
    read = _parse_policy(policy)
    target_arn, count = read.get("deadLetterTargetArn"), read.get("maxReceiveCount")
    if target_arn is None or count is None:
        name = "maxReceiveCount" if count is None else "deadLetterTargetArn"
        text = f"Redrive policy does not contain mandatory attribute: {name}"
        raise errors.out_of_range("RedrivePolicy", policy, text)
    if not re.fullmatch(r"[0-9]{1,4}", str(count)) or not 1 <= int(count) <= 1_000:
        text = (
            f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both "
            "inclusive"
        )
        raise errors.out_of_range("RedrivePolicy", policy, text)
    prefix, _, name = str(target_arn).rpartition(":")
    target = sqs.queues.get(name)
    if target is None or not re.fullmatch(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:[0-9]{12}", prefix):
        raise errors.out_of_range("RedrivePolicy", policy, "Dead letter target does not exist")
    if target.is_fifo is not queue.is_fifo:
        text = "Dead-letter queue must be same type of queue as the source"
        raise errors.out_of_range("RedrivePolicy", policy, text)
    return target, int(count)


def _parse_policy(policy: str) -> Mapping[str, Any]:
    try:
        read = json.loads(policy)
    except ValueError:
        read = None
    if not isinstance(read, Mapping):
        text = "Redrive policy is not a valid JSON map"
        raise errors.out_of_range("RedrivePolicy", policy, text)
    if "maxReceiveCount" in read and str(read["maxReceiveCount"]).isdecimal():
        # AWS takes it as a string, too, and shows the number.
        return {**read, "maxReceiveCount": int(read["maxReceiveCount"])}
    return read
