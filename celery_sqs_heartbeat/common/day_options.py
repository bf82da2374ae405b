"""The options `--from` and `--to` of commands that read a journal's days."""

from __future__ import annotations

import datetime

import click

_FORMAT, _WRITTEN = "%Y-%m-%d", "YYYY-MM-DD"


def _day(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> datetime.date | None:
    if value is None:
        return None
    try:
        return datetime.datetime.strptime(value, _FORMAT).date()  # noqa: DTZ007
    except ValueError:
        fault = f"{value!r} is not a day of the calendar: write {_WRITTEN}"
        raise click.BadParameter(fault, context, parameter) from None


from_option = click.option(
    "--from",
    "first",
    callback=_day,
    metavar=_WRITTEN,
    help="First day to read, in UTC. Without it, the journal's first day.",
)
to_option = click.option(
    "--to",
    "last",
    callback=_day,
    metavar=_WRITTEN,
    help="Last day to read, in UTC. Without it, the journal's last day.",
)


def check_days(first: datetime.date | None, last: datetime.date | None) -> None:
    """Refuse days in the wrong order.

    Raises:
        click.UsageError: The first is after the last.
    """
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first} is after --to {last}: give the earlier day first")
