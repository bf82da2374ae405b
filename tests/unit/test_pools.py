"""In pools without processes, each end of a task reaches its request, and errors end no worker."""

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
    guard_run,
    make_shutdown_reentrant,
    pool_size,
    takes_jobs,
)
from tests.support.insides import killable
from tests.support.waiting import PATIENCE
from tests.unit.scene import Scene

New = Callable[..., Scene]
DELETED, RELEASED = "deleted", "released 7 failed"


class Unprintable(BaseException):
    def __repr__(self) -> str:
        raise ValueError("no repr")


class TimeoutOfOwn(gevent.Timeout):  # type: ignore[misc]
    __repr__ = Unprintable.__repr__


@pytest.fixture
def threads(new_scene: New) -> Scene:
    """A worker whose pool runs tasks in this thread, as a gevent pool does in a greenlet."""
    stays = {"acks_on_failure_or_timeout": False}
    return new_scene(has_processes=False, release_delay=7, task=stays)


def run(
    scene: Scene,
    error: BaseException | None,
    *,
    limit: float | None = None,
    through: Callable[[Any], Any] = lambda target: target,
) -> None:
    """Run a task that an error ends, as Celery's gevent pool does."""

    def trace(*_: Any) -> tuple[int, str, float]:
        if error is not None:
            raise error
        return 0, "good", 1.0

    scene.trace = trace
    request = scene.got.get("a") or scene.deliver("a")
    request.time_limits = (limit, None)
    request.execute_using_pool(scene.pool)
    (job,) = scene.pool.jobs
    callbacks = {"callback": job.callback, "accept_callback": job.accept_callback}
    target, args = through(job.run.func), job.run.args
    apply_target(target, args, {}, **callbacks, propagate=(gevent.Timeout,))


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (None, DELETED),
        (ValueError("v"), RELEASED),
        (MemoryError(), RELEASED),
        (SystemExit(2), RELEASED),
        (KeyboardInterrupt(), RELEASED),
        (asyncio.CancelledError(), RELEASED),
        (Unprintable(), RELEASED),
        (GreenletExit(), RELEASED),
        pytest.param(TimeoutOfOwn(5), RELEASED, id="the task's own timeout"),
    ],
)
def test_every_end_of_a_task_settles_its_message(
    threads: Scene, error: BaseException | None, fate: str
) -> None:
    run(threads, error)
    assert threads.fate("a") == fate
    assert threads.slots == set()


@pytest.mark.parametrize("error", [WorkerShutdown(0), WorkerTerminate(1)])
def test_an_error_that_ends_the_worker_still_does_and_the_net_releases_the_message(
    threads: Scene, error: SystemExit
) -> None:
    with pytest.raises(type(error)):
        run(threads, error)
    assert threads.fate("a") == "held"
    threads.heartbeat.orphaned.look()
    assert threads.fate("a") == RELEASED


def test_a_greenlet_that_celery_killed_is_left_to_its_pool(threads: Scene) -> None:
    threads.deliver("a").is_stopped = True
    run(threads, GreenletExit(), through=killable)
    # Celery's pool takes it for a success; see the test of a killed greenlet's ack.
    assert threads.fate("a") == DELETED


@pytest.mark.parametrize(("limit", "is_for_pool"), [(5, True), (6, False)])
def test_the_pools_time_limit_is_distinguished_from_the_tasks_own_timeout(
    threads: Scene, limit: float, *, is_for_pool: bool
) -> None:
    if is_for_pool:
        with pytest.raises(gevent.Timeout):
            run(threads, gevent.Timeout(5), limit=limit)
        assert threads.fate("a") == "held"
    else:
        run(threads, TimeoutOfOwn(5), limit=limit)
        assert threads.fate("a") == RELEASED


def test_the_message_of_a_task_that_runs_out_of_time_is_settled(
    new_scene: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before 5.7, Celery leaves it unsettled until the process ends.
    monkeypatch.setattr("celery.worker.request.Request.on_timeout", lambda *args: None)
    scene = new_scene(has_processes=False, task={"acks_on_failure_or_timeout": False})
    job = scene.run("a")
    job.timeout_callback(False, 3.0)
    assert scene.fate("a").startswith("released")
    assert scene.slots == set()


def test_a_task_that_could_not_begin_is_released_by_the_net(
    threads: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **fields: Any) -> None:
        raise ConnectionError("no events")

    request = threads.start("a")
    monkeypatch.setattr(request, "send_event", fail)
    with pytest.raises(ConnectionError):
        threads.pool.jobs[0].accept_callback(1, 0.0)
    threads.heartbeat.orphaned.look()
    assert threads.fate("a") != "held"


def test_a_task_does_not_run_whose_message_is_released_while_it_waits_for_the_pool(
    threads: Scene,
) -> None:
    threads.start("a")
    (job,) = threads.pool.jobs
    assert threads.got["a"].withdraw()
    threads.channel.release("a", cause="shutdown")
    job.accept_callback(1, 0.0)
    assert job.run() is None
    job.callback(None)
    assert threads.fate("a") == "released 0 shutdown"


def test_an_error_around_a_task_is_its_failure(
    threads: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    run(threads, ConnectionError("the result backend is down"))
    assert "Celery raised an error around task work[a]: it counts as failed" in caplog.text


def test_a_task_given_to_a_stopped_threads_pool_is_left_to_the_shutdown(threads: Scene) -> None:
    request, pool = threads.deliver("a"), TaskPool(1)
    guard_run(pool)
    pool.start()
    pool.stop()
    assert pool.apply_async(print, accept_callback=request.on_accepted) is None
    assert threads.fate("a") == "held"
    assert request.withdraw()


def test_a_pool_has_the_size_to_which_it_may_grow_for_tasks_alone() -> None:
    queues = SimpleNamespace(consume_from={"tasks": None})
    app = SimpleNamespace(amqp=SimpleNamespace(queues=queues))
    for limit, most in ((4, 2), (2, 4), (4, None)):
        worker = SimpleNamespace(pool=SimpleNamespace(limit=limit), max_concurrency=most, app=app)
        assert pool_size(worker, {"tasks": "url", "others": "url"}) == 4
        # Messages of a user's own consumer need no pool.
        assert pool_size(worker, {"others": "url"}) == math.inf


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
def test_a_pool_that_takes_not_even_an_empty_job_is_broken(
    threads: Scene, *, is_broken: bool
) -> None:
    threads.pool.error = RuntimeError("can't start new thread") if is_broken else None
    assert takes_jobs(threads.pool) is not is_broken
