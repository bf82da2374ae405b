"""Ranges of UTC days, and the options `--from` and `--to` that choose one."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click

_FORMAT, _WRITTEN = "%Y-%m-%d", "YYYY-MM-DD"
_ONE_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Days:
    """The days from the first to the last, both included."""

    first: datetime.date
    last: datetime.date

    @classmethod
    def of(cls, day: datetime.date) -> Days:
        """Return a range of one day."""
        return cls(day, day)

    def grown(self, before: int = 0, after: int = 0) -> Days:
        """Return the range, extended by `before` and `after` days."""
        return Days(self.first - before * _ONE_DAY, self.last + after * _ONE_DAY)

    def __iter__(self) -> Iterator[datetime.date]:
        for offset in range((self.last - self.first).days + 1):
            yield self.first + datetime.timedelta(days=offset)


@dataclass(frozen=True, slots=True)
class Span:
    """The days that the user chose. None means no limit on that side."""

    first: datetime.date | None = None
    last: datetime.date | None = None

    def __contains__(self, day: datetime.date) -> bool:
        after = self.first is None or self.first <= day
        return after and (self.last is None or day <= self.last)

    def grown(self, by: int) -> Span:
        """Return the span, extended by this many days on either side."""
        return Span(_moved(self.first, -by), _moved(self.last, by))

    def __str__(self) -> str:
        if self.first == self.last and self.first is not None:
            return f"of {self.first}"
        begin = "" if self.first is None else f"from {self.first}"
        if self.last is None:
            return begin
        return f"{begin} to {self.last}" if begin else f"up to {self.last}"


def stretches(days: Iterable[datetime.date]) -> list[Days]:
    """Return the days as ranges without gaps, the earliest first."""
    found: list[Days] = []
    for day in sorted(set(days)):
        if found and day - found[-1].last == _ONE_DAY:
            found[-1] = Days(found[-1].first, day)
        else:
            found.append(Days.of(day))
    return found


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


def _moved(day: datetime.date | None, by: int) -> datetime.date | None:
    try:
        return day and day + by * _ONE_DAY
    except OverflowError:
        return None
