"""Text, numbers and tables as HTML. Whatever comes from a journal goes through `text`."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NewType

from celery_sqs_heartbeat.pipeline import phrases

#: HTML that is safe to put into the page.
Html = NewType("Html", str)

_DASH = Html("&ndash;")
_MICROSECONDS = 1_000_000
#: Less is nothing to anybody.
_LEAST_DOLLARS = 0.0001
#: Of more columns a telephone shows each row as a list.
_NARROW = 5


def text(value: object) -> Html:
    """Return a value as HTML text that is also safe in a quoted attribute."""
    return _DASH if value is None else Html(escape(_printable(str(value))))


def join(parts: Iterable[str]) -> Html:
    """Return the parts, each HTML, as one."""
    return Html("".join(parts))


def number(value: float | None) -> Html:
    """Return a number for people: 1,234,567 or 0.012."""
    if value is None:
        return _DASH
    if value == int(value) or abs(value) >= 1000:
        return Html(f"{value:,.0f}")
    return Html(f"{value:,.3g}")


def dollars(value: float | None) -> Html:
    """Return an amount of money."""
    if value is None:
        return _DASH
    if 0 < value < _LEAST_DOLLARS:
        return Html(f"&lt; ${_LEAST_DOLLARS}")
    return Html(f"${value:,.2f}" if abs(value) >= 1 or not value else f"${value:.2g}")


def span(microseconds: float | None) -> Html:
    """Return a span of time with its unit."""
    if microseconds is None:
        return _DASH
    return Html(escape(phrases.span(microseconds)).replace("-", "&minus;"))


def at_most(middle_us: float | None) -> Html:
    """Return what a span of a histogram is at most, given the middle of its bin."""
    return _DASH if middle_us is None else Html(escape(phrases.at_most(middle_us)))


def moment(microseconds: float | None) -> Html:
    """Return a time in UTC, to the second."""
    if microseconds is None:
        return _DASH
    at = datetime.datetime.fromtimestamp(microseconds // _MICROSECONDS, datetime.timezone.utc)
    return Html(f"{at:%Y-%m-%d %H:%M:%S}")


def plural(count: int, noun: str, nouns: str = "") -> Html:
    """Return "1 message" or "2 messages"."""
    return Html(phrases.count(count, noun, nouns))


def table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: int = 0
) -> Html:
    """Return a table. Where it is too wide, it scrolls sideways, or is a list of its rows.

    Args:
        head: Names of the columns.
        rows: Of cells that are HTML.
        numbers: How many of the columns, the last ones, hold numbers.
    """
    left = len(head) - numbers
    classes = ["" if index < left else ' class="number"' for index in range(len(head))]
    cells = join(f'<th scope="col"{c}>{h}</th>' for c, h in zip(classes, head, strict=True))
    is_list = len(head) > _NARROW
    names = [f' data-name="{name}"' if is_list and name else "" for name in head]
    begins = [f"<td{c}{name}>" for c, name in zip(classes, names, strict=True)]
    body = join(
        "<tr>"
        + join(f"{begin}{cell}</td>" for begin, cell in zip(begins, row, strict=True))
        + "</tr>"
        for row in rows
    )
    begin_table = '<table class="listed">' if is_list else "<table>"
    return Html(
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}">'
        f"{begin_table}<caption>{caption}</caption>"
        f"<thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def folded(summary: str, inner: Html) -> Html:
    """Return what is shown when its summary is opened."""
    return Html(f"<details><summary>{summary}</summary>{inner}</details>")


def note(inner: str) -> Html:
    """Return a quiet paragraph."""
    return Html(f'<p class="quiet">{inner}</p>')


def _printable(value: str) -> str:
    # Control characters are not allowed in HTML, and lone surrogates can't be encoded.
    return "".join(
        char if (char >= " " or char == "\n") and not "\ud800" <= char <= "\udfff" else "\ufffd"
        for char in value
    )
