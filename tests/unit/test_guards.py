"""Errors of Celery's own around a task reach its request, and cost no slot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.breakage import Breakage
from celery_sqs_heartbeat.worker.guards import guard_run, guard_start
from celery_sqs_heartbeat.worker.requests import LeasedRequest


def pool_of(uses_semaphore: bool) -> Any:
    return SimpleNamespace(
        uses_semaphore=uses_semaphore,
        on_apply=lambda target, args, **options: target(*args, **options),
    )


def fails(task: str, task_id: str) -> None:
    raise ConnectionError(f"the result backend is down, {task}[{task_id}]")


def test_an_error_around_a_task_in_a_thread_comes_back_as_its_failure() -> None:
    pool = pool_of(uses_semaphore=False)
    guard_run(pool)
    failed, info, _ = pool.on_apply(fails, ("t", "1"))
    assert failed
    assert "the result backend is down, t[1]" in str(info.exception)


def test_what_a_thread_returns_is_passed_on() -> None:
    pool = pool_of(uses_semaphore=False)
    guard_run(pool)
    assert pool.on_apply(lambda task, task_id: (0, task, task_id), ("t", "1")) == (0, "t", "1")


def test_a_pool_of_processes_reports_errors_itself() -> None:
    pool = pool_of(uses_semaphore=True)
    guard_run(pool)
    with pytest.raises(ConnectionError):
        pool.on_apply(fails, ("t", "1"))


def test_a_request_that_is_not_ours_fails_as_before() -> None:
    def start(request: Any) -> None:
        raise ValueError(request)

    worker: Any = SimpleNamespace(_process_task=start, process_task=start)
    guard_start(worker)
    assert worker.process_task is worker._process_task is not start
    with pytest.raises(ValueError, match="foreign"):
        worker.process_task("foreign")


class Unstartable(LeasedRequest):
    """A request of a worker with a heartbeat, whose task the pool does not take."""

    name = "t"

    def __init__(self, key: str, breakage: Breakage) -> None:
        self.id = key
        self._heartbeat: Any = SimpleNamespace(breakage=breakage, is_ending=False)

    def abandon(self) -> bool:
        return False


def test_a_pool_that_takes_no_task_any_more_ends_the_worker() -> None:
    def start(request: Any) -> None:
        if request.id != "good":
            raise RuntimeError("the pool is broken")

    breakage, ended = Breakage(), []
    breakage.end = ended.append
    worker: Any = SimpleNamespace(_process_task=start, process_task=start)
    guard_start(worker)
    for key in ("a", "a", "a", "b", "good", "c", "d"):
        worker.process_task(Unstartable(key, breakage))
    assert ended == []
    worker.process_task(Unstartable("e", breakage))
    (error,) = ended
    assert str(error) == "the pool is broken"
