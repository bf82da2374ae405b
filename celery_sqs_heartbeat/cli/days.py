"""The days of a journal, as commands are told them."""

from __future__ import annotations

import datetime

import click


def _day(
    context: click.Context, parameter: click.Parameter, value: datetime.datetime | None
) -> datetime.date | None:
    del context, parameter
    return None if value is None else value.date()


_DAY = click.DateTime(["%Y-%m-%d"])
_METAVAR = "YYYY-MM-DD"
from_option = click.option(
    "--from",
    "first",
    type=_DAY,
    callback=_day,
    metavar=_METAVAR,
    help="First day of the journal, in UTC; without it, the journal's first.",
)
to_option = click.option(
    "--to",
    "last",
    type=_DAY,
    callback=_day,
    metavar=_METAVAR,
    help="Last day of the journal; without it, the journal's last.",
)


def check_days(first: datetime.date | None, last: datetime.date | None) -> None:
    """Refuse days in the wrong order.

    Raises:
        click.UsageError: The first is after the last.
    """
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--from {first} is after --to {last}: give the earlier day first")
