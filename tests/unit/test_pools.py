"""Celery's own errors around a task reach the task's request, and a worker's end stops its pool."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from celery.concurrency.base import apply_target
from celery.concurrency.thread import TaskPool
from celery.exceptions import WorkerShutdown, WorkerTerminate
from greenlet import GreenletExit

from celery_sqs_heartbeat.worker.pools import (
    follow_jobs,
    guard_run,
    make_shutdown_reentrant,
    pool_size,
    takes_jobs,
)
from celery_sqs_heartbeat.worker.requests import LeasedRequest
from tests.support.insides import killable
from tests.support.waiting import PATIENCE


class Request(LeasedRequest):
    """Records what it learns about its task."""

    def __init__(self, *, is_stopped: bool = False, accept_fails: bool = False) -> None:
        self.noted: list[str] = []
        self.is_stopped = is_stopped
        self.accept_fails = accept_fails

    def is_not_ours(self) -> bool:
        return False

    def on_accepted(self, pid: Any, time_accepted: Any) -> None:
        if self.accept_fails:
            raise ConnectionError("no events")

    def on_success(self, result: Any) -> None:
        self.noted.append(f"result {result[0]}")

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> None:
        self.noted.append(f"failure {exc_info.exception.exc!r}")

    def on_timeout(self, soft: bool, timeout: float) -> None:
        self.noted.append("timeout")

    def reject_if_unsettled(self, *, requeue: bool) -> None:
        self.noted.append(f"reject {requeue}")

    def end(self) -> None:
        self.noted.append("end")


def run(
    request: Request,
    error: BaseException | None,
    timeout: float | None = None,
    through: Callable[[Any], Any] = lambda target: target,
) -> None:
    """Run a task that an error ends, as Celery's request and its gevent pool do."""

    def task(name: str, task_id: str) -> tuple[int, str, float]:
        if error is not None:
            raise error
        return 0, "good", 1.0

    pool: Any = SimpleNamespace(
        uses_semaphore=False,
        on_apply=lambda target, *args, **kwargs: apply_target(through(target), *args, **kwargs),
    )
    guard_run(pool)
    pool.on_apply(
        task,
        ("t", "1"),
        accept_callback=request.on_accepted,
        callback=request.on_success,
        timeout_callback=request.on_timeout,
        timeout=timeout,
        propagate=(gevent.Timeout,),
    )


class Custom(BaseException):
    pass


class Unprintable(BaseException):
    def __repr__(self) -> str:
        raise ValueError("no repr")


class TimeoutOfOwn(gevent.Timeout):  # type: ignore[misc]
    __repr__ = Unprintable.__repr__


@pytest.mark.parametrize(
    ("error", "noted"),
    [
        (None, "result 0"),
        (ValueError("v"), "result 1"),
        (MemoryError(), "result 1"),
        (SystemExit(2), "failure WorkerLostError('SystemExit(2)')"),
        (KeyboardInterrupt(), "failure WorkerLostError('KeyboardInterrupt()')"),
        (GeneratorExit(), "failure WorkerLostError('GeneratorExit()')"),
        (asyncio.CancelledError(), "failure WorkerLostError('CancelledError()')"),
        (Custom(), "failure WorkerLostError('Custom()')"),
        (GreenletExit(), "failure WorkerLostError('GreenletExit()')"),
        (TimeoutOfOwn(5), "failure WorkerLostError('5 seconds')"),
    ],
)
def test_a_request_learns_of_every_end_of_its_task(error: BaseException | None, noted: str) -> None:
    request = Request()
    run(request, error)
    assert request.noted == [noted, "end"]


def test_an_error_without_a_repr_is_a_failure_like_any_other() -> None:
    request = Request()
    run(request, Unprintable())
    assert request.noted == ["failure WorkerLostError('Unprintable')", "end"]


@pytest.mark.parametrize("error", [WorkerShutdown(0), WorkerTerminate(1)])
def test_an_error_that_ends_the_worker_still_does_and_does_not_end_the_task(
    error: SystemExit,
) -> None:
    request = Request()
    with pytest.raises(type(error)):
        run(request, error)
    assert request.noted == ["end"]


def test_a_greenlet_that_celery_killed_is_left_to_its_pool() -> None:
    request = Request(is_stopped=True)
    run(request, GreenletExit(), through=killable)
    assert request.noted == ["result False", "end"]


@pytest.mark.parametrize(("limit", "is_for_pool"), [(5, True), (6, False)])
def test_the_pools_time_limit_is_distinguished_from_the_tasks_own_timeout(
    limit: float, is_for_pool: bool
) -> None:
    request = Request()
    if is_for_pool:
        with pytest.raises(gevent.Timeout):
            run(request, gevent.Timeout(5), limit)
        assert request.noted == []
    else:
        run(request, TimeoutOfOwn(5), limit)
        assert request.noted == ["failure WorkerLostError('5 seconds')", "end"]


def test_the_message_of_a_task_that_runs_out_of_time_is_settled() -> None:
    request = Request()
    noted: dict[str, Any] = {}
    pool: Any = SimpleNamespace(
        uses_semaphore=False, on_apply=lambda *args, **kwargs: noted.update(kwargs)
    )
    guard_run(pool)
    pool.on_apply(
        None,
        accept_callback=request.on_accepted,
        callback=request.on_success,
        timeout_callback=request.on_timeout,
    )
    noted["timeout_callback"](False, 3.0)
    assert request.noted == ["timeout", "reject True", "end"]


def test_a_task_that_could_not_begin_has_ended() -> None:
    request = Request(accept_fails=True)
    with pytest.raises(ConnectionError):
        run(request, None)
    assert request.noted == ["end"]


class WithdrawnAsItStarts(Request):
    """Its message is released right after the pool's thread has checked that it may start."""

    id = "1"

    def is_not_ours(self) -> bool:
        assert self.withdraw()
        return False


def test_a_task_does_not_start_whose_message_is_released_meanwhile() -> None:
    request = WithdrawnAsItStarts()
    run(request, AssertionError("it has run"))
    assert request.noted == ["end"]


def test_a_message_is_not_withdrawn_once_its_task_starts() -> None:
    request = Request()
    run(request, None)
    assert not request.withdraw()
    assert request.noted == ["result 0", "end"]


def test_a_pool_has_the_size_to_which_it_may_grow_for_tasks_alone() -> None:
    queues = SimpleNamespace(consume_from={"tasks": None})
    app = SimpleNamespace(amqp=SimpleNamespace(queues=queues))
    for limit, most in ((4, 2), (2, 4), (4, None)):
        worker = SimpleNamespace(pool=SimpleNamespace(limit=limit), max_concurrency=most, app=app)
        assert pool_size(worker, {"tasks": "url", "others": "url"}) == 4
        # Messages of a user's own consumer need no pool.
        assert pool_size(worker, {"others": "url"}) == math.inf


def pool_of(uses_semaphore: bool) -> Any:
    return SimpleNamespace(
        uses_semaphore=uses_semaphore,
        on_apply=lambda target, args, **options: target(*args, **options),
    )


def fails(task: str, task_id: str) -> None:
    raise ConnectionError(f"the result backend is down, {task}[{task_id}]")


def test_an_error_around_a_task_in_a_thread_is_returned_as_its_failure() -> None:
    pool = pool_of(uses_semaphore=False)
    guard_run(pool)
    failed, info, _ = pool.on_apply(fails, ("t", "1"))
    assert failed
    assert "the result backend is down, t[1]" in str(info.exception)


def test_a_task_given_to_a_stopped_threads_pool_waits_for_the_end_of_its_worker() -> None:
    request = Request()
    followed: list[object] = []
    request.follow = followed.append  # type: ignore[method-assign,assignment]
    pool = TaskPool(1)
    guard_run(pool)
    pool.start()
    pool.stop()
    assert pool.apply_async(print, accept_callback=request.on_accepted) is None
    assert (request.noted, followed) == ([], [])


def test_the_result_of_a_thread_is_passed_on() -> None:
    pool = pool_of(uses_semaphore=False)
    guard_run(pool)
    assert pool.on_apply(lambda task, task_id: (0, task, task_id), ("t", "1")) == (0, "t", "1")


def test_a_pool_of_processes_reports_errors_itself() -> None:
    pool = pool_of(uses_semaphore=True)
    guard_run(pool)
    with pytest.raises(ConnectionError):
        pool.on_apply(fails, ("t", "1"))


def test_requests_follow_their_jobs_in_a_pool_of_processes() -> None:
    followed: list[object] = []

    class Follows(Request):
        def follow(self, job: object) -> None:
            followed.append(job)

    pool = SimpleNamespace(uses_semaphore=True, on_apply=lambda target, **options: target)
    follow_jobs(pool)
    assert pool.on_apply("job", accept_callback=Follows().on_accepted) == "job"
    assert pool.on_apply(None, accept_callback=Follows().on_accepted) is None
    assert pool.on_apply("foreign", accept_callback=print) == "foreign"
    assert followed == ["job"]


def test_a_threads_pool_stops_in_a_handler_that_interrupted_a_submit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submitted: list[Future[Any]] = []

    class Interrupted(SimpleQueue):  # type: ignore[type-arg]
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item)
            if item is not None:
                # The handler of a cold shutdown does this in the frame that submits.
                executor.shutdown(wait=False)

    with monkeypatch.context() as patched:
        patched.setattr("queue.SimpleQueue", Interrupted)
        executor = ThreadPoolExecutor(1)
    make_shutdown_reentrant(SimpleNamespace(executor=executor))
    thread = Thread(target=lambda: submitted.append(executor.submit(int)), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert [future.result(PATIENCE) for future in submitted] == [0]


@pytest.mark.parametrize("is_broken", [True, False])
def test_a_pool_that_takes_not_even_an_empty_job_is_broken(is_broken: bool) -> None:
    def apply_async(*_: Any, **__: Any) -> None:
        if is_broken:
            raise RuntimeError("can't start new thread")

    assert takes_jobs(SimpleNamespace(apply_async=apply_async)) is not is_broken
