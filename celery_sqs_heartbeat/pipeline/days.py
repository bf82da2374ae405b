"""Ranges of UTC days."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from celery_sqs_heartbeat.pipeline.errors import PipelineError

_ONE_DAY = datetime.timedelta(days=1)
#: A file in the folder of a day: below a table, or in a worker's folder of a journal.
_FILE = re.compile(r"/dt=(\d{4}-\d\d-\d\d)/(?:worker=[^/]*/)?[^/]*$")


@dataclass(frozen=True, slots=True)
class Days:
    """The days from the first to the last, both included."""

    first: datetime.date
    last: datetime.date

    @classmethod
    def of(cls, day: datetime.date) -> Days:
        """Return that one day."""
        return cls(day, day)

    def grown(self, before: int = 0, after: int = 0) -> Days:
        """Return them with so many days more on either side."""
        return Days(self.first - before * _ONE_DAY, self.last + after * _ONE_DAY)

    def __iter__(self) -> Iterator[datetime.date]:
        for offset in range((self.last - self.first).days + 1):
            yield self.first + datetime.timedelta(days=offset)


@dataclass(frozen=True, slots=True)
class Span:
    """The days that a command was asked for. None stands for no limit on that side."""

    first: datetime.date | None = None
    last: datetime.date | None = None

    def __contains__(self, day: datetime.date) -> bool:
        after = self.first is None or self.first <= day
        return after and (self.last is None or day <= self.last)

    def grown(self, by: int) -> Span:
        """Return it with so many days more on either side."""
        return Span(_moved(self.first, -by), _moved(self.last, by))

    def __str__(self) -> str:
        if self.first == self.last and self.first is not None:
            return f"of {self.first}"
        begin = "" if self.first is None else f"from {self.first}"
        if self.last is None:
            return begin
        return f"{begin} to {self.last}" if begin else f"up to {self.last}"


def _moved(day: datetime.date | None, by: int) -> datetime.date | None:
    try:
        return day and day + by * _ONE_DAY
    except OverflowError:
        return None


def day_of_file(path: str) -> datetime.date | None:
    """Return the day whose folder a file is in; None where it is in none.

    Raises:
        PipelineError: The folder's name is no day of the calendar.
    """
    match = _FILE.search(path)
    if match is None:
        return None
    try:
        return datetime.date.fromisoformat(match[1])
    except ValueError:
        raise no_day(path, match[1]) from None


def no_day(path: str, day: str) -> PipelineError:
    """Return the error about a path in or below which there is a folder of no day."""
    return PipelineError(f"{path!r} has a folder dt={day}, which is no day: move it away")


def stretches(days: Iterable[datetime.date]) -> list[Days]:
    """Return the ranges without a gap that the days make up, the earliest first."""
    found: list[Days] = []
    for day in sorted(set(days)):
        if found and day - found[-1].last == _ONE_DAY:
            found[-1] = Days(found[-1].first, day)
        else:
            found.append(Days.of(day))
    return found
