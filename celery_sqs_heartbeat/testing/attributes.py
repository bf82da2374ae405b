"""The attributes of simulated queues, as the strings that SQS uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery_sqs_heartbeat.testing import queue_errors
from celery_sqs_heartbeat.testing.attribute_values import (
    FIELDS,
    FIFO_ONLY,
    KEPT,
    NUMBERS,
    READERS,
    SCOPES,
)
from celery_sqs_heartbeat.testing.options import DeadLetterQueue, QueueOptions
from celery_sqs_heartbeat.testing.queue import SimulatedQueue
from celery_sqs_heartbeat.testing.redrive import read_redrive, show_redrive

ACCOUNT = "000000000000"
REGION = "us-east-1"
#: The defaults of the attributes without effect (LocalStack's AWS snapshots, and the SQS API
#: reference).
_DEFAULTS = {
    "FifoThroughputLimit": "perQueue",
    "KmsDataKeyReusePeriodSeconds": "300",
    "SqsManagedSseEnabled": "true",
}


def arn(queue: DeadLetterQueue) -> str:
    """Return a queue's ARN."""
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue.name}"


def get_attributes(queue: SimulatedQueue, now: float) -> dict[str, str]:
    """Return a queue's attributes, without its timestamps."""
    options = queue.options
    visible, in_flight = queue.visible(now), queue.in_flight(now)
    delayed = sum(m.visible_at > now and not m.receive_count for m in queue.messages.values())
    attributes = {
        "QueueArn": arn(queue),
        **{name: str(getattr(options, field)) for name, (field, _, _) in NUMBERS.items()},
        "ApproximateNumberOfMessages": str(visible),
        "ApproximateNumberOfMessagesNotVisible": str(in_flight),
        "ApproximateNumberOfMessagesDelayed": str(delayed),
        **options.kept,
    }
    if queue.is_fifo:
        attributes["FifoQueue"] = "true"
        attributes["ContentBasedDeduplication"] = str(options.content_based_deduplication).lower()
        attributes["DeduplicationScope"] = SCOPES[options.deduplicates_by_group]
        attributes.setdefault("FifoThroughputLimit", _DEFAULTS["FifoThroughputLimit"])
    if options.dead_letters is not None and options.max_receive_count is not None:
        attributes["RedrivePolicy"] = show_redrive(
            arn(options.dead_letters), options.max_receive_count
        )
    return attributes


def read_attributes(
    given: Mapping[str, Any], queues: Mapping[str, SimulatedQueue], *, is_fifo: bool
) -> dict[str, Any]:
    """Return the values of attributes, by name.

    Args:
        queues: By name: the possible dead-letter queues.
        is_fifo: Whether the queue is a FIFO queue.

    Raises:
        SqsError: SQS knows no such attribute, or does not accept its value.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in FIFO_ONLY and not is_fifo:
            raise queue_errors.fifo_attribute(name)
        if name == "RedrivePolicy":
            values[name] = read_redrive(str(value), queues, is_fifo=is_fifo)
        elif name in READERS:
            values[name] = READERS[name](name, str(value))
        else:
            raise queue_errors.unknown_attribute(name)
    if values.get("KmsMasterKeyId") and values.get("SqsManagedSseEnabled") == "true":
        raise queue_errors.two_encryptions()
    return values


def change(options: QueueOptions, values: Mapping[str, Any]) -> QueueOptions:
    """Return the options with other attributes, as `read_attributes` returned them.

    Raises:
        SqsError: SQS does not accept the value together with the queue's other attributes.
    """
    kept = {**options.kept, **{name: value for name, value in values.items() if name in KEPT}}
    # A queue has one of the two encryptions.
    if values.get("KmsMasterKeyId"):
        kept["SqsManagedSseEnabled"] = "false"
    elif values.get("SqsManagedSseEnabled") == "true":
        kept["KmsMasterKeyId"] = ""
    fields = {FIELDS[name]: value for name, value in values.items() if name in FIELDS}
    if "RedrivePolicy" in values:
        fields["dead_letters"], fields["max_receive_count"] = values["RedrivePolicy"]
    changed = replace(
        options, kept={name: value for name, value in kept.items() if value}, **fields
    )
    if kept.get("FifoThroughputLimit") == "perMessageGroupId" and not changed.deduplicates_by_group:
        text = (
            "The perMessageGroupId value is allowed only when the value for DeduplicationScope is "
            "messageGroup"
        )
        raise queue_errors.wrong_attribute("FifoThroughputLimit", text)
    return changed


def difference(options: QueueOptions, values: Mapping[str, Any]) -> str | None:
    """Return the name of an attribute whose value differs from the queue's, or None."""
    for name, value in values.items():
        if name in FIELDS:
            has = getattr(options, FIELDS[name])
        elif name in KEPT:
            has = options.kept.get(name, _DEFAULTS.get(name, ""))
        elif name == "RedrivePolicy":
            has = options.dead_letters, options.max_receive_count
        else:
            has = value
        if has != value:
            return name
    return None
