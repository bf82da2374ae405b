"""Options and helpers that the pipeline's commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec

import click

from celery_sqs_heartbeat.common.exits import FOUND, Refusal

INSTALL = "pip install 'celery-sqs-heartbeat[pipeline]'"

SPARK, SAIL, AUTO = "spark", "sail", "auto"
engine_option = click.option(
    "--engine",
    type=click.Choice([AUTO, SPARK, SAIL]),
    default=AUTO,
    show_default=True,
    help="The engine to use. Sail is faster, for tables on one machine. By default, it is used if "
    "it is installed and can do the job.",
)

journal_option = click.option(
    "--journal",
    required=True,
    metavar="PATH",
    help="Folder or URL of the journal, as in sqs_heartbeat_journal.",
)
warehouse_option = click.option(
    "--warehouse", required=True, metavar="PATH", help="Folder or URL of the tables."
)
lookback_option = click.option(
    "--lookback",
    type=click.IntRange(1, 30),
    metavar="DAYS",
    default=4,
    show_default=True,
    help="1 to 30: how many days before and after to look for other receives of a message.",
)


def require_pyspark() -> None:
    """Refuse to continue without PySpark.

    Raises:
        Refusal: It is not installed.
    """
    _require("pyspark", "PySpark")


def require_jinja2() -> None:
    """Refuse to continue without Jinja2, which renders the report.

    Raises:
        Refusal: It is not installed.
    """
    _require("jinja2", "Jinja2")


def warn_of(unread: str) -> None:
    """Say on standard error what could not be read, and exit with `FOUND`; if it is something."""
    if unread:
        click.echo(f"Warning: {unread}.", err=True)
        click.get_current_context().exit(FOUND)


def progress_line() -> Callable[[str], None]:
    """Return a function that shows the progress in one line, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(what: str) -> None:
        click.echo(f"\r\x1b[K{what}" + (" …" if what else ""), err=True, nl=False)

    return show


def _require(module: str, title: str) -> None:
    if find_spec(module) is None:
        raise Refusal(f"this needs {title}: {INSTALL}")
