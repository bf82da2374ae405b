"""Handles Celery's own errors around a task: no message stays leased indefinitely.

A stock worker does nothing about such a message. It becomes visible again when its visibility
timeout ends. Under a lease, the timeout would not end while the worker lives. So the message is
settled, or its lease ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.worker import state

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.worker.ends import ENDS_WORKER, Failure, failure_of, is_for_pool
from celery_sqs_heartbeat.worker.pools import takes_no_more
from celery_sqs_heartbeat.worker.requests import LeasedRequest

logger = get_logger(__name__)


def guard_run(pool: Any) -> None:
    """Guard how a pool without processes runs a task.

    Two kinds of errors must reach the task's request, as they do from a process: errors around
    the task (for example, of a result backend that is down), and errors that are not an
    `Exception` (`sys.exit()`). A thread or a greenlet only ends, without a report to the request,
    which then neither acks nor rejects the message.

    A task may also wait for a free greenlet, after a timer gave it to the pool. Its message may be
    released before one is free: at a shutdown, or with a lost connection.
    """
    if pool.uses_semaphore:
        # It has processes.
        return
    apply = pool.on_apply

    def on_apply(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        request = _leased_request(kwargs)
        if request is not None and takes_no_more(pool):
            # As with processes, there is no job, and the worker's shutdown releases the message.
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
    """Connect requests to their jobs in a pool of processes. Call this after the pool started."""
    if not pool.uses_semaphore:
        return
    apply = pool.on_apply

    def on_apply(*args: Any, **kwargs: Any) -> Any:
        job = apply(*args, **kwargs)
        request = _leased_request(kwargs)
        # A stopped pool makes no job, and the worker's shutdown releases the message.
        if request is not None and job is not None:
            request.follow(job)
        return job

    pool.on_apply = on_apply


def keep_undecodable(consumer: Any, keeper: LinkedKeeper) -> None:
    """Have messages that can't be decoded end in the dead-letter queue, if they have one.

    Celery acks such a message, because most brokers would deliver it again and again.
    """
    give_up = consumer.on_decode_error

    def on_decode_error(message: Any, error: Exception) -> None:
        lease = keeper.find(str(message.delivery_tag))
        if lease is not None and lease.max_receive_count is not None:
            message.ack = message.reject
        give_up(message, error)

    consumer.on_decode_error = on_decode_error


def _leased_request(callbacks: Mapping[str, Any]) -> LeasedRequest | None:
    request = getattr(callbacks.get("accept_callback"), "__self__", None)
    return request if isinstance(request, LeasedRequest) else None


class _Start:
    """One start of a task, which is refused if its message is no longer ours."""

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
        """Tell the request that its task begins, unless the task must not start."""
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
        """Return a function that runs the task, unless the task must not start."""

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
        """Tell the request that its time limit has passed, and have its message settled.

        Before 5.7, Celery leaves the message unsettled until the process ends.
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
