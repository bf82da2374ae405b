"""Recognizes a broken worker, and ends it."""

from __future__ import annotations

from typing import Any

from celery.platforms import EX_FAILURE
from celery.worker import state


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


def end_worker(hub: Any, error: Exception) -> None:
    """End a broken worker in the way the error would end a stock worker, with its exit code.

    Args:
        hub: Its event loop, or None.
    """
    if hub is not None:
        # Raised here, the error might end only a timer.
        hub.call_soon(_end, error)
    else:
        state.should_stop = EX_FAILURE


def _end(error: Exception) -> None:
    # After a connection error, Celery would otherwise reconnect, although the worker no longer
    # receives messages.
    state.should_stop = EX_FAILURE
    raise error
