"""The command `iam`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from celery_sqs_heartbeat.cli.common import queues_option, split
from celery_sqs_heartbeat.exits import Command, Refusal

if TYPE_CHECKING:
    from celery_sqs_heartbeat.cli.facts import QueueFacts
    from celery_sqs_heartbeat.cli.policy import Place
    from celery_sqs_heartbeat.cli.reading import Broker


@click.command(cls=Command)
@queues_option
@click.option("--producer", is_flag=True, help="For those who only send tasks.")
@click.option("--account", metavar="ID", help="The AWS account, where SQS can't be asked.")
@click.option("--region", metavar="NAME", help="The AWS region, where SQS can't be asked.")
@click.pass_context
def iam(
    context: click.Context,
    queues: str | None,
    producer: bool,
    account: str | None,
    region: str | None,
) -> None:
    """Print the least IAM policy that a worker needs, as JSON.

    SQS is asked for the queues' ARNs; where it does not answer, they are made from the
    URLs in predefined_queues, or from the queues' names with --account and --region.
    """
    # Not at the top: every `celery` command imports this module.
    from celery_sqs_heartbeat.cli.asking import Asker
    from celery_sqs_heartbeat.cli.checks.queue import encryption_key
    from celery_sqs_heartbeat.cli.policy import policy
    from celery_sqs_heartbeat.cli.reading import Broker, queue_names, read_app

    app = context.obj.app
    facts = read_app(app)
    if facts.broken_broker or not facts.is_sqs:
        raise Refusal(f"the broker is not SQS: {facts.broken_broker or facts.transport}")
    broker = Broker.of_app(app)
    asker = Asker(broker)
    try:
        asked = [asker.look(name) for name in queue_names(app, split(queues))]
    except KeyError as error:
        raise click.BadParameter(f"{error.args[0]!r} is not among the app's queues") from None
    places = [_place(broker, queue, account, region) for queue in asked]
    keys = {
        key: place
        for queue, place in zip(asked, places, strict=True)
        if (key := encryption_key(queue))
    }
    made = policy(places, is_producer=producer, is_predefined=facts.is_predefined, keys=keys)
    click.echo(json.dumps(made, indent=2))


def _place(broker: Broker, queue: QueueFacts, account: str | None, region: str | None) -> Place:
    """Return where a queue is.

    Raises:
        click.UsageError: Not enough is known.
    """
    from celery_sqs_heartbeat.cli.policy import Place

    if arn := queue.attributes.get("QueueArn"):
        return Place.of_arn(arn)
    known = Place.of_url(queue.url) if queue.url else Place(name=broker.sqs_name(queue.name))
    place = Place(
        name=known.name,
        region=region or known.region or broker.config.region,
        account=account or known.account,
    )
    if place.account is None:
        raise click.UsageError(
            f"the account of queue {queue.name!r} is not known, and SQS did not tell "
            f"({queue.found.reason or queue.found.tried.value}): give it with --account"
        )
    return place
