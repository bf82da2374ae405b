"""Handles tasks that fail to start: they keep neither a slot nor a lease.

Celery gives a task to the pool when its message is delivered, from a timer, or when another task
ends. If this raises an error (for example, because of an invalid `timelimit`), the slot that was
taken for the task is lost. If it happens when another task ends, the worker ends.

If different tasks fail to start one after the other, the pool is broken, and the worker must end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from celery.exceptions import TaskRevokedError
from celery.worker import state

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.transport import Transport

logger = get_logger(__name__)

#: Errors of a lost connection. They are not the pool's fault.
_LOST = (*Transport.connection_errors, *Transport.channel_errors)
_LEFT = (
    ": its message stays in the queue and becomes visible again when its visibility timeout ends"
)


def guarded(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `execute_using_pool` whose errors the request and the worker survive.

    Raises:
        TaskRevokedError: The task does not start. Celery frees the slot that it took for the task.
    """

    @functools.wraps(execute)
    def execute_using_pool(request: Any, pool: Any, **kwargs: Any) -> Any:
        try:
            job = execute(request, pool, **kwargs)
        except TaskRevokedError:
            # A worker that can refuse a task is not broken.
            request.note_start()
            raise
        except Exception as error:
            logger.exception(
                "sqs-heartbeat: task %s[%s] can't be run%s",
                request.name,
                request.id,
                _LEFT if request.let_expire() else "",
            )
            state.task_ready(request)
            if not isinstance(error, _LOST):
                request.note_failed_start(error)
            raise TaskRevokedError(request.id) from error
        request.note_job(job)
        request.note_start()
        return job

    return execute_using_pool
