"""Makes pools survive a worker's shutdown and lost connections."""

from __future__ import annotations

import threading
from typing import Any

from celery.worker.autoscale import Autoscaler


def make_shutdown_reentrant(pool: Any) -> None:
    """Let a signal handler stop a threads pool, whatever the signal interrupted.

    Celery's cold and soft shutdown stop the pool in a signal handler. If the signal arrives while
    the event loop submits a task, that frame holds the executor's lock. The handler would wait
    indefinitely for the frame that it interrupted, as it does in a stock worker.
    """
    executor = getattr(pool, "executor", None)
    if executor is not None:
        executor._shutdown_lock = threading.RLock()


def scaling_fault(worker: Any) -> str | None:
    """Return why a worker can't scale its pool as it should, or None.

    Celery would find that out from the first message that needs another thread, and again from each
    one after it.
    """
    scaler = worker.autoscaler
    if type(scaler) is not Autoscaler or hasattr(worker.pool, "grow"):
        return None
    most, least = scaler.max_concurrency, scaler.min_concurrency
    if most == least:
        return None
    pool = type(worker.pool).__module__.rpartition(".")[2]
    return (
        f"--autoscale: must not be given for pool {pool!r}, which can't grow, and it is "
        f"{most},{least}: use --concurrency, or pool prefork, gevent or eventlet"
    )


def takes_no_more(pool: Any) -> bool:
    """Return whether a threads pool was stopped. Its executor then refuses all tasks."""
    executor = getattr(pool, "executor", None)
    return executor is not None and executor._shutdown


def keep_running_jobs_on_flush(pool: Any) -> None:
    """Keep a prefork pool from losing the results of its jobs when a connection is lost.

    When a connection is lost or the worker stops, Celery makes its pool forget every job that no
    process has accepted yet, because the broker delivers the message again. Before 5.6 it also
    forgets running jobs (`AsynPool.flush`). Our messages are still leased, and the processes run
    the jobs that were written to them. Their acks must not be lost.
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
    """Return whether a pool runs a job, or will run it after the job's consumer is closed."""
    # A pool of threads or greenlets runs every job that it was given.
    return is_with_process(job) if hasattr(job, "accepted") else True


def is_with_process(job: Any) -> bool:
    """Return whether a prefork job was accepted by a process, or is being written to one."""
    return bool(job.accepted() or job._write_to is not None)
