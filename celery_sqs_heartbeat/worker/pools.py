"""Makes pools survive a worker's end and lost connections."""

from __future__ import annotations

import threading
from typing import Any


def make_shutdown_reentrant(pool: Any) -> None:
    """Have a threads pool stop in a signal's handler, whatever the signal interrupted.

    Celery's cold and soft shutdown stop the pool there. A signal that came while the event
    loop gave the executor a task, which takes the executor's lock, would wait for ever for
    the very frame that it interrupted (and does in a stock worker).
    """
    executor = getattr(pool, "executor", None)
    if executor is not None:
        executor._shutdown_lock = threading.RLock()


def takes_no_more(pool: Any) -> bool:
    """Return whether a threads pool was stopped: its executor refuses all tasks from then on."""
    executor = getattr(pool, "executor", None)
    return executor is not None and executor._shutdown


def keep_running_jobs_on_flush(pool: Any) -> None:
    """Keep the results of a prefork pool's jobs from being lost with a connection.

    When a connection is lost or the worker stops, Celery has its pool forget every job
    that no process has accepted yet, since the broker delivers its message again (before
    5.6 those that run, too: `AsynPool.flush`). Ours are leased still, and are run by the
    process that they were written to: their ack must not get lost.
    """
    flush = getattr(pool, "flush", None)
    jobs = getattr(getattr(pool, "_pool", None), "_cache", None)
    if flush is None or jobs is None:
        return

    def flush_but_remember() -> None:
        running = {number: job for number, job in jobs.items() if is_with_process(job)}
        flush()
        for number, job in running.items():
            if not job.ready():
                jobs.setdefault(number, job)

    pool.flush = flush_but_remember


def will_run(job: Any) -> bool:
    """Return whether a pool runs a job, or will, though the consumer that gave it is closed."""
    # A pool of threads or greenlets runs whatever it was given.
    return is_with_process(job) if hasattr(job, "accepted") else True


def is_with_process(job: Any) -> bool:
    """Return whether a prefork job was accepted by a process, or is being written to one."""
    return bool(job.accepted() or job._write_to is not None)
