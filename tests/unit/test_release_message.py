"""`ReleaseMessage`: its arguments, its log lines, and how a request handles it."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from celery import Celery
from celery.exceptions import Reject

from celery_sqs_heartbeat import ReleaseMessage, current_lease
from celery_sqs_heartbeat.current.sharing import unshare_table
from celery_sqs_heartbeat.worker.step import log_releases
from tests.unit.asking import Worker

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
