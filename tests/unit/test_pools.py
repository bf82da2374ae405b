"""How pools behave when their worker ends."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.worker.pools import make_shutdown_reentrant, will_run
from tests.support.insides import job_of_process
from tests.support.waiting import PATIENCE


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


@pytest.mark.parametrize(
    ("accepted", "write_to", "expected"),
    [(False, None, False), (True, None, True), (False, "a process", True)],
)
def test_a_job_of_processes_outlives_its_consumer_once_one_has_it(
    accepted: bool, write_to: str | None, expected: bool
) -> None:
    job = job_of_process(accepted=accepted, write_to=write_to)
    assert will_run(job) is expected


@pytest.mark.parametrize("job", [None, Future()])
def test_a_job_of_threads_or_greenlets_outlives_its_consumer(job: Any) -> None:
    assert will_run(job)
