"""The values that SQS accepts for the attributes of a queue.

The ranges come from the SQS API reference, CreateQueue. The errors are AWS's answers to
LocalStack's test suite.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from celery_sqs_heartbeat.testing.json_maps import read_map
from celery_sqs_heartbeat.testing.queue_errors import wrong_attribute
from celery_sqs_heartbeat.testing.redrive import check_allow_policy

#: Gets an attribute's name and its string; returns its value, or raises an SqsError.
Read = Callable[[str, str], Any]

#: Whole numbers: the field of `QueueOptions`, the least and the most.
NUMBERS = {
    "VisibilityTimeout": ("visibility_timeout", 0, 43_200),
    "DelaySeconds": ("delay", 0, 900),
    "MaximumMessageSize": ("largest_message", 1_024, 1_048_576),
    "MessageRetentionPeriod": ("retention", 60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": ("wait", 0, 20),
}
SCOPES = ("queue", "messageGroup")


def read_number(low: int, high: int) -> Read:
    """Return a function that reads whole numbers of a range."""

    def read(name: str, value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
            raise wrong_attribute(name)
        return int(value)

    return read


def _read_flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise wrong_attribute(name)
    return value.lower() == "true"


def _read_fifo(name: str, value: str) -> bool:
    if not _read_flag(name, value):
        raise wrong_attribute(name, "Modifying queue type is not supported")
    return True


def _read_scope(name: str, value: str) -> bool:
    if value not in SCOPES:
        raise wrong_attribute(name)
    return value == "messageGroup"


def _one_of(*values: str) -> Read:
    def read(name: str, value: str) -> str:
        if value not in values:
            raise wrong_attribute(name)
        return value

    return read


def _read_reuse_period(name: str, value: str) -> str:
    return str(read_number(60, 86_400)(name, value))


def _read_policy(name: str, value: str) -> str:
    if value and read_map(value) is None:
        raise wrong_attribute(name)
    return value


#: Each is a field of `QueueOptions`.
FIELDS = {
    **{name: field for name, (field, _, _) in NUMBERS.items()},
    "ContentBasedDeduplication": "content_based_deduplication",
    "DeduplicationScope": "deduplicates_by_group",
}
#: Accepted, kept and shown, without effect. An empty string unsets one.
KEPT: dict[str, Read] = {
    "FifoThroughputLimit": _one_of("perQueue", "perMessageGroupId"),
    "KmsDataKeyReusePeriodSeconds": _read_reuse_period,
    "KmsMasterKeyId": lambda name, value: value,
    "Policy": _read_policy,
    "RedriveAllowPolicy": check_allow_policy,
    "SqsManagedSseEnabled": _one_of("true", "false"),
}
#: All that can be set, except the RedrivePolicy, which also concerns other queues.
READERS: dict[str, Read] = {
    **{name: read_number(low, high) for name, (_, low, high) in NUMBERS.items()},
    **KEPT,
    "ContentBasedDeduplication": _read_flag,
    "DeduplicationScope": _read_scope,
    "FifoQueue": _read_fifo,
}
FIFO_ONLY = frozenset(
    ("FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
)
