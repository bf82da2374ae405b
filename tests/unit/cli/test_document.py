"""The page of commands lists every command and finding, with the texts of the code."""

from __future__ import annotations

import runpy

import click
import pytest
from click.testing import CliRunner

from celery_sqs_heartbeat.cli.doctor import Concurrency
from celery_sqs_heartbeat.common.exits import FOUND_WHEN, REFUSED_WHEN
from tests.support.markdown import ROOT

MAKE = runpy.run_path(str(ROOT / "docs" / "make_commands.py"))


def test_the_generated_tables_are_up_to_date() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert MAKE["with_tables"](text) == text, "run python docs/make_commands.py"


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("a worker can't connect", "a worker can't connect"),
        ("the __init__.py of a project", "the `__init__.py` of a project"),
        ("set task_queues, or remove it", "set `task_queues`, or remove it"),
        ('set HEARTBEAT_APP = "proj.celery:app".', 'set `HEARTBEAT_APP = "proj.celery:app"`.'),
        ("they have acks_late=False: unset it", "they have `acks_late=False`: unset it"),
        ("ask current_lease.ensure_valid() first", "ask `current_lease.ensure_valid()` first"),
        ("with --heartbeat-sqs it exits", "with `--heartbeat-sqs` it exits"),
        (
            "`celery -A a_b sqs-heartbeat iam` prints it",
            "`celery -A a_b sqs-heartbeat iam` prints it",
        ),
        ("pip install 'this[otel]', *now*", r"pip install 'this\[otel\]', \*now\*"),
        ("<b> or a|b", r"\<b\> or a\|b"),
        ("snake_ and _private", r"snake\_ and `_private`"),
    ],
)
def test_texts_are_escaped_for_markdown(text: str, markdown: str) -> None:
    assert MAKE["as_markdown"](text) == markdown


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1e9", "1e999", "9" * 5000])
def test_no_option_with_a_number_takes_nonsense(value: str) -> None:
    numbers = [
        option
        for command in MAKE["commands"]().values()
        for option in command.params
        if isinstance(option.type, (click.IntRange, click.types.IntParamType, Concurrency))
    ]
    assert {option.name for option in numbers} >= {"lookback", "concurrency"}
    for option in numbers:
        with pytest.raises(click.BadParameter):
            option.type.convert(value, option, None)


def test_no_option_takes_a_fraction() -> None:
    """Click's own types accept `nan`, in a range, too."""
    for command in MAKE["commands"]().values():
        for option in command.params:
            assert not isinstance(option.type, click.types.FloatParamType), option.name


def test_every_option_has_a_help_text() -> None:
    options = [
        option
        for command in MAKE["commands"]().values()
        for option in command.params
        if isinstance(option, click.Option)
    ]
    assert len(options) > 20
    assert [option.opts for option in options if not option.help] == []


def test_exit_statuses_name_existing_commands() -> None:
    names = {start.split()[-1] for start in MAKE["commands"]()}
    assert {*FOUND_WHEN, *REFUSED_WHEN} <= names


@pytest.mark.parametrize("name", sorted(FOUND_WHEN))
def test_a_commands_help_says_when_it_exits_with_1(name: str) -> None:
    (command,) = (it for start, it in MAKE["commands"]().items() if start.split()[-1] == name)
    shown = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert f"Exits with 1 when {FOUND_WHEN[name]}" in shown
