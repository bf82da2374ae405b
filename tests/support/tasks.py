"""Runs tasks in this process as a worker's pool process does."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from celery import Celery
from celery.app.trace import build_tracer

app = Celery("in-process", set_as_current=False)


def sqs_message(handle: str, *, message_id: str = "m", receive_count: int = 1) -> dict[str, Any]:
    """Return a message in the form in which kombu gets it from SQS."""
    return {
        "MessageId": message_id,
        "ReceiptHandle": handle,
        "Attributes": {"ApproximateReceiveCount": str(receive_count)},
    }


def run_task(task: Any, args: Sequence[Any], message: Mapping[str, Any] | None) -> Any:
    """Run a task as a worker does that has received it in an SQS message.

    Args:
        message: None for a message of another broker.

    Raises:
        Exception: What the task raised.
    """
    delivery_info = {} if message is None else {"sqs_message": message, "sqs_queue": "https://q"}
    request = {"is_eager": False, "properties": {"delivery_info": delivery_info}}
    trace = build_tracer(task.name, task, app=task.app)
    result, info, *_ = trace(uuid.uuid4().hex, args, {}, request)
    if info is not None:
        raise info.retval
    return result


def run_in_task(
    function: Callable[[], Any], message: Mapping[str, Any] | None, **options: Any
) -> Any:
    """Call a function in a task, and return its result or raise its error.

    Args:
        options: Options of the task, which acks late unless they override that.
    """

    @app.task(name=f"task-{uuid.uuid4().hex}", **{"acks_late": True, **options})
    def body() -> Any:
        return function()

    try:
        return run_task(app.tasks[body.name], (), message)
    finally:
        del app.tasks[body.name]
