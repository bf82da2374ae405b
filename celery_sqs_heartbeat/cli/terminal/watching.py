"""Draws blocks again and again on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence

import click

from celery_sqs_heartbeat.cli.terminal.output import laid_out
from celery_sqs_heartbeat.cli.terminal.shapes import Block

#: Escape sequences: go to the first line, erase a line, erase to the end of the screen. Each line
#: is erased only right before it is drawn, and all lines are written at once, because clearing
#: the whole screen first makes it flicker.
_HOME, _WHOLE_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[2K", "\x1b[J"


def watch(draw: Callable[[], Sequence[Block]], pause: float, *, color: bool | None = None) -> None:
    """Draw the blocks repeatedly until interrupted.

    Args:
        pause: Seconds between two drawings.
        color: The argument of `click.echo`.
    """
    is_terminal = sys.stdout.isatty()
    try:
        if is_terminal:
            click.clear()
        while True:
            lines = laid_out(draw(), file=sys.stdout)
            if is_terminal:
                _overwrite(_fitting(lines, shutil.get_terminal_size().lines), color)
            else:
                click.echo("\n".join([*lines, ""]), color=color)
            time.sleep(pause)
    except KeyboardInterrupt:
        return


def _fitting(lines: Sequence[str], height: int) -> Sequence[str]:
    """Return the lines, or as many as fit and a line with the count of the others."""
    # The cursor needs the line after the last one.
    room = max(2, height - 1)
    if len(lines) <= room:
        return lines
    shown = lines[: room - 1]
    return [*shown, f"{len(lines) - len(shown)} more lines: make the window taller to see them"]


def _overwrite(lines: Sequence[str], color: bool | None) -> None:
    shown = map(click.unstyle, lines) if color is False else lines
    # Erase a line before drawing it. Erasing after a line that fills the terminal's width would
    # erase its last character.
    frame = "".join(f"{_WHOLE_LINE}{line}\n" for line in shown)
    click.echo(f"{_HOME}{frame}{_REST_OF_SCREEN}", nl=False, color=True)
