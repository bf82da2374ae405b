"""Prints the commands' output: with rich on a terminal, else as plain text."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, TextIO

import click

from celery_sqs_heartbeat.cli.terminal.plain import plain_lines
from celery_sqs_heartbeat.cli.terminal.shapes import Block

#: The widest line for sentences, on any terminal: longer lines are hard to read.
MAX_TEXT_WIDTH = 100


def show(blocks: Sequence[Block], *, color: bool | None, file: Any = None) -> None:
    """Print blocks, separated by empty lines.

    Args:
        color: False for no colors; None lets the terminal decide.
        file: The file to print to; None for standard output.
    """
    file = file or sys.stdout
    click.echo("\n".join(laid_out(blocks, file=file)), file=file, color=color)


def laid_out(blocks: Sequence[Block], *, file: TextIO) -> list[str]:
    """Return the lines of blocks, in the layout that fits the file.

    The lines have colors, which `click.echo` removes if the file is not a terminal. Only plain
    text may have lines that are longer than a terminal is wide.
    """
    lines: list[str] = []
    for block in blocks:
        lines += [*([""] if lines else []), *_lines(block, file)]
    return lines


def _lines(block: Block, file: TextIO) -> list[str]:
    width = shutil.get_terminal_size().columns
    text_width = min(width, MAX_TEXT_WIDTH)
    is_terminal = file.isatty()
    if is_terminal and find_spec("rich"):
        from celery_sqs_heartbeat.cli.terminal.rich_layout import rich_lines

        return rich_lines(block, file=file, width=width, text_width=text_width)
    # In a file, rows are not folded, because scripts read them.
    return plain_lines(block, width=text_width, table_width=width if is_terminal else None)
