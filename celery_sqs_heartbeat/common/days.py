"""Ranges of UTC days."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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


def _moved(day: datetime.date | None, by: int) -> datetime.date | None:
    try:
        return day and day + by * _ONE_DAY
    except OverflowError:
        return None


def stretches(days: Iterable[datetime.date]) -> list[Days]:
    """Return the days as ranges without gaps, the earliest first."""
    found: list[Days] = []
    for day in sorted(set(days)):
        if found and day - found[-1].last == _ONE_DAY:
            found[-1] = Days(found[-1].first, day)
        else:
            found.append(Days.of(day))
    return found
