"""The parts of the benchmarks, and what each returns."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


class Size(enum.Enum):
    """How much a part measures."""

    #: About 80 seconds, so that all parts together take ten minutes.
    FULL = "full"
    #: As little as possible. It shows that the part works, and its figures mean nothing.
    TINY = "tiny"


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several measurements of one figure, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Return the spread of at least one measurement.

        Raises:
            ValueError: There are no measurements.
        """
        if not samples:
            raise ValueError("a figure needs at least one measurement")
        return cls(statistics.median(samples), min(samples), max(samples))

    def __str__(self) -> str:
        """Return it as `1.61 (1.58-1.70)`; the median alone if all are equal."""
        median, low, high = (digits(each) for each in (self.median, self.low, self.high))
        return median if low == high else f"{median} ({low}-{high})"


def digits(value: float) -> str:
    """Return a figure with three digits, without an exponent: `0.0123`, `1.61`, `1,240`."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    decimals = 2 if abs(value) >= 1 else 3
    return f"{value:.{decimals - 1}f}" if abs(value) >= 10 else f"{value:.{decimals}f}"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page. The first column names the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG picture of the page.

    Attributes:
        name: Its file's name, without `.svg`.
        alt: Describes it for people who can't see it.
        svg: Its content.
    """

    name: str
    alt: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a part has measured.

    Attributes:
        ratios: The measurements of each ratio, by its name; one for each round. Both sides of a
            ratio were measured in the same run. The baseline keeps these.
        notes: Paragraphs in Markdown, shown below the tables.
    """

    tables: Sequence[Table]
    ratios: Mapping[str, Sequence[float]]
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the benchmarks.

    Attributes:
        name: How `make bench` names it.
        title: Its heading on the page.
        about: What is compared with what, and how, in Markdown.
        measure: Measures it, and prints nothing unless it takes long.
    """

    name: str
    title: str
    about: str
    measure: Callable[[Size], Findings]
