"""What holds for every command: its page in the docs, its options, and a disk that is full."""

from __future__ import annotations

import io
import runpy
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from celery_sqs_heartbeat.cli.doctor import Concurrency
from celery_sqs_heartbeat.cli.status import WATCH_SECONDS, keep_drawing
from celery_sqs_heartbeat.common.exits import FOUND_WHEN, REFUSED, REFUSED_WHEN, Command
from tests.support.markdown import ROOT
from tests.unit.cli.conftest import NOWHERE, app_at

MAKE = runpy.run_path(str(ROOT / "docs" / "make_commands.py"))
COMMANDS: dict[str, click.Command] = MAKE["commands"]()
#: By the last word of how they begin.
BY_NAME = {start.split()[-1]: command for start, command in COMMANDS.items()}
OPTIONS = [each for command in COMMANDS.values() for each in command.params]
QUEUE = {"work": {"url": "http://127.0.0.1:1/000000000000/work"}}
LINES = ("doctor", "doctor --json", "iam", "grafana", "status --json", "status --watch")


def test_the_page_of_commands_is_up_to_date() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert MAKE["with_tables"](text) == text, "run python docs/make_commands.py"


def test_every_option_has_a_help_text_and_takes_no_nonsense_for_a_number() -> None:
    assert [each.opts for each in OPTIONS if isinstance(each, click.Option) and not each.help] == []
    kinds = (click.IntRange, click.types.IntParamType, Concurrency)
    numbers = [option for option in OPTIONS if isinstance(option.type, kinds)]
    assert {option.name for option in numbers} >= {"lookback", "concurrency"}
    for option in numbers:
        for value in ("nan", "inf", "-inf", "-1e9", "1e999", "9" * 5000):
            with pytest.raises(click.BadParameter):
                option.type.convert(value, option, None)
    # click's own types accept "nan", in a range, too.
    assert not [each for each in OPTIONS if isinstance(each.type, click.types.FloatParamType)]


def test_a_commands_help_says_when_it_exits_with_1() -> None:
    assert {*FOUND_WHEN, *REFUSED_WHEN} <= BY_NAME.keys()
    for name, when in FOUND_WHEN.items():
        shown = " ".join(CliRunner().invoke(BY_NAME[name], ["--help"]).output.split())
        assert f"Exits with 1 when {when}" in shown


@pytest.mark.parametrize("line", [*LINES, "celery_sqs_heartbeat.testing.server"])
def test_output_to_a_full_disk_is_one_line(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    app = app_at(NOWHERE, options={"predefined_queues": QUEUE})
    name, *arguments = line.split()
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as end:
            BY_NAME[name].main(arguments, obj=SimpleNamespace(app=app, no_color=True))
    assert end.value.code == REFUSED
    said = "Error: the output can't be written: No space left on device\n"
    assert capsys.readouterr().err == said


def test_every_command_handles_a_full_disk_and_no_other_error_of_the_system() -> None:
    assert all(isinstance(each, Command) for name, each in BY_NAME.items() if name != "worker")

    @click.command(cls=Command)
    def reads() -> None:
        Path("/no/such/file").read_text()

    with pytest.raises(FileNotFoundError):
        reads.main([], standalone_mode=False)


def drawn(monkeypatch: pytest.MonkeyPatch, lines: list[str], *, is_terminal: bool = True) -> str:
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
