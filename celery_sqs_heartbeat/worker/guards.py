"""Errors of Celery's own around a task: its message is settled or left, never kept for ever.

A stock worker leaves such a message to the queue, which shows it again when its visibility
timeout ends. Under a lease that would not end while the worker lives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.worker import state

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.worker.ends import ENDS_WORKER, Failure, failure_of, is_for_pool
from celery_sqs_heartbeat.worker.pools import takes_no_more
from celery_sqs_heartbeat.worker.requests import LeasedRequest

logger = get_logger(__name__)


def guard_run(pool: Any) -> None:
    """Guard how a pool without processes runs a task.

    An error around it (of a result backend that is down, say), or one that is no `Exception`
    (`sys.exit()`), is to reach its request, as a process reports it. A thread or a greenlet
    just ends: the request does not hear of it, and neither acks nor rejects its message.

    And a task that waits for a free greenlet, given to the pool by its timer, may find one
    when its message has been released: at a shutdown, or with a lost connection.
    """
    if pool.uses_semaphore:
        # It has processes.
        return
    apply = pool.on_apply

    def on_apply(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        request = _leased_request(kwargs)
        if request is not None and takes_no_more(pool):
            # As with processes: it makes no job, and the worker's end releases the message.
            return None
        target = _reporting(target)
        if request is not None:
            limit = kwargs.get("timeout") or getattr(pool, "timeout", None)
            start = _Start(request, kwargs, limit)
            request.follow(start)
            kwargs.update(
                accept_callback=start.accept, callback=start.end, timeout_callback=start.time_out
            )
            target = start.running(target)
        return apply(target, *args, **kwargs)

    pool.on_apply = on_apply


def follow_jobs(pool: Any) -> None:
    """Have requests know their jobs in a pool of processes, once it is started."""
    if not pool.uses_semaphore:
        return
    apply = pool.on_apply

    def on_apply(*args: Any, **kwargs: Any) -> Any:
        job = apply(*args, **kwargs)
        request = _leased_request(kwargs)
        # A pool that was stopped makes no job: the worker's end releases the message.
        if request is not None and job is not None:
            request.follow(job)
        return job

    pool.on_apply = on_apply


def _leased_request(callbacks: Mapping[str, Any]) -> LeasedRequest | None:
    request = getattr(callbacks.get("accept_callback"), "__self__", None)
    return request if isinstance(request, LeasedRequest) else None


class _Start:
    """One start of a task, which comes to nothing where its message is not ours any more."""

    def __init__(
        self, request: LeasedRequest, callbacks: Mapping[str, Any], time_limit: float | None
    ) -> None:
        self._request = request
        self._accept = callbacks["accept_callback"]
        self._end = callbacks["callback"]
        self._time_out = callbacks["timeout_callback"]
        self._time_limit = time_limit
        self._is_refused = False

    def accept(self, pid: Any, time_accepted: Any) -> None:
        """Tell the request that its task begins, unless it must not."""
        self._is_refused = not self._request.claim_start()
        if self._is_refused:
            state.task_ready(self._request)
            return
        try:
            self._accept(pid, time_accepted)
        except BaseException:
            self._request.end()
            raise

    def running(self, target: Callable[..., Any]) -> Callable[..., Any]:
        """Return what runs the task, unless it must not."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if self._is_refused:
                return None
            try:
                return target(*args, **kwargs)
            except ENDS_WORKER:
                self._request.end()
                raise
            except BaseException as error:
                if self._is_for_pool(error):
                    raise
                return failure_of(error)

        return run

    def end(self, result: Any) -> None:
        """Tell the request how its task ended."""
        if self._is_refused:
            return
        try:
            if isinstance(result, Failure):
                self._request.on_failure(result.info)
            else:
                self._end(result)
        finally:
            self._request.end()

    def time_out(self, soft: bool, timeout: float) -> None:
        """Tell the request that its time is over, and have its message settled.

        Before 5.7 Celery leaves that to the end of the process.
        """
        try:
            self._time_out(soft, timeout)
            self._request.reject_if_unsettled(requeue=True)
        finally:
            self._request.end()

    def _is_for_pool(self, error: BaseException) -> bool:
        return is_for_pool(error, is_stopped=self._request.is_stopped, time_limit=self._time_limit)


def _reporting(target: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(target)
    def run(task: str, task_id: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return target(task, task_id, *args, **kwargs)
        except Exception:
            logger.exception(
                "sqs-heartbeat: Celery raised an error around task %s[%s]: it counts as failed",
                task,
                task_id,
            )
            failed, runtime = 1, 0.0
            return failed, ExceptionInfo(), runtime

    return run
