"""Ends of a task that Celery's pools without processes can't report.

If a task raises an error that is not an `Exception`, Celery makes a `WorkerLostError` of it, as if
a process had exited. It passes this error to the callback for a success, which fails. The message
would then be neither acked nor rejected.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.exceptions import WorkerShutdown, WorkerTerminate
from kombu.utils.encoding import safe_repr

#: These exceptions end the worker, not only the task.
ENDS_WORKER = (WorkerShutdown, WorkerTerminate)


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a task, in place of its result."""

    info: ExceptionInfo = field(repr=False)


def failure_of(error: BaseException) -> Failure:
    """Return the failure that Celery makes of an error that is not an `Exception`."""
    lost = WorkerLostError(safe_repr(error) or type(error).__name__)
    lost.__cause__ = error
    return Failure(ExceptionInfo((WorkerLostError, lost, error.__traceback__)))


def is_for_pool(error: BaseException, *, is_stopped: bool, time_limit: float | None) -> bool:
    """Return whether the pool itself has raised the error, and waits for it.

    Args:
        is_stopped: Whether Celery has stopped the task.
        time_limit: The task's time limit, in seconds.
    """
    if isinstance(error, _class("greenlet", "GreenletExit")):
        return is_stopped
    # A timeout that the task itself set has other seconds.
    is_timeout = isinstance(error, _class("gevent", "Timeout"))
    return is_timeout and bool(time_limit) and getattr(error, "seconds", None) == time_limit


def _class(module: str, name: str) -> Any:
    """Return a class for `isinstance`, or () if its library is not loaded."""
    return getattr(sys.modules.get(module), name, ())
