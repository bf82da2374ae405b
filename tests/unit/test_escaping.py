"""Names that others have chosen, in log lines and on terminals."""

from __future__ import annotations

import ast
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import celery_sqs_heartbeat
from celery_sqs_heartbeat.cli.pages import Page
from celery_sqs_heartbeat.cli.status import lines_of
from celery_sqs_heartbeat.cli.tune import as_line
from celery_sqs_heartbeat.common.escaping import escaped, get_logger
from celery_sqs_heartbeat.journal.__main__ import text_of
from celery_sqs_heartbeat.journal.fields import fields_of
from celery_sqs_heartbeat.keeper.eventlog import log_event
from celery_sqs_heartbeat.leases.events import EventKind
from tests.unit.journal.samples import ORIGIN, event_of

PACKAGE = Path(celery_sqs_heartbeat.__file__).parent
#: A forged line, a terminal's colours and title, the C1 form of these, deleted text, reversed text,
#: hidden text, and a character that no encoding has.
EVIL = (
    "a\nsqs-heartbeat: forged\r\x1b[31m\x1b]0;title\x07\x9b2J\x7f\u2028"
    "\u202etxt.exe\u2066\u200b\ud800"
)
#: What a message may contain: names of tasks, ids, error texts of servers.
FROM_MESSAGES = {
    "task",
    "task_id",
    "message_id",
    "MessageId",
    "headers",
    "request",
    "text",
    "shown",
}


def is_harmless(text: str) -> bool:
    return all(each.isprintable() for each in text.removesuffix("\n")) and "\\n" in text


def test_everything_except_visible_text_is_escaped() -> None:
    assert escaped(EVIL) == (
        r"a\nsqs-heartbeat: forged\r\x1b[31m\x1b]0;title\x07\x9b2J\x7f\u2028\u202etxt.exe\u2066"
        r"\u200b\ud800"
    )


@pytest.mark.parametrize("text", ["proj.add", "größe.測定", "a b\\n", "🐘", ""])
def test_all_other_text_stays_unchanged(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize("kind", list(EventKind))
def test_a_name_forges_no_log_line(kind: EventKind, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "celery_sqs_heartbeat")
    log_event(event_of(kind, task=EVIL, task_id=EVIL, message_id=EVIL, cause=EVIL))
    names = {"task": EVIL, "task_id": EVIL, "message_id": EVIL, "cause": EVIL}
    log_event(event_of(kind, **names, group=EVIL, stops_group=True))
    assert all(is_harmless(record.getMessage()) for record in caplog.records)
    assert len(caplog.records) == 2


def test_the_text_of_an_error_is_escaped_and_other_arguments_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error, number = ValueError(EVIL), 4
    get_logger("celery_sqs_heartbeat.tests").warning("%s %s %d %s", error, None, number, "a")
    (record,) = caplog.records
    assert is_harmless(record.getMessage())
    assert record.args[1:] == (None, 4, "a")  # type: ignore[index]


def logging_calls(tree: ast.Module) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "logger"
    ]


def words_of(call: ast.Call) -> set[str]:
    parts = [part for argument in call.args[1:] for part in ast.walk(argument)]
    return {
        str(getattr(part, "attr", None) or getattr(part, "id", None) or getattr(part, "value", ""))
        for part in parts
    }


def test_every_module_that_logs_text_from_messages_escapes_it() -> None:
    plain, escaping = [], []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(words_of(call) & FROM_MESSAGES for call in logging_calls(ast.parse(text))):
            (escaping if "logger = get_logger(" in text else plain).append(path.name)
    # The keeper has escaped the link's lines.
    assert plain == ["messages.py"]
    assert len(escaping) >= 6


def test_a_printed_journal_has_one_line_per_event() -> None:
    fields = fields_of(event_of(task=EVIL, task_id=EVIL, cause=EVIL), 1, ORIGIN)
    assert is_harmless(text_of(fields))


def test_names_can_not_control_the_table_of_leases() -> None:
    counts = ("in_flight", "running", "waiting", "pending_deletes", "pending_releases", "not_well")
    of_groups = ("groups", "behind", "stopped_groups_left_out")
    sums = {**dict.fromkeys((*counts, *of_groups), 1), "oldest": 1.0, "least_left": 2.0}
    told = {**sums, "worker": EVIL, "health": {"status": EVIL}, "tasks_left_out": 3}
    told["tasks"] = [{**sums, "queue": EVIL, "task": EVIL}]
    stopped = {"queue": EVIL, "group": EVIL, "task": EVIL, "cause": EVIL, "message_id": EVIL}
    told["stopped_groups"] = [{**stopped, "receive_count": 1, "ago": 1.0, "visible_in": -1.0}]
    answers = [Page(url="u", payload=told), Page(url="u", fault=EVIL)]
    shown = [click.unstyle(line) for line in lines_of(answers)]
    assert "".join(shown).count(r"\x1b[31m") == 11
    assert is_harmless("".join(shown))


def test_names_can_not_add_lines_to_the_settings_to_paste() -> None:
    verdict: Any = SimpleNamespace(
        queue=EVIL,
        task=EVIL,
        visibility_timeout=30,
        threshold=10.0,
        fault="",
        confidence="high",
    )
    line = as_line(verdict)
    assert line.startswith("# OK")
    assert is_harmless(line)
