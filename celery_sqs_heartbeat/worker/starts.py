"""Handles tasks that fail to start: they keep neither a slot nor a lease.

Celery gives a task to the pool when its message is delivered, from a timer, or when another task
ends. If this raises an error, the slot that was taken for the task is lost. If it happens when
another task ends, the worker ends.

The error may come from what the message says, so it proves nothing about the pool.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from celery.exceptions import TaskRevokedError
from celery.worker import state

from celery_sqs_heartbeat.common.escaping import get_logger

logger = get_logger(__name__)


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
            raise
        except Exception as error:
            left = request.give_up(error, is_refused=True)
            logger.exception(
                "sqs-heartbeat: task %s[%s] can't be run%s", request.name, request.id, left
            )
            state.task_ready(request)
            request.check_pool(error)
            raise TaskRevokedError(request.id) from error
        request.note_job(job)
        return job

    return execute_using_pool
