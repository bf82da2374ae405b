"""Ends of a task that Celery's pools without processes can't report.

Of an error that is no `Exception` Celery makes a `WorkerLostError`, as of a process that has
ended. It gives that to the callback of a success, which fails on it: the message would be
neither acked nor rejected.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.exceptions import WorkerShutdown, WorkerTerminate
from kombu.utils.encoding import safe_repr

#: They end the worker, not the task alone.
ENDS_WORKER = (WorkerShutdown, WorkerTerminate)


@dataclass(frozen=True, slots=True)
class Failure:
    """What a task ended by, in place of its result."""

    info: ExceptionInfo = field(repr=False)


def failure_of(error: BaseException) -> Failure:
    """Return the failure that Celery means by an error which is no `Exception`."""
    lost = WorkerLostError(safe_repr(error) or type(error).__name__)
    lost.__cause__ = error
    return Failure(ExceptionInfo((WorkerLostError, lost, error.__traceback__)))


def is_for_pool(error: BaseException, *, is_stopped: bool, time_limit: float | None) -> bool:
    """Return whether the pool itself has made the error, and waits for it.

    Args:
        is_stopped: Whether Celery has stopped the task.
        time_limit: That of the task, in seconds.
    """
    if isinstance(error, _class("greenlet", "GreenletExit")):
        return is_stopped
    # One of the task's own has other seconds.
    is_timeout = isinstance(error, _class("gevent", "Timeout"))
    return is_timeout and bool(time_limit) and getattr(error, "seconds", None) == time_limit


def _class(module: str, name: str) -> Any:
    """Return a class for `isinstance`; of a library that is not loaded, none."""
    return getattr(sys.modules.get(module), name, ())
