"""The page on FIFO queues is correct: its numbers of retries and receives, and where tasks wait."""

from __future__ import annotations

import json
import re

import pytest

from celery_sqs_heartbeat.cli.app import AppFacts, TaskFacts
from celery_sqs_heartbeat.cli.queue_rules import few_for_retries
from celery_sqs_heartbeat.cli.queues import QueueFacts
from tests.support.markdown import ROOT


def text_of(page: str) -> str:
    return " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


PAGE = text_of("howto/fifo.md")


def test_the_receives_that_retries_need_are_the_doctors() -> None:
    found = re.search(r"With `max_retries=(\d+)` a `maxReceiveCount` of (\d+) is enough", PAGE)
    assert found
    retries, receives = map(int, found.groups())
    app = AppFacts(tasks=[TaskFacts(name="a", retries=retries)])
    found = {
        count: len(list(few_for_retries.check(app, queue_of(count))))
        for count in (receives, receives - 1)
    }
    assert found == {receives: 0, receives - 1: 1}
    assert f"(`{few_for_retries.id}`)" in PAGE


def queue_of(max_receive_count: int) -> QueueFacts:
    policy = json.dumps({"maxReceiveCount": max_receive_count})
    return QueueFacts(name="q.fifo", attributes={"RedrivePolicy": policy})


@pytest.mark.parametrize("page", ["howto/fifo.md", "settings.md"])
def test_each_page_says_that_only_tasks_due_after_the_longest_lease_are_parked_there(
    page: str,
) -> None:
    # As `test_a_message_of_a_fifo_queue_is_held_as_long_as_possible` shows.
    assert "FIFO queues: never" not in text_of(page).replace("**", "")
    assert "due later than its lease can last" in text_of(page)
