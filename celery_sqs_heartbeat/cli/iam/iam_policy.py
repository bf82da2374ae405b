"""The smallest IAM policy for a worker, or for a program that only sends tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from celery_sqs_heartbeat.settings.address import Destination, parse_target

#: The calls that kombu and the keeper make on a queue.
CONSUME = (
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
    "sqs:SendMessage",
)
#: kombu reads the queue's size when it declares it, before the first send.
SEND = ("sqs:SendMessage", "sqs:GetQueueAttributes")

_REGION = re.compile(r"\b[a-z]{2,4}(?:-[a-z]+)+-\d\b")
_ACCOUNT = re.compile(r"\d{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """The parts of a queue's ARN. None means that a part is unknown."""

    name: str
    region: str | None = None
    account: str | None = None

    @property
    def arn(self) -> str:
        """The queue's ARN. All parts must be known."""
        return f"arn:{partition(self.region or '')}:sqs:{self.region}:{self.account}:{self.name}"

    @classmethod
    def of_arn(cls, arn: str) -> QueuePlace:
        """Read a queue's ARN."""
        *_, region, account, name = arn.split(":")
        return cls(name=name, region=region, account=account)

    @classmethod
    def of_url(cls, url: str) -> QueuePlace:
        """Read the parts that a queue's URL contains, if AWS made it."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        *path, name = parts.path.strip("/").split("/")
        region = _REGION.search(host)
        known = region.group() if region else None
        if host == "queue.amazonaws.com":
            known = "us-east-1"
        account = path[-1] if path and _ACCOUNT.fullmatch(path[-1]) else None
        return cls(name=name, region=known, account=account)


def partition(region: str) -> str:
    """Return the AWS partition that a region is in."""
    for prefix, name in (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov")):
        if region.startswith(prefix):
            return name
    return "aws"


def policy(
    places: Sequence[QueuePlace],
    *,
    is_producer: bool,
    is_predefined: bool,
    keys: Mapping[str, QueuePlace] | None = None,
    journal: str | None = None,
) -> dict[str, Any]:
    """Return an IAM policy for these queues.

    Args:
        is_producer: Return the policy for programs that only send.
        is_predefined: The queues are predefined, so kombu neither lists nor creates queues.
        keys: A queue for each KMS key that queues are encrypted with.
        journal: The setting `sqs_heartbeat_journal`. Only workers write to it.
    """
    arns = sorted({place.arn for place in places})
    statements = [
        _allow("Send" if is_producer else "Consume", SEND if is_producer else CONSUME, arns)
    ]
    if not is_predefined:
        statements.append(_allow("Create", ["sqs:CreateQueue"], arns))
        # AWS can't restrict ListQueues to some queues.
        statements.append(_allow("Find", ["sqs:ListQueues"], ["*"]))
    target = None if journal is None or is_producer else parse_target(journal)
    if isinstance(target, Destination):
        statements.append(_allow("Journal", ["s3:PutObject"], [_objects(target, places[0])]))
    actions = ["kms:GenerateDataKey", "kms:Decrypt"]
    for number, (key, place) in enumerate(sorted((keys or {}).items()), 1):
        statements.append({**_allow(f"Key{number}", actions, [_key_arn(key, place)]), **_of(key)})
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(sid: str, actions: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": list(actions),
        "Resource": resources[0] if len(resources) == 1 else list(resources),
    }


def _objects(target: Destination, place: QueuePlace) -> str:
    """Return the ARN of all segments of a journal. A bucket is in the partition of the queues."""
    key = "/".join(filter(None, (target.prefix, "*")))
    return f"arn:{partition(place.region or '')}:s3:::{target.bucket}/{key}"


def _alias(key: str) -> str | None:
    name = key.rsplit(":", 1)[-1]
    return name if name.startswith("alias/") else None


def _key_arn(key: str, place: QueuePlace) -> str:
    """Return the ARN of a key, or of all keys if only an alias is known (see `_of`)."""
    if key.startswith("arn:") and not _alias(key):
        return key
    region, account = place.region or "", place.account
    identity = "*" if _alias(key) else key
    return f"arn:{partition(region)}:kms:{region}:{account}:key/{identity}"


def _of(key: str) -> dict[str, Any]:
    """Return the condition that a key has the alias (AWS KMS guide)."""
    alias = _alias(key)
    if alias is None:
        return {}
    return {"Condition": {"ForAnyValue:StringEquals": {"kms:ResourceAliases": alias}}}
