"""The message of the running task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import _state

from celery_sqs_heartbeat.errors import NoLease


def current_message() -> Mapping[str, Any]:
    """Return the SQS message of the task that this thread or greenlet runs for a worker.

    Tasks that it calls, directly or eagerly, have no message: they run under their caller's.

    Raises:
        NoLease: There is no message, or it is deleted before its task begins.
    """
    for task in reversed(_state._task_stack.stack):
        for request in reversed(task.request_stack.stack):
            if not (request.called_directly or request.is_eager):
                return _message(task, request)
    raise NoLease("no worker runs a task here")


def _message(task: Any, request: Any) -> Mapping[str, Any]:
    try:
        message: Mapping[str, Any] = request.properties["delivery_info"]["sqs_message"]
    except (KeyError, TypeError):
        raise NoLease("the task's message did not come from SQS") from None
    if not task.acks_late:
        raise NoLease(
            f"task {task.name} has acks_late=False: its message is deleted when it begins"
        )
    return message
