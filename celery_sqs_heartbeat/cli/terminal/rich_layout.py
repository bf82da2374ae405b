"""Lays out the shapes with rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from celery_sqs_heartbeat.cli.terminal.shapes import (
    Block,
    Explanation,
    Explanations,
    Style,
    Styled,
    Table,
    sentence,
)

#: If a column of names gets less than this, rows are shown as records, which are easier to read.
_LEAST = 8
#: Wider than any table.
_UNLIMITED = 1 << 20


def rich_lines(block: Block, *, file: TextIO, width: int, text_width: int) -> list[str]:
    """Return a block's lines, with the terminal's colors.

    Args:
        file: The terminal.
        text_width: The width of wrapped sentences.
    """
    console = Console(file=file, width=width, highlight=False)
    with console.capture() as captured:
        for each in _renderables(block, console, text_width):
            console.print(each)
    return captured.get().rstrip("\n").split("\n")


def _renderables(block: Block, console: Console, text_width: int) -> Iterator[RenderableType]:
    if isinstance(block, Table):
        yield from _table(block, console)
    elif isinstance(block, Explanations):
        yield _explanations(block, text_width)
    else:
        yield from (_text(line) for line in block.lines)


def _table(table: Table, console: Console) -> Iterator[RenderableType]:
    """Return the rows at full width if they fit, else with folded names, else as records."""
    wide = _rows(table, gap=2)
    # rich never measures a table as wider than its options allow.
    unlimited = console.options.update_width(_UNLIMITED)
    if console.measure(wide, options=unlimited).maximum <= console.width:
        yield wide
        return
    names = len(table.columns) - table.numbers
    widths = [_least_width(table, place) for place in range(names, len(table.columns))]
    # There is one character between two columns.
    room = console.width - sum(widths) - (len(table.columns) - 1)
    if room >= names * _LEAST:
        yield _rows(table, gap=1, widths=widths)
    else:
        yield from _records(table)


def _rows(table: Table, *, gap: int, widths: Sequence[int] = ()) -> RichTable:
    made = _frame()
    # The box adds one character between two columns.
    made.padding = (0, gap - 1, 0, 0)
    names = len(table.columns) - table.numbers
    for place, column in enumerate(table.columns):
        if place < names:
            made.add_column(column, overflow="fold")
        else:
            width = widths[place - names] if widths else None
            made.add_column(column, overflow="fold", justify="right", width=width)
    for row in table.rows:
        made.add_row(*(_text(cell) for cell in row))
    return made


def _least_width(table: Table, place: int) -> int:
    """Return the smallest width at which a column of numbers folds no number and no word."""
    words = [*table.columns[place].split(), *(row[place].shown for row in table.rows)]
    return max(map(len, words))


def _records(table: Table) -> Iterator[RenderableType]:
    for number, row in enumerate(table.rows):
        if number:
            yield ""
        made = RichTable.grid(padding=(0, 2, 0, 0))
        made.add_column(no_wrap=True, style="bold")
        made.add_column(overflow="fold")
        for column, cell in zip(table.columns, row, strict=True):
            made.add_row(column, _text(cell))
        yield made


def _explanations(block: Explanations, width: int) -> RichTable:
    made = _frame()
    made.padding = (0, 1, 0, 0)
    made.width = width
    made.add_column("", no_wrap=True)
    made.add_column(block.heading, overflow="fold", ratio=1)
    made.add_column(block.reference, no_wrap=True, style="dim")
    for part in block.parts:
        made.add_row(_text(part.label), _explained(part), part.reference)
    return made


def _explained(part: Explanation) -> Text:
    head = "\n".join([sentence(part.head), *(f"- {sentence(item)}" for item in part.items)])
    if not part.details:
        return Text(head)
    text = Text(head, style="bold")
    for name, detail in part.details:
        text.append(f"\n{name}: ", style="not bold green")
        text.append(sentence(detail), style="not bold")
    return text.append("\n")


def _frame() -> RichTable:
    return RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _text(styled: Styled) -> Text:
    return Text(styled.shown, style=_style(styled.style))


def _style(style: Style) -> str:
    words = ("bold" * style.bold, "dim" * style.dim, style.color or "")
    return " ".join(filter(None, words))
