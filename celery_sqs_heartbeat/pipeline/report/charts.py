"""Pictures as inline SVG: stretched to the page's width, their text beside them in HTML.

So text keeps its size on a phone. Dots are lines without length and round ends, which the
stretching leaves round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celery_sqs_heartbeat.pipeline.report.markup import Html, join

#: The SVG's own units, of which its width and height are stretched freely.
SIZE = 1000.0


@dataclass(frozen=True, slots=True)
class Label:
    """Text at an axis; `at` is 0 to 1 of its length, from the left or from below."""

    at: float
    inner: Html


def plot(
    label: str, shapes: Sequence[Html], *, across: Sequence[Label], up: Sequence[Label]
) -> Html:
    """Return a picture with axes. `label` tells those who don't see it what it shows."""
    grid = join(
        f'<path class="grid" d="M0 {_y(each.at):.1f}H{SIZE:.0f}"/>' for each in up if each.at < 1
    )
    return Html(
        '<div class="plot"><div class="up" aria-hidden="true">'
        + join(f'<span style="bottom:{each.at:.2%}">{each.inner}</span>' for each in up)
        + f'</div><svg role="img" aria-label="{label}" viewBox="0 0 {SIZE:.0f} {SIZE:.0f}" '
        f'preserveAspectRatio="none">{grid}{join(shapes)}</svg>'
        '<div class="across" aria-hidden="true">'
        + join(_placed(each) for each in across)
        + "</div></div>"
    )


def bar(left: float, width: float, height: float, *, title: str, kind: str = "first") -> Html:
    """Return an upright bar; all sizes are 0 to 1."""
    return Html(
        f'<rect class="{kind}" x="{left * SIZE:.2f}" y="{_y(height):.2f}" '
        f'width="{width * SIZE:.2f}" height="{height * SIZE:.2f}"><title>{title}</title></rect>'
    )


def line(points: Sequence[tuple[float, float]], *, title: str, kind: str) -> Html:
    """Return a line through points, each 0 to 1 across and up."""
    path = "L".join(f"{x * SIZE:.1f} {_y(y):.1f}" for x, y in points)
    return Html(f'<path class="line {kind}" d="M{path}"><title>{title}</title></path>')


def area(points: Sequence[tuple[float, float]], *, title: str, kind: str) -> Html:
    """Return what is between a line and the bottom."""
    path = "L".join(f"{x * SIZE:.1f} {_y(y):.1f}" for x, y in points)
    begin, end = points[0][0] * SIZE, points[-1][0] * SIZE
    return Html(
        f'<path class="area {kind}" d="M{begin:.1f} {SIZE:.0f}L{path}L{end:.1f} {SIZE:.0f}Z">'
        f"<title>{title}</title></path>"
    )


def upright(at: float, *, title: str, kind: str) -> Html:
    """Return a line from the bottom to the top."""
    x = f"{at * SIZE:.1f}"
    return Html(f'<path class="line {kind}" d="M{x} 0V{SIZE:.0f}"><title>{title}</title></path>')


def dot(x: float, y: float, *, title: str, kind: str) -> Html:
    """Return a dot."""
    return Html(
        f'<path class="dot {kind}" d="M{x * SIZE:.1f} {_y(y):.1f}h0"><title>{title}</title></path>'
    )


def beam(share: float, *, label: str) -> Html:
    """Return a bar to lie in a table's cell; `share` is 0 to 1 of its width."""
    return Html(
        f'<svg class="beam" role="img" aria-label="{label}" viewBox="0 0 {SIZE:.0f} 10" '
        f'preserveAspectRatio="none"><title>{label}</title>'
        f'<rect class="first" width="{max(share * SIZE, 4):.1f}" height="10"/></svg>'
    )


def _y(up: float) -> float:
    return (1 - up) * SIZE


def _placed(label: Label) -> str:
    # The outermost ones stay inside of the picture.
    shift = "0" if label.at < 0.05 else "-100%" if label.at > 0.95 else "-50%"
    return f'<span style="left:{label.at:.2%};transform:translateX({shift})">{label.inner}</span>'
