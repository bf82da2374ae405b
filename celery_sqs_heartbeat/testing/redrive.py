"""The redrive policies: where a queue's dead letters go, and which queues it accepts them from.

The rules come from the SQS API reference, CreateQueue. The errors are AWS's answers to
LocalStack's test suite, or from public reports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from celery_sqs_heartbeat.testing import errors, queue_errors
from celery_sqs_heartbeat.testing.json_maps import read_map
from celery_sqs_heartbeat.testing.queue import SimulatedQueue

#: The dead-letter queue and the maxReceiveCount; both None for a queue without them.
Redrive = tuple[SimulatedQueue | None, int | None]

_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:[0-9]{12}")
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")
_MOST_SOURCES = 10


def read_redrive(policy: str, queues: Mapping[str, SimulatedQueue], *, is_fifo: bool) -> Redrive:
    """Return the content of a RedrivePolicy; an empty one unsets it.

    Raises:
        SqsError: It is not a JSON object, or the dead-letter queue does not exist.
    """
    name = "RedrivePolicy"
    if not policy:
        return None, None
    read = read_map(policy)
    if read is None:
        raise queue_errors.wrong_attribute(name, "Redrive policy is not a valid JSON map")
    for mandatory in ("maxReceiveCount", "deadLetterTargetArn"):
        if read.get(mandatory) is None:
            text = f"Redrive policy does not contain mandatory attribute: {mandatory}"
            raise errors.out_of_range(name, policy, text)
    # AWS also accepts the count as a string, and shows the number.
    count = str(read["maxReceiveCount"])
    if not re.fullmatch(r"[0-9]{1,4}", count) or not 1 <= int(count) <= 1_000:
        text = (
            f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both "
            "inclusive"
        )
        raise errors.out_of_range(name, policy, text)
    prefix, _, target_name = str(read["deadLetterTargetArn"]).rpartition(":")
    target = queues.get(target_name)
    if target is None or not _ARN.fullmatch(prefix):
        raise errors.out_of_range(name, policy, "Dead letter target does not exist")
    if target.is_fifo is not is_fifo:
        text = "Dead-letter queue must be same type of queue as the source"
        raise errors.out_of_range(name, policy, text)
    return target, int(count)


def show_redrive(target_arn: str, count: int) -> str:
    """Return the RedrivePolicy as SQS shows it."""
    return json.dumps({"deadLetterTargetArn": target_arn, "maxReceiveCount": count})


def check_allow_policy(name: str, policy: str) -> str:
    """Return a RedriveAllowPolicy that SQS accepts; an empty one unsets it.

    Raises:
        SqsError: It is not a JSON object, or has another form.
    """
    if not policy:
        return policy
    read = read_map(policy)
    permission: Any = None if read is None else read.get("redrivePermission", "allowAll")
    sources: Any = None if read is None else read.get("sourceQueueArns", [])
    if permission not in _PERMISSIONS or not isinstance(sources, list):
        text = "Amazon SQS can't create the redrive allow policy, as it's in an unsupported format"
        raise queue_errors.wrong_attribute(name, text)
    for is_wrong, text in (
        (
            sources and permission != "byQueue",
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue",
        ),
        (
            not sources and permission == "byQueue",
            "When you specify the byQueue permission type, you must also specify one or more "
            "sourceQueueArns values",
        ),
        (
            len(sources) > _MOST_SOURCES,
            f"The maximum number of source queue ARNs you can specify is {_MOST_SOURCES}",
        ),
    ):
        if is_wrong:
            reason = f"Amazon SQS can't create the redrive allow policy. {text}"
            raise errors.out_of_range(name, policy, reason)
    return policy
