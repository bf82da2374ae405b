"""The command `status`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from json import dumps

import click

from celery_sqs_heartbeat.exits import FOUND, Refusal, epilog

DEFAULT_URL = "http://127.0.0.1:9808"
#: Between two looks, in seconds.
WATCH_SECONDS = 1.0


@click.command(epilog=epilog("status"))
@click.option(
    "--url",
    "urls",
    multiple=True,
    default=(DEFAULT_URL,),
    show_default=True,
    metavar="URL",
    help="A worker's status page.",
)
@click.option(
    "--token",
    envvar="SQS_HEARTBEAT_STATUS_TOKEN",
    show_envvar=True,
    help="The workers' sqs_heartbeat_status_token.",
)
@click.option("--watch", is_flag=True, help="Look again each second, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print what the pages say as a JSON list.")
@click.pass_context
def status(
    context: click.Context, urls: Sequence[str], token: str | None, watch: bool, as_json: bool
) -> None:
    """Show the leases of workers that have a status page (sqs_heartbeat_status)."""
    # Not at the top: every `celery` command imports this module.
    from celery_sqs_heartbeat.cli.pages import ask_all, check_url
    from celery_sqs_heartbeat.escaping import escaped

    for url in urls:
        if fault := check_url(url):
            raise click.BadParameter(fault, param_hint="--url")
    if watch and as_json:
        raise click.UsageError("--watch draws a table: leave out --json")
    if not as_json and find_spec("rich") is None:
        raise Refusal(
            "the table needs rich: pip install 'celery-sqs-heartbeat[cli]', or ask with --json"
        )
    if watch:
        from celery_sqs_heartbeat.cli.leasetable import watch_tables

        watch_tables(lambda: ask_all(urls, token), WATCH_SECONDS)
        return
    answers = ask_all(urls, token)
    has_answer = any(answer.payload for answer in answers)
    if as_json:
        click.echo(dumps([answer.as_plain() for answer in answers], indent=2))
    elif has_answer:
        from celery_sqs_heartbeat.cli.leasetable import print_tables

        print_tables(answers)
    if not has_answer:
        for answer in answers:
            click.echo(escaped(f"{answer.url}: {answer.fault}"), err=True)
        click.echo(
            "No worker answered. A worker has a status page when sqs_heartbeat_status is set; "
            "its log tells the address.",
            err=True,
        )
        context.exit(FOUND)
