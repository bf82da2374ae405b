"""Starts of tasks that fail: they cost neither a slot nor a lease.

Celery gives a task to the pool when its message is delivered, by a timer, or when another task
ends. An error then (of a `timelimit` that is none, say) loses the slot that was taken for it, and
where another task ended, ends the worker.

Where different tasks fail one after the other, the pool is broken, and the worker is to end.
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

#: Errors of a connection that is lost: no fault of the pool's.
_LOST = (*Transport.connection_errors, *Transport.channel_errors)
_LEFT = (
    ": its message stays in the queue and becomes visible again when its visibility timeout ends"
)


def guarded(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a request's `execute_using_pool` whose errors the request and the worker survive.

    Raises:
        TaskRevokedError: The task is not started: Celery frees the slot that it took for it.
    """

    @functools.wraps(execute)
    def execute_using_pool(request: Any, pool: Any, **kwargs: Any) -> Any:
        try:
            job = execute(request, pool, **kwargs)
        except TaskRevokedError:
            # Nothing is wrong with a worker that gets as far as to refuse a task.
            request.note_start()
            raise
        except Exception as error:
            logger.exception(
                "sqs-heartbeat: task %s[%s] can't be run%s",
                request.name,
                request.id,
                _LEFT if request.abandon() else "",
            )
            state.task_ready(request)
            if not isinstance(error, _LOST):
                request.note_failed_start(error)
            raise TaskRevokedError(request.id) from error
        request.note_job(job)
        request.note_start()
        return job

    return execute_using_pool
