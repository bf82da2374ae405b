"""A command whose output can't be written exits with one line and no traceback."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from celery import Celery

from celery_sqs_heartbeat import install
from celery_sqs_heartbeat.common.exits import REFUSED, Command
from celery_sqs_heartbeat.testing import server
from tests.support.workers import ROOT

MAKE = runpy.run_path(str(ROOT / "docs" / "make_commands.py"))
COMMANDS: dict[str, click.Command] = {
    start: command for start, command in MAKE["commands"]().items() if "worker" not in start
}
QUEUE = {"celery": {"url": "http://127.0.0.1:1/000000000000/celery"}}


def app() -> Any:
    made = install(Celery("proj", broker="sqs://k:s@127.0.0.1:1", set_as_current=False))
    made.conf.broker_transport_options = {"predefined_queues": QUEUE, "is_secure": False}
    return made


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
    obj = SimpleNamespace(app=app(), no_color=True)
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
