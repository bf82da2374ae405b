"""Lays out a table as lines of plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from celery_sqs_heartbeat.common.escaping import escaped

_GAP = "  "
#: A column of text is not made narrower than this.
_LEAST = 10


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A text in a table, with what `click.style` takes."""

    text: str
    style: Mapping[str, Any] = field(default_factory=dict)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, numbers: int, width: int | None
) -> list[str]:
    """Return the lines of a table. The last `numbers` columns are aligned to the right.

    Args:
        width: Names are shortened where lines would be longer; None for no limit.
    """
    head = [Cell(text=column, style={"bold": True}) for column in columns]
    cells = [head, *[[_safe(cell) for cell in row] for row in rows]]
    widths = [max(len(row[place].text) for row in cells) for place in range(len(columns))]
    names = len(columns) - numbers
    if width is not None:
        _shrink(widths, names, width - len(_GAP) * (len(columns) - 1))
    return [_line(row, widths, names) for row in cells]


def _safe(cell: Cell) -> Cell:
    return Cell(text=escaped(cell.text), style=cell.style)


def _shrink(widths: list[int], names: int, room: int) -> None:
    """Make the widest columns of names narrower, until all fit or none can be made so."""
    while sum(widths) > room:
        widest = max(range(names), key=lambda place: widths[place])
        if widths[widest] <= _LEAST:
            return
        widths[widest] -= 1


def _line(row: Sequence[Cell], widths: Sequence[int], names: int) -> str:
    parts = []
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        # The end of a task's name says more than its modules.
        text = cell.text if len(cell.text) <= width else f"…{cell.text[1 - width :]}"
        text = text.ljust(width) if place < names else text.rjust(width)
        parts.append(click.style(text, **cell.style) if cell.style else text)
    return _GAP.join(parts).rstrip()
