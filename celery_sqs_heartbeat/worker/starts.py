"""A request up to the start of its task: it knows its lease, and whether the task may start.

Celery gives a task to the pool when its message is delivered, from a timer, or when another task
ends. If this raises an error, the slot that was taken for the task is lost. If it happens when
another task ends, the worker ends. So a task that fails to start keeps neither a slot nor a lease.
The error may come from what the message says, so it proves nothing about the pool.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import ref

from celery.exceptions import InvalidTaskError, TaskRevokedError
from celery.worker import state
from celery.worker.strategy import default
from kombu.utils.encoding import safe_repr
from kombu.utils.imports import symbol_by_name

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.events import UNSETTLED
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus
from celery_sqs_heartbeat.leases.message import is_fifo
from celery_sqs_heartbeat.transport.binding import Heartbeat, Watch, bound
from celery_sqs_heartbeat.transport.settling import TaskFailure
from celery_sqs_heartbeat.worker.retrying import mark_request
from celery_sqs_heartbeat.worker.versions import installed

if TYPE_CHECKING:
    from celery.worker.request import Request
else:
    Request = object

logger = get_logger(__name__)

#: How the names of Celery's own tasks begin.
_CELERYS_OWN = "celery."
#: What may happen to a request that waits for the pool.
_START, _WITHDRAWAL = "start", "withdrawal"


def _guarded(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `execute_using_pool` whose errors the request and the worker survive.

    Raises:
        TaskRevokedError: The task does not start. Celery frees the slot that it took for the task.
    """

    @functools.wraps(execute)
    def execute_using_pool(request: Any, pool: Any, **kwargs: Any) -> Any:
        try:
            job = execute(request, pool, **kwargs)
        except TaskRevokedError:
            request.leave_pool()
            raise
        except Exception as error:
            request.leave_pool()
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


class StartingRequest(Request):
    """Mixin for a Celery request: lets its task start only while its message is ours."""

    _lease: Lease | None = None
    _heartbeat: Heartbeat | None = None
    _watch: Watch | None = None
    _has_begun = False
    #: A retry of the task releases its message.
    _retries_are_releases = False
    _job: ref[Any] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Guard task starts in subclasses, too: Celery derives one for each task."""
        super().__init_subclass__(**kwargs)
        if execute := vars(cls).get("execute_using_pool"):
            cls.execute_using_pool = _guarded(execute)  # type: ignore[method-assign]

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(message, *args, **kwargs)
        _check_contents(self.time_limits, self.kwargs)
        self._heartbeat = bound()
        if self._heartbeat is not None:
            self._lease = self._heartbeat.keeper.find(message.delivery_tag)
        if self._heartbeat is not None and self._lease is not None:
            self._heartbeat.requests[self._lease.key] = self
            self._watch = self._heartbeat.orphaned.watch(self, self._lease, message)
            self._retries_are_releases = self._releases_retries(self._lease, self._heartbeat)
            if self._retries_are_releases:
                mark_request(self, self._lease)
        elif self._heartbeat is not None:
            report_unleased(self._heartbeat, message, self)

    def _releases_retries(self, lease: Lease, heartbeat: Heartbeat) -> bool:
        # With an early ack there is no message left to release. A task of Celery's own, such as
        # `celery.chord_unlock`, retries to wait for messages that were sent after its own.
        return (
            lease.is_in_order
            and bool(self.task.acks_late)
            and not (lease.task or "").startswith(_CELERYS_OWN)
            and heartbeat.leased.releases_retries(lease)
        )

    @_guarded
    def execute_using_pool(self, pool: Any, **kwargs: Any) -> Any:
        """Give the task to the pool, as a task's own strategy may do, too; return the job."""
        return super().execute_using_pool(pool, **kwargs)

    def leave_pool(self) -> None:
        """Note that the pool has run its task, or does not take it."""
        if self._heartbeat is not None:
            self._heartbeat.note_run(self._tag)

    def note_job(self, job: Any) -> None:
        """Note the pool's job that runs its task; some pools have no jobs."""
        self._job = None if job is None else ref(job)

    def revoked(self) -> bool:
        """Return whether the task must not start: it is revoked, or its message is not ours."""
        if self.is_not_ours():
            return True
        return bool(super().revoked())

    def is_not_ours(self) -> bool:
        """Return whether the task must not start because its message is no longer ours; log it."""
        if reason := self._why_not_ours():
            # A withdrawn task comes up in its turn while a shutdown waits for others to start.
            is_news = self.__dict__.get("_claimed") != _WITHDRAWAL
            logger.log(
                logging.WARNING if is_news else logging.INFO,
                "sqs-heartbeat: task %s[%s] is not started: %s",
                self.name,
                self.id,
                reason,
            )
        return bool(reason)

    def _why_not_ours(self) -> str:
        heartbeat, lease = self._heartbeat, self._lease
        if heartbeat is None or lease is None:
            return ""
        if not self.is_held():
            return "its message was released"
        keeper, on_lost = heartbeat.keeper, self.on_lost()
        # With "warn", a task whose lease has only expired still starts: the lease may be saved.
        # In strict order it must not, because other messages of its group may run before it by now.
        may_be_saved = on_lost == "warn" and not lease.is_in_order
        may_start = not keeper.is_lost(self._tag) if may_be_saved else keeper.owns(self._tag)
        if may_start:
            return ""
        keeper.disown(self._tag)
        # Otherwise the message would keep its prefetch slot indefinitely.
        self.message.channel.qos.ack(self._tag)
        # By the clock the lease may have expired before the keeper has noticed.
        status = LeaseStatus.EXPIRED if lease.status is LeaseStatus.OWNED else lease.status
        if lease.is_in_order:
            return f"its lease is {status.value}, and SQS delivers its group again"
        return f"its lease is {status.value}, and sqs_heartbeat_on_lost is {on_lost!r}"

    def claim_start(self) -> bool:
        """Return whether the task may start: its message is ours, and it was not withdrawn.

        A pool's thread may start the task while another thread releases the message. Only the
        first of the two succeeds, because a released message may run elsewhere at once.
        """
        return not self.is_not_ours() and self._claim(_START)

    def withdraw(self) -> bool:
        """Keep the task from starting; return False if it had already started."""
        return self._claim(_WITHDRAWAL)

    def _claim(self, what: str) -> bool:
        # Atomic: no other thread can run in between.
        return bool(self.__dict__.setdefault("_claimed", what) == what)

    def on_accepted(self, pid: Any, time_accepted: Any) -> None:
        """Note that the task begins."""
        # In a pool without processes, the pid may be the number of a greenlet.
        has_process = self._heartbeat is not None and self._heartbeat.has_processes
        self.begin(pid if has_process else None)
        super().on_accepted(pid, time_accepted)

    def begin(self, pid: int | None = None) -> None:
        """Note that the task begins, and in which process."""
        self._has_begun = True
        if self._heartbeat is not None and self._lease is not None:
            self._heartbeat.keeper.note_start(self._tag, pid)

    def has_started(self) -> bool:
        """Return whether the pool has reported that it runs the task.

        If a task's own strategy reports nothing about it, the task counts as running.
        """
        is_unknown = self._job is None and _has_own_strategy(self.task)
        return self._has_begun or (is_unknown and not gathers_requests(self.task))

    def outlives_consumer(self) -> bool:
        """Return whether the pool runs the task, or will run it after its consumer is closed."""
        if self.has_started() or self._job is None:
            return self.has_started()
        return will_run(self._job())

    def has_job(self) -> bool:
        """Return whether the pool has a job for the task."""
        return self._job is not None and self._job() is not None

    def is_due_for_the_last_time(self) -> bool:
        """Return whether its message was received for the last time, and its task may start."""
        is_due = self.eta is None or self.eta.timestamp() <= time.time()
        return is_due and self._lease is not None and self._lease.is_last_receive

    def is_fifo(self) -> bool:
        """Return whether its message is of a FIFO queue."""
        return self._lease is not None and is_fifo(self._lease.queue_url)

    def on_lost(self) -> str:
        """Return what happens to its task when the lease is lost."""
        if self._heartbeat is None or self._lease is None:
            return "warn"
        return self._heartbeat.leased.rules_of(self._lease).on_lost or "warn"

    def is_held(self) -> bool:
        """Return whether its message is neither acked nor released yet."""
        if self._heartbeat is None:
            return False
        lease = self._heartbeat.keeper.find(self._tag)
        return lease is not None and lease is self._lease and lease.goal is Goal.HOLD

    def is_unsettled(self) -> bool:
        """Return whether its message is still leased, and neither acked nor rejected."""
        return self._lease is not None and not self.acknowledged and self.is_held()

    def release(self, cause: str) -> None:
        """Release the message."""
        self.message.channel.release(self._tag, cause=cause)

    @property
    def _tag(self) -> str:
        return str(self.message.delivery_tag)

    def give_up(self, error: Exception, *, is_refused: bool = False) -> str:
        """Release the message like that of a failed task, because its task can't be started.

        If it may have started, the message is left to its visibility timeout. Return what happens
        to the message, for the log; nothing if it is not held, or already settled.

        Args:
            is_refused: Whether the pool did not take the task. Otherwise, a strategy of its own may
                have given it to the pool before the error.
        """
        if self._heartbeat is None or self.acknowledged or not self.is_held():
            return ""
        has_started = self._has_begun if is_refused else self.has_started()
        if has_started or self._job is not None or not self.withdraw():
            self._heartbeat.keeper.let_expire(self._tag, UNSETTLED)
            what = ": its message becomes visible again when its visibility timeout ends"
        else:
            failure = TaskFailure(exception=type(error), is_undeliverable=True)
            self.message.channel.reject(self._tag, requeue=True, failure=failure)
            what = ": its message is released like that of a failed task"
        # Otherwise the message would keep its prefetch slot indefinitely.
        self.message.channel.qos.ack(self._tag)
        return what

    def check_pool(self, error: Exception) -> None:
        """End the worker if its pool, which did not take this task, takes no other either."""
        if self._heartbeat is not None and not self._heartbeat.is_ending:
            self._heartbeat.check_pool(error)


def report_unleased(heartbeat: Heartbeat, message: Any, request: Any) -> None:
    """Log a message of a leased queue that has no lease, once for each queue.

    A message that the keeper has handed over is not logged: its lease may have ended before its
    request was made.
    """
    info = message.delivery_info or {}
    if str(message.delivery_tag) in heartbeat.arriving:
        return
    queue = heartbeat.leased.names.get(str(info.get("sqs_queue")))
    if queue is None or not heartbeat.first_time(f"no lease {queue}"):
        return
    logger.error(
        "sqs-heartbeat: message %s of queue %s, task %s[%s], has no lease: kombu bypassed the "
        "heartbeat when it delivered the message, and may do so with all messages of the queue. "
        "A task that runs for longer than the visibility timeout then runs again. Installed: %s. "
        "Install tested versions, or raise the queue's visibility timeout and start workers with "
        "--no-heartbeat-sqs",
        (info.get("sqs_message") or {}).get("MessageId"),
        queue,
        request.name,
        request.id,
        installed(),
    )


def _check_contents(time_limits: Any, kwargs: Any) -> None:
    """Check what a message says about its task, beyond what Celery checks itself.

    A pool of processes uses time limits when the task has begun, and an error would end the worker.
    Without keyword arguments that are any, Celery runs no task, and acks the message.

    Raises:
        InvalidTaskError: Something is wrong. Celery logs that and rejects the message.
    """
    try:
        _, _ = time_limits
        is_valid = all(
            limit is None or (isinstance(limit, int | float) and float(limit) >= 0)
            for limit in time_limits
        )
    except (TypeError, ValueError, OverflowError):
        is_valid = False
    if not is_valid:
        raise InvalidTaskError(f"invalid timelimit value {safe_repr(time_limits)}")
    if not isinstance(kwargs, Mapping):
        raise InvalidTaskError("Task keyword arguments must be a mapping")


def _has_own_strategy(task: Any) -> bool:
    """Return whether something other than Celery gives the task's requests to the pool."""
    return symbol_by_name(task.Strategy) is not default


def gathers_requests(task: Any) -> bool:
    """Return whether the task's strategy gathers requests and runs many at once.

    celery-batches does this: its `flush` gives the requests that it receives to the pool.
    """
    return _has_own_strategy(task) and callable(getattr(task, "flush", None))


def will_run(job: Any) -> bool:
    """Return whether a pool runs a job, or will run it after the job's consumer is closed."""
    # A pool of threads or greenlets runs every job that it was given.
    return is_with_process(job) if hasattr(job, "accepted") else True


def is_with_process(job: Any) -> bool:
    """Return whether a prefork job was accepted by a process, or is being written to one."""
    return bool(job.accepted() or job._write_to is not None)
