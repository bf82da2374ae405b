"""The command `iam`, and the smallest policy for a worker or a program that only sends tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from celery_sqs_heartbeat.cli.options import queues_option, split
from celery_sqs_heartbeat.common.exits import Command, Refusal

if TYPE_CHECKING:
    from celery_sqs_heartbeat.cli.broker import Broker
    from celery_sqs_heartbeat.cli.queues import QueueFacts
    from celery_sqs_heartbeat.settings.address import Destination

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
    from celery_sqs_heartbeat.cli.broker import Broker
    from celery_sqs_heartbeat.cli.queues import QueueInspector
    from celery_sqs_heartbeat.worker.settings import naming

    if account is not None and not re.fullmatch(r"\d{12}", account):
        raise click.BadParameter(f"{account!r} must be 12 digits", param_hint="--account")
    if region is not None and not re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d+", region):
        raise click.BadParameter(
            f"{region!r} must be a region's name, such as eu-west-1", param_hint="--region"
        )
    app = context.obj.app
    if is_made_up(app):
        raise Refusal("no Celery app was found: name it, as in celery -A proj sqs-heartbeat iam")
    facts = read_app(app)
    if facts.broker.fault is not None:
        raise Refusal(f"the broker can't be used: {naming(app)(facts.broker.fault)}")
    if not facts.broker.is_sqs:
        raise Refusal(
            f"the broker is not SQS: {facts.broker.transport}: set broker_url to an sqs:// URL"
        )
    if facts.queue_fault is not None:
        raise Refusal(naming(app)(facts.queue_fault))
    broker = Broker.of_app(app)
    inspector = QueueInspector(broker)
    try:
        asked = [inspector.look(name) for name in queue_names(app, split(queues))]
    except KeyError as error:
        raise click.BadParameter(
            f"{error.args[0]!r} is not among the app's queues: add it to task_queues"
        ) from None
    if not asked:
        raise Refusal("the app has no queue to consume from: set task_default_queue or task_queues")
    places = [_place(broker, queue, account, region) for queue in asked]
    pairs = zip(asked, places, strict=True)
    made = policy(
        places,
        is_producer=producer,
        is_predefined=facts.broker.is_predefined,
        keys={key: place for queue, place in pairs if (key := queue.encryption_key)},
        journal=facts.settings.journal,
    )
    click.echo(json.dumps(made, indent=2))


def _place(
    broker: Broker, queue: QueueFacts, account: str | None, region: str | None
) -> QueuePlace:
    """Return a queue's region, account and name.

    Raises:
        click.UsageError: The account is unknown, or SQS does not accept the name.
    """
    from celery_sqs_heartbeat.sqs.names import is_queue_name

    if arn := queue.attributes.get("QueueArn"):
        return QueuePlace.of_arn(arn)
    known = (
        QueuePlace.of_url(queue.url) if queue.url else QueuePlace(name=broker.sqs_name(queue.name))
    )
    place = QueuePlace(
        name=known.name,
        region=region or known.region or broker.config.region,
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
    from celery_sqs_heartbeat.settings.address import Destination, parse_target

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
