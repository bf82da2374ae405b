"""Lays out what the commands print. A terminal and a file get the same text.

`click.echo` removes the colors if the output is not a terminal. Texts may contain names that
strangers chose, so control characters and the like are escaped.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

import click

from celery_sqs_heartbeat.common.escaping import escaped

#: The widest line for sentences, on any terminal: longer lines are hard to read.
MAX_TEXT_WIDTH = 100
#: Where the text of an explanation begins.
_INDENT = " " * 9
#: Escape sequences: go to the first line, and erase to the end of the screen.
_FIRST_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[J"


class Styled(NamedTuple):
    """A text of one line.

    Attributes:
        color: One of ANSI's eight color names, or "" for the terminal's own. Then it is bold, too.
    """

    text: str
    color: str | None = None

    def padded(self, width: int = 0, *, is_right: bool = False) -> str:
        """Return the text, escaped, with its color."""
        shown = escaped(self.text)
        shown = shown.rjust(width) if is_right else shown.ljust(width)
        return shown if self.color is None else click.style(shown, fg=self.color or None, bold=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[Styled]], *, numbers: int) -> list[str]:
    """Return the rows below the names of their columns; the last `numbers` columns are numbers."""
    cells = [[Styled(column, "") for column in columns], *rows]
    widths = [
        max(len(escaped(cell.text)) for cell in column) for column in zip(*cells, strict=True)
    ]
    names = len(columns) - numbers
    return [
        "  ".join(
            cell.padded(width, is_right=place >= names)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def explanation(
    label: Styled, head: str, items: Sequence[str], details: Mapping[str, str], reference: str
) -> list[str]:
    """Return the lines of a headline with details.

    Args:
        head: The headline, a sentence.
        items: The list below the headline, if any.
        details: More sentences, by their labels. With any, an empty line ends the explanation.
        reference: The id under which it is documented.
    """
    first, *rest = _wrapped(head)
    lines = [f"{label.padded(8)} {first.lstrip()}", *rest]
    for item in items:
        lines += _wrapped(item, "- ")
    for name, text in details.items():
        lines += _wrapped(text, f"{name}: ") if text else []
    return (
        [*lines, _INDENT + click.style(reference, dim=True), ""] if any(details.values()) else lines
    )


def _wrapped(text: str, start: str = "") -> list[str]:
    """Return the wrapped lines of a text after its start. Words, such as settings, stay whole."""
    return textwrap.wrap(
        escaped(" ".join(text.split())),
        min(shutil.get_terminal_size().columns, MAX_TEXT_WIDTH),
        initial_indent=_INDENT + start,
        subsequent_indent=_INDENT + " " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def watch(draw: Callable[[], Sequence[str]], pause: float, *, color: bool | None = None) -> None:
    """Draw lines again and again until interrupted.

    Args:
        pause: Seconds between two drawings.
        color: The argument of `click.echo`.
    """
    is_terminal = sys.stdout.isatty()
    try:
        while True:
            lines = draw()
            if is_terminal:
                # click writes it together with the lines: erasing separately makes them flicker.
                sys.stdout.write(_FIRST_LINE + _REST_OF_SCREEN)
                lines = list(_fitting(lines))
            click.echo("\n".join([*lines, ""]), color=color)
            time.sleep(pause)
    except KeyboardInterrupt:
        return


def _fitting(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, or as many as fit on the terminal and a line with the rest's count."""
    width, height = shutil.get_terminal_size()
    # The last two lines are for the count, or an empty line, and the cursor.
    left = height - 2
    for number, line in enumerate(lines):
        left -= max(1, ceil(len(click.unstyle(line)) / width))
        if left < 0:
            yield f"{len(lines) - number} more lines: make the window taller to see them"
            return
        yield line
