"""Tasks that decide when their message becomes visible again; `proj` loads them by `imports`."""

from __future__ import annotations

import os
import signal
import time

from celery_sqs_heartbeat import QueueInfo, ReleaseMessage, current_lease
from tests.acceptance.proj import app, note

MODULE = __name__


def backoff(
    *,
    exception: type[BaseException] | None,
    receive_count: int,
    message_age: float | None,
    queue: QueueInfo,
) -> float | None:
    """Return a delay by the error. Check that the worker passes all that it knows."""
    assert message_age is not None
    assert queue.max_receive_count
    return 1 if exception is ConnectionError else None


@app.task(autoretry_for=(Exception,))
def release(key: str, delay: float | None = None, runs: int = 1) -> None:
    """Release its message in the first `runs` runs."""
    note("start", key)
    if current_lease.receive_count <= runs:
        raise ReleaseMessage(delay=delay, reason="by design")
    note("end", key)


@app.task(acks_on_failure_or_timeout=False, reject_on_worker_lost=True, time_limit=8)
def fail_after(key: str, delay: float, way: str) -> None:
    """Set a delay, then fail as `way` says."""
    note("start", key)
    if current_lease.receive_count > 1:
        note("end", key)
        return
    current_lease.release_delay = delay
    if way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "time limit":
        time.sleep(30)
    if way == "released":
        raise ReleaseMessage
    raise ValueError(key)


@app.task(acks_on_failure_or_timeout=False)
def lose_connection(key: str) -> None:
    note("start", key)
    raise ConnectionError(key)


@app.task
def release_anyway(key: str) -> None:
    """Release its message in any worker, in each run."""
    note("start", key)
    raise ReleaseMessage(delay=1)


@app.task(acks_late=False)
def release_too_late(key: str) -> None:
    note("start", key)
    raise ReleaseMessage(delay=1)
