"""The command `iam`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from celery_sqs_heartbeat.cli.worker_options import queues_option, split
from celery_sqs_heartbeat.common.exits import Command, Refusal

if TYPE_CHECKING:
    from celery_sqs_heartbeat.cli.app.offline_broker import Broker
    from celery_sqs_heartbeat.cli.iam.iam_policy import QueuePlace
    from celery_sqs_heartbeat.cli.queues.queue_facts import QueueFacts


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
    from celery_sqs_heartbeat.cli.app.app_contents import is_made_up, queue_names
    from celery_sqs_heartbeat.cli.app.app_reader import read_app
    from celery_sqs_heartbeat.cli.app.offline_broker import Broker
    from celery_sqs_heartbeat.cli.iam.iam_policy import policy
    from celery_sqs_heartbeat.cli.queues.queue_inspector import QueueInspector
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
    if facts.broker_fault is not None:
        raise Refusal(f"the broker can't be used: {naming(app)(facts.broker_fault)}")
    if not facts.is_sqs:
        raise Refusal(f"the broker is not SQS: {facts.transport}: set broker_url to an sqs:// URL")
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
    keys = {
        key: place
        for queue, place in zip(asked, places, strict=True)
        if (key := queue.encryption_key)
    }
    made = policy(
        places,
        is_producer=producer,
        is_predefined=facts.is_predefined,
        keys=keys,
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
    from celery_sqs_heartbeat.cli.iam.iam_policy import QueuePlace
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
