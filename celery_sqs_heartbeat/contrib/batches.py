"""Tasks that run with many messages at once, like those of celery-batches.

A worker that has such tasks calls `guard_batches` by its name; others do not load this module.

Their strategy gathers requests, and its `flush` gives them to the pool as one job. Celery reports
nothing about that job to the requests: neither that it runs, nor that its process died and the
job is lost, because no one waits for that error. So this module watches a flush and its jobs.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import Celery
from kombu.utils.encoding import safe_repr
from kombu.utils.imports import symbol_by_name

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.worker.requests import LeasedRequest, error_of
from celery_sqs_heartbeat.worker.starts import gathers_requests

logger = get_logger(__name__)


class Batch:
    """The requests of one flush, and the pool's jobs that the flush made of them.

    When all its jobs have ended, in any way, every message of the batch must be settled.

    Args:
        pool: In a pool without processes, a job may wait for a free thread or greenlet until a
            shutdown has released its messages. Such a job then does nothing.
    """

    def __init__(self, requests: Sequence[Any], pool: Any) -> None:
        self._may_refuse = not pool.uses_semaphore
        # A job may end on another thread while the flush ends. Each request is taken only once.
        self._requests = deque(each for each in requests if isinstance(each, LeasedRequest))
        self._open: set[object] = {self}
        self._reason = "the batch did not run"

    def give(
        self, apply: Callable[..., Any], target: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """Give a job of the batch to the pool; return the job."""
        job, is_refused = object(), False
        accept, done, failed = (
            options.get(name) for name in ("accept_callback", "callback", "error_callback")
        )

        def run(*args: Any, **kwargs: Any) -> Any:
            return None if is_refused else target(*args, **kwargs)

        def on_accepted(*args: Any) -> None:
            nonlocal is_refused
            is_refused = self._may_refuse and self._has_lost_any()
            if is_refused:
                return
            for request in list(self._requests):
                request.begin()
            if accept is not None:
                accept(*args)

        def on_return(result: Any) -> None:
            if (error := _error_in(result)) is not None:
                on_error(error)
                return
            try:
                if done is not None and not is_refused:
                    done(result)
            finally:
                self.end(job)

        def on_error(error: ExceptionInfo) -> None:
            self._reason = safe_repr(error_of(error))
            try:
                if failed is not None:
                    failed(error)
            finally:
                self.end(job)

        options.update(accept_callback=on_accepted, callback=on_return, error_callback=on_error)
        self._open.add(job)
        try:
            given = apply(run if self._may_refuse else target, *args, **options)
        except BaseException:
            self._open.discard(job)
            raise
        for request in list(self._requests):
            request.note_job(given)
        return given

    def end(self, job: object = None) -> None:
        """Note that a job has ended, or without a job, that the flush has ended."""
        self._open.discard(self if job is None else job)
        if not self._open:
            self._settle()

    def _has_lost_any(self) -> bool:
        # Another job of the batch may have settled its own requests.
        waiting = [request for request in self._requests if not request.acknowledged]
        return bool([request for request in waiting if not request.claim_start()])

    def _settle(self) -> None:
        while True:
            try:
                request = self._requests.popleft()
            except IndexError:
                # The flush and a job on another thread may both see that nothing is open.
                return
            if request.is_unsettled():
                logger.warning(
                    "sqs-heartbeat: task %s[%s] was neither acked nor rejected when its batch "
                    "ended (%s): releasing its message",
                    request.name,
                    request.id,
                    self._reason,
                )
                request.reject(requeue=True)


_flushed: ContextVar[Batch | None] = ContextVar("sqs_heartbeat_flushed", default=None)


def guard_batches(app: Celery, pool: Any) -> None:
    """Connect requests that run many at once to their job in the pool.

    This also leaves out requests whose message is no longer ours: it was released, or lost.
    """
    for task in filter(gathers_requests, app.tasks.values()):
        task.flush = _following(task.flush, pool)
        task.Strategy = _restarting_timer(task, symbol_by_name(task.Strategy))
    apply = pool.apply_async

    @functools.wraps(apply)
    def apply_async(*args: Any, **options: Any) -> Any:
        batch = _flushed.get()
        return apply(*args, **options) if batch is None else batch.give(apply, *args, **options)

    pool.apply_async = apply_async


def _following(flush: Callable[[Any], Any], pool: Any) -> Callable[[Any], Any]:
    @functools.wraps(flush)
    def flush_ours(requests: Sequence[Any]) -> Any:
        ours = [each for each in requests if not _is_not_ours(each)]
        if not ours:
            return None
        batch = Batch(ours, pool)
        token = _flushed.set(batch)
        try:
            return flush(ours)
        finally:
            _flushed.reset(token)
            batch.end()

    return flush_ours


def _restarting_timer(task: Any, strategy: Callable[..., Any]) -> Callable[..., Any]:
    """Return a strategy that starts the flush timer again for each consumer.

    A lost connection clears Celery's timers. celery-batches (0.11) starts its timer only once. It
    would never again flush a batch that is not full, and its leases would be kept up to their cap.
    """

    @functools.wraps(strategy)
    def start(*args: Any, **options: Any) -> Any:
        if getattr(task, "_tref", None) is not None:
            task._tref.cancel()
            task._tref = None
        return strategy(*args, **options)

    return start


def _is_not_ours(request: Any) -> bool:
    return isinstance(request, LeasedRequest) and request.is_not_ours()


def _error_in(result: Any) -> ExceptionInfo | None:
    """Return the error that a pool without processes returns in place of a job's result."""
    parts = result if isinstance(result, tuple) else (result,)
    return next((part for part in parts if isinstance(part, ExceptionInfo)), None)
