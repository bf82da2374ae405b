"""What decides the release delay after a failure, and what is logged."""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from celery.exceptions import WorkerShutdown, WorkerTerminate

from celery_sqs_heartbeat.settings import Settings, read_settings
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport import settling
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.settling import UNKNOWN, Delays, TaskFailure
from tests.support.leases import lease_of

REDRIVE = QueueAttributes(30, max_receive_count=5)
NO_REDRIVE = QueueAttributes(30)


def after(
    setting: Any,
    *,
    receive_count: int = 1,
    queue: QueueAttributes = REDRIVE,
    ended: TaskFailure = UNKNOWN,
    backoff: float | None = None,
) -> float | None:
    settings = read_settings({"sqs_heartbeat_release_delay": setting}.get)
    return after_all(
        settings, receive_count=receive_count, queue=queue, ended=ended, backoff=backoff
    )


def after_all(
    settings: Settings,
    *,
    receive_count: int = 1,
    queue: QueueAttributes = REDRIVE,
    ended: TaskFailure = UNKNOWN,
    backoff: float | None = None,
) -> float | None:
    """Return the delay after a failure, with every setting that has an influence."""
    lease = lease_of("h")
    lease.receive_count, lease.sent_time = receive_count, time.time() - 60
    lease.task, lease.task_id = "work", "id"
    heartbeat = Heartbeat(
        keeper=Mock(),
        settings=settings,
        queues=QueueDirectory(lambda url: queue, lambda job: job()),
        clients=Mock(),
    )
    heartbeat.leased.names[lease.queue_url] = "q"
    found = Delays(heartbeat, now=lambda: lease.received_at + 1.5)
    return found.after(lease, "h", ended=ended, backoff=backoff)


def _fail(**_: Any) -> float:
    raise KeyError("tenant")


def _exit(**_: Any) -> float:
    sys.exit(3)


class _Failing:
    def __call__(self, **_: Any) -> float:
        raise KeyError("tenant")


@pytest.mark.parametrize(
    ("function", "said", "has_traceback"),
    [
        (lambda **_: "soon", "it returned 'soon': must be a number", False),
        (lambda **_: True, "it returned True: must be a number", False),
        (_fail, "KeyError: 'tenant'", True),
        (_exit, "SystemExit: 3", True),
    ],
)
def test_only_an_error_of_the_function_itself_is_logged_with_a_traceback(
    caplog: pytest.LogCaptureFixture,
    function: Callable[..., Any],
    said: str,
    has_traceback: bool,
) -> None:
    assert after(function) == 0
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert said in record.getMessage()
    assert bool(record.exc_info) is has_traceback


@pytest.mark.parametrize("queue", [REDRIVE, NO_REDRIVE])
@pytest.mark.parametrize(
    ("conf", "tasks", "place"),
    [
        ({"sqs_heartbeat_release_delay": _fail}, {}, "sqs_heartbeat_release_delay"),
        (
            {
                "sqs_heartbeat_release_delay": "keep",
                "sqs_heartbeat_queues": {"q": {"release_delay": _fail}},
            },
            {},
            "sqs_heartbeat_queues['q']['release_delay']",
        ),
        (
            {"sqs_heartbeat_queues": {"q": {"release_delay": "keep"}}},
            {"work": {"release_delay": _fail}},
            "task 'work': sqs_heartbeat['release_delay']",
        ),
    ],
)
def test_a_function_that_fails_is_named_with_where_it_is_set(
    caplog: pytest.LogCaptureFixture,
    conf: dict[str, Any],
    tasks: dict[str, Any],
    place: str,
    queue: QueueAttributes,
) -> None:
    delay = after_all(read_settings(conf.get, tasks=tasks), receive_count=3, queue=queue)
    assert delay is not None
    assert 2 <= delay <= 4
    said = next(text for text in caplog.messages if "KeyError" in text)
    assert said == (
        f"sqs-heartbeat: the function {__name__}:_fail, set as {place}, failed: KeyError: "
        "'tenant'; message m of queue q, task work[id], is released with the default delay"
    )


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (functools.partial(_fail), "_fail"),
        (_Failing(), "_Failing"),
        (lambda **_: "soon", "<lambda>"),
    ],
)
def test_a_function_of_any_kind_is_named(
    caplog: pytest.LogCaptureFixture, function: Callable[..., Any], name: str
) -> None:
    after(function)
    (said,) = caplog.messages
    assert said.startswith(f"sqs-heartbeat: the function {__name__}:")
    assert f"{name}, set as sqs_heartbeat_release_delay, failed: " in said


@pytest.mark.parametrize("error", [KeyboardInterrupt, WorkerShutdown, WorkerTerminate])
def test_an_exception_from_a_signal_that_ends_the_worker_is_not_a_failure_of_the_function(
    error: type[BaseException],
) -> None:
    def interrupted(**_: Any) -> float:
        raise error

    with pytest.raises(error):
        after(interrupted)


@pytest.mark.parametrize(
    ("raised", "asked", "backoff", "setting", "expected"),
    [
        (1, 2, 3, 4, 1),
        (None, 2, 3, 4, 2),
        (None, None, 3, 4, 3),
        (None, None, None, 4, 4),
        (None, None, None, None, 0),
        (0, 2, 3, 4, 0),
        (None, 0, 3, 4, 0),
        (None, None, 0, 4, 0),
        (None, None, None, "keep", None),
        (1, None, None, "keep", 1),
        (None, 2, None, "keep", 2),
    ],
)
def test_the_tasks_delay_overrides_kombus_policy_which_overrides_the_setting(
    monkeypatch: pytest.MonkeyPatch,
    raised: float | None,
    asked: float | None,
    backoff: float | None,
    setting: Any,
    expected: float | None,
) -> None:
    monkeypatch.setattr(settling, "asked_delay", lambda handle: asked)
    ended = TaskFailure(is_wanted=raised is not None, delay=raised)
    assert after(setting, ended=ended, backoff=backoff) == expected
    # After the last receive it is released to the dead-letter queue at once, whatever is set.
    assert after(setting, ended=ended, backoff=backoff, receive_count=5) == 0
    assert after(setting, ended=ended, backoff=backoff, receive_count=6) == 0


@pytest.mark.parametrize("queue", [REDRIVE, NO_REDRIVE, QueueAttributes(is_known=False)], ids=str)
@pytest.mark.parametrize(
    ("setting", "most"),
    [(None, [0, 2, 4]), ("backoff", [0, 2, 4]), (0, [0, 0, 0]), ("immediate", [0, 0, 0])],
)
def test_failures_are_delayed_ever_longer_on_every_queue_unless_the_setting_says_otherwise(
    setting: Any, queue: QueueAttributes, most: list[float]
) -> None:
    for count, longest in enumerate(most, 1):
        delay = after(setting, receive_count=count, queue=queue)
        assert delay is not None
        assert longest / 2 <= delay <= longest


@pytest.mark.parametrize(
    ("setting", "queue", "warnings"),
    [
        (None, NO_REDRIVE, 1),
        ("keep", NO_REDRIVE, 1),
        (None, REDRIVE, 0),
        (None, QueueAttributes(is_known=False), 0),
    ],
)
def test_a_queue_that_is_known_to_have_no_dead_letter_queue_is_warned_of(
    caplog: pytest.LogCaptureFixture, setting: Any, queue: QueueAttributes, warnings: int
) -> None:
    after(setting, queue=queue)
    assert caplog.text.count("has no dead-letter queue") == warnings


def test_a_function_gets_all_known_facts() -> None:
    seen: list[dict[str, Any]] = []
    after(
        lambda **known: seen.append(known),
        receive_count=3,
        ended=TaskFailure(exception=ConnectionError),
    )
    (known,) = seen
    assert known["exception"] is ConnectionError
    assert known["receive_count"] == 3
    assert known["message_age"] == pytest.approx(60, abs=20)
    queue = known["queue"]
    assert (queue.name, queue.url) == ("q", "https://q")
    assert (queue.visibility_timeout, queue.max_receive_count, queue.is_known) == (30, 5, True)


@pytest.mark.parametrize(
    ("delay", "setting", "receive_count", "said"),
    [
        (90, None, 1, "task work[id] released its message for 90 s"),
        # The requested timeout: whole seconds, rounded up, up to 12 hours after the receive.
        (2.5, None, 1, "task work[id] released its message for 3 s"),
        (0.1, None, 1, "task work[id] released its message for 1 s"),
        (90_000, None, 1, "task work[id] released its message for 43198 s"),
        (0, None, 1, "task work[id] released its message at once"),
        (None, 7, 1, "task work[id] released its message for 7 s"),
        (None, "keep", 1, "leaves its message hidden until its visibility timeout ends"),
        (90, None, 5, "(that was its last receive, and SQS moves it to the dead-letter queue)"),
    ],
)
def test_a_message_that_its_task_released_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
    delay: float | None,
    setting: Any,
    receive_count: int,
    said: str,
) -> None:
    caplog.set_level(logging.INFO)
    after(setting, receive_count=receive_count, ended=TaskFailure(is_wanted=True, delay=delay))
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith("sqs-heartbeat: ")
    assert record.getMessage().endswith(said)
    assert record.exc_info is None


@pytest.mark.parametrize(
    ("setting", "receive_count", "said"),
    [
        (None, 1, "released its message for 3 s: tenant is busy"),
        ("keep", 1, "released its message for 3 s: tenant is busy"),
        (None, 5, "SQS moves it to the dead-letter queue): tenant is busy"),
    ],
)
def test_that_line_ends_with_the_reason_that_the_task_gave(
    caplog: pytest.LogCaptureFixture, setting: Any, receive_count: int, said: str
) -> None:
    caplog.set_level(logging.INFO)
    ended = TaskFailure(is_wanted=True, delay=2.5, reason="tenant is busy")
    after(setting, receive_count=receive_count, ended=ended)
    (message,) = caplog.messages
    assert message.endswith(said)


def test_a_failure_adds_no_line_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    after(7, ended=TaskFailure(exception=KeyError))
    assert caplog.records == []
