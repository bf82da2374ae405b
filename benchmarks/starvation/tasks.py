"""The tasks of the workers, for an app of the acceptance tests."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import time
from typing import Any

from celery import Task

from benchmarks.starvation.remedy import extended_by_a_thread
from tests.acceptance.proj import app, note, wait_to_end
from tests.support.clients import sqs_client

MODULE = __name__
#: A scene sends a task by its name here.
PREFIX = "tests.acceptance.proj."
#: The remedy extends when two thirds of the visibility timeout are left: earlier than ours.
REMEDY_PART = 1 / 3


@functools.cache
def _client() -> Any:
    return sqs_client(os.environ["CELERY_BROKER_URL"].replace("sqs://testing:testing@", "http://"))


def _remedy(task: Task[Any, Any], timeout: int) -> contextlib.AbstractContextManager[None]:
    """Extend the task's message by a thread, if a visibility timeout is given."""
    if not timeout:
        return contextlib.nullcontext()
    info = task.request.properties["delivery_info"]
    extend = functools.partial(
        _client().change_message_visibility,
        QueueUrl=info["sqs_queue"],
        ReceiptHandle=info["sqs_message"]["ReceiptHandle"],
        VisibilityTimeout=timeout,
    )
    return extended_by_a_thread(extend, timeout * REMEDY_PART)


@app.task(bind=True, name=f"{PREFIX}wait")
def wait(self: Task[Any, Any], key: str, seconds: int, timeout: int) -> None:
    """Wait, as for another service. Other threads run meanwhile."""
    with _remedy(self, timeout):
        note("start", key)
        time.sleep(seconds)
    note("end", key)


@app.task(bind=True, name=f"{PREFIX}block")
def block(self: Task[Any, Any], key: str, seconds: int, timeout: int) -> None:
    """Keep Python's lock for so long, as one call of a C library may.

    It begins that call once it may end.
    """
    with _remedy(self, timeout):
        note("start", key)
        wait_to_end(key)
        ctypes.PyDLL(None).sleep(seconds)
    note("end", key)
