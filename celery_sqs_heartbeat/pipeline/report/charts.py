"""Drawings on the page, in the units of an SVG that is stretched to the page's width.

Their text is beside the SVG in HTML, so it keeps its size on a phone. Dots are lines of zero length
with round ends, which stay round when stretched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Width and height of the SVG in its own units. Both are stretched independently.
SIZE = 1000.0


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
class Bar:
    """A vertical bar, in the SVG's units."""

    left: str
    top: str
    width: str
    height: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stroke:
    """A line, an area or a dot.

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
        bars: Drawn first.
        strokes: Drawn in order, the last on top.
    """

    label: str
    across: Sequence[Label]
    up: Sequence[Label]
    bars: Sequence[Bar] = ()
    strokes: Sequence[Stroke] = ()

    @property
    def grid(self) -> Sequence[Label]:
        """Labels that have a line across the picture."""
        return [each for each in self.up if each.at < 1]


@dataclass(frozen=True, slots=True)
class Beam:
    """A horizontal bar in a table's cell; `share` is 0 to 1 of its width."""

    share: float
    label: str

    @property
    def width(self) -> str:
        """Its length, in the SVG's units: always long enough to be seen."""
        return f"{max(self.share * SIZE, 4):.1f}"


def bar(left: float, width: float, height: float, *, title: str) -> Bar:
    """Return a vertical bar; all sizes are 0 to 1."""
    return Bar(
        left=f"{left * SIZE:.2f}",
        top=f"{_y(height):.2f}",
        width=f"{width * SIZE:.2f}",
        height=f"{height * SIZE:.2f}",
        title=title,
    )


def line(points: Sequence[tuple[float, float]], *, title: str, kind: str) -> Stroke:
    """Return a line through points, each 0 to 1 across and up."""
    return Stroke(kind=f"line {kind}", path=f"M{_through(points)}", title=title)


def area(points: Sequence[tuple[float, float]], *, title: str, kind: str) -> Stroke:
    """Return the area between a line and the bottom."""
    begin, end = points[0][0] * SIZE, points[-1][0] * SIZE
    path = f"M{begin:.1f} {SIZE:.0f}L{_through(points)}L{end:.1f} {SIZE:.0f}Z"
    return Stroke(kind=f"area {kind}", path=path, title=title)


def upright(at: float, *, title: str, kind: str) -> Stroke:
    """Return a line from the bottom to the top."""
    return Stroke(kind=f"line {kind}", path=f"M{at * SIZE:.1f} 0V{SIZE:.0f}", title=title)


def dot(x: float, y: float, *, title: str, kind: str) -> Stroke:
    """Return a dot."""
    return Stroke(kind=f"dot {kind}", path=f"M{x * SIZE:.1f} {_y(y):.1f}h0", title=title)


def _through(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x * SIZE:.1f} {_y(y):.1f}" for x, y in points)


def _y(up: float) -> float:
    return (1 - up) * SIZE
