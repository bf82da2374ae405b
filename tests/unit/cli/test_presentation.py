"""The output of the doctor, for people and for scripts."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence

import click
import pytest

from celery_sqs_heartbeat.cli.doctor.checks.broker import SETTING_FAULT
from celery_sqs_heartbeat.cli.doctor.checks.delivery import EARLY
from celery_sqs_heartbeat.cli.doctor.checks.finding import Finding, Severity
from celery_sqs_heartbeat.cli.doctor.checks.permissions import DENIED, PERMITTED
from celery_sqs_heartbeat.cli.doctor.checks.polling import CUT
from celery_sqs_heartbeat.cli.doctor.command import exit_status
from celery_sqs_heartbeat.cli.doctor.finding_groups import Group, headline
from celery_sqs_heartbeat.cli.doctor.presentation import as_json, print_findings, summary

FINDINGS = [
    DENIED.found(queue="work", value="sqs:DeleteMessage"),
    EARLY.found(setting="task_acks_late", value=False),
    PERMITTED.found(queue="work", value="sqs:ReceiveMessage"),
]
TEXT = """\
ERROR    queue work: permissions are missing: sqs:DeleteMessage
         Why: The worker can't do its work on this queue without them.
         Fix: Grant them to the worker's role. `celery -A proj sqs-heartbeat
              iam` prints the policy.
         SQSHB-E301

WARNING  task_acks_late=False: messages are deleted before their tasks run
         Why: If a task fails or its worker is killed, the task is lost, because
              its message is already deleted.
         Fix: Set task_acks_late = True.
         SQSHB-W101

OK       queue work: permissions are granted: sqs:ReceiveMessage

1 error, 1 warning, 0 notes, 1 check passed."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def text_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return the text that is printed to a file, for findings and a width."""

    def printed(findings: Sequence[Finding], *, width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        file = io.StringIO()
        print_findings(findings, json=False, color=None, file=file)
        return file.getvalue().removesuffix("\n")

    return printed


def test_text_is_wrapped_and_ends_with_a_count(text_of: Callable[..., str]) -> None:
    assert text_of(FINDINGS, width=80) == TEXT
    assert all(len(line) <= 60 for line in text_of(FINDINGS, width=60).split("\n"))


def test_faults_of_one_kind_are_listed_under_one_reason(text_of: Callable[..., str]) -> None:
    findings = [SETTING_FAULT.found(value=fault) for fault in ("a=1: must be 2", "b: no such")]
    text = text_of(findings, width=40)
    lines = [line.removeprefix(" " * 9) for line in text.splitlines()]
    assert lines[:3] == ["ERROR    a setting is wrong:", "- a=1: must be 2", "- b: no such"]
    assert text.count("Fix:") == 1


def test_a_file_gets_no_colors() -> None:
    file = io.StringIO()
    print_findings(FINDINGS, json=False, color=None, file=file)
    assert "\x1b" not in file.getvalue()
    assert file.getvalue().startswith("ERROR    queue work: permissions are missing")


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    file = Terminal()
    print_findings(FINDINGS, json=False, color=None, file=file)
    shown = click.unstyle(file.getvalue())
    assert "Finding" in shown
    for finding in FINDINGS:
        assert finding.id in shown
    assert summary(FINDINGS) in shown


@pytest.mark.parametrize("color", [False, None])
def test_a_terminal_without_rich_gets_text(
    monkeypatch: pytest.MonkeyPatch, color: bool | None
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    file = Terminal()
    print_findings(FINDINGS, json=False, color=color, file=file)
    assert ("\x1b" in file.getvalue()) is (color is None)
    assert "ERROR    queue work" in click.unstyle(file.getvalue())


def test_json_has_all_fields() -> None:
    first = json.loads(as_json(FINDINGS))[0]
    assert first == {
        "severity": "error",
        "id": "SQSHB-E301",
        "title": DENIED.title,
        "why": DENIED.why,
        "fix": DENIED.fix,
        "queue": "work",
        "setting": None,
        "value": "sqs:DeleteMessage",
    }


@pytest.mark.parametrize(
    ("finding", "line"),
    [
        (FINDINGS[0], "queue work: permissions are missing: sqs:DeleteMessage"),
        (FINDINGS[1], "task_acks_late=False: messages are deleted before their tasks run"),
        (DENIED.found(), "permissions are missing"),
        (
            CUT.found(queue="q", setting="wait_time_seconds", value="20, shortened to 6"),
            "queue q, wait_time_seconds=20, shortened to 6: long polls are shortened",
        ),
    ],
)
def test_a_headline_says_where_and_what(finding: Finding, line: str) -> None:
    assert headline(Group([finding])) == line


@pytest.mark.parametrize(
    ("found", "strict", "status"),
    [
        ("", False, 0),
        ("", True, 0),
        ("IP", True, 0),
        ("WIP", False, 0),
        ("WIP", True, 1),
        ("EWIP", False, 2),
        ("EWIP", True, 2),
    ],
)
def test_the_exit_status(found: str, strict: bool, status: int) -> None:
    by_letter = dict(zip("EWIP", Severity, strict=True))
    findings = [
        Finding(severity=by_letter[letter], id="", title="", why="", fix="") for letter in found
    ]
    assert exit_status(findings, strict=strict) == status


def test_other_celery_commands_import_nothing_for_these() -> None:
    code = "import sys, celery_sqs_heartbeat.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"boto3", "celery", "kombu", "rich", "django", "flask"} & set(loaded)
    assert not [name for name in loaded if name.startswith("celery_sqs_heartbeat.journal")]
