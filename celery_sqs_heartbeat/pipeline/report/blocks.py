"""What a section of the page consists of: texts, figures, tables and plots, with text as content.

No block makes markup: everything from a journal stays text, and the template escapes it.

A plot's SVG is stretched to the page's width. Its text is beside it in HTML, so it keeps its size
on a phone. Dots are lines of zero length with round ends, which stay round when stretched.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from celery_sqs_heartbeat.pipeline import phrases

DASH = "\N{EN DASH}"
#: Width and height of an SVG in its own units. Both are stretched independently.
SIZE = 1000.0

#: How a column's cells are shown: as text, as code, in bold, as a beam, or as labels. The label
#: "recommended" is in bold.
Kind = Literal["text", "code", "strong", "beam", "labels"]
Row = Mapping[str, Any]
Point = tuple[float, float]

_MINUS = "\N{MINUS SIGN}"
_MICROSECONDS = 1_000_000
#: Smaller amounts are shown as less than this.
_LEAST_DOLLARS = 0.0001
#: With more columns, a phone shows each row as a list.
_NARROW = 4


def text(value: object) -> str:
    """Return a value as text; a dash for an unknown one."""
    return DASH if value is None else str(value)


def number(value: float | None) -> str:
    """Return a number for people: 1,234,567 or 0.012."""
    if value is None:
        return DASH
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def dollars(value: float | None) -> str:
    """Return an amount of money."""
    if value is None:
        return DASH
    if 0 < value < _LEAST_DOLLARS:
        return f"< ${_LEAST_DOLLARS}"
    return f"${value:,.2f}" if abs(value) >= 1 or not value else f"${value:.2g}"


def span(microseconds: float | None) -> str:
    """Return a duration with its unit."""
    return DASH if microseconds is None else phrases.span(microseconds).replace("-", _MINUS)


def moment(microseconds: float | None) -> str:
    """Return a time in UTC, to the second."""
    if microseconds is None:
        return DASH
    at = datetime.datetime.fromtimestamp(microseconds // _MICROSECONDS, datetime.timezone.utc)
    return f"{at:%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, which may begin in bold."""

    text: str
    lead: str = ""
    is_quiet: bool = True


@dataclass(frozen=True, slots=True)
class Heading:
    """The name of what follows, such as a queue."""

    heading: str


@dataclass(frozen=True, slots=True)
class Figures:
    """The most important numbers with their names."""

    figures: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Legend:
    """Pairs of a key's classes in the style sheet and its name."""

    keys: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Beam:
    """A horizontal bar in a table's cell; `share` is 0 to 1 of its width."""

    share: float
    label: str

    @property
    def width(self) -> str:
        """Its length, in the SVG's units: always long enough to be seen."""
        return f"{max(self.share * SIZE, 4):.1f}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, which may be empty, and how a row's cell is made from the row."""

    name: str
    cell: Callable[[Row], str | Beam | Sequence[str]]
    kind: Kind = "text"
    is_number: bool = False


def column(
    name: str, key: str = "", show: Callable[[Any], str] = text, kind: Kind = "text"
) -> Column:
    """Return a column of a field of the rows.

    Args:
        key: The field, if it is not named like the column.
        show: Returns a value as text. All but texts and times are numbers.
    """
    return Column(name, lambda row: show(row[key or name]), kind, show not in (text, moment))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows with their columns. If it is too wide, it scrolls sideways, or shows rows as lists.

    Attributes:
        summary: Its title if it is folded; else empty.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    summary: str = ""

    @property
    def is_list(self) -> bool:
        """Whether a phone shows each row as a list."""
        return len(self.columns) > _NARROW


@dataclass(frozen=True, slots=True)
class Label:
    """Text at an axis; `at` is 0 to 1 of its length, from the left or from the bottom."""

    at: float
    text: str

    @property
    def place(self) -> str:
        """Its position, in percent."""
        return f"{self.at:.2%}"

    @property
    def shift(self) -> str:
        """How far it is moved, in parts of its width. The outermost labels stay inside."""
        return "0" if self.at < 0.05 else "-100%" if self.at > 0.95 else "-50%"

    @property
    def up(self) -> str:
        """Its distance from the top, in the SVG's units."""
        return f"{_y(self.at):.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stroke:
    """A line, an area, a bar or a dot.

    Attributes:
        kind: Its classes in the style sheet.
        path: An SVG path.
    """

    kind: str
    path: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture with axes.

    Attributes:
        label: Describes the picture for people who can't see it.
        strokes: Drawn in order, the last on top.
    """

    label: str
    across: Sequence[Label]
    up: Sequence[Label]
    strokes: Sequence[Stroke]

    @property
    def grid(self) -> Sequence[Label]:
        """Labels that have a line across the picture."""
        return [each for each in self.up if each.at < 1]


Block = Text | Heading | Figures | Legend | Table | Plot


def bar(left: float, width: float, height: float, *, title: str) -> Stroke:
    """Return a vertical bar; all sizes are 0 to 1."""
    corners = [(left, 0.0), (left, height), (left + width, height), (left + width, 0.0)]
    return Stroke(kind="bar first", path=f"M{_through(corners)}Z", title=title)


def line(points: Sequence[Point], *, title: str, kind: str) -> Stroke:
    """Return a line through points, each 0 to 1 across and up."""
    return Stroke(kind=f"line {kind}", path=f"M{_through(points)}", title=title)


def area(points: Sequence[Point], *, title: str, kind: str) -> Stroke:
    """Return the area between a line and the bottom."""
    corners = [(points[0][0], 0.0), *points, (points[-1][0], 0.0)]
    return Stroke(kind=f"area {kind}", path=f"M{_through(corners)}Z", title=title)


def dot(x: float, y: float, *, title: str, kind: str) -> Stroke:
    """Return a dot."""
    return Stroke(kind=f"dot {kind}", path=f"M{_through([(x, y)])}h0", title=title)


def _through(points: Sequence[Point]) -> str:
    return "L".join(f"{x * SIZE:.1f} {_y(y):.1f}" for x, y in points)


def _y(up: float) -> float:
    return (1 - up) * SIZE
