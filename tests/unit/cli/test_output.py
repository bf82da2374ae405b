"""What the commands print: tables, a watch, and a disk that is full."""

from __future__ import annotations

import io
import runpy
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from celery import Celery

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.cli.status import WATCH_SECONDS, Styled, keep_drawing, table
from celery_sqs_heartbeat.common.exits import REFUSED, Command
from celery_sqs_heartbeat.testing import server
from tests.support.workers import ROOT

MAKE = runpy.run_path(str(ROOT / "docs" / "make_commands.py"))
COMMANDS: dict[str, click.Command] = {
    start: command for start, command in MAKE["commands"]().items() if "worker" not in start
}
QUEUE = {"celery": {"url": "http://127.0.0.1:1/000000000000/celery"}}


def test_rows_stay_whole_and_are_aligned_whatever_is_in_them() -> None:
    rows = [
        [Styled("a\x1b[31m\nb"), Styled("12,345", "red")],
        [Styled("orders-of-the-far-north"), Styled("7")],
    ]
    lines = table(("Queue", "Leases"), rows, numbers=1)
    assert [click.unstyle(line) for line in lines] == [
        "Queue                    Leases",
        r"a\x1b[31m\nb             12,345",
        "orders-of-the-far-north       7",
    ]
    assert [line for line in lines if "\x1b[31m" in line] == [lines[1]]


def drawn(
    monkeypatch: pytest.MonkeyPatch, lines: Sequence[str], *, is_terminal: bool = True
) -> str:
    """Return two drawings of a watch on 20 columns and 6 lines, without colors."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    screen = io.StringIO()
    with monkeypatch.context() as patched:
        patched.setattr(screen, "isatty", lambda: is_terminal)
        patched.setattr(sys, "stdout", screen)
        patched.setattr(time, "sleep", pause)
        patched.setenv("COLUMNS", "20")
        patched.setenv("LINES", "6")
        keep_drawing(lambda: lines, color=False)
    assert pauses == [WATCH_SECONDS] * 2
    return screen.getvalue()


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([], []),
        (["x" * 20] * 4, ["x" * 20] * 4),
        (["1", "2", "3", "4", "5"], ["1", "2", "3", "4", "1 more lines: make the window taller"]),
        (["x" * 21, "y" * 41], ["x" * 21, "1 more lines: make the window taller"]),
        (["\x1b[31mred\x1b[0m", "", "3", "4"], ["red", "", "3", "4"]),
    ],
)
def test_a_watch_draws_what_fits_the_terminal_again_and_again(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], shown: list[str]
) -> None:
    none, *drawings = drawn(monkeypatch, lines).split("\x1b[H\x1b[J")
    assert (none, len(drawings), drawings[0]) == ("", 2, drawings[1])
    assert [line.partition(" to see")[0] for line in drawings[0].splitlines()[:-1]] == shown


def test_a_watch_appends_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, ["1"] * 9, is_terminal=False) == ("1\n" * 9 + "\n") * 2


@pytest.mark.parametrize("start", COMMANDS)
def test_every_command_handles_a_full_disk(start: str) -> None:
    assert isinstance(COMMANDS[start], Command)


@pytest.mark.parametrize(
    "line", ["doctor", "doctor --json", "iam", "grafana", "status --json", "status --watch"]
)
def test_output_to_a_full_disk_is_one_line(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *arguments = line.split()
    app = install(Celery("proj", broker="sqs://k:s@127.0.0.1:1", set_as_current=False))
    app.conf.broker_transport_options = {"predefined_queues": QUEUE, "is_secure": False}
    obj = SimpleNamespace(app=app, no_color=True)
    code = ended(COMMANDS[f"celery -A proj sqs-heartbeat {name}"], arguments, monkeypatch, obj=obj)
    assert code == REFUSED
    assert capsys.readouterr().err == (
        "Error: the output can't be written: No space left on device\n"
    )


def test_a_simulated_server_that_can_not_print_its_address_exits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server.signal, "signal", lambda *_: None)
    assert ended(server.main, [], monkeypatch) == REFUSED
    assert "No space left on device" in capsys.readouterr().err


def ended(
    command: click.Command, arguments: list[str], monkeypatch: pytest.MonkeyPatch, **more: Any
) -> object:
    """Run a command whose standard output is a full disk; return its exit status."""
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as end:
            command.main(arguments, **more)
    return end.value.code


def test_an_error_of_another_file_is_not_reported_as_one_of_the_output() -> None:
    @click.command(cls=Command)
    def reads() -> None:
        Path("/no/such/file").read_text()

    with pytest.raises(FileNotFoundError):
        reads.main([], standalone_mode=False)
