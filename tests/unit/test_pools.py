"""What a worker's end does to its pool."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from celery_sqs_heartbeat.worker.pools import let_signals_stop
from tests.support.waiting import PATIENCE


def test_a_threads_pool_stops_in_a_handler_that_interrupted_a_submit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submitted: list[Future[Any]] = []

    class Interrupted(SimpleQueue):  # type: ignore[type-arg]
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item)
            if item is not None:
                # What the handler of a cold shutdown does, in the frame that submits.
                executor.shutdown(wait=False)

    with monkeypatch.context() as patched:
        patched.setattr("queue.SimpleQueue", Interrupted)
        executor = ThreadPoolExecutor(1)
    let_signals_stop(SimpleNamespace(executor=executor))
    thread = Thread(target=lambda: submitted.append(executor.submit(int)), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert [future.result(PATIENCE) for future in submitted] == [0]
