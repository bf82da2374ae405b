"""Errors of Celery's own around a task: its message is settled or left, never kept for ever.

A stock worker leaves such a message to the queue, which shows it again when its visibility
timeout ends. Under a lease that would not end while the worker lives.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.worker import state

from celery_sqs_heartbeat.worker.requests import LeasedRequest

logger = logging.getLogger(__name__)

_LEFT = ": its message is left in the queue and comes back when its visibility timeout ends"


def guard_start(worker: Any) -> None:
    """Have a task that can't be given to the pool cost neither a slot nor a lease.

    Celery gives it to the pool when its message is delivered, by a timer, or when another
    task ends. An error then (of a `timelimit` that is none, say) loses the slot that was
    taken for it, and where another task ended, ends the worker.

    Where different tasks fail one after the other, the pool is broken, and the worker is to end.
    """
    start = worker._process_task

    @functools.wraps(start)
    def process_task(request: Any) -> None:
        try:
            start(request)
        except Exception as error:
            if not isinstance(request, LeasedRequest):
                raise
            logger.exception(
                "sqs-heartbeat: task %s[%s] can't be run%s",
                request.name,
                request.id,
                _LEFT if request.abandon() else "",
            )
            state.task_ready(request)
            if hasattr(worker, "_quick_release"):
                worker._quick_release()
            request.note_failed_start(error)
        else:
            if isinstance(request, LeasedRequest):
                request.note_start()

    if worker.process_task == start:
        worker.process_task = process_task
    worker._process_task = process_task


def guard_run(pool: Any) -> None:
    """Guard how a pool without processes runs a task.

    An error around it (of a result backend that is down, say) is to reach its request, as a
    process reports it. A thread or a greenlet just ends: the request is not told, and
    neither acks nor rejects its message.

    And a task that waits for a free greenlet, given to the pool by its timer, may find one
    when its message has been released: at a shutdown, or with a lost connection.
    """
    if pool.uses_semaphore:
        # It has processes.
        return
    apply = pool.on_apply

    def on_apply(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        request = getattr(kwargs.get("accept_callback"), "__self__", None)
        if isinstance(request, LeasedRequest):
            start = _Start(request, kwargs["accept_callback"], kwargs["callback"])
            kwargs.update(accept_callback=start.accept, callback=start.end)
            target = start.running(target)
        return apply(_reporting(target), *args, **kwargs)

    pool.on_apply = on_apply


class _Start:
    """One start of a task, which comes to nothing where its message is not ours any more."""

    def __init__(
        self,
        request: LeasedRequest,
        accept: Callable[[Any, Any], None],
        end: Callable[[Any], None],
    ) -> None:
        self._request = request
        self._accept = accept
        self._end = end
        self._is_refused = False

    def accept(self, pid: Any, time_accepted: Any) -> None:
        """Tell the request that its task begins, unless it must not."""
        self._is_refused = self._request.is_not_ours()
        if self._is_refused:
            state.task_ready(self._request)
        else:
            self._accept(pid, time_accepted)

    def running(self, target: Callable[..., Any]) -> Callable[..., Any]:
        """Return what runs the task, unless it must not."""
        return lambda *args, **kwargs: None if self._is_refused else target(*args, **kwargs)

    def end(self, result: Any) -> None:
        """Tell the request how its task ended."""
        if not self._is_refused:
            self._end(result)


def _reporting(target: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(target)
    def run(task: str, task_id: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return target(task, task_id, *args, **kwargs)
        except Exception:
            logger.exception(
                "sqs-heartbeat: Celery failed around task %s[%s]: it counts as failed",
                task,
                task_id,
            )
            failed, runtime = 1, 0.0
            return failed, ExceptionInfo(), runtime

    return run
