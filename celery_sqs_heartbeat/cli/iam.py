"""The command `iam`, and the smallest policy for a worker or a program that only sends tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from celery_sqs_heartbeat.cli.doctor import queues_option, split
from celery_sqs_heartbeat.common.exits import Command, Refusal
from celery_sqs_heartbeat.settings.address import Destination, parse_target
from celery_sqs_heartbeat.sqs.names import is_queue_name

if TYPE_CHECKING:
    from celery_sqs_heartbeat.cli.queues import QueueFacts

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


@click.command(cls=Command)
@queues_option
@click.option("--producer", is_flag=True, help="The policy for programs that only send tasks.")
@click.option("--account", metavar="ID", help="The AWS account, used if SQS can't be called.")
@click.option("--region", metavar="NAME", help="The AWS region, used if SQS can't be called.")
@click.pass_context
def iam(
    context: click.Context,
    queues: str | None,
    producer: bool,
    account: str | None,
    region: str | None,
) -> None:
    """Print the smallest IAM policy that a worker needs, as JSON.

    The command reads the queues' ARNs from SQS. If SQS does not answer, it builds them from the
    URLs in predefined_queues, or from the queues' names with --account and --region.
    """
    # Imported here because every `celery` command imports this module.
    from celery_sqs_heartbeat.cli.app import is_made_up, queue_names, read_app
    from celery_sqs_heartbeat.cli.queues import QueueInspector
    from celery_sqs_heartbeat.worker.settings import naming

    if account is not None and not _ACCOUNT.fullmatch(account):
        raise click.BadParameter(f"{account!r} must be 12 digits", param_hint="--account")
    if region is not None and not re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d+", region):
        raise click.BadParameter(
            f"{region!r} must be a region's name, such as eu-west-1", param_hint="--region"
        )
    app = context.obj.app
    if is_made_up(app):
        raise Refusal("no Celery app was found: name it, as in celery -A proj sqs-heartbeat iam")
    facts = read_app(app)
    broker, rename = facts.broker, naming(app)
    if fault := broker.broken or "; ".join(broker.option_faults):
        raise Refusal(f"the broker can't be used: {rename(fault)}")
    if broker.sqs is None:
        raise Refusal(f"the broker is not SQS: {broker.transport}: set broker_url to an sqs:// URL")
    if facts.queue_fault is not None:
        raise Refusal(rename(facts.queue_fault))
    inspector = QueueInspector(broker.sqs)
    try:
        asked = [inspector.look(name) for name in queue_names(app, split(queues))]
    except KeyError as error:
        raise click.BadParameter(
            f"{error.args[0]!r} is not among the app's queues: add it to task_queues"
        ) from None
    if not asked:
        raise Refusal("the app has no queue to consume from: set task_default_queue or task_queues")
    regions = (region, broker.sqs.config.region)
    places = {queue.name: _place(queue, account, regions) for queue in asked}
    made = policy(
        list(places.values()),
        is_producer=producer,
        is_predefined=broker.is_predefined,
        keys={key: places[queue.name] for queue in asked if (key := queue.encryption_key)},
        journal=facts.settings.journal,
    )
    click.echo(json.dumps(made, indent=2))


def _place(
    queue: QueueFacts, account: str | None, regions: tuple[str | None, str | None]
) -> QueuePlace:
    """Return a queue's region, account and name.

    Args:
        regions: That of the option, and that of the app.

    Raises:
        click.UsageError: The account is unknown, or SQS does not accept the name.
    """
    if arn := queue.attributes.get("QueueArn"):
        return QueuePlace.of_arn(arn)
    name = queue.sqs_name or queue.name
    known = QueuePlace.of_url(queue.url) if queue.url else QueuePlace(name=name)
    place = replace(
        known,
        region=regions[0] or known.region or regions[1],
        account=account or known.account,
    )
    if not is_queue_name(place.name):
        raise click.UsageError(
            f"{place.name!r} can't be a queue's name on SQS: use 1 to 80 letters, digits, - and _, "
            "and .fifo at the end for a FIFO queue"
        )
    if place.account is None:
        raise click.UsageError(
            f"the account of queue {queue.name!r} is not known, and SQS did not return it "
            f"({queue.found.reason or queue.found.tried.value}): name it with --account"
        )
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """The parts of a queue's ARN. None means that a part is unknown."""

    name: str
    region: str | None = None
    account: str | None = None

    def arn(self, service: str, name: str) -> str:
        """Return the ARN of something beside the queue. All parts must be known."""
        return f"{self.partition}:{service}:{self.region}:{self.account}:{name}"

    @property
    def partition(self) -> str:
        """How ARNs in the queue's AWS partition begin."""
        region = self.region or ""
        if region.startswith("us-gov-"):
            return "arn:aws-us-gov"
        return "arn:aws-cn" if region.startswith("cn-") else "arn:aws"

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
        found = _REGION.search(host)
        region = "us-east-1" if host == "queue.amazonaws.com" else found and found.group()
        account = path[-1] if path and _ACCOUNT.fullmatch(path[-1]) else None
        return cls(name=name, region=region, account=account)


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
    arns = sorted({place.arn("sqs", place.name) for place in places})
    statements = [_allow("Send", SEND, *arns) if is_producer else _allow("Consume", CONSUME, *arns)]
    if not is_predefined:
        statements.append(_allow("Create", ["sqs:CreateQueue"], *arns))
        # AWS can't restrict ListQueues to some queues.
        statements.append(_allow("Find", ["sqs:ListQueues"], "*"))
    target = None if journal is None or is_producer else parse_target(journal)
    if isinstance(target, Destination):
        # A bucket is in the partition of the queues.
        objects = "/".join(filter(None, (target.bucket, target.prefix, "*")))
        arn = f"{places[0].partition}:s3:::{objects}"
        statements.append(_allow("Journal", ["s3:PutObject"], arn))
    for number, (key, place) in enumerate(sorted((keys or {}).items()), 1):
        statements.append(_of_key(f"Key{number}", key, place))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(sid: str, actions: Sequence[str], *resources: str) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": list(actions),
        "Resource": resources[0] if len(resources) == 1 else list(resources),
    }


def _of_key(sid: str, key: str, place: QueuePlace) -> dict[str, Any]:
    """Return a statement for a key; for all keys with an alias if only that is known."""
    actions = ["kms:GenerateDataKey", "kms:Decrypt"]
    alias = key.rsplit(":", 1)[-1]
    if alias.startswith("alias/"):
        # The condition that a key has the alias (AWS KMS guide).
        condition = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": alias}}
        return {**_allow(sid, actions, place.arn("kms", "key/*")), "Condition": condition}
    return _allow(sid, actions, key if key.startswith("arn:") else place.arn("kms", f"key/{key}"))
