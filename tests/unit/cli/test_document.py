"""The document tells of every finding there is, in the code's own words."""

from __future__ import annotations

import runpy

import click
import pytest
from click.testing import CliRunner

from celery_sqs_heartbeat.cli.checks import KINDS
from celery_sqs_heartbeat.exits import FOUND_WHEN, REFUSED_WHEN
from tests.support.markdown import ROOT

MAKE = runpy.run_path(str(ROOT / "docs" / "make_commands.py"))


def test_the_table_of_findings_is_that_of_the_code() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `SQSHB-")]
    assert rows == [
        f"| `{kind.id}` | {kind.severity.value} | **{kind.title}**: {kind.why} | {kind.fix} |"
        for kind in KINDS
    ]


def test_the_tables_of_options_and_exit_statuses_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert MAKE["with_tables"](text) == text, "run python docs/make_commands.py"


def test_every_option_has_a_help() -> None:
    options = [
        option
        for command in MAKE["commands"]().values()
        for option in command.params
        if isinstance(option, click.Option)
    ]
    assert len(options) > 20
    assert [option.opts for option in options if not option.help] == []


def test_exit_statuses_are_of_commands_that_exist() -> None:
    names = {start.split()[-1] for start in MAKE["commands"]()}
    assert {*FOUND_WHEN, *REFUSED_WHEN} <= names


@pytest.mark.parametrize("name", sorted(FOUND_WHEN))
def test_a_commands_help_says_when_it_ends_with_another_status(name: str) -> None:
    (command,) = (it for start, it in MAKE["commands"]().items() if start.split()[-1] == name)
    shown = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert f"Exits with 1 when {FOUND_WHEN[name]}" in shown
