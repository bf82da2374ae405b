"""Recognizes a broken pool."""

from __future__ import annotations

from typing import Any


def do_nothing(*_: Any) -> None:
    """Do nothing, in the pool."""


def takes_jobs(pool: Any) -> bool:
    """Return whether a pool takes a job that has nothing to do.

    If it does, another job that it does not take is at fault itself.
    """
    try:
        pool.apply_async(do_nothing, ("sqs-heartbeat", "check"), callback=do_nothing)
    except Exception:
        return False
    return True
