"""What the commands of the pipeline share."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from importlib.util import find_spec

import click

INSTALL = "pip install 'celery-sqs-heartbeat[pipeline]'"


def _day(
    context: click.Context, parameter: click.Parameter, value: datetime.datetime | None
) -> datetime.date | None:
    del context, parameter
    return None if value is None else value.date()


_DAY = click.DateTime(["%Y-%m-%d"])
from_option = click.option(
    "--from", "first", type=_DAY, callback=_day, help="First day of the journal, in UTC."
)
to_option = click.option("--to", "last", type=_DAY, callback=_day, help="Last day of the journal.")


def check_days(first: datetime.date | None, last: datetime.date | None) -> None:
    """Refuse days in the wrong order.

    Raises:
        click.UsageError: The first is after the last.
    """
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first} is after --to {last}: give the earlier day first")


def require_pyspark() -> None:
    """Refuse to go on without PySpark.

    Raises:
        click.ClickException: It is not installed.
    """
    if find_spec("pyspark") is None:
        raise click.ClickException(f"this needs PySpark: {INSTALL}")


def progress_line() -> Callable[[str], None]:
    """Return what shows where the work is: one line that changes, and nothing but on a terminal."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(what: str) -> None:
        click.echo(f"\r\x1b[K{what}" + (" …" if what else ""), err=True, nl=False)

    return show
