"""Lays out the shapes as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import click

from celery_sqs_heartbeat.cli.terminal.shapes import (
    Block,
    Explanation,
    Explanations,
    Style,
    Styled,
    Table,
    sentence,
)

_GAP = "  "
#: The smallest width of a column of names.
_LEAST = 10
#: Where the text of an explanation begins.
_INDENT = " " * 9
_ITEM = "- "
_HEAD = Style(bold=True)
_REFERENCE = Style(dim=True)


def plain_lines(block: Block, *, width: int, table_width: int | None) -> list[str]:
    """Return a block's lines, with ANSI colors.

    Args:
        width: The width of wrapped sentences.
        table_width: The width of rows, to which names are folded; None for no limit.
    """
    if isinstance(block, Table):
        return _table(block, table_width)
    if isinstance(block, Explanations):
        lines = [line for part in block.parts for line in _explanation(part, width)]
        # The last explanation may end with an empty line, which separates explanations.
        return lines[:-1] if lines and not lines[-1] else lines
    return [_styled(line.shown, line.style) for line in block.lines]


def _styled(text: str, style: Style) -> str:
    if style == Style():
        return text
    return click.style(text, fg=style.color, bold=style.bold or None, dim=style.dim or None)


def _table(table: Table, width: int | None) -> list[str]:
    rows = [[Styled(column, _HEAD) for column in table.columns], *table.rows]
    widths = [max(len(cell.shown) for cell in column) for column in zip(*rows, strict=True)]
    names = len(widths) - table.numbers
    if width is not None:
        _narrow(widths, names, width - len(_GAP) * (len(widths) - 1))
    return [line for row in rows for line in _row(row, widths, names)]


def _narrow(widths: list[int], names: int, room: int) -> None:
    """Make the widest columns of names narrower, until all columns fit or none can shrink."""
    while sum(widths) > room:
        widest = max(range(names), key=lambda place: widths[place])
        if widths[widest] <= _LEAST:
            return
        widths[widest] -= 1


def _row(row: Sequence[Styled], widths: Sequence[int], names: int) -> Iterator[str]:
    folded = [
        [cell.shown[start : start + width] for start in range(0, len(cell.shown), width)]
        for cell, width in zip(row, widths, strict=True)
    ]
    for pieces in zip_longest(*folded, fillvalue=""):
        parts = [
            piece.ljust(width) if place < names else piece.rjust(width)
            for place, (piece, width) in enumerate(zip(pieces, widths, strict=True))
        ]
        styled = (_styled(part, cell.style) for part, cell in zip(parts, row, strict=True))
        yield _GAP.join(styled).rstrip()


def _explanation(part: Explanation, width: int) -> Iterator[str]:
    head, *rest = _wrapped(part.head, width)
    label = part.label
    yield f"{_styled(f'{label.text:<8}', label.style)} {head.lstrip()}"
    yield from rest
    for item in part.items:
        yield from _wrapped(item, width, _ITEM)
    if part.details:
        for name, text in part.details:
            yield from _wrapped(text, width, f"{name}: ")
        yield _INDENT + _styled(part.reference, _REFERENCE)
        yield ""


def _wrapped(text: str, width: int, start: str = "") -> list[str]:
    """Return the wrapped lines of a text after its start. Words, such as settings, stay whole."""
    return textwrap.wrap(
        sentence(text),
        width,
        initial_indent=_INDENT + start,
        subsequent_indent=_INDENT + " " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
