"""What pools do around tasks: no message stays leased indefinitely, and no ack is lost.

A stock worker does nothing about a message around whose task Celery raises an error of its own. The
message becomes visible again when its visibility timeout ends. Under a lease, the timeout would not
end while the worker lives. So the message is settled, or its lease ends.

Pools without processes can't report some ends of a task. If a task raises an error that is not an
`Exception`, Celery makes a `WorkerLostError` of it, as if a process had exited. It passes this
error to the callback for a success, which fails. The message would then be neither acked nor
rejected.

Pools also survive a worker's shutdown and lost connections.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker import state
from celery.worker.autoscale import Autoscaler
from kombu.utils.encoding import safe_repr

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.worker.requests import LeasedRequest
from celery_sqs_heartbeat.worker.starts import is_with_process

logger = get_logger(__name__)

#: These exceptions end the worker, not only the task.
_ENDS_WORKER = (WorkerShutdown, WorkerTerminate)


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
        if request is not None and _takes_no_more(pool):
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


def pool_size(worker: Any, queues: Iterable[str]) -> float:
    """Return how many messages of queues a worker's pool runs at once, when it has grown.

    Infinity for the queues of a user's consumer step, which run no tasks.
    """
    if worker.app.amqp.queues.consume_from.keys().isdisjoint(queues):
        return math.inf
    return float(max(worker.pool.limit or 0, worker.max_concurrency or 0))


def count_requests(consumer: Any, heartbeat: Heartbeat) -> None:
    """Note which requests the pool has, or has to wait for: not those that are due later.

    Call this before the consumer has started.
    """
    give = consumer.on_task_request

    def on_task_request(request: Any) -> Any:
        if isinstance(request, LeasedRequest):
            heartbeat.in_pool[request.message.delivery_tag] = request
        return give(request)

    consumer.on_task_request = on_task_request


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


def make_shutdown_reentrant(pool: Any) -> None:
    """Let a signal handler stop a threads pool, whatever the signal interrupted.

    Celery's cold and soft shutdown stop the pool in a signal handler. If the signal arrives while
    the event loop submits a task, that frame holds the executor's lock. The handler would wait
    indefinitely for the frame that it interrupted, as it does in a stock worker.
    """
    executor = getattr(pool, "executor", None)
    if executor is not None:
        executor._shutdown_lock = threading.RLock()


def scaling_fault(worker: Any) -> str | None:
    """Return why a worker can't scale its pool as it should, or None.

    Celery would find that out from the first message that needs another thread, and again from each
    one after it.
    """
    scaler = worker.autoscaler
    if type(scaler) is not Autoscaler or hasattr(worker.pool, "grow"):
        return None
    most, least = scaler.max_concurrency, scaler.min_concurrency
    if most == least:
        return None
    pool = type(worker.pool).__module__.rpartition(".")[2]
    return (
        f"--autoscale: must not be given for pool {pool!r}, which can't grow, and it is "
        f"{most},{least}: use --concurrency, or pool prefork, gevent or eventlet"
    )


def keep_running_jobs_on_flush(pool: Any) -> None:
    """Keep a prefork pool from losing the results of its jobs when a connection is lost.

    When a connection is lost or the worker stops, Celery makes its pool forget every job that no
    process has accepted yet, because the broker delivers the message again. Before 5.6 it also
    forgets running jobs (`AsynPool.flush`). Our messages are still leased, and the processes run
    the jobs that were written to them. Their acks must not be lost.
    """
    flush = getattr(pool, "flush", None)
    jobs = getattr(getattr(pool, "_pool", None), "_cache", None)
    if flush is None or jobs is None:
        return

    def flush_but_remember() -> None:
        running = {number: job for number, job in jobs.items() if is_with_process(job)}
        flush()
        for number, job in running.items():
            if not job.ready():
                jobs.setdefault(number, job)

    pool.flush = flush_but_remember


def do_nothing(*_: Any) -> None:
    """Do nothing, in the pool."""


def takes_jobs(pool: Any) -> bool:
    """Return whether a pool takes a job that has nothing to do.

    If it does, another job that it does not take is at fault itself.
    """
    try:
        pool.apply_async(do_nothing, ("sqs-heartbeat", "check"), callback=do_nothing)
    except Exception:
        return False
    return True


def _takes_no_more(pool: Any) -> bool:
    """Return whether a threads pool was stopped. Its executor then refuses all tasks."""
    executor = getattr(pool, "executor", None)
    return executor is not None and executor._shutdown


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
            except _ENDS_WORKER:
                self._request.end()
                raise
            except BaseException as error:
                if self._is_for_pool(error):
                    raise
                return _failure_of(error)

        return run

    def end(self, result: Any) -> None:
        """Tell the request how its task ended."""
        try:
            if self._is_refused:
                return
            if isinstance(result, _Failure):
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
        """Return whether the pool itself has raised the error, and waits for it."""
        if isinstance(error, _class("greenlet", "GreenletExit")):
            return self._request.is_stopped
        # A timeout that the task itself set has other seconds.
        is_timeout = isinstance(error, _class("gevent", "Timeout"))
        limit = self._time_limit
        return is_timeout and bool(limit) and getattr(error, "seconds", None) == limit


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


@dataclass(frozen=True, slots=True)
class _Failure:
    """The failure of a task, in place of its result."""

    info: ExceptionInfo = field(repr=False)


def _failure_of(error: BaseException) -> _Failure:
    """Return the failure that Celery makes of an error that is not an `Exception`."""
    lost = WorkerLostError(safe_repr(error) or type(error).__name__)
    lost.__cause__ = error
    return _Failure(ExceptionInfo((WorkerLostError, lost, error.__traceback__)))


def _class(module: str, name: str) -> Any:
    """Return a class for `isinstance`, or () if its library is not loaded."""
    return getattr(sys.modules.get(module), name, ())
