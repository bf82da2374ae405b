"""The page on FIFO queues is correct: its numbers of retries and receives, and where tasks wait."""

from __future__ import annotations

import re

import pytest

from celery_sqs_heartbeat.cli.app.app_facts import AppFacts, TaskFacts
from celery_sqs_heartbeat.cli.doctor.checks.retries import check_retries
from tests.support.markdown import ROOT


def text_of(page: str) -> str:
    return " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


PAGE = text_of("howto/fifo.md")


def test_the_receives_that_retries_need_are_the_doctors() -> None:
    found = re.search(r"With `max_retries=(\d+)` a `maxReceiveCount` of (\d+) is enough", PAGE)
    assert found
    retries, receives = map(int, found.groups())
    app = AppFacts(tasks=[TaskFacts(name="a", retries=retries)])
    assert list(check_retries(app, "q.fifo", receives)) == []
    (short,) = check_retries(app, "q.fifo", receives - 1)
    assert short.id == "SQSHB-W032"
    assert f"(`{short.id}`)" in PAGE


@pytest.mark.parametrize("page", ["howto/fifo.md", "settings.md"])
def test_each_page_says_that_only_tasks_due_after_the_longest_lease_are_parked_there(
    page: str,
) -> None:
    # As `test_a_message_of_a_fifo_queue_is_held_as_long_as_possible` shows.
    assert "FIFO queues: never" not in text_of(page).replace("**", "")
    assert "due later than its lease can last" in text_of(page)
