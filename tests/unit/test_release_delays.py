"""The release delay after a failure, and `ReleaseMessage`: what decides, and what is logged."""

from __future__ import annotations

import functools
import logging
import pickle
import random
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from billiard.einfo import ExceptionInfo
from celery import Celery
from celery.exceptions import Reject, WorkerShutdown, WorkerTerminate
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_sqs_heartbeat import ReleaseMessage, current_lease
from celery_sqs_heartbeat.current.sharing import unshare_table
from celery_sqs_heartbeat.errors import ConfigurationError
from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.leases.policy import cut_release_delay
from celery_sqs_heartbeat.settings import read_settings
from celery_sqs_heartbeat.settings.release_delay import ExponentialDelay, backoff
from celery_sqs_heartbeat.sqs.adapter import QueueAttributes
from celery_sqs_heartbeat.sqs.queues import QueueDirectory
from celery_sqs_heartbeat.transport import settling
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.settling import UNKNOWN, Delays, TaskFailure
from celery_sqs_heartbeat.worker.step import log_releases
from tests.support.leases import lease_of
from tests.unit.asking import Worker

REDRIVE, NO_REDRIVE = QueueAttributes(30, max_receive_count=5), QueueAttributes(30)
UNKNOWN_QUEUE = QueueAttributes(is_known=False)


def after(
    setting: Any,
    *,
    receive_count: int = 1,
    queue: QueueAttributes = NO_REDRIVE,
    ended: TaskFailure = UNKNOWN,
    backoff: float | None = None,
    sent_time: float | None = None,
    of_queue: Any = None,
    of_task: Any = None,
) -> float | None:
    """Return the delay after a failure of a message, with every setting that has an influence."""
    conf = {"sqs_heartbeat_release_delay": setting}
    if of_queue is not None:
        conf["sqs_heartbeat_queues"] = {"q": {"release_delay": of_queue}}
    tasks = {} if of_task is None else {"work": {"release_delay": of_task}}
    lease = lease_of("h")
    lease.receive_count, lease.sent_time = receive_count, sent_time
    lease.task, lease.task_id = "work", "id"
    heartbeat = Heartbeat(
        keeper=Mock(),
        settings=read_settings(conf.get, tasks=tasks),
        queues=QueueDirectory(lambda url: queue, lambda job: job()),
        clients=Mock(),
    )
    heartbeat.leased.names[lease.queue_url] = "q"
    found = Delays(heartbeat, now=lambda: lease.received_at + 1.5)
    return found.after(lease, "h", ended=ended, backoff=backoff)


class _Doubled:
    def __call__(self, receive_count: int, **_: Any) -> int:
        return 2 * receive_count


@pytest.mark.parametrize(
    ("setting", "receive_count", "expected"),
    [
        (None, 1, 0),
        (7, 5, 7),
        ([0, 10, 60], 3, 60),
        ([0, 10, 60], 9, 60),
        ("immediate", 3, 0),
        ("keep", 3, None),
        (ExponentialDelay(jitter=False), 3, 8),
        (ExponentialDelay(jitter=False), 10**400, 900),
        (ExponentialDelay(5, 15, jitter=False), 3, 15),
        (ExponentialDelay(43_200, 43_200, jitter=False), 10**6, 43_200),
        (lambda receive_count, **_: receive_count * 5, 3, 15),
        (lambda receive_count=7, **_: receive_count, 2, 2),
        (lambda receive_count, **known: len(known), 2, 3),
        (lambda **_: None, 2, None),
        (_Doubled(), 2, 4),
        (functools.partial(lambda base, receive_count, **_: base * receive_count, 2), 2, 4),
        # The result is limited to what SQS accepts.
        (lambda **_: -1, 1, 0),
        (lambda **_: 43_201, 1, 43_200),
        (lambda **_: float("inf"), 1, 43_200),
    ],
)
def test_each_form_gives_its_delay(setting: Any, receive_count: int, expected: Any) -> None:
    assert after(setting, receive_count=receive_count) == expected


@pytest.mark.parametrize("draw", [0.5, 0.75, 1.0])
def test_jitter_draws_from_the_upper_half_and_is_on_by_default(
    monkeypatch: pytest.MonkeyPatch, draw: float
) -> None:
    assert all(4 <= ExponentialDelay(8)(1) <= 8 for _ in range(99))
    monkeypatch.setattr(random, "uniform", lambda low, high: draw)
    assert [ExponentialDelay(8)(count) for count in (1, 2)] == [8 * draw, 16 * draw]
    assert ExponentialDelay(8, jitter=False)(2) == 16
    assert [backoff(count) for count in (-5, 0, 1, 2, 4, 5, 10**400)] == [
        *(0, 0, 0, 2 * draw, 8 * draw, 16 * draw, 300 * draw)
    ]


@pytest.mark.parametrize(
    ("first", "longest"),
    [(0, 900), (-1, 900), (1000, 900), (2, 43_201), (float("nan"), 900), ("2", 900), (True, 900)],
)
def test_an_exponential_delay_of_other_numbers_is_refused_by_name(first: Any, longest: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ExponentialDelay(first, longest)
    (fault,) = caught.value.faults
    assert f"first={first!r}, longest={longest!r}" in fault
    assert "first must be above 0, and longest from first to 43200 seconds" in fault


policies = (
    st.sampled_from(("backoff", "immediate", "keep"))
    | st.floats(0.01, 43_200).map(lambda first: ExponentialDelay(first, 43_200))
    | st.floats(allow_nan=False).map(lambda answer: lambda **known: answer)
    | st.lists(st.floats(0, 43_200), min_size=1, max_size=3)
    | st.floats(0, 43_200)
)


# A busy machine may take long for one of them.
@settings(deadline=None)
@given(setting=policies, count=st.integers(-1, 2**70), held_for=st.floats(0, 50_000))
def test_any_policy_gives_seconds_that_sqs_accepts_at_that_moment(
    setting: Any, count: int, held_for: float
) -> None:
    delay = after(setting, receive_count=count)
    if delay is not None:
        assert 0 <= delay <= SQS.longest_timeout
        sent = cut_release_delay(lease_of("h"), delay, held_for)
        assert 0 <= sent <= max(0, SQS.longest_timeout - held_for)


def test_a_function_gets_all_known_facts() -> None:
    seen: list[dict[str, Any]] = []
    ended = TaskFailure(exception=ConnectionError)
    known = {"receive_count": 3, "ended": ended, "sent_time": time.time() - 60}
    after(lambda **facts: seen.append(facts), queue=REDRIVE, **known)
    (facts,) = seen
    assert (facts["exception"], facts["receive_count"]) == (ConnectionError, 3)
    assert facts["message_age"] == pytest.approx(60, abs=20)
    queue = facts["queue"]
    assert (queue.name, queue.url) == ("q", "https://q")
    assert (queue.visibility_timeout, queue.max_receive_count, queue.is_known) == (30, 5, True)


@pytest.mark.parametrize(
    ("raised", "asked", "backoff", "setting", "expected"),
    [
        (1, 2, 3, 4, 1),
        (None, 2, 3, 4, 2),
        (None, None, 3, 4, 3),
        (None, None, None, 4, 4),
        (0, 2, 3, 4, 0),
        (None, 0, 3, 4, 0),
        (None, None, 0, 4, 0),
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
    known = {"ended": ended, "backoff": backoff, "queue": REDRIVE}
    assert after(setting, **known) == expected
    # After the last receive it is released to the dead-letter queue at once, whatever is set.
    for count in (5, 6):
        assert after(setting, **known, receive_count=count) == 0


@pytest.mark.parametrize(
    ("setting", "queue", "warnings"),
    [
        (None, NO_REDRIVE, 1),
        ("keep", NO_REDRIVE, 1),
        (None, REDRIVE, 0),
        (None, UNKNOWN_QUEUE, 0),
    ],
)
def test_a_queue_that_is_known_to_have_no_dead_letter_queue_is_warned_of(
    caplog: pytest.LogCaptureFixture, setting: Any, queue: QueueAttributes, warnings: int
) -> None:
    after(setting, queue=queue)
    assert caplog.text.count("has no dead-letter queue") == warnings


def _fail(**_: Any) -> float:
    raise KeyError("tenant")


def _exit(**_: Any) -> float:
    sys.exit(3)


class _Failing:
    def __call__(self, **_: Any) -> float:
        raise KeyError("tenant")


NOT_SECONDS = "must be a number of seconds, or None"


@pytest.mark.parametrize(
    ("function", "name", "said", "has_traceback"),
    [
        (lambda **_: "soon", "<lambda>", f"it returned 'soon': {NOT_SECONDS}", False),
        (lambda **_: True, "<lambda>", f"it returned True: {NOT_SECONDS}", False),
        (lambda **_: float("nan"), "<lambda>", f"it returned nan: {NOT_SECONDS}", False),
        (_fail, ":_fail", "KeyError: 'tenant'", True),
        (functools.partial(_fail), ":_fail", "KeyError: 'tenant'", True),
        (_Failing(), ":_Failing", "KeyError: 'tenant'", True),
        (_exit, ":_exit", "SystemExit: 3", True),
    ],
)
@pytest.mark.parametrize(
    ("place", "set_as"),
    [
        ("setting", "sqs_heartbeat_release_delay"),
        ("of_queue", "sqs_heartbeat_queues['q']['release_delay']"),
        ("of_task", "task 'work': sqs_heartbeat['release_delay']"),
    ],
)
def test_a_function_that_fails_is_named_with_where_it_is_set_and_the_default_applies(
    caplog: pytest.LogCaptureFixture,
    function: Callable[..., Any],
    name: str,
    said: str,
    has_traceback: bool,
    place: str,
    set_as: str,
) -> None:
    delay = after(**{"setting": "keep", place: function}, receive_count=3, queue=REDRIVE)
    assert delay is not None
    assert 2 <= delay <= 4
    (record,) = caplog.records
    assert (record.levelno, bool(record.exc_info)) == (logging.ERROR, has_traceback)
    message = record.getMessage()
    assert message.startswith(f"sqs-heartbeat: the function {__name__}:")
    assert message.endswith(
        f"{name}, set as {set_as}, failed: {said}; message m of queue q, task work[id], is "
        "released with the default delay"
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt, WorkerShutdown, WorkerTerminate])
def test_an_exception_from_a_signal_that_ends_the_worker_is_not_a_failure_of_the_function(
    error: type[BaseException],
) -> None:
    with pytest.raises(error):
        after(lambda **_: Mock(side_effect=error)())


@pytest.mark.parametrize(
    ("delay", "setting", "receive_count", "said"),
    [
        (90, None, 1, "task work[id] released its message for 90 s"),
        # The requested timeout: whole seconds, rounded up, up to 12 hours after the receive.
        (2.5, None, 1, "task work[id] released its message for 3 s"),
        (90_000, None, 1, "task work[id] released its message for 43198 s"),
        (0, None, 1, "task work[id] released its message at once"),
        (None, 7, 1, "task work[id] released its message for 7 s"),
        (None, "keep", 1, "leaves its message hidden until its visibility timeout ends"),
        (90, None, 5, "(that was its last receive, and SQS moves it to the dead-letter queue)"),
    ],
)
@pytest.mark.parametrize("reason", ["", "tenant is busy"])
def test_a_message_that_its_task_released_is_one_line_of_the_log_with_the_tasks_reason(
    caplog: pytest.LogCaptureFixture,
    delay: float | None,
    setting: Any,
    receive_count: int,
    said: str,
    reason: str,
) -> None:
    caplog.set_level(logging.INFO)
    ended = TaskFailure(is_wanted=True, delay=delay, reason=reason)
    after(setting, receive_count=receive_count, ended=ended, queue=REDRIVE)
    (record,) = caplog.records
    assert (record.levelno, record.exc_info) == (logging.INFO, None)
    assert record.getMessage().startswith("sqs-heartbeat: ")
    assert record.getMessage().endswith(f"{said}: {reason}" if reason else said)


BAD = [("90", TypeError), (True, TypeError), ([], TypeError), (-0.1, ValueError)]
BAD += [(float("inf"), ValueError), (float("nan"), ValueError)]


@pytest.mark.parametrize(("delay", "error"), BAD)
def test_a_bad_delay_is_refused_where_a_task_gives_it(
    worker: Worker, delay: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"^delay is .*: give it as seconds"):
        ReleaseMessage(delay=delay)

    def set_it() -> None:
        current_lease.release_delay = delay

    with pytest.raises(error, match=r"release_delay is .*: give it as seconds"):
        worker.run(set_it)
    assert worker.run(lambda: current_lease.release_delay) is None


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ReleaseMessage(), "message released"),
        (ReleaseMessage(90), "message released for 90 s"),
        (ReleaseMessage(delay=0), "message released for 0 s"),
        (ReleaseMessage(1.5, "tenant is busy"), "message released for 1.5 s: tenant is busy"),
        (ReleaseMessage(reason="busy"), "message released: busy"),
    ],
)
def test_it_leaves_a_pool_process_unchanged(error: ReleaseMessage, shown: str) -> None:
    try:
        raise error
    except ReleaseMessage:
        info = pickle.loads(pickle.dumps(ExceptionInfo()))
    again = getattr(info.exception, "exc", info.exception)
    assert type(again) is ReleaseMessage
    assert (again.delay, again.reason, again.requeue) == (error.delay, error.reason, True)
    assert repr(again) == repr(error)
    assert str(again) == str(error) == shown


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [(ReleaseMessage(90), False), (Reject(requeue=True), True), (LookupError(), True)],
)
def test_retries_for_any_exception_let_it_pass(error: Exception, is_retried: bool) -> None:
    app = Celery("retrying", set_as_current=False)

    @app.task(autoretry_for=(Exception,), shared=False)
    def work() -> None:
        raise error

    retried: list[Exception] = []

    def retry(exc: Exception, **_: Any) -> None:
        retried.append(exc)
        raise exc

    work.retry = retry
    with pytest.raises(type(error)):
        work.run()
    assert retried == ([error] if is_retried else [])


def release() -> None:
    raise ReleaseMessage(delay=90)


def test_with_a_lease_celery_logs_nothing_about_it(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log_releases()
    log_releases()
    with pytest.raises(ReleaseMessage):
        worker.run(release)
    assert caplog.records == []


def test_without_a_lease_one_line_says_that_its_delay_has_no_effect(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    task = Celery("eager", set_as_current=False).task(shared=False)(release)
    log_releases()
    # An eager task runs under the lease of the task that calls it.
    assert worker.run(lambda: task.apply().state) == "REJECTED"
    with pytest.raises(ReleaseMessage):
        worker.run(release, acks_late=False)
    unshare_table()
    with pytest.raises(ReleaseMessage):
        worker.run(release)
    reasons = (
        "the task was called eagerly",
        "acks_late=False: its message is deleted when it begins",
        "the worker runs without --heartbeat-sqs",
    )
    for record, reason in zip(caplog.records, reasons, strict=True):
        assert (record.levelno, record.exc_info) == (logging.WARNING, None)
        message = record.getMessage()
        assert message.startswith("sqs-heartbeat: task ")
        assert "raised ReleaseMessage, whose delay has no effect here: " in message
        assert reason in message
    assert "Traceback" not in caplog.text


def test_any_other_error_is_logged_as_usual(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    log_releases()
    for error in (Reject("no", requeue=True), LookupError("no")):
        caplog.clear()

        def fail(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)):
            worker.run(fail)
        (record,) = caplog.records
        assert record.exc_info is not None
        assert record.name == "celery.app.trace"
