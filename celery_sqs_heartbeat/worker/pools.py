"""Has a pool remember what its processes run, whatever becomes of the consumer."""

from __future__ import annotations

from typing import Any


def remember_running_jobs(pool: Any) -> None:
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


def is_with_process(job: Any) -> bool:
    """Return whether a prefork job was accepted by a process, or is being written to one."""
    return bool(getattr(job, "_accepted", False)) or getattr(job, "_write_to", None) is not None
