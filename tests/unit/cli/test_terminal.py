"""The layout of the commands' output, with rich and without, at any width."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence

import click
import pytest

from celery_sqs_heartbeat.cli.terminal import watching
from celery_sqs_heartbeat.cli.terminal.output import laid_out, show
from celery_sqs_heartbeat.cli.terminal.shapes import (
    Block,
    Explanation,
    Explanations,
    Lines,
    Style,
    Styled,
    Table,
)

EVIL = "a\x1b[31m\nb"
NAMES = ("orders-of-the-far-north", "shop.forwarding.send_confirmation")
NUMBERS = ("12,345", "7", "1,234 s")
TABLE = Table(
    columns=("Queue", "Task", "Leases", "Not well", "Oldest"),
    rows=[[Styled(text) for text in (*NAMES, *NUMBERS)]],
    numbers=3,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=["rich", "plain"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "rich", None)
    return str(request.param)


def lines_of(block: Block, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that a terminal of this width shows."""
    monkeypatch.setenv("COLUMNS", str(width))
    return [click.unstyle(line) for line in laid_out([block], file=Terminal())]


@pytest.mark.parametrize("width", [200, 80, 60, 50, 40, 30])
def test_a_table_fits_the_terminal_and_loses_no_character(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_of(TABLE, width, monkeypatch)
    assert all(len(line) <= width for line in lines)
    shown = "".join(line.replace(" ", "") for line in lines)
    # Folded names stand below each other, and every character is shown.
    for name in NAMES:
        assert not set(name) - set(shown)
    for number in NUMBERS:
        assert any(re.search(rf"(^|\s){number}(\s|$)", line) for line in lines), number


@pytest.mark.parametrize("width", [60, 50])
def test_a_name_is_folded_rather_than_cut(
    width: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "".join(reversed(NAMES))
    row = [Styled(name), Styled("7"), Styled("1 s")]
    table = Table(columns=("Task", "Leases", "Oldest"), rows=[row], numbers=2)
    lines = lines_of(table, width, monkeypatch)
    begin = next(number for number, line in enumerate(lines) if line.startswith("shop."))
    assert len(lines) > begin + 1
    pieces = [line.split()[0] for line in lines[begin:] if line.strip()]
    assert "".join(pieces) == name


def test_unreadable_rows_are_shown_as_records(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line.rstrip() for line in lines_of(TABLE, 35, monkeypatch)]
    assert lines == [
        "Queue     orders-of-the-far-north",
        "Task      shop.forwarding.send_conf",
        "          irmation",
        "Leases    12,345",
        "Not well  7",
        "Oldest    1,234 s",
    ]


def test_rows_in_a_file_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    head, row = laid_out([TABLE], file=io.StringIO())
    assert click.unstyle(head).split() == ["Queue", "Task", "Leases", "Not", "well", "Oldest"]
    assert row.split() == [*NAMES, "12,345", "7", "1,234", "s"]


@pytest.mark.parametrize("width", [100, 30])
def test_control_characters_do_not_reach_the_terminal(
    width: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained = Explanation(
        label=Styled("ERROR"), head=EVIL, items=[EVIL], details=[("Why", EVIL)], reference="X"
    )
    for block in (
        Table(columns=("Task", "Leases"), rows=[[Styled(EVIL), Styled("1")]], numbers=1),
        Explanations(heading="What", reference="Id", parts=[explained]),
        Lines([Styled(EVIL)]),
    ):
        lines = lines_of(block, width, monkeypatch)
        assert all(line.isprintable() for line in lines)
        assert r"\x1b[31m" in "".join(lines)


def test_an_empty_line_is_between_blocks(layout: str) -> None:
    blocks = [Lines([Styled("a"), Styled("b")]), Lines([Styled("c")])]
    assert laid_out(blocks, file=Terminal()) == ["a", "b", "", "c"]


@pytest.mark.parametrize("color", [False, None])
def test_colors_can_be_turned_off(
    color: bool | None, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    file = Terminal()
    show([Lines([Styled("bad", Style(color="red", bold=True))])], color=color, file=file)
    assert click.unstyle(file.getvalue()) == "bad\n"
    assert ("\x1b[" in file.getvalue()) is (color is None)


def drawn(
    monkeypatch: pytest.MonkeyPatch, lines: Sequence[Styled], *, color: bool | None = None
) -> str:
    """Return one drawing of a watch on a terminal of 20 columns and 4 lines."""

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    screen = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(watching.sys, "stdout", screen)
        patched.setattr(watching.time, "sleep", interrupt)
        patched.setattr(watching.click, "clear", lambda: None)
        patched.setenv("COLUMNS", "20")
        patched.setenv("LINES", "4")
        watching.watch(lambda: [Lines(lines)], 1.0, color=color)
    return screen.getvalue()


def test_a_line_as_wide_as_the_terminal_is_drawn_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Erasing the rest of this line would erase its last character, where the cursor still is."""
    assert drawn(monkeypatch, [Styled("x" * 20)]) == f"\x1b[H\x1b[2K{'x' * 20}\n\x1b[J"


def test_a_watch_says_how_many_lines_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Styled(str(number), Style(color="red")) for number in range(9)]
    shown = drawn(monkeypatch, lines, color=False)
    assert click.unstyle(shown).splitlines() == [
        "0",
        "1",
        "7 more lines: make the window taller to see them",
    ]
    assert "\x1b[31m" not in shown
