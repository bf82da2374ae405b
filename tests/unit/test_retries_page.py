"""The page on retries is correct: its code, its tables and its numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from celery_sqs_heartbeat import ReleaseMessage
from celery_sqs_heartbeat.cli.app import AppFacts, TaskFacts
from celery_sqs_heartbeat.cli.queue_rules import retried
from celery_sqs_heartbeat.cli.queues import QueueFacts
from celery_sqs_heartbeat.current.current_message import asked_delay
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.settings.release_delay import (
    NAMED,
    ExponentialDelay,
    Failure,
    QueueInfo,
    choose_delay,
)
from tests.support.insides import hide_shared_tasks
from tests.support.markdown import ROOT, blocks
from tests.support.tasks import run_task
from tests.unit.asking import MESSAGE, Worker

PAGE = "docs/howto/retries.md"
TEXT = " ".join((ROOT / PAGE).read_text(encoding="utf-8").split())
QUEUE = QueueInfo(name="q", url="https://q", visibility_timeout=30, max_receive_count=5)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the page's code defines."""
    hide_shared_tasks(monkeypatch)
    app = Celery("page", set_as_current=False)
    app.conf.task_acks_late = True
    busy = SimpleNamespace(shops={"busy"}, fetched=[])
    names = {
        "app": app,
        "shop_is_busy": busy.shops.__contains__,
        "fetch_orders": busy.fetched.append,
    }
    for block in blocks(PAGE, "python"):
        exec(block, names)
    return names


def after(exception: type[BaseException] | None, count: int = 3, **known: Any) -> Failure:
    return Failure(queue=QUEUE, receive_count=count, exception=exception, **known)


def test_its_settings_are_accepted_and_work_as_described(names: dict[str, Any]) -> None:
    app = names["app"]
    tasks = {"rebuild": app.tasks[names["rebuild"].name].sqs_heartbeat}
    settings = read_settings(app.conf.get, tasks=tasks)
    assert choose_delay(settings.for_queue("mails").release_delay, after(None)) == 30
    assert choose_delay(settings.for_task("mails", "rebuild").release_delay, after(None)) is None
    delay = choose_delay(settings.for_queue("other").release_delay, after(None))
    assert isinstance(delay, float)
    assert 4 <= delay <= 8


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (after(None), 0),
        (after(KeyError), 0),
        (after(ConnectionRefusedError), 15),
        (after(ConnectionError, message_age=3601.0), 600),
        (after(ConnectionError, message_age=1.0), 15),
    ],
)
def test_its_function_can_be_set(names: dict[str, Any], failure: Failure, expected: float) -> None:
    settings = read_settings({"sqs_heartbeat_release_delay": names["backoff"]}.get)
    assert choose_delay(settings.rules.release_delay, failure) == expected


def test_its_task_requests_its_own_delay(names: dict[str, Any], worker: Worker) -> None:
    task = names["import_orders"]
    with pytest.raises(ReleaseMessage) as raised:
        run_task(task, ["busy"], MESSAGE)
    assert raised.value.delay == 90
    assert asked_delay("a") is None
    run_task(task, ["idle"], MESSAGE)
    assert asked_delay("a") == 300


def test_it_lists_every_policy() -> None:
    for name in NAMED:
        assert f'`"{name}"`' in TEXT


def test_its_example_of_an_exponential_delay_matches_the_defaults() -> None:
    assert f"`{ExponentialDelay()}` | after 2, 4, 8, ... s, up to 900" in TEXT


def test_its_numbers_of_runs_are_the_doctors() -> None:
    tasks = [TaskFacts(name="a", retries=3)]
    queue = QueueFacts(name="q", attributes={"RedrivePolicy": '{"maxReceiveCount": 5}'})
    (found,) = retried.check(AppFacts(tasks=tasks), queue)
    (acked,) = retried.check(AppFacts(tasks=tasks, acks_on_failure="s"), queue)
    assert "a dead letter after 8 failed runs" in str(found.value)
    assert "a task that always fails runs 8 times before it is a dead letter" in TEXT
    assert "deleted after 4 failed runs" in str(acked.value)
    assert "it runs 4 times and is never a dead letter" in TEXT
    assert "up to 20 runs" in str(found.value)
    assert "so 20 runs" in TEXT
