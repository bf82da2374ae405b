"""Each answer of the FAQ ends with a command that works, and names only things that exist."""

from __future__ import annotations

import re
import runpy
import shlex
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from celery_sqs_heartbeat.cli.examination import RULES
from celery_sqs_heartbeat.settings import NAMES
from tests.support.markdown import ROOT, blocks, typed_lines

FAQ = "docs/faq.md"
PAGES = [FAQ, "docs/howto/stock-worker.md"]
TEXT = (ROOT / FAQ).read_text(encoding="utf-8")
#: How the commands that have our options begin.
COMMANDS = runpy.run_path(str(ROOT / "docs" / "make_commands.py"))["commands"]()
WORKER = "celery -A proj worker"


def entries() -> dict[str, str]:
    """Return the answers by their questions."""
    parts = re.split(r"^###? (.+)\n", TEXT, flags=re.MULTILINE)
    # The text between a section's heading and its first question is not an answer.
    answers = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {question: answer.strip() for question, answer in answers.items() if answer.strip()}


def lines(page: str) -> list[list[str]]:
    """Return the commands of a page, each as a list of words, without the rest of a pipeline."""
    typed = [line for block in blocks(page, "console") for line in typed_lines(block)]
    return [shlex.split(line.partition(" | ")[0]) for line in typed]


def test_each_question_has_an_answer() -> None:
    questions = re.findall(r"^### (.+)$", TEXT, re.MULTILINE)
    assert list(entries()) == questions
    assert len(questions) > 20
    assert [question for question in questions if not question.endswith("?")] == []


@pytest.mark.parametrize("question", entries())
def test_each_answer_ends_with_a_command_that_checks_it(question: str) -> None:
    answer = entries()[question]
    assert re.search(r"^```console\n\$ [^\0]+\n```\Z", answer, re.MULTILINE), answer
    assert answer.count("```") == 2


@pytest.mark.parametrize("page", PAGES)
def test_our_commands_are_accepted_as_written(page: str) -> None:
    parsed = 0
    for words in lines(page):
        for start, command in COMMANDS.items():
            begin = shlex.split(start)
            if words[: len(begin)] == begin and start != WORKER:
                command.make_context(start, words[len(begin) :])
                parsed += 1
    named = [words for words in lines(page) if {"sqs-heartbeat", "-m"} & {*words}]
    assert parsed == len(named) > 0


def test_the_commands_of_aws_use_operations_and_parameters_of_sqs() -> None:
    model = botocore.session.get_session().get_service_model("sqs")
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    asked = [words for words in lines(FAQ) if words[0] == "aws"]
    assert asked
    for _, service, operation, *options in asked:
        assert service == "sqs"
        shape: Any = model.operation_model(operations[operation]).input_shape
        members = {f"--{xform_name(name, '-')}" for name in shape.members}
        assert {option for option in options if option.startswith("--")} <= members
        names = options[options.index("--attribute-names") + 1 :]
        assert {*names} <= {*shape.members["AttributeNames"].member.enum}


@pytest.mark.parametrize("page", PAGES)
def test_the_findings_and_settings_that_it_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert {*re.findall(r"SQSHB-\w+", text)} <= {rule.id for rule in RULES}
    settings = {*re.findall(r"\bsqs_heartbeat_(?!$)\w+", text)}
    assert settings <= {f"sqs_heartbeat_{name}" for name in NAMES}
