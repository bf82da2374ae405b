"""Draws lines again and again on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence

import click

#: To the first line; to a line's end; to the screen's. What was drawn before is overwritten, as a
#: screen that is cleared first flickers.
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def watch(draw: Callable[[], Sequence[str]], pause: float, *, color: bool | None = None) -> None:
    """Draw the lines again and again, with so many seconds between, until interrupted.

    Args:
        color: As for `click.echo`.
    """
    is_terminal = sys.stdout.isatty()
    try:
        if is_terminal:
            click.clear()
        while True:
            lines = draw()
            if is_terminal:
                _overwrite(_fitting(lines, shutil.get_terminal_size().lines), color)
            else:
                click.echo("\n".join([*lines, ""]), color=color)
            time.sleep(pause)
    except KeyboardInterrupt:
        return


def _fitting(lines: Sequence[str], height: int) -> Sequence[str]:
    """Return the lines, or as many as there is room for and how many are left out."""
    # The cursor is in the line after the last.
    room = max(2, height - 1)
    if len(lines) <= room:
        return lines
    shown = lines[: room - 1]
    return [*shown, f"{len(lines) - len(shown)} more lines: make the window higher to see them"]


def _overwrite(lines: Sequence[str], color: bool | None) -> None:
    click.echo(_HOME, nl=False, color=True)
    for line in lines:
        click.echo(line, nl=False, color=color)
        click.echo(_REST_OF_LINE, color=True)
    click.echo(_REST_OF_SCREEN, nl=False, color=True)
