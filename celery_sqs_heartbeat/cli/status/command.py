"""The command `status`."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from typing import TYPE_CHECKING

import click

from celery_sqs_heartbeat.common.exits import DONE, FOUND, Command, Refusal, epilog

if TYPE_CHECKING:
    from celery_sqs_heartbeat.cli.status.page_answers import PageAnswer

#: The time between two requests, in seconds.
WATCH_SECONDS = 1.0


@click.command(cls=Command, epilog=epilog("status"))
@click.option(
    "--url",
    "urls",
    multiple=True,
    show_default="the app's sqs_heartbeat_status, else http://127.0.0.1:9808",
    metavar="URL",
    help="A worker's status page.",
)
@click.option(
    "--token",
    envvar="SQS_HEARTBEAT_STATUS_TOKEN",
    show_envvar=True,
    show_default="the app's sqs_heartbeat_status_token",
    help="The pages' token.",
)
@click.option("--watch", is_flag=True, help="Refresh every second, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print the pages' contents as a JSON list.")
@click.pass_context
def status(
    context: click.Context, urls: Sequence[str], token: str | None, watch: bool, as_json: bool
) -> None:
    """Show the leases and the health of workers with a status page (sqs_heartbeat_status)."""
    # Imported here because every `celery` command imports this module.
    from celery_sqs_heartbeat.cli.status.lease_tables import blocks_of
    from celery_sqs_heartbeat.cli.status.page_answers import ask_all, check_url
    from celery_sqs_heartbeat.cli.status.page_targets import targets, token_for
    from celery_sqs_heartbeat.cli.terminal.output import show
    from celery_sqs_heartbeat.cli.terminal.watching import watch as keep_drawing
    from celery_sqs_heartbeat.settings.address import token_fault

    for url in urls:
        if fault := check_url(url):
            raise click.BadParameter(fault, param_hint="--url")
    if token is not None and (fault := token_fault(token)):
        raise click.BadParameter(fault, param_hint="--token or SQS_HEARTBEAT_STATUS_TOKEN")
    if watch and as_json:
        raise click.UsageError("--watch draws tables: remove --watch or --json")
    pages = targets(context.obj.app, urls)
    token = token_for(context.obj.app, token)
    color = False if context.obj.no_color else None
    if watch:
        keep_drawing(lambda: blocks_of(ask_all(pages, token)), WATCH_SECONDS, color=color)
        return
    answers = ask_all(pages, token)
    if as_json:
        click.echo(dumps([answer.as_plain() for answer in answers], indent=2))
    if not any(answer.payload for answer in answers):
        raise Refusal("; ".join(f"{answer.target}: {answer.fault}" for answer in answers))
    if not as_json:
        show(blocks_of(answers), color=color)
    context.exit(exit_status(answers))


def exit_status(answers: Sequence[PageAnswer]) -> int:
    """Return 1 if a worker does not answer or is not healthy, or any lease is not well, else 0."""
    return DONE if all(answer.is_well for answer in answers) else FOUND
