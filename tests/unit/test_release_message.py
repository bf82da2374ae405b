"""`ReleaseMessage`: its arguments, its log lines, and how a request handles it."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from celery import Celery
from celery.exceptions import Ignore, Reject, TimeLimitExceeded
from celery.utils.serialization import UnpickleableExceptionWrapper
from celery.worker.request import Request as CeleryRequest

import celery_sqs_heartbeat
from celery_sqs_heartbeat import ReleaseMessage
from celery_sqs_heartbeat.current.sharing import unshare_table
from celery_sqs_heartbeat.worker.children import log_releases
from tests.support.tasks import run_in_task
from tests.unit.asking import MESSAGE, Worker
from tests.unit.request_harness import RequestHarness


@pytest.mark.parametrize(
    ("delay", "error"),
    [
        ("90", TypeError),
        (True, TypeError),
        ([], TypeError),
        (-0.1, ValueError),
        (float("inf"), ValueError),
        (float("nan"), ValueError),
    ],
)
def test_a_bad_delay_is_refused_where_it_is_raised(delay: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"delay is .*: give it as seconds"):
        ReleaseMessage(delay=delay)


def test_a_stock_worker_treats_it_as_a_reject_that_requeues() -> None:
    error = ReleaseMessage(delay=90)
    assert isinstance(error, Reject)
    assert error.requeue is True
    assert celery_sqs_heartbeat.ReleaseMessage is ReleaseMessage


def info_of(error: Exception) -> ExceptionInfo:
    """Return an error in the form in which a pool reports it."""
    try:
        raise error
    except type(error):
        return ExceptionInfo()
    finally:
        # It would keep all objects of its test alive.
        error.__traceback__ = None


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
    info = pickle.loads(pickle.dumps(info_of(error)))
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


def test_celery_checks_for_a_reject_before_it_checks_for_ignored_errors() -> None:
    ends: list[str] = []

    class Request(CeleryRequest):
        id = "id"

        def __init__(self) -> None:
            pass

        def reject(self, requeue: bool = False) -> None:
            ends.append(f"reject {requeue}")

        def acknowledge(self) -> None:
            ends.append("ack")

    error = ReleaseMessage(90)
    assert isinstance(error, Ignore)
    Request().on_failure(info_of(error))
    assert ends == ["reject True"]


def release() -> None:
    raise ReleaseMessage(delay=90)


def release_with_traceback(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    caplog.set_level(logging.INFO)
    caplog.clear()
    log_releases()
    log_releases()

    with pytest.raises(ReleaseMessage):
        run_in_task(release, MESSAGE)
    return caplog.records


def test_with_a_lease_celery_logs_nothing_about_it(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    assert release_with_traceback(caplog) == []


def test_without_a_lease_one_line_says_that_its_delay_has_no_effect(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    unshare_table()
    (record,) = release_with_traceback(caplog)
    assert record.levelno == logging.WARNING
    assert "raised ReleaseMessage, whose delay has no effect here" in record.getMessage()
    assert "the worker runs without --heartbeat-sqs" in record.getMessage()
    assert record.getMessage().startswith("sqs-heartbeat: task task-")
    assert record.exc_info is None
    assert "Traceback" not in caplog.text


def test_for_a_task_that_acks_early_the_line_says_that_the_message_is_gone(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    log_releases()

    with pytest.raises(ReleaseMessage):
        worker.run(release, acks_late=False)
    (record,) = caplog.records
    assert "acks_late=False: its message is deleted when it begins" in record.getMessage()


def test_for_an_eager_task_the_line_says_so(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    log_releases()
    task = Celery("eager", set_as_current=False).task(shared=False)(release)
    # Under the lease of the task that calls it.
    assert worker.run(lambda: task.apply().state) == "REJECTED"
    (record,) = caplog.records
    assert "has no effect here: the task was called eagerly" in record.getMessage()
    assert record.exc_info is None


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


def test_installing_it_in_several_apps_filters_once() -> None:
    for name in ("one", "two"):
        celery_sqs_heartbeat.install(Celery(name, set_as_current=False))
    filters = logging.getLogger("celery.app.trace").filters
    assert len(filters) == len(set(map(id, filters)))


class _Request:
    """How Celery's request handles a failure."""

    def on_failure(self, exc_info: Any) -> None:
        self.reject(requeue=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "exception", "is_wanted", "delay", "reason"),
    [
        (ReleaseMessage(90), ReleaseMessage, True, 90, ""),
        (ReleaseMessage(), ReleaseMessage, True, None, ""),
        (ReleaseMessage(90, "tenant is busy"), ReleaseMessage, True, 90, "tenant is busy"),
        # Any other value in its place.
        (ReleaseMessage(reason=KeyError("a")), ReleaseMessage, True, None, "KeyError('a')"),  # type: ignore[arg-type]
        (Reject("no", requeue=True), Reject, False, None, ""),
        (ConnectionError(), ConnectionError, False, None, ""),
    ],
)
def test_a_request_passes_on_how_its_task_failed(
    desk: RequestHarness,
    error: Exception,
    exception: type,
    is_wanted: bool,
    delay: float | None,
    reason: str,
) -> None:
    request = desk.receive()
    # Its class has no `on_failure` from Celery to call.
    bases = (type(request), _Request)
    request.__class__ = type("Failing", bases, {})
    request.on_failure(info_of(error))
    (failure,) = desk.failures
    assert (failure.exception, failure.is_wanted, failure.delay) == (exception, is_wanted, delay)
    assert failure.reason == reason
    assert desk.rejected == [("h", True)]
    assert failure.cause == ("asked by task" if is_wanted else "failed")


def test_an_error_that_can_not_be_pickled_is_identified_by_its_type(desk: RequestHarness) -> None:
    request = desk.receive()
    request.__class__ = type("Failing", (type(request), _Request), {})
    info = info_of(UnpickleableExceptionWrapper("m", "LockError", (), "LockError()"))
    info.type = LookupError
    request.on_failure(info)
    (failure,) = desk.failures
    assert failure.exception is LookupError


@pytest.mark.parametrize(("soft", "exception"), [(False, TimeLimitExceeded), (True, None)])
def test_a_request_passes_on_that_its_task_ran_out_of_time(
    desk: RequestHarness, soft: bool, exception: type | None
) -> None:
    class Base(_Request):
        def on_timeout(self, soft: bool, timeout: float) -> None:
            self.reject(requeue=True)  # type: ignore[attr-defined]

    request = desk.receive()
    request.__class__ = type("Timing", (type(request), Base), {})
    request.on_timeout(soft, 3.0)
    (failure,) = desk.failures
    assert failure.exception is exception
