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
from celery_sqs_heartbeat import ReleaseMessage, current_lease
from celery_sqs_heartbeat.current.sharing import unshare_table
from celery_sqs_heartbeat.worker.step import log_releases
from tests.unit.asking import Worker
from tests.unit.request_harness import RequestHarness

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
    # As a worker without the flag does.
    assert isinstance(error, Reject)
    Request().on_failure(info_of(error))
    assert ends == ["reject True"]


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
        # It can't be pickled.
        (UnpickleableExceptionWrapper("m", "Lock", (), "Lock()"), LookupError, False, None, ""),
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
    info = info_of(error)
    info.type = exception
    request.on_failure(info)
    (failure,) = desk.failures
    assert (failure.exception, failure.is_wanted, failure.delay) == (exception, is_wanted, delay)
    assert failure.reason == reason
    assert desk.rejected == [("h", True)]
    assert failure.cause == ("asked by task" if is_wanted else "failed")


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
